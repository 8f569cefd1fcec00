//! The record of folders that sandboxed kernels were allowed to write, in the user's state folder.
//!
//! A hostile kernel may have put anything into them: a program, an environment's `.pth` file, a
//! kernelspec. This cannot be found out afterwards. So the record stays when the kernel has ended
//! and its session was removed, until the user declares the folder trusted. Code that executes
//! something outside a sandbox checks this record first.

use std::collections::VecDeque;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::state_folder::{make_private, short_name, state_folder};
use super::{save, scratch};

/// A folder that a sandboxed kernel was allowed to write.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WritableFolder {
    /// The folder, a real path.
    pub folder: PathBuf,
    /// The part of the folder that the kernel could not write: its own project's `.nb`.
    pub hidden: PathBuf,
    /// The `state.json` of its project.
    pub state_file: PathBuf,
    /// Its session's key.
    pub key: String,
    /// Its notebook.
    pub notebook: PathBuf,
    /// Fields of another version.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

impl WritableFolder {
    fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.folder) && !path.starts_with(&self.hidden)
    }
}

/// All recorded folders.
#[derive(Clone, Debug, Default)]
pub struct AllWritten {
    entries: Vec<WritableFolder>,
    /// The folder of the scratch folders.
    shelf: Option<PathBuf>,
}

impl AllWritten {
    /// Reads the record of this user's kernels.
    pub fn known() -> Self {
        let entries = folder().map(|it| Self::in_folder(&it)).unwrap_or_default();
        Self {
            shelf: scratch::shelf(),
            ..entries
        }
    }

    fn in_folder(folder: &Path) -> Self {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let texts = entries.filter_map(|entry| std::fs::read(entry.path()).ok());
        let mut entries: Vec<WritableFolder> = texts
            .filter_map(|text| serde_json::from_slice(&text).ok())
            .collect();
        entries.sort_by(|one, other| one.folder.cmp(&other.folder));
        Self {
            entries,
            shelf: None,
        }
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[WritableFolder] {
        &self.entries
    }

    /// Returns the folder through which a sandboxed kernel could control the file at a path: the
    /// folder holds the path, or a symlink on the way to it. Scratch folders count as such folders.
    pub fn decides(&self, path: &Path) -> Option<WritableFolder> {
        let places = places(path);
        let known = self.entries.iter();
        let mut known = known.filter(|it| places.iter().any(|place| it.holds(place)));
        let known = known.next().cloned();
        known.or_else(|| {
            let shelf = self.shelf.as_deref()?;
            places.iter().find_map(|place| scratch_of(shelf, place))
        })
    }

    /// Returns the first of these paths that is in one of the folders.
    pub(super) fn first_held(&self, paths: &[PathBuf]) -> Option<(PathBuf, WritableFolder)> {
        paths.iter().find_map(|path| {
            let written = self.entries.iter().find(|it| it.holds(path))?.clone();
            Some((path.clone(), written))
        })
    }

    /// Returns the folder through which a sandboxed kernel could control the programs of an
    /// environment: the folder holds the environment, or is inside a folder of its code.
    pub fn decides_environment(&self, prefix: &Path) -> Option<WritableFolder> {
        self.decides(prefix).or_else(|| {
            let real = prefix.canonicalize().ok()?;
            let code = CODE.map(|name| real.join(name));
            let inside = |folder: &PathBuf| code.iter().any(|it| folder.starts_with(it));
            let mut known = self.entries.iter();
            known.find(|it| inside(&it.folder)).cloned()
        })
    }
}

/// The folders of an environment with its code and with the settings of its programs.
const CODE: [&str; 9] = [
    "bin",
    "sbin",
    "lib",
    "lib64",
    "libexec",
    "local",
    "etc",
    "share/jupyter",
    "conda-meta",
];

/// Returns the real path of a path, preceded by all symlinks on the way to it. Each of them is looked at once: a kernel
/// may exchange them in the meantime.
pub(super) fn places(path: &Path) -> Vec<PathBuf> {
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let parts = |path: &Path| -> Vec<std::ffi::OsString> {
        let parts = path.components().map(|part| match part {
            Component::RootDir => "/".into(),
            other => other.as_os_str().to_owned(),
        });
        parts.collect()
    };
    let mut rest: VecDeque<_> = parts(&whole).into();
    let mut places = Vec::new();
    let mut at = PathBuf::new();
    // Linux follows as many symlinks.
    let mut follows = 40;
    while let Some(part) = rest.pop_front() {
        if part == ".." {
            at.pop();
            continue;
        }
        if part == "." {
            continue;
        }
        let next = at.join(&part);
        match std::fs::read_link(&next) {
            Ok(target) if follows > 0 => {
                follows -= 1;
                places.push(next);
                let target = parts(&target);
                target.into_iter().rev().for_each(|it| rest.push_front(it));
            }
            _ => at = next,
        }
    }
    places.push(at);
    places
}

/// Returns the scratch folder that a path is in; each sandboxed kernel may write its own.
fn scratch_of(shelf: &Path, path: &Path) -> Option<WritableFolder> {
    let name = path.strip_prefix(shelf).ok()?.components().next()?;
    let folder = shelf.join(name);
    let owner = scratch::owner(&folder);
    Some(WritableFolder {
        hidden: folder.join(".nb"),
        state_file: owner
            .as_ref()
            .map(|it| it.state_file.clone())
            .unwrap_or_default(),
        key: String::new(),
        notebook: owner.map_or_else(|| folder.clone(), |it| it.notebook),
        folder,
        other: Map::new(),
    })
}

/// Records an entry in a folder.
pub(super) fn remember_in(folder: &Path, entry: &WritableFolder) -> io::Result<()> {
    let file = file_of(folder, entry);
    let text = serde_json::to_vec(entry)?;
    if std::fs::read(&file).is_ok_and(|before| before == text) {
        return Ok(());
    }
    make_private(folder)?;
    save::replace(&file, &text)
}

/// Removes an entry: the user trusts its folder again.
pub fn forget(written: &WritableFolder) -> io::Result<()> {
    let Some(folder) = folder() else {
        return Ok(());
    };
    match std::fs::remove_file(file_of(&folder, written)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn file_of(folder: &Path, written: &WritableFolder) -> PathBuf {
    let [written_folder, state_file] =
        [&written.folder, &written.state_file].map(|path| path.to_string_lossy());
    // Paths and keys contain no zero byte.
    let whole = format!("{written_folder}\0{state_file}\0{}", written.key);
    folder.join(format!("{}.json", short_name(&whole)))
}

pub(super) fn folder() -> Option<PathBuf> {
    Some(state_folder()?.join("written"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::super::folder::Project;
    use super::super::real_path::real_path;
    use super::super::root::real_notebook;
    use super::*;

    #[test]
    fn a_recorded_folder_decides_its_files_and_paths_through_it() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let at = |name: &str| root.join(name);
        for folder in ["work/out", "work/.nb", "clean/bin", "clean/data"] {
            std::fs::create_dir_all(at(folder)).unwrap();
        }
        let project = Project::for_notebook(&at("work/a.ipynb")).unwrap();
        let memory = at("memory");
        let remember = |folder: &Path| {
            project
                .remember_written_in(&memory, "a.ipynb", folder)
                .unwrap();
        };
        assert!(AllWritten::in_folder(&memory).entries().is_empty());
        remember(&at("work"));
        remember(&at("work"));
        let known = AllWritten::in_folder(&memory);
        assert_eq!(known.entries().len(), 1);
        let by = |path: &Path| known.decides(path).map(|it| it.folder);
        assert_eq!(by(&at("work/.venv/bin/python")), Some(at("work")));
        assert_eq!(by(&at("work")), Some(at("work")));
        // The kernel could write neither its own project's `.nb` nor the folders beside its own.
        for clean in ["work/.nb/state.json", "workshop", "clean/bin/python"] {
            assert_eq!(by(&at(clean)), None, "{clean}");
        }
        // The kernel may retarget a symlink in its folder later, also one in the middle of a path.
        std::fs::write(at("clean/bin/real"), "").unwrap();
        symlink("../../clean/bin/real", at("work/out/hop")).unwrap();
        symlink("../../work/out/hop", at("clean/bin/python")).unwrap();
        assert_eq!(by(&at("clean/bin/python")), Some(at("work")));
        symlink(at("work/.venv"), at("venv")).unwrap();
        assert_eq!(by(&at("venv/lib/x")), Some(at("work")));
        assert_eq!(by(&at("clean/../work/x")), Some(at("work")));
        // Circular links have no target.
        symlink(at("circle"), at("circle")).unwrap();
        assert_eq!(by(&at("circle/x")), None);

        // An environment of which a sandboxed kernel may write a part.
        let code = at("clean/lib/python3.12/site-packages");
        std::fs::create_dir_all(&code).unwrap();
        let of_environment = |known: &AllWritten| known.decides_environment(&at("clean")).is_some();
        remember(&at("clean/data"));
        assert!(!of_environment(&AllWritten::in_folder(&memory)));
        remember(&code);
        assert!(of_environment(&AllWritten::in_folder(&memory)));
    }

    #[test]
    fn a_link_that_a_sandboxed_kernel_could_put_is_seen() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        for folder in ["work/out/inner", "free"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::fs::write(root.join("free/other.ipynb"), "").unwrap();
        let entry = WritableFolder {
            folder: root.join("work/out"),
            hidden: root.join("work/.nb"),
            state_file: root.join("work/.nb/state.json"),
            key: "a.ipynb".to_owned(),
            notebook: root.join("work/a.ipynb"),
            other: Map::new(),
        };
        let known = AllWritten {
            entries: vec![entry],
            shelf: None,
        };
        symlink(root.join("free/other.ipynb"), root.join("work/out/t.ipynb")).unwrap();
        symlink(root.join("free"), root.join("work/out/inner/sub")).unwrap();
        symlink(root.join("work/out"), root.join("free/own")).unwrap();
        for (path, seen) in [
            ("work/out/t.ipynb", true),
            ("work/out/inner/sub/other.ipynb", true),
            ("free/own/t.ipynb", true),
            ("free/other.ipynb", false),
            // A link of the user's own into the folder.
            ("free/own/new.ipynb", false),
            ("work/out/inner/new.ipynb", false),
        ] {
            let mut links = places(&root.join(path));
            let real = links.pop();
            assert_eq!(known.first_held(&links).is_some(), seen, "{path}");
            let result = real_notebook(&root.join(path), || known.clone(), real_path);
            assert_eq!(result.ok(), real.filter(|_| !seen), "{path}");
        }
    }

    #[test]
    fn a_link_that_comes_or_goes_meanwhile_leads_nowhere_else() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        for folder in ["out", "free"] {
            std::fs::create_dir(root.join(folder)).unwrap();
        }
        let (named, other) = (root.join("out/race.ipynb"), root.join("free/t.ipynb"));
        let known = AllWritten {
            entries: vec![WritableFolder {
                folder: root.join("out"),
                hidden: root.join(".nb"),
                state_file: root.join(".nb/state.json"),
                key: "a.ipynb".to_owned(),
                notebook: root.join("a.ipynb"),
                other: Map::new(),
            }],
            shelf: None,
        };
        std::fs::write(&other, "").unwrap();
        let to_file = || {
            std::fs::remove_file(&named).unwrap_or_default();
            std::fs::write(&named, "").unwrap();
        };
        let to_link = || {
            std::fs::remove_file(&named).unwrap_or_default();
            symlink(&other, &named).unwrap();
        };
        let known = || known.clone();
        // It is a file at the first look, and a link at the second.
        to_file();
        let result = real_notebook(&named, known, |path| {
            to_link();
            real_path(path)
        });
        result.unwrap_err();
        // It is a link, and then a file again.
        let result = real_notebook(&named, known, |path| {
            to_file();
            real_path(path)
        });
        result.unwrap_err();
        assert_eq!(real_notebook(&named, known, real_path).unwrap(), named);
    }

    #[test]
    fn a_scratch_folder_is_its_kernels_without_being_remembered() {
        let known = AllWritten {
            shelf: Some("/s/nb/scratch".into()),
            ..AllWritten::default()
        };
        let result = known.decides(Path::new("/s/nb/scratch/a-1/home/env/bin/python"));
        assert_eq!(result.unwrap().folder, Path::new("/s/nb/scratch/a-1"));
        assert!(known.decides(Path::new("/s/nb/scratch")).is_none());
        assert!(known.decides(Path::new("/p/scratch/a-1/x")).is_none());
    }
}
