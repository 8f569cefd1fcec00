//! Finding and making the folder.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

use super::lock::Lock;
use super::root::{self, DIR, Roots};
use super::save::{self, How};
use super::state::{State, StateError};

/// A project: its root and the private folder that remembers its kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Project {
    root: PathBuf,
    dir: PathBuf,
    just_made_elsewhere: bool,
}

/// Why a project's folder could not be made or used.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The notebook's folder does not exist or cannot be entered.
    #[error("cannot find the folder of {}", notebook.display())]
    NoFolder {
        /// The notebook.
        notebook: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The folder could not be made.
    #[error("cannot make the project folder {}", dir.display())]
    Make {
        /// The folder.
        dir: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Project {
    /// Returns the existing project of a notebook or folder.
    pub fn find(from: &Path) -> Option<Self> {
        let real = root::real_path(from).ok()?;
        let folder = if real.is_dir() {
            real.as_path()
        } else {
            real.parent()?
        };
        Self::existing(&root::roots(folder, home().as_deref()))
    }

    /// Returns the project of a notebook, which need not exist yet; makes the folder if needed.
    ///
    /// Where nothing can be written at the root, the folder is made under the user's state
    /// directory; [`Project::notice`] then says so.
    pub fn for_notebook(notebook: &Path) -> Result<Self, ProjectError> {
        let no_folder = |source| ProjectError::NoFolder {
            notebook: notebook.to_owned(),
            source,
        };
        let real = root::real_path(notebook).map_err(no_folder)?;
        let folder = real
            .parent()
            .ok_or_else(|| no_folder(io::Error::other("it has no parent folder")))?;
        let roots = root::roots(folder, home().as_deref());
        if let Some(project) = Self::existing(&roots) {
            return Ok(project);
        }
        let (root, allowed) = roots.wanted;
        let dir = root.join(DIR);
        if allowed && make(&dir).is_ok() && usable(&dir) {
            return Ok(Self {
                root,
                dir,
                just_made_elsewhere: false,
            });
        }
        let dir = elsewhere(&root).ok_or_else(|| ProjectError::Make {
            dir,
            source: io::Error::other(
                "it is not writable and there is no home folder to fall back to",
            ),
        })?;
        make(&dir).map_err(|source| ProjectError::Make {
            dir: dir.clone(),
            source,
        })?;
        Ok(Self {
            root,
            dir,
            just_made_elsewhere: true,
        })
    }

    /// Returns the project whose `state.json` is at `path`, for `--state PATH`.
    ///
    /// The file may lie anywhere; its folder then takes the place of `.nb/`.
    pub fn of_state_file(path: &Path) -> io::Result<Self> {
        let real = root::real_path(path)?;
        let dir = real.parent().unwrap_or(Path::new("/")).to_owned();
        let root = match dir.parent() {
            Some(above) if dir.ends_with(DIR) => above.to_owned(),
            _ => dir.clone(),
        };
        Ok(Self {
            root,
            dir,
            just_made_elsewhere: false,
        })
    }

    fn existing(roots: &Roots) -> Option<Self> {
        let near = roots.candidates.iter().find(|root| usable(&root.join(DIR)));
        if let Some(root) = near {
            return Some(Self {
                root: root.clone(),
                dir: root.join(DIR),
                just_made_elsewhere: false,
            });
        }
        let root = roots.wanted.0.clone();
        let dir = elsewhere(&root).filter(|dir| usable(dir))?;
        Some(Self {
            root,
            dir,
            just_made_elsewhere: false,
        })
    }

    /// Returns the folder that the project's notebooks lie in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the private folder, normally `<root>/.nb`.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Returns what the user should be told once: that the folder had to be made elsewhere.
    pub fn notice(&self) -> Option<String> {
        self.just_made_elsewhere.then(|| {
            format!(
                "{} cannot hold a project folder; its state is kept in {}",
                self.root.display(),
                self.dir.display()
            )
        })
    }

    /// Returns the path of `state.json`.
    pub fn state_file(&self) -> PathBuf {
        self.dir.join("state.json")
    }

    /// Returns the path of the log that all proxies of the project append to.
    pub fn proxy_log(&self) -> PathBuf {
        self.dir.join("proxy.log")
    }

    /// Returns the folder of the home and the temporary files of a session's kernels in a sandbox.
    pub fn scratch(&self, key: &str) -> PathBuf {
        self.dir.join("scratch").join(short_name(key))
    }

    /// Returns the path of the log of a session's kernels: their stdout and stderr.
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

    /// Returns the path of the journal.
    pub fn journal_file(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    /// Returns the name of the folder of a notebook's outputs that were written out, for
    /// [`Project::make_folder`].
    pub fn outputs_folder(&self, key: &str) -> String {
        format!("outputs/{}", short_name(key))
    }

    /// Returns the name by which `state.json` knows a notebook's session.
    ///
    /// It is the path relative to the root, so that it survives a moved project and is the same
    /// in a container that sees the project under another path.
    pub fn key(&self, notebook: &Path) -> String {
        let real = root::real_path(notebook).unwrap_or_else(|_| notebook.to_owned());
        let name = real.strip_prefix(&self.root).unwrap_or(&real);
        name.to_string_lossy().into_owned()
    }

    /// Returns the notebook's path for a key of `state.json`.
    pub fn notebook(&self, key: &str) -> PathBuf {
        self.root.join(key)
    }

    /// Reads `state.json`; a missing file is an empty state.
    pub fn state(&self) -> Result<State, StateError> {
        State::read(&self.state_file())
    }

    /// Changes `state.json` under its lock; nothing is written when nothing changed.
    pub fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> Result<T, StateError> {
        self.update_as(How::Synced, change)
    }

    /// Like [`Project::update`], without waiting for the disk: whoever has more to do meanwhile calls
    /// [`Project::sync`] beside it.
    pub fn update_unsynced<T>(
        &self,
        change: impl FnOnce(&mut State) -> T,
    ) -> Result<T, StateError> {
        self.update_as(How::Unsynced, change)
    }

    /// Waits until `state.json`, as it is now, is safe from a power cut.
    pub fn sync(&self) -> io::Result<()> {
        std::fs::File::open(self.state_file())?.sync_data()
    }

    fn update_as<T>(
        &self,
        how: How,
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

    /// Takes the lock of one session if it is free: who starts, restarts or ends its kernel.
    pub fn try_lock_session(&self, key: &str) -> io::Result<Option<Lock>> {
        let folder = self.dir.join("locks");
        make_folder(&folder)?;
        Lock::attempt(&folder.join(format!("{}.lock", short_name(key))))
    }

    /// Makes a private folder inside the project's folder and returns its path.
    pub fn make_folder(&self, name: &str) -> io::Result<PathBuf> {
        let folder = self.dir.join(name);
        make_folder(&folder)?;
        Ok(folder)
    }
}

/// Returns a file name that is unique for a key and still readable.
pub(super) fn short_name(key: &str) -> String {
    let stem = Path::new(key)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    let readable: String = stem
        .chars()
        .map(|c| {
            if c.is_alphanumeric() || matches!(c, '-' | '_') {
                c
            } else {
                '_'
            }
        })
        .take(40)
        .collect();
    format!("{readable}-{}", &hex::encode(Sha256::digest(key))[..8])
}

fn home() -> Option<PathBuf> {
    let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty())?;
    Some(home.canonicalize().unwrap_or(home))
}

/// Returns the stand-in for a root where nothing can be written.
fn elsewhere(root: &Path) -> Option<PathBuf> {
    let base = etcetera::choose_base_strategy().ok()?;
    let state = base.state_dir().unwrap_or_else(|| base.data_dir());
    Some(
        state
            .join("nb/projects")
            .join(short_name(&root.to_string_lossy())),
    )
}

/// Says whether a folder is ours and writable: another user's `.nb/` must not choose our kernel.
fn usable(dir: &Path) -> bool {
    std::fs::metadata(dir)
        .is_ok_and(|found| found.is_dir() && found.uid() == rustix::process::geteuid().as_raw())
        && rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).is_ok()
}

fn make(dir: &Path) -> io::Result<()> {
    make_folder(dir)?;
    let ignore = dir.join(".gitignore");
    if !ignore.exists() {
        save::replace(&ignore, b"*\n")?;
    }
    Ok(())
}

fn make_folder(dir: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
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
        project.update(|state| state.version = 1).unwrap();
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

    #[test]
    fn two_keys_never_share_a_file() {
        assert_ne!(short_name("a/b.ipynb"), short_name("c/b.ipynb"));
        assert!(short_name("a/b c.ipynb").starts_with("b_c-"));
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
        // A child that another test starts has it, too, until it has become its program.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while project.try_lock_session("a.ipynb").unwrap().is_none() {
            assert!(std::time::Instant::now() < end, "it is never free");
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }
}
