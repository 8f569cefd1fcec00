//! Opens and removes files of a project's folder without following links.
//!
//! Version control and archives can put links, FIFOs and files of any size into a folder. So no
//! part of a path may be a link, only regular files of this user are opened, no call blocks, and
//! each reader gives an upper limit in bytes. Everything in `.nb` goes through this module.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::save::Durability;

/// The largest file of settings or of `nb`'s own state that is read, in bytes.
pub const SMALL: u64 = 64 << 20;

/// The largest file with the sources or outputs of whole notebooks that is read, in bytes.
pub const LARGE: u64 = 1 << 30;

/// Opens a file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDONLY)
}

/// Opens a file for appending; creates it if it does not exist.
pub fn append(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

/// Opens a file for appending and for reading; creates it if it does not exist.
pub fn read_append(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
}

/// Opens a file for reading and writing; creates it if it does not exist. Its content stays.
pub fn write(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR | OFlags::CREATE)
}

/// Creates a file. The name must be free; a link under that name is an error too.
pub fn create(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR | OFlags::CREATE | OFlags::EXCL)
}

/// Reads a file whole.
///
/// # Errors
/// Of the kind `FileTooLarge` where it has more than `most` bytes; and all of [`open`].
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    read_from(&open(path)?, most)
}

/// Reads an open file from its position to its end; the file may have `most` bytes at most.
pub fn read_from(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let too_large = || {
        let text = format!("it has more than {most} bytes, which no file of nb's there has");
        io::Error::new(io::ErrorKind::FileTooLarge, text)
    };
    if length > most {
        return Err(too_large());
    }
    let mut bytes = Vec::with_capacity(length as usize);
    // The file may grow between the two calls.
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(too_large()),
        false => Ok(bytes),
    }
}

/// Reads a JSON file; returns `None` if it does not exist or cannot be read.
pub fn read_json<T: DeserializeOwned>(path: &Path, most: u64) -> Option<T> {
    serde_json::from_slice(&read(path, most).ok()?).ok()
}

/// Replaces a file by JSON, like [`replace_unsynced`].
pub fn write_json(path: &Path, content: &impl Serialize) -> io::Result<()> {
    replace_unsynced(path, &serde_json::to_vec(content)?)
}

/// Reads a text whole.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let text = error.utf8_error().to_string();
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Returns the metadata of a path; those of a link itself, not of its target.
pub fn metadata(path: &Path) -> io::Result<std::fs::Metadata> {
    parent(path)?;
    std::fs::symlink_metadata(path)
}

/// Says whether a path is a regular file of this user.
pub fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(|found| found.is_file() && is_own(found.uid()))
}

/// Says whether a path is a folder of this user.
pub fn is_folder(path: &Path) -> bool {
    metadata(path).is_ok_and(|found| found.is_dir() && is_own(found.uid()))
}

/// Lists the entries of a folder. A folder that is a link is an error.
pub fn list(folder: &Path) -> io::Result<std::fs::ReadDir> {
    open_folder(folder)?;
    std::fs::read_dir(folder)
}

/// Makes a private folder, and its parent folders if they are missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    make_folder_as(folder, Mode::RWXU, None)
}

/// Makes a private folder, and the missing ones between it and `top`, which must exist: a project that was moved is not
/// made anew under its old name.
pub fn make_folder_in(top: &Path, folder: &Path) -> io::Result<()> {
    make_folder_as(folder, Mode::RWXU, Some(top))
}

/// Like [`make_folder_in`], in the folder above, which must exist.
pub fn make_subfolder(folder: &Path) -> io::Result<()> {
    make_folder_as(folder, Mode::RWXU, folder.parent())
}

fn make_folder_as(folder: &Path, mode: Mode, top: Option<&Path>) -> io::Result<()> {
    if is_folder(folder) {
        return Ok(());
    }
    let mut missing = Vec::new();
    let mut at = folder;
    while let Err(error) = std::fs::symlink_metadata(at) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        if top == Some(at) {
            let text = format!("{} was moved or removed", at.display());
            return Err(io::Error::new(io::ErrorKind::NotFound, text));
        }
        missing.push(at);
        at = at.parent().ok_or(error)?;
    }
    open_folder(at)?;
    for folder in missing.into_iter().rev() {
        let (above, name) = parent(folder)?;
        match rustix::fs::mkdirat(&above, name, mode) {
            Err(error) if error != Errno::EXIST => return Err(error.into()),
            _ => {}
        }
    }
    open_folder(folder).map(drop)
}

/// Removes a file or a link.
pub fn remove_file(path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    Ok(rustix::fs::unlinkat(&folder, name, AtFlags::empty())?)
}

/// Removes the JSON files of a folder that were last written longer than `age` ago; keeps those that
/// cannot be removed.
pub fn remove_unused(folder: &Path, age: Duration) {
    let oldest = SystemTime::now().checked_sub(age);
    let oldest = oldest.unwrap_or(SystemTime::UNIX_EPOCH);
    for entry in list(folder).into_iter().flatten().flatten() {
        let time = entry.metadata().and_then(|data| data.modified());
        let path = entry.path();
        if time.is_ok_and(|time| time < oldest) && path.extension().is_some_and(|it| it == "json") {
            let _ = remove_file(&path);
        }
    }
}

/// Removes a folder and its content. Links are removed, not followed.
pub fn remove_folder_all(path: &Path) -> io::Result<()> {
    open_folder(path)?;
    // `remove_dir_all` opens each folder without following a link.
    std::fs::remove_dir_all(path)
}

/// Renames a file or a folder.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (old_folder, old) = parent(from)?;
    let (new_folder, new) = parent(to)?;
    Ok(rustix::fs::renameat(&old_folder, old, &new_folder, new)?)
}

/// Replaces a file's content atomically, synced; it is readable by its user only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, Durability::Synced)
}

/// Like [`replace`], but does not wait for the disk: after a power cut the file may be missing or
/// empty.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, Durability::Unsynced)
}

/// Replaces a file's content atomically, synced or not.
pub fn replace_as(path: &Path, content: &[u8], durability: Durability) -> io::Result<()> {
    replace_with(path, content, durability, Permissions::Private)
}

/// Replaces the content of one of the user's own files atomically, synced. It keeps its permissions; a new file, and
/// folders that are missing, have those that the umask leaves.
pub fn replace_users(path: &Path, content: &[u8]) -> io::Result<()> {
    let all = Mode::RWXU | Mode::RWXG | Mode::RWXO;
    make_folder_as(path.parent().unwrap_or(path), all, None)?;
    replace_with(path, content, Durability::Synced, Permissions::Users)
}

/// The permissions of a file that is replaced.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Permissions {
    /// Only its user may read it.
    Private,
    /// Those that it has, or those that the umask leaves.
    Users,
}

fn replace_with(
    path: &Path,
    content: &[u8],
    durability: Durability,
    permissions: Permissions,
) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    let mut kept = None;
    // A file that `nb` did not make stays for its owner to see.
    match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => {
            let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
            if kind != rustix::fs::FileType::RegularFile || !is_own(found.st_uid) {
                return Err(not_ours());
            }
            kept = Some(Mode::from_raw_mode(found.st_mode));
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let temporary = format!(".nb-{}", uuid::Uuid::new_v4().simple());
    let temporary = OsStr::new(&temporary);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mode = match (permissions, kept) {
        (Permissions::Users, None) => Mode::from_raw_mode(0o666),
        _ => Mode::RUSR | Mode::WUSR,
    };
    let mut file = File::from(rustix::fs::openat(
        &folder,
        temporary,
        flags | OFlags::CLOEXEC,
        mode,
    )?);
    let written = match kept.filter(|_| permissions == Permissions::Users) {
        Some(mode) => rustix::fs::fchmod(&file, mode).map_err(io::Error::from),
        None => Ok(()),
    };
    let written = written.and_then(|()| file.write_all(content));
    let written = written.and_then(|()| match durability {
        Durability::Synced => file.sync_data(),
        Durability::Unsynced => Ok(()),
    });
    let done = written.and_then(|()| Ok(rustix::fs::renameat(&folder, temporary, &folder, name)?));
    if done.is_err() {
        let _ = rustix::fs::unlinkat(&folder, temporary, AtFlags::empty());
    }
    done
}

/// Opens the parent folder of a path, and returns it with the path's last part.
fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok((open_folder(folder)?, name)),
        _ => Err(io::Error::other("it has no name")),
    }
}

fn open_as(path: &Path, flags: OFlags) -> io::Result<File> {
    // Opening a FIFO that has no other end would block.
    let more = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_at(path, flags | more)?);
    let found = file.metadata()?;
    if !found.is_file() || !is_own(found.uid()) {
        return Err(not_ours());
    }
    Ok(file)
}

pub(super) fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    // With O_PATH the folder needs no read permission.
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_at(folder, flags)
}

/// Opens a path; fails if any part of it is a link.
fn open_at(path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mode = match flags.contains(OFlags::CREATE) {
        true => Mode::RUSR | Mode::WUSR,
        false => Mode::empty(),
    };
    let absolute;
    let path = match path.is_absolute() {
        true => path,
        false => {
            absolute = std::path::absolute(path)?;
            &absolute
        }
    };
    if path.components().any(|part| part == Component::ParentDir) {
        return Err(io::Error::other("it leads upwards"));
    }
    let opened = open_at_once(path, flags, mode).unwrap_or_else(|| walk(path, flags, mode));
    opened.map_err(|error| match error {
        // The errors for a link, and for a FIFO or a socket that nobody reads.
        Errno::LOOP | Errno::NXIO => not_ours(),
        // The path has a link in place of a folder.
        Errno::NOTDIR if leads_through_a_link(path) => not_ours(),
        other => other.into(),
    })
}

/// Opens the whole path with `openat2`; returns `None` where the system cannot.
#[cfg(target_os = "linux")]
fn open_at_once(path: &Path, flags: OFlags, mode: Mode) -> Option<Result<OwnedFd, Errno>> {
    use rustix::fs::{CWD, ResolveFlags};
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        return match rustix::fs::openat2(CWD, path, flags, mode, resolve) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // An older kernel, or a sandbox that blocks the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => None,
            opened => Some(opened),
        };
    }
}

#[cfg(not(target_os = "linux"))]
fn open_at_once(_: &Path, _: OFlags, _: Mode) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// Opens one part of the path after the other.
fn walk(path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    #[cfg(target_os = "linux")]
    let passing = OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let passing = OFlags::RDONLY;
    let passing = passing | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut at = rustix::fs::open("/", passing, Mode::empty())?;
    let names: Vec<_> = path
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    let Some((last, above)) = names.split_last() else {
        return Ok(at);
    };
    for name in above {
        at = rustix::fs::openat(at.as_fd(), *name, passing, Mode::empty())?;
    }
    rustix::fs::openat(at.as_fd(), *last, flags, mode)
}

fn leads_through_a_link(path: &Path) -> bool {
    path.ancestors().any(Path::is_symlink)
}

fn is_own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

fn not_ours() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "it is not a regular file of this user's in a folder without links: nb did not make it; move it away",
    )
}

/// Returns the paths of a folder's entries; empty if it cannot be listed.
pub fn paths(folder: &Path) -> Vec<PathBuf> {
    let entries = list(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    struct Place {
        _temp: tempfile::TempDir,
        inside: PathBuf,
        outside: PathBuf,
    }

    impl Place {
        fn new() -> Self {
            let temp = tempfile::tempdir().unwrap();
            let root = temp.path().canonicalize().unwrap();
            let (inside, outside) = (root.join("in"), root.join("out"));
            std::fs::create_dir(&inside).unwrap();
            std::fs::create_dir(&outside).unwrap();
            std::fs::write(outside.join("victim"), "theirs").unwrap();
            Self {
                inside,
                outside,
                _temp: temp,
            }
        }

        fn check(&self) {
            let text = std::fs::read_to_string(self.outside.join("victim")).unwrap();
            assert_eq!(text, "theirs");
            assert_eq!(std::fs::read_dir(&self.outside).unwrap().count(), 1);
        }
    }

    fn all_refuse(path: &Path) {
        assert!(open(path).is_err());
        assert!(read(path, SMALL).is_err());
        assert!(append(path).is_err());
        assert!(write(path).is_err());
        assert!(read_append(path).is_err());
        assert!(create(path).is_err());
        assert!(replace_unsynced(path, b"nb's").is_err());
    }

    #[test]
    fn a_link_is_never_followed_as_a_file_or_on_the_way_to_one() {
        let place = Place::new();
        symlink(place.outside.join("victim"), place.inside.join("file")).unwrap();
        symlink(&place.outside, place.inside.join("folder")).unwrap();
        symlink(place.outside.join("new"), place.inside.join("dangling")).unwrap();
        for name in ["file", "folder/victim", "folder/new", "dangling"] {
            all_refuse(&place.inside.join(name));
            place.check();
        }
        let through = place.inside.join("folder");
        assert!(list(&through).is_err());
        assert!(make_folder(&through.join("made")).is_err());
        assert!(make_folder(&through).is_err());
        assert!(remove_file(&through.join("victim")).is_err());
        assert!(remove_folder_all(&through).is_err());
        assert!(rename(&through.join("victim"), &place.inside.join("x")).is_err());
        std::fs::write(place.inside.join("own"), "").unwrap();
        assert!(rename(&place.inside.join("own"), &through.join("own")).is_err());
        place.check();
        // The link is removed, not its target.
        remove_file(&through).unwrap();
        place.check();
    }

    #[test]
    fn a_file_that_is_not_regular_is_refused_without_a_wait() {
        let place = Place::new();
        let fifo = place.inside.join("fifo");
        let made = std::process::Command::new("mkfifo").arg(&fifo).status();
        assert!(made.unwrap().success());
        let socket = place.inside.join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let folder = place.inside.join("folder");
        std::fs::create_dir(&folder).unwrap();
        for path in [&fifo, &socket, &folder, Path::new("/dev/zero")] {
            all_refuse(path);
        }
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let place = Place::new();
        let path = place.inside.join("sparse");
        File::create(&path).unwrap().set_len(10 << 30).unwrap();
        let error = read(&path, SMALL).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        replace(&path, b"{}").unwrap();
        assert_eq!(read_text(&path, 2).unwrap(), "{}");
    }

    #[test]
    fn one_part_after_the_other_is_opened_as_all_at_once() {
        let place = Place::new();
        symlink(&place.outside, place.inside.join("folder")).unwrap();
        std::fs::write(place.inside.join("own"), "").unwrap();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opens = |name: &str| walk(&place.inside.join(name), flags, Mode::empty()).is_ok();
        assert!(opens("own"));
        assert!(!opens("folder/victim"));
        assert!(!opens("folder"));
        assert!(!opens("gone"));
    }

    #[test]
    fn upwards_leads_nowhere() {
        let place = Place::new();
        assert!(open(&place.inside.join("../out/victim")).is_err());
    }
}
