//! Clearing up after what was killed: kernels, sockets and files that nobody uses any more.
//!
//! What holds somebody's variables is not touched, however long nobody has used it: that is
//! [`super::idle`]. A kernel is ended here when nobody can ever have used it, or can again: one
//! that was never ready, one that was shut down and lives, one whose project was deleted.

pub(super) mod scratch;

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use super::death::note_death;
use super::everywhere;
use super::idle;
use super::liveness::{Liveness, liveness};
use super::open::unknown;
use super::open_error::OpenError;
use super::serve::{self, Health, Level};
use super::start::Held;

use crate::activity::participants::is_of_here;
use crate::kernel::process::Process;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::kernel::variables::ProcessVariables;
use crate::project::{Project, Relation, Session, Status, registry, remove_tree};
use crate::task;
use crate::task::causes::with_causes;

/// What is cleared up.
#[derive(Clone, Debug)]
pub struct CleanupOptions {
    /// Of these projects.
    pub projects: Vec<Project>,
    /// Only tell.
    pub dry_run: bool,
}

/// One thing that was found and cleared up, or would have been.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cleanup {
    /// What was done.
    pub action: CleanupAction,
    /// To what, in words.
    pub what: String,
    /// How much memory that frees.
    pub memory_bytes: u64,
    /// How much room on the disk.
    pub disk_bytes: u64,
}

/// What is done to what nobody uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CleanupAction {
    /// A process is ended.
    End,
    /// Files are removed.
    Remove,
    /// A kernelspec is brought up to date.
    Mend,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Cleared {
    /// What was found.
    pub found: Vec<Cleanup>,
    /// What the user should know: what was left alone, and why.
    pub notes: Vec<String>,
}

/// How long another `nb` may hold a session's lock.
const PATIENCE: Duration = Duration::from_millis(200);

/// A file that somebody is just writing is younger.
const WRITTEN: Duration = Duration::from_secs(10);

/// Returns all the user's projects that are there.
pub fn all_projects() -> Vec<Project> {
    registry::known()
        .iter()
        .filter_map(registry::Known::project)
        .collect()
}

/// Clears up.
pub async fn clear(options: &CleanupOptions) -> Cleared {
    let mut cleared = Cleared::default();
    for project in &options.projects {
        if let Err(error) = clear_project(project, options.dry_run, &mut cleared).await {
            let name = project.root().display();
            cleared
                .notes
                .push(format!("{name}: {}", with_causes(&error)));
        }
    }
    for left in everywhere::everywhere().await.left {
        let memory_bytes = left.process.memory_bytes().unwrap_or_default();
        if !options.dry_run {
            idle::end_group(&left.process).await;
        }
        cleared.found.push(Cleanup {
            action: CleanupAction::End,
            what: format!(
                "the kernel of {}, whose project is gone (pid {})",
                left.kernel.notebook.display(),
                left.process.pid
            ),
            memory_bytes,
            disk_bytes: 0,
        });
    }
    if !options.dry_run {
        // Of projects that were deleted with their kernels, those that have just been ended too.
        everywhere::everywhere().await;
    }
    cleared.remove(
        options.dry_run,
        &scratch::orphaned(),
        "of sandboxes whose projects are gone",
        "scratch folder",
    );
    let sockets = connection::stale_sockets(&ProcessVariables);
    cleared.remove(
        options.dry_run,
        &sockets,
        "of kernels that have ended",
        "socket",
    );
    if !options.dry_run {
        connection::remove_empty_folders(&sockets, &ProcessVariables);
    }
    let links = connection::stale_links(&ProcessVariables);
    cleared.remove(
        options.dry_run,
        &links,
        "to them in Jupyter's runtime folder",
        "link",
    );
    mend_spec(options.dry_run, &mut cleared);
    cleared
}

fn mend_spec(dry_run: bool, cleared: &mut Cleared) {
    let Ok(Health::Stale(why)) = serve::health(&Level::User, &ProcessVariables) else {
        return;
    };
    if !dry_run && let Err(error) = serve::serve(&Level::User, "python", &ProcessVariables) {
        cleared.notes.push(with_causes(&error));
        return;
    }
    cleared.found.push(Cleanup {
        action: CleanupAction::Mend,
        what: format!("the kernelspec \"nb shared kernel\": {why}"),
        memory_bytes: 0,
        disk_bytes: 0,
    });
}

async fn clear_project(
    project: &Project,
    dry_run: bool,
    cleared: &mut Cleared,
) -> Result<(), OpenError> {
    let sessions = project.state()?.sessions;
    for (key, session) in sessions {
        let mine = session.as_local().is_some();
        if mine && session.relation() != Relation::OtherHost {
            clear_session(project, &key, dry_run, cleared).await?;
        }
    }
    let scratches = scratch::listed(project);
    let (files, alive) = unknown(project)?;
    let sessions = project.state()?.sessions;
    let scratches = scratch::unneeded(&scratches, sessions.values(), !alive.is_empty());
    cleared.remove(dry_run, &scratches, "of sandboxes", "scratch folder");
    for process in alive {
        let pid = process.pid;
        cleared.notes.push(format!(
            "process {pid} is a kernel that nb started and {} does not know; to end it: kill {pid}",
            project.state_file().display()
        ));
    }
    for files in files {
        cleared.take_files(&files, dry_run, "a kernel that no notebook has any more");
    }
    let records = dead_proxies(project);
    cleared.remove(
        dry_run,
        &records,
        "of front ends that were killed",
        "record",
    );
    let temporary = half_written(project);
    cleared.remove(dry_run, &temporary, "that were half written", "file");
    if !dry_run {
        let before = size(&project.dir().join("jobs"));
        project.sweep_jobs();
        task::sweep(project);
        let freed = before.saturating_sub(size(&project.dir().join("jobs")));
        if freed > 0 {
            cleared.found.push(Cleanup {
                action: CleanupAction::Remove,
                what: "the oldest jobs".to_owned(),
                memory_bytes: 0,
                disk_bytes: freed,
            });
        }
    }
    Ok(())
}

/// Ends a kernel that nobody has or can have, and removes what belongs to one that has ended.
async fn clear_session(
    project: &Project,
    key: &str,
    dry_run: bool,
    cleared: &mut Cleared,
) -> Result<(), OpenError> {
    let held = match Held::wait(project, key, PATIENCE).await {
        Ok(held) => held,
        // Somebody is at it: nothing was left behind.
        Err(OpenError::Busy { .. }) => return Ok(()),
        Err(error) => return Err(error),
    };
    let Some(session) = held.session()? else {
        return Ok(());
    };
    let files = KernelFiles::of(&session.connection_file);
    let why = match (liveness(&session).await, why_ended(&session.status)) {
        (Liveness::Own(process), Some(why)) => {
            let memory_bytes = process.memory_bytes().unwrap_or_default();
            if !dry_run {
                held.end(&process, Duration::ZERO).await;
            }
            cleared.found.push(Cleanup {
                action: CleanupAction::End,
                what: format!(
                    "the kernel of {}, {why} (pid {})",
                    session.notebook.display(),
                    process.pid
                ),
                memory_bytes,
                disk_bytes: 0,
            });
            why
        }
        (Liveness::Dead, why) => why.unwrap_or("it exited unexpectedly"),
        _ => return Ok(()),
    };
    if !dry_run {
        match session.status {
            Status::Live => {
                note_death(project, key, session.clone())?;
            }
            Status::Starting | Status::Restarting => held.failed(&files, why)?,
            _ => {}
        }
    }
    cleared.take_files(&files, dry_run, &owner_words(&session));
    Ok(())
}

fn owner_words(session: &Session) -> String {
    format!(
        "the kernel of {}, which has ended",
        session.notebook.display()
    )
}

/// Returns why a kernel that lives is ended, where its session is so and nobody is at it.
fn why_ended(status: &Status) -> Option<&'static str> {
    match status {
        Status::Starting | Status::Restarting => {
            Some("which was never ready, since whoever started it was killed")
        }
        Status::Stopped => Some("which was shut down and lived on"),
        Status::Live | Status::Died | Status::Other(_) => None,
    }
}

impl Cleared {
    /// Takes the files of a kernel that has ended.
    fn take_files(&mut self, files: &KernelFiles, dry_run: bool, of: &str) {
        let there = files.existing(&ProcessVariables);
        if there.is_empty() {
            return;
        }
        let disk_bytes = there.iter().map(|path| size(path)).sum();
        if !dry_run {
            files.remove(&ProcessVariables);
        }
        self.found.push(Cleanup {
            action: CleanupAction::Remove,
            what: format!("{} of {of}", count(there.len(), "file")),
            memory_bytes: 0,
            disk_bytes,
        });
    }

    fn remove(&mut self, dry_run: bool, paths: &[PathBuf], of: &str, kind: &str) {
        let disk_bytes = paths.iter().map(|path| size(path)).sum();
        let mut removed = 0;
        for path in paths {
            let done = match dry_run {
                true => Ok(()),
                false => remove_tree(path),
            };
            match done {
                Ok(()) => removed += 1,
                Err(error) => {
                    let path = path.display();
                    self.notes.push(format!("cannot remove {path}: {error}"));
                }
            }
        }
        if removed > 0 {
            self.found.push(Cleanup {
                action: CleanupAction::Remove,
                what: format!("{} {of}", count(removed, kind)),
                memory_bytes: 0,
                disk_bytes,
            });
        }
    }
}

fn count(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Returns the records of proxies that have ended without a word.
fn dead_proxies(project: &Project) -> Vec<PathBuf> {
    let joined = project.list_joined().into_iter();
    let dead = joined.filter(|joined| !Process::joined(joined).is_alive() && is_of_here(joined));
    dead.map(|joined| project.proxies_dir().join(format!("{}.json", joined.pid)))
        .collect()
}

/// Returns what somebody began to write and was killed over.
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
    let written = std::fs::metadata(path).and_then(|found| found.modified());
    let elapsed = written.map(|at| SystemTime::now().duration_since(at));
    matches!(elapsed, Ok(Ok(elapsed)) if elapsed > age)
}

/// Returns how much room a file or folder takes.
fn size(path: &Path) -> u64 {
    let files = walkdir::WalkDir::new(path)
        .follow_root_links(false)
        .into_iter()
        .flatten();
    files
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|found| found.len())
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
        let mut cleared = Cleared::default();
        let found = std::slice::from_ref(&old);
        cleared.remove(true, found, "that were half written", "file");
        assert!(old.exists(), "it was only told");
        cleared.remove(false, found, "that were half written", "file");
        assert!(!old.exists() && fresh.exists());
        assert_eq!(cleared.found[1].what, "1 file that were half written");
        assert_eq!(cleared.found[1].disk_bytes, 4);
    }
}
