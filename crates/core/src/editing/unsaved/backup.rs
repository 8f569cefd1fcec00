//! The first line of a backup file, in which VS Code stores unsaved text.
//!
//! The line is the URI of the edited file and, after a space (URIs contain none), an object:
//! `file:///p/a.ipynb {"mtime":…,"ctime":…,"size":…,"etag":"…","typeId":"notebook/…"}`. The rest is the
//! text that a save would write. A file whose first line has no end is torn: VS Code empties the file
//! before it writes. Older versions wrote no object.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use serde::Deserialize;

/// The longest line, in bytes: VS Code omits the object rather than write a longer one.
pub(super) const LINE: usize = 10_000;

/// The first line of a backup.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Preamble {
    /// The file that is edited.
    pub path: PathBuf,
    /// When the file on which the edits are based was modified, in milliseconds since 1970.
    pub based_on_ms: Option<f64>,
    /// The offset of the content, in bytes.
    pub content: usize,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Meta {
    mtime: Option<f64>,
}

impl Preamble {
    /// Parses the beginning of a backup; `None` if it is torn, or its URI is not that of a local file with
    /// this scheme.
    pub(super) fn read(text: &[u8], scheme: &str) -> Option<Self> {
        let start = text.get(..LINE).unwrap_or(text);
        let end = start.iter().position(|byte| *byte == b'\n')?;
        let line = std::str::from_utf8(start.get(..end)?).ok()?;
        let (address, meta) = line.split_once(' ').unwrap_or((line, ""));
        // VS Code may add fields, and change the types of others.
        let meta: Meta = serde_json::from_str(meta).unwrap_or_default();
        Some(Self {
            path: path(address, scheme)?,
            based_on_ms: meta.mtime.filter(|mtime| mtime.is_finite()),
            content: end + 1,
        })
    }
}

/// Returns the path of a URI. A `file` URI must be of this machine. The URI of a VS Code in a
/// browser names the server, which is this machine, since its backups are here.
fn path(address: &str, scheme: &str) -> Option<PathBuf> {
    let rest = address.strip_prefix(scheme)?.strip_prefix("://")?;
    let (host, path) = rest.split_at(rest.find('/')?);
    if scheme == "file" && !matches!(host, "" | "localhost") {
        return None;
    }
    Some(OsString::from_vec(decoded(path)?).into())
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two digits, or the text has a zero
/// byte.
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
    fn backups_of_vs_code_are_read() {
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
    fn a_backup_of_no_local_file_is_ignored() {
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
