//! Files of a project's folder, opened and removed without following a link.
//!
//! Version control and archives bring links, FIFOs and files of any size into a folder. Here no
//! part of a path may be a link, only a regular file of this user's is opened, nothing is waited
//! for, and whoever reads says how much at most. Everything in `.nb` goes through this module.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::save::How;

/// How large a file of settings or of what `nb` remembers may be.
pub const SMALL: u64 = 64 << 20;

/// How large a file may be that holds the sources or outputs of whole notebooks.
pub const LARGE: u64 = 1 << 30;

/// Opens a file for reading.
pub fn open(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDONLY)
}

/// Opens a file for appending; makes it where it is not there.
pub fn append(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE)
}

/// Opens a file for appending and for reading what is there; makes it where it is not there.
pub fn read_append(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)
}

/// Opens a file for reading and writing; makes it where it is not there. Its content stays.
pub fn write(path: &Path) -> io::Result<File> {
    open_as(path, OFlags::RDWR | OFlags::CREATE)
}

/// Makes a file, which must not be there, not even as a link.
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

/// Reads what is left of an open file, which has `most` bytes at most.
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
    // It may grow meanwhile.
    file.take(most + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > most {
        true => Err(too_large()),
        false => Ok(bytes),
    }
}

/// Reads a text whole.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|error| {
        let text = error.utf8_error().to_string();
        io::Error::new(io::ErrorKind::InvalidData, text)
    })
}

/// Returns what is under a name; a link itself, not what it leads to.
pub fn metadata(path: &Path) -> io::Result<std::fs::Metadata> {
    parent(path)?;
    std::fs::symlink_metadata(path)
}

/// Says whether a regular file of this user's is there.
pub fn is_file(path: &Path) -> bool {
    metadata(path).is_ok_and(|found| found.is_file() && is_own(found.uid()))
}

/// Says whether a folder of this user's is there.
pub fn is_folder(path: &Path) -> bool {
    metadata(path).is_ok_and(|found| found.is_dir() && is_own(found.uid()))
}

/// Lists a folder: the paths of what is in it. One that is a link is not followed.
pub fn list(folder: &Path) -> io::Result<std::fs::ReadDir> {
    open_folder(folder)?;
    std::fs::read_dir(folder)
}

/// Makes a private folder, with those above it that are missing.
pub fn make_folder(folder: &Path) -> io::Result<()> {
    if is_folder(folder) {
        return Ok(());
    }
    let mut missing = Vec::new();
    let mut at = folder;
    while let Err(error) = std::fs::symlink_metadata(at) {
        if error.kind() != io::ErrorKind::NotFound {
            return Err(error);
        }
        missing.push(at);
        at = at.parent().ok_or(error)?;
    }
    open_folder(at)?;
    for folder in missing.into_iter().rev() {
        match std::fs::DirBuilder::new().mode(0o700).create(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
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

/// Removes an empty folder.
pub fn remove_folder(path: &Path) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    Ok(rustix::fs::unlinkat(&folder, name, AtFlags::REMOVEDIR)?)
}

/// Removes a folder with all that is in it. Links are removed, not followed.
pub fn remove_folder_all(path: &Path) -> io::Result<()> {
    open_folder(path)?;
    // It opens each folder without following a link.
    std::fs::remove_dir_all(path)
}

/// Renames a file or a folder.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let (old_folder, old) = parent(from)?;
    let (new_folder, new) = parent(to)?;
    Ok(rustix::fs::renameat(&old_folder, old, &new_folder, new)?)
}

/// Gives two things each other's name in one step.
pub fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let (one_folder, one) = parent(one)?;
    let (other_folder, other) = parent(other)?;
    let flags = RenameFlags::EXCHANGE;
    Ok(rustix::fs::renameat_with(
        &one_folder,
        one,
        &other_folder,
        other,
        flags,
    )?)
}

/// Replaces a file's content atomically, synced; it is readable by its user only.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, How::Synced)
}

/// Like [`replace`], for what may be lost or empty after a power cut: it does not wait for the disk.
pub fn replace_unsynced(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_as(path, content, How::Unsynced)
}

/// Does one or the other.
pub fn replace_as(path: &Path, content: &[u8], how: How) -> io::Result<()> {
    let (folder, name) = parent(path)?;
    // A file that is there but is none of nb's stays for its owner to see.
    match rustix::fs::statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => {
            let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
            if kind != rustix::fs::FileType::RegularFile || !is_own(found.st_uid) {
                return Err(not_ours());
            }
        }
        Err(Errno::NOENT) => {}
        Err(error) => return Err(error.into()),
    }
    let temporary = format!(".nb-{}", uuid::Uuid::new_v4().simple());
    let temporary = OsStr::new(&temporary);
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let mode = Mode::RUSR | Mode::WUSR;
    let mut file = File::from(rustix::fs::openat(
        &folder,
        temporary,
        flags | OFlags::CLOEXEC,
        mode,
    )?);
    let written = file.write_all(content).and_then(|()| match how {
        How::Synced => file.sync_data(),
        How::Unsynced => Ok(()),
    });
    let done = written.and_then(|()| Ok(rustix::fs::renameat(&folder, temporary, &folder, name)?));
    if done.is_err() {
        let _ = rustix::fs::unlinkat(&folder, temporary, AtFlags::empty());
    }
    done
}

/// Opens a path's folder, and returns it with the path's last part.
fn parent(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => Ok((open_folder(folder)?, name)),
        _ => Err(io::Error::other("it has no name")),
    }
}

fn open_as(path: &Path, flags: OFlags) -> io::Result<File> {
    // A FIFO that nobody writes to would be waited for.
    let more = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(open_at(path, flags | more)?);
    let found = file.metadata()?;
    if !found.is_file() || !is_own(found.uid()) {
        return Err(not_ours());
    }
    Ok(file)
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    // It need not be listed for that.
    #[cfg(target_os = "linux")]
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    #[cfg(not(target_os = "linux"))]
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    open_at(folder, flags)
}

/// Opens a path of which no part is a link.
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
        // What the system says of a link, of a FIFO without a reader, and of a socket.
        Errno::LOOP | Errno::NXIO => not_ours(),
        // A link where a folder is wanted.
        Errno::NOTDIR if leads_through_a_link(path) => not_ours(),
        other => other.into(),
    })
}

/// Lets the system look at the whole path; none where it cannot.
#[cfg(target_os = "linux")]
fn open_at_once(path: &Path, flags: OFlags, mode: Mode) -> Option<Result<OwnedFd, Errno>> {
    use rustix::fs::{CWD, ResolveFlags};
    let how = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    loop {
        return match rustix::fs::openat2(CWD, path, flags, mode, how) {
            Err(Errno::INTR | Errno::AGAIN) => continue,
            // An older system, and a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::OPNOTSUPP) => None,
            opened => Some(opened),
        };
    }
}

#[cfg(not(target_os = "linux"))]
fn open_at_once(_: &Path, _: OFlags, _: Mode) -> Option<Result<OwnedFd, Errno>> {
    None
}

/// Opens one part after the other.
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

/// Returns the paths of what is in a folder; nothing where that cannot be listed.
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
        // What is removed is the link.
        remove_file(&through).unwrap();
        place.check();
    }

    #[test]
    fn what_is_no_regular_file_is_neither_opened_nor_waited_for() {
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
