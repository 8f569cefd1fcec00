//! Sets a `.nb` of an older version of `nb` aside: renames the whole folder and makes a new one in its
//! place.
//!
//! Of the old formats only the kernels that still run are read. The new folder's sessions are attached
//! to them, so that no variables are lost; `nb` does not end these kernels. The two folders are
//! swapped in one step, so that a process that is killed leaves either the old one or the new one.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, test_kill_process};
use serde_json::{Map, Value};

use super::beneath;
use super::host::boot_id;
use super::identity::{self, FolderOwner};
use super::lock::Lock;
use super::remove::remove_tree;
use super::save::Durability;
use super::session::{Backend, Session, Status};
use super::state::{Age, State};
use super::state_folder::state_folder;

/// The file of the new folder with the message about the old one, until a command has printed it.
const NOTICE: &str = "notice";

/// The longest notice, in bytes.
const LONGEST_NOTICE: u64 = 64 << 10;

/// Sets a project's folder aside if an older version wrote it. `make` makes an empty project folder.
///
/// # Errors
/// The folder is of an older version and could not be renamed, as on a read-only file system. It
/// stays in place.
pub(super) fn set_aside_older(
    dir: &Path,
    make: impl Fn(&Path) -> io::Result<()>,
) -> io::Result<()> {
    if !is_older_at(dir) {
        return Ok(());
    }
    let lock = state_folder().ok_or(io::ErrorKind::NotFound)?;
    let _lock = Lock::wait(&lock.join("set-aside.lock"))?;
    // Another process may have done it while this one waited.
    if !is_older_at(dir) {
        return Ok(());
    }
    let aside = name_for(dir)?;
    let done = build(dir, &aside, make).and_then(|()| exchange(dir, &aside));
    if done.is_err() && !is_older_at(&aside) {
        let _ = remove_tree(&aside);
    }
    done
}

/// Returns the message about a folder that was set aside, and removes it, so that it is printed
/// once.
pub(super) fn take_notice(dir: &Path) -> Option<String> {
    let file = dir.join(NOTICE);
    let text = beneath::read(&file, LONGEST_NOTICE).ok()?;
    beneath::remove_file(&file).ok()?;
    String::from_utf8(text).ok()
}

/// Returns the new name of the old folder: the first name that is free, or that only has what a
/// killed process began to build.
fn name_for(dir: &Path) -> io::Result<PathBuf> {
    let first = names(dir).find(|path| {
        let is_begun = || identity::owner(path) == FolderOwner::Ours && !is_older_at(path);
        path.symlink_metadata().is_err() || is_begun()
    });
    let first = first.ok_or(io::ErrorKind::AlreadyExists)?;
    if first.symlink_metadata().is_ok() {
        identity::disown(&first);
        remove_tree(&first)?;
    }
    Ok(first)
}

fn names(dir: &Path) -> impl Iterator<Item = PathBuf> {
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    (1..).map(move |number| dir.with_file_name(format!("{name}.set-aside-{number}")))
}

fn is_older_at(dir: &Path) -> bool {
    State::age(&dir.join("state.json")) == Age::Older
}

/// Returns the first free name beside a folder: `.nb.set-aside-1`.
pub(super) fn free_name(dir: &Path) -> io::Result<PathBuf> {
    let mut free = names(dir).filter(|path| path.symlink_metadata().is_err());
    Ok(free.next().ok_or(io::ErrorKind::AlreadyExists)?)
}

/// Makes the new folder under the name that the old one will get.
fn build(dir: &Path, aside: &Path, make: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    make(aside)?;
    let old = beneath::read(&dir.join("state.json"), beneath::SMALL)?;
    let old: Map<String, Value> = serde_json::from_slice(&old)?;
    let (state, kernels) = attached(&old, dir, aside);
    let mut notice = format!(
        "{} was written by an older nb: it was set aside whole as {}",
        dir.display(),
        aside.display()
    );
    if !kernels.is_empty() {
        notice.push_str(&format!(
            "; of its kernels {} still runs and was attached: its variables stay, but nb does not end it (kill PID does)",
            kernels.join(", ")
        ));
    }
    beneath::replace(&aside.join(NOTICE), notice.as_bytes())?;
    let written = state.write(&aside.join("state.json"), Durability::Synced);
    written.map_err(io::Error::other)
}

/// Returns a state whose sessions are attached to the kernels that still run, and the descriptions
/// of these kernels.
fn attached(old: &Map<String, Value>, dir: &Path, aside: &Path) -> (State, Vec<String>) {
    let (mut state, mut kernels) = (State::default(), Vec::new());
    let none = Map::new();
    let sessions = old.get("sessions").and_then(Value::as_object);
    let sessions = sessions.unwrap_or(&none);
    for (key, fields) in sessions {
        if let Some(session) = running(fields, dir, aside) {
            let pid = session.pid().unwrap_or_default();
            kernels.push(format!("{key} (pid {pid})"));
            state.sessions.insert(key.clone(), session);
        }
    }
    for (key, fields) in sessions {
        let owner = fields["kernel_of"].as_str();
        if let Some(owner) = owner.filter(|owner| state.sessions.contains_key(*owner))
            && fields["status"] != "stopped"
            && let Some(notebook) = fields["notebook"].as_str()
        {
            let mut session = Session::local(notebook.into());
            session.backend = Backend::shared_with(owner);
            session.status = Status::Live;
            state.sessions.insert(key.clone(), session);
        }
    }
    let last = old.get("notebook").and_then(Value::as_str).map(Path::new);
    let keys: Vec<_> = state.sessions.keys().cloned().collect();
    let mut sessions = keys.iter().filter_map(|key| state.session(key));
    let last = sessions.find(|session| Some(&*session.notebook) == last);
    if let Some(session) = last.or_else(|| state.session(keys.first()?)) {
        state.mirror(&session);
    }
    (state, kernels)
}

/// Returns the session of an older version's kernel if its process runs.
fn running(fields: &Value, dir: &Path, aside: &Path) -> Option<Session> {
    let path = |name: &str| fields[name].as_str().map(PathBuf::from);
    let pid = u32::try_from(fields["pid"].as_u64()?).ok()?;
    let is_alive = || test_kill_process(Pid::from_raw(pid.try_into().ok()?)?).ok();
    let is_here = fields["where"]["boot_id"] == boot_id();
    if fields["kernel_of"].is_string() || !is_here || is_alive().is_none() {
        return None;
    }
    let file = path("connection_file")?;
    let file = match file.strip_prefix(dir) {
        Ok(below) => aside.join(below),
        Err(_) => file,
    };
    let mut session = Session::attached(path("notebook")?, file, Some(pid));
    let field = |name: &str| fields[name].clone();
    session.transport = serde_json::from_value(field("transport")).unwrap_or_default();
    session.kernelspec = serde_json::from_value(field("kernelspec")).unwrap_or_default();
    session.kernel_info = Some(field("kernel_info")).filter(|info| !info.is_null());
    session.generation = fields["generation"].as_u64().unwrap_or(1);
    Some(session)
}

/// Swaps the names of two folders.
fn exchange(dir: &Path, aside: &Path) -> io::Result<()> {
    match beneath::exchange(dir, aside) {
        // This file system cannot swap names in one step.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            let new = aside.with_extension("new");
            beneath::rename(aside, &new)?;
            if let Err(error) = beneath::rename(dir, aside) {
                let _ = remove_tree(&new);
                return Err(error);
            }
            beneath::rename(&new, dir)
        }
        done => done,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::folder::Project;
    use super::super::state::StateError;
    use super::*;

    /// Makes a project whose `state.json` has this content, and returns its folder.
    fn project(root: &Path, state: &Value) -> PathBuf {
        let project = Project::for_notebook(&root.join("a.ipynb")).unwrap();
        std::fs::create_dir(project.connections_dir()).unwrap();
        std::fs::write(project.connections_dir().join("k.json"), "{}").unwrap();
        std::fs::write(project.state_file(), state.to_string()).unwrap();
        project.dir().to_owned()
    }

    /// Returns what version 1 wrote about a notebook's kernel.
    fn session(root: &Path, key: &str, pid: u32) -> Value {
        json!({
            "notebook": root.join(key), "connection_file": root.join(".nb/connections/k.json"),
            "pid": pid, "start_time": 1, "transport": "tcp", "generation": 3, "owned": true,
            "where": {"host": "h", "boot_id": boot_id(), "pid_namespace": ""},
            "status": "live", "sandbox": null,
        })
    }

    fn older(root: &Path) -> Value {
        let mut sharer = session(root, "b.ipynb", 0);
        sharer["kernel_of"] = "a.ipynb".into();
        json!({
            "version": 1, "notebook": root.join("a.ipynb"),
            "connection_file": root.join(".nb/connections/k.json"), "kernel_pid": std::process::id(),
            "sessions": {
                "a.ipynb": session(root, "a.ipynb", std::process::id()),
                "b.ipynb": sharer,
                "dead.ipynb": session(root, "dead.ipynb", i32::MAX as u32),
            },
        })
    }

    fn temp() -> (tempfile::TempDir, PathBuf) {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        (temp, root)
    }

    #[test]
    fn an_older_folder_is_set_aside_whole_and_its_live_kernels_are_attached() {
        let (_temp, root) = temp();
        let before = older(&root);
        let dir = project(&root, &before);
        std::fs::write(dir.join("journal.jsonl"), "of another format").unwrap();
        let project = Project::find(&root).unwrap();
        assert_eq!(project.dir(), dir);
        let aside = root.join(".nb.set-aside-1");
        let text = std::fs::read_to_string(aside.join("state.json")).unwrap();
        assert_eq!(text, before.to_string());
        assert!(aside.join("journal.jsonl").exists() && !dir.join("journal.jsonl").exists());

        let state = project.state().unwrap();
        let keys: Vec<_> = state.sessions.keys().map(String::as_str).collect();
        assert_eq!(keys, ["a.ipynb", "b.ipynb"]);
        let session = state.session("b.ipynb").unwrap();
        assert!(session.is_attached());
        assert_eq!(session.connection_file, aside.join("connections/k.json"));
        assert_eq!(session.pid(), Some(std::process::id()));
        assert_eq!(session.generation, 3);
        assert_eq!(state.owner_key("b.ipynb"), "a.ipynb");
        // Readers that know only the three keys find the kernel.
        assert_eq!(state.connection_file, Some(session.connection_file));
        assert_eq!(state.notebook, Some(root.join("a.ipynb")));

        let notice = project.take_notice().unwrap();
        assert!(notice.contains(&*aside.to_string_lossy()), "{notice}");
        let kernel = format!("a.ipynb (pid {})", std::process::id());
        assert!(notice.contains(&kernel) && !notice.contains("dead.ipynb"));
        assert!(!notice.contains('\n'));
        assert_eq!(project.take_notice(), None);
        assert_eq!(Project::find(&root), Some(project));
        assert!(!root.join(".nb.set-aside-2").exists());
    }

    #[test]
    fn a_later_folder_is_refused_and_left_as_it_is() {
        let (_temp, root) = temp();
        let state = json!({"version": 99, "sessions": {"a": {"backend": 7}}});
        let dir = project(&root, &state);
        let error = Project::for_notebook(&root.join("a.ipynb")).unwrap_err();
        assert!(error.to_string().contains("version 99"), "{error}");
        let project = Project::find(&root).unwrap();
        let newer = |error: StateError| matches!(error, StateError::Newer { version: 99, .. });
        assert!(newer(project.check_version().unwrap_err()));
        assert!(newer(project.state().unwrap_err()));
        assert!(newer(
            project.update(|state| state.kernel_pid = None).unwrap_err()
        ));
        let text = std::fs::read_to_string(dir.join("state.json")).unwrap();
        assert_eq!(text, state.to_string());
        assert!(!root.join(".nb.set-aside-1").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_set_aside_stays_unchanged() {
        let (_temp, root) = temp();
        let before = older(&root);
        let dir = project(&root, &before);
        let refused = set_aside_older(&dir, |_| Err(io::ErrorKind::ReadOnlyFilesystem.into()));
        assert_eq!(
            refused.unwrap_err().kind(),
            io::ErrorKind::ReadOnlyFilesystem
        );
        let text = std::fs::read_to_string(dir.join("state.json")).unwrap();
        assert_eq!(text, before.to_string());
        assert!(!root.join(".nb.set-aside-1").exists());
    }

    #[test]
    fn a_killed_exchange_of_folders_is_completed_by_the_next_command() {
        let (_temp, root) = temp();
        let dir = project(&root, &older(&root));
        // A process was killed before it swapped the folders: the old one is still in place.
        let begun = root.join(".nb.set-aside-1");
        std::fs::create_dir(&begun).unwrap();
        assert_eq!(identity::claim(&begun).unwrap(), FolderOwner::Ours);
        std::fs::write(begun.join(NOTICE), "begun").unwrap();
        // A folder that another program made stays.
        let other = root.join(".nb.set-aside-2");
        std::fs::create_dir(&other).unwrap();
        std::fs::write(other.join("file"), "").unwrap();
        let project = Project::find(&root).unwrap();
        assert_eq!(project.state().unwrap().sessions.len(), 2);
        assert!(begun.join("state.json").exists() && other.join("file").exists());
        assert!(project.take_notice().unwrap().contains("older nb"));
        // A process is killed after the swap: the new folder is complete.
        assert_eq!(State::age(&dir.join("state.json")), Age::Current);
        // A second older folder, made by an older nb that is still in use, gets the next free name.
        std::fs::write(dir.join("state.json"), older(&root).to_string()).unwrap();
        Project::find(&root).unwrap();
        assert!(root.join(".nb.set-aside-3/state.json").exists());
    }

    #[test]
    fn processes_that_find_it_at_once_set_it_aside_once() {
        let (_temp, root) = temp();
        project(&root, &older(&root));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let project = Project::find(&root).unwrap();
                    assert_eq!(project.state().unwrap().sessions.len(), 2);
                });
            }
        });
        assert!(!root.join(".nb.set-aside-2").exists());
    }
}
