//! Reads files that another person may have put into a folder.
//!
//! A pipe or a device in place of the file would block the reader for ever, and a huge file would fill the
//! memory.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The maximum length; settings files of environments and projects are shorter.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Returns the bytes of a regular file; fails if it is too long.
pub(super) fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_within(path, FILE_BYTES_MAX)
}

/// Returns the bytes of a regular file that has at most `longest` bytes.
pub(super) fn read_within(path: &Path, longest: u64) -> io::Result<Vec<u8>> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let irregular = || refused("it is not a regular file");
    // Checked before it is opened, because opening a device may already have an effect; and again afterwards,
    // because it may have been replaced.
    if !std::fs::metadata(path)?.is_file() {
        return Err(irregular());
    }
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).map_err(io::Error::other)?;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(irregular());
    }
    let mut bytes = Vec::new();
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(refused("it is too long"));
    }
    Ok(bytes)
}

/// Returns the text of a regular file, like [`read`].
pub(super) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_a_device_and_a_huge_file_are_refused_at_once() {
        let temp = tempfile::tempdir().unwrap();
        let at = |name: &str| temp.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_text(&at(name)).unwrap(), "text");
        }
        let made = std::process::Command::new("mkfifo")
            .arg(at("pipe"))
            .status();
        assert!(made.unwrap().success());
        std::os::unix::fs::symlink("/dev/zero", at("device")).unwrap();
        std::fs::File::create(at("huge"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        for name in ["pipe", "device", "huge", "none"] {
            assert!(read_text(&at(name)).is_err(), "{name}");
        }
    }
}
