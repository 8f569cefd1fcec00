//! A new notebook file.

use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use super::touch;
use crate::editing::file_stamp::FileStamp;
use crate::project::{Lock, lock_notebook};

/// How long to wait for another `nb` that makes the same notebook.
const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Makes a notebook with this text, unless the file exists; returns whether it did.
pub fn create(notebook: &Path, text: &str) -> io::Result<bool> {
    let folder = notebook
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    // Even without the lock no existing file is replaced.
    let lock: Option<Lock> = lock_notebook(notebook, LOCK_TIMEOUT).ok();
    let mut file = tempfile::Builder::new()
        .prefix(".nb-")
        // The umask applies, as for any new file of this user.
        .permissions(std::fs::Permissions::from_mode(0o666))
        .tempfile_in(folder.unwrap_or(Path::new(".")))
        .map_err(without_path)?;
    file.as_file_mut().write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    match file.persist_noclobber(notebook) {
        Ok(file) => {
            let found = file.metadata()?;
            touch::note_own(lock.as_ref(), &FileStamp::of(&found), None);
            Ok(true)
        }
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Returns the system's error without the path of the temporary file, which means nothing to a user.
fn without_path(error: io::Error) -> io::Error {
    let system = error.get_ref().and_then(|it| it.source());
    let system = system.and_then(|it| it.downcast_ref::<io::Error>());
    let code = system.and_then(io::Error::raw_os_error);
    code.map_or(error, io::Error::from_raw_os_error)
}
