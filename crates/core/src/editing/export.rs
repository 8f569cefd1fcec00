//! Writes outputs to files for reading: images, and text that is too long to print.
//!
//! A file is named by its notebook, its cell and its output, so that a later command about the same output
//! replaces it. Their total size is bounded: the oldest are removed.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::notebook_file::NotebookFile;
use crate::project::beneath;

/// The size limit of all exported files of a project, in bytes: half the limit of `.nb/`.
const MOST_BYTES: u64 = 500_000_000;

/// The exported outputs of a notebook. On drop, the oldest files of the project are removed if the limit is
/// exceeded.
#[derive(Debug)]
pub struct Export<'a> {
    notebook: &'a NotebookFile,
    has_written: bool,
}

impl<'a> Export<'a> {
    /// Returns the exported outputs of a notebook; writes none.
    pub fn of(notebook: &'a NotebookFile) -> Self {
        Self {
            notebook,
            has_written: false,
        }
    }

    /// Writes one form of a cell's output, which has a plain name, and returns the file's path. A file with the same bytes
    /// is not written again.
    ///
    /// # Errors
    /// The output is larger than the limit of all files, or cannot be written.
    pub fn write(
        &mut self,
        cell: &str,
        output: &str,
        ending: &str,
        content: &[u8],
    ) -> io::Result<PathBuf> {
        if content.len() as u64 > MOST_BYTES {
            let words = "it has more bytes than all outputs in .nb/outputs may have";
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, words));
        }
        let (project, key) = (&self.notebook.project, &self.notebook.key);
        let folder = project.make_folder(&project.outputs_folder(key))?;
        let path = folder.join(format!("{}-{output}.{ending}", file_name(cell)));
        if is_there(&path, content) {
            // Its new time makes it the last one to be removed.
            let file = beneath::append(&path)?;
            file.set_modified(SystemTime::now())?;
            return Ok(path);
        }
        beneath::replace_unsynced(&path, content)?;
        self.has_written = true;
        Ok(path)
    }
}

impl Drop for Export<'_> {
    fn drop(&mut self) {
        if self.has_written {
            // The command succeeds even if a file cannot be removed.
            let _ = remove_oldest(&self.notebook.project.dir().join("outputs"), MOST_BYTES);
        }
    }
}

/// Returns whether a file has this content.
fn is_there(path: &Path, content: &[u8]) -> bool {
    beneath::metadata(path).is_ok_and(|found| found.len() == content.len() as u64)
        && beneath::read(path, MOST_BYTES).is_ok_and(|found| found == content)
}

/// Returns a file name for a cell's id, which may be any string.
fn file_name(id: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !id.is_empty() && id.len() <= 64 && id.chars().all(is_plain) {
        return id.to_owned();
    }
    let hash = hex::encode(Sha256::digest(id));
    format!("id-{}", hash.get(..16).unwrap_or_default())
}

/// Removes the oldest files until the rest has at most `most` bytes.
fn remove_oldest(outputs: &Path, most: u64) -> io::Result<()> {
    let mut files = Vec::new();
    for notebook in beneath::list(outputs)?.flatten() {
        for file in beneath::list(&notebook.path())
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Ok(found) = file.metadata()
                && found.is_file()
            {
                files.push((found.modified()?, found.len(), file.path()));
            }
        }
    }
    let mut bytes: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
    files.sort();
    for (_, of_file, path) in files {
        if bytes <= most {
            break;
        }
        beneath::remove_file(&path)?;
        bytes -= of_file;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use super::*;
    use crate::notebook::new_notebook;

    fn notebook(folder: &Path) -> NotebookFile {
        let notebook = folder.join("a.ipynb");
        std::fs::write(&notebook, new_notebook("p", "P", "python")).unwrap();
        NotebookFile::of(&notebook).unwrap()
    }

    #[test]
    fn a_file_is_private_and_named_for_its_output() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = notebook(temp.path());
        let written = Export::of(&notebook)
            .write("3f2c", "1", "png", b"image")
            .unwrap();
        assert_eq!(std::fs::read(&written).unwrap(), b"image");
        assert!(written.ends_with("3f2c-1.png") && written.starts_with(notebook.project.dir()));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&written), 0o600);
        assert_eq!(mode(written.parent().unwrap()), 0o700);
        let again = Export::of(&notebook)
            .write("3f2c", "1", "png", b"other")
            .unwrap();
        assert_eq!(again, written);
        assert_eq!(std::fs::read(&written).unwrap(), b"other");
    }

    #[test]
    fn no_id_leads_out_of_the_folder() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = notebook(temp.path());
        for id in ["../../evil", "a/b", "", ".", "\0", &"x".repeat(300)] {
            let written = Export::of(&notebook).write(id, "0", "txt", b"").unwrap();
            let folder = notebook.project.dir().join("outputs");
            assert_eq!(
                written.parent().unwrap().parent(),
                Some(folder.as_path()),
                "{id:?}"
            );
        }
    }

    #[test]
    fn the_oldest_go_first_and_what_is_used_is_young() {
        let temp = tempfile::tempdir().unwrap();
        let notebook = notebook(temp.path());
        let paths: Vec<_> = (0..4)
            .map(|cell| {
                let path = Export::of(&notebook)
                    .write(&format!("{cell}"), "0", "txt", b"12345")
                    .unwrap();
                let file = std::fs::File::options().append(true).open(&path).unwrap();
                let age = Duration::from_secs(100 - cell);
                file.set_modified(SystemTime::now() - age).unwrap();
                path
            })
            .collect();
        Export::of(&notebook)
            .write("0", "0", "txt", b"12345")
            .unwrap();
        remove_oldest(&notebook.project.dir().join("outputs"), 12).unwrap();
        let left: Vec<_> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(left, [true, false, false, true]);
    }
}
