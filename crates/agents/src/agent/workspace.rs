//! The files that an agent may read and write through its client: those of the workspace.
//!
//! Links are resolved, and a path that leads out is refused, as is `nb`'s own folder, which has the keys of
//! kernels. Notebooks are read and written by the functions of `api`, with history and all their checks.
//! That keeps only these requests inside: an agent's own tools are its own.

use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};

use crate::api;
use crate::api::caller::{Caller, CallerSettings};
use crate::api::envelope::Meanwhile;
use crate::api::problem::Problem;
use crate::project::{Project, beneath};

/// The largest file that is read or written, in bytes.
const LARGEST: u64 = 16 << 20;

/// A folder to work in.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
    project: Project,
}

impl Workspace {
    /// Returns the workspace of a folder: its project.
    ///
    /// # Errors
    /// The project cannot be opened.
    pub fn of(folder: &Path) -> Result<Self, Problem> {
        let notebook = folder.join("chat.ipynb");
        let project = Project::for_notebook(&notebook);
        let project = project.map_err(|error| Problem::failed("open the project", &error))?;
        let root = project.root().canonicalize();
        let root = root.map_err(|error| Problem::failed("open the project's folder", &error))?;
        Ok(Self { root, project })
    }

    /// Returns the folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the project.
    pub fn project(&self) -> &Project {
        &self.project
    }

    /// Returns a path as people write it: from the root, if it is below.
    pub fn shown(&self, path: &Path) -> String {
        let relative = path.strip_prefix(&self.root).unwrap_or(path);
        relative.display().to_string()
    }

    /// Returns the real path of a file, which need not exist yet.
    ///
    /// # Errors
    /// It is outside.
    pub fn resolve(&self, path: &Path) -> Result<PathBuf, String> {
        let outside = || {
            format!(
                "{} is outside the workspace {}",
                path.display(),
                self.root.display()
            )
        };
        let joined = self.root.join(path);
        if joined.components().any(|part| part == Component::ParentDir) && !joined.exists() {
            return Err(outside());
        }
        // The part that exists, without links; the rest is below it.
        let mut existing = joined.as_path();
        let mut missing_names = Vec::new();
        let resolved = loop {
            match existing.canonicalize() {
                Ok(resolved) => break resolved,
                // A link that leads nowhere.
                Err(_) if existing.is_symlink() => return Err(outside()),
                Err(_) => {}
            }
            match (existing.parent(), existing.file_name()) {
                (Some(parent), Some(name)) => {
                    missing_names.push(name);
                    existing = parent;
                }
                _ => return Err(outside()),
            }
        };
        let resolved = missing_names
            .iter()
            .rev()
            .fold(resolved, |path, name| path.join(name));
        if !resolved.starts_with(&self.root) {
            return Err(outside());
        }
        let own = self.project.dir();
        let own = own.canonicalize().unwrap_or_else(|_| own.to_owned());
        if resolved.starts_with(own) {
            return Err(format!("{} is nb's own", path.display()));
        }
        Ok(resolved)
    }

    /// Returns the text of a file, or some of its lines; `None` if there is no such file.
    ///
    /// # Errors
    /// The file is outside, too large or no text, or cannot be read.
    pub(super) async fn read(
        &self,
        by: &str,
        path: &Path,
        line: Option<u32>,
        limit: Option<u32>,
    ) -> Result<Option<String>, String> {
        let resolved = self.resolve(path)?;
        if !resolved.exists() {
            return Ok(None);
        }
        let text = if is_notebook(&resolved) {
            let caller = self
                .caller(by, &resolved)
                .map_err(|error| error_text(&error))?;
            let text = api::notebook_text(&caller).await;
            let text = text.map_err(|error| error_text(&error))?;
            mark_seen(caller).await;
            text
        } else {
            let read = tokio::task::spawn_blocking(move || read_file(&resolved)).await;
            let read = read.unwrap_or_else(|error| Err(io::Error::other(error)));
            read.map_err(|error| format!("cannot read {}: {error}", path.display()))?
        };
        if line.is_none() && limit.is_none() {
            return Ok(Some(text));
        }
        let first = line.map_or(0, |line| line.saturating_sub(1) as usize);
        let count = limit.map_or(usize::MAX, |limit| limit as usize);
        let lines = text.split_inclusive('\n').skip(first).take(count);
        Ok(Some(lines.collect()))
    }

    /// Writes a file.
    ///
    /// # Errors
    /// The file is outside or cannot be written; others have changed the notebook's cells meanwhile.
    pub(super) async fn write(&self, by: &str, path: &Path, text: String) -> Result<(), String> {
        let resolved = self.resolve(path)?;
        if text.len() as u64 > LARGEST {
            return Err(format!(
                "the text for {} has more than {} MiB",
                path.display(),
                LARGEST >> 20
            ));
        }
        if is_notebook(&resolved) && resolved.exists() {
            let caller = self
                .caller(by, &resolved)
                .map_err(|error| error_text(&error))?;
            let result = api::set_notebook_text(&caller, text).await;
            let result = result.map_err(|error| error_text(&error))?;
            mark_seen(caller).await;
            return match result.error {
                Some(error) => Err(error_text(&error)),
                None => Ok(()),
            };
        }
        let result = tokio::task::spawn_blocking(move || write_file(&resolved, &text)).await;
        let result = result.unwrap_or_else(|error| Err(io::Error::other(error)));
        result.map_err(|error| format!("cannot write {}: {error}", path.display()))
    }

    /// Returns the maker of a request about a notebook, in the agent's name.
    fn caller(&self, by: &str, notebook: &Path) -> Result<Caller, Problem> {
        Caller::of(CallerSettings {
            notebook: Some(notebook.to_owned()),
            name: Some(by.to_owned()),
            on_terminal: false,
            working_dir: self.root.clone(),
            command: "nb".to_owned(),
            progress: |_| {},
            gets_json: false,
            has_own_thread: false,
        })
    }
}

/// Records that the agent has received the answer, which contains no notifications.
async fn mark_seen(caller: Caller) {
    let delivered = move || caller.delivered(&Meanwhile::default());
    let _ = tokio::task::spawn_blocking(delivered).await;
}

fn is_notebook(path: &Path) -> bool {
    path.extension()
        .is_some_and(|extension| extension == "ipynb")
}

/// Reads a file whose path has no links.
fn read_file(path: &Path) -> io::Result<String> {
    let file = beneath::open(path)?;
    let mut text = String::new();
    let read = file.take(LARGEST + 1).read_to_string(&mut text)?;
    match read as u64 > LARGEST {
        true => Err(io::Error::other(format!(
            "it has more than {} MiB",
            LARGEST >> 20
        ))),
        false => Ok(text),
    }
}

/// Replaces a file whose path has no links; it follows none, also if a program has put one there since the path was
/// resolved. The file's permissions stay.
fn write_file(path: &Path, text: &str) -> io::Result<()> {
    beneath::replace_users(path, text.as_bytes())
}

/// Returns a problem as a text for an agent.
fn error_text(problem: &Problem) -> String {
    let mut text = problem.message.clone();
    let hints = problem.hints.iter().map(ToString::to_string);
    for line in problem.lines.iter().cloned().chain(hints) {
        text.push('\n');
        text.push_str(&line);
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct Place {
        _temp: tempfile::TempDir,
        root: PathBuf,
        workspace: Workspace,
    }

    fn place() -> Place {
        let temp = tempfile::tempdir().unwrap();
        let resolved = temp.path().canonicalize().unwrap();
        let root = resolved.join("project");
        std::fs::create_dir_all(root.join("sub")).unwrap();
        std::fs::write(resolved.join("secret"), "secret").unwrap();
        std::fs::write(root.join("a.txt"), "1\n2\n3\n").unwrap();
        Place {
            workspace: Workspace::of(&root).unwrap(),
            root,
            _temp: temp,
        }
    }

    #[tokio::test]
    async fn what_leads_out_is_refused_in_every_spelling() {
        let place = place();
        let root = &place.root;
        symlink("../secret", root.join("file_link")).unwrap();
        symlink("..", root.join("folder_link")).unwrap();
        symlink("../not_there", root.join("dangling")).unwrap();
        let outside = [
            "../secret",
            "sub/../../secret",
            "/etc/passwd",
            "file_link",
            "folder_link/secret",
            "folder_link/new",
            "dangling",
            "not/../../there",
            ".nb/state.json",
            ".nb/new",
        ];
        for path in outside {
            let path = Path::new(path);
            let read = place.workspace.read("a", path, None, None).await;
            assert!(!matches!(read, Ok(Some(_))), "{path:?} was read");
            let result = place.workspace.write("a", path, "x".to_owned()).await;
            assert!(result.is_err(), "{path:?} was written");
        }
        assert!(!root.join("../not_there").exists() && !root.join("../new").exists());
        assert_eq!(
            std::fs::read_to_string(root.join("../secret")).unwrap(),
            "secret"
        );
    }

    #[test]
    fn a_folder_that_becomes_a_link_after_the_check_leads_nowhere() {
        let place = place();
        let outside = place.root.join("../outside");
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("old"), "theirs").unwrap();
        std::fs::set_permissions(outside.join("old"), PermissionsExt::from_mode(0o640)).unwrap();
        for name in ["new", "deep/new", "old"] {
            let folder = place.root.join("swapped");
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("old"), "").unwrap();
            let resolved = place.workspace.resolve(&folder.join(name)).unwrap();
            std::fs::remove_dir_all(&folder).unwrap();
            symlink(&outside, &folder).unwrap();
            assert!(write_file(&resolved, "x").is_err(), "{name} was written");
            assert!(read_file(&resolved).is_err(), "{name} was read");
            std::fs::remove_file(&folder).unwrap();
        }
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
        let old = outside.join("old");
        assert_eq!(std::fs::read_to_string(&old).unwrap(), "theirs");
        assert_eq!(
            std::fs::metadata(&old).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[tokio::test]
    async fn a_files_lines_are_read_and_its_permissions_stay() {
        let place = place();
        let file = place.root.join("a.txt");
        let read = |line, limit| place.workspace.read("a", &file, line, limit);
        assert_eq!(read(None, None).await.unwrap().unwrap(), "1\n2\n3\n");
        assert_eq!(read(Some(2), Some(1)).await.unwrap().unwrap(), "2\n");
        assert_eq!(read(Some(9), None).await.unwrap().unwrap(), "");
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file, executable).unwrap();
        place
            .workspace
            .write("a", &file, "new".to_owned())
            .await
            .unwrap();
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(
            (mode & 0o777, read(None, None).await.unwrap().unwrap()),
            (0o755, "new".to_owned())
        );
        let new = Path::new("deep/er/new.txt");
        place
            .workspace
            .write("a", new, "x".to_owned())
            .await
            .unwrap();
        assert_eq!(
            place
                .workspace
                .read("a", new, None, None)
                .await
                .unwrap()
                .unwrap(),
            "x"
        );
    }

    #[tokio::test]
    async fn what_is_no_text_file_is_an_error() {
        let place = place();
        std::fs::write(place.root.join("bytes"), b"\xff\xfe").unwrap();
        std::fs::File::create(place.root.join("huge"))
            .unwrap()
            .set_len(LARGEST + 1)
            .unwrap();
        let missing = Path::new("missing");
        assert_eq!(
            place.workspace.read("a", missing, None, None).await,
            Ok(None)
        );
        for path in ["sub", "bytes", "huge"] {
            let read = place.workspace.read("a", Path::new(path), None, None).await;
            assert!(read.is_err(), "{path} was read");
        }
        let result = place
            .workspace
            .write("a", Path::new("sub"), String::new())
            .await;
        assert!(result.is_err());
    }
}
