//! The first line of a file in which VS Code keeps what is not saved yet.
//!
//! The line is the address of what is edited and, after a space (which addresses have encoded), an
//! object: `file:///p/a.ipynb {"mtime":…,"ctime":…,"size":…,"etag":"…","typeId":"notebook/…"}`. The
//! rest is what a save would write. Without the line's end the file is torn: VS Code empties it
//! before it writes. Older versions wrote no object.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::Deserialize;

/// How long the line is at most: VS Code leaves the object out rather than write a longer one.
pub(super) const LINE: usize = 10_000;

/// What the first line says.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preamble {
    /// What is edited.
    pub path: PathBuf,
    /// When the file on which the edits are based was modified, in milliseconds since 1970.
    pub based_on_ms: Option<f64>,
    /// Where the content begins.
    pub content: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    mtime: Option<f64>,
}

impl Preamble {
    /// Reads the beginning of such a file; none where it is torn, or of something that is not a
    /// file of this scheme here.
    pub(super) fn read(text: &[u8], scheme: &str) -> Option<Self> {
        let start = text.get(..LINE).unwrap_or(text);
        let end = start.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(start.get(..end)?).ok()?;
        let (address, meta) = line.split_once(' ').unwrap_or((line, ""));
        // Whatever it says beside what is needed is left to VS Code.
        let meta: Meta = serde_json::from_str(meta).unwrap_or_default();
        Some(Self {
            path: path(address, scheme)?,
            based_on_ms: meta.mtime.filter(|mtime| mtime.is_finite()),
            content: end + 1,
        })
    }
}

/// Returns the path of an address. A file's is of this machine; that of a VS Code in a browser
/// names the server, which is this machine if its backups are here.
fn path(address: &str, scheme: &str) -> Option<PathBuf> {
    let rest = address.strip_prefix(scheme)?.strip_prefix("://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    if scheme == "file" && !matches!(host, "" | "localhost") {
        return None;
    }
    Some(OsString::from_vec(decoded(path)?).into())
}

/// Undoes percent-encoding; none where a sign of it is followed by something else, or the text has
/// a zero byte.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        decoded.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let mut byte = [0];
                hex::decode_to_slice(digits, &mut byte).ok()?;
                byte[0]
            }
            plain => plain,
        });
    }
    (!decoded.contains(&0)).then_some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Option<Preamble> {
        Preamble::read(text.as_bytes(), "file")
    }

    #[test]
    fn what_vs_code_writes_is_read() {
        let text = "file:///home/ada/a%20b/%C3%A9.ipynb {\"mtime\":1730000000123,\"ctime\":1,\"size\":5,\"etag\":\"3a\",\"orphaned\":false,\"typeId\":\"notebook/jupyter-notebook/jupyter-notebook\"}\n{\n \"cells\"";
        let found = read(text).unwrap();
        assert_eq!(found.path, PathBuf::from("/home/ada/a b/é.ipynb"));
        assert_eq!(found.based_on_ms, Some(1_730_000_000_123.0));
        assert_eq!(&text[found.content..], "{\n \"cells\"");
        let old = read("file:///a.ipynb\n{}").unwrap();
        assert_eq!(
            (old.path, old.based_on_ms, old.content),
            ("/a.ipynb".into(), None, 16)
        );
        let web = b"vscode-remote://localhost%3A8080/p/a.ipynb {\"typeId\":\"\"}\n";
        let found = Preamble::read(web, "vscode-remote").unwrap();
        assert_eq!(found.path, PathBuf::from("/p/a.ipynb"));
    }

    #[test]
    fn what_is_no_file_of_this_machine_is_not_ours() {
        for text in [
            "",
            "file:///a.ipynb {\"mtime\":1}",
            "untitled:Untitled-1.ipynb {}\n",
            "file://server/share/a.ipynb {}\n",
            "file:///a%2 {}\n",
            "file:///a%zz {}\n",
            "file:///a%00 {}\n",
            "file: {}\n",
            "vscode-remote://ssh-remote%2Bhost/p/a.ipynb {}\n",
        ] {
            assert_eq!(read(text), None, "{text:?}");
        }
        let long = format!("file:///{} {{}}\n", "a".repeat(LINE));
        assert_eq!(read(&long), None);
        let odd = read("file:///a.ipynb {\"mtime\":\"soon\"}\n").unwrap();
        assert_eq!(odd.based_on_ms, None);
    }

    proptest! {
        #[test]
        fn nothing_makes_it_panic(text: Vec<u8>, tail: Vec<u8>) {
            let text = [&text, &b"file:///a%"[..], &tail, b"\n"].concat();
            let _ = Preamble::read(&text, "file");
            let _ = Preamble::read(&text[text.len() - tail.len() - 11..], "file");
        }
    }
}
