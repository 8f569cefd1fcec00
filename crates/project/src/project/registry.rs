//! The registry of the user's projects: the user's state folder remembers each one that had a
//! kernel.
//!
//! Each project has a small file of its own, so that two projects in use never write the same one.
//! The file points to `state.json`, which alone is authoritative. For a project that was deleted
//! while its kernel ran, the file is the only way to find that kernel.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::folder::Project;
use super::save;
use super::session::Session;
use super::state_folder::{make_private, short_name, state_folder};

/// A project that had a kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownProject {
    /// The folder of its notebooks.
    pub root: PathBuf,
    /// Its `state.json`.
    pub state_file: PathBuf,
    /// The kernels that were started, by their sessions' keys. A kernel that another one of the same notebook did not
    /// end has its key with its process id.
    #[serde(default)]
    pub kernels: BTreeMap<String, KnownKernel>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A kernel that `nb` started, or the bridge to one, as it was when it was ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownKernel {
    /// Its notebook.
    pub notebook: PathBuf,
    /// Its process.
    pub pid: u32,
    /// When that process started, as the platform counts.
    pub start_time: u64,
    /// The boot of the machine that `start_time` belongs to.
    pub boot_id: String,
    /// The server on which the kernel runs: then the process is the bridge to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<KnownServer>,
    /// When it was ready.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// Fields of a later version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// A server of the user's, and a kernel on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnownServer {
    /// The name by which the user knows the server.
    pub name: String,
    /// The kernel's id there.
    pub kernel_id: String,
}

impl KnownProject {
    /// Returns the project; `None` if its folder was removed.
    pub fn project(&self) -> Option<Project> {
        let project = Project::of_state_file(&self.state_file).ok()?;
        project.state_file().is_file().then_some(project)
    }

    /// Adds a session's kernel; its earlier kernels stay as long as they run.
    fn add(&mut self, key: &str, kernel: KnownKernel, is_alive: fn(&KnownKernel) -> bool) {
        let process = |it: &KnownKernel| (it.pid, it.start_time, it.boot_id.clone());
        let notebook = kernel.notebook.clone();
        let new = process(&kernel);
        let earlier = self.kernels.insert(key.to_owned(), kernel);
        if let Some(earlier) = earlier.filter(|it| process(it) != new) {
            let name = format!("{key} {}", earlier.pid);
            self.kernels.insert(name, earlier);
        }
        self.kernels
            .retain(|name, it| name == key || it.notebook != notebook || is_alive(it));
    }
}

impl Project {
    /// Remembers that the project has this session, for [`known`].
    ///
    /// This is cheap if the session is known already. A failure is logged and has no other effect. `is_alive` says
    /// whether an earlier kernel of the session still runs: its folder may have been deleted and made again.
    pub fn remember(&self, key: &str, session: &Session, is_alive: fn(&KnownKernel) -> bool) {
        let done = match folder() {
            Some(folder) => self.remember_in(&folder, key, session, is_alive),
            None => Err(io::Error::other("there is no home folder")),
        };
        if let Err(error) = done {
            tracing::warn!(%error, "the project cannot be remembered");
        }
    }

    fn remember_in(
        &self,
        folder: &Path,
        key: &str,
        session: &Session,
        is_alive: fn(&KnownKernel) -> bool,
    ) -> io::Result<()> {
        let file = file_of(folder, self.root());
        let before = read(&file);
        let mut known = before.clone().unwrap_or_else(|| KnownProject {
            root: self.root().to_owned(),
            state_file: self.state_file(),
            kernels: BTreeMap::new(),
            other: Map::new(),
        });
        if let (Some(process), Some(host)) = (session.process(), session.host()) {
            let kernel = KnownKernel {
                notebook: self.notebook(key),
                pid: process.pid,
                start_time: process.start_time,
                boot_id: host.boot_id.clone(),
                server: session.as_remote().map(|remote| KnownServer {
                    name: remote.server.clone(),
                    kernel_id: remote.kernel_id.clone(),
                }),
                started_at: session.started_at,
                other: Map::new(),
            };
            known.add(key, kernel, is_alive);
        }
        if before.as_ref() == Some(&known) {
            return Ok(());
        }
        make_private(folder)?;
        save::replace_unsynced(&file, &serde_json::to_vec(&known)?)
    }
}

/// Returns all projects that had a kernel, including those whose folders were removed.
pub fn known() -> Vec<KnownProject> {
    folder().map(|folder| known_in(&folder)).unwrap_or_default()
}

/// Forgets a project.
pub fn forget(known: &KnownProject) {
    if let Some(folder) = folder() {
        // Another process may have removed it at the same moment.
        let _ = std::fs::remove_file(file_of(&folder, &known.root));
    }
}

fn known_in(folder: &Path) -> Vec<KnownProject> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"));
    let mut found: Vec<_> = files.filter_map(|path| read(&path)).collect();
    found.sort_by(|one, other| one.state_file.cmp(&other.state_file));
    found
}

fn read(file: &Path) -> Option<KnownProject> {
    serde_json::from_slice(&std::fs::read(file).ok()?).ok()
}

fn file_of(folder: &Path, root: &Path) -> PathBuf {
    folder.join(format!("{}.json", short_name(&root.to_string_lossy())))
}

fn folder() -> Option<PathBuf> {
    Some(state_folder()?.join("known"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_is_remembered_once_with_its_kernels() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("known");
        assert_eq!(known_in(&folder), []);
        let mut session = Session::local("/p/a.ipynb".into());
        session.set_process(41, 7, None);
        for name in ["one", "two"] {
            let root = temp.path().join(name);
            std::fs::create_dir_all(root.join(".nb")).unwrap();
            let project = Project::for_notebook(&root.join("a.ipynb")).unwrap();
            project.update(|state| state.kernel_pid = Some(1)).unwrap();
            project
                .remember_in(&folder, "a.ipynb", &session, |_| false)
                .unwrap();
            project
                .remember_in(&folder, "b.ipynb", &session, |_| false)
                .unwrap();
            // Nothing is new, so nothing is written.
            let file = file_of(&folder, project.root());
            let before = std::fs::metadata(&file).unwrap().modified().unwrap();
            project
                .remember_in(&folder, "b.ipynb", &session, |_| false)
                .unwrap();
            let after = std::fs::metadata(&file).unwrap().modified().unwrap();
            assert_eq!(before, after);
            assert!(file.to_string_lossy().contains(name), "{}", file.display());
        }
        std::fs::write(folder.join("damaged.json"), "{").unwrap();
        let found = known_in(&folder);
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].kernels.len(), 2);
        assert_eq!(found[0].kernels["a.ipynb"].pid, 41);
        assert!(found.iter().all(|known| known.project().is_some()));
        std::fs::remove_dir_all(temp.path().join("one")).unwrap();
        let gone = known_in(&folder);
        assert_eq!(gone.iter().filter(|it| it.project().is_none()).count(), 1);
    }
    /// The project's folder may be deleted and made again while a kernel runs.
    #[test]
    fn an_earlier_kernel_of_a_notebook_is_remembered_as_long_as_it_runs() {
        let temp = tempfile::tempdir().unwrap();
        let folder = temp.path().join("known");
        let root = temp.path().join("p");
        std::fs::create_dir_all(&root).unwrap();
        let project = Project::for_notebook(&root.join("a.ipynb")).unwrap();
        let start = |pid, is_alive| {
            let mut session = Session::local(root.join("a.ipynb"));
            session.set_process(pid, 7, None);
            project
                .remember_in(&folder, "a.ipynb", &session, is_alive)
                .unwrap();
            let known = known_in(&folder).remove(0);
            known
                .kernels
                .into_values()
                .map(|it| it.pid)
                .collect::<Vec<_>>()
        };
        assert_eq!(start(41, |_| true), [41]);
        assert_eq!(start(41, |_| true), [41]);
        assert_eq!(start(42, |_| true), [42, 41]);
        assert_eq!(start(43, |it| it.pid == 41), [43, 41]);
        assert_eq!(start(44, |_| false), [44]);
    }
}
