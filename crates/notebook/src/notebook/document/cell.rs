//! One cell with the bytes that it has in the file.

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
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum CellType {
    /// Code, which runs and has outputs.
    Code,
    /// Markdown, which is shown as formatted text.
    Markdown,
    /// Text that converters pass on unchanged.
    Raw,
    /// A type that no version of the format has.
    #[serde(skip_deserializing)]
    Unknown,
}

/// A cell of a notebook: its bytes, decoded when they are read.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The bytes before the cell: white space, and after another cell a comma.
    pub(in crate::notebook) before: Bytes,
    pub(in crate::notebook) text: Bytes,
    pub(in crate::notebook) object: Object,
    pub(in crate::notebook) id: String,
    /// Whether the id is in the file; otherwise `id` is a stand-in.
    pub(in crate::notebook) own_id: bool,
    /// Whether the id is from the ledger beside the file.
    pub(in crate::notebook) recorded_id: bool,
    /// The revision, computed once.
    pub(in crate::notebook) revision: OnceLock<Revision>,
}

impl Cell {
    /// Makes a cell from its bytes; `object` has the field positions that a scan of the whole file found.
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

    /// Replaces the cell's bytes by those of an object.
    pub(in crate::notebook) fn rewrite(&mut self, text: Vec<u8>) {
        self.object =
            Object::read(&text).expect("a splice of a value into an object leaves an object");
        self.text = text.into();
        self.revision = OnceLock::new();
    }

    /// Sets a field to a value that is already in the file's layout.
    pub(in crate::notebook) fn set(&mut self, name: &str, value: &[u8], layout: &Layout) {
        self.rewrite(self.object.set(&self.text, name, value, layout));
    }

    /// Removes a field.
    pub(in crate::notebook) fn unset(&mut self, name: &str) {
        self.rewrite(self.object.remove(&self.text, name));
    }

    /// Sets the source. An unchanged source keeps its bytes, and so do unchanged lines at its beginning and
    /// its end. `lists` says whether a cell without a source gets one as a list of lines.
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
        let old = self.raw("metadata");
        let new = match value {
            Some(value) => {
                let old = old.filter(|raw| raw.starts_with(b"{"));
                set_value_at(old.unwrap_or(b"{}"), path, value, &layout.deeper())
            }
            None => old.and_then(|raw| remove_value_at(raw, path)),
        };
        if let Some(new) = new {
            self.set("metadata", &new, layout);
        }
    }

    /// Sets the type, and adds and removes the fields that the types do not share.
    pub(in crate::notebook) fn set_type(&mut self, cell_type: CellType, layout: &Layout) {
        let was_code = self.cell_type() == CellType::Code;
        let word = Json::string(cell_type.name());
        self.set("cell_type", word.bytes(), layout);
        if cell_type == CellType::Code {
            self.unset("attachments");
            for (name, value) in [("execution_count", &b"null"[..]), ("outputs", b"[]")] {
                if self.raw(name).is_none() {
                    self.set(name, value, layout);
                }
            }
        } else {
            self.unset("outputs");
            self.unset("execution_count");
            if was_code {
                self.set_metadata(&["execution"], None, layout);
            }
        }
    }

    /// Returns the bytes of a field's value.
    pub(in crate::notebook) fn raw(&self, name: &str) -> Option<&[u8]> {
        Some(self.object.get(&self.text, name)?.of(&self.text))
    }

    /// Returns the cell's id. If the file has no id for the cell, or one that an earlier cell has, this is
    /// the id that `Document::recall_ids` took from the ledger, else one made from the cell's position.
    /// Edits do not write such an id into the file, unless they move or remove one of several cells with the
    /// same id; `Document::formatted` does.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Says whether the id is in the file.
    pub fn has_own_id(&self) -> bool {
        self.own_id
    }

    /// Returns the cell's type.
    pub fn cell_type(&self) -> CellType {
        let raw = self.raw("cell_type").unwrap_or_default();
        if is(raw, "code") {
            CellType::Code
        } else if is(raw, "markdown") || is(raw, "heading") {
            // Format 3 had heading cells.
            CellType::Markdown
        } else if is(raw, "raw") {
            CellType::Raw
        } else {
            CellType::Unknown
        }
    }

    /// Returns the cell's source, with its lines joined. Half a surrogate pair is returned as U+FFFD, but
    /// stays in the file.
    pub fn source(&self) -> Cow<'_, str> {
        lossy(self.source_bytes())
    }

    pub(in crate::notebook) fn source_bytes(&self) -> Cow<'_, [u8]> {
        // In format 3 the source of a code cell was named `input`.
        let raw = self.raw("source").or_else(|| self.raw("input"));
        joined_strings(raw.unwrap_or_default())
    }

    /// Returns the first line of the source that is not blank, cut to `limit` characters.
    pub fn first_line(&self, limit: usize) -> String {
        first_line(&self.source(), limit)
    }

    /// Says whether the source is a list of lines; `None` if it is empty.
    pub(in crate::notebook) fn source_is_list(&self) -> Option<bool> {
        match self.raw("source")? {
            b"\"\"" | b"[]" => None,
            raw => Some(raw.starts_with(b"[")),
        }
    }

    /// Returns the cell's execution count, the number in `In [ ]`.
    pub fn execution_count(&self) -> Option<u64> {
        let raw = self
            .raw("execution_count")
            .or_else(|| self.raw("prompt_number"));
        std::str::from_utf8(raw?).ok()?.parse().ok()
    }

    /// Returns the cell's outputs as JSON; see [`Output`](crate::notebook::Output).
    pub fn outputs(&self) -> impl Iterator<Item = Json> {
        self.raw_outputs().into_iter().map(Json::of_valid)
    }

    /// Returns a hash of the outputs, as the file has them.
    pub fn outputs_digest(&self) -> [u8; 8] {
        let hash = Sha256::digest(self.raw("outputs").unwrap_or_default());
        hash.first_chunk().copied().unwrap_or_default()
    }

    /// Returns the JSON of the cell's attachments.
    pub fn raw_attachments(&self) -> Option<&[u8]> {
        self.raw("attachments")
    }

    pub(in crate::notebook) fn raw_outputs(&self) -> Vec<&[u8]> {
        let raw = self.raw("outputs").unwrap_or_default();
        items(raw).into_iter().map(|span| span.of(raw)).collect()
    }

    /// Returns a value of the cell's metadata, by its path of keys; an empty path returns all metadata.
    pub fn metadata(&self, path: &[&str]) -> Option<Json> {
        value_at(self.raw("metadata")?, path)
    }
}

impl Cell {
    /// Returns the cell's revision: a hash of type, source, attachments and metadata. Running the cell does
    /// not change it, since outputs, counts and times are not hashed. Neither the JSON's style nor the id
    /// is hashed: a copy of a cell has the same revision.
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

    /// Hashes the cell's type and source.
    pub(in crate::notebook) fn content(&self) -> [u8; 32] {
        let mut hash = Sha256::new_with_prefix(self.cell_type().name());
        hash.update(b"\0");
        hash.update(self.source_bytes());
        hash.finalize().into()
    }
}

impl Cell {
    /// Returns the cell as it is in the file, including outputs.
    pub fn json(&self) -> Json {
        Json::of_valid(&self.text)
    }

    /// Returns the cell without the results of an execution: no outputs, no count.
    pub fn version(&self) -> Json {
        let mut bare = self.clone();
        for (name, nothing) in [("outputs", &b"[]"[..]), ("execution_count", b"null")] {
            if bare.raw(name).is_some_and(|raw| raw != nothing) {
                bare.set(name, nothing, &Layout::default());
            }
        }
        Json::of_valid(&bare.text)
    }

    /// Says whether this cell shares the other cell's bytes in memory, so that no edit has touched it.
    pub fn is_untouched(&self, other: &Self) -> bool {
        self.id == other.id && self.text.as_ptr_range() == other.text.as_ptr_range()
    }

    /// Says whether two cells have the same type and source.
    pub fn has_same_text(&self, other: &Self) -> bool {
        self.cell_type() == other.cell_type() && self.source() == other.source()
    }

    /// Says whether this cell has results of an execution (outputs, count or times) that the other cell
    /// does not have.
    pub fn has_other_results_than(&self, other: Option<&Self>) -> bool {
        let has_more = |name, nothing: &[u8], other: Option<&Self>| {
            let own = self.raw(name).filter(|raw| *raw != nothing);
            own.is_some() && own != other.and_then(|other| other.raw(name))
        };
        let times = |cell: &Self| EXECUTION_KEYS.map(|key| cell.metadata(&[key]));
        let no_times = EXECUTION_KEYS.map(|_| None);
        let (own, others) = (times(self), other.map_or_else(|| no_times.clone(), times));
        has_more("outputs", b"[]", other)
            || has_more("execution_count", b"null", other)
            || (own != no_times && own != others)
    }
}

impl Json {
    /// Returns the source of a stored cell, with its lines joined; `None` if the value is not a cell.
    pub fn cell_source(&self) -> Option<String> {
        let object = Object::read(self.bytes())?;
        let raw = object.get(self.bytes(), "source")?.of(self.bytes());
        Some(lossy(joined_strings(raw)).into_owned())
    }
}

impl CellType {
    /// Returns the type's name in the file.
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

/// The error for a word that is not a cell type.
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
