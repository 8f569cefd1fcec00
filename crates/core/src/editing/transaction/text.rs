//! Reads, writes and compares a notebook's bytes without copying them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSlice, Read, Write};

use crate::editing::content;
use crate::notebook::Document;

/// How many bytes are read at a time.
const READ_BYTES: usize = 1 << 18;

/// About how many bytes are written at a time.
const WRITE_BYTES: usize = 8 << 20;

/// Returns whether a file has the bytes of a notebook.
pub(super) fn is_in(file: &File, document: &Document) -> io::Result<bool> {
    let length: usize = document.chunks().map(<[u8]>::len).sum();
    if file.metadata()?.len() != length as u64 {
        return Ok(false);
    }
    let mut file = BufReader::with_capacity(READ_BYTES, rewound(file)?);
    for mut chunk in document.chunks() {
        while !chunk.is_empty() {
            let bytes = file.fill_buf()?;
            let common = bytes.len().min(chunk.len());
            if common == 0 || bytes.get(..common) != chunk.get(..common) {
                return Ok(false);
            }
            chunk = chunk.get(common..).unwrap_or_default();
            file.consume(common);
        }
    }
    Ok(file.fill_buf()?.is_empty())
}

/// Reads all bytes of an open file.
pub(super) fn read(file: &File) -> io::Result<Vec<u8>> {
    content::check_size(file)?;
    let mut text = Vec::new();
    rewound(file)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Writes a notebook's bytes.
pub(super) fn write(file: &File, document: &Document) -> io::Result<()> {
    write_then(file, document, |_, _| {})
}

/// Writes a notebook's bytes. For a large notebook the system starts to write the first bytes to the disk
/// before the last ones are written to the file.
pub(super) fn write_to_disk(file: &File, document: &Document) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    let begin = |from: u64, length: u64| {
        // Among the calls without `unsafe` only this one starts the writing without waiting. Bytes that
        // are not on the disk yet stay in memory.
        let advice = rustix::fs::Advice::DontNeed;
        let _ = rustix::fs::fadvise(file, from, std::num::NonZeroU64::new(length), advice);
    };
    #[cfg(not(target_os = "linux"))]
    let begin = |_, _| {};
    write_then(file, document, begin)
}

/// Writes a notebook's bytes; calls `then` after each part but the last, with the part's offset and
/// length.
fn write_then(
    mut file: &File,
    document: &Document,
    after_part: impl Fn(u64, u64),
) -> io::Result<()> {
    // Each cell has two chunks: a system call for each chunk would be thousands.
    let mut chunks: Vec<_> = document.chunks().map(IoSlice::new).collect();
    let mut rest = chunks.as_mut_slice();
    IoSlice::advance_slices(&mut rest, 0);
    let (mut written, mut begun) = (0, 0);
    while !rest.is_empty() {
        let mut length = 0;
        let count = rest.iter().take_while(|chunk| {
            let fits = length < WRITE_BYTES;
            length += chunk.len();
            fits
        });
        let count = count.count();
        match file.write_vectored(rest.get(..count).unwrap_or_default()) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => {
                written += count as u64;
                IoSlice::advance_slices(&mut rest, count);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if written - begun >= WRITE_BYTES as u64 && !rest.is_empty() {
            after_part(begun, written - begun);
            begun = written;
        }
    }
    Ok(())
}

fn rewound(mut file: &File) -> io::Result<&File> {
    io::Seek::rewind(&mut file)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_compared_across_the_parts() {
        let text = |source: &str| {
            let cells = format!("[{{\"cell_type\":\"raw\",\"source\":\"{source}\"}}]");
            Document::parse(format!("{{\"cells\":{cells},\"nbformat\":4}}")).unwrap()
        };
        let (a, b) = (text("one"), text("two"));
        assert!(a.has_same_bytes(&a.clone()) && a.has_same_bytes(&text("one")));
        assert!(!a.has_same_bytes(&b) && !a.has_same_bytes(&text("longer")));
        let file = tempfile::tempfile().unwrap();
        write(&file, &a).unwrap();
        assert!(is_in(&file, &a).unwrap() && is_in(&file, &a).unwrap());
        assert!(!is_in(&file, &b).unwrap() && !is_in(&file, &text("longer")).unwrap());
        assert_eq!(read(&file).unwrap(), a.to_bytes());
        write(&file, &a).unwrap();
        assert!(!is_in(&file, &a).unwrap(), "it is there twice");
    }
}
