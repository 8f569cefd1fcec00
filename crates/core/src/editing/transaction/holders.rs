//! The processes that have a file open for writing.
//!
//! An editor that writes in place may have opened the file before it was swapped out, and then writes
//! into the swapped-out file. A lease would report this at once (`fcntl(F_SETLEASE)`), but no crate
//! offers one without `unsafe`. So this reads the list of open files of every process, which takes a
//! few milliseconds. Processes of other users, and those outside of a container, are not seen; what
//! they have written before the check is found all the same.

use std::fs::Metadata;

/// An open file of a process.
#[derive(Debug)]
pub(super) struct Holder {
    #[cfg(target_os = "linux")]
    path: String,
}

#[cfg(target_os = "linux")]
impl Holder {
    /// Returns a process that has the file open for writing.
    pub(super) fn of(file: &Metadata) -> Option<Self> {
        let processes = std::fs::read_dir("/proc").ok()?;
        let processes = processes.flatten().filter_map(|entry| {
            let name = entry.file_name();
            let pid = name.to_str()?;
            pid.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| pid.to_owned())
        });
        processes
            .into_iter()
            .find_map(|pid| Self::in_process(&pid, file))
    }

    /// Searches the open files of one process.
    fn in_process(pid: &str, file: &Metadata) -> Option<Self> {
        use rustix::fs::{AtFlags, Dir, Mode, OFlags, open, statat};
        use rustix::io::Errno;
        use std::os::unix::fs::MetadataExt;
        let folder = format!("/proc/{pid}/fd");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // The call fails if the process is another user's or has ended.
        let fds = open(&folder, flags, Mode::empty()).ok()?;
        for entry in Dir::read_from(&fds).ok()?.flatten() {
            let name = entry.file_name();
            if name.to_bytes().starts_with(b".") {
                continue;
            }
            match statat(&fds, name, AtFlags::empty()) {
                Ok(found) if (found.st_dev, found.st_ino) == (file.dev(), file.ino()) => {
                    let path = format!("{folder}/{}", name.to_string_lossy());
                    let holder = Self { path };
                    if holder.is_open_for_writing(file) {
                        return Some(holder);
                    }
                }
                // This process does not let us read any of its files.
                Err(Errno::ACCESS) => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns whether the process still has the file open for writing.
    pub(super) fn is_open_for_writing(&self, file: &Metadata) -> bool {
        use std::os::unix::fs::MetadataExt;
        // The link's own mode shows how the file was opened: `l-wx` or `lrwx`.
        let writes =
            std::fs::symlink_metadata(&self.path).is_ok_and(|link| link.mode() & 0o200 != 0);
        let found = std::fs::metadata(&self.path);
        writes && found.is_ok_and(|found| (found.dev(), found.ino()) == (file.dev(), file.ino()))
    }

    /// Returns the process's id and name.
    pub(super) fn name(&self) -> String {
        let pid = self.path.split('/').nth(2).unwrap_or_default();
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("process {pid} ({})", name.trim())
    }
}

#[cfg(not(target_os = "linux"))]
impl Holder {
    /// Returns no name.
    pub(super) fn name(&self) -> String {
        String::new()
    }

    /// Returns none: on this platform only a program (`lsof`) lists the open files.
    pub(super) fn of(_: &Metadata) -> Option<Self> {
        None
    }

    /// Returns whether the process still has the file open for writing.
    pub(super) fn is_open_for_writing(&self, _: &Metadata) -> bool {
        false
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::{File, OpenOptions};

    use super::*;

    #[test]
    fn a_writer_is_found_and_a_reader_is_none() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("t");
        std::fs::write(&path, "text").unwrap();
        let reader = File::open(&path).unwrap();
        let found = reader.metadata().unwrap();
        assert!(Holder::of(&found).is_none());
        let writer = OpenOptions::new().append(true).open(&path).unwrap();
        std::fs::rename(&path, temp.path().join("elsewhere")).unwrap();
        let holder = Holder::of(&found).expect("it is open");
        assert!(holder.is_open_for_writing(&found));
        let pid = std::process::id();
        assert!(holder.name().starts_with(&format!("process {pid} (")));
        drop(writer);
        assert!(!holder.is_open_for_writing(&found));
        assert!(Holder::of(&found).is_none());
    }
}
