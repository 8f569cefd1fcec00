//! The programs that installed kernelspecs start, at fixed paths: a copy of `nb-proxy`, and a link to `nb`.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::planned_file::make_folder;
use crate::kernel::environment::trust;
use crate::kernel::process::{own_path, own_program};
use crate::kernel::programs::{NB, version_of};
use crate::kernel::spec::{self, PROXY};
use crate::kernel::variables::{NoHome, Variables, own_data_dir};

/// Returns the path of the `nb-proxy` that installed kernelspecs start.
pub(super) fn proxy_path(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join("bin").join(PROXY))
}

/// Returns the path of the link to `nb`, beside the installed `nb-proxy`.
pub(super) fn link_path(variables: &dyn Variables) -> Result<PathBuf, NoHome> {
    Ok(own_data_dir(variables)?.join("bin").join(NB))
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
    if std::fs::read(path).is_ok_and(|old| old == content) {
        return Ok(false);
    }
    let mut staged = staged(path, 0o644)?;
    staged.write_all(content)?;
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// Takes the right to write the program's folder, and the one above it, which are this user's own, from others: earlier
/// versions made them with the rights that the umask left.
fn close(program: &Path) {
    let user = rustix::process::geteuid().as_raw();
    for folder in program.ancestors().skip(1).take(2) {
        let Ok(metadata) = folder.symlink_metadata() else {
            continue;
        };
        let mode = metadata.permissions().mode();
        if metadata.is_dir() && metadata.uid() == user && mode & 0o022 != 0 {
            let closed = std::fs::Permissions::from_mode(mode & 0o7755);
            let _ = std::fs::set_permissions(folder, closed);
        }
    }
}

/// Copies `nb-proxy` to `path` unless the same program or a later version is already there; returns whether
/// it was copied.
pub(super) fn install_proxy(path: &Path) -> io::Result<bool> {
    close(path);
    if !differs(path).unwrap_or(true) || is_later(path, PROXY) {
        return Ok(false);
    }
    let mut source = File::open(proxy_source()?)?;
    let mut staged = staged(path, 0o755)?;
    io::copy(&mut source, staged.as_file_mut())?;
    let modified = source.metadata()?.modified()?;
    staged.as_file().set_modified(modified)?;
    staged.as_file().sync_all()?;
    // A front end may be running the old file: its process keeps it, and the path gets the new one.
    staged.persist(path).map_err(|error| error.error)?;
    Ok(true)
}

/// Returns the file that is installed as `nb-proxy`: the one beside this program. `cargo run` builds this program alone,
/// which is then installed in its place: it acts as `nb-proxy` under that name.
fn proxy_source() -> io::Result<PathBuf> {
    let beside = own_path()?.with_file_name(PROXY);
    match beside.is_file() && trust::check_program(&beside).is_ok() {
        true => Ok(beside),
        false => own_program().map(PathBuf::from),
    }
}

/// Makes a link to this program, unless the one that is there leads to a later version.
pub(super) fn link_own(path: &Path) -> io::Result<()> {
    close(path);
    let own = own_path()?;
    if std::fs::read_link(path).is_ok_and(|target| target == own) || is_later(path, NB) {
        return Ok(());
    }
    let link = tempfile::Builder::new()
        .prefix(STAGED)
        .make_in(made_folder(path)?, |link| symlink(&own, link))?;
    link.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// Says whether a version is later than this program's.
pub(super) fn is_later_version(version: &str) -> bool {
    let numbers = |version: &str| -> Vec<u64> {
        let parts = version.split(['.', '-', '+']).take(3);
        parts.map_while(|part| part.parse().ok()).collect()
    };
    numbers(version) > numbers(env!("CARGO_PKG_VERSION"))
}

/// Says whether the program at `path` has this name and is of a later version. Two versions of `nb` that are used by
/// turns would else replace each other's.
fn is_later(path: &Path, name: &str) -> bool {
    version_of(path, name).is_some_and(|version| is_later_version(&version))
}

/// The beginning of the name that a file has before it is complete.
const STAGED: &str = ".nb-";

/// Makes the folder of a file, and returns it.
fn made_folder(path: &Path) -> io::Result<&Path> {
    let folder = path
        .parent()
        .ok_or_else(|| io::Error::other("it has no folder"))?;
    make_folder(folder)?;
    Ok(folder)
}

fn staged(path: &Path, mode: u32) -> io::Result<tempfile::NamedTempFile> {
    let staged = tempfile::Builder::new()
        .prefix(STAGED)
        .tempfile_in(made_folder(path)?)?;
    staged
        .as_file()
        .set_permissions(std::fs::Permissions::from_mode(mode))?;
    Ok(staged)
}

/// Says whether the installed `nb-proxy` is another program than the one that would be installed, of no later version.
pub(super) fn is_outdated(path: &Path) -> io::Result<bool> {
    Ok(differs(path)? && !is_later(path, PROXY))
}

/// Says whether the program at `path` differs from the one that would be installed there.
///
/// The copy has the original's modification time, so in most cases the metadata are enough.
fn differs(path: &Path) -> io::Result<bool> {
    let (mut source, mut copy) = (File::open(proxy_source()?)?, File::open(path)?);
    let (one, two) = (source.metadata()?, copy.metadata()?);
    if one.len() != two.len() || two.permissions().mode() & 0o111 == 0 {
        return Ok(true);
    }
    if one.modified()? == two.modified()? {
        return Ok(false);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    source.read_to_end(&mut left)?;
    copy.read_to_end(&mut right)?;
    Ok(left != right)
}
