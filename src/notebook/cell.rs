//! One cell as it stands in the file.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

use bytes::Bytes;

use super::json::{Json, Layout, Object, Scanner, append, decode, is, items, lossy};
use super::metadata;
use super::revision::Revision;

/// What a cell is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CellType {
    /// Runs, and has outputs.
    Code,
    /// Is shown as formatted text.
    Markdown,
    /// Is passed on as it is.
    Raw,
    /// Something that no version of the format knows.
    #[serde(skip_deserializing)]
    Unknown,
}

/// A cell of a notebook: its bytes, decoded where they are looked at.
#[derive(Clone, Debug)]
pub struct Cell {
    /// What stands before it: white space, and after another cell a comma.
    pub(super) before: Bytes,
    pub(super) text: Bytes,
    pub(super) object: Object,
    pub(super) id: String,
    /// Whether the id stands in the file; otherwise it stands in for one.
    pub(super) own_id: bool,
    /// Whether the id is the one that this cell has in the records beside the file.
    pub(super) recorded_id: bool,
    /// Its revision, once that was asked for: a listing and the history ask several times.
    pub(super) revision: OnceLock<Revision>,
}

impl Cell {
    /// Makes one of its bytes; `object` has the places that a scan of the whole file found.
    pub(super) fn new(before: Bytes, text: Bytes, mut object: Object) -> Self {
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
    pub(super) fn rewrite(&mut self, text: Vec<u8>) {
        self.object =
            Object::read(&text).expect("a splice of a value into an object leaves an object");
        self.text = text.into();
        self.revision = OnceLock::new();
    }

    /// Returns a field as it is written.
    pub(super) fn raw(&self, name: &str) -> Option<&[u8]> {
        Some(self.object.get(&self.text, name)?.of(&self.text))
    }

    /// Returns its bytes with a field set to a value that is laid out already.
    pub(super) fn with(&self, name: &str, value: &[u8], layout: &Layout) -> Vec<u8> {
        self.object.set(&self.text, name, value, layout)
    }

    /// Returns its bytes without a field.
    pub(super) fn without(&self, name: &str) -> Vec<u8> {
        self.object.remove(&self.text, name)
    }

    /// Returns its bytes with a value of the metadata set; none where it is set already.
    pub(super) fn with_metadata(
        &self,
        path: &[&str],
        value: &Json,
        layout: &Layout,
    ) -> Option<Vec<u8>> {
        let old = self.raw("metadata").filter(|raw| raw.starts_with(b"{"));
        let new = metadata::set(old.unwrap_or(b"{}"), path, value, &layout.deeper())?;
        Some(self.with("metadata", &new, layout))
    }

    /// Returns its bytes without a value of the metadata; none where there is none.
    pub(super) fn without_metadata(&self, path: &[&str], layout: &Layout) -> Option<Vec<u8>> {
        let new = metadata::remove(self.raw("metadata")?, path)?;
        Some(self.with("metadata", &new, layout))
    }

    /// Returns its bytes as a cell of another type: with and without what that type has.
    pub(super) fn as_type(&self, cell_type: CellType, layout: &Layout) -> Vec<u8> {
        let mut new = self.clone();
        let word = Json::string(cell_type.name());
        new.rewrite(new.with("cell_type", word.bytes(), layout));
        if cell_type == CellType::Code {
            new.rewrite(new.without("attachments"));
            for (name, value) in [("execution_count", &b"null"[..]), ("outputs", b"[]")] {
                if new.raw(name).is_none() {
                    new.rewrite(new.with(name, value, layout));
                }
            }
        } else {
            new.rewrite(new.without("outputs"));
            new.rewrite(new.without("execution_count"));
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

    pub(super) fn source_bytes(&self) -> Cow<'_, [u8]> {
        // Format 3 called the source of code its input.
        let raw = self.raw("source").or_else(|| self.raw("input"));
        joined(raw.unwrap_or_default())
    }

    /// Returns whether its source is a list of lines; none where it is empty.
    pub(super) fn source_is_list(&self) -> Option<bool> {
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

    /// Returns its outputs, each as JSON; see [`Output`](super::Output).
    pub fn outputs(&self) -> impl Iterator<Item = Json> {
        self.raw_outputs().into_iter().map(Json::of_valid)
    }

    pub(super) fn raw_outputs(&self) -> Vec<&[u8]> {
        let raw = self.raw("outputs").unwrap_or_default();
        items(raw).into_iter().map(|span| span.of(raw)).collect()
    }

    /// Returns a value of its metadata, by its keys from the outside in; no keys give the whole.
    pub fn metadata(&self, path: &[&str]) -> Option<Json> {
        metadata::at(self.raw("metadata")?, path)
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

/// Says that a word names no type of cells.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no type of cells: {0:?}; there are code, markdown and raw")]
pub struct NoCellType(pub String);

impl FromStr for CellType {
    type Err = NoCellType;

    fn from_str(word: &str) -> Result<Self, NoCellType> {
        let known = [Self::Code, Self::Markdown, Self::Raw];
        let found = known.into_iter().find(|known| known.name() == word);
        found.ok_or_else(|| NoCellType(word.to_owned()))
    }
}

/// Returns the text of a string or of a list of strings; other values have none.
pub(super) fn joined(raw: &[u8]) -> Cow<'_, [u8]> {
    if raw.starts_with(b"\"") {
        return decode(raw);
    }
    if !raw.starts_with(b"[") {
        return Cow::Borrowed(b"");
    }
    let mut text = Vec::with_capacity(raw.len());
    let mut at = 1;
    loop {
        let rest = raw.get(at..).unwrap_or_default();
        match rest.first() {
            Some(b'"') => at += append(&mut text, rest),
            Some(b',' | b' ' | b'\n' | b'\r' | b'\t') => at += 1,
            None | Some(b']') => return Cow::Owned(text),
            // Something else has no text.
            Some(_) => match Scanner::new(raw, at).value() {
                Ok(value) => at = value.end,
                Err(_) => return Cow::Owned(text),
            },
        }
    }
}
