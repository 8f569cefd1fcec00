//! Finds and makes the project folder.

use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::identity::{self, FolderOwner};
use super::lock::Lock;
use super::real_path::real_path;
use super::root::{self, DIR, Roots};
use super::save::Durability;
use super::state::{State, StateError};
use super::state_folder::{make_private, short_name, state_folder};
use super::{beneath, stranger};

/// The journal's current file.
pub(super) const JOURNAL: &str = "journal.jsonl";

/// The folder of the journal's earlier files.
pub(super) const EARLIER_JOURNALS: &str = "journal";

/// The folder of the checkpoints of sessions' journals.
pub(super) const PRESENT: &str = "present";

/// The record of the calls of agents' tools, and the folder of its earlier files.
const CALLS: &str = "calls.jsonl";
const EARLIER_CALLS: &str = "calls";

/// A project: its root and the private folder with the state of its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
    dir: PathBuf,
    just_made_elsewhere: bool,
    /// A `.nb` at the root that this user's `nb` did not make.
    foreign: Option<PathBuf>,
}

/// Why a project's folder could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The notebook's folder does not exist or cannot be entered.
    #[error("cannot find the folder of {}", notebook.display())]
    NoFolder {
        /// The notebook.
        notebook: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The user's state folder, which each project needs, cannot be written.
    #[error("the state folder {} cannot be written (XDG_STATE_HOME=FOLDER names another)", dir.display())]
    Make {
        /// The project's root.
        root: PathBuf,
        /// The state folder.
        dir: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A version of `nb` with another format wrote it.
    #[error(transparent)]
    OtherVersion(#[from] StateError),
}

impl ProjectError {
    fn not_made(root: &Path, source: io::Error) -> Self {
        Self::Make {
            root: root.to_owned(),
            dir: state_folder().unwrap_or_else(|| PathBuf::from("~/.local/state/nb")),
            source,
        }
    }
}

impl Project {
    /// Checks that a notebook has a project or can get one, before anything is made for it.
    ///
    /// # Errors
    /// The user's state folder cannot be written.
    pub fn check_possible(notebook: &Path) -> Result<(), ProjectError> {
        if Self::find(notebook).is_some() {
            return Ok(());
        }
        identity::make_records()
            .map_err(|source| ProjectError::not_made(notebook.parent().unwrap_or(notebook), source))
    }

    /// Returns the existing project of a notebook or folder.
    pub fn find(from: &Path) -> Option<Self> {
        let real = root::notebook_path(from).ok()?;
        let folder = if real.is_dir() {
            real.as_path()
        } else {
            real.parent()?
        };
        let roots = root::roots(folder, root::home().as_deref());
        roots.record();
        Self::existing(&roots)
    }

    /// Returns the project of a notebook, which need not exist yet; makes the folder if there is
    /// none.
    ///
    /// Where the root is not writable, the folder is made under the user's state directory, and
    /// [`Project::notice`] returns a message about it.
    pub fn for_notebook(notebook: &Path) -> Result<Self, ProjectError> {
        let no_folder = |source| ProjectError::NoFolder {
            notebook: notebook.to_owned(),
            source,
        };
        let real = root::notebook_path(notebook).map_err(no_folder)?;
        let folder = real
            .parent()
            .ok_or_else(|| no_folder(io::Error::other("it has no parent folder")))?;
        let roots = root::roots(folder, root::home().as_deref());
        roots.record();
        if let Some(project) = Self::existing(&roots) {
            project.check_version()?;
            return Ok(project);
        }
        let (root, allowed) = roots.new_root;
        let dir = root.join(DIR);
        if allowed && make(&dir).is_ok() && usable(&dir) {
            return Ok(Self::at(root, dir));
        }
        let foreign = foreign_at(&root);
        let made = make_stand_in_of(&root);
        let dir = made.map_err(|source| ProjectError::not_made(&root, source))?;
        Ok(Self {
            just_made_elsewhere: true,
            foreign,
            ..Self::at(root, dir)
        })
    }

    /// Returns the project of a notebook that is only read. Like [`Project::for_notebook`], but
    /// where no folder can be made, the project has an empty stand-in into which nothing can be
    /// written.
    pub fn for_reading(notebook: &Path) -> Result<Self, ProjectError> {
        Self::for_notebook(notebook).or_else(|error| match error {
            ProjectError::Make { root, .. } => {
                // Not the folder at the root: that one may be a stranger's.
                let dir = stand_in_of(&root).filter(|dir| beneath::is_folder(dir));
                let dir = dir.unwrap_or_else(|| PathBuf::from("/dev/null/nb"));
                Ok(Self {
                    foreign: foreign_at(&root),
                    ..Self::at(root, dir)
                })
            }
            error => Err(error),
        })
    }

    /// Returns the project whose `state.json` is at `path`, for `--state PATH`.
    ///
    /// The file may be anywhere; its folder then takes the place of `.nb/`. If this user's `nb` did
    /// not make that folder, the project's own files are in a stand-in, and only the three keys of
    /// the given file count.
    pub fn of_state_file(path: &Path) -> io::Result<Self> {
        let real = real_path(path)?;
        let dir = real.parent().unwrap_or(Path::new("/")).to_owned();
        if let Some(root) = root_of(&dir) {
            return Ok(Self {
                foreign: foreign_at(&root),
                ..Self::at(root, dir)
            });
        }
        if dir.parent() == stand_ins().as_deref() {
            // It was removed in the meantime; a stand-in has no stand-in.
            let text = format!("{} is gone", dir.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        let root = match dir.parent() {
            Some(above) if dir.ends_with(DIR) => above.to_owned(),
            _ => dir.clone(),
        };
        if usable(&dir) {
            return Ok(Self::at(root, dir));
        }
        Ok(Self {
            foreign: Some(dir),
            ..Self::at(root.clone(), make_stand_in_of(&root)?)
        })
    }

    /// Makes a project whose private folder is a stand-in of this name.
    pub(super) fn stand_in(name: &str, root: &Path) -> io::Result<Self> {
        let no_home = || io::Error::other("there is no home folder");
        make_private(&stand_ins().ok_or_else(no_home)?)?;
        let dir = stand_in_named(name).ok_or_else(no_home)?;
        make_stand_in(&dir, root)?;
        Ok(Self::at(root.to_owned(), dir))
    }

    fn existing(roots: &Roots) -> Option<Self> {
        for root in &roots.candidates {
            let dir = root.join(DIR);
            if usable(&dir) {
                return Some(Self::at(root.clone(), dir));
            }
            // Another program may have recorded a kernel there.
            if identity::owner(&dir) == FolderOwner::Foreign && stranger::kernel(&dir).is_some() {
                return Some(Self {
                    foreign: Some(dir),
                    ..Self::at(root.clone(), make_stand_in_of(root).ok()?)
                });
            }
        }
        let root = roots.new_root.0.clone();
        stand_in_of(&root).filter(|dir| is_writable(dir))?;
        let dir = make_stand_in_of(&root).ok()?;
        Some(Self {
            foreign: foreign_at(&root),
            ..Self::at(root, dir)
        })
    }

    fn at(root: PathBuf, dir: PathBuf) -> Self {
        Self {
            root,
            dir,
            just_made_elsewhere: false,
            foreign: None,
        }
    }

    /// Returns the nearest `.nb` of a notebook or folder, if it is ignored because this user's `nb`
    /// did not make it on this machine. A `.nb` in which another program recorded a kernel is not
    /// ignored.
    pub fn ignored_folder(from: &Path) -> Option<PathBuf> {
        let real = real_path(from).ok()?;
        let folder = match real.is_dir() {
            true => real.as_path(),
            false => real.parent()?,
        };
        let candidates = root::roots(folder, root::home().as_deref()).candidates;
        let mut dirs = candidates.into_iter().map(|root| root.join(DIR));
        dirs.find_map(|dir| match identity::owner(&dir) {
            FolderOwner::Foreign if stranger::kernel(&dir).is_some() => Some(None),
            FolderOwner::Foreign => Some(Some(dir)),
            FolderOwner::Ours | FolderOwner::Empty => Some(None),
            FolderOwner::Nobody => None,
        })?
    }

    /// Returns the folder of the project's notebooks.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the private folder, normally `<root>/.nb`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says whether a folder holds the connection files of a project that this user's `nb` made.
    pub fn made_connections(folder: &Path) -> bool {
        let dir = folder.parent().filter(|_| folder.ends_with("connections"));
        dir.is_some_and(|dir| identity::owner(dir) == FolderOwner::Ours || root_of(dir).is_some())
    }

    /// Returns the `.nb` at the root that this user's `nb` did not make. Of its content only a
    /// recorded kernel is used, see [`Project::state`].
    pub fn foreign(&self) -> Option<&Path> {
        self.foreign.as_deref()
    }

    /// Returns the message that the folder had to be made in another place; it is printed once.
    pub fn notice(&self) -> Option<String> {
        self.just_made_elsewhere.then(|| match &self.foreign {
            Some(foreign) => format!(
                "{} cannot hold a project folder: {} was not made by your nb on this machine and is left as it is; the project's state is kept in {}",
                self.root.display(),
                foreign.display(),
                self.dir.display()
            ),
            None => format!(
                "{} cannot hold a project folder; its state is kept in {}",
                self.root.display(),
                self.dir.display()
            ),
        })
    }

    /// Fails if a version of `nb` with another format wrote the folder, in which nothing must be changed then.
    ///
    /// # Errors
    /// [`StateError::OtherVersion`].
    pub fn check_version(&self) -> Result<(), StateError> {
        State::check_version(&self.state_file())
    }

    /// Returns the path of `state.json`.
    pub fn state_file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Returns the path of the log that all proxies of the project append to.
    pub fn proxy_log(&self) -> PathBuf {
        self.dir.join("proxy.log")
    }

    /// Returns the path of the log of a session's kernels, with their stdout and stderr.
    pub fn kernel_log(&self, key: &str) -> PathBuf {
        self.dir
            .join("kernels")
            .join(format!("{}.log", short_name(key)))
    }

    /// Returns the folder of the connection files.
    pub fn connections_dir(&self) -> PathBuf {
        self.dir.join("connections")
    }

    /// Returns the folder of the records of joined proxies.
    pub fn proxies_dir(&self) -> PathBuf {
        self.dir.join("proxies")
    }

    /// Returns the path of the journal's current file.
    pub fn journal_file(&self) -> PathBuf {
        self.dir.join(JOURNAL)
    }

    /// Returns the folder of the journal's earlier files.
    pub fn earlier_journals(&self) -> PathBuf {
        self.dir.join(EARLIER_JOURNALS)
    }

    /// Returns the path of the record of agents' calls, and that of the folder of its earlier files.
    pub(super) fn calls(&self) -> (PathBuf, PathBuf) {
        (self.dir.join(CALLS), self.dir.join(EARLIER_CALLS))
    }

    /// Returns the name of the folder of a notebook's exported outputs, for
    /// [`Project::make_folder`].
    pub fn outputs_folder(&self, key: &str) -> String {
        format!("outputs/{}", short_name(key))
    }

    /// Returns the name by which `state.json` knows a notebook's session.
    ///
    /// It is the path relative to the root, so that it survives a moved project and is the same
    /// in a container that sees the project under another path.
    pub fn key(&self, notebook: &Path) -> String {
        let real = root::notebook_path(notebook).unwrap_or_else(|_| notebook.to_owned());
        let name = real.strip_prefix(&self.root).unwrap_or(&real);
        name.to_string_lossy().into_owned()
    }

    /// Returns the notebook's path for a key of `state.json`.
    pub fn notebook(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// Reads `state.json`; a missing file is an empty state.
    ///
    /// A kernel that another program recorded in that file, or in a `.nb` that this user's `nb` did
    /// not make, is part of the state if it is a kernel of this user on this machine.
    pub fn state(&self) -> Result<State, StateError> {
        let mut state = State::read(&self.state_file())?;
        if state.connection_file.is_none()
            && let Some(kernel) = self.foreign.as_deref().and_then(stranger::kernel)
        {
            kernel.enter(&mut state);
        }
        if state.names_no_session() && !stranger::may_be_used(&state) {
            let file = state.connection_file.take().unwrap_or_default();
            let (state_file, file) = (self.state_file(), file.display().to_string());
            tracing::warn!(
                "{} names {file}, which is not used: it is not a private file of this user's, or leads to another machine",
                state_file.display()
            );
            (state.notebook, state.kernel_pid) = (None, None);
        }
        Ok(state)
    }

    /// Changes `state.json` under its lock; nothing is written when nothing changed.
    pub fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, StateError> {
        self.update_as(Durability::Synced, change)
    }

    /// Like [`Project::update`], without waiting for the disk: the caller does its other work and
    /// calls [`Project::sync`] then.
    pub fn update_unsynced<T>(
        &self,
        change: impl FnOnce(&mut State) -> T,
    ) -> Result<T, StateError> {
        self.update_as(Durability::Unsynced, change)
    }

    /// Waits until the present `state.json` is on the disk.
    pub fn sync(&self) -> io::Result<()> {
        beneath::open(&self.state_file())?.sync_data()
    }

    fn update_as<T>(
        &self,
        how: Durability,
        change: impl FnOnce(&mut State) -> T,
    ) -> Result<T, StateError> {
        let path = self.state_file();
        let _lock =
            Lock::wait(&self.dir.join("state.lock")).map_err(|source| StateError::Write {
                path: path.clone(),
                source,
            })?;
        let before = State::read(&path)?;
        let mut after = before.clone();
        let answer = change(&mut after);
        if after != before {
            after.write(&path, how)?;
        }
        Ok(answer)
    }

    /// Takes the lock for starting, restarting or ending a session's kernel, if it is free.
    pub fn try_lock_session(&self, key: &str) -> io::Result<Option<Lock>> {
        let folder = self.make_folder("locks")?;
        Lock::attempt(&folder.join(format!("{}.lock", short_name(key))))
    }

    /// Takes the lock for waiting until a notebook's held-back outputs can be written, if it is free.
    pub fn try_lock_held(&self, notebook: &str) -> io::Result<Option<Lock>> {
        let name = format!("{}.held", short_name(notebook));
        Lock::attempt(&self.make_folder("locks")?.join(name))
    }

    /// Makes a private folder inside the project's folder, which must exist, and returns its path.
    pub fn make_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.dir.join(name);
        beneath::make_folder_in(&self.dir, &folder)?;
        Ok(folder)
    }
}

/// Returns the `.nb` of a root if this user's `nb` did not make it.
fn foreign_at(root: &Path) -> Option<PathBuf> {
    let dir = root.join(DIR);
    (identity::owner(&dir) == FolderOwner::Foreign).then_some(dir)
}

/// Returns the path of a root's stand-in, for a root that is not writable or has a stranger's
/// `.nb`.
fn stand_in_of(root: &Path) -> Option<PathBuf> {
    Some(stand_ins()?.join(short_name(&root.to_string_lossy())))
}

/// Returns the path of the stand-in of this name.
pub(super) fn stand_in_named(name: &str) -> Option<PathBuf> {
    Some(stand_ins()?.join(name))
}

/// Returns the folder of all stand-ins, as a real path.
fn stand_ins() -> Option<PathBuf> {
    let stand_ins = state_folder()?.join("projects");
    Some(stand_ins.canonicalize().unwrap_or(stand_ins))
}

/// The file in a stand-in that holds the path of its root.
const ROOT_FILE: &str = "root";

/// Returns the root whose stand-in a folder is.
fn root_of(dir: &Path) -> Option<PathBuf> {
    if dir.parent() != Some(&stand_ins()?) {
        return None;
    }
    let root = beneath::read(&dir.join(ROOT_FILE), 64 << 10).ok()?;
    Some(PathBuf::from(std::ffi::OsString::from_vec(root)))
}

fn make_stand_in_of(root: &Path) -> io::Result<PathBuf> {
    let no_home =
        || io::Error::other("it is not writable and there is no home folder to fall back to");
    let stand_ins = stand_ins().ok_or_else(no_home)?;
    make_private(&stand_ins)?;
    let dir = stand_in_of(root).ok_or_else(no_home)?;
    make_stand_in(&dir, root)?;
    Ok(dir)
}

fn make_stand_in(dir: &Path, root: &Path) -> io::Result<()> {
    beneath::make_folder(dir)?;
    let (file, path) = (dir.join(ROOT_FILE), root.as_os_str().as_bytes());
    if beneath::read(&file, 64 << 10).is_ok_and(|before| before == path) {
        return Ok(());
    }
    beneath::replace(&file, path)
}

/// Says whether this user's `nb` made a `.nb` on this machine, and it is writable. Takes an empty
/// folder as its own first.
fn usable(dir: &Path) -> bool {
    match identity::owner(dir) {
        FolderOwner::Ours => is_writable(dir),
        FolderOwner::Empty => {
            let claimed = identity::claim(dir);
            claimed.is_ok_and(|owner| owner == FolderOwner::Ours) && is_writable(dir)
        }
        FolderOwner::Nobody | FolderOwner::Foreign => false,
    }
}

/// Says whether a folder belongs to this user and is writable.
fn is_writable(dir: &Path) -> bool {
    beneath::is_folder(dir) && rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Makes a `.nb`; an existing one stays as it is.
fn make(dir: &Path) -> io::Result<()> {
    let made = std::fs::DirBuilder::new().mode(0o700).create(dir);
    match &made {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return made,
        _ => {}
    }
    if !usable(dir) {
        if made.is_ok() {
            // It could not be claimed. It stays if another process has used it.
            let _ = rustix::fs::rmdir(dir);
        }
        return Err(io::Error::other("this user's nb did not make it"));
    }
    let ignore = dir.join(".gitignore");
    if !beneath::is_file(&ignore) {
        beneath::replace(&ignore, b"*\n")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_folder_is_private_and_keeps_out_of_version_control() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        project.update(|state| state.kernel_pid = Some(1)).unwrap();
        assert_eq!(mode(project.dir()), 0o700);
        assert_eq!(mode(&project.state_file()), 0o600);
        assert_eq!(
            std::fs::read_to_string(project.dir().join(".gitignore")).unwrap(),
            "*\n"
        );
    }

    #[test]
    fn a_notebook_below_finds_the_project_above() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        std::fs::create_dir(top.join("deep")).unwrap();
        assert_eq!(Project::find(&top), None);
        let made = Project::for_notebook(&top.join("a.ipynb")).unwrap();
        assert_eq!(Project::find(&top.join("deep")), Some(made.clone()));
        let below = Project::for_notebook(&top.join("deep/b.ipynb")).unwrap();
        assert_eq!(below, made);
        assert_eq!(below.key(&top.join("deep/b.ipynb")), "deep/b.ipynb");
        assert_eq!(below.notebook("deep/b.ipynb"), top.join("deep/b.ipynb"));
    }

    /// Makes a `.nb` as it may come with a repository.
    fn unpacked(root: &Path, state: &str) -> PathBuf {
        let dir = root.join(DIR);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("state.json"), state).unwrap();
        dir
    }

    #[test]
    fn a_strangers_folder_is_passed_over_and_left_as_it_is() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let session = serde_json::json!({"notebook": "a.ipynb", "connection_file": "/x.json"});
        let state = serde_json::json!({"sessions": {"a.ipynb": session}}).to_string();
        let dir = unpacked(&root, &state);
        let notebook = root.join("a.ipynb");
        assert_eq!(Project::find(&notebook), None);
        assert_eq!(Project::ignored_folder(&notebook), Some(dir.clone()));
        let project = Project::for_notebook(&notebook).unwrap();
        assert!(!project.dir().starts_with(&root), "{project:?}");
        assert_eq!(project.root(), root);
        assert_eq!(project.foreign(), Some(dir.as_path()));
        assert!(project.notice().is_some());
        assert_eq!(project.state().unwrap(), State::default());
        project.update(|state| state.kernel_pid = Some(1)).unwrap();
        let again = Project::find(&notebook).unwrap();
        assert_eq!(again.dir(), project.dir());
        assert_eq!(again.notice(), None);
        // A caller that knows only the state file finds the same project.
        let named = Project::of_state_file(&project.state_file()).unwrap();
        assert_eq!(named, again);
        let named = Project::of_state_file(&dir.join("state.json")).unwrap();
        assert_eq!(named, again);
        let names: Vec<_> = std::fs::read_dir(&dir).unwrap().flatten().collect();
        assert_eq!(names.len(), 1, "something was written into it");
        std::fs::remove_dir_all(project.dir()).unwrap();
    }

    #[test]
    fn a_folder_below_a_strangers_one_uses_the_users_own_above() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let made = Project::for_notebook(&root.join("a.ipynb")).unwrap();
        let inner = root.join("inner");
        let dir = unpacked(&inner, r#"{"sessions": {}}"#);
        let found = Project::find(&inner.join("b.ipynb")).unwrap();
        assert_eq!(found, made);
        assert_eq!(Project::ignored_folder(&inner), Some(dir));
        assert_eq!(Project::ignored_folder(&root), None);
    }

    #[test]
    fn three_keys_of_another_program_are_a_kernel_and_its_folder_stays_its_own() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let file = root.join("kernel.json");
        let keys = serde_json::json!({"notebook": root.join("a.ipynb"), "connection_file": file, "kernel_pid": 7});
        let dir = unpacked(&root, &keys.to_string());
        let project = Project::find(&root).unwrap();
        assert_eq!(project.foreign(), Some(dir.as_path()));
        let session = project.state().unwrap().last_opened().unwrap();
        assert_eq!(session.connection_file, file);
        assert!(session.is_attached() && session.process().is_none());
        // A recorder gets the path of the state file only.
        let named = Project::of_state_file(&project.state_file()).unwrap();
        assert_eq!(named.state().unwrap().all().len(), 1);
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1);
        std::fs::remove_dir_all(project.dir()).unwrap();
    }

    #[test]
    fn the_files_of_the_three_keys_must_be_private_also_in_the_users_own_folder() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let file = temp.path().join("kernel.json");
        std::fs::write(&file, r#"{"transport": "tcp", "ip": "127.0.0.1"}"#).unwrap();
        let keys =
            serde_json::json!({"notebook": "a.ipynb", "connection_file": file, "kernel_pid": 7});
        std::fs::write(project.state_file(), keys.to_string()).unwrap();
        let count = || project.state().unwrap().all().len();
        for (mode, sessions) in [(0o644, 0), (0o600, 1)] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            assert_eq!(count(), sessions);
        }
    }

    #[test]
    fn one_asker_at_a_time_holds_a_session() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let held = project.try_lock_session("a.ipynb").unwrap();
        assert!(held.is_some());
        assert!(project.try_lock_session("a.ipynb").unwrap().is_none());
        assert!(project.try_lock_session("b.ipynb").unwrap().is_some());
        drop(held);
        // A child process that another test forks holds the lock too, until its exec.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while project.try_lock_session("a.ipynb").unwrap().is_none() {
            assert!(std::time::Instant::now() < end, "it is never free");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
