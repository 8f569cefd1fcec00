//! Finds scratch folders of sandboxes that no session needs any more.

use std::path::PathBuf;

use crate::lifecycle::all_kernels::Kernels;
use crate::project::scratch;
use crate::project::{Project, Session, Status};

/// Returns a project's scratch folders.
///
/// Read the project's state after this: a session is recorded before its folder is made.
pub(super) fn listed(project: &Project) -> Vec<PathBuf> {
    let state_file = project.state_file();
    let mut all = scratch::listed();
    all.retain(|path| scratch::owner(path).is_some_and(|it| it.state_file == state_file));
    all
}

/// Returns the scratch folders of projects that were removed. A project that was moved, or whose `.nb` was renamed, may
/// have a kernel that uses its folder.
pub(super) fn orphaned(kernels: &Kernels) -> Vec<PathBuf> {
    let sessions = kernels.sessions.iter().map(|(_, status)| &status.session);
    let needed: Vec<_> = sessions
        .filter(|it| needs(it))
        .filter_map(|it| it.settings.confinement.sandbox())
        .collect();
    let runs = |owner: &scratch::Owner| {
        let mut running = kernels.unreachable.iter();
        running.any(|it| it.state_file == owner.state_file && it.may_come_back())
    };
    let mut all = scratch::listed();
    all.retain(|path| {
        let owner = scratch::owner(path);
        owner.is_some_and(|it| !it.state_file.exists() && !runs(&it))
            && !needed.iter().any(|it| it.scratch == *path)
            && !scratch::is_kept(path)
    });
    all
}

/// Returns those of the listed folders that no session needs.
///
/// `has_unknown` says that a kernel runs which no session knows. Then it is not known which folder
/// belongs to it, and nothing is returned.
pub(super) fn unneeded<'a>(
    listed: &[PathBuf],
    sessions: impl Iterator<Item = &'a Session>,
    has_unknown: bool,
) -> Vec<PathBuf> {
    if has_unknown {
        return Vec::new();
    }
    let needed = sessions.filter(|it| needs(it));
    let needed: Vec<_> = needed
        .filter_map(|it| it.settings.confinement.sandbox())
        .collect();
    let is_needed = |path: &PathBuf| needed.iter().any(|it| it.scratch == *path);
    let unneeded = |path: &&PathBuf| !scratch::is_kept(path) && !is_needed(path);
    listed.iter().filter(unneeded).cloned().collect()
}

/// Returns whether a session needs its scratch folder: after a kernel died the folder stays until
/// the next start.
fn needs(session: &Session) -> bool {
    let keeps = session.settings.confinement.sandbox();
    let keeps = keeps.is_some_and(|it| it.keep_scratch);
    keeps || session.status != Status::Stopped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::{Confinement, Sandbox};

    #[test]
    fn only_what_no_session_needs_and_nobody_keeps_goes() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let shelf = temp.path().join("scratch");
        let session = |name: &str, status: Status, keep_scratch: bool| {
            let scratch = shelf.join(name);
            std::fs::create_dir_all(scratch.join("home")).unwrap();
            let sandbox = Sandbox {
                scratch,
                keep_scratch,
                ..Sandbox::default()
            };
            let mut session = Session::local(project.notebook(name));
            session.status = status;
            session.settings.confinement = Confinement::Sandbox(Box::new(sandbox));
            session
        };
        let sessions = [
            session("live-1", Status::Live, false),
            session("died-1", Status::Died, false),
            session("stopped-1", Status::Stopped, false),
            session("wished-1", Status::Stopped, true),
        ];
        // Folders of sessions that were removed, or that have no sandbox any more.
        for name in ["gone-1", "marked-1"] {
            std::fs::create_dir(shelf.join(name)).unwrap();
        }
        scratch::keep(&shelf.join("marked-1")).unwrap();
        let entries = std::fs::read_dir(&shelf).unwrap().flatten();
        let listed: Vec<_> = entries.map(|entry| entry.path()).collect();
        let names = |has_unknown| {
            let mut found = unneeded(&listed, sessions.iter(), has_unknown);
            found.sort();
            let names = found.iter().filter_map(|path| path.file_name()?.to_str());
            names.map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(names(false), ["gone-1", "stopped-1"]);
        assert!(names(true).is_empty());
    }
}
