//! Previews of a cell's outputs: long texts are cut, and data that is not text is written to files.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::outputs::{self, Image, cut};
use crate::editing::export::Export;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, Json, MimeData, Output, OutputKind};

/// How many outputs are shown under a limit: half of them from the start, half from the end.
const MOST: usize = 40;

/// How many characters of each output are kept at least, however many outputs there are.
const LEAST: usize = 80;

/// One output as it is shown.
#[derive(Clone, Debug)]
pub struct OutputPreview {
    /// Its index among the cell's outputs.
    index: usize,
    raw: Json,
    kind: OutputKind,
    text: String,
    /// How many characters the whole text has; `None` if nothing was cut.
    characters: Option<usize>,
    files: Vec<OutputFile>,
    /// The forms of the output's data that are neither shown nor written to files.
    others: Vec<MimeData>,
}

/// A form of an output that was written out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct OutputFile {
    #[serde(flatten)]
    form: MimeData,
    path: PathBuf,
}

/// The outputs of one cell.
#[derive(Clone, Debug)]
pub struct OutputPreviews {
    /// The outputs that are shown.
    shown: Vec<OutputPreview>,
    /// The number of the cell's outputs.
    count: usize,
}

impl OutputPreviews {
    /// Makes previews of a cell's outputs. About `limit` characters of their texts are kept, those of
    /// errors first. Cut texts, and data that is not text, are written to files.
    pub(crate) fn of(out: &mut OutputFiles<'_>, cell: &Cell, limit: Option<usize>) -> Self {
        let all: Vec<_> = cell.outputs().enumerate().collect();
        let count = all.len();
        let is_shown = |index: usize| {
            limit.is_none() || count <= MOST || index < MOST / 2 || index >= count - MOST / 2
        };
        let read = all
            .into_iter()
            .map(|(index, raw)| (index, Output::read(&raw), raw));
        let is_error = |output: &Output| matches!(output.kind, OutputKind::Error { .. });
        let mut read: Vec<_> = read
            .filter(|(index, output, _)| is_shown(*index) || is_error(output))
            .collect();
        for (_, output, raw) in &mut read {
            if let Some(text) = written_by_its_author(raw) {
                output.text = text;
            }
        }
        let lengths = |error: bool| {
            let lengths = read
                .iter()
                .map(move |(_, output, _)| match is_error(output) == error {
                    true => output.text.chars().count(),
                    false => 0,
                });
            lengths.collect::<Vec<_>>()
        };
        let shares = limit.map(|limit| {
            let errors = shares(&lengths(true), limit);
            let rest = limit.saturating_sub(errors.iter().sum());
            let others = shares(&lengths(false), rest);
            errors
                .iter()
                .zip(others)
                .map(|(error, other)| error + other)
                .collect::<Vec<_>>()
        });
        let shown = read
            .into_iter()
            .enumerate()
            .map(|(at, (index, output, raw))| {
                let share = shares.as_ref().and_then(|shares| shares.get(at).copied());
                out.preview(cell.id(), index, output, raw, share)
            });
        Self {
            shown: shown.collect(),
            count,
        }
    }

    /// Returns the previews for people to read, each under a line that describes it.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut due = 0;
        for preview in &self.shown {
            text.push_str(&skipped(due, preview.index));
            due = preview.index + 1;
            text.push_str(&preview.head());
            text.push('\n');
            text.push_str(&preview.text);
            if !preview.text.is_empty() && !preview.text.ends_with('\n') {
                text.push('\n');
            }
        }
        text.push_str(&skipped(due, self.count));
        text
    }

    /// Returns the first images among the outputs.
    pub(crate) fn images(&self) -> Vec<Image> {
        let images = self.shown.iter().filter_map(|preview| {
            let output = parsed(&preview.raw);
            let data = output.get("data")?;
            outputs::image(|mime| data.get(mime).map(outputs::text_of))
        });
        images.take(outputs::MOST_IMAGES).collect()
    }

    /// Returns the outputs as the file has them, with notes on what was cut and which file has the whole.
    fn json(&self) -> Vec<Value> {
        self.shown.iter().map(OutputPreview::json).collect()
    }
}

impl Serialize for OutputPreviews {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.json())
    }
}

/// Returns a line that says how many outputs are not shown.
fn skipped(from: usize, to: usize) -> String {
    match to.saturating_sub(from) {
        0 => String::new(),
        count => format!(
            "--- {count} outputs left out, {from} to {}; --output N prints one\n",
            to - 1
        ),
    }
}

/// Writes forms of outputs to files, and names these relative to a folder.
#[derive(Debug)]
pub(crate) struct OutputFiles<'a> {
    export: Export<'a>,
    here: &'a Path,
    /// The error that kept an output from being written.
    pub(crate) problem: Option<io::Error>,
}

impl<'a> OutputFiles<'a> {
    pub(crate) fn of(page: &'a NotebookFile, here: &'a Path) -> Self {
        Self {
            export: Export::of(page),
            here,
            problem: None,
        }
    }

    fn preview(
        &mut self,
        cell: &str,
        index: usize,
        output: Output,
        raw: Json,
        share: Option<usize>,
    ) -> OutputPreview {
        let mut files = Vec::new();
        let mut others = Vec::new();
        for form in output.data {
            let is_text = ["text/plain", "text/markdown"].contains(&form.mime.as_str());
            if is_text && !output.text.is_empty() {
                continue;
            }
            let file = (form.is_media() || output.text.is_empty())
                .then(|| Output::form(&raw, &form.mime))
                .flatten()
                .and_then(|found| self.write(cell, index, &found.ending, &found.bytes));
            match file {
                Some(path) => files.push(OutputFile { form, path }),
                None => others.push(form),
            }
        }
        let count = output.text.chars().count();
        let mut text = output.text;
        let share = share.filter(|share| *share < count);
        if let Some(share) = share {
            let path = self.write(cell, index, "txt", text.as_bytes());
            let more = match &path {
                Some(path) => format!("all of it: {}", path.display()),
                None => format!("all of it: --output {index}"),
            };
            files.extend(path.map(|path| OutputFile {
                form: MimeData {
                    mime: "text/plain".to_owned(),
                    bytes: text.len(),
                    pixels: None,
                },
                path,
            }));
            text = cut(&text, share, &more).into_owned();
        }
        OutputPreview {
            index,
            raw,
            kind: output.kind,
            text,
            characters: share.map(|_| count),
            files,
            others,
        }
    }

    fn write(&mut self, cell: &str, index: usize, ending: &str, bytes: &[u8]) -> Option<PathBuf> {
        match self.export.write(cell, index, ending, bytes) {
            Ok(path) => Some(match path.strip_prefix(self.here) {
                Ok(below) => below.to_owned(),
                Err(_) => path,
            }),
            Err(error) => {
                self.problem.get_or_insert(error);
                None
            }
        }
    }
}

impl OutputPreview {
    fn head(&self) -> String {
        let what = match &self.kind {
            OutputKind::Stream(name) => name.clone(),
            OutputKind::Result => "result".to_owned(),
            OutputKind::Display => "display".to_owned(),
            OutputKind::Error { ename, .. } => format!("error · {ename}"),
            OutputKind::Unknown(name) => name.clone(),
        };
        let mut head = format!("--- output {} · {what}", self.index);
        for file in &self.files {
            // A text that was cut names its file at the cut.
            if self.characters.is_none() || file.form.mime != "text/plain" {
                head.push_str(&format!(" · {}: {}", file.form, file.path.display()));
            }
        }
        for form in &self.others {
            head.push_str(&format!(" · also {form}"));
        }
        head
    }

    fn json(&self) -> Value {
        let mut object = Map::new();
        object.insert("index".to_owned(), json!(self.index));
        for key in self.raw.keys() {
            let Some(value) = self.raw.get(&key) else {
                continue;
            };
            let value = match (key.as_str(), &self.kind) {
                ("text", OutputKind::Stream(_)) => json!(self.text),
                ("traceback", OutputKind::Error { .. }) => {
                    json!(self.text.lines().collect::<Vec<_>>())
                }
                ("data", _) => self.data(&value),
                _ => parsed(&value),
            };
            object.insert(key, value);
        }
        if let Some(characters) = self.characters {
            object.insert("characters".to_owned(), json!(characters));
        }
        if !self.files.is_empty() {
            object.insert("files".to_owned(), json!(self.files));
        }
        Value::Object(object)
    }

    /// Returns the forms of the output's data that are not in files.
    fn data(&self, data: &Json) -> Value {
        let mut forms = Map::new();
        for mime in data.keys() {
            let is_file = self.files.iter().any(|file| file.form.mime == mime);
            let is_shown = mime == "text/plain" || mime == "text/markdown";
            let value = if is_shown && !self.text.is_empty() {
                json!(self.text)
            } else if is_file {
                continue;
            } else {
                data.get(&mime).map_or(Value::Null, |value| parsed(&value))
            };
            forms.insert(mime, value);
        }
        Value::Object(forms)
    }
}

/// Parses a value. JSON that only Python writes (NaN, half a surrogate pair) becomes a string, as it stands
/// in the file.
pub(crate) fn parsed(value: &Json) -> Value {
    let text = value.text();
    let read = serde_json::from_str(&text).ok();
    read.or_else(|| value.as_string().map(Value::String))
        .unwrap_or_else(|| json!(text))
}

/// Returns Markdown that the author chose: the plain form beside it is only the object's name.
fn written_by_its_author(raw: &Json) -> Option<String> {
    let form = Output::form(raw, "text/markdown")?;
    Some(String::from_utf8_lossy(&form.bytes).into_owned())
}

/// Returns how many characters of each text are kept if `limit` is shared among texts of these lengths.
/// Short ones are whole.
fn shares(lengths: &[usize], limit: usize) -> Vec<usize> {
    let shares = outputs::shares(lengths, limit).into_iter();
    let lengths = lengths.iter();
    lengths
        .zip(shares)
        .map(|(length, share)| *length.min(&share.max(LEAST)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_texts_are_whole_and_long_ones_share() {
        assert_eq!(
            shares(&[10, 5000, 0, 3000, 400], 1000),
            [10, 330, 0, 330, 330]
        );
        assert_eq!(shares(&[10, 20], 1000), [10, 20]);
        assert_eq!(shares(&[5000], 1000), [1000]);
        assert_eq!(shares(&[100, 100], 10), [LEAST, LEAST]);
        assert_eq!(shares(&[], 10), [0; 0]);
    }
}
