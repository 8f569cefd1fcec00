//! The program that installed kernelspecs start: a copy of this program at a fixed path.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::kernel::process::own_program;
use crate::kernel::spec::{self, PROXY};
use crate::kernel::variables::{NoHome, Variables, own_data_dir};

/// Returns the path of the program that installed kernelspecs start.
pub(super) fn proxy_path(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join("bin").join(PROXY))
}

/// The name of the kernelspec of chats.
pub(super) const CHAT: &str = "nb-chat";

/// The argument by which the program becomes a chat's kernel.
pub const CHAT_WORD: &str = "chat-kernel";

/// Returns whether a folder of kernelspecs has that of chats.
pub(super) fn has_chat(kernels: &Path) -> bool {
    starts_chat(&kernels.join(CHAT))
}

/// Returns whether a kernelspec starts the kernel of a chat.
pub(super) fn starts_chat(folder: &Path) -> bool {
    let spec = spec::read(folder);
    spec.is_ok_and(|spec| spec.argv.get(1).is_some_and(|word| word == CHAT_WORD))
}

/// Writes a file unless it has this content already; returns whether it was written.
pub(super) fn install_file(path: &Path, content: &[u8]) -> io::Result<bool> {
    if std::fs::read(path).is_ok_and(|found| found == content) {
        return Ok(false);
    }
    let mut staged = staged(path, 0o644)?;
    staged.write_all(content)?;
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// Copies this program to `path` unless the same program is already there; returns whether it was
/// copied.
pub(super) fn install_program(path: &Path) -> io::Result<bool> {
    if !differs(path).unwrap_or(true) {
        return Ok(false);
    }
    let mut own = File::open(own_program()?)?;
    let mut staged = staged(path, 0o755)?;
    io::copy(&mut own, staged.as_file_mut())?;
    staged.as_file().set_modified(own.metadata()?.modified()?)?;
    staged.as_file().sync_all()?;
    // A front end may be running the old file: its process keeps it, and the path gets the new one.
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

fn staged(path: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let folder = path
        .parent()
        .ok_or_else(|| io::Error::other("it has no folder"))?;
    std::fs::create_dir_all(folder)?;
    let staged = tempfile::Builder::new()
        .prefix(".nb-")
        .tempfile_in(folder)?;
    staged
        .as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(staged)
}

/// Says whether the program at `path` differs from this one.
///
/// The copy has the original's modification time, so in most cases the metadata are enough.
pub(super) fn differs(path: &Path) -> io::Result<bool> {
    let own_path: OsString = own_program()?;
    let (mut own, mut copy) = (File::open(own_path)?, File::open(path)?);
    let (one, two) = (own.metadata()?, copy.metadata()?);
    if one.len() != two.len() || two.permissions().mode() & 0o111 == 0 {
        return Ok(true);
    }
    if one.modified()? == two.modified()? {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    own.read_to_end(&mut left)?;
    copy.read_to_end(&mut right)?;
    Ok(left != right)
}
