//! Cleans up after processes that were killed: kernels, sockets and files that are not used any
//! more.
//!
//! A kernel with variables is not ended here, however long it has been unused: that is done in
//! [`super::idle`]. A kernel is ended here only if no client has ever used it or can use it again:
//! one that was never ready, one that was shut down but still runs, and one whose project's folder was
//! deleted. Where only `.nb` is missing, it may be back soon. The connection to a kernel on a server is
//! ended with its notebook, or with the project's folder; that kernel goes on.

pub(super) mod scratch;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::Serialize;

use super::all_kernels::{self, Kernels, UnreachableKernel};
use super::death::note_death;
use super::liveness::{Liveness, liveness};
use super::open::{stray_note, unknown_kernels};
use super::open_error::OpenError;
use super::server_kernel::NoServers;
use super::shutdown::shutdown;
use super::start::{LockedSession, end_group};

use crate::activity::participants::is_of_here;
use crate::hint::shell::quote;
use crate::hint::{Verb, nb};
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::variables::ProcessVariables;
use crate::project::registry::KnownServer;
use crate::project::{Project, Relation, Status, registry, remove_tree};
use crate::task;
use crate::task::causes::with_causes;

/// One thing that was found and cleared up, or would have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cleanup {
    /// What was done.
    pub action: CleanupAction,
    /// To what, in words.
    #[serde(rename = "what")]
    pub description: String,
    /// The memory that this frees.
    pub memory_bytes: u64,
    /// The space on the disk that this frees.
    pub disk_bytes: u64,
}

/// What is done to what is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CleanupAction {
    /// A process is ended.
    End,
    /// Files are removed.
    Remove,
    /// A kernelspec is brought up to date.
    Mend,
}

/// The result of a cleanup.
#[derive(Clone, Debug, Default)]
pub struct CleanupResult {
    /// What was found and cleaned up.
    pub cleanups: Vec<Cleanup>,
    /// Notes for the user: what was not touched, and why.
    pub notes: Vec<String>,
    /// Whether this is a dry run.
    dry_run: bool,
}

/// How long another `nb` may hold a session's lock.
const TIMEOUT: Duration = Duration::from_millis(200);

/// The least age of a temporary file to be removed: younger ones may still be written.
const WRITTEN: Duration = Duration::from_secs(10);

/// Returns all the user's projects that exist.
pub fn all_projects() -> Vec<Project> {
    registry::known()
        .iter()
        .filter_map(registry::KnownProject::project)
        .collect()
}

/// Cleans up in these projects, and after projects that were removed; a dry run only reports.
pub async fn clear(projects: &[Project], dry_run: bool) -> CleanupResult {
    let mut cleared = CleanupResult {
        dry_run,
        ..CleanupResult::default()
    };
    for project in projects {
        if let Err(error) = clear_project(project, &mut cleared).await {
            let (name, why) = (project.root().display(), with_causes(&error));
            cleared.notes.push(format!("{name}: {why}"));
        }
    }
    let kernels = all_kernels::all_kernels().await;
    for orphan in &kernels.unreachable {
        if orphan.may_come_back() {
            cleared.notes.push(left_note(orphan));
            continue;
        }
        let notebook = orphan.kernel.notebook.display();
        let subject = match &orphan.kernel.server {
            Some(server) => {
                cleared.notes.push(goes_on(&notebook, server));
                format!("the connection to {} of", server.name)
            }
            None => "the kernel of".to_owned(),
        };
        cleared.add_process(
            &orphan.process,
            &format!("{subject} {notebook}, whose project is gone"),
        );
        if !dry_run {
            end_group(&orphan.process).await;
        }
    }
    if !dry_run {
        // Removes projects from the registry that were deleted, and whose kernels have now been
        // ended.
        all_kernels::all_kernels().await;
    }
    cleared.remove(
        &scratch::orphaned(&kernels),
        "of sandboxes whose projects are gone",
        "scratch folder",
    );
    let sockets = connection::stale_sockets(&ProcessVariables);
    cleared.remove(&sockets, "of kernels that have ended", "socket");
    if !dry_run {
        connection::remove_empty_folders(&sockets, &ProcessVariables);
    }
    let mut links = connection::stale_links(&ProcessVariables);
    links.retain(|link| !leads_to_left(link, &kernels));
    cleared.remove(&links, "to them in Jupyter's runtime folder", "link");
    cleared
}

/// Returns whether a link leads to the connection file of a running kernel whose `.nb` is not where it was.
fn leads_to_left(link: &Path, kernels: &Kernels) -> bool {
    let target = std::fs::read_link(link).unwrap_or_default();
    let left = kernels.unreachable.iter().filter(|it| it.may_come_back());
    let mut dirs = left.filter_map(|it| it.state_file.parent());
    dirs.any(|dir| target.starts_with(dir))
}

/// Returns the note about a running kernel whose `.nb` is not where it was.
fn left_note(kernel: &UnreachableKernel) -> String {
    let (notebook, pid) = (kernel.kernel.notebook.display(), kernel.process.pid);
    let dir = kernel.state_file.parent().unwrap_or(&kernel.root);
    let back = match kernel.renamed_dir() {
        Some(renamed) if renamed != dir => {
            format!("to use it again: mv {} {}", quote(&renamed), quote(dir))
        }
        _ => "no notebook can use it again".to_owned(),
    };
    format!(
        "the kernel of {notebook} goes on (pid {pid}), but {} does not know it any more; {back}; to end it: kill {pid}",
        dir.display()
    )
}

async fn clear_project(project: &Project, cleared: &mut CleanupResult) -> Result<(), OpenError> {
    let sessions = project.state()?.sessions;
    for (key, session) in sessions {
        let is_own = session.as_local().is_some() || session.as_remote().is_some();
        if is_own && session.relation() != Relation::OtherHost {
            clear_session(project, &key, cleared).await?;
        }
        if session.as_remote().is_some() {
            clear_bridge(project, &key, cleared).await?;
        }
    }
    let scratches = scratch::listed(project);
    let (files, alive) = unknown_kernels(project)?;
    let sessions = project.state()?.sessions;
    let scratches = scratch::unneeded(&scratches, sessions.values(), !alive.is_empty());
    cleared.remove(&scratches, "of sandboxes", "scratch folder");
    let strays = alive.iter().map(|process| stray_note(project, process));
    cleared.notes.extend(strays);
    for files in files {
        cleared.remove_files(&files, "a kernel that no notebook has any more");
    }
    let records = dead_proxies(project);
    cleared.remove(&records, "of front ends that were killed", "record");
    cleared.remove(&half_written(project), "that were half written", "file");
    if !cleared.dry_run {
        let jobs = project.dir().join("jobs");
        let before = size(&jobs);
        project.sweep_jobs();
        task::sweep(project);
        let freed = before.saturating_sub(size(&jobs));
        if freed > 0 {
            cleared.add(CleanupAction::Remove, "the oldest jobs".to_owned(), freed);
        }
    }
    Ok(())
}

/// Ends a kernel that no client can use, and removes the files of one that has ended.
async fn clear_session(
    project: &Project,
    key: &str,
    cleared: &mut CleanupResult,
) -> Result<(), OpenError> {
    let locked = match LockedSession::wait(project, key, TIMEOUT).await {
        Ok(locked) => locked,
        // Another nb works on this session, so nothing was left behind.
        Err(OpenError::Busy { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(session) = locked.session()? else {
        return Ok(());
    };
    let notebook = session.notebook.display();
    let files = KernelFiles::of(&session.connection_file);
    let why = match (liveness(&session).await, why_ended(&session.status)) {
        (Liveness::Own(process), Some(why)) => {
            cleared.add_process(&process, &format!("the kernel of {notebook}, {why}"));
            if !cleared.dry_run {
                locked.end(&process, Duration::ZERO).await;
            }
            why
        }
        (Liveness::Dead, why) => why.unwrap_or("it exited unexpectedly"),
        _ => return Ok(()),
    };
    if !cleared.dry_run {
        match session.status {
            Status::Live => {
                note_death(project, key, session.clone())?;
            }
            Status::Starting | Status::Restarting => locked.record_failure(&files, why)?,
            _ => {}
        }
    }
    cleared.remove_files(
        &files,
        &format!("the kernel of {notebook}, which has ended"),
    );
    Ok(())
}

/// Ends the bridge of a kernel on a server whose notebook was deleted. The kernel may have variables, and goes on.
async fn clear_bridge(
    project: &Project,
    key: &str,
    cleared: &mut CleanupResult,
) -> Result<(), OpenError> {
    let Some(session) = project.state()?.session(key) else {
        return Ok(());
    };
    let is_gone = || matches!(session.notebook.try_exists(), Ok(false));
    let (Some(remote), Liveness::Own(process)) = (session.as_remote(), liveness(&session).await)
    else {
        return Ok(());
    };
    if session.status != Status::Live || !is_gone() {
        return Ok(());
    }
    let (notebook, server) = (session.notebook.display(), &remote.server);
    if !cleared.dry_run {
        match shutdown(&NoServers, project, key, "nb gc", TIMEOUT, true).await {
            Ok(_) => {}
            Err(OpenError::Busy { .. }) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    cleared.add_process(
        &process,
        &format!("the connection to {server} of {notebook}, which was deleted"),
    );
    let known = KnownServer {
        name: server.clone(),
        kernel_id: remote.kernel_id.clone(),
    };
    cleared.notes.push(goes_on(&notebook, &known));
    Ok(())
}

/// Returns the note about a kernel on a server whose bridge is ended.
fn goes_on(
    notebook: &std::path::Display<'_>,
    KnownServer { name, kernel_id }: &KnownServer,
) -> String {
    let use_it = nb(Verb::Open).this().option("--server").word(&**name);
    let use_it = use_it.option("--kernel-id").word(&**kernel_id);
    format!("the kernel of {notebook} goes on running on {name}; to use it: {use_it}")
}

/// Returns the reason for ending a kernel that runs, according to the status of its session, which
/// no process changes.
fn why_ended(status: &Status) -> Option<&'static str> {
    match status {
        Status::Starting | Status::Restarting => {
            Some("which was never ready, since whoever started it was killed")
        }
        Status::Stopped => Some("which was shut down and lived on"),
        Status::Live | Status::Died | Status::Other(_) => None,
    }
}

impl CleanupResult {
    /// Adds what was done, or would be, and the space on the disk that this frees, in bytes.
    pub fn add(&mut self, action: CleanupAction, description: String, disk_bytes: u64) {
        self.cleanups.push(Cleanup {
            action,
            description,
            memory_bytes: 0,
            disk_bytes,
        });
    }

    /// Adds a kernel that is about to be ended.
    fn add_process(&mut self, process: &Process, which: &str) {
        self.cleanups.push(Cleanup {
            action: CleanupAction::End,
            description: format!("{which} (pid {})", process.pid),
            memory_bytes: process.memory_bytes().unwrap_or_default(),
            disk_bytes: 0,
        });
    }

    /// Adds the files of a kernel that has ended, and removes them.
    fn remove_files(&mut self, files: &KernelFiles, of: &str) {
        let existing = files.existing(&ProcessVariables);
        if existing.is_empty() {
            return;
        }
        let disk_bytes = existing.iter().map(|path| size(path)).sum();
        if !self.dry_run {
            files.remove(&ProcessVariables);
        }
        let description = format!("{} of {of}", count(existing.len(), "file"));
        self.add(CleanupAction::Remove, description, disk_bytes);
    }

    fn remove(&mut self, paths: &[PathBuf], of: &str, kind: &str) {
        let disk_bytes = paths.iter().map(|path| size(path)).sum();
        let mut removed = 0;
        for path in paths {
            let result = match self.dry_run {
                true => Ok(()),
                false => remove_tree(path),
            };
            match result {
                Ok(()) => removed += 1,
                Err(error) => {
                    let path = path.display();
                    self.notes.push(format!("cannot remove {path}: {error}"));
                }
            }
        }
        if removed > 0 {
            let description = format!("{} {of}", count(removed, kind));
            self.add(CleanupAction::Remove, description, disk_bytes);
        }
    }
}

fn count(count: usize, unit: &str) -> String {
    match count {
        1 => format!("1 {unit}"),
        _ => format!("{count} {unit}s"),
    }
}

/// Returns the records of proxies, and of editors, whose process was killed.
fn dead_proxies(project: &Project) -> Vec<PathBuf> {
    let joined = project.list_joined().into_iter();
    let dead = joined.filter(|joined| !Process::joined(joined).is_alive() && is_of_here(joined));
    let proxies = dead.map(|joined| project.proxies_dir().join(format!("{}.json", joined.pid)));
    let editors = project.live_editors().into_iter();
    let dead = editors.filter(|editor| !Process::is_live_editor(editor));
    let editors = dead.map(|editor| project.live_editor_file(editor.pid));
    proxies.chain(editors).collect()
}

/// Returns temporary files of processes that were killed.
fn half_written(project: &Project) -> Vec<PathBuf> {
    let walk = walkdir::WalkDir::new(project.dir())
        .follow_root_links(false)
        .max_depth(3);
    let files = walk.into_iter().flatten();
    let files = files.filter(|entry| {
        let named = entry.file_name().to_string_lossy().starts_with(".nb-");
        named && entry.file_type().is_file() && is_older(entry.path(), WRITTEN)
    });
    files.map(walkdir::DirEntry::into_path).collect()
}

fn is_older(path: &Path, age: Duration) -> bool {
    let written = std::fs::metadata(path).and_then(|metadata| metadata.modified());
    let elapsed = written.map(|at| SystemTime::now().duration_since(at));
    matches!(elapsed, Ok(Ok(elapsed)) if elapsed > age)
}

/// Returns the size of a file or of the files in a folder, in bytes.
fn size(path: &Path) -> u64 {
    let files = walkdir::WalkDir::new(path)
        .follow_root_links(false)
        .into_iter()
        .flatten();
    files
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|metadata| metadata.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_hold_variables_is_not_ended() {
        assert!(why_ended(&Status::Live).is_none());
        assert!(why_ended(&Status::Died).is_none());
        assert!(why_ended(&Status::Other("new".into())).is_none());
        assert!(why_ended(&Status::Stopped).is_some());
        assert!(why_ended(&Status::Restarting).is_some());
    }

    #[test]
    fn only_what_is_old_and_ours_was_half_written() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let fresh = project.dir().join(".nb-fresh");
        let old = project.make_folder("connections").unwrap().join(".nb-old");
        for path in [&fresh, &old, &project.dir().join("journal.jsonl")] {
            std::fs::write(path, "1234").unwrap();
        }
        let before = SystemTime::now() - WRITTEN * 2;
        let file = std::fs::File::options().write(true).open(&old).unwrap();
        file.set_modified(before).unwrap();
        assert_eq!(half_written(&project), std::slice::from_ref(&old));
        let old_files = std::slice::from_ref(&old);
        let mut cleared = CleanupResult {
            dry_run: true,
            ..CleanupResult::default()
        };
        cleared.remove(old_files, "that were half written", "file");
        assert!(old.exists(), "it was only told");
        cleared.dry_run = false;
        cleared.remove(old_files, "that were half written", "file");
        assert!(!old.exists() && fresh.exists());
        assert_eq!(
            cleared.cleanups[1].description,
            "1 file that were half written"
        );
        assert_eq!(cleared.cleanups[1].disk_bytes, 4);
    }
}
