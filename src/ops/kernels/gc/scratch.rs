//! Scratch folders of sandboxes that no session needs any more.

use std::io;
use std::path::{Path, PathBuf};

use crate::project::{Project, Session, Status};

/// Says that a scratch folder stays although its kernel was shut down. It lies beside the folder,
/// where no kernel can write it, and outlives what its session remembers of the sandbox.
pub(in crate::ops::kernels) fn keep(scratch: &Path) -> io::Result<()> {
    std::fs::write(mark(scratch), "")
}

fn mark(scratch: &Path) -> PathBuf {
    scratch.with_added_extension("kept")
}

/// Returns a project's scratch folders, and the marks of those that stay.
///
/// Its state is to be read after this: a session is recorded before its folder is made.
pub(super) fn listed(project: &Project) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(project.dir().join("scratch"));
    let entries = entries.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

/// Returns those of the listed that nobody needs, and the marks of those that are gone.
///
/// `has_unknown` says that a kernel runs which no session knows: nor is it known which folder is
/// its own.
pub(super) fn unneeded<'a>(
    listed: &[PathBuf],
    sessions: impl Iterator<Item = &'a Session>,
    has_unknown: bool,
) -> Vec<PathBuf> {
    if has_unknown {
        return Vec::new();
    }
    let needed: Vec<_> = sessions.filter(|it| needs(it)).filter_map(name).collect();
    let is_unneeded = |path: &&PathBuf| match path.extension().is_some_and(|it| it == "kept") {
        true => !path.with_extension("").exists(),
        false => !mark(path).exists() && !needed.iter().any(|it| path.ends_with(it)),
    };
    listed.iter().filter(is_unneeded).cloned().collect()
}

fn name(session: &Session) -> Option<&Path> {
    let scratch = &session.sandbox.as_ref()?.scratch;
    scratch.file_name().map(Path::new)
}

/// A kernel that died is opened again in its folder; one that was shut down left it for good.
fn needs(session: &Session) -> bool {
    let keeps = session.sandbox.as_ref().is_some_and(|it| it.keep_scratch);
    keeps || session.status != Status::Stopped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Sandbox;

    #[test]
    fn only_what_no_session_needs_and_nobody_keeps_goes() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let shelf = project.dir().join("scratch");
        let session = |name: &str, status: Status, keep_scratch: bool| {
            let scratch = shelf.join(name);
            std::fs::create_dir_all(scratch.join("home")).unwrap();
            let sandbox = Sandbox {
                scratch,
                keep_scratch,
                ..Sandbox::default()
            };
            Session {
                status,
                sandbox: Some(sandbox),
                ..Session::bare(project.notebook(name), PathBuf::new(), None)
            }
        };
        let sessions = [
            session("live-1", Status::Live, false),
            session("died-1", Status::Died, false),
            session("stopped-1", Status::Stopped, false),
            session("wished-1", Status::Stopped, true),
        ];
        // Of sessions that are forgotten, or have no sandbox any more.
        for name in ["gone-1", "marked-1"] {
            std::fs::create_dir(shelf.join(name)).unwrap();
        }
        keep(&shelf.join("marked-1")).unwrap();
        keep(&shelf.join("removed-1")).unwrap();
        let names = |has_unknown| {
            let mut found = unneeded(&listed(&project), sessions.iter(), has_unknown);
            found.sort();
            let names = found.iter().filter_map(|path| path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["gone-1", "removed-1.kept", "stopped-1"]);
        assert!(names(true).is_empty());
    }
}
