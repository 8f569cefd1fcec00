//! Removes folders whose content a sandboxed kernel may have made.

use std::io;
use std::path::Path;

/// Removes a file or a folder with its content; a missing one is not an error.
///
/// A kernel may build folders on purpose that are hard to remove. So no link is followed, folders
/// without permissions get them first, and deep folders need no more descriptors and no more stack.
#[cfg(target_os = "linux")]
pub fn remove_tree(path: &Path) -> io::Result<()> {
    use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat, unlinkat};
    use rustix::io::Errno;
    let (Some(above), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::other("it has no folder above it"));
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = match openat(CWD, above, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened?,
    };
    match unlinkat(&above, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(error) => return Err(error.into()),
    }
    let top = linux::enter(&above, name)?;
    let began = std::time::Instant::now();
    // Each pass removes one level: it moves the deeper levels up.
    while linux::pass(&top)? {
        if began.elapsed() > linux::TIMEOUT {
            let why = "it is still being filled, or holds too much";
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
    }
    Ok(unlinkat(&above, name, AtFlags::REMOVEDIR)?)
}

/// Removes a file or a folder with its content; a missing one is not an error.
#[cfg(not(target_os = "linux"))]
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let is_folder = std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir());
    let removed = match is_folder {
        true => std::fs::remove_dir_all(path),
        false => std::fs::remove_file(path),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::{CString, OsStr};
    use std::io;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::ffi::OsStrExt;
    use std::time::Duration;

    use rustix::fs::{AtFlags, Dir, Mode, OFlags, chmod, openat, renameat, unlinkat};
    use rustix::io::Errno;

    /// How long the removal of one folder may take.
    pub(super) const TIMEOUT: Duration = Duration::from_secs(60);

    /// Opens a folder, also one without permissions.
    pub(super) fn enter(above: &OwnedFd, name: &OsStr) -> io::Result<OwnedFd> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let named = openat(above, name, OFlags::PATH | flags, Mode::empty())?;
        // The descriptor's own path cannot lead to another file. If chmod fails, opening fails too.
        let own = format!("/proc/self/fd/{}", named.as_raw_fd());
        let _ = chmod(own, Mode::RWXU);
        Ok(openat(&named, ".", OFlags::RDONLY | flags, Mode::empty())?)
    }

    /// Removes the entries of a folder, after moving the folders of each subfolder up into it.
    /// Returns whether the folder had entries.
    pub(super) fn pass(top: &OwnedFd) -> io::Result<bool> {
        let names = names(top)?;
        for name in &names {
            if is_removed(top, name)? {
                continue;
            }
            let name = OsStr::from_bytes(name.as_bytes());
            let folder = enter(top, name)?;
            for inner in self::names(&folder)? {
                if is_removed(&folder, &inner)? {
                    continue;
                }
                let inner = OsStr::from_bytes(inner.as_bytes());
                // Moving a folder changes its `..`, which needs permission to write to it.
                drop(enter(&folder, inner)?);
                let fresh = uuid::Uuid::new_v4().simple().to_string();
                renameat(&folder, inner, top, fresh)?;
            }
            unlinkat(top, name, AtFlags::REMOVEDIR)?;
        }
        Ok(!names.is_empty())
    }

    fn is_removed(folder: &OwnedFd, name: &CString) -> io::Result<bool> {
        match unlinkat(folder, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::ISDIR | Errno::PERM) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn names(folder: &OwnedFd) -> io::Result<Vec<CString>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(folder)? {
            let name = entry?.file_name().to_owned();
            if !matches!(name.as_bytes(), b"." | b"..") {
                found.push(name);
            }
        }
        Ok(found)
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn links_are_not_followed_and_closed_folders_go() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::create_dir_all(at("top/closed/inner/deep")).unwrap();
        std::fs::create_dir(at("kept")).unwrap();
        std::fs::write(at("kept/file"), "text").unwrap();
        for (target, link) in [
            ("kept", "top/one"),
            ("kept", "top/closed/two"),
            ("kept", "link"),
        ] {
            symlink(at(target), at(link)).unwrap();
        }
        for folder in [
            "top/closed/inner/deep",
            "top/closed/inner",
            "top/closed",
            "top",
        ] {
            let none = std::fs::Permissions::from_mode(0o0);
            std::fs::set_permissions(at(folder), none).unwrap();
        }
        remove_tree(&at("top")).unwrap();
        remove_tree(&at("link")).unwrap();
        remove_tree(&at("nothing")).unwrap();
        remove_tree(&at("nothing/at/all")).unwrap();
        assert!(!at("top").exists() && !at("link").is_symlink());
        assert_eq!(std::fs::read(at("kept/file")).unwrap(), b"text");
    }

    #[test]
    fn a_depth_beyond_every_path_goes() {
        use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
        let temp = tempfile::tempdir().unwrap();
        let top = temp.path().join("top");
        std::fs::create_dir(&top).unwrap();
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut at = openat(CWD, &top, flags, Mode::empty()).unwrap();
        // More levels than a process may have descriptors, and than a path can name.
        for _ in 0..5000 {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            at = openat(&at, "d", flags, Mode::empty()).unwrap();
        }
        remove_tree(&top).unwrap();
        assert!(!top.exists());
    }
}
