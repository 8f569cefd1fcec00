//! Kernels in a sandbox: what cannot get out, as root and as an ordinary user, with bubblewrap and with
//! Landlock; what still works inside; and what is refused.
//!
//! Each attempt to get out has a name in `tests/python/escapes.py`. Its targets are set up here and exist:
//! listening sockets, readable files, running processes.

use std::io::Read;
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Output, kill, output_of, path, pid, until};
use crate::made::run;
use crate::skipped::has_bubblewrap;

const ESCAPES: &str = include_str!("../../python/escapes.py");
const LIBRARIES: &str = include_str!("../../python/libraries.txt");

/// The uid of an ordinary user, who has no entry on any system.
const ORDINARY: u32 = 54321;

/// Returns a Python with libraries where every user may run it; `target/` may be in root's home.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let mark = LIBRARIES
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let user = rustix::process::geteuid().as_raw();
        // Not below /tmp, which would be another place for the sandbox's own temporary files.
        let home = PathBuf::from(format!("/var/tmp/nb-tests-python-{user}-{mark:016x}"));
        let lock = std::fs::File::create(home.with_extension("lock")).expect("make the lock");
        lock.lock().expect("lock what is being made");
        if !home.join("complete").exists() {
            let _ = std::fs::remove_dir_all(&home);
            run(Command::new("/usr/bin/python3")
                .args(["-m", "venv"])
                .arg(&home));
            let wanted = home.join("requirements.txt");
            std::fs::write(&wanted, LIBRARIES).expect("write the requirements");
            run(Command::new(home.join("bin/python"))
                .args(["-m", "pip", "install", "--quiet", "-r"])
                .arg(&wanted));
            std::fs::write(home.join("complete"), "").expect("mark it complete");
        }
        home.join("bin/python")
    })
}

/// Where a user's project is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Below /tmp.
    Temporary,
    /// In the user's home, which is not below /tmp.
    Home,
    /// A file system of its own, which only root can make.
    Mount,
}

/// A user's home and project, and an `nb` that this user may run.
struct Person {
    root: tempfile::TempDir,
    uid: u32,
    place: Place,
}

impl Person {
    /// Returns the user who runs the tests.
    fn own() -> Self {
        Self::new(rustix::process::geteuid().as_raw(), Place::Temporary)
    }

    /// Returns an ordinary user: the one who runs the tests, unless that is root.
    fn ordinary() -> Self {
        Self::new(Self::ordinary_id(), Place::Temporary)
    }

    fn ordinary_id() -> u32 {
        match rustix::process::geteuid().as_raw() {
            0 => ORDINARY,
            own => own,
        }
    }

    fn new(uid: u32, place: Place) -> Self {
        let root = match place {
            Place::Temporary => crate::scope::folder(),
            Place::Home | Place::Mount => crate::scope::folder_in(Path::new("/var/tmp")),
        };
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755))
            .expect("open it to the user");
        let person = Self { root, uid, place };
        // A hard link if possible: a copy cannot be run while a child that another test forks still has it
        // open for writing.
        let built = env!("CARGO_BIN_EXE_nb");
        if std::fs::hard_link(built, person.program()).is_err() {
            std::fs::copy(built, person.program()).expect("copy nb");
        }
        for folder in [
            person.home(),
            person.project(),
            person.project().join("out"),
        ] {
            std::fs::create_dir(&folder).expect("make a folder");
            if place == Place::Mount && folder == person.project() {
                run(Command::new("mount")
                    .args(["-t", "tmpfs", "-o", "mode=755", "tmpfs"])
                    .arg(&folder));
            }
            person.give(&folder);
        }
        let fifo = person.project().join("fifo");
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        mknodat(CWD, &fifo, FileType::Fifo, Mode::from(0o666), 0).expect("make a pipe");
        person.give(&fifo);
        for (folder, name) in [(person.home(), "secret"), (person.project(), "victim")] {
            std::fs::write(folder.join(name), "text").expect("write a file");
            person.give(&folder.join(name));
        }
        person
    }

    fn give(&self, path: &Path) {
        std::os::unix::fs::chown(path, Some(self.uid), Some(self.uid)).expect("give it away");
    }

    fn program(&self) -> PathBuf {
        self.root.path().join("nb")
    }

    fn home(&self) -> PathBuf {
        self.root.path().join("home")
    }

    fn project(&self) -> PathBuf {
        match self.place {
            Place::Home => self.home().join("project"),
            Place::Temporary | Place::Mount => self.root.path().join("project"),
        }
    }

    /// Returns a command that this user runs, with a secret in the environment.
    fn command(&self, program: &Path) -> Command {
        let mut command = if rustix::process::geteuid().as_raw() == self.uid {
            Command::new(program)
        } else {
            let mut command = Command::new("setpriv");
            let id = self.uid.to_string();
            command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]);
            command.arg(program);
            command
        };
        command
            .current_dir(self.project())
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .env("SECRET_MARK", "1")
            .env("NB_TIMEOUT", "60")
            .env("HOME", self.home());
        command
    }

    fn nb(&self, words: &[&str]) -> Output {
        output_of(self.command(&self.program()).args(words))
    }

    fn open(&self, words: &[&str]) -> Value {
        let python = python().to_str().expect("a path");
        let mut all = vec![
            "open",
            "t.ipynb",
            "--no-serve",
            "--json",
            "--python",
            python,
        ];
        all.extend(words);
        self.nb(&all).ended(0).json()
    }

    /// Runs code that prints; returns what it printed.
    fn run(&self, code: &str) -> String {
        self.nb(&["run", "t.ipynb", code]).ended(0).stdout
    }

    fn state(&self) -> Value {
        let text = std::fs::read(self.project().join(".nb/state.json")).expect("the state");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if self.project().join(".nb/state.json").exists() {
            output_of(
                self.command(&self.program())
                    .args(["shutdown", "--force", "t.ipynb"]),
            );
        }
        let inside = self.root.path().to_string_lossy().into_owned();
        let left = || {
            let output = output_of(Command::new("ps").args(["-eo", "args"]));
            let lines = output.stdout.lines().filter(|line| line.contains(&inside));
            let all: Vec<_> = lines.map(str::to_owned).collect();
            all.is_empty().then_some(()).ok_or(all)
        };
        if std::thread::panicking() {
            eprintln!("left running: {:?}", left());
            for entry in walkdir(&self.project().join(".nb/kernels")) {
                eprintln!("{}", std::fs::read_to_string(entry).unwrap_or_default());
            }
        } else {
            until("everything has ended", || left().ok());
        }
        if self.place == Place::Mount {
            output_of(Command::new("umount").arg(self.project()));
        }
    }
}

/// Opens a named pipe, without waiting for a writer.
fn reading_end(fifo: &Path) -> std::fs::File {
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).expect("flags");
    let mut options = std::fs::OpenOptions::new();
    let opened = options.read(true).custom_flags(flags).open(fifo);
    opened.expect("open the pipe")
}

fn walkdir(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// The targets outside of the sandbox, which the code inside must not reach.
struct Outside {
    tcp: TcpListener,
    udp: UdpSocket,
    datagrams: UnixDatagram,
    _listeners: [UnixListener; 2],
    bystander: Child,
    /// The other end of the named pipe in the workspace: without a reader it could not be opened.
    pipe: std::fs::File,
    /// The System V objects, as arguments for `ipcrm`.
    shared: Vec<[String; 2]>,
    folder: tempfile::TempDir,
    marks: Value,
}

impl Outside {
    fn new(person: &Person) -> Self {
        let folder = tempfile::tempdir().expect("make a folder");
        let everybody = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .expect("open it to everybody");
        };
        everybody(folder.path(), 0o777);
        let at = |name: &str| folder.path().join(name);
        let tcp = TcpListener::bind("127.0.0.1:0").expect("listen on TCP");
        let udp = UdpSocket::bind("127.0.0.1:0").expect("listen on UDP");
        let name = format!("nb-tests-{}", folder.path().display());
        let address = SocketAddr::from_abstract_name(&name).expect("an abstract name");
        let listeners = [
            UnixListener::bind_addr(&address).expect("listen on an abstract socket"),
            UnixListener::bind(at("stream")).expect("listen on a path"),
        ];
        let datagrams = UnixDatagram::bind(at("datagrams")).expect("listen on a path");
        for file in ["file", "others"] {
            std::fs::write(at(file), "text").expect("write a file");
            everybody(&at(file), 0o666);
        }
        for socket in ["stream", "datagrams"] {
            everybody(&at(socket), 0o777);
        }
        tcp.set_nonblocking(true).expect("do not wait");
        udp.set_nonblocking(true).expect("do not wait");
        datagrams.set_nonblocking(true).expect("do not wait");
        // A process of the same user: only the sandbox forbids signals to it.
        let bystander = person
            .command(Path::new("/bin/sleep"))
            .arg("1000")
            .stdout(Stdio::null())
            .spawn()
            .expect("start a process");
        let pipe = reading_end(&person.project().join("fifo"));
        let mut shared = Vec::new();
        let mut share = |made: &[&str], removed: &str| {
            let output = output_of(person.command(Path::new("/usr/bin/ipcmk")).args(made)).ended(0);
            let id = output.stdout.rsplit(' ').next().expect("its number").trim();
            shared.push([removed.to_owned(), id.to_owned()]);
            id.parse::<i32>().expect("a number")
        };
        let shm = share(&["-M", "4096", "-p", "0666"], "-m");
        let sem = share(&["-S", "1", "-p", "0666"], "-s");
        let msg = share(&["-Q", "-p", "0666"], "-q");
        let session = &person.state()["sessions"]["t.ipynb"];
        let marks = json!({
            "tcp": tcp.local_addr().expect("its port").port(),
            "udp": udp.local_addr().expect("its port").port(),
            "abstract": name,
            "path": at("stream"),
            "datagrams": at("datagrams"),
            "workspace": person.project(),
            "home": person.home(),
            "nb": person.project().join(".nb"),
            "notebook": person.project().join("t.ipynb"),
            "victim": person.project().join("victim"),
            "connection_file": session["connection_file"],
            "file": at("file"),
            "others": at("others"),
            "file_in_tmp": at("made"),
            "fifo": person.project().join("fifo"),
            "shm": shm,
            "sem": sem,
            "msg": msg,
            "pid": bystander.id(),
            "cmdline": "sleep",
            "address": 0x40_0000,
            "other_uid": 12345,
        });
        Self {
            tcp,
            udp,
            datagrams,
            _listeners: listeners,
            bystander,
            pipe,
            shared,
            folder,
            marks,
        }
    }

    /// Checks that nothing arrived outside and nothing was changed.
    fn is_untouched(&mut self, person: &Person) {
        assert!(self.tcp.accept().is_err(), "a connection arrived");
        assert!(self.udp.recv(&mut [0]).is_err(), "a datagram arrived");
        assert!(self.datagrams.recv(&mut [0]).is_err(), "a datagram arrived");
        assert_eq!(self.pipe.read(&mut [0]).ok(), Some(0), "it was written");
        assert!(!self.folder.path().join("made").exists());
        let victim = person.project().join("victim");
        let found = std::fs::metadata(&victim).expect("it is there");
        assert_eq!((found.mode() & 0o777, found.nlink()), (0o644, 1));
        assert_eq!(std::fs::read(&victim).expect("its text"), b"text");
        for folder in [person.project(), person.home()] {
            assert!(!folder.join("new").exists());
        }
        assert!(matches!(self.bystander.try_wait(), Ok(None)), "it lives");
    }
}

impl Drop for Outside {
    fn drop(&mut self) {
        let _ = self.bystander.kill();
        let _ = self.bystander.wait();
        for words in &self.shared {
            output_of(Command::new("ipcrm").args(words));
        }
    }
}

/// Tries every way out, in the kernel and in a child of it.
fn nothing_gets_out(person: &Person) {
    let mut outside = Outside::new(person);
    let source = serde_json::to_string(ESCAPES).expect("JSON");
    let marks = outside.marks.to_string();
    // This JSON is also valid Python: it has no true, false or null.
    let code = format!(
        r#"
import json, subprocess, sys
source, marks = {source}, {marks}
names = {{"__name__": "escapes"}}
exec(source, names)
found = names["escapes"](marks)
print(len(found), "tried; got out:", sorted(name for name in found if found[name]))
child = source + "\nimport json, sys\nprint(json.dumps(escapes(json.loads(sys.argv[1]))))"
done = subprocess.run([sys.executable, "-c", child, json.dumps(marks)], capture_output=True, text=True)
found = json.loads(done.stdout) if done.stdout else done.stderr
print("of a child,", len(found), "tried; got out:", sorted(name for name in found if found[name]))
"#
    );
    let printed = person.run(&code);
    let tried = printed
        .split(' ')
        .next()
        .and_then(|it| it.parse::<usize>().ok());
    assert!(tried.is_some_and(|tried| tried >= 300), "{printed}");
    let tried = tried.unwrap_or_default();
    eprintln!("{printed}");
    assert_eq!(
        printed,
        format!("{tried} tried; got out: []\nof a child, {tried} tried; got out: []\n")
    );
    outside.is_untouched(person);
}

/// Tests what a kernel in a sandbox can do like any other.
fn work_goes_on(person: &Person) {
    let printed = person.run(
        r#"
import os, numpy, pandas, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt, multiprocessing as mp
plt.plot(numpy.arange(9)); plt.savefig(os.path.join(os.environ["TMPDIR"], "plot.png"))
pandas.DataFrame({"a": [1, 2]}).to_csv("out/a.csv")
with mp.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
!echo from a shell
print(open("victim").read(), "/nb/scratch/" in os.environ["HOME"], os.path.expanduser("~") == os.environ["HOME"])
"#,
    );
    assert_eq!(printed, "[1, 2]\nfrom a shell\ntext True True\n");
    let written = person.project().join("out/a.csv");
    assert_eq!(
        std::fs::read_to_string(written).expect("it was written"),
        ",a\n0,1\n1,2\n"
    );
    // Memory and processors are limited, and the answer says so.
    let printed = person.run("try: bytearray(2 * 10**9)\nexcept MemoryError: print('too much')");
    assert_eq!(printed, "too much\n");
    let printed = person.run("import os; print(len(os.sched_getaffinity(0)))");
    assert_eq!(printed, "1\n");
}

/// Returns the mechanisms of a sandbox that this machine has.
fn mechanisms() -> impl Iterator<Item = &'static str> {
    let bubblewrap = has_bubblewrap().then_some("bubblewrap");
    bubblewrap.into_iter().chain(["landlock"])
}

fn holds(person: &Person, mechanism: &str) {
    let sandbox = format!("--sandbox={mechanism}");
    let room = [sandbox.as_str(), "--allow-write", "out", "--cpus", "1"];
    let options = [&room[..], &["--memory", "1.5G"]].concat();
    let opened = person.open(&options);
    assert_eq!(opened["sandbox"]["mechanism"], mechanism, "{opened}");
    assert_eq!(opened["sandbox"]["missing"], json!([]), "{opened}");
    let scratch = path(&opened["sandbox"]["scratch"]);
    nothing_gets_out(person);
    work_goes_on(person);

    // The time of a cell is limited, by an interrupt. The limit can be set while the kernel runs.
    let again = person.open(&[&room[..], &["--max-time", "2"]].concat());
    assert_eq!(again["how"], "attached");
    assert_eq!(again["sandbox"]["max_time_s"], 2.0);
    person
        .nb(&["run", "t.ipynb", "import time\nwhile True: time.sleep(1)"])
        .ended(130)
        .with("KeyboardInterrupt");
    // Without the limit, so that the rest has enough time on a busy machine.
    person.open(&room);
    person.run("print('alive')");

    // A restart stays inside the sandbox.
    person.nb(&["restart", "t.ipynb"]).ended(0);
    nothing_gets_out(person);
    let status = person.nb(&["status", "t.ipynb"]).ended(0);
    status.with(&format!(
        "sandbox: {mechanism}, tried from inside: no network"
    ));

    // Opening without options keeps the sandbox; opening with other rules is refused.
    let again = person.open(&[]);
    assert_eq!(again["how"], "attached");
    person
        .nb(&["open", "t.ipynb", "--no-serve", "--sandbox"])
        .ended(5)
        .with("its sandbox has other rules")
        .with("nb shutdown");

    // The kernel's death is noticed, and processes that it left behind are ended with it. The number is
    // unique, since other tests run at the same time, perhaps as the same user.
    let seconds = 100_000 + std::process::id() % 10_000 * 10 + u32::from(mechanism == "landlock");
    person.run(&format!(
        "import subprocess; subprocess.Popen(['sleep', '{seconds}'], start_new_session=True).pid"
    ));
    kill(pid(&again));
    until("it is dead", || {
        (person.nb(&["status", "t.ipynb"]).code == Some(6)).then_some(())
    });
    let reopened = person.open(&[]);
    assert_eq!(reopened["how"], "started");
    assert_eq!(reopened["sandbox"]["mechanism"], mechanism, "{reopened}");

    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    assert!(!scratch.exists(), "its scratch folder is gone");
    let (user, command) = (person.uid.to_string(), format!("sleep {seconds}"));
    let left = ["-U", &user, "-fx", &command];
    until(
        "it is gone with its namespace, or by its supervisor",
        || {
            let output = output_of(Command::new("pgrep").args(left));
            output.stdout.is_empty().then_some(())
        },
    );
    let connections = person.project().join(".nb/connections");
    assert_eq!(walkdir(&connections), Vec::<PathBuf>::new());
}

#[test]
fn bubblewrap_holds_an_ordinary_user() {
    if has_bubblewrap() {
        holds(&Person::ordinary(), "bubblewrap");
    }
}

#[test]
fn bubblewrap_holds_root() {
    if has_bubblewrap() {
        holds(&Person::own(), "bubblewrap");
    }
}

#[test]
fn landlock_holds_an_ordinary_user() {
    holds(&Person::ordinary(), "landlock");
}

#[test]
fn landlock_holds_root() {
    holds(&Person::own(), "landlock");
}

/// All attempts with all mechanisms, users and places; takes minutes.
#[test]
#[ignore = "run by hand: takes minutes"]
fn a_sandbox_holds_in_every_place() {
    for place in [Place::Temporary, Place::Home, Place::Mount] {
        for uid in [Person::ordinary_id(), rustix::process::geteuid().as_raw()] {
            for mechanism in mechanisms() {
                eprintln!("{place:?}, user {uid}, {mechanism}");
                holds(&Person::new(uid, place), mechanism);
            }
        }
    }
}

/// A read-only mount does not protect named pipes.
#[test]
fn named_pipes_cannot_be_written_from_inside() {
    for place in [Place::Temporary, Place::Home] {
        let person = Person::new(Person::ordinary_id(), place);
        let fifo = person.project().join("fifo");
        let mut pipe = reading_end(&fifo);
        for mechanism in mechanisms() {
            let opened = person.open(&[&format!("--sandbox={mechanism}")]);
            assert_eq!(opened["sandbox"]["mechanism"], mechanism, "{opened}");
            let code = format!(
                "import os, tempfile\n\
                 for flags in [os.O_WRONLY, os.O_RDWR]:\n\
                 \x20   try: print('written', os.write(os.open({fifo:?}, flags | os.O_NONBLOCK), b'x'))\n\
                 \x20   except OSError as error: print(error.strerror)\n\
                 with tempfile.NamedTemporaryFile() as file: print(file.write(b'x'))"
            );
            let printed = person.run(&code);
            assert_eq!(
                printed, "Permission denied\nPermission denied\n1\n",
                "{place:?}, {mechanism}"
            );
            person.nb(&["shutdown", "t.ipynb"]).ended(0);
        }
        assert_eq!(
            pipe.read(&mut [0]).ok(),
            Some(0),
            "{place:?}: it was written"
        );
    }
}

/// `.nb` knows a notebook by its path alone.
#[test]
fn a_notebook_that_was_moved_or_copied_by_another_program_does_not_leave_its_sandbox() {
    let person = Person::ordinary();
    let python = python().to_str().expect("a path");
    let open = |name: &str, option: &[&str]| {
        let words = ["open", name, "--no-serve", "--python", python];
        person.nb(&[&words[..], option].concat())
    };
    let shell = |script: &str| {
        let mut command = person.command(Path::new("/bin/sh"));
        output_of(command.args(["-ec", script])).ended(0)
    };
    let is_refused = |name: &str| {
        let file = Path::new(name).file_name().expect("a name").display();
        open(name, &[])
            .ended(5)
            .with("was not started outside a sandbox: it")
            .with(&format!("/{file} --sandbox"))
            .with(&format!("/{file} --no-sandbox"));
    };
    // One that always ran outside.
    open("free.ipynb", &[]).ended(0);
    person.nb(&["shutdown", "free.ipynb"]).ended(0);
    open("t.ipynb", &["--sandbox"]).ended(0);
    person.nb(&["insert", "t.ipynb", "x = 1"]).ended(0);
    person.nb(&["insert", "t.ipynb", "y = 2"]).ended(0);
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    for (script, name) in [
        ("cp t.ipynb copy.ipynb", "copy.ipynb"),
        ("mv t.ipynb renamed.ipynb; rm copy.ipynb", "renamed.ipynb"),
        ("mkdir sub; mv renamed.ipynb sub", "sub/renamed.ipynb"),
        ("cp sub/renamed.ipynb free.ipynb", "free.ipynb"),
        (
            "mkdir -p ../home/other; mv sub/renamed.ipynb ../home/other/t.ipynb",
            "../home/other/t.ipynb",
        ),
        ("mv ../home/other/t.ipynb .; mv .nb ../home/.nb~", "t.ipynb"),
        ("sed -i 's/x = 1/x = 10/' t.ipynb", "t.ipynb"),
    ] {
        shell(script);
        is_refused(name);
    }
    // What the user says holds from then on, also for the sandbox.
    open("t.ipynb", &["--no-sandbox"]).ended(0);
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    let again = open("t.ipynb", &[]).ended(0);
    assert!(!again.stderr.contains("sandbox"), "{again:#?}");
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    shell("cp t.ipynb u.ipynb");
    open("u.ipynb", &["--sandbox"]).ended(0);
    person.nb(&["shutdown", "u.ipynb"]).ended(0);
    open("u.ipynb", &[])
        .ended(0)
        .with("in its sandbox as before");
    person.nb(&["shutdown", "u.ipynb"]).ended(0);
    open("t.ipynb", &[]).ended(0);
}

/// Changes by a kernel to its folders, so that the next start would mount or allow something else.
const TRAPS: &str = r#"
import os
home, secret = os.environ["HOME"], SECRET
scratch = os.path.dirname(home)
sockets = os.path.dirname(SOCKETS)
def tried(deed, *words):
    try: deed(*words)
    except OSError: pass
for folder in [scratch, os.path.dirname(scratch), os.path.dirname(os.path.dirname(scratch))]:
    for name in ["tmp", "home", "more"]:
        tried(os.rename, f"{folder}/{name}", f"{folder}/{name}.old")
        tried(os.rmdir, f"{folder}/{name}")
        tried(os.symlink, os.path.dirname(secret), f"{folder}/{name}")
        tried(open, f"{folder}/{name}", "w")
for folder in [scratch, home, "/tmp", sockets]:
    tried(os.rename, folder, folder + ".old")
    tried(os.symlink, os.path.dirname(secret), folder)
# What makes its removal hard: no rights, links to elsewhere, and a depth that no path can name.
for folder in [home, os.environ["TMPDIR"], sockets]:
    tried(os.symlink, os.path.dirname(secret), folder + "/link")
    os.makedirs(folder + "/closed/inner")
    tried(os.symlink, os.path.dirname(secret), folder + "/closed/link")
before = os.getcwd()
os.chdir(home)
for depth in range(3000):
    os.mkdir("deep"); os.chdir("deep")
os.chdir(before)
for folder in [home, os.environ["TMPDIR"], sockets]:
    for closed in [folder + "/closed/inner", folder + "/closed"]:
        tried(os.chmod, closed, 0)
os.chmod(home, 0)
"#;

/// At the next start, nothing that the last kernel left leads out of the sandbox, and none of it is left.
fn traps_are_no_way_out(person: &Person, mechanism: &str) {
    let sandbox = format!("--sandbox={mechanism}");
    let secret = person.home().join("secret");
    let shelf = person.home().join(".local/state/nb/scratch");
    let look = format!(
        "import os\nfor path in [{secret:?}, os.environ['TMPDIR'] + '/secret', os.environ['HOME'] + '/secret']:\n\
         \x20   try: print(open(path).read())\n\
         \x20   except OSError: pass\n\
         for path in [{home:?}, os.environ['TMPDIR'], os.environ['HOME']]:\n\
         \x20   try: open(path + '/.bashrc', 'x').close()\n\
         \x20   except OSError: pass\n\
         left = set(os.listdir(os.environ['TMPDIR'])) | set(os.listdir(os.environ['HOME']))\n\
         print(sorted(left & {{'.bashrc', 'link', 'closed', 'deep', 'secret'}}))",
        home = person.home(),
    );
    person.open(&[&sandbox]);
    let mut before = Vec::new();
    for again in ["restart", "shutdown", "kill"] {
        let scratches = walkdir(&shelf);
        assert_eq!(scratches.len(), 1, "one at a time: {scratches:?}");
        assert_ne!(scratches, before, "made anew for each start");
        before = scratches;
        let file = path(&person.state()["sessions"]["t.ipynb"]["connection_file"]);
        let info = std::fs::read(file).expect("the connection file");
        let info: Value = serde_json::from_slice(&info).expect("JSON");
        let traps = TRAPS.replace("SECRET", &format!("{secret:?}"));
        let traps = traps.replace("SOCKETS", &info["ip"].to_string());
        person.run(&traps);
        match again {
            "restart" => drop(person.nb(&["restart", "t.ipynb"]).ended(0)),
            "shutdown" => {
                person.nb(&["shutdown", "t.ipynb"]).ended(0);
                assert_eq!(walkdir(&shelf), Vec::<PathBuf>::new(), "{mechanism}");
                person.open(&[&sandbox]);
            }
            _ => {
                kill(pid(&person.open(&[])));
                until("it is dead", || {
                    (person.nb(&["status", "t.ipynb"]).code == Some(6)).then_some(())
                });
                person.open(&[]);
            }
        }
        assert_eq!(person.run(&look), "['.bashrc']\n", "{mechanism}, {again}");
        assert!(!person.home().join(".bashrc").exists());
        assert_eq!(std::fs::read(&secret).expect("it is there"), b"text");
    }
}

#[test]
fn what_a_kernel_left_is_no_way_out_by_bubblewrap() {
    if has_bubblewrap() {
        traps_are_no_way_out(&Person::ordinary(), "bubblewrap");
    }
}

#[test]
fn what_roots_kernel_left_is_no_way_out_by_bubblewrap() {
    if has_bubblewrap() {
        traps_are_no_way_out(&Person::own(), "bubblewrap");
    }
}

#[test]
fn what_a_kernel_left_is_no_way_out_by_landlock() {
    traps_are_no_way_out(&Person::ordinary(), "landlock");
}

#[test]
fn a_kernel_whose_bubblewrap_was_killed_is_still_ended_for_good() {
    if !has_bubblewrap() {
        return;
    }
    let person = Person::own();
    let opened = person.open(&["--sandbox=bubblewrap"]);
    let kernel = pid(&opened);
    person
        .run("import subprocess; subprocess.Popen(['sleep', '4322'], start_new_session=True).pid");
    let init = super::parent_of(kernel).expect("the first process of its namespace");
    let wrap = super::parent_of(init).expect("bubblewrap");
    let outside = super::parent_of(wrap).expect("who waits for it");
    kill(outside);
    kill(wrap);
    // Longer than the supervisor waits for processes that end together.
    assert_eq!(
        person.run("import time; time.sleep(2.5); print('alive')"),
        "alive\n"
    );
    assert_eq!(person.run("print('still')"), "still\n");
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    until("nothing of it runs", || {
        let output = output_of(Command::new("pgrep").args(["-fx", "sleep 4322"]));
        output.stdout.is_empty().then_some(())
    });
}

#[test]
fn a_cell_past_its_time_that_ignores_its_interrupt_is_ended_with_its_kernel() {
    let person = Person::own();
    for mechanism in mechanisms() {
        let sandbox = format!("--sandbox={mechanism}");
        let opened = person.open(&[&sandbox, "--max-time", "1"]);
        let code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
                    print('begun', flush=True)\nwhile True: time.sleep(1)";
        person
            .nb(&["run", "t.ipynb", code])
            .ended(6)
            .with("begun")
            .with("it ran longer than 1 s, and was interrupted")
            .with("past the 1 s that its sandbox gives a cell: its kernel was ended");
        assert!(super::has_ended(pid(&opened)), "{mechanism}");
        person.nb(&["shutdown", "t.ipynb"]).ended(0);
    }
}

/// Writes a script that can be run.
fn script(file: &Path, text: &str) {
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("make its folder");
    std::fs::write(file, text).expect("write a script");
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).expect("let it run");
}

#[test]
fn nothing_of_a_folder_runs_outside_its_sandbox() {
    let person = Person::own();
    let project = person.project();
    let canary = person.root.path().join("canary");
    std::fs::create_dir(&canary).expect("make a folder");
    // Each interpreter leaves a note that it ran: outside as a file in this folder, inside as one in the
    // kernel's home.
    let notes = |name: &str| {
        format!(
            "touch '{0}/{name}' \"$HOME/{name}\" 2>/dev/null\n",
            canary.display()
        )
    };
    let python = python();
    let libraries = python
        .parent()
        .and_then(Path::parent)
        .expect("an environment");
    let libraries = libraries.to_str().expect("a path");
    let interpreter = |name: &str| {
        format!(
            "#!/bin/sh\n{}exec {} \"$@\"\n",
            notes(name),
            python.display()
        )
    };
    let activation = |name: &str| format!("{}export {name}=1\n", notes(name));
    let (conda, pixi) = (project.join("env"), project.join(".pixi/envs/default"));
    for prefix in [&conda, &pixi] {
        std::fs::create_dir_all(prefix.join("conda-meta")).expect("make an environment");
    }
    script(&conda.join("bin/python"), &interpreter("conda_python"));
    script(
        &conda.join("etc/conda/activate.d/x.sh"),
        &activation("conda_script"),
    );
    script(&pixi.join("bin/python"), &interpreter("pixi_python"));
    script(
        &pixi.join("etc/conda/activate.d/x.sh"),
        &activation("pixi_script"),
    );
    for mechanism in mechanisms() {
        let sandbox = format!("--sandbox={mechanism}");
        for (prefix, kind) in [(&conda, "conda"), (&pixi, "pixi")] {
            let program = prefix.join("bin/python");
            let mut words = vec!["open", "t.ipynb", "--no-serve", &sandbox];
            words.extend(["--allow-read", libraries, "--python"]);
            words.push(program.to_str().expect("a path"));
            person.nb(&words).ended(0);
            let code = format!(
                "import os; print(os.environ['{kind}_script'], sorted(os.listdir(os.path.expanduser('~'))))"
            );
            let inside = || {
                let printed = person.run(&code);
                assert!(printed.contains(&format!("'{kind}_python'")), "{printed}");
                assert!(
                    printed.starts_with('1') && printed.contains(&format!("'{kind}_script'")),
                    "{printed}"
                );
            };
            inside();
            person.nb(&["restart", "t.ipynb"]).ended(0);
            inside();
            // Opening without options keeps the sandbox.
            person.nb(&["shutdown", "t.ipynb"]).ended(0);
            person.nb(&["open", "t.ipynb", "--no-serve"]).ended(0);
            inside();
            person.nb(&["shutdown", "t.ipynb"]).ended(0);
        }
        // A refused start runs nothing either: of a Python without ipykernel, according to its files, and
        // of one that cannot be confined as requested.
        script(
            &project.join(".venv/bin/python"),
            &interpreter("venv_python"),
        );
        std::fs::write(
            project.join(".venv/pyvenv.cfg"),
            "home = /usr/bin\nversion = 3.11.2\n",
        )
        .expect("write its settings");
        let open = |words: &[&str]| {
            let all = ["open", "t.ipynb", "--no-serve", &sandbox];
            person.nb(&[&all[..], words].concat())
        };
        let venv = project.join(".venv/bin/python");
        open(&["--python", venv.to_str().expect("a path")])
            .ended(1)
            .with("has no ipykernel");
        let program = conda.join("bin/python");
        let program = program.to_str().expect("a path");
        open(&["--python", program, "--allow-write", "nowhere"]).ended(5);
        open(&["--python", program, "--allow-write", ".nb"]).ended(5);
        std::fs::remove_dir_all(project.join(".venv")).expect("remove it");
        assert_eq!(walkdir(&canary), Vec::<PathBuf>::new(), "{mechanism}");
    }
}

#[test]
fn a_linked_environment_is_refused_with_the_command_that_names_it() {
    let person = Person::own();
    let project = person.project();
    let libraries = python()
        .parent()
        .and_then(Path::parent)
        .expect("an environment");
    std::os::unix::fs::symlink(libraries, project.join(".venv")).expect("link it");
    let open = |words: &[&str]| {
        let all = ["open", "t.ipynb", "--no-serve", "--sandbox"];
        person.nb(&[&all[..], words].concat())
    };
    for more in [&[][..], &["--allow-write", "."]] {
        let named = format!("--python {}", python().display());
        open(more)
            .ended(5)
            .with("/.venv cannot be given to a sandbox: it is a link that leads to ")
            .with(&named);
        open(&[more, &["--python", python().to_str().expect("a path")]].concat()).ended(0);
        person.nb(&["shutdown", "t.ipynb"]).ended(0);
        std::fs::remove_file(project.join(".nb/state.json")).expect("forget the session");
    }
}

/// Returns every command line of this machine, as any of its users can read them.
fn command_lines() -> String {
    let entries = std::fs::read_dir("/proc").expect("list the processes");
    let all = entries.flatten().map(|entry| entry.path().join("cmdline"));
    let all = all.filter_map(|file| std::fs::read(file).ok());
    all.map(|line| String::from_utf8_lossy(&line).into_owned() + "\n")
        .collect()
}

#[test]
fn variables_of_a_kernel_stand_in_no_command_line() {
    let person = Person::own();
    let secret = format!("secret-{}", uuid::Uuid::new_v4().simple());
    let variable = format!("TOKEN={secret}");
    let python = python().to_str().expect("a path");
    for mechanism in mechanisms() {
        let mut open = person.command(&person.program());
        open.args(["open", "t.ipynb", "--no-serve", "--python", python])
            .arg(format!("--sandbox={mechanism}"))
            .env("NB_KERNEL_ENV", &variable);
        output_of(&mut open).ended(0);
        let lines = command_lines();
        // The secret as text, and as a list of its bytes.
        let bytes = serde_json::to_string(secret.as_bytes()).expect("JSON");
        for form in [&secret, &bytes] {
            assert!(!lines.contains(form), "{mechanism}");
        }
        let code = "import os; print(os.environ['TOKEN'])";
        assert_eq!(person.run(code), format!("{secret}\n"), "{mechanism}");
        person.nb(&["shutdown", "t.ipynb"]).ended(0);
    }
}

#[test]
fn what_cannot_be_promised_is_refused_or_taken_on_by_the_user() {
    let person = Person::own();
    let python = python().to_str().expect("a path");
    let open = |words: &[&str]| {
        let mut all = vec!["open", "t.ipynb", "--no-serve", "--python", python];
        all.extend(words);
        person.nb(&all)
    };
    // With the network allowed, Landlock cannot forbid other programs' sockets: connecting is a single
    // call.
    open(&["--sandbox=landlock", "--allow-net"])
        .ended(5)
        .with("no sockets of other programs: Unix sockets outside are reached by their path")
        .with("--sandbox=best-effort");
    // The refused start has left nothing behind.
    let connections = person.project().join(".nb/connections");
    assert_eq!(walkdir(&connections), Vec::<PathBuf>::new());
    for (words, code, message) in [
        (
            vec!["--sandbox", "--allow-write", "/"],
            5,
            "parts of the system",
        ),
        (
            vec!["--sandbox", "--allow-write", "nowhere"],
            5,
            "mkdir -p nowhere",
        ),
        (
            vec!["--sandbox", "--allow-write", ".nb"],
            5,
            "nb's own folder",
        ),
        (
            vec!["--sandbox=landlock", "--allow-write", "."],
            5,
            "nb's own folder",
        ),
        (
            vec!["--sandbox", "--transport", "tcp"],
            2,
            "--transport tcp",
        ),
        (vec!["--allow-net"], 2, "--sandbox"),
    ] {
        open(&words).ended(code).with(message);
    }
    // As on a machine without bubblewrap.
    let bin = person.root.path().join("bin");
    std::fs::create_dir(&bin).expect("make a folder");
    let without = |words: &[&str]| {
        let mut command = person.command(&person.program());
        command
            .env("PATH", &bin)
            .args(["open", "t.ipynb", "--no-serve"]);
        output_of(command.args(["--python", python]).args(words))
    };
    without(&["--sandbox=bubblewrap"])
        .ended(5)
        .with("bwrap is not installed");
    without(&["--sandbox=best-effort", "--allow-net"])
        .ended(0)
        .with("NOT kept: no sockets of other programs");
    person
        .nb(&["status", "t.ipynb"])
        .ended(0)
        .with("landlock, best effort");
    // A kernel in a best-effort sandbox does not count as one with all guarantees.
    open(&["--sandbox"]).ended(5).with("other rules");
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    open(&["--no-sandbox"]).ended(0);
    open(&["--sandbox"]).ended(5).with("it runs in none");
}

#[test]
fn a_notebook_that_a_kernel_made_a_link_reaches_no_other_kernel() {
    if !has_bubblewrap() {
        return;
    }
    let person = Person::own();
    let free = person.root.path().join("free");
    std::fs::create_dir(&free).expect("make a folder");
    let python = python().to_str().expect("a path");
    let other = free.join("o.ipynb");
    let other = other.to_str().expect("a path");
    person
        .nb(&["open", other, "--no-serve", "--python", python])
        .ended(0);
    for folder in [".git/hooks", ".vscode"] {
        std::fs::create_dir_all(person.project().join(folder)).expect("make a folder");
    }
    person.open(&["--sandbox=bubblewrap", "--allow-write", "."]);
    // The kernel cannot write what git and editors run, either.
    let printed = person.run(&format!(
        "import os\n\
         def tried(name, deed, *words):\n\
         \x20   try: deed(*words); print('got out:', name)\n\
         \x20   except OSError: pass\n\
         tried('hook', open, '.git/hooks/pre-commit', 'w')\n\
         tried('task', open, '.vscode/tasks.json', 'w')\n\
         tried('git', os.rename, '.git', '.git2')\n\
         os.rename('t.ipynb', 'was.ipynb'); os.symlink({other:?}, 't.ipynb')"
    ));
    assert_eq!(printed, "");
    for words in [
        &["run", "t.ipynb", "print('ran')"][..],
        &["insert", "t.ipynb", "-x", "print('ran')"],
        &["exec", "t.ipynb", "--all"],
        &["restart", "t.ipynb"],
        &["shutdown", "t.ipynb"],
        &["open", "t.ipynb", "--no-serve"],
    ] {
        let output = person.nb(words);
        assert_ne!(output.code, Some(0), "{words:?}: {}", output.stdout);
        assert!(
            !output.stdout.contains("ran\n"),
            "{words:?}: {}",
            output.stdout
        );
    }
    person
        .nb(&["run", other, "print('as before')"])
        .ended(0)
        .with("as before");
    let at = |name: &str| person.project().join(name);
    std::fs::remove_file(at("t.ipynb")).expect("take the link away");
    std::fs::rename(at("was.ipynb"), at("t.ipynb")).expect("put it back");
    assert_eq!(person.run("print('still')"), "still\n");
    person.nb(&["shutdown", other]).ended(0);
}

#[test]
fn the_whole_workspace_may_be_written_but_not_what_nb_trusts() {
    if !has_bubblewrap() {
        return;
    }
    let person = Person::own();
    person.open(&[
        "--sandbox=bubblewrap",
        "--allow-write",
        ".",
        "--keep-scratch",
    ]);
    let printed = person.run(
        "open('made', 'w').close()\n\
         import os\n\
         open(os.path.expanduser('~/kept'), 'w').close()\n\
         for name in ['.nb/state.json', '.nb/new', '.nb/connections/new']:\n\
         \x20   try: open(name, 'w'); print(name)\n\
         \x20   except OSError: pass",
    );
    assert_eq!(printed, "");
    assert!(person.project().join("made").exists());
    let session = person.state()["sessions"]["t.ipynb"].clone();
    let scratch = path(&session["settings"]["confinement"]["sandbox"]["scratch"]);
    person
        .nb(&["shutdown", "t.ipynb"])
        .ended(0)
        .with("its scratch folder was kept");
    assert!(scratch.join("home/kept").exists());
    // `nb gc` does not remove it either, even if the session is lost; a folder that was not kept is
    // removed.
    let left = scratch.with_file_name("left-12345678");
    std::fs::create_dir_all(left.join("home")).expect("make a folder");
    std::fs::copy(scratch.join("owner.json"), left.join("owner.json")).expect("whose it is");
    std::fs::rename(
        person.project().join(".nb/state.json"),
        person.project().join("state.json"),
    )
    .expect("forget the sessions");
    person
        .nb(&["gc"])
        .ended(0)
        .with("removed 1 scratch folder of sandboxes");
    assert!(scratch.join("home/kept").exists() && !left.exists());
}

#[test]
fn a_kernel_keeps_its_scratch_folder_where_its_private_folder_was_renamed() {
    let person = Person::ordinary();
    person.open(&["--sandbox"]);
    let write = "import os; open(os.path.expanduser('~/mine'), 'w').write('x')";
    person.nb(&["run", "t.ipynb", write]).ended(0);
    let (dir, renamed) = (person.project().join(".nb"), person.project().join(".nb~"));
    std::fs::rename(&dir, &renamed).expect("rename it");
    let cleared = person.nb(&["gc"]).ended(0).with("goes on (pid");
    assert!(!cleared.stdout.contains("scratch"), "{cleared:?}");
    std::fs::rename(&renamed, &dir).expect("rename it back");
    let printed = person.run("print(open(os.path.expanduser('~/mine')).read())");
    assert_eq!(printed, "x\n");
}
