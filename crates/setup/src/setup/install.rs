//! Installs packages into a Python and removes them, with the program that manages its environment.

use std::io;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};

use crate::kernel::environment::install::InstallCommands;
use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::variables::ProcessVariables;

/// Why the packages were not changed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The program does not exist.
    #[error("cannot {purpose}: {program} cannot be started")]
    Program {
        /// What it was to do: `install ipykernel`.
        purpose: String,
        /// The program.
        program: String,
        /// The system's error.
        source: io::Error,
    },
    /// A sandboxed kernel may have changed files that the installation would run.
    #[error("no package is changed: {0}")]
    Untrusted(#[from] Untrusted),
    /// The program failed.
    #[error("cannot {purpose}: {}", main_line(output).unwrap_or_else(|| format!("{install} ended with {status}")))]
    Ended {
        /// The commands.
        install: String,
        /// What it was to do.
        purpose: String,
        /// How it ended.
        status: ExitStatus,
        /// What the program printed.
        output: String,
    },
    /// The system's Python lacks the modules that make environments and install pip.
    #[error(
        "cannot install ipykernel: this Python has no venv, which a package of the system holds"
    )]
    NoVenv {
        /// The package.
        package: String,
    },
}

/// How many characters of an installer's line are in a message.
const LINE_CHARS: usize = 300;

/// How many of an installer's last lines are told.
const LINES_MAX: usize = 100;

/// Returns the line of an installer's output that says best why it failed: its error, or its last line.
fn main_line(output: &str) -> Option<String> {
    let lines = || {
        output
            .lines()
            .map(str::trim)
            .filter(|line| !line.is_empty())
    };
    let is_error = |line: &&str| {
        let starts = ["ERROR:", "error:", "cause:", "×", "╰─▶"];
        starts.iter().any(|start| line.starts_with(start))
    };
    let line = lines().rfind(is_error).or_else(|| lines().next_back())?;
    let line = line.trim_start_matches(['×', '╰', '─', '▶', ' ']);
    let line = ["ERROR: ", "error: ", "cause: "]
        .iter()
        .find_map(|prefix| line.strip_prefix(prefix))
        .unwrap_or(line);
    Some(line.chars().take(LINE_CHARS).collect())
}

impl InstallError {
    fn of(commands: &InstallCommands, status: ExitStatus, output: String) -> Self {
        let lacks = [
            "ensurepip is not",
            "ensurepip is disabled",
            "No module named",
        ];
        let is_meant = |line: &str| {
            lacks.iter().any(|lacks| line.contains(lacks))
                && (line.contains("ensurepip") || line.contains("venv"))
        };
        if !output.lines().any(is_meant) {
            return Self::Ended {
                purpose: commands.purpose.clone(),
                install: commands.to_string(),
                status,
                output,
            };
        }
        // Debian's Python names the package of its version.
        let named = output
            .lines()
            .find_map(|line| line.trim().strip_prefix("apt install "));
        Self::NoVenv {
            package: named.unwrap_or("python3-venv").to_owned(),
        }
    }

    /// Returns what the program printed, its last lines.
    pub fn lines(&self) -> Vec<String> {
        let Self::Ended { output, .. } = self else {
            return Vec::new();
        };
        let lines: Vec<_> = output.trim_end().lines().map(str::to_owned).collect();
        lines[lines.len().saturating_sub(LINES_MAX)..].to_vec()
    }

    /// Returns what to do.
    pub fn hint(&self, commands: &InstallCommands) -> String {
        match self {
            Self::NoVenv { package } => {
                format!("on Debian and Ubuntu: apt install {package}; then again")
            }
            _ => format!("run it by hand: {commands}"),
        }
    }
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

/// Runs the commands one after the other. Blocks until they have ended; a Ctrl-C ends them together with this process. A
/// new environment that does not become whole is taken away.
pub fn install(commands: &InstallCommands) -> Result<(), InstallError> {
    check(commands)?;
    let made = made(commands).filter(|folder| folder.symlink_metadata().is_err());
    let result = commands.commands.iter().try_for_each(|command| {
        let (program, arguments) = command.split_first().expect("a command has a program");
        let cannot = |source| InstallError::Program {
            purpose: commands.purpose.clone(),
            program: program.clone(),
            source,
        };
        let program_path = match Path::new(program).is_absolute() {
            true => Some(program.into()),
            false => trust::on_path(program, &ProcessVariables),
        };
        let missing = || cannot(io::Error::from(io::ErrorKind::NotFound));
        let ended = Command::new(program_path.ok_or_else(missing)?)
            .args(arguments)
            // Python imports modules from its working directory before installed ones.
            .current_dir("/")
            .stdin(Stdio::null())
            .output()
            .map_err(cannot)?;
        if ended.status.success() {
            return Ok(());
        }
        let output = [ended.stdout, ended.stderr].concat();
        let output = String::from_utf8_lossy(&output).into_owned();
        Err(InstallError::of(commands, ended.status, output))
    });
    if let (Err(_), Some(made)) = (&result, made) {
        let _ = std::fs::remove_dir_all(made);
    }
    result
}

/// Returns the folder of the environment that the commands make.
fn made(commands: &InstallCommands) -> Option<&Path> {
    let words = commands.commands.first()?;
    let at = words.iter().position(|word| word == "venv")?;
    words.get(at + 1).map(Path::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Installs with a stand-in for `python -m venv`: a script for a shell, in which `$3` is the new folder.
    fn install_with(script: &str) -> (InstallError, bool) {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().canonicalize().unwrap().join(".venv");
        let program = temp.path().join("python");
        std::fs::write(&program, script).unwrap();
        let words = [
            "/bin/sh",
            program.to_str().unwrap(),
            "-m",
            "venv",
            folder.to_str().unwrap(),
        ];
        let commands = InstallCommands {
            purpose: "install ipykernel".to_owned(),
            commands: vec![words.map(str::to_owned).to_vec()],
            python: folder.join("bin/python"),
        };
        let error = install(&commands).unwrap_err();
        (error, folder.exists())
    }

    #[test]
    fn a_python_without_venv_leaves_no_half_of_an_environment() {
        for (text, package) in [
            (
                "ensurepip is not\n    apt install python3.13-venv\navailable",
                "python3.13-venv",
            ),
            (
                "/usr/bin/python3: No module named ensurepip",
                "python3-venv",
            ),
            ("/usr/bin/python3: No module named venv", "python3-venv"),
        ] {
            let script = format!("mkdir -p \"$3/bin\"; echo '{text}'; exit 1");
            let (error, is_left) = install_with(&script);
            let InstallError::NoVenv { package: found } = &error else {
                panic!("{error}")
            };
            assert_eq!(found, package);
            assert!(!is_left);
        }
    }

    #[test]
    fn what_a_program_printed_is_told_when_it_fails() {
        let (error, is_left) = install_with("mkdir \"$3\"; echo no network >&2; exit 3");
        assert_eq!(error.to_string(), "cannot install ipykernel: no network");
        assert!(!is_left);
    }

    #[test]
    fn the_message_has_the_installers_error_and_the_lines_have_all() {
        for (script, message) in [
            (
                "echo Collecting nosuch; echo 'ERROR: Could not find it'; echo 'ERROR: No matching distribution found for nosuch'; echo; echo 'notice: update pip'; exit 1",
                "No matching distribution found for nosuch",
            ),
            (
                "printf '  × No solution found:\\n  ╰─▶ Because nosuch was not found\\n      there is none.\\n' >&2; exit 1",
                "Because nosuch was not found",
            ),
            (
                "printf 'error: Failed to add\\n  cause: Because nosuch was not found\\n\\nhint: x\\n'; exit 2",
                "Because nosuch was not found",
            ),
            ("exit 4", ".venv ended with exit status: 4"),
        ] {
            let (error, _) = install_with(script);
            assert!(error.to_string().ends_with(message), "{error}");
            let InstallError::Ended { output, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(error.lines(), output.trim_end().lines().collect::<Vec<_>>());
        }
    }
}
