//! Takes over the harmless parts of a `.nb` that this user's `nb` did not make.
//!
//! The journal and the earlier versions of cells are taken over as plain data, after each line and
//! each file name was checked. Entries that name a path, a command or an environment are not taken
//! over.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::beneath;
use super::event::{Event, journal};
use super::folder::{EARLIER_JOURNALS, JOURNAL, Project};
use super::root::DIR;
use super::set_aside::free_name;

/// The folder of the earlier versions of cells.
const OBJECTS: &str = "objects";

/// The largest journal that is taken over, in bytes; `nb` writes none that is longer.
const LARGEST_JOURNAL: u64 = 256 << 20;

/// The most bytes of versions that are taken over, together and of a single one.
const LARGEST_VERSIONS: u64 = 512 << 20;

/// An entry of the folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FolderEntry {
    /// Its name.
    pub name: String,
    /// Its kind: `file`, `folder`, `link`, `other`.
    pub kind: &'static str,
    /// How many bytes a file has.
    pub bytes: u64,
    /// Whether it would be taken over.
    pub taken_over: bool,
}

/// The result of an adoption.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Adopted {
    /// The folder that was made.
    pub dir: PathBuf,
    /// The stranger's folder, which was renamed.
    pub set_aside: PathBuf,
    /// How many entries of the journal were taken over.
    pub entries: usize,
    /// How many files of earlier versions.
    pub versions: usize,
}

/// Lists the entries of the folder, by their metadata only. Opens none of them.
pub fn entries(dir: &Path) -> io::Result<Vec<FolderEntry>> {
    let metadata = std::fs::symlink_metadata(dir)?;
    let mut entries = Vec::new();
    if metadata.is_dir() {
        for entry in beneath::list(dir)?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            entries.push(describe(name, &entry.metadata()?));
        }
    } else {
        entries.push(describe(".nb".to_owned(), &metadata));
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

fn describe(name: String, metadata: &std::fs::Metadata) -> FolderEntry {
    let kind = match metadata.file_type() {
        kind if kind.is_file() => "file",
        kind if kind.is_dir() => "folder",
        kind if kind.is_symlink() => "link",
        _ => "other",
    };
    let taken_over = matches!(
        (&*name, kind),
        (JOURNAL, "file") | (EARLIER_JOURNALS | OBJECTS, "folder")
    );
    FolderEntry {
        bytes: if kind == "file" { metadata.len() } else { 0 },
        name,
        kind,
        taken_over,
    }
}

/// Renames the stranger's folder, makes a folder of this user's in its place, and takes over what
/// is harmless: from the stranger's folder, and from the stand-in that `nb` used while the
/// stranger's was there.
pub fn adopt(dir: &Path) -> io::Result<Adopted> {
    let root = dir.parent().ok_or(io::ErrorKind::NotFound)?;
    let stand_in = Project::stand_in(root);
    let set_aside = free_name(&root.join(DIR))?;
    beneath::rename(dir, &set_aside)?;
    let mut adopted = Adopted {
        dir: dir.to_owned(),
        set_aside: set_aside.clone(),
        entries: 0,
        versions: 0,
    };
    let project = Project::make_at(root)?;
    for from in [Some(set_aside), stand_in].into_iter().flatten() {
        adopted.entries += take_journal(&from, &project)?;
        adopted.versions += take_objects(&from, &project)?;
    }
    Ok(adopted)
}

fn take_journal(from: &Path, project: &Project) -> io::Result<usize> {
    let mut count = 0;
    for file in journal::files(from) {
        let Ok(bytes) = beneath::read(&file, LARGEST_JOURNAL) else {
            continue;
        };
        let lines = bytes.split(|byte| *byte == b'\n');
        let events: Vec<Event> = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        if !events.is_empty() {
            project.journal()?.append_all(&events)?;
        }
        count += events.len();
    }
    Ok(count)
}

fn take_objects(from: &Path, project: &Project) -> io::Result<usize> {
    let (mut count, mut bytes) = (0, 0);
    for folder in beneath::paths(&from.join(OBJECTS)) {
        let Some(below) = plain_name(&folder).filter(|_| beneath::is_folder(&folder)) else {
            continue;
        };
        let to = project.make_folder(&format!("{OBJECTS}/{below}"))?;
        for path in beneath::paths(&folder) {
            let (Some(name), Ok(file)) = (plain_name(&path), beneath::open(&path)) else {
                continue;
            };
            bytes += file.metadata()?.len();
            if bytes > LARGEST_VERSIONS {
                return Ok(count);
            }
            let mut content = Vec::new();
            file.take(LARGEST_VERSIONS).read_to_end(&mut content)?;
            if let Ok(mut copy) = beneath::create(&to.join(name)) {
                copy.write_all(&content)?;
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Returns a path's last part if it consists of letters, digits and dashes, as the names that `nb`
/// gives do.
fn plain_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    name.bytes().all(is_plain).then_some(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::project::event::EventKind;

    #[test]
    fn history_is_taken_over_and_paths_commands_and_environments_are_not() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        let dir = root.join(".nb");
        std::fs::create_dir_all(dir.join("objects/ab")).unwrap();
        std::fs::create_dir(dir.join("kernels")).unwrap();
        let event = Event::now("a.ipynb", EventKind::Opened);
        let line = serde_json::to_string(&event).unwrap();
        std::fs::write(dir.join(JOURNAL), format!("{line}\nno event\n")).unwrap();
        std::fs::create_dir(dir.join(EARLIER_JOURNALS)).unwrap();
        std::fs::write(dir.join(EARLIER_JOURNALS).join("7.jsonl"), &line).unwrap();
        std::fs::write(dir.join("objects/ab/abcd-1"), "{}").unwrap();
        std::fs::write(root.join("secret"), "secret").unwrap();
        symlink(root.join("secret"), dir.join("objects/ab/abcd-2")).unwrap();
        std::fs::write(dir.join("config.toml"), "kernel_env = { A = 'b' }").unwrap();
        std::fs::write(dir.join("state.json"), r#"{"sessions": {"a": {}}}"#).unwrap();
        let all = entries(&dir).unwrap();
        let taken: Vec<_> = all.iter().filter(|it| it.taken_over).collect();
        assert_eq!(taken.len(), 3, "{all:?}");
        let adopted = adopt(&dir).unwrap();
        assert_eq!((adopted.entries, adopted.versions), (2, 1));
        assert_eq!(adopted.set_aside, root.join(".nb.set-aside-1"));
        let project = Project::find(&root).unwrap();
        assert_eq!(project.dir(), dir);
        assert_eq!(project.all_events().len(), 2);
        assert!(!dir.join("config.toml").exists() && !dir.join("state.json").exists());
        assert!(!dir.join("objects/ab/abcd-2").exists());
        assert!(adopted.set_aside.join("config.toml").exists());
        assert_eq!(Project::ignored_folder(&root), None);
    }

    #[test]
    fn a_link_is_set_aside_and_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let root = temp.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("theirs")).unwrap();
        symlink(root.join("theirs"), root.join(".nb")).unwrap();
        assert_eq!(entries(&root.join(".nb")).unwrap()[0].kind, "link");
        let adopted = adopt(&root.join(".nb")).unwrap();
        assert!(adopted.set_aside.is_symlink());
        assert!(!root.join(".nb").is_symlink());
        assert_eq!(std::fs::read_dir(root.join("theirs")).unwrap().count(), 0);
    }
}
