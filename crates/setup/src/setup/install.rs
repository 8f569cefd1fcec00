//! Installs ipykernel into a Python, with the program that manages its environment.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::variables::ProcessVariables;

/// Why ipykernel was not installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The program does not exist.
    #[error("cannot install ipykernel: {program} cannot be started")]
    Program {
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A sandboxed kernel may have changed files that the installation would run.
    #[error("ipykernel is not installed: {0}")]
    Untrusted(#[from] Untrusted),
    /// The program failed.
    #[error("cannot install ipykernel: {install} ended with {status}")]
    Ended {
        /// The commands.
        install: String,
        /// How it ended.
        status: ExitStatus,
    },
}

/// Fails if a sandboxed kernel may have changed the environment or project: package managers run
/// the environment's Python, and a project's file can name programs.
fn check(commands: &InstallCommands) -> Result<(), Untrusted> {
    trust::check_program(&commands.python)?;
    let paths = commands.commands.iter().flatten().map(Path::new);
    paths
        .filter(|path| path.is_absolute())
        .try_for_each(|path| trust::check("the file", path))
}

/// Runs the commands one after the other; their output goes to stderr. Blocks until they have
/// ended; a Ctrl-C ends them together with this process.
pub fn install(commands: &InstallCommands) -> Result<(), InstallError> {
    check(commands)?;
    for command in &commands.commands {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let cannot = |source| InstallError::Program {
            program: program.clone(),
            source,
        };
        // stdout is for the answer of nb.
        let out = io::stderr().as_fd().try_clone_to_owned().map_err(cannot)?;
        let program_path = match Path::new(program).is_absolute() {
            true => Some(program.into()),
            false => trust::on_path(program, &ProcessVariables),
        };
        let missing = || cannot(io::Error::from(io::ErrorKind::NotFound));
        let status = Command::new(program_path.ok_or_else(missing)?)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .status()
            .map_err(cannot)?;
        if !status.success() {
            return Err(InstallError::Ended {
                install: commands.to_string(),
                status,
            });
        }
    }
    Ok(())
}
