//! A notebook that did not exist.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::touch;
use crate::editing::file_stamp::FileStamp;
use crate::project::{Lock, lock_notebook};

/// How long another `nb` that makes the same notebook is waited for.
const LOCKED: Duration = Duration::from_secs(30);

/// Makes a notebook with this text; says whether it did: an existing one is left alone.
pub(crate) fn create(notebook: &Path, text: &str) -> io::Result<bool> {
    let folder = notebook
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // Where the lock cannot be had, not replacing an existing file is protection enough.
    let lock: Option<Lock> = lock_notebook(notebook, LOCKED).ok();
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        // As any new file of this user: the umask decides.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(notebook) {
        Ok(file) => {
            let found = file.metadata()?;
            touch::note(lock.as_ref(), &FileStamp::of(&found), None);
            Ok(true)
        }
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}
