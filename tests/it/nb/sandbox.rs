//! Kernels in a sandbox: what does not get out, as root and as an ordinary user, by bubblewrap and
//! by Landlock; what works inside all the same; and what is refused.
//!
//! Each attempt to get out has a name in `tests/python/escapes.py`. What it aims at is set up here
//! and really there: listening sockets, readable files, living processes.

use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use super::{Said, kill, path, pid, say, until};
use crate::made::run;

const ESCAPES: &str = include_str!("../../python/escapes.py");
const LIBRARIES: &str = include_str!("../../python/libraries.txt");

/// An ordinary user, of whom no system knows more than the number.
const ORDINARY: u32 = 54321;

/// A Python with libraries where every user may run it; `target/` may lie in root's home.
fn python() -> &'static Path {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    PYTHON.get_or_init(|| {
        let mark = LIBRARIES
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let user = rustix::process::geteuid().as_raw();
        let home = PathBuf::from(format!("/tmp/nb-tests-python-{user}-{mark:016x}"));
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

/// A user's home and project, and `nb` where that user may run it.
struct Person {
    root: tempfile::TempDir,
    uid: u32,
}

impl Person {
    /// The one who runs the tests.
    fn own() -> Self {
        Self::new(rustix::process::geteuid().as_raw())
    }

    /// An ordinary user: the tests' own where that is not root.
    fn ordinary() -> Self {
        match rustix::process::geteuid().as_raw() {
            0 => Self::new(ORDINARY),
            own => Self::new(own),
        }
    }

    fn new(uid: u32) -> Self {
        let root = tempfile::Builder::new()
            .prefix("nb-it-s-")
            .tempdir()
            .expect("make the test's folder");
        std::fs::set_permissions(root.path(), std::fs::Permissions::from_mode(0o755))
            .expect("open it to the user");
        let person = Self { root, uid };
        std::fs::copy(env!("CARGO_BIN_EXE_nb"), person.program()).expect("copy nb");
        for folder in [
            person.home(),
            person.project(),
            person.project().join("out"),
        ] {
            std::fs::create_dir(&folder).expect("make a folder");
            person.give(&folder);
        }
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
        self.root.path().join("project")
    }

    /// A program run by this person, with a secret in the environment.
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

    fn nb(&self, words: &[&str]) -> Said {
        say(self.command(&self.program()).args(words))
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
        self.nb(&["run", "t.ipynb", code]).ended(0).out
    }

    fn state(&self) -> Value {
        let text = std::fs::read(self.project().join(".nb/state.json")).expect("the state");
        serde_json::from_slice(&text).expect("JSON")
    }
}

impl Drop for Person {
    fn drop(&mut self) {
        if self.project().join(".nb/state.json").exists() {
            say(self
                .command(&self.program())
                .args(["shutdown", "--force", "t.ipynb"]));
        }
        let inside = self.root.path().to_string_lossy().into_owned();
        let left = || {
            let said = say(Command::new("ps").args(["-eo", "args"]));
            let lines = said.out.lines().filter(|line| line.contains(&inside));
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
    }
}

fn walkdir(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// What is outside, for the inside to fail at.
struct Outside {
    tcp: TcpListener,
    udp: UdpSocket,
    datagrams: UnixDatagram,
    _listeners: [UnixListener; 2],
    bystander: Child,
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
        // Of the same user: nobody but the sandbox forbids to signal it.
        let bystander = person
            .command(Path::new("/bin/sleep"))
            .arg("1000")
            .stdout(Stdio::null())
            .spawn()
            .expect("start a process");
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
            folder,
            marks,
        }
    }

    /// Requires that nothing came, and that nothing was changed.
    fn is_untouched(&mut self, person: &Person) {
        assert!(self.tcp.accept().is_err(), "a connection arrived");
        assert!(self.udp.recv(&mut [0]).is_err(), "a datagram arrived");
        assert!(self.datagrams.recv(&mut [0]).is_err(), "a datagram arrived");
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
    }
}

/// Tries every way out, in the kernel and in a child of it.
fn nothing_gets_out(person: &Person) {
    let mut outside = Outside::new(person);
    let source = serde_json::to_string(ESCAPES).expect("JSON");
    let marks = outside.marks.to_string();
    // JSON of these is Python too: there is no true, false or null in it.
    let code = format!(
        r#"
import json, subprocess, sys
source, marks = {source}, {marks}
names = {{"__name__": "escapes"}}
exec(source, names)
found = names["escapes"](marks)
print(len(found), "tried; got out:", sorted(name for name in found if found[name]))
child = source + "\nimport json, sys\nprint(json.dumps(escapes(json.loads(sys.argv[1]))))"
said = subprocess.run([sys.executable, "-c", child, json.dumps(marks)], capture_output=True, text=True)
found = json.loads(said.stdout) if said.stdout else said.stderr
print("of a child,", len(found), "tried; got out:", sorted(name for name in found if found[name]))
"#
    );
    let said = person.run(&code);
    let tried = ESCAPES.matches("(m):\n").count();
    assert_eq!(
        said,
        format!("{tried} tried; got out: []\nof a child, {tried} tried; got out: []\n")
    );
    outside.is_untouched(person);
}

/// What a kernel in a sandbox can do like any other.
fn work_goes_on(person: &Person) {
    let said = person.run(
        r#"
import os, numpy, pandas, matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt, multiprocessing as mp
plt.plot(numpy.arange(9)); plt.savefig(os.path.join(os.environ["TMPDIR"], "plot.png"))
pandas.DataFrame({"a": [1, 2]}).to_csv("out/a.csv")
with mp.get_context("fork").Pool(2) as pool: print(pool.map(abs, [-1, -2]))
!echo from a shell
print(open("victim").read(), os.environ["HOME"].startswith(os.getcwd()), os.path.expanduser("~") == os.environ["HOME"])
"#,
    );
    assert_eq!(said, "[1, 2]\nfrom a shell\ntext True True\n");
    let written = person.project().join("out/a.csv");
    assert_eq!(
        std::fs::read_to_string(written).expect("it was written"),
        ",a\n0,1\n1,2\n"
    );
    // Bounded, and told so.
    let said = person.run("try: bytearray(2 * 10**9)\nexcept MemoryError: print('too much')");
    assert_eq!(said, "too much\n");
    let said = person.run("import os; print(len(os.sched_getaffinity(0)))");
    assert_eq!(said, "1\n");
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

    // The time of a cell is bounded, by an interrupt. That can be said while it runs.
    let again = person.open(&[&room[..], &["--max-time", "2"]].concat());
    assert_eq!(again["how"], "attached");
    assert_eq!(again["sandbox"]["max_time_s"], 2.0);
    person
        .nb(&["run", "t.ipynb", "import time\nwhile True: time.sleep(1)"])
        .ended(130)
        .with("KeyboardInterrupt");
    // So that what comes next has its time on a machine with much to do.
    person.open(&room);
    person.run("print('alive')");

    // A restart stays inside.
    person.nb(&["restart", "t.ipynb"]).ended(0);
    nothing_gets_out(person);
    let status = person.nb(&["status", "t.ipynb"]).ended(0);
    status.with(&format!(
        "sandbox: {mechanism}, tried from inside: no network"
    ));

    // Opened again without a word, it is the same; with other rules it is refused.
    let again = person.open(&[]);
    assert_eq!(again["how"], "attached");
    person
        .nb(&["open", "t.ipynb", "--no-serve", "--sandbox"])
        .ended(5)
        .with("its sandbox has other rules")
        .with("nb shutdown");

    // Its death is noticed, and what it left behind is gone with it.
    // Other tests run at the same time, perhaps as the same user.
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
    until("it is gone with its namespace, or by its keeper", || {
        let said = say(Command::new("pgrep").args(left));
        said.out.is_empty().then_some(())
    });
    let connections = person.project().join(".nb/connections");
    assert_eq!(walkdir(&connections), Vec::<PathBuf>::new());
}

#[test]
fn bubblewrap_holds_an_ordinary_user() {
    holds(&Person::ordinary(), "bubblewrap");
}

#[test]
fn bubblewrap_holds_root() {
    holds(&Person::own(), "bubblewrap");
}

#[test]
fn landlock_holds_an_ordinary_user() {
    holds(&Person::ordinary(), "landlock");
}

#[test]
fn landlock_holds_root() {
    holds(&Person::own(), "landlock");
}

#[test]
fn a_kernel_whose_bubblewrap_was_killed_is_still_ended_for_good() {
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
    // Longer than its keeper waits for what ends together.
    assert_eq!(
        person.run("import time; time.sleep(2.5); print('alive')"),
        "alive\n"
    );
    assert_eq!(person.run("print('still')"), "still\n");
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    until("nothing of it runs", || {
        let said = say(Command::new("pgrep").args(["-fx", "sleep 4322"]));
        said.out.is_empty().then_some(())
    });
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
    // With the network Landlock cannot keep other programs' sockets away: to connect is one call.
    open(&["--sandbox=landlock", "--allow-net"])
        .ended(5)
        .with("no sockets of other programs: Unix sockets outside are reached by their path")
        .with("--sandbox=best-effort");
    // Nothing was left behind by that.
    let connections = person.project().join(".nb/connections");
    assert_eq!(walkdir(&connections), Vec::<PathBuf>::new());
    for (words, code, said) in [
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
        open(&words).ended(code).with(said);
    }
    // A machine without bubblewrap.
    let bin = person.root.path().join("bin");
    std::fs::create_dir(&bin).expect("make a folder");
    let without = |words: &[&str]| {
        let mut command = person.command(&person.program());
        command
            .env("PATH", &bin)
            .args(["open", "t.ipynb", "--no-serve"]);
        say(command.args(["--python", python]).args(words))
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
    // One that runs is not taken for one that is held.
    open(&["--sandbox"]).ended(5).with("other rules");
    person.nb(&["shutdown", "t.ipynb"]).ended(0);
    open(&["--no-sandbox"]).ended(0);
    open(&["--sandbox"]).ended(5).with("it runs in none");
}

#[test]
fn the_whole_workspace_may_be_written_but_not_what_nb_trusts() {
    let person = Person::own();
    person.open(&[
        "--sandbox=bubblewrap",
        "--allow-write",
        ".",
        "--keep-scratch",
    ]);
    let said = person.run(
        "open('made', 'w').close()\n\
         import os\n\
         open(os.path.expanduser('~/kept'), 'w').close()\n\
         for name in ['.nb/state.json', '.nb/new', '.nb/connections/new']:\n\
         \x20   try: open(name, 'w'); print(name)\n\
         \x20   except OSError: pass",
    );
    assert_eq!(said, "");
    assert!(person.project().join("made").exists());
    let session = person.state()["sessions"]["t.ipynb"].clone();
    let scratch = path(&session["sandbox"]["scratch"]);
    person
        .nb(&["shutdown", "t.ipynb"])
        .ended(0)
        .with("its scratch folder was kept");
    assert!(scratch.join("home/kept").exists());
    // Nor does clearing up take it, whatever becomes of the session; what nobody keeps goes.
    let left = scratch.with_file_name("left-12345678");
    std::fs::create_dir_all(left.join("home")).expect("make a folder");
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
