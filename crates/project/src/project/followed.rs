//! A project whose folder may be moved while a process works in it.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::beneath;
use super::event::journal::is_in_place;
use super::folder::Project;
use super::root::DIR;

/// A project whose private folder this process holds open, to find it again after the project was moved.
///
/// Linux names the present path of an open folder. On other systems the project keeps its path.
#[derive(Debug)]
pub struct FollowedProject {
    /// `None` if the folder could not be opened.
    held: Option<File>,
    project: Mutex<Project>,
}

impl FollowedProject {
    /// Holds a project's folder open.
    pub fn new(project: Project) -> Self {
        Self {
            held: beneath::open_folder(project.dir()).ok().map(File::from),
            project: Mutex::new(project),
        }
    }

    /// Returns the project at its present path. A project that is nowhere, or whose `.nb` has another name, keeps the
    /// last one.
    pub fn now(&self) -> Project {
        let mut project = self.project.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_at(project.dir())
            && let Some(dir) = self.present_dir()
            && let Ok(moved) = Project::of_state_file(&dir.join("state.json"))
            && self.is_at(moved.dir())
        {
            tracing::info!(
                "the project was moved from {} to {}",
                project.root().display(),
                moved.root().display()
            );
            *project = moved;
        }
        project.clone()
    }

    fn is_at(&self, dir: &Path) -> bool {
        let held = self.held.as_ref();
        held.is_none_or(|held| is_in_place(held, dir).unwrap_or(true))
    }

    fn present_dir(&self) -> Option<PathBuf> {
        let link = format!("/proc/self/fd/{}", self.held.as_ref()?.as_raw_fd());
        let dir = rustix::fs::readlink(link, Vec::new()).ok()?;
        let dir = PathBuf::from(OsString::from_vec(dir.into_bytes()));
        dir.ends_with(DIR).then_some(dir)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_moved_project_is_followed_and_never_made_anew() {
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().canonicalize().unwrap();
        let [old, new] = ["p", "q"].map(|name| top.join(name));
        std::fs::create_dir(&old).unwrap();
        let project = Project::for_notebook(&old.join("a.ipynb")).unwrap();
        project.update(|state| state.kernel_pid = Some(1)).unwrap();
        let mut journal = project.journal().unwrap();
        let followed = FollowedProject::new(project.clone());
        assert_eq!(followed.now(), project);

        std::fs::rename(&old, &new).unwrap();
        assert_eq!(followed.now().root(), new);
        // What still has the old path makes no folder there.
        let made = [
            project.make_folder("proxies").map(drop),
            project.try_lock_session("a.ipynb").map(drop),
            project.begin_facts("a.ipynb", Some(1)),
            super::super::names::update::<Vec<u8>>(&project.seen_file("a.ipynb", "me"), |it| {
                it.push(1);
            })
            .map(drop),
        ];
        assert!(made.iter().all(Result::is_err), "{made:?}");
        assert!(journal.append_all(&[]).is_err());
        assert!(!old.exists());
        journal.follow(&followed.now()).unwrap();
        journal.append_all(&[]).unwrap();

        // Another project has the old name for a while.
        std::fs::create_dir(&old).unwrap();
        let other = Project::for_notebook(&old.join("a.ipynb")).unwrap();
        assert_eq!(followed.now().root(), new);
        std::fs::remove_dir_all(other.root()).unwrap();
        std::fs::rename(&new, &old).unwrap();
        assert_eq!(followed.now(), project);
        std::fs::rename(project.dir(), old.join(".nb~")).unwrap();
        assert_eq!(followed.now(), project);
        std::fs::remove_dir_all(&old).unwrap();
        assert_eq!(followed.now(), project);
    }
}
