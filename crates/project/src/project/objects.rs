//! `objects/`: earlier versions of cells, each under a name that is made from its content.
//!
//! A version is a file of its own. Many versions that come at once, as when `nb` first opens a
//! notebook, are one file that begins with a list of them. These files never change. They are not
//! synced: after a power cut a version may be missing, but never incomplete under its name.
//!
//! **Size limit**: together they stay under half a gigabyte, and the oldest are removed first. As
//! listing them takes time, the limit is checked once for every 16 MB.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::beneath;
use super::folder::Project;

/// The size limit of all versions together, in bytes.
const LIMIT: u64 = 512 << 20;

/// The limit is checked each time this many bytes were added.
const SWEEP: u64 = 16 << 20;

/// The smallest space of a file on the disk, in bytes; one byte of the tally stands for as much.
const BLOCK: u64 = 4 << 10;

/// The longest line of a list, in bytes.
const LONGEST_LINE: u64 = 4 << 10;

/// From this many versions on they are put into one file.
const MANY: usize = 16;

/// The stored versions of a project.
#[derive(Clone, Debug)]
pub struct Objects {
    folder: PathBuf,
    limit: u64,
    sweep: u64,
    /// The positions of the versions in the list files that were read.
    lists: Arc<Mutex<Lists>>,
}

/// The content of the lists.
#[derive(Debug, Default)]
struct Lists {
    read: HashSet<PathBuf>,
    places: HashMap<String, Place>,
}

/// The position of a version in a list file.
#[derive(Debug)]
struct Place {
    list: PathBuf,
    start: u64,
    length: u64,
}

impl Project {
    /// Returns the stored versions; `None` if the user's settings say that no code is stored, or
    /// cannot be read.
    pub fn objects(&self) -> Option<Objects> {
        let keeps_code = self.config().is_ok_and(|config| config.journal.code);
        keeps_code.then(|| Objects::of(&self.dir().join("objects")))
    }
}

impl Objects {
    fn of(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            limit: LIMIT,
            sweep: SWEEP,
            lists: Arc::default(),
        }
    }

    /// Stores versions under names of letters, digits and dashes; those that are stored already
    /// stay unchanged.
    pub fn keep(&self, versions: &[(String, impl AsRef<[u8]>)]) -> io::Result<()> {
        let mut new = versions
            .iter()
            .filter(|(name, _)| !beneath::is_file(&self.file(name)));
        if versions.len() >= MANY {
            return self.keep_together(versions);
        }
        new.try_for_each(|(name, bytes)| self.write(&self.file(name), bytes.as_ref()))
    }

    /// Returns a version by its name, if it is still stored. To get many versions, use one
    /// `Objects` value, which reads each list only once.
    pub fn get(&self, name: &str) -> Option<Vec<u8>> {
        // The name comes from a file, which may contain anything.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if name.is_empty() || !name.bytes().all(is_plain) {
            return None;
        }
        if let Ok(bytes) = beneath::read(&self.file(name), LIMIT) {
            return Some(bytes);
        }
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if !lists.places.contains_key(name) {
            // A list that contains it may be new since the last reading.
            lists.read(&self.folder.join("lists"));
        }
        lists.places.get(name)?.read().ok()?
    }

    /// Returns the path of a version. The first two letters of its name are a folder, since folders
    /// of a hundred thousand files are slow to list.
    fn file(&self, name: &str) -> PathBuf {
        let folder = name.get(..2).unwrap_or("__");
        self.folder.join(folder).join(name)
    }

    /// Writes versions into one file: first a line `NAME LENGTH` for each, then an empty line, then
    /// the versions.
    fn keep_together(&self, versions: &[(String, impl AsRef<[u8]>)]) -> io::Result<()> {
        let mut text = Vec::new();
        for (name, bytes) in versions {
            writeln!(text, "{name} {}", bytes.as_ref().len())?;
        }
        let hash = hex::encode(Sha256::digest(&text));
        let path = self.folder.join("lists").join(&hash[..16]);
        if beneath::is_file(&path) {
            return Ok(());
        }
        text.push(b'\n');
        for (_, bytes) in versions {
            text.extend_from_slice(bytes.as_ref());
        }
        self.write(&path, &text)
    }

    fn write(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        match beneath::replace_unsynced(path, bytes) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let [project, folder] = [self.folder.parent(), path.parent()];
                let here = Path::new(".");
                beneath::make_folder_in(project.unwrap_or(here), folder.unwrap_or(here))?;
                beneath::replace_unsynced(path, bytes)?;
            }
            written => written?,
        }
        self.count(bytes.len() as u64)
    }

    /// Adds to the tally, a file that grows by one byte for each block, and sweeps when the tally
    /// is full.
    fn count(&self, bytes: u64) -> io::Result<()> {
        let path = self.folder.join("written");
        let mut tally = beneath::append(&path)?;
        tally.write_all(&vec![b'.'; bytes.div_ceil(BLOCK).max(1) as usize])?;
        if tally.metadata()?.len() * BLOCK > self.sweep {
            tally.set_len(0)?;
            self.sweep();
        }
        Ok(())
    }

    /// Removes the oldest versions until a quarter of the limit is free. Files that another process
    /// removes at the same time count as removed.
    fn sweep(&self) {
        let mut found: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
        let folders = beneath::list(&self.folder).into_iter().flatten();
        let folders = folders.flatten().map(|entry| beneath::list(&entry.path()));
        for entry in folders.flatten().flatten().flatten() {
            let Ok(data) = entry.metadata() else { continue };
            let size = data.len().next_multiple_of(BLOCK);
            let time = data.modified().unwrap_or(SystemTime::UNIX_EPOCH);
            found.push((time, size, entry.path()));
        }
        let mut size: u64 = found.iter().map(|(_, size, _)| size).sum();
        if size <= self.limit {
            return;
        }
        found.sort();
        for (_, its, path) in found {
            if size <= self.limit / 4 * 3 {
                break;
            }
            let _ = beneath::remove_file(&path);
            size -= its;
        }
    }
}

impl Lists {
    /// Reads the lists that were not read yet. A list that cannot be read has no versions.
    fn read(&mut self, folder: &Path) {
        for entry in beneath::list(folder).into_iter().flatten().flatten() {
            let list = entry.path();
            if self.read.insert(list.clone()) {
                let _ = self.read_head(&list);
            }
        }
    }

    fn read_head(&mut self, list: &Path) -> io::Result<()> {
        let mut file = BufReader::new(beneath::open(list)?);
        let (mut head, mut length, mut found) = (0, 0, Vec::new());
        let mut line = String::new();
        loop {
            line.clear();
            head += file.by_ref().take(LONGEST_LINE).read_line(&mut line)? as u64;
            let Some((name, its)) = line.trim_end().split_once(' ') else {
                break;
            };
            let its: u64 = its.parse().map_err(io::Error::other)?;
            found.push((name.to_owned(), length, its));
            length = u64::checked_add(length, its).ok_or(io::ErrorKind::InvalidData)?;
        }
        for (name, start, length) in found {
            self.places.entry(name).or_insert_with(|| Place {
                list: list.to_owned(),
                start: head + start,
                length,
            });
        }
        Ok(())
    }
}

impl Place {
    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        let mut file = beneath::open(&self.list)?;
        file.seek(SeekFrom::Start(self.start))?;
        let mut bytes = Vec::new();
        file.take(self.length.min(LIMIT)).read_to_end(&mut bytes)?;
        Ok(Some(bytes).filter(|bytes| bytes.len() as u64 == self.length))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn versions(names: std::ops::Range<u32>, size: usize) -> Vec<(String, Vec<u8>)> {
        names
            .map(|number| {
                (
                    format!("{number:010}"),
                    vec![b'a' + (number % 26) as u8; size],
                )
            })
            .collect()
    }

    #[test]
    fn one_or_many_are_found_again() {
        let temp = tempfile::tempdir().unwrap();
        let objects = Objects::of(&temp.path().join("objects"));
        assert_eq!(objects.get("0000000001"), None);
        for all in [
            versions(0..3, 10),
            versions(100..200, 30),
            versions(50..150, 7),
        ] {
            objects.keep(&all).unwrap();
            objects.keep(&all).unwrap();
            for (name, bytes) in all.iter().filter(|(name, _)| &**name < "0000000100") {
                assert_eq!(objects.get(name).as_ref(), Some(bytes), "{name}");
            }
        }
        assert_eq!(objects.get("0000000199").unwrap().len(), 30);
        assert_eq!(objects.get("0000000900"), None);
        let file = objects.file("0000000001");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&file), 0o600);
        assert_eq!(mode(file.parent().unwrap()), 0o700);
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many() {
        let temp = tempfile::tempdir().unwrap();
        let mut objects = Objects::of(&temp.path().join("objects"));
        (objects.limit, objects.sweep) = (40 * BLOCK, 10 * BLOCK);
        let all = versions(0..100, BLOCK as usize);
        let old = SystemTime::now() - std::time::Duration::from_secs(1000);
        for (number, version) in all.iter().enumerate() {
            objects.keep(std::slice::from_ref(version)).unwrap();
            let age = old + std::time::Duration::from_secs(number as u64);
            let file = File::open(objects.file(&version.0)).unwrap();
            file.set_modified(age).unwrap();
        }
        let kept: Vec<_> = all
            .iter()
            .filter(|(name, _)| objects.get(name).is_some())
            .collect();
        assert!((30..=50).contains(&kept.len()), "{}", kept.len());
        assert_eq!(kept.last().unwrap().0, all[99].0);
        assert!(objects.get(&all[0].0).is_none());
    }

    #[test]
    fn nothing_is_kept_where_the_user_wants_no_code_kept() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        assert!(project.objects().is_some());
        std::fs::write(project.dir().join("config.toml"), "journal.code = false").unwrap();
        assert!(project.objects().is_none());
    }
}
