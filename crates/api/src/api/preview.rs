//! Previews of a cell's outputs: long texts are cut, and data that is not text is written to files.

use std::borrow::Cow;
use std::path::PathBuf;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::output_files::OutputFiles;
use super::outputs::{self, Image, cut_more, leaves_out_similar_lines, shares};
use super::readable::{ShortTraceback, joined, plain_form, readable, without_similar_lines};
use crate::notebook::{Cell, Json, MimeData, OmittedOutput, Output, OutputKind, visible_output};

/// How many outputs are shown under a limit: half of them from the start, half from the end.
const OUTPUTS_MAX: usize = 40;

/// The longest form beside the text that is in a short answer as JSON, in bytes.
const LONG_FORM: usize = 200;

/// One output as it is shown.
#[derive(Clone, Debug)]
pub struct OutputPreview {
    /// Its index among the cell's outputs.
    index: usize,
    raw: Json,
    kind: OutputKind,
    text: String,
    /// The text with all characters visible, if that differs.
    visible: Option<String>,
    /// How many characters the whole text has; `None` if nothing was cut.
    characters: Option<usize>,
    files: Vec<OutputFile>,
    /// The forms of the output's data that are neither shown nor written to files.
    others: Vec<MimeData>,
    /// Whether the text says what long forms show.
    in_short: bool,
}

/// A form of an output that was written out.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// Makes previews of the outputs of cells. About `limit` characters of their texts are kept together, those
    /// of errors first. Cut texts, and data that is not text, are written to files.
    pub(crate) fn of(
        out: &mut OutputFiles<'_>,
        cells: &[&Cell],
        limit: Option<usize>,
        in_short: bool,
    ) -> Vec<Self> {
        let loaded: Vec<_> = cells
            .iter()
            .map(|cell| shown_outputs(cell, limit, in_short))
            .collect();
        let all = || loaded.iter().flat_map(|(shown, _)| shown);
        let lengths = |error: bool| -> Vec<_> {
            let lengths = all().map(|shown| match is_error(&shown.output) == error {
                true => shown.text.chars().count(),
                false => 0,
            });
            lengths.collect()
        };
        let shares = limit.map(|limit| {
            let errors = shares(&lengths(true), limit);
            let rest = limit.saturating_sub(errors.iter().sum());
            let others = shares(&lengths(false), rest);
            let both = errors.iter().zip(others);
            both.map(|(error, other)| error + other).collect::<Vec<_>>()
        });
        let mut shares = shares.map(Vec::into_iter);
        let previews = cells.iter().zip(loaded).map(|(cell, (shown, count))| {
            let shown = shown.into_iter().map(|shown| {
                let share = shares.as_mut().and_then(Iterator::next);
                out.preview(cell.id(), shown, share, in_short)
            });
            Self {
                shown: shown.collect(),
                count,
            }
        });
        previews.collect()
    }

    /// Returns the previews for people to read, each with the line above it that describes it. All characters of the
    /// texts are visible; a line about outputs that are left out has an empty text.
    pub fn texts(&self) -> Vec<(String, &str)> {
        let mut texts = Vec::new();
        let mut due = 0;
        for preview in &self.shown {
            texts.extend(skipped(due, preview.index).map(|line| (line, "")));
            due = preview.index + 1;
            let text = preview.visible.as_ref().unwrap_or(&preview.text);
            texts.push((preview.head(), text));
        }
        texts.extend(skipped(due, self.count).map(|line| (line, "")));
        texts
    }

    /// Returns the first images among the outputs.
    pub fn images(&self) -> Vec<Image> {
        let images = self.shown.iter().filter_map(|preview| {
            let output = parsed(&preview.raw);
            let data = output.get("data")?;
            outputs::image(|mime| data.get(mime).map(joined))
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

/// An output that is shown.
struct ShownOutput {
    /// Its index among the cell's outputs.
    index: usize,
    output: Output,
    raw: Json,
    /// Its whole text.
    whole: String,
    /// The text that is shown: the whole, or a short form of it.
    text: String,
    /// The same with all characters visible, if that differs.
    visible: Option<String>,
}

/// Returns the outputs of a cell that are shown, with their indexes, and the number of all.
fn shown_outputs(cell: &Cell, limit: Option<usize>, in_short: bool) -> (Vec<ShownOutput>, usize) {
    let all: Vec<_> = cell.outputs().enumerate().collect();
    let count = all.len();
    let is_shown = |index: usize| {
        limit.is_none()
            || count <= OUTPUTS_MAX
            || index < OUTPUTS_MAX / 2
            || index >= count - OUTPUTS_MAX / 2
    };
    let loaded = all
        .into_iter()
        .map(|(index, raw)| (index, Output::read(&raw), raw));
    let loaded = loaded.filter(|(index, output, _)| is_shown(*index) || is_error(output));
    let loaded = loaded.map(|(index, output, raw)| {
        let more = format!("nb cell {} --output {index} shows all", cell.id());
        let read = |draw: fn(&str) -> Cow<'_, str>| texts(&output, &raw, &more, limit, draw);
        let (whole, short) = read(|text| Cow::Borrowed(text));
        let visible = [Some(&whole), short.as_ref()]
            .into_iter()
            .flatten()
            .any(|text| matches!(visible_output(text), Cow::Owned(_)));
        let visible = visible.then(|| {
            let (whole, short) = read(visible_output);
            short.filter(|_| in_short).unwrap_or(whole)
        });
        ShownOutput {
            index,
            text: short.filter(|_| in_short).unwrap_or_else(|| whole.clone()),
            visible,
            whole,
            output,
            raw,
        }
    });
    (loaded.collect(), count)
}

fn is_error(output: &Output) -> bool {
    matches!(output.kind, OutputKind::Error { .. })
}

/// Returns the text of an output, and its short form. `more` is the command that shows all, `draw` prepares the
/// texts.
fn texts(
    output: &Output,
    raw: &Json,
    more: &str,
    limit: Option<usize>,
    draw: fn(&str) -> Cow<'_, str>,
) -> (String, Option<String>) {
    let whole = || draw(&output.text).into_owned();
    match output.kind {
        OutputKind::Stream(_) if !leaves_out_similar_lines(limit) => (whole(), None),
        OutputKind::Stream(_) => {
            let whole = whole();
            let short = without_similar_lines(&whole, more).into_owned();
            (whole, Some(short))
        }
        OutputKind::Error { .. } => {
            let parts = raw.get("traceback");
            let parts = parts.iter().flat_map(Json::items);
            let parts = parts.filter_map(|part| part.as_string());
            let parts: Vec<_> = parts.map(|part| draw(&part).into_owned()).collect();
            let short = ShortTraceback { more }.of(&parts);
            (whole(), Some(short).filter(|short| !short.is_empty()))
        }
        _ => match raw.get("data").map(|data| parsed(&data)) {
            Some(Value::Object(data)) => {
                let short = draw(&readable(&data)).into_owned();
                (draw(&plain_form(&data)).into_owned(), Some(short))
            }
            _ => (whole(), None),
        },
    }
}

/// Returns a line that says how many outputs are not shown.
fn skipped(from: usize, to: usize) -> Option<String> {
    match to.saturating_sub(from) {
        0 => None,
        count => Some(format!(
            "--- {count} outputs left out, {from} to {}; --output N prints one",
            to - 1
        )),
    }
}

impl OutputFiles<'_> {
    fn preview(
        &mut self,
        cell: &str,
        shown: ShownOutput,
        share: Option<usize>,
        in_short: bool,
    ) -> OutputPreview {
        let ShownOutput {
            index,
            output,
            raw,
            whole,
            mut text,
            mut visible,
        } = shown;
        let mut files = Vec::new();
        let mut others = Vec::new();
        let has_media = output.data.iter().any(MimeData::is_media);
        for form in output.data {
            let is_text = ["text/plain", "text/markdown"].contains(&form.mime.as_str());
            if is_text && (has_media || !text.is_empty()) {
                continue;
            }
            let file = (form.is_media() || text.is_empty())
                .then(|| Output::form(&raw, &form.mime))
                .flatten()
                .and_then(|found| self.write(cell, index, &found.ending, &found.bytes));
            match file {
                Some(path) => files.push(OutputFile { form, path }),
                None => others.push(form),
            }
        }
        let share = share.filter(|share| *share < text.chars().count());
        if let Some(share) = share {
            let path = self.write(cell, index, "txt", whole.as_bytes());
            let more = match &path {
                Some(path) => format!("all of it: {}", path.display()),
                None => format!("all of it: --output {index}"),
            };
            files.extend(path.map(|path| OutputFile {
                form: MimeData {
                    mime: "text/plain".to_owned(),
                    bytes: whole.len(),
                    pixels: None,
                },
                path,
            }));
            let before = OmittedOutput::between(&whole, &text);
            for text in std::iter::once(&mut text).chain(&mut visible) {
                *text = cut_more(text, share, before, &more).into_owned();
            }
        }
        OutputPreview {
            index,
            raw,
            kind: output.kind,
            text,
            visible,
            characters: share.map(|_| whole.chars().count()),
            files,
            others,
            in_short,
        }
    }
}

impl OutputPreview {
    fn head(&self) -> String {
        let description = match &self.kind {
            OutputKind::Stream(name) => name.clone(),
            OutputKind::Result => "result".to_owned(),
            OutputKind::Display => "display".to_owned(),
            OutputKind::Error { ename, .. } => format!("error · {ename}"),
            OutputKind::Unknown(name) => name.clone(),
        };
        let mut head = format!("--- output {} · {description}", self.index);
        for file in &self.files {
            // A text that was cut names its file at the cut.
            if self.characters.is_none() || file.form.mime != "text/plain" {
                head.push_str(&format!(" · {}: {}", file.form, file.path.display()));
            }
        }
        let has_all = self.in_short && !self.text.is_empty();
        for form in self.others.iter().filter(|_| !has_all) {
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
                let value = data.get(&mime).map_or(Value::Null, |value| parsed(&value));
                match self.in_short && joined(&value).len() > LONG_FORM {
                    true => json!(outputs::note(&mime, &value)),
                    false if mime.starts_with("text/") => json!(joined(&value)),
                    false => value,
                }
            };
            forms.insert(mime, value);
        }
        Value::Object(forms)
    }
}

/// Parses a value. JSON that only Python writes (NaN, half a surrogate pair) becomes a string, as it stands
/// in the file.
pub fn parsed(value: &Json) -> Value {
    let text = value.text();
    let loaded = serde_json::from_str(&text).ok();
    loaded
        .or_else(|| value.as_string().map(Value::String))
        .unwrap_or_else(|| json!(text))
}
