//! The limit on a cell's outputs in a notebook, and the note that replaces what is left out.

use std::collections::BTreeMap;

use serde::Serialize;

use super::size::size;
use crate::notebook::document::joined_strings;
use crate::notebook::json::{Json, Object};

/// A limit for a cell's outputs.
#[derive(Clone, Debug)]
pub(in crate::notebook) struct OutputLimit {
    /// About how many bytes of text are kept.
    pub(in crate::notebook) most: usize,
    /// The command that shows the rest; if empty, the outputs get no note.
    pub(in crate::notebook) more: String,
}

/// The amount of output that a limit left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OmittedOutput {
    /// The number of bytes.
    pub bytes: u64,
    /// The number of lines of streams.
    pub lines: u64,
    /// The number of whole displays.
    pub displays: u64,
}

/// How many times larger than text an image or a figure may be.
const MEDIA: usize = 16;

/// How many of the first and of the last frames of a long traceback are kept.
const FRAMES: usize = 10;

/// Returns the note in place of outputs that a limit left out. `more` is the command that shows them.
pub(super) fn note(left_out: &OmittedOutput, more: &str) -> String {
    format!("[… {left_out} left out here; {more} …]\n")
}

/// Says whether a text is such a note.
pub(super) fn is_note(text: &str) -> bool {
    let inner = text.trim_end().strip_prefix("[… ");
    inner.is_some_and(|it| it.ends_with(" …]") && it.contains(" left out here; "))
}

impl OutputLimit {
    /// Returns the data of a MIME bundle without the forms that are too large.
    pub(in crate::notebook) fn data(&self, data: &[u8]) -> Json {
        let object = Object::read(data).filter(|_| data.len() > self.most / 2);
        let Some(object) = object else {
            return Json::of_valid(data);
        };
        let mut kept = BTreeMap::new();
        let mut notes = Vec::new();
        for (mime, value) in object.by_name(data) {
            let value = value.of(data);
            let most = if mime.starts_with("text/") {
                self.most / 2
            } else {
                self.most.saturating_mul(MEDIA)
            };
            if value.len() <= most {
                kept.insert(mime, Json::of_valid(value));
            } else if mime == "text/plain" {
                let text = joined_strings(value);
                let text = middle(&String::from_utf8_lossy(&text), self.most / 2, &self.more);
                kept.insert(mime, Json::string(&text));
            } else {
                notes.push(format!("[{mime}, {}, left out]", size(value.len() as u64)));
            }
        }
        if !notes.is_empty() {
            let plain = kept.get("text/plain").and_then(Json::as_string);
            notes.splice(..0, plain);
            notes.extend((!self.more.is_empty()).then(|| format!("[{}]", self.more)));
            kept.insert("text/plain".to_owned(), Json::string(&notes.join("\n")));
        }
        Json::object(kept.iter().map(|(mime, value)| (mime.as_str(), value)))
    }

    /// Returns the name or the message of an error; if it is too long, without its middle.
    pub(in crate::notebook) fn error_text(&self, text: String) -> String {
        if text.len() <= self.most / 8 {
            return text;
        }
        middle(&text, self.most / 8, &self.more)
    }

    /// Returns a traceback, a list of texts; if it is too long, only its first and last frames.
    pub(in crate::notebook) fn traceback(&self, lines: Json) -> Json {
        if lines.bytes().len() <= self.most / 4 {
            return lines;
        }
        let mut all: Vec<_> = lines.items().collect();
        let last = all.split_off(all.len().saturating_sub(FRAMES));
        all.truncate(FRAMES);
        let each = self.most / (8 * FRAMES);
        let short = all.iter().chain(&last).map(|line| {
            let line = line.as_string().unwrap_or_default();
            Json::string(&middle(&line, each, &self.more))
        });
        Json::list(&short.collect::<Vec<_>>())
    }
}

/// Returns how many bytes of text the data of a MIME bundle counts for. Images and figures count less than
/// their size: they are large, but few.
pub(in crate::notebook) fn weight(data: &[u8]) -> usize {
    let fields = Object::read(data)
        .map(|object| object.fields)
        .unwrap_or_default();
    let sizes = fields.iter().map(|field| {
        let size = field.value().of(data).len();
        match field.key().of(data).starts_with(b"\"text/") {
            true => size,
            false => size / MEDIA,
        }
    });
    sizes.sum()
}

impl OmittedOutput {
    /// Returns how much longer a text is than its short form.
    pub fn between(whole: &str, short: &str) -> Self {
        let lines = |text: &str| memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
        Self {
            bytes: (whole.len() as u64).saturating_sub(short.len() as u64),
            lines: lines(whole).saturating_sub(lines(short)),
            displays: 0,
        }
    }

    pub(in crate::notebook) fn text(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
    }

    pub(in crate::notebook) fn display(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.displays += 1;
    }
}

impl std::ops::AddAssign for OmittedOutput {
    fn add_assign(&mut self, more: Self) {
        self.bytes += more.bytes;
        self.lines += more.lines;
        self.displays += more.displays;
    }
}

impl std::fmt::Display for OmittedOutput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&size(self.bytes))?;
        for (count, one) in [(self.lines, "line"), (self.displays, "display")] {
            match count {
                0 => {}
                1 => write!(f, ", 1 {one}")?,
                count => write!(f, ", {count} {one}s")?,
            }
        }
        Ok(())
    }
}

/// Returns the beginning and the end of a text, of about `most` bytes together.
fn middle(text: &str, most: usize, more: &str) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let head = text.floor_char_boundary(most / 2);
    let tail = text.ceil_char_boundary(text.len() - most / 2);
    let (Some(first), Some(between), Some(last)) =
        (text.get(..head), text.get(head..tail), text.get(tail..))
    else {
        return text.to_owned();
    };
    let more = if more.is_empty() {
        String::new()
    } else {
        format!("; {more}")
    };
    format!(
        "{first}\n[… {} left out here{more} …]\n{last}",
        size(between.len() as u64)
    )
}
