//! A demonstration that is also a test: an agent and a person on one real kernel.
//!
//! Everything happens in a separate folder with its own Jupyter data folder and its own data folder of
//! `nb`: the user's kernelspecs and settings are not touched. The agent's side is this program, run as an
//! agent runs it. The person's side launches the installed kernelspec as a front end does and speaks the
//! protocol. Each step reports what was done and what was seen, and fails if it did not see what it should.
//! In any case nothing is left running.

mod front_end;
mod python;
mod steps;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::process::Command;

use crate::client::ClientError;
use crate::kernel::process::connection::KernelFiles;
use crate::kernel::process::{Process, Signal, own_program};
use crate::kernel::spec::SpecError;
use crate::kernel::variables::ProcessVariables;
use crate::project::{Project, Session, disown, share_records};
pub use python::NoPython;

/// How long one command of the agent may take.
const COMMAND: Duration = Duration::from_secs(90);

/// How long a kernel may take to end.
const ENDS: Duration = Duration::from_secs(10);

/// The pause between two looks at the lock of a job's recorder.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The notebook's name.
pub const NOTEBOOK: &str = "demo.ipynb";

/// The options of a demo.
#[derive(Clone, Debug, Default)]
pub struct DemoOptions {
    /// The folder in which the project and its kernel are left; `None` removes them.
    pub keep: Option<PathBuf>,
    /// The Python to use; `None` finds or makes one.
    pub python: Option<PathBuf>,
}

/// The actor of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepActor {
    /// The demo itself.
    Demo,
    /// The agent, who uses `nb`.
    Agent,
    /// The person, who uses a front end.
    Human,
}

/// One step of the transcript.
#[derive(Clone, Debug)]
pub struct Step {
    /// When the step ended, since the demo began.
    pub at: Duration,
    /// Who acted.
    pub actor: StepActor,
    /// What was done.
    pub action: String,
    /// What was seen, line by line.
    pub output: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// Why the demo failed.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// There is no Python with ipykernel.
    #[error(transparent)]
    NoPython(#[from] NoPython),
    /// The folder to keep is in use.
    #[error("{0} is not empty")]
    NotEmpty(PathBuf),
    /// The folder could not be created.
    #[error("cannot make the demo's folder")]
    Folder(#[from] io::Error),
    /// A command of the agent failed.
    #[error("`{command}` ended with {status}:\n{output}")]
    Command {
        /// The command.
        command: String,
        /// Its exit status.
        status: String,
        /// The command's output.
        output: String,
    },
    /// The installed kernelspec is unusable.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The front end could not launch the kernelspec's program.
    #[error("cannot launch {program}")]
    Launch {
        /// `argv[0]`.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// The program that the front end launched ended before it answered.
    #[error("the launched kernel ended with {status}: {stderr}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// Its stderr.
        stderr: String,
    },
    /// The front end's kernel failed.
    #[error("the front end lost its kernel")]
    Client(#[from] ClientError),
    /// A step saw something other than it should.
    #[error("{step}: should have seen {expected}, saw {actual}")]
    Unexpected {
        /// The step.
        step: String,
        /// What it should have seen.
        expected: String,
        /// What it saw.
        actual: String,
    },
    /// The kernel did not end.
    #[error("the kernel (process {0}) is still running")]
    LeftRunning(u32),
    /// The user ended it.
    #[error("interrupted")]
    Interrupted,
}

impl DemoError {
    /// Returns the hint that says how to fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoPython(error) => Some(error.hint()),
            Self::NotEmpty(_) => Some("name a folder that is empty or not there".to_owned()),
            _ => None,
        }
    }
}

/// Finds a Python for the demo, or makes an environment. Blocks; `progress` receives what is being done.
///
/// # Errors
/// [`NoPython`], with a hint.
pub fn find_python(
    options: &DemoOptions,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf, DemoError> {
    Ok(python::find(
        options.python.as_deref(),
        &ProcessVariables,
        progress,
    )?)
}

/// Plays the demo. `report` receives each step when it is done; `stop` ends the demo early.
///
/// Returns the folder that is kept, if one is. Afterwards nothing that was started here runs, whatever the
/// result, except a kept kernel.
///
/// # Errors
/// The first thing that went wrong.
pub async fn demo(
    options: &DemoOptions,
    python: &Path,
    stop: impl Future<Output = ()>,
    report: &mut dyn FnMut(&Step),
) -> Result<Option<PathBuf>, DemoError> {
    let project = DemoProject::create(options.keep.as_deref(), python)?;
    let result = tokio::select! {
        result = steps::run_steps(&project, report) => result,
        () = stop => Err(DemoError::Interrupted),
    };
    match (result, project.kept) {
        (Ok(()), true) => Ok(Some(project.root)),
        (result, _) => {
            let cleaned = project.clean_up().await;
            match result {
                Err(DemoError::Interrupted) => cleaned.and(result),
                result => result.and(cleaned),
            }
            .map(|()| None)
        }
    }
}

/// The demo's folder and the programs that run in it.
struct DemoProject {
    root: PathBuf,
    python: PathBuf,
    program: OsString,
    environment: Vec<(OsString, OsString)>,
    kept: bool,
    start: Instant,
}

impl DemoProject {
    fn create(keep: Option<&Path>, python: &Path) -> Result<Self, DemoError> {
        let root = match keep {
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                if std::fs::read_dir(folder)?.next().is_some() {
                    return Err(DemoError::NotEmpty(folder.to_owned()));
                }
                folder.canonicalize()?
            }
            // `clean_up` removes the folder, after it has ended what runs in it.
            None => tempfile::Builder::new()
                .prefix("nb-demo-")
                .tempdir()?
                .keep()
                .canonicalize()?,
        };
        // `.nb` is made first, so that no `.nb` further up is taken for this project's.
        for folder in [".nb", "jupyter", "data", "front-end"] {
            private_folder(&root.join(folder))?;
        }
        std::fs::write(root.join(NOTEBOOK), notebook())?;
        let jupyter = root.join("jupyter");
        // VS Code reads `.env` in a workspace; for JupyterLab the variable is set on its command line.
        std::fs::write(
            root.join(".env"),
            format!("JUPYTER_PATH={}\n", jupyter.display()),
        )?;
        // The user's editor, which joins, uses the user's own state folder.
        share_records(&root.join("data/state"))?;
        let environment = [
            ("JUPYTER_DATA_DIR", jupyter.clone()),
            ("JUPYTER_RUNTIME_DIR", jupyter.join("runtime")),
            ("XDG_DATA_HOME", root.join("data")),
            ("XDG_STATE_HOME", root.join("data/state")),
            ("IPYTHONDIR", root.join("data/ipython")),
        ]
        .map(|(name, path)| (name.into(), path.into()))
        .to_vec();
        Ok(Self {
            root,
            python: python.to_owned(),
            program: own_program()?,
            environment,
            kept: keep.is_some(),
            start: Instant::now(),
        })
    }

    /// Runs `nb` as an agent does.
    async fn nb(&self, arguments: &[&str]) -> Result<CommandOutput, DemoError> {
        let start = Instant::now();
        let shown = format!("nb {}", shell_words(arguments));
        let output = isolated_command(&self.program)
            .args(arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .env("NB_AS", "agent")
            .current_dir(&self.root)
            .output();
        let failed = |status: String, text: String| DemoError::Command {
            command: shown.clone(),
            status,
            output: text,
        };
        let output = match tokio::time::timeout(COMMAND, output).await {
            Ok(output) => {
                output.map_err(|error| failed("no start".to_owned(), error.to_string()))?
            }
            Err(_) => return Err(failed(format!("no end after {COMMAND:?}"), String::new())),
        };
        let texts = [output.stdout, output.stderr]
            .map(|text| anstream::adapter::strip_str(&String::from_utf8_lossy(&text)).to_string());
        if !output.status.success() {
            return Err(failed(output.status.to_string(), texts.concat()));
        }
        let [stdout, stderr] = texts;
        Ok(CommandOutput {
            command: shown,
            stdout,
            stderr,
            took: start.elapsed(),
        })
    }

    /// Returns the processes of the kernels that are recorded in the project.
    fn kernels(&self) -> Vec<Process> {
        let sessions = self.sessions();
        sessions.iter().filter_map(Process::recorded).collect()
    }

    fn sessions(&self) -> Vec<Session> {
        let project = Project::find(&self.root.join(NOTEBOOK));
        let state = project.and_then(|project| project.state().ok());
        state.unwrap_or_default().sessions.into_values().collect()
    }

    /// Returns the supervisors of the kernels.
    fn supervisors(&self) -> Vec<Process> {
        let of = |session: &Session| {
            let files = KernelFiles::of(&session.connection_file);
            files.supervisor_of(&files.process()?)
        };
        self.sessions().iter().filter_map(of).collect()
    }

    /// Waits until the recorders of jobs have ended.
    async fn recorders_end(&self) {
        let jobs = Project::find(&self.root.join(NOTEBOOK)).map(|project| project.jobs());
        for job in jobs.unwrap_or_default() {
            let ended = async {
                while job.has_recorder() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
            };
            let _ = tokio::time::timeout(ENDS, ended).await;
        }
    }

    /// Ends everything that runs here and removes the folder.
    async fn clean_up(&self) -> Result<(), DemoError> {
        let supervisors = self.supervisors();
        // First with the command that a user would use; it also ends a kernel that is only starting.
        let _ = self.nb(&["shutdown", NOTEBOOK]).await;
        let mut left_running = None;
        for kernel in self.kernels() {
            if kernel.ended_within(Duration::from_secs(1)).await {
                continue;
            }
            let _ = kernel.signal_group(Signal::KILL);
            if !kernel.ended_within(ENDS).await {
                left_running = Some(kernel.pid);
            }
        }
        // These still write into the folder after the kernel has ended.
        for supervisor in supervisors {
            supervisor.ended_within(ENDS).await;
        }
        self.recorders_end().await;
        disown(&self.root.join(".nb"));
        std::fs::remove_dir_all(&self.root)?;
        match left_running {
            Some(pid) => Err(DemoError::LeftRunning(pid)),
            None => Ok(()),
        }
    }
}

/// The output of a command of the agent.
struct CommandOutput {
    command: String,
    stdout: String,
    stderr: String,
    took: Duration,
}

/// Returns a command that is independent of the shell in which the demo was started: without settings of
/// `nb` and variables of a kernel or front end, and outside its Ctrl-C.
fn isolated_command(program: &OsString) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["NB_", "JPY_", "JUPYTER_"]
            .iter()
            .any(|it| text.starts_with(it))
        {
            command.env_remove(&name);
        }
    }
    command
        .stdin(Stdio::null())
        .process_group(0)
        .kill_on_drop(true);
    command
}

fn private_folder(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().mode(0o700).create(path)
}

/// Returns the text of a small notebook, as Jupyter writes it.
fn notebook() -> String {
    let notebook = json!({
        "cells": [
            { "cell_type": "markdown", "id": "intro", "metadata": {},
              "source": ["# One kernel, many hands"] },
            { "cell_type": "code", "execution_count": null, "id": "numbers", "metadata": {},
              "outputs": [], "source": ["sum(numbers)"] },
        ],
        "metadata": { "kernelspec": {
            "display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"
        } },
        "nbformat": 4,
        "nbformat_minor": 5,
    });
    format!("{notebook:#}\n")
}

/// Returns arguments as they would be typed in a shell.
fn shell_words(arguments: &[&str]) -> String {
    let quoted = |word: &&str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            (*word).to_owned()
        } else if word.contains('\'') {
            format!("\"{word}\"")
        } else {
            format!("'{word}'")
        }
    };
    arguments.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
