//! The processes and folders of one run of the tests: they end with the run, also if it is killed.
//!
//! A test removes what it made when it ends. A run that is killed has no such end. So each run starts
//! `tests/python/end_with_run.py`, which waits for the end of the run and then kills each process whose
//! environment, command line or working directory names a folder of the run, and prints which tests were skipped.
//! The next run removes the folders and the sockets, and prints their names.

use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock};

use crate::python;

/// Makes a temporary folder of this run.
///
/// It is directly under `/tmp`, since the path of a Unix socket has 108 bytes at most.
pub fn folder() -> tempfile::TempDir {
    folder_in(Path::new(PARENTS[0]))
}

/// Makes a temporary folder of this run in one of [`PARENTS`].
pub fn folder_in(parent: &Path) -> tempfile::TempDir {
    end_of_run();
    tempfile::Builder::new()
        .prefix(&format!("{PREFIX}{}-", std::process::id()))
        .rand_bytes(4)
        .tempdir_in(parent)
        .expect("make a folder for the test")
}

/// Gives a line about a skipped test to the process that waits for the end of the run.
pub fn at_end(line: &str) {
    let mut end = end_of_run().lock().expect("no test panics here");
    let stdin = end.stdin.as_mut().expect("it has a stdin");
    writeln!(stdin, "{line}").expect("end_with_run.py reads");
}

/// Returns the process that waits for the end of the run, and starts it first if need be. Its stdin closes with this
/// process.
fn end_of_run() -> &'static Mutex<Child> {
    static END: OnceLock<Mutex<Child>> = OnceLock::new();
    END.get_or_init(|| {
        remove_earlier_runs();
        let mut process = Command::new("python3");
        process
            .arg(python::script("end_with_run.py"))
            .arg(folders_of(std::process::id()));
        process
            .current_dir("/")
            // A signal for the group of the run does not reach it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null());
        Mutex::new(process.spawn().expect("start end_with_run.py"))
    })
}

/// Returns what the paths of all folders of a run contain, and those of no other run.
pub fn folders_of(run: u32) -> PathBuf {
    Path::new(PARENTS[0]).join(format!("{PREFIX}{run}-"))
}

fn entries() -> impl Iterator<Item = std::fs::DirEntry> {
    PARENTS.iter().flat_map(|parent| {
        let entries = std::fs::read_dir(parent).expect("read the folder of temporary files");
        entries.flatten()
    })
}

/// Returns the processes whose environment, command line or working directory names a folder of a run.
pub fn processes_of(run: u32) -> Vec<u32> {
    let folders = folders_of(run);
    let folders = folders.as_os_str().as_encoded_bytes();
    let entries = std::fs::read_dir("/proc").expect("there is /proc");
    let is_of_run = |pid: &u32| {
        let process = Path::new("/proc").join(pid.to_string());
        let texts = ["environ", "cmdline"].map(|name| std::fs::read(process.join(name)));
        let folder = std::fs::read_link(process.join("cwd")).unwrap_or_default();
        texts
            .into_iter()
            .flatten()
            .chain([folder.into_os_string().into_encoded_bytes()])
            .any(|text| text.windows(folders.len()).any(|part| part == folders))
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(is_of_run)
        .collect()
}

/// Removes the folders and the sockets of runs that have ended, and prints what it removes.
fn remove_earlier_runs() {
    let ended: Vec<_> = entries()
        .filter(|entry| run_of(&entry.file_name()).is_some_and(|run| !is_running(run)))
        .map(|entry| entry.path())
        .collect();
    if ended.is_empty() {
        return;
    }
    for path in &ended {
        let removed = match path.is_dir() {
            true => std::fs::remove_dir_all(path),
            false => std::fs::remove_file(path),
        };
        print(&format!(
            "a test run that was killed left {}: {removed:?}",
            path.display()
        ));
    }
    let home = tempfile::tempdir().expect("make a home");
    let sockets = Command::new(env!("CARGO_BIN_EXE_nb"))
        .arg("gc")
        .current_dir(home.path())
        .env("HOME", home.path())
        .output()
        .expect("start nb gc");
    print(&String::from_utf8_lossy(&sockets.stdout));
}

/// Prints a line that the test harness does not capture.
fn print(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", line.trim_end());
}

/// Returns the process id in the name of a folder of a run.
fn run_of(name: &std::ffi::OsStr) -> Option<u32> {
    let (run, _) = name.to_str()?.strip_prefix(PREFIX)?.split_once('-')?;
    run.parse().ok()
}

/// Says whether the tests of that process still run. Another program may have the id of a run that has ended.
fn is_running(run: u32) -> bool {
    let program = std::fs::read_link(format!("/proc/{run}/exe")).unwrap_or_default();
    program
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with("it-"))
}

/// Where the folders are. The path of the second one ends with that of the first.
const PARENTS: [&str; 2] = ["/tmp", "/var/tmp"];
const PREFIX: &str = "nb-it-";

#[cfg(test)]
mod tests {
    use std::io::BufRead;
    use std::time::{Duration, Instant};

    use super::*;
    use crate::world::World;

    /// Starts a kernel and waits for the end of the process, as the run that the next test kills.
    #[test]
    #[ignore = "never ends: another test starts it as a process and kills it"]
    fn waits_with_a_kernel() {
        let world = World::opened();
        let state = std::fs::read(world.project().join(".nb/state.json")).expect("read the state");
        let state: serde_json::Value = serde_json::from_slice(&state).expect("JSON");
        let file = state["connection_file"].as_str().expect("a path");
        let connection = std::fs::read(file).expect("read the connection file");
        let connection: serde_json::Value = serde_json::from_slice(&connection).expect("JSON");
        println!("sockets: {}", connection["ip"].as_str().expect("a path"));
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn the_processes_of_a_killed_run_end_and_the_next_run_removes_its_folders() {
        let own = std::env::current_exe().expect("this program");
        let run_test = |test: &str| {
            let mut run = Command::new(&own);
            run.args(["--exact", "--nocapture", "--include-ignored", test]);
            run
        };
        let mut run = run_test("scope::tests::waits_with_a_kernel")
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the run");
        let out = std::io::BufReader::new(run.stdout.take().expect("it has a stdout"));
        let mut lines = out.lines().map_while(Result::ok);
        let sockets = lines.find_map(|line| Some(line.split_once("sockets: ")?.1.to_owned()));
        let sockets = [1, 2, 3, 4, 5].map(|port| {
            let beginning = sockets.as_ref().expect("the kernel has started");
            format!("{beginning}-{port}")
        });
        assert!(
            processes_of(run.id()).len() >= 2,
            "the kernel and the process that waits for the end"
        );

        run.kill().expect("kill the run");
        run.wait().expect("wait for its end");
        let end = Instant::now() + Duration::from_secs(10);
        while !processes_of(run.id()).is_empty() {
            assert!(
                Instant::now() < end,
                "{:?} still run",
                processes_of(run.id())
            );
            std::thread::yield_now();
        }

        // `nb gc` leaves sockets that are younger than five seconds.
        for socket in &sockets {
            let old = rustix::fs::Timespec {
                tv_sec: 1_000_000_000,
                tv_nsec: 0,
            };
            let times = rustix::fs::Timestamps {
                last_access: old,
                last_modification: old,
            };
            let flags = rustix::fs::AtFlags::empty();
            rustix::fs::utimensat(rustix::fs::CWD, socket, &times, flags).expect("make it older");
        }

        // `nb gc` of a test beside this one may have removed them just now.
        let has_sockets = sockets.iter().any(|socket| Path::new(socket).exists());
        // Any other test that makes a folder; the run prints what it removes.
        let next = run_test("scope::tests::a_folder_is_of_this_run")
            .output()
            .expect("start it");
        let printed = String::from_utf8_lossy(&next.stderr);
        let folders = folders_of(run.id());
        assert!(printed.contains(&*folders.to_string_lossy()), "{printed}");
        assert!(
            !has_sockets || printed.contains("sockets of kernels"),
            "{printed}"
        );
        assert!(!sockets.iter().any(|socket| Path::new(socket).exists()));
        let left: Vec<_> = entries()
            .filter(|entry| run_of(&entry.file_name()) == Some(run.id()))
            .collect();
        assert!(left.is_empty(), "{left:?}");
    }

    #[test]
    fn a_folder_is_of_this_run() {
        let folder = folder();
        let name = folder.path().file_name().expect("it has a name");
        assert_eq!(run_of(name), Some(std::process::id()));
        assert!(is_running(std::process::id()));
    }
}
