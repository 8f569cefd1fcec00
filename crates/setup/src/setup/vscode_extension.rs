//! Installs the extension into the editors of this machine that are made of VS Code's code, and removes it.
//!
//! Each editor's own command does the work; `nb` writes nothing into an editor's folders.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use super::program::install_file;
use super::vscode_package::{ID, pack};
use crate::kernel::environment::trust;
use crate::kernel::variables::{NoHome, Variables, own_data_dir};

/// The editors' commands.
pub const PROGRAMS: [&str; 4] = ["code", "code-insiders", "codium", "cursor"];

/// The folders in the home folder in which VS Code puts what it runs on a machine that is reached over SSH, or in
/// a container.
const SERVERS: [&str; 2] = [".vscode-server", ".vscode-server-insiders"];

/// How long an editor may take. One that is started for the first time unpacks itself.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The pause between two checks whether an editor's command has ended.
const PAUSE: Duration = Duration::from_millis(20);

/// Why the extension's file could not be written or removed.
#[derive(Debug, thiserror::Error)]
pub enum VscodeExtensionError {
    /// There is no home folder.
    #[error(transparent)]
    NoHome(#[from] NoHome),
    /// The file could not be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file could not be removed.
    #[error("cannot remove {}", path.display())]
    Remove {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// What became of the extension in one editor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EditorOutcome {
    /// The editor's command.
    pub program: PathBuf,
    /// Why it failed: the editor's own last line, or the system's; `None` if it was done.
    pub failure: Option<String>,
}

/// What installing did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstalledExtension {
    /// The extension's file, for editors that were not found.
    pub file: PathBuf,
    /// The editors that were found.
    pub editors: Vec<EditorOutcome>,
}

/// What removing did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemovedExtension {
    /// The extension's file, if it was there.
    pub file: Option<PathBuf>,
    /// The editors that had the extension.
    pub editors: Vec<EditorOutcome>,
}

/// Writes the extension's file into `nb`'s own data folder, and installs it into each editor that is found. An
/// older or equal version is replaced.
///
/// # Errors
/// The file cannot be written.
pub fn install(variables: &dyn Variables) -> Result<InstalledExtension, VscodeExtensionError> {
    let file = file(variables)?;
    let written = pack().and_then(|bytes| install_file(&file, &bytes));
    written.map_err(|source| VscodeExtensionError::Write {
        path: file.clone(),
        source,
    })?;
    let arguments = [
        OsStr::new("--install-extension"),
        file.as_os_str(),
        OsStr::new("--force"),
    ];
    let outcomes = editors(variables).into_iter().map(|program| {
        let failure = run(&program, &arguments, TIMEOUT).err();
        EditorOutcome { program, failure }
    });
    Ok(InstalledExtension {
        editors: outcomes.collect(),
        file,
    })
}

/// Removes the extension from each editor that has it, and its file. Asks the editors only if the file is there:
/// [`install`] leaves it.
///
/// # Errors
/// The file cannot be removed.
pub fn remove(variables: &dyn Variables) -> Result<RemovedExtension, VscodeExtensionError> {
    let file = file(variables)?;
    if !file.exists() {
        return Ok(RemovedExtension::default());
    }
    let outcomes = editors(variables).into_iter().filter_map(|program| {
        let failure = match run(&program, &["--list-extensions"], TIMEOUT) {
            Ok(list) if list.lines().any(|line| line.trim() == ID) => {
                run(&program, &["--uninstall-extension", ID], TIMEOUT).err()
            }
            Ok(_) => return None,
            Err(failure) => Some(failure),
        };
        Some(EditorOutcome { program, failure })
    });
    let editors = outcomes.collect();
    std::fs::remove_file(&file).map_err(|source| VscodeExtensionError::Remove {
        path: file.clone(),
        source,
    })?;
    Ok(RemovedExtension {
        file: Some(file),
        editors,
    })
}

fn file(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join("nb-shared-kernel.vsix"))
}

/// Returns the commands of the editors on this machine, each program once.
fn editors(variables: &dyn Variables) -> Vec<PathBuf> {
    let on_path = PROGRAMS
        .iter()
        .filter_map(|name| trust::on_path(name, variables));
    let home = variables.path("HOME");
    let servers = home.iter().flat_map(|home| {
        let folders = SERVERS.iter().map(|name| home.join(name));
        folders.filter_map(|folder| server(&folder))
    });
    let mut seen = Vec::new();
    let mut editors: Vec<_> = on_path.chain(servers).collect();
    editors.retain(|program| {
        let canonical = program.canonicalize().unwrap_or_else(|_| program.clone());
        let is_new = !seen.contains(&canonical);
        seen.push(canonical);
        is_new
    });
    editors
}

/// Returns the command of the newest server in a folder of VS Code's servers, which all use one folder of
/// extensions. The server's own command works in every shell; the one in `remote-cli` only in VS Code's terminals.
fn server(folder: &Path) -> Option<PathBuf> {
    const COMMANDS: [&str; 3] = [
        "bin/code-server",
        "bin/code-server-insiders",
        "bin/remote-cli/code",
    ];
    let entries_of = |folder: PathBuf| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let older = entries_of(folder.join("bin"));
    let newer = entries_of(folder.join("cli/servers")).into_iter();
    let servers = older
        .into_iter()
        .chain(newer.map(|folder| folder.join("server")));
    let commands = servers.filter_map(|server| {
        let mut commands = COMMANDS.iter().map(|command| server.join(command));
        let command = commands.find(|command| command.is_file())?;
        let changed = command.metadata().and_then(|metadata| metadata.modified());
        Some((changed.unwrap_or(SystemTime::UNIX_EPOCH), command))
    });
    commands.max().map(|(_, command)| command)
}

/// Runs an editor's command to its end, and returns its stdout.
///
/// # Errors
/// It cannot be started, takes too long or fails: the last line that it wrote says why.
fn run(
    program: &Path,
    arguments: &[impl AsRef<OsStr>],
    timeout: Duration,
) -> Result<String, String> {
    let cannot = |error: io::Error| error.to_string();
    // The outputs go into files: a pipe would stay open as long as any process that the editor leaves behind.
    let (out, err) = (
        tempfile::NamedTempFile::new().map_err(cannot)?,
        tempfile::NamedTempFile::new().map_err(cannot)?,
    );
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(out.reopen().map_err(cannot)?)
        .stderr(err.reopen().map_err(cannot)?)
        .spawn()
        .map_err(cannot)?;
    let start = Instant::now();
    let status = loop {
        match child.try_wait().map_err(cannot)? {
            Some(status) => break status,
            None if start.elapsed() >= timeout => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("no end within {} s", timeout.as_secs()));
            }
            None => std::thread::sleep(PAUSE),
        }
    };
    let read = |file: &tempfile::NamedTempFile| {
        let bytes = std::fs::read(file.path()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match status.success() {
        true => Ok(read(&out)),
        false => Err(last_line(&read(&err)).unwrap_or_else(|| status.to_string())),
    }
}

/// Returns the last line that gives a reason: neither the warnings of Node.js, nor the repeated name of the file.
fn last_line(text: &str) -> Option<String> {
    let is_reason = |line: &&str| {
        let line = line.trim();
        let noise = ["(node:", "(Use `", "Failed Installing Extensions:"];
        !line.is_empty() && !noise.iter().any(|start| line.starts_with(start))
    };
    let last = text.lines().rev().find(is_reason)?;
    const CHARS_MAX: usize = 300;
    Some(last.trim().chars().take(CHARS_MAX).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn program(path: &Path, script: &str) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn editors_are_found_on_path_and_in_the_folders_of_servers() {
        let temp = tempfile::tempdir().unwrap();
        let home = temp.path().join("home");
        let bin = temp.path().join("bin");
        program(&bin.join("code"), "");
        program(&bin.join("cursor"), "");
        // The same program by another name counts once.
        std::os::unix::fs::symlink(bin.join("code"), bin.join("codium")).unwrap();
        let old = home.join(".vscode-server/bin/1/bin/remote-cli/code");
        let new = home.join(".vscode-server/cli/servers/Stable-2/server/bin/code-server");
        for (server, hours) in [(&old, 2), (&new, 1)] {
            program(server, "");
            let changed = SystemTime::now() - Duration::from_secs(hours * 3600);
            let file = std::fs::File::open(server).unwrap();
            file.set_modified(changed).unwrap();
        }
        let path = format!("relative:{}", bin.display());
        let variables = HashMap::from([("HOME", home.to_str().unwrap()), ("PATH", &*path)]);
        let expected = [bin.join("code"), bin.join("cursor"), new.clone()];
        assert_eq!(editors(&variables), expected);
        std::fs::remove_file(&new).unwrap();
        assert_eq!(editors(&variables)[2], old);
    }

    #[test]
    fn what_an_editor_writes_last_is_the_reason() {
        let temp = tempfile::tempdir().unwrap();
        let editor = temp.path().join("code");
        program(
            &editor,
            "echo listed; echo 'not compatible with 1.80.0' >&2; echo '(Use `node`)' >&2; exit $1",
        );
        assert_eq!(run(&editor, &["0"], TIMEOUT).unwrap(), "listed\n");
        let failure = run(&editor, &["1"], TIMEOUT).unwrap_err();
        assert_eq!(failure, "not compatible with 1.80.0");
        program(&editor, "exit 3");
        let failure = run(&editor, &[""], TIMEOUT).unwrap_err();
        assert!(failure.contains('3'), "{failure}");
        program(&editor, "exec tail -f /dev/null");
        let failure = run(&editor, &[""], Duration::ZERO).unwrap_err();
        assert_eq!(failure, "no end within 0 s");
    }
}
