//! `nb demo`: it shows what it promises, and leaves nothing behind in any case.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::nb::until;
use crate::python;

/// Returns the command of a demo in its own temporary folder.
fn demo(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nb"));
    command
        .arg("demo")
        .arg("--python")
        .arg(python::interpreter())
        .args(arguments)
        .env("TMPDIR", folder)
        .env("HOME", folder.join("home"))
        .env_remove("JUPYTER_DATA_DIR")
        .stdin(Stdio::null());
    command
}

fn folder() -> tempfile::TempDir {
    let folder = crate::scope::folder();
    std::fs::create_dir(folder.path().join("home")).expect("make a home");
    folder
}

/// Returns the processes whose command line or working directory is in `folder`. A process that is just
/// ending no longer has a command line.
fn processes_in(folder: &Path) -> Vec<String> {
    let wanted = folder.to_string_lossy();
    std::fs::read_dir("/proc")
        .expect("there is /proc")
        .flatten()
        .filter_map(|entry| {
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let cwd = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
            let is_in = command.contains(&*wanted) || cwd.starts_with(folder);
            (is_in && !command.is_empty()).then_some(command)
        })
        .collect()
}

fn assert_nothing_is_left(folder: &Path) {
    // A process that was just being started ends when it sees that nobody waits for it.
    until("the last process", || {
        processes_in(folder).is_empty().then_some(())
    });
    let left: Vec<_> = walkdir::WalkDir::new(folder)
        .into_iter()
        .filter_entry(|entry| entry.file_name() != "home")
        .flatten()
        .map(|entry| entry.into_path())
        .collect();
    assert_eq!(left, [folder]);
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

#[cfg(target_os = "linux")]
#[test]
fn the_demo_shows_it_and_leaves_nothing() {
    let folder = folder();
    let output = demo(folder.path(), &[]).output().expect("start nb");
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for wanted in [
        "$ nb open demo.ipynb",
        "$ nb serve",
        "launches the kernelspec",
        "[1, 2, 3]",
        "42",
        "lines after",
        "answered \"Ada\"",
        "hello Ada",
        "KeyboardInterrupt",
        "nothing is left running",
    ] {
        assert!(text.contains(wanted), "no {wanted:?} in:\n{text}");
    }
    assert_nothing_is_left(folder.path());
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_demo_leaves_nothing() {
    let folder = folder();
    // At two moments: while the kernel starts, and while the front end is joined.
    for moment in ["makes a project", "launches the kernelspec"] {
        let mut running = demo(folder.path(), &[])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start nb");
        let stdout = running.stdout.take().expect("it is piped");
        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains(moment)), "no {moment:?}");
        let interrupted = Command::new("kill")
            .args(["-INT", &running.id().to_string()])
            .status()
            .expect("send SIGINT");
        assert!(interrupted.success());
        for _ in lines {}
        let mut stderr = String::new();
        running
            .stderr
            .take()
            .expect("it is piped")
            .read_to_string(&mut stderr)
            .expect("UTF-8");
        let status = running.wait().expect("it ends");
        assert_eq!(status.code(), Some(130), "{stderr}");
        assert_nothing_is_left(folder.path());
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_kept_demo_can_be_joined_and_ended() {
    let folder = folder();
    let kept = folder.path().join("kept");
    let keep = kept.to_string_lossy().into_owned();
    let output = demo(folder.path(), &["--keep", &keep])
        .output()
        .expect("start nb");
    let printed = text(&output);
    assert!(output.status.success(), "{printed}");
    for wanted in ["VS Code", "JupyterLab", "nb shared kernel"] {
        assert!(printed.contains(wanted), "no {wanted:?} in:\n{printed}");
    }
    let nb = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_nb"))
            .args(arguments)
            .current_dir(&kept)
            .env("HOME", folder.path().join("home"))
            .output()
            .expect("start nb");
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    assert_eq!(nb(&["run", "print(name)"]), "Ada\n");
    let again = demo(folder.path(), &["--keep", &keep])
        .output()
        .expect("start nb");
    assert_eq!(again.status.code(), Some(2), "{}", text(&again));
    assert_eq!(
        nb(&["run", "print(name)"]),
        "Ada\n",
        "the second demo touched it"
    );
    nb(&["shutdown"]);
    assert_eq!(processes_in(folder.path()), [""; 0]);
}

#[test]
fn a_python_without_ipykernel_is_refused_with_the_remedy() {
    let output = Command::new(env!("CARGO_BIN_EXE_nb"))
        .args(["demo", "--python", "/bin/true"])
        .output()
        .expect("start nb");
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("not a usable Python") && text.contains("--python PATH"),
        "{text}"
    );
}
