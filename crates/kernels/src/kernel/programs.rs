//! The programs `nb` and `nb-proxy` beside this one, and their versions.

use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::kernel::environment::trust::{self, Untrusted};
use crate::kernel::process::own_path;

/// The name of `nb`.
pub const NB: &str = "nb";

/// How long another program may take to print its version.
const ANSWERS_WITHIN: Duration = Duration::from_secs(3);

/// Why the `nb` beside this program cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum NbError {
    /// There is none.
    #[error("there is no nb at {}; to put it there: nb serve", path.display())]
    Missing {
        /// Where it should be.
        path: PathBuf,
    },
    /// It belongs to another user, or others may change it or replace it.
    #[error("other users of this machine may change {}", path.display())]
    OfOthers {
        /// The file, or its folder.
        path: PathBuf,
    },
    /// A sandboxed kernel may have written it.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// It is of another version.
    #[error(
        "{} is not nb {}; to install the same version of both programs: nb serve",
        path.display(),
        env!("CARGO_PKG_VERSION")
    )]
    OtherVersion {
        /// Its path.
        path: PathBuf,
    },
}

/// Returns the `nb` beside this program, where `nb serve` and packages put it. Runs it to learn its version, and blocks
/// meanwhile.
///
/// # Errors
/// There is none of this version, or another user could have put it there.
pub fn nb_beside() -> Result<PathBuf, NbError> {
    let path = own_path().unwrap_or_default().with_file_name(NB);
    nb_at(path)
}

fn nb_at(path: PathBuf) -> Result<PathBuf, NbError> {
    let Ok(real) = path.canonicalize() else {
        return Err(NbError::Missing { path });
    };
    let folders = [path.parent(), real.parent()].into_iter().flatten();
    for file in folders.chain([&*real]) {
        if !is_safe(file) {
            let path = file.to_owned();
            return Err(NbError::OfOthers { path });
        }
    }
    trust::check_program(&real)?;
    match version_of(&path, NB) {
        Some(version) if version == env!("CARGO_PKG_VERSION") => Ok(path),
        _ => Err(NbError::OtherVersion { path }),
    }
}

/// Says whether a file or folder belongs to this user or to root, and no other user may write it. This user's own group may:
/// many systems give each user one, and make files that it may write.
fn is_safe(path: &Path) -> bool {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    path.metadata().is_ok_and(|metadata| {
        let refused = match metadata.gid() == group {
            true => 0o002,
            false => 0o022,
        };
        [user, 0].contains(&metadata.uid()) && metadata.permissions().mode() & refused == 0
    })
}

/// Returns the version of a program of ours; `None` if it is another program.
///
/// It may be any program: one that a sandboxed kernel may have written is not run, and one that does not
/// answer is ended.
pub fn version_of(program: &Path, name: &str) -> Option<String> {
    trust::check_program(program).ok()?;
    let mut child = Command::new(program)
        .arg("--version")
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let stdout = child.stdout.take()?;
    let (sender, answer) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.take(1 << 10).read_to_string(&mut text);
        let _ = sender.send(read.map(|_| text));
    });
    let answer = answer.recv_timeout(ANSWERS_WITHIN);
    let _ = child.kill();
    let _ = child.wait();
    let text = answer.ok()?.ok()?;
    let mut words = text.lines().next()?.split_whitespace();
    let version = words.by_ref().find(|word| *word != name)?;
    let is_version = version.starts_with(|first: char| first.is_ascii_digit());
    (text.starts_with(name) && is_version).then(|| version.to_owned())
}

#[cfg(test)]
pub(super) mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes a program of one file. A child writes it, so that no other test's fork holds it open for writing (ETXTBSY).
    pub(in crate::kernel) fn write_program(path: &Path, text: &str) {
        let written = Command::new("sh")
            .args(["-c", "printf %s \"$1\" > \"$0\" && chmod 755 \"$0\""])
            .args([path.as_os_str(), text.as_ref()])
            .status()
            .unwrap();
        assert!(written.success());
    }

    fn program(path: &Path, mode: u32, version: &str) {
        write_program(path, &format!("#!/bin/sh\necho nb {version}\n"));
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn an_nb_is_used_if_it_is_of_this_version_and_nobody_else_can_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("own");
        let link = folder.path().join(NB);
        assert!(matches!(nb_at(link.clone()), Err(NbError::Missing { .. })));
        symlink(&own, &link).unwrap();
        assert!(matches!(nb_at(link.clone()), Err(NbError::Missing { .. })));
        program(&own, 0o755, env!("CARGO_PKG_VERSION"));
        assert_eq!(nb_at(link.clone()).unwrap(), link);
        program(&own, 0o757, env!("CARGO_PKG_VERSION"));
        assert!(matches!(nb_at(link.clone()), Err(NbError::OfOthers { .. })));
        program(&own, 0o755, "0.0.9");
        assert!(matches!(
            nb_at(link.clone()),
            Err(NbError::OtherVersion { .. })
        ));
        program(&own, 0o755, env!("CARGO_PKG_VERSION"));
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(folder.path(), open).unwrap();
        assert!(matches!(nb_at(link), Err(NbError::OfOthers { .. })));
    }
}
