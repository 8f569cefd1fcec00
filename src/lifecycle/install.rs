//! Giving a Python ipykernel, by the command of whoever manages its environment.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::variables::ProcessVariables;

/// Why a Python has no ipykernel yet.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The program is not there.
    #[error("cannot install ipykernel: {program} cannot be started")]
    Program {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// A sandboxed kernel may have changed what would be run.
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

/// Refuses what would run an environment, or build a project, that a sandboxed kernel may have
/// changed: managers ask its Python, and a project's file names programs.
fn check(wanted: &InstallCommands) -> Result<(), Untrusted> {
    trust::check_program(&wanted.python)?;
    let words = wanted.commands.iter().flatten().map(Path::new);
    words
        .filter(|word| word.is_absolute())
        .try_for_each(|word| trust::check("the file", word))
}

/// Runs the commands, one after the other; what they say goes to stderr. Blocks for as long as
/// they need, and a Ctrl-C ends them with this process.
pub fn install(wanted: &InstallCommands) -> Result<(), InstallError> {
    check(wanted)?;
    for command in &wanted.commands {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let cannot = |source| InstallError::Program {
            program: program.clone(),
            source,
        };
        // stdout is the answer's.
        let out = io::stderr().as_fd().try_clone_to_owned().map_err(cannot)?;
        let found = trust::on_path(program, &ProcessVariables);
        let status = Command::new(found.unwrap_or_else(|| program.into()))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .status()
            .map_err(cannot)?;
        if !status.success() {
            return Err(InstallError::Ended {
                install: wanted.to_string(),
                status,
            });
        }
    }
    Ok(())
}
