//! One cell as it stands in the file.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::one_line::first_line;
use super::revision::{EXECUTION_KEYS, Revision, metadata_digest};
use super::source::{joined_strings, source_json};
use crate::notebook::json::{
    Json, Layout, Object, digest, is, items, lossy, remove_value_at, set_value_at, value_at,
};

/// The type of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CellType {
    /// Code, which runs and has outputs.
    Code,
    /// Markdown, which is shown as formatted text.
    Markdown,
    /// Text that converters pass on unchanged.
    Raw,
    /// Something that no version of the format knows.
    #[serde(skip_deserializing)]
    Unknown,
}

/// A cell of a notebook: its bytes, decoded where they are looked at.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The bytes before the cell: white space, and after another cell a comma.
    pub(in crate::notebook) before: Bytes,
    pub(in crate::notebook) text: Bytes,
    pub(in crate::notebook) object: Object,
    pub(in crate::notebook) id: String,
    /// Whether the id is in the file; otherwise `id` is a stand-in.
    pub(in crate::notebook) own_id: bool,
    /// Whether the id is from the records beside the file.
    pub(in crate::notebook) recorded_id: bool,
    /// The revision, computed once: a listing and the history ask for it several times.
    pub(in crate::notebook) revision: OnceLock<Revision>,
}

impl Cell {
    /// Makes a cell of its bytes; `object` has the positions that a scan of the whole file found.
    pub(in crate::notebook) fn new(before: Bytes, text: Bytes, mut object: Object) -> Self {
        let start = object.span.start;
        for field in &mut object.fields {
            *field = field.moved(|at| at - start);
        }
        object.span.start = 0;
        object.span.end -= start;
        Self {
            before,
            text,
            object,
            id: String::new(),
            own_id: false,
            recorded_id: false,
            revision: OnceLock::new(),
        }
    }

    /// Replaces its bytes by those of an object.
    pub(in crate::notebook) fn rewrite(&mut self, text: Vec<u8>) {
        self.object =
            Object::read(&text).expect("a splice of a value into an object leaves an object");
        self.text = text.into();
        self.revision = OnceLock::new();
    }

    /// Sets a field to a value that is laid out already.
    pub(in crate::notebook) fn set(&mut self, name: &str, value: &[u8], layout: &Layout) {
        self.rewrite(self.object.set(&self.text, name, value, layout));
    }

    /// Removes a field.
    pub(in crate::notebook) fn unset(&mut self, name: &str) {
        self.rewrite(self.object.remove(&self.text, name));
    }

    /// Sets the source; the same one keeps its bytes, and so do lines that stay at its beginning and
    /// its end. `lists` says whether a source is a list of lines where the cell does not show it.
    pub(in crate::notebook) fn set_source(&mut self, source: &[u8], layout: &Layout, lists: bool) {
        if *self.source_bytes() != *source {
            let value = source_json(self.raw("source"), source, layout, lists);
            self.set("source", &value, layout);
        }
    }

    /// Sets a value of the metadata, or removes it.
    pub(in crate::notebook) fn set_metadata(
        &mut self,
        path: &[&str],
        value: Option<&Json>,
        layout: &Layout,
    ) {
        let text = match value {
            Some(value) => self.with_metadata(path, value, layout),
            None => self.without_metadata(path, layout),
        };
        if let Some(text) = text {
            self.rewrite(text);
        }
    }

    /// Returns a field as it is written.
    pub(in crate::notebook) fn raw(&self, name: &str) -> Option<&[u8]> {
        Some(self.object.get(&self.text, name)?.of(&self.text))
    }

    /// Returns its bytes with a field set to a value that is laid out already.
    pub(in crate::notebook) fn with(&self, name: &str, value: &[u8], layout: &Layout) -> Vec<u8> {
        self.object.set(&self.text, name, value, layout)
    }

    /// Returns its bytes with a value of the metadata set; none where it is set already.
    pub(in crate::notebook) fn with_metadata(
        &self,
        path: &[&str],
        value: &Json,
        layout: &Layout,
    ) -> Option<Vec<u8>> {
        let old = self.raw("metadata").filter(|raw| raw.starts_with(b"{"));
        let new = set_value_at(old.unwrap_or(b"{}"), path, value, &layout.deeper())?;
        Some(self.with("metadata", &new, layout))
    }

    /// Returns its bytes without a value of the metadata; none where there is none.
    pub(in crate::notebook) fn without_metadata(
        &self,
        path: &[&str],
        layout: &Layout,
    ) -> Option<Vec<u8>> {
        let new = remove_value_at(self.raw("metadata")?, path)?;
        Some(self.with("metadata", &new, layout))
    }

    /// Returns its bytes as a cell of another type: with and without what that type has.
    pub(in crate::notebook) fn as_type(&self, cell_type: CellType, layout: &Layout) -> Vec<u8> {
        let mut new = self.clone();
        let word = Json::string(cell_type.name());
        new.set("cell_type", word.bytes(), layout);
        if cell_type == CellType::Code {
            new.unset("attachments");
            for (name, value) in [("execution_count", &b"null"[..]), ("outputs", b"[]")] {
                if new.raw(name).is_none() {
                    new.set(name, value, layout);
                }
            }
        } else {
            new.unset("outputs");
            new.unset("execution_count");
            if self.cell_type() == CellType::Code
                && let Some(text) = new.without_metadata(&["execution"], layout)
            {
                new.rewrite(text);
            }
        }
        new.text.to_vec()
    }

    /// Returns its id. Where the file has none, or one that another cell has, it is the one that
    /// `Document::recall_ids` found in the records, else one made from the cell's position. Edits
    /// write no such id into the file; `Document::formatted` does.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether the id stands in the file.
    pub fn has_own_id(&self) -> bool {
        self.own_id
    }

    /// Returns what it is.
    pub fn cell_type(&self) -> CellType {
        let raw = self.raw("cell_type").unwrap_or_default();
        if is(raw, "code") {
            CellType::Code
        } else if is(raw, "markdown") || is(raw, "heading") {
            // Format 3 had headings.
            CellType::Markdown
        } else if is(raw, "raw") {
            CellType::Raw
        } else {
            CellType::Unknown
        }
    }

    /// Returns its text, the lines joined. Half a surrogate pair reads as U+FFFD, and stays in the
    /// file.
    pub fn source(&self) -> Cow<'_, str> {
        lossy(self.source_bytes())
    }

    pub(in crate::notebook) fn source_bytes(&self) -> Cow<'_, [u8]> {
        // Format 3 called the source of code its input.
        let raw = self.raw("source").or_else(|| self.raw("input"));
        joined_strings(raw.unwrap_or_default())
    }

    /// Returns the first line of its source that is not blank, of at most `limit` characters.
    pub fn first_line(&self, limit: usize) -> String {
        first_line(&self.source(), limit)
    }

    /// Returns whether its source is a list of lines; none where it is empty.
    pub(in crate::notebook) fn source_is_list(&self) -> Option<bool> {
        match self.raw("source")? {
            b"\"\"" | b"[]" => None,
            raw => Some(raw.starts_with(b"[")),
        }
    }

    /// Returns the number in its `In [ ]`.
    pub fn execution_count(&self) -> Option<u64> {
        let raw = self
            .raw("execution_count")
            .or_else(|| self.raw("prompt_number"));
        std::str::from_utf8(raw?).ok()?.parse().ok()
    }

    /// Returns its outputs, each as JSON; see [`Output`](crate::notebook::Output).
    pub fn outputs(&self) -> impl Iterator<Item = Json> {
        self.raw_outputs().into_iter().map(Json::of_valid)
    }

    pub(in crate::notebook) fn raw_outputs(&self) -> Vec<&[u8]> {
        let raw = self.raw("outputs").unwrap_or_default();
        items(raw).into_iter().map(|span| span.of(raw)).collect()
    }

    /// Returns a value of its metadata, by its keys from the outside in; no keys give the whole.
    pub fn metadata(&self, path: &[&str]) -> Option<Json> {
        value_at(self.raw("metadata")?, path)
    }
}

impl Cell {
    /// Returns its revision: a hash of type, source, attachments and metadata. Running the cell does
    /// not change it (outputs, counts and times do not count), nor does the way that the file is
    /// written, nor its id: a copy of a cell is of the same revision.
    pub fn revision(&self) -> Revision {
        *self.revision.get_or_init(|| {
            let mut hash = Sha256::new_with_prefix(b"cell");
            hash.update(self.content());
            hash.update(metadata_digest(self.raw("metadata").unwrap_or(b"{}")));
            let attachments = self.raw("attachments").filter(|raw| *raw != b"{}");
            hash.update(digest(attachments.unwrap_or(b"null")));
            Revision::of(hash)
        })
    }

    /// Hashes its type and source.
    pub(in crate::notebook) fn content(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.cell_type().name());
        hash.update(b"\0");
        hash.update(self.source_bytes());
        hash.finalize().into()
    }
}

impl Cell {
    /// Returns the cell as it stands in the file, with its outputs.
    pub fn json(&self) -> Json {
        Json::of_valid(&self.text)
    }

    /// Returns the cell without what running it has left: no outputs, no count. A cell of megabytes
    /// of pictures is as small as its source.
    pub fn version(&self) -> Json {
        let mut bare = self.clone();
        for (name, nothing) in [("outputs", &b"[]"[..]), ("execution_count", b"null")] {
            if bare.raw(name).is_some_and(|raw| raw != nothing) {
                bare.set(name, nothing, &Layout::default());
            }
        }
        Json::of_valid(&bare.text)
    }

    /// Returns whether it is the other cell untouched: the same bytes in memory, not only equal ones.
    pub fn is_untouched(&self, other: &Self) -> bool {
        self.id == other.id && self.text.as_ptr_range() == other.text.as_ptr_range()
    }

    /// Returns whether running it has left something, outputs, a count or times, that is not in the
    /// other.
    pub fn has_other_results_than(&self, other: Option<&Self>) -> bool {
        let left = |name, nothing: &[u8], other: Option<&Self>| {
            let own = self.raw(name).filter(|raw| *raw != nothing);
            own.is_some() && own != other.and_then(|other| other.raw(name))
        };
        let times = |cell: &Self| EXECUTION_KEYS.map(|key| cell.metadata(&[key]));
        let no_times = EXECUTION_KEYS.map(|_| None);
        let (own, others) = (times(self), other.map_or_else(|| no_times.clone(), times));
        left("outputs", b"[]", other)
            || left("execution_count", b"null", other)
            || (own != no_times && own != others)
    }
}

impl Json {
    /// Returns the source of a cell that was kept, the lines joined; none where it is no cell.
    pub fn cell_source(&self) -> Option<String> {
        let object = Object::read(self.bytes())?;
        let raw = object.get(self.bytes(), "source")?.of(self.bytes());
        Some(lossy(joined_strings(raw)).into_owned())
    }
}

impl CellType {
    /// Returns the word in the file.
    pub fn name(self) -> &'static str {
        match self {
            Self::Code => "code",
            Self::Markdown => "markdown",
            Self::Raw => "raw",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for CellType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a word that is no type of cells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no type of cells: {0:?}; there are code, markdown and raw")]
pub struct UnknownCellType(pub String);

impl FromStr for CellType {
    type Err = UnknownCellType;

    fn from_str(word: &str) -> Result<Self, UnknownCellType> {
        let known = [Self::Code, Self::Markdown, Self::Raw];
        let found = known.into_iter().find(|known| known.name() == word);
        found.ok_or_else(|| UnknownCellType(word.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use crate::notebook::Document;

    #[test]
    fn a_version_is_the_cell_without_what_running_left() {
        let text = r#"{"cells": [
 {"cell_type": "code", "id": "a", "outputs": [{"data": {}}], "execution_count": 3, "source": ["x"], "my": 1},
 {"cell_type": "markdown", "id": "b", "source": "y"}]}"#;
        let document = Document::parse(text).unwrap();
        let [code, words] = document.cells() else {
            panic!("two cells")
        };
        assert_eq!(
            code.version().text(),
            r#"{"cell_type": "code", "id": "a", "outputs": [], "execution_count": null, "source": ["x"], "my": 1}"#
        );
        assert_eq!(code.version().cell_source().as_deref(), Some("x"));
        assert_eq!(words.version(), words.json());
        assert!(text.contains(&*code.json().text()));
        let mut copy = document.clone();
        copy.set_source(1, "z").unwrap();
        assert!(copy.cells()[0].is_untouched(code) && !copy.cells()[1].is_untouched(words));
        assert!(code.has_other_results_than(None) && code.has_other_results_than(Some(words)));
        assert!(
            !words.has_other_results_than(Some(code)) && !code.has_other_results_than(Some(code))
        );
    }
}
