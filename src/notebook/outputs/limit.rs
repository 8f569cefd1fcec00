//! The limit for a cell's outputs in a notebook, and the note in place of what is left out.

use super::size::size;
use crate::notebook::document::joined_strings;
use crate::notebook::json::{Json, Object, items};

/// A limit for a cell's outputs.
#[derive(Clone, Debug)]
pub(in crate::notebook) struct OutputLimit {
    /// Bytes of text, about.
    pub(in crate::notebook) most: usize,
    /// The command that shows the rest; if empty, the outputs have no note of it.
    pub(in crate::notebook) more: String,
}

/// The amount of output that a limit left out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedOutput {
    /// How many bytes.
    pub bytes: u64,
    /// How many lines of streams.
    pub lines: u64,
    /// How many whole displays.
    pub displays: u64,
}

/// How many times larger than text an image or a figure may be.
const MEDIA: usize = 16;

/// How many lines of a traceback are kept of each end, where it is far too long.
const FRAMES: usize = 10;

impl OutputLimit {
    pub(in crate::notebook) fn new(most: usize, more: String) -> Self {
        Self { most, more }
    }

    /// Returns the forms of something shown, those aside that are too large.
    pub(in crate::notebook) fn data(&self, data: &[u8]) -> Json {
        let object = Object::read(data).filter(|_| data.len() > self.most / 2);
        let Some(object) = object else {
            return Json::of_valid(data);
        };
        let mut kept = Json::of_valid(b"{}");
        let mut notes = Vec::new();
        for (mime, value) in object.by_name(data) {
            let value = value.of(data);
            let most = if mime.starts_with("text/") {
                self.most / 2
            } else {
                self.most.saturating_mul(MEDIA)
            };
            if value.len() <= most {
                kept.set(&[&mime], &Json::of_valid(value));
            } else if mime == "text/plain" {
                let text = joined_strings(value);
                let text = middle(&String::from_utf8_lossy(&text), self.most / 2, &self.more);
                kept.set(&[&mime], &Json::string(&text));
            } else {
                notes.push(format!("[{mime}, {}, left out]", size(value.len() as u64)));
            }
        }
        if !notes.is_empty() {
            let plain = kept.get("text/plain").and_then(|it| it.as_string());
            notes.splice(..0, plain);
            notes.extend((!self.more.is_empty()).then(|| format!("[{}]", self.more)));
            kept.set(&["text/plain"], &Json::string(&notes.join("\n")));
        }
        kept
    }

    /// Returns a word of what was raised, its middle left out where it is too long.
    pub(in crate::notebook) fn word(&self, text: String) -> String {
        if text.len() <= self.most / 8 {
            return text;
        }
        middle(&text, self.most / 8, &self.more)
    }

    /// Returns a traceback, a list of texts, as JSON.
    pub(in crate::notebook) fn traceback(&self, lines: &Json) -> String {
        let text = lines.bytes();
        if text.len() <= self.most / 4 {
            return lines.text().into_owned();
        }
        let all = items(text);
        let each = self.most / (8 * FRAMES);
        // The outermost frames, and what was raised.
        let some = all.iter().enumerate();
        let some = some.filter(|(at, _)| *at < FRAMES || at + FRAMES >= all.len());
        let some = some.map(|(_, line)| {
            let line = Json::of_valid(line.of(text)).as_string();
            let line = middle(&line.unwrap_or_default(), each, &self.more);
            Json::string(&line).text().into_owned()
        });
        format!("[{}]", some.collect::<Vec<_>>().join(","))
    }
}

/// Returns for how many bytes of text the forms of something shown count: images and figures are
/// large, and few.
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
    pub(in crate::notebook) fn text(&mut self, text: &str) {
        self.bytes += text.len() as u64;
        self.lines += memchr::memchr_iter(b'\n', text.as_bytes()).count() as u64;
    }

    pub(in crate::notebook) fn display(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        self.displays += 1;
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

/// Keeps the beginning and the end of a text, of about so many bytes together.
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
