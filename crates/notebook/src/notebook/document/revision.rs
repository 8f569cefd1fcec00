//! Revisions: short hashes of a cell's or a notebook's content.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};

use crate::notebook::json::{Object, digest};

/// The first 40 bits of a hash, written as ten hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Revision(#[cfg_attr(feature = "schema", schemars(with = "String"))] [u8; 5]);

/// The metadata fields that front ends write into a cell when it runs: the times of JupyterLab and VS Code,
/// and the fields of the classic notebook, papermill and Colab.
pub(in crate::notebook) const EXECUTION_KEYS: [&str; 4] =
    ["execution", "ExecuteTime", "papermill", "executionInfo"];

impl Revision {
    /// Returns the revision of a notebook with these cells.
    pub fn of_cells<'a>(cells: impl IntoIterator<Item = (&'a str, Self)>) -> Self {
        // Hashing many small parts takes longer than joining them first.
        let mut text = b"notebook".to_vec();
        for (id, revision) in cells {
            text.extend_from_slice(id.as_bytes());
            text.push(0);
            text.extend_from_slice(&revision.0);
        }
        Self::of(Sha256::new_with_prefix(text))
    }

    /// Returns the revision's ten hexadecimal digits.
    pub fn digits(self) -> [u8; 10] {
        let mut digits = [0; 10];
        // The array has two digits for each byte, so encoding cannot fail.
        let _ = hex::encode_to_slice(self.0, &mut digits);
        digits
    }

    pub(super) fn of(hash: Sha256) -> Self {
        let whole: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, ..] = whole;
        Self([a, b, c, d, e])
    }
}

/// Hashes metadata without the fields that front ends write when a cell runs.
pub(in crate::notebook) fn metadata_digest(raw: &[u8]) -> [u8; 32] {
    let Some(object) = Object::read(raw).filter(|object| !object.fields.is_empty()) else {
        return digest(raw);
    };
    let mut rest = Cow::Borrowed(raw);
    for key in EXECUTION_KEYS {
        if object.get(raw, key).is_some()
            && let Some(object) = Object::read(&rest)
        {
            rest = Cow::Owned(object.remove(&rest, key));
        }
    }
    digest(&rest)
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.digits();
        f.write_str(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
    }
}

/// The error for a text that is not a revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a revision: {0:?}; one has ten hexadecimal digits")]
pub struct RevisionParseError(pub String);

impl FromStr for Revision {
    type Err = RevisionParseError;

    fn from_str(text: &str) -> Result<Self, RevisionParseError> {
        let mut bytes = [0; 5];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| RevisionParseError(text.to_owned()))?;
        Ok(Self(bytes))
    }
}

impl serde::Serialize for Revision {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Revision {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::Document;

    fn revision(cell: &str) -> Revision {
        let text = format!("{{\"cells\":[{cell}],\"metadata\":{{}},\"nbformat\":4}}");
        Document::parse(text).unwrap().cells()[0].revision()
    }

    #[test]
    fn running_and_rewriting_a_cell_is_no_new_revision() {
        let first = revision(
            r#"{"cell_type":"code","id":"a","source":"x\ny","metadata":{"tags":["t"]},"outputs":[],"execution_count":null}"#,
        );
        for same in [
            r#"{"source":["x\n","y"],"metadata":{"papermill":{},"execution":{"a":1},"tags":["t"]},"id":"b","cell_type":"code","outputs":[{}],"execution_count":4,"attachments":{}}"#,
            r#"{"cell_type":"code","source":["\u0078\n","y"],"metadata":{"\u0074ags":[ "t" ]}}"#,
        ] {
            assert_eq!(revision(same), first);
        }
        for other in [
            r#"{"cell_type":"raw","source":"x\ny","metadata":{"tags":["t"]}}"#,
            r#"{"cell_type":"code","source":"x\ny\n","metadata":{"tags":["t"]}}"#,
            r#"{"cell_type":"code","source":"x\ny","metadata":{"tags":[]}}"#,
            r#"{"cell_type":"code","source":"x\ny","metadata":{"tags":["t"]},"attachments":{"a":{}}}"#,
        ] {
            assert_ne!(revision(other), first);
        }
        assert_eq!(first.to_string().parse(), Ok(first));
        assert!("12".parse::<Revision>().is_err());
    }
}
