//! Outputs in files: data that no text shows, and texts that were cut.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::editing::export::Export;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{MimeBytes, MimeData};

/// Writes outputs of a notebook to files, and names these relative to a folder.
#[derive(Debug)]
pub(crate) struct OutputFiles<'a> {
    export: Export<'a>,
    working_dir: &'a Path,
    /// The error that kept an output from being written.
    pub problem: Option<io::Error>,
}

impl<'a> OutputFiles<'a> {
    pub(crate) fn of(file: &'a NotebookFile, working_dir: &'a Path) -> Self {
        Self {
            export: Export::of(file),
            working_dir,
            problem: None,
        }
    }

    /// Writes one form of an output of the notebook, and returns its path.
    pub(super) fn write(
        &mut self,
        cell: &str,
        index: usize,
        ending: &str,
        bytes: &[u8],
    ) -> Option<PathBuf> {
        self.write_named(cell, &index.to_string(), ending, bytes)
    }

    /// Writes data of a run, and returns a note with its type, size and path. The file is named for its content:
    /// a later output does not replace it.
    pub(super) fn note(&mut self, cell: &str, mime: &str, value: &Value) -> String {
        let data = MimeBytes::of_value(mime, value);
        let name = hex::encode(Sha256::digest(&data.bytes));
        let name = name.get(..8).unwrap_or_default();
        let form = MimeData::of_value(mime, value);
        match self.write_named(cell, name, &data.ending, &data.bytes) {
            Some(path) => format!("[{form}: {}]", path.display()),
            None => format!("[{form}]"),
        }
    }

    fn write_named(
        &mut self,
        cell: &str,
        output: &str,
        ending: &str,
        bytes: &[u8],
    ) -> Option<PathBuf> {
        match self.export.write(cell, output, ending, bytes) {
            Ok(path) => Some(match path.strip_prefix(self.working_dir) {
                Ok(below) => below.to_owned(),
                Err(_) => path,
            }),
            Err(error) => {
                self.problem.get_or_insert(error);
                None
            }
        }
    }
}
