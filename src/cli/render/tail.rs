//! The end of a growing text file, and what is appended to it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::cli::render::print;
use crate::project::beneath;

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Returns the last lines of a file; all of them for 0.
pub(crate) fn read(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let (_, text) = read_end(path)?;
    let text = String::from_utf8_lossy(last_lines(&text, lines));
    Ok(text.lines().map(str::to_owned).collect())
}

/// Prints the last lines of a file, and goes on with what is appended, until interrupted.
pub(crate) fn show(path: &Path, lines: usize, follow: bool) -> io::Result<()> {
    let (mut file, text) = read_end(path)?;
    print::exact(last_lines(&text, lines))?;
    let mut read = file.stream_position()?;
    let mut inode = file.metadata()?.ino();
    if !follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(LOOK);
        // A log that was rotated is another file of the same name.
        let Ok(now) = beneath::metadata(path) else {
            continue;
        };
        if now.ino() != inode || now.len() < read {
            file = beneath::open(path)?;
            (inode, read) = (now.ino(), 0);
        }
        if now.len() > read {
            file.seek(SeekFrom::Start(read))?;
            let mut text = Vec::new();
            read += file.by_ref().take(MOST).read_to_end(&mut text)? as u64;
            print::exact(&text)?;
        }
    }
}

/// Reads a log, of one that is larger than any of nb's its end.
fn read_end(path: &Path) -> io::Result<(File, Vec<u8>)> {
    let mut file = beneath::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
    let mut text = Vec::new();
    file.by_ref().take(MOST).read_to_end(&mut text)?;
    Ok((file, text))
}

/// How much of a log is read at once.
const MOST: u64 = 64 << 20;

/// Returns the end of a text that has at most so many lines; all of it for 0.
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
