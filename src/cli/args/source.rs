//! The text of a cell, from the command line, from stdin or from a file.
//!
//! The text is taken literally: `\n` in an argument stays two characters. A text file ends with a newline
//! and a cell does not, so one final newline of stdin or a file is removed, and also a byte order mark at
//! the beginning of a file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::api::problem::{Problem, ProblemKind};

/// Where the text comes from, unless it is one of the words.
#[derive(Args, Debug, Default)]
pub(crate) struct Source {
    /// The text, as it is: `\n` stays two characters; `-` reads stdin
    #[arg(
        short = 's',
        long,
        value_name = "TEXT",
        allow_hyphen_values = true,
        conflicts_with = "file"
    )]
    source: Option<String>,
    /// Read the text from a file; its last newline is left out, as with stdin
    #[arg(long, value_name = "PATH")]
    file: Option<PathBuf>,
}

impl Source {
    /// Says whether an option gives the text. No word is then expected to be the text.
    pub(crate) fn is_given(&self) -> bool {
        self.source.is_some() || self.file.is_some()
    }

    /// Returns the text of an option, else of the word; `None` if there is neither.
    pub(crate) fn read(&self, word: Option<&str>) -> Result<Option<String>, Problem> {
        if let Some(path) = &self.file {
            return match path.as_os_str() == "-" {
                true => stdin().map(Some),
                false => file(path).map(Some),
            };
        }
        match self.source.as_deref().or(word) {
            Some("-") => stdin().map(Some),
            text => Ok(text.map(str::to_owned)),
        }
    }
}

/// Reads a text from stdin.
pub(crate) fn stdin() -> Result<String, Problem> {
    let mut bytes = Vec::new();
    std::io::stdin()
        .read_to_end(&mut bytes)
        .map_err(|error| Problem::failed("read stdin", &error))?;
    text(bytes, "stdin")
}

/// Reads a text from a file.
pub(crate) fn file(path: &Path) -> Result<String, Problem> {
    let name = path.display();
    let bytes = std::fs::read(path)
        .map_err(|error| Problem::failed(&format!("read the text from {name}"), &error))?;
    text(bytes, &name.to_string())
}

/// Returns the text in a file's bytes, without a byte order mark and the final newline.
fn text(bytes: Vec<u8>, from: &str) -> Result<String, Problem> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let before = error.as_bytes().get(..at).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let message = format!("{from} is not UTF-8: line {line}, byte {at}");
        Problem::new(ProblemKind::Failed, message)
            .hint("iconv -f ENCODING -t UTF-8 makes it UTF-8; `file` guesses the encoding")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = match text.strip_suffix('\n') {
        Some(text) => text.strip_suffix('\r').unwrap_or(text),
        None => text,
    };
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_belongs_to_a_file_is_no_part_of_a_cell() {
        let read = |bytes: &[u8]| text(bytes.to_vec(), "a.py").unwrap();
        assert_eq!(read(b"x = 1\n"), "x = 1");
        assert_eq!(read(b"x = 1\r\n"), "x = 1");
        assert_eq!(read(b"\xef\xbb\xbfx\n\n"), "x\n");
        assert_eq!(read(b"a\\nb\rc"), "a\\nb\rc");
        assert_eq!(read(b""), "");
    }
}
