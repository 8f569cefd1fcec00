//! Comparing notebooks' bytes without a copy of them.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};

use crate::notebook::Document;

/// How much is read or written at a time.
const PART: usize = 1 << 18;

/// Whether two notebooks have the same bytes.
pub(super) fn same(a: &Document, b: &Document) -> bool {
    let length = |document: &Document| document.chunks().map(<[u8]>::len).sum::<usize>();
    if length(a) != length(b) {
        return false;
    }
    let (mut left, mut right) = (a.chunks(), b.chunks());
    let (mut a, mut b): (&[u8], &[u8]) = (&[], &[]);
    loop {
        while a.is_empty() {
            match left.next() {
                Some(next) => a = next,
                // As long as the other.
                None => return true,
            }
        }
        while b.is_empty() {
            match right.next() {
                Some(next) => b = next,
                None => return true,
            }
        }
        let both = a.len().min(b.len());
        let ((a_now, a_rest), (b_now, b_rest)) = (a.split_at(both), b.split_at(both));
        // Copies of a document share the bytes that nobody touched.
        if a_now.as_ptr() != b_now.as_ptr() && a_now != b_now {
            return false;
        }
        (a, b) = (a_rest, b_rest);
    }
}

/// Whether a file has the bytes of a notebook; it is read from its beginning.
pub(super) fn is_in(file: &File, document: &Document) -> io::Result<bool> {
    let length: usize = document.chunks().map(<[u8]>::len).sum();
    if file.metadata()?.len() != length as u64 {
        return Ok(false);
    }
    let mut file = BufReader::with_capacity(PART, rewound(file)?);
    for mut chunk in document.chunks() {
        while !chunk.is_empty() {
            let there = file.fill_buf()?;
            let both = there.len().min(chunk.len());
            if both == 0 || there.get(..both) != chunk.get(..both) {
                return Ok(false);
            }
            chunk = chunk.get(both..).unwrap_or_default();
            file.consume(both);
        }
    }
    Ok(file.fill_buf()?.is_empty())
}

/// Reads all of a file that is open.
pub(super) fn read(file: &File) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    rewound(file)?.read_to_end(&mut text)?;
    Ok(text)
}

/// Writes a notebook's bytes.
pub(super) fn write(file: &File, document: &Document) -> io::Result<()> {
    // A cell is two chunks: a system call for each would be thousands.
    let mut file = io::BufWriter::with_capacity(PART, file);
    for chunk in document.chunks() {
        file.write_all(chunk)?;
    }
    file.flush()
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
        assert!(same(&a, &a.clone()) && same(&a, &text("one")));
        assert!(!same(&a, &b) && !same(&a, &text("longer")));
        let file = tempfile::tempfile().unwrap();
        write(&file, &a).unwrap();
        assert!(is_in(&file, &a).unwrap() && is_in(&file, &a).unwrap());
        assert!(!is_in(&file, &b).unwrap() && !is_in(&file, &text("longer")).unwrap());
        assert_eq!(read(&file).unwrap(), a.to_bytes());
        write(&file, &a).unwrap();
        assert!(!is_in(&file, &a).unwrap(), "it is there twice");
    }
}
