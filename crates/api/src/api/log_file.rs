//! The log files of kernels and of the project's proxies: their last lines, and what is appended later.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;

use super::caller::{Caller, blocking, open_project};
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::lifecycle::target::open_one;
use crate::project::beneath;

/// How many bytes of a log are read at once.
const READ_BYTES_MAX: u64 = 64 << 20;

/// Which log file is read, and how much of it.
#[derive(Clone, Debug)]
pub struct LogFileRequest {
    /// The log file.
    pub of: LogFile,
    /// The largest number of lines, counted from the end; 0 is all.
    pub lines: usize,
}

/// A log file of a project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFile {
    /// The stdout and stderr of the notebook's kernel.
    Kernel,
    /// The log of the project's proxies: who joined and left, what failed.
    Proxies,
}

/// The end of a log file.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LogFileAnswer {
    /// The file.
    pub path: PathBuf,
    /// Its last lines.
    pub lines: Vec<String>,
}

impl Answer for LogFileAnswer {}

/// A log file that is read as it grows.
#[derive(Debug)]
pub struct GrowingLog {
    path: PathBuf,
    file: File,
    /// The offset up to which the file was read.
    read: u64,
    inode: u64,
}

/// Returns the last lines of a log file.
///
/// # Errors
/// No notebook is open, or the file cannot be read.
pub async fn log_file(caller: &Caller, request: LogFileRequest) -> Result<LogFileAnswer, Problem> {
    let (log, text) = follow_log_file(caller, request).await?;
    let text = String::from_utf8_lossy(&text);
    Ok(LogFileAnswer {
        lines: text.lines().map(str::to_owned).collect(),
        path: log.path,
    })
}

/// Returns the last lines of a log file as bytes, and the file for [`GrowingLog::more`] to read on.
///
/// # Errors
/// No notebook is open, or the file cannot be read.
pub async fn follow_log_file(
    caller: &Caller,
    request: LogFileRequest,
) -> Result<(GrowingLog, Vec<u8>), Problem> {
    let path = match request.of {
        LogFile::Kernel => {
            let target = caller.target().await?;
            target.project.kernel_log(&target.key)
        }
        LogFile::Proxies => {
            let named = caller.named();
            let from = named.as_deref().unwrap_or(&caller.working_dir);
            open_project(from, open_one())?.proxy_log()
        }
    };
    blocking(caller, move |_| {
        let opened = GrowingLog::open(path.clone(), request.lines);
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                let text = format!("nothing was written yet: there is no {}", path.display());
                Problem::new(ProblemKind::Failed, text)
            }
            _ => Problem::failed(&format!("read {}", path.display()), &error),
        })
    })
    .await
}

impl GrowingLog {
    /// Opens a log. Only the last 64 MiB of a larger file are read; `nb` keeps its own logs smaller.
    fn open(path: PathBuf, lines: usize) -> io::Result<(Self, Vec<u8>)> {
        let mut file = beneath::open(&path)?;
        let metadata = file.metadata()?;
        let mut read = metadata.len().saturating_sub(READ_BYTES_MAX);
        let text = read_on(&mut file, &mut read)?;
        let log = Self {
            path,
            file,
            read,
            inode: metadata.ino(),
        };
        let end = last_lines(&text, lines).to_vec();
        Ok((log, end))
    }

    /// Returns what was appended since the last call. A log that was rotated is a new file with the same
    /// name.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn more(&mut self) -> io::Result<Vec<u8>> {
        let Ok(now) = beneath::metadata(&self.path) else {
            return Ok(Vec::new());
        };
        if now.ino() != self.inode || now.len() < self.read {
            self.file = beneath::open(&self.path)?;
            (self.inode, self.read) = (now.ino(), 0);
        }
        match now.len() > self.read {
            true => read_on(&mut self.file, &mut self.read),
            false => Ok(Vec::new()),
        }
    }
}

/// Reads a file from an offset on, and moves the offset to the end of what was read.
fn read_on(file: &mut File, read: &mut u64) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(*read))?;
    *read += file.take(READ_BYTES_MAX).read_to_end(&mut text)? as u64;
    Ok(text)
}

/// Returns the last lines of a text, at most this many; all of it for 0.
fn last_lines(text: &[u8], lines: usize) -> &[u8] {
    if lines == 0 {
        return text;
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let newlines = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    match newlines.map(|(at, _)| at).nth(lines - 1) {
        Some(at) => text.get(at + 1..).unwrap_or_default(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\n", 5), b"a\n");
        assert_eq!(last_lines(b"a\nb\n", 0), b"a\nb\n");
    }
}
