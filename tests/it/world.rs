//! A separate place for one test: home, Jupyter folders, a project; none of it is left behind.

use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::{node, python, scope};

/// A home folder, Jupyter's folders and a project under one temporary folder.
///
/// On drop, every kernel that `nb` started here is shut down, and every process that still runs with this
/// home is killed; a test that left something running fails.
pub struct World {
    root: tempfile::TempDir,
}

impl World {
    /// Makes the folders; nothing runs yet.
    pub fn new() -> World {
        let root = scope::folder();
        for folder in ["home", "project", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).expect("make a folder of the test");
        }
        World { root }
    }

    /// Makes a world in which the kernelspec is installed and no kernel was ever started.
    pub fn served() -> World {
        let world = World::new();
        succeed(world.nb().arg("serve"));
        world
    }

    /// Makes a world in which `nb open t.ipynb` has started the shared kernel and installed the kernelspec.
    pub fn opened() -> World {
        let world = World::new();
        world.open("t.ipynb");
        world
    }

    /// Runs `nb open` for a notebook of the project, with the tests' own Python.
    pub fn open(&self, notebook: &str) {
        let mut command = self.nb();
        command.args(["open", notebook, "--python"]);
        succeed(command.arg(python::interpreter()));
    }

    /// Returns the folder of the notebooks, which is the front ends' working directory too.
    pub fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    /// Returns the folder of temporary files.
    pub fn temporary(&self) -> PathBuf {
        self.root.path().join("tmp")
    }

    /// Returns the `nb` under test, in the project.
    pub fn nb(&self) -> Command {
        self.command(Path::new(env!("CARGO_BIN_EXE_nb")))
    }

    /// Returns a script of `tests/python` for a kernelspec.
    pub fn script(&self, name: &str, kernel: &str) -> Command {
        let mut command = self.command(python::interpreter());
        command.arg("-u").arg(python::script(name));
        command.args(["--kernel", kernel]);
        command.env("NB_TEST_PORTS", crate::ports::block());
        command
    }

    /// Returns a script of `tests/node`; `None` if this machine has no npm.
    pub fn node(&self, name: &str) -> Option<Command> {
        let mut command = self.command(Path::new("node"));
        command.env("NODE_PATH", node::modules()?);
        command.arg(node::script(name));
        Some(command)
    }

    /// Returns a program in this world, with its home and its folders.
    pub fn command(&self, program: &Path) -> Command {
        let home = self.root.path().join("home");
        let mut command = Command::new(program);
        // No test may use the developer's own Jupyter, settings, or variables that mark agents.
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if [
                "NB_",
                "JUPYTER",
                "JPY_",
                "IPYTHON",
                "XDG_",
                "VSCODE_",
                "PYTHON",
                "ANTHROPIC_",
                "OPENAI_",
                "CLAUDE",
                "CODEX_",
                "CURSOR_",
                "GEMINI_",
                "OPENCODE",
                "VIRTUAL_ENV",
                "CONDA_",
                "MAMBA_",
                "PIXI_",
                "POETRY_",
                "UV_",
            ]
            .iter()
            .any(|prefix| name_text.starts_with(prefix))
            {
                command.env_remove(&name);
            }
        }
        command
            .current_dir(self.project())
            .env("HOME", &home)
            .env("JUPYTER_DATA_DIR", home.join("jupyter"))
            .env("JUPYTER_RUNTIME_DIR", home.join("runtime"))
            .env("JUPYTER_CONFIG_DIR", home.join("config"))
            .env("IPYTHONDIR", home.join("ipython"))
            .env("TMPDIR", self.root.path().join("tmp"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // No test may use the developer's own keyring.
            .env("DBUS_SESSION_BUS_ADDRESS", "unix:path=/nonexistent")
            .env("NB_TEST_BINARY", env!("CARGO_BIN_EXE_nb"))
            .env("NB_TEST_PYTHON", python::interpreter());
        command
    }

    /// Returns the processes that run with this world's home.
    pub fn processes(&self) -> Vec<(i32, String)> {
        let variable = format!("HOME={}", self.root.path().join("home").display());
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
                continue;
            };
            let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            if environment
                .split(|b| *b == 0)
                .any(|v| v == variable.as_bytes())
            {
                let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
                let words = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push((pid, words));
            }
        }
        found
    }

    /// Kills what still runs here after a short grace period; returns what that was.
    fn kill_the_rest(&self) -> Vec<String> {
        let mut left = Vec::new();
        let end = Instant::now() + GRACE;
        for (pid, words) in self.processes() {
            let Some(pid) = rustix::process::Pid::from_raw(pid) else {
                continue;
            };
            let Ok(handle) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())
            else {
                continue;
            };
            let wait = end.saturating_duration_since(Instant::now());
            if !ends(&handle, wait) {
                left.push(words);
                let _ = rustix::process::pidfd_send_signal(&handle, rustix::process::Signal::KILL);
                ends(&handle, GRACE);
            }
        }
        left
    }

    /// Prints what the proxies and the kernels wrote, for the reader of a failure.
    fn print_logs(&self) {
        let folders = [".nb", ".nb/kernels"].map(|folder| self.project().join(folder));
        let entries = folders.iter().flat_map(std::fs::read_dir);
        for entry in entries.flatten().flatten() {
            if entry
                .path()
                .extension()
                .is_some_and(|ending| ending == "log")
            {
                let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
                let lines: Vec<_> = text.lines().collect();
                let last = &lines[lines.len().saturating_sub(60)..];
                eprintln!("--- {}\n{}", entry.path().display(), last.join("\n"));
            }
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // A kernel's log is removed with it.
        if std::thread::panicking() {
            self.print_logs();
        }
        let notebooks = std::fs::read_dir(self.project()).into_iter().flatten();
        for entry in notebooks.flatten() {
            let name = entry.file_name();
            if self.project().join(".nb").exists() && name.to_string_lossy().ends_with(".ipynb") {
                let mut command = self.nb();
                finish(command.args(["shutdown", "--force"]).arg(&name));
            }
        }
        let left = self.kill_the_rest();
        if std::thread::panicking() {
            eprintln!("left running: {left:#?}");
        } else {
            assert!(left.is_empty(), "left running: {left:#?}");
        }
    }
}

/// Returns whether all is tried, of which `cargo test` tries a part.
pub fn is_thorough() -> bool {
    std::env::var_os("NB_TEST_ALL").is_some()
}

/// Runs a command that must succeed; prints all its output if it does not. Returns its stdout.
pub fn succeed(command: &mut Command) -> String {
    let (status, stdout, stderr) = finish(command);
    let output = format!("--- stdout\n{stdout}\n--- stderr\n{stderr}");
    assert!(
        status.success(),
        "{:?} {:?} ended with {status}\n{output}",
        command.get_program(),
        command.get_args().collect::<Vec<_>>(),
    );
    eprintln!("{output}");
    stdout
}

/// Runs a command to its end; returns its status, stdout and stderr.
///
/// The outputs go through files: a pipe would stay open for as long as any process that the command left
/// behind, and a test would wait for that process instead of reporting it.
pub fn finish(command: &mut Command) -> (ExitStatus, String, String) {
    let mut files = [(); 2].map(|()| tempfile::tempfile().expect("make a file for the output"));
    let [out, err] = files
        .each_ref()
        .map(|file| file.try_clone().expect("share the file for the output"));
    let status = command
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let [stdout, stderr] = files.each_mut().map(|file| {
        let mut bytes = Vec::new();
        file.rewind().expect("go to the output's beginning");
        file.read_to_end(&mut bytes).expect("read the output");
        String::from_utf8_lossy(&bytes).into_owned()
    });
    (status, stdout, stderr)
}

/// Says whether the process ends within that time.
fn ends(process: &impl std::os::fd::AsFd, within: Duration) -> bool {
    let mut polled = [rustix::event::PollFd::new(
        process,
        rustix::event::PollFlags::IN,
    )];
    let limit = rustix::event::Timespec {
        tv_sec: within.as_secs().try_into().expect("seconds of a test fit"),
        tv_nsec: within.subsec_nanos().into(),
    };
    matches!(rustix::event::poll(&mut polled, Some(&limit)), Ok(1))
}

/// How long processes that were asked to end may take, all together.
const GRACE: Duration = Duration::from_secs(10);
