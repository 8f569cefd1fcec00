//! Checks what the machine and the shell permit.

use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use super::Check;
use crate::activity::collaboration;
use crate::editing::unsaved::{self, AUTO_SAVE};
use crate::hint;
use crate::hint::shell::quote;
use crate::hint::{Command, Verb, nb};
use crate::kernel::confine::sandbox;
use crate::kernel::process::Process;
use crate::kernel::process::connection::socket_folder;
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::variables::{Variables, own_data_dir};
use crate::lifecycle::start::refuse_in_a_sandbox;
use crate::project::written::AllWritten;
use crate::project::{Project, Sandbox, state_folder};
use crate::task::causes::with_causes;

/// Checks that a kernel can be started from this shell.
pub(super) fn shell() -> Check {
    const ABOUT: &str = "shell";
    match refuse_in_a_sandbox() {
        Ok(()) => Check::good(ABOUT, "kernels can be started from it and outlive it"),
        Err(error) => Check::bad(
            ABOUT,
            with_causes(&error),
            "allow nb outside the sandbox (in the agent's settings)",
        ),
    }
}

/// Checks that processes can be identified: their start times are in `/proc`.
pub(super) fn processes() -> Option<Check> {
    let own = Process::of(std::process::id());
    own.is_none().then(|| {
        Check::bad(
            "processes",
            "/proc does not show when a process started: a kernel cannot be distinguished from another process with its pid",
            "mount -t proc proc /proc",
        )
    })
}

/// Checks that there is a folder for a kernel's Unix sockets, whose paths must be short.
pub(super) fn sockets(variables: &dyn Variables) -> Check {
    const ABOUT: &str = "sockets";
    let folder = match socket_folder(variables) {
        Ok(folder) => folder,
        Err(tried) => {
            let why = tried.iter();
            let why: Vec<_> = why
                .map(|(folder, error)| format!("{}: {error}", folder.display()))
                .collect();
            let otherwise = ", or make one of them a folder of yours with mode 0700";
            let fix = hint![over_tcp(), otherwise];
            return Check::bad(
                ABOUT,
                format!("no folder for them ({})", why.join("; ")),
                fix,
            );
        }
    };
    // Some file systems support no sockets, and some sandboxes forbid them.
    let path = folder.join(format!("doctor-{}", std::process::id()));
    let bound = UnixListener::bind(&path);
    let _ = std::fs::remove_file(&path);
    match bound {
        Ok(_) => Check::good(ABOUT, format!("in {}", folder.display())),
        Err(error) => Check::bad(
            ABOUT,
            format!("none can be made in {}: {error}", folder.display()),
            over_tcp(),
        ),
    }
}

/// Returns the command that opens the notebook with a kernel that needs no such folder.
fn over_tcp() -> Command {
    let open = nb(Verb::Open).option("--transport").word("tcp");
    open.this()
}

/// Checks that the folders which nb writes to are writable.
pub(super) fn folders(notebook: &Path, variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "folders";
    let mut checked: Vec<(&str, PathBuf, &str)> = Vec::new();
    let notebooks = notebook.parent().map(Path::to_owned);
    let elsewhere = "put the notebook where you can write";
    checked.extend(notebooks.map(|it| ("the notebook's", it, elsewhere)));
    let project = Project::find(notebook);
    checked.extend(project.map(|it| ("the project's", it.dir().to_owned(), elsewhere)));
    checked.extend(state_folder().map(|it| {
        let otherwise = "set XDG_STATE_HOME to a folder of yours";
        ("nb's state", it, otherwise)
    }));
    if let Ok(folder) = own_data_dir(variables) {
        checked.push(("nb's own", folder, "set XDG_DATA_HOME to a folder of yours"));
    }
    if let Ok(paths) = JupyterPaths::new(variables) {
        let specs = paths.data_dir.join("kernels");
        checked.push((
            "Jupyter's",
            specs,
            "set JUPYTER_DATA_DIR to a folder of yours",
        ));
        let runtime = "set JUPYTER_RUNTIME_DIR to a folder of yours";
        checked.push(("Jupyter's runtime", paths.runtime_dir, runtime));
    }
    let mut checks: Vec<_> = checked
        .iter()
        .filter_map(|(owner, folder, otherwise)| {
            let (at, error) = not_writable(folder)?;
            let user = rustix::process::geteuid().as_raw();
            let text = format!(
                "{owner} folder {} cannot be written: {error}",
                folder.display()
            );
            let is_own = std::fs::metadata(&at).is_ok_and(|metadata| metadata.uid() == user);
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied if is_own => {
                    format!("chmod u+rwx {}", quote(&at))
                }
                _ => (*otherwise).to_owned(),
            };
            Some(Check::bad(ABOUT, text, fix))
        })
        .collect();
    if checks.is_empty() {
        checks.push(Check::good(ABOUT, "all that must be written can be"));
    }
    checks
}

/// How much is written to learn whether a folder can be written, in bytes.
const WRITTEN: usize = 64 << 10;

/// Returns the folder at or above `folder` that cannot be written, and why. A missing folder can be
/// made if the folder above it can be written.
fn not_writable(folder: &Path) -> Option<(PathBuf, io::Error)> {
    let existing = folder
        .ancestors()
        .find(|it| it.symlink_metadata().is_ok())?;
    let failed = |error: io::Error| Some((existing.to_owned(), error));
    if !existing.is_dir() {
        return failed(io::ErrorKind::NotADirectory.into());
    }
    // The test writes a file, since a read-only mount and a full disk fail only then.
    let written = tempfile::tempfile_in(existing).and_then(|mut file| {
        file.write_all(&[0; WRITTEN])?;
        file.sync_data()
    });
    written.err().and_then(failed)
}

/// Reports which mechanism would confine a kernel that is opened with `--sandbox`.
pub(super) fn sandbox() -> Check {
    const ABOUT: &str = "sandbox";
    match sandbox::choose_mechanism(&Sandbox::default()) {
        Ok(chosen) => {
            let by = format!("nb open --sandbox would use {}", chosen.mechanism.as_str());
            match chosen.instead {
                None => Check::good(ABOUT, by),
                Some(why) => Check::note(
                    ABOUT,
                    format!("{by}, since {why}"),
                    hint![
                        "apt-get install bubblewrap, where it is only that; ",
                        nb(Verb::Status),
                        " tells what a kernel's sandbox keeps"
                    ],
                ),
            }
        }
        Err(error) => Check::note(ABOUT, with_causes(&error), "open without --sandbox"),
    }
}

/// Reports the folders that sandboxed kernels were allowed to write, and whether one of them is on
/// this shell's PATH.
pub(super) fn written(variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "written";
    let all_written = AllWritten::known();
    let mut folders: Vec<_> = all_written.entries().iter().map(|it| &it.folder).collect();
    folders.dedup();
    let trusts = |folder: &Path| {
        let open = nb(Verb::Open).this().option("--trust").word(folder);
        hint!["when you have looked at it: ", open]
    };
    let notes = folders.into_iter().map(|folder| {
        let text = format!(
            "a sandboxed kernel was allowed to write {}: what lies there is not run outside sandboxes",
            folder.display()
        );
        Check::note(ABOUT, text, trusts(folder))
    });
    let mut checks: Vec<_> = notes.collect();
    let path = variables.get("PATH").unwrap_or_default();
    let decided = std::env::split_paths(&path).find_map(|folder| {
        let written = all_written.decides(&folder)?;
        Some((folder, written))
    });
    checks.extend(decided.map(|(folder, _)| {
        let text = format!(
            "{} is on PATH, and a sandboxed kernel was allowed to write it: your shell runs what it may have put there",
            folder.display()
        );
        Check::bad(ABOUT, text, "leave that environment: deactivate")
    }));
    checks
}

/// Checks that a logout does not end the user's processes.
pub(super) fn logout() -> Option<Check> {
    let main = std::fs::read_to_string("/etc/systemd/logind.conf").unwrap_or_default();
    let mut parts: Vec<_> = ["/usr/lib", "/run", "/etc"]
        .iter()
        .filter_map(|root| std::fs::read_dir(format!("{root}/systemd/logind.conf.d")).ok())
        .flat_map(|entries| entries.flatten().map(|entry| entry.path()))
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "conf")
        })
        .collect();
    // The last setting applies, in the order of the file names in all folders.
    parts.sort_by_key(|path| path.file_name().map(ToOwned::to_owned));
    let mut texts = vec![main];
    texts.extend(
        parts
            .iter()
            .filter_map(|path| std::fs::read_to_string(path).ok()),
    );
    ends_at_logout(&texts).then(|| {
        Check::bad(
            "logout",
            "systemd is told to end all processes of a user at the logout (KillUserProcesses=yes): kernels too",
            hint![
                "loginctl enable-linger, and open with: systemd-run --user --scope ",
                nb(Verb::Open).this()
            ],
        )
    })
}

/// Finds editors that do not save automatically.
pub(super) fn editors(variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "editor";
    let files = unsaved::without_auto_save(variables).into_iter();
    let checks = files.map(|file| {
        let text = "VS Code saves nothing by itself: an unsaved tab hides what others write";
        let fix = format!("put {AUTO_SAVE} into {}", file.display());
        Check::note(ABOUT, text, fix)
    });
    checks.collect()
}

/// Finds Jupyter servers in which jupyter-collaboration may have a notebook of the folder open.
pub(super) fn rooms(notebook: &Path, variables: &dyn Variables) -> Vec<Check> {
    const ABOUT: &str = "collaboration";
    let folder = notebook.parent().and_then(|it| it.canonicalize().ok());
    let servers = folder.map(|folder| collaboration::servers_of(&folder, variables));
    let checks = servers.into_iter().flatten().map(|server| {
        let text = format!(
            "JupyterLab ({server}) uses jupyter-collaboration: a change of the file drops what is typed there. Without its own extension nb refuses edits of a notebook that is open there, and writes outputs once its tab is closed"
        );
        Check::note(ABOUT, text, "nb serve --jupyterlab, and reload the page")
    });
    checks.collect()
}

fn ends_at_logout(settings: &[String]) -> bool {
    let lines = settings.iter().flat_map(|text| text.lines());
    let mut values = lines.filter_map(|line| line.trim().strip_prefix("KillUserProcesses="));
    values.next_back().is_some_and(|value| {
        let value = value.trim().to_ascii_lowercase();
        matches!(&*value, "yes" | "true" | "on" | "1")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts() {
        let ends = |texts: &[&str]| {
            let texts: Vec<_> = texts.iter().map(|text| (*text).to_owned()).collect();
            ends_at_logout(&texts)
        };
        assert!(!ends(&[]));
        assert!(!ends(&["[Login]\n#KillUserProcesses=yes\n"]));
        assert!(ends(&["[Login]\nKillUserProcesses=yes\n"]));
        assert!(!ends(&[
            "KillUserProcesses=yes\n",
            "KillUserProcesses=no\n"
        ]));
        assert!(ends(&[
            "KillUserProcesses=no\n",
            "KillUserProcesses=true\n"
        ]));
    }

    #[test]
    fn a_folder_that_cannot_be_made_names_the_one_above_it() {
        let temp = tempfile::tempdir().unwrap();
        assert!(not_writable(&temp.path().join("a/b")).is_none());
        let file = temp.path().join("file");
        std::fs::write(&file, "").unwrap();
        let (at, _) = not_writable(&file.join("a/b")).unwrap();
        assert_eq!(at, file);
        assert!(not_writable(Path::new("/proc/self/nb")).is_some());
    }
}
