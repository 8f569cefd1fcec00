//! The end of a growing text file, and what is appended to it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

/// How often a followed file is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Returns the last lines of a file; all of them for 0.
pub(super) fn read(path: &Path, lines: usize) -> io::Result<Vec<String>> {
    let text = std::fs::read(path)?;
    let text = String::from_utf8_lossy(last_lines(&text, lines));
    Ok(text.lines().map(str::to_owned).collect())
}

/// Prints the last lines of a file, and goes on with what is appended, until interrupted.
pub(super) fn show(path: &Path, lines: usize, follow: bool) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    let mut stdout = io::stdout().lock();
    stdout.write_all(last_lines(&text, lines))?;
    stdout.flush()?;
    let mut read = text.len() as u64;
    let mut inode = file.metadata()?.ino();
    if !follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(LOOK);
        // A log that was rotated is another file of the same name.
        let Ok(now) = std::fs::metadata(path) else {
            continue;
        };
        if now.ino() != inode || now.len() < read {
            file = File::open(path)?;
            (inode, read) = (now.ino(), 0);
        }
        if now.len() > read {
            file.seek(SeekFrom::Start(read))?;
            read += io::copy(&mut file, &mut stdout)?;
            stdout.flush()?;
        }
    }
}

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
