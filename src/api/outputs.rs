//! A cell's outputs as text: for people at a terminal and for agents that read characters.
//!
//! The cell's stdout, its displays and its result go to stdout; its stderr and errors go to stderr. An
//! image is shown as its type and size. Text above the limit keeps its head and tail, with a note between
//! them that says how much is left out. Errors come first and are not cut; for an agent, frames of libraries are
//! left out of them.

use std::borrow::Cow;
use std::fmt::Write;

use serde::Serialize;
use serde_json::Value;

use crate::execution::run::{DisplayContent, KernelException, OutputMessage};
use crate::notebook::{OmittedOutput, size};

/// The outputs of a cell as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OutputText {
    /// What the cell raised, and behind it what it wrote to stderr.
    pub err: String,
    /// What the cell wrote to stdout, its displays and its result.
    pub out: String,
}

/// How texts are cut.
pub(crate) struct Cut {
    /// How many characters are kept; `None` keeps all.
    pub(crate) limit: Option<usize>,
    /// What has been left out of the texts already.
    pub(crate) left_out: OmittedOutput,
    /// Whether frames of libraries are left out of errors.
    pub(crate) shortens_errors: bool,
    /// The command that shows the rest.
    pub(crate) more: String,
}

/// Returns all outputs as text. Except for errors, stdout has at most the limit's characters and stderr a
/// third of them.
pub(crate) fn text(outputs: &[OutputMessage], how: &Cut) -> OutputText {
    let (mut out, mut err, mut raised) = (String::new(), String::new(), String::new());
    for output in outputs {
        match output {
            OutputMessage::Stream(it) if it.name == "stderr" => err.push_str(&it.text),
            OutputMessage::Stream(it) => out.push_str(&it.text),
            OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
                on_a_line_of_its_own(&mut out, &bundle(it));
            }
            OutputMessage::Error(it) => {
                let text = match how.shortens_errors {
                    true => short_traceback(it, &how.more),
                    false => traceback(it),
                };
                on_a_line_of_its_own(&mut raised, &text);
            }
        }
    }
    let (out, err) = match how.limit {
        None => (out, err),
        Some(limit) => {
            // Count what was left out as part of the longer text.
            let (of_out, of_err) = if out.len() >= err.len() {
                (how.left_out, OmittedOutput::default())
            } else {
                (OmittedOutput::default(), how.left_out)
            };
            (
                cut_more(&out, limit, of_out, &how.more).into_owned(),
                cut_more(&err, limit / 3, of_err, &how.more).into_owned(),
            )
        }
    };
    raised.push_str(&err);
    OutputText { err: raised, out }
}

/// An image of an output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its MIME type.
    pub mime: String,
    /// Its bytes, in base64.
    pub base64: String,
}

/// How many images an answer has at most.
pub const MOST_IMAGES: usize = 4;

/// The largest image in an answer, in bytes of its base64 form. Clients refuse larger ones.
const LARGEST_IMAGE: usize = 4 << 20;

/// The types of images that models read.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the image of an output's data; `None` if there is none, or it is too large.
pub(crate) fn image<'a>(mut form: impl FnMut(&str) -> Option<Cow<'a, str>>) -> Option<Image> {
    IMAGES.iter().find_map(|mime| {
        let base64 = form(mime)?;
        let base64: String = base64.split_whitespace().collect();
        (base64.len() <= LARGEST_IMAGE).then(|| Image {
            mime: (*mime).to_owned(),
            base64,
        })
    })
}

/// Returns the first images among outputs.
pub(crate) fn images(outputs: &[OutputMessage]) -> Vec<Image> {
    let images = outputs.iter().filter_map(|output| match output {
        OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
            image(|mime| it.data.get(mime).map(text_of))
        }
        OutputMessage::Stream(_) | OutputMessage::Error(_) => None,
    });
    images.take(MOST_IMAGES).collect()
}

/// Returns about how many characters the outputs have as text.
pub(crate) fn characters(outputs: &[OutputMessage]) -> usize {
    let sizes = outputs.iter().map(|output| match output {
        OutputMessage::Stream(it) => it.text.len(),
        OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
            bundle(it).len()
        }
        OutputMessage::Error(_) => 0,
    });
    sizes.sum()
}

/// Shares a number of characters among texts of these sizes: what short texts do not use goes to long ones.
pub(crate) fn shares(sizes: &[usize], limit: usize) -> Vec<usize> {
    let mut by_size: Vec<_> = (0..sizes.len()).collect();
    by_size.sort_by_key(|at| sizes[*at]);
    let (mut left, mut shares) = (limit, vec![0; sizes.len()]);
    for (done, at) in by_size.into_iter().enumerate() {
        let share = left / (sizes.len() - done);
        shares[at] = share;
        left -= share.min(sizes[at]);
    }
    shares
}

/// Returns a MIME bundle as text: its plain form, and notes on the other data that plain text cannot show.
pub(crate) fn bundle(bundle: &DisplayContent) -> String {
    // The author chose Markdown; the plain form beside it is only the object's name.
    let mut shown = ["text/markdown", "text/plain", "text/latex"]
        .iter()
        .find_map(|mime| bundle.data.get(*mime))
        .map(|value| text_of(value).into_owned())
        .unwrap_or_default();
    for (mime, value) in &bundle.data {
        let is_media = ["image/", "audio/", "video/", "application/pdf"]
            .iter()
            .any(|kind| mime.starts_with(kind));
        if is_media || shown.is_empty() {
            if !shown.is_empty() {
                shown.push('\n');
            }
            let _ = write!(shown, "[{mime}, {}]", size(bytes(mime, value)));
        }
    }
    shown
}

/// Returns the error that the code raised, uncut.
pub(crate) fn traceback(raised: &KernelException) -> String {
    if raised.traceback.is_empty() {
        format!("{}: {}", raised.ename, raised.evalue)
    } else {
        raised.traceback.join("\n")
    }
}

/// Returns the error that the code raised, without the frames of libraries that the notebook's own frames have
/// called: of each row of them only the last one, which says where it was raised. `more` is the command that
/// shows all.
fn short_traceback(raised: &KernelException, more: &str) -> String {
    let is_of_library: Vec<_> = raised.traceback.iter().map(|it| is_library(it)).collect();
    let mut parts: Vec<Cow<'_, str>> = Vec::new();
    let mut left_out = 0;
    for (at, part) in raised.traceback.iter().enumerate() {
        let is_last = is_of_library.get(at + 1) != Some(&true);
        if is_of_library.get(at) == Some(&true) && !is_last {
            left_out += 1;
            continue;
        }
        match std::mem::take(&mut left_out) {
            0 => {}
            1 => parts.push(format!("… 1 frame of a library; {more}").into()),
            count => parts.push(format!("… {count} frames of libraries; {more}").into()),
        }
        parts.push(part.into());
    }
    match parts.is_empty() {
        true => traceback(raised),
        false => parts.join("\n"),
    }
}

/// Says whether a part of a traceback is a frame in a file of a library, as IPython writes it:
/// `File /usr/lib/python3.12/json/decoder.py:353, in …`.
fn is_library(part: &str) -> bool {
    let part = plain(part);
    let line = part.trim_start().lines().next().unwrap_or_default();
    let file = line.strip_prefix("File ");
    file.is_some_and(|file| {
        let folders = [
            "/site-packages/",
            "/dist-packages/",
            "/lib/python",
            "<frozen ",
        ];
        folders.iter().any(|folder| file.contains(folder))
    })
}

/// Prepares outputs for a JSON answer: without colours, and under a limit without media and with long texts
/// cut.
pub(crate) fn for_json(outputs: &mut [OutputMessage], limit: Option<usize>, more: &str) {
    for output in outputs {
        match output {
            OutputMessage::Error(raised) => {
                for line in &mut raised.traceback {
                    *line = plain(line);
                }
            }
            OutputMessage::Stream(stream) => {
                if let Some(limit) = limit {
                    stream.text = cut(&stream.text, limit, more).into_owned();
                }
            }
            OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
                let Some(limit) = limit else { continue };
                for (mime, value) in &mut it.data {
                    let text = text_of(value);
                    if mime.starts_with("text/") {
                        *value = Value::String(cut(&text, limit, more).into_owned());
                    } else if text.len() > limit {
                        *value = Value::String(format!("[{}]", size(bytes(mime, value))));
                    }
                }
            }
        }
    }
}

/// Returns the text without colours and other escape sequences.
pub(crate) fn plain(text: &str) -> String {
    anstream::adapter::strip_str(text).to_string()
}

/// Keeps the head and tail of a text of more than `limit` characters, as whole lines where possible. A note
/// between them says how much is left out, and contains `more`.
pub(crate) fn cut<'a>(text: &'a str, limit: usize, more: &str) -> Cow<'a, str> {
    cut_more(text, limit, OmittedOutput::default(), more)
}

/// Cuts the middle out of a text from which `before` has been left out already.
fn cut_more<'a>(text: &'a str, limit: usize, before: OmittedOutput, more: &str) -> Cow<'a, str> {
    let count = text.chars().count();
    if count <= limit {
        return Cow::Borrowed(text);
    }
    let place = |chars: usize| {
        text.char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at)
    };
    let (head, tail) = (place(limit - limit / 3), place(count - limit / 3));
    // Prefer to cut at a line's end if one is near.
    let head = text
        .get(..head)
        .and_then(|kept| Some(kept.rfind('\n')? + 1))
        .filter(|at| head - at < limit / 4)
        .unwrap_or(head);
    let tail = text
        .get(tail..)
        .and_then(|kept| Some(tail + kept.find('\n')? + 1))
        .filter(|at| at - tail < limit / 4)
        .unwrap_or(tail);
    let (Some(kept), Some(left_out), Some(end)) =
        (text.get(..head), text.get(head..tail), text.get(tail..))
    else {
        return Cow::Borrowed(text);
    };
    let mut shown = kept.to_owned();
    let note = format!(
        "[… {} characters, {} lines left out; {more} …]",
        left_out.chars().count() as u64 + before.bytes,
        left_out.lines().count() as u64 + before.lines
    );
    on_a_line_of_its_own(&mut shown, &note);
    shown.push_str(end);
    Cow::Owned(shown)
}

fn on_a_line_of_its_own(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push('\n');
    }
}

/// Returns a representation as one text; in notebook files it may be a list of texts.
pub(crate) fn text_of(value: &Value) -> Cow<'_, str> {
    match value {
        Value::String(text) => Cow::Borrowed(text),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        other => Cow::Owned(other.to_string()),
    }
}

/// Returns the size of a representation in bytes; media other than SVG are base64.
fn bytes(mime: &str, value: &Value) -> u64 {
    let text = text_of(value);
    if mime.starts_with("text/") || mime.ends_with("xml") || mime.ends_with("json") {
        return text.len() as u64;
    }
    let digits = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=');
    digits.count() as u64 * 3 / 4
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::execution::run::StreamText;

    fn stream(name: &str, text: &str) -> OutputMessage {
        OutputMessage::Stream(StreamText {
            name: name.to_owned(),
            text: text.to_owned(),
        })
    }

    fn shown(data: &Value) -> DisplayContent {
        serde_json::from_value(json!({ "data": data })).expect("a bundle")
    }

    #[test]
    fn what_was_raised_comes_first_and_whole() {
        let raised = KernelException {
            ename: "E".to_owned(),
            evalue: "v".to_owned(),
            traceback: vec!["line 1".to_owned(), "x".repeat(100)],
        };
        let outputs = [
            stream("stdout", "a\n"),
            stream("stderr", "warned\n"),
            OutputMessage::Error(raised),
        ];
        let how = Cut {
            limit: Some(50),
            left_out: OmittedOutput::default(),
            shortens_errors: false,
            more: "more".to_owned(),
        };
        let text = text(&outputs, &how);
        assert_eq!(text.out, "a\n");
        assert_eq!(text.err, format!("line 1\n{}\nwarned\n", "x".repeat(100)));
    }

    #[test]
    fn an_image_is_named_by_type_and_size() {
        let figure = shown(&json!({
            "image/png": "aGVsbG8=\n", "text/plain": "<Figure size 640x480 with 1 Axes>"
        }));
        assert_eq!(
            bundle(&figure),
            "<Figure size 640x480 with 1 Axes>\n[image/png, 5 bytes]"
        );
        let table = json!({ "text/html": "<table>", "text/plain": ["a\n", "b"] });
        assert_eq!(bundle(&shown(&table)), "a\nb");
        assert_eq!(
            bundle(&shown(&json!({ "text/html": "<b>" }))),
            "[text/html, 3 bytes]"
        );
        let markdown = json!({ "text/markdown": "**hi**", "text/plain": "<Markdown object>" });
        assert_eq!(bundle(&shown(&markdown)), "**hi**");
        assert_eq!(bundle(&shown(&json!({}))), "");
    }

    #[test]
    fn a_long_text_keeps_head_and_tail_and_says_so() {
        let lines: String = (0..1000).map(|i| format!("line {i}\n")).collect();
        let shown = cut(&lines, 300, "more");
        assert!(shown.starts_with("line 0\nline 1\n"), "{shown}");
        assert!(shown.ends_with("line 998\nline 999\n"), "{shown}");
        let note = shown
            .lines()
            .find(|line| line.starts_with("[…"))
            .expect("a note");
        let kept: usize = shown
            .lines()
            .filter(|line| *line != note)
            .map(|line| line.len() + 1)
            .sum();
        assert!(kept <= 300, "{kept}");
        assert!(note.contains(&format!("{} characters", lines.len() - kept)));

        // A text without a line end, of multi-byte characters.
        let long = "é".repeat(1000);
        let shown = cut(&long, 10, "more");
        assert_eq!(shown.chars().filter(|c| *c == 'é').count(), 10);
        assert_eq!(cut("short", 5, "more"), "short");
        assert!(cut("short", 0, "more").contains("5 characters"));
        let before = OmittedOutput {
            bytes: 100,
            lines: 9,
            displays: 0,
        };
        let shown = cut_more("a\nb\nc\n", 2, before, "more");
        assert!(
            shown.contains("[… 104 characters, 11 lines left out; more …]"),
            "{shown}"
        );
    }

    #[test]
    fn long_texts_share_what_short_ones_leave() {
        assert_eq!(shares(&[100, 2, 100, 0], 50), [24, 16, 24, 12]);
        assert_eq!(shares(&[9, 9], 0), [0, 0]);
        assert_eq!(shares(&[], 9), [0; 0]);
    }

    #[test]
    fn json_has_no_colours_and_no_media_beyond_the_limit() {
        let mut outputs = [
            OutputMessage::Error(KernelException {
                traceback: vec!["\u{1b}[31mred\u{1b}[0m".to_owned()],
                ..KernelException::default()
            }),
            OutputMessage::Display(shown(
                &json!({ "image/png": "A".repeat(4000), "text/plain": "x" }),
            )),
        ];
        for_json(&mut outputs, None, "more");
        assert!(matches!(&outputs[0], OutputMessage::Error(it) if it.traceback == ["red"]));
        assert!(
            matches!(&outputs[1], OutputMessage::Display(it) if it.data["image/png"].as_str().is_some_and(|it| it.len() == 4000))
        );
        for_json(&mut outputs, Some(100), "more");
        assert!(
            matches!(&outputs[1], OutputMessage::Display(it) if it.data["image/png"] == "[3.0 kB]" && it.data["text/plain"] == "x")
        );
    }

    #[test]
    fn of_libraries_only_the_frame_that_raised_is_shown() {
        let parts = [
            "-----",
            "KeyError      Traceback (most recent call last)",
            "\u{1b}[36mFile \u{1b}[39m\u{1b}[32m/v/lib/python3.12/site-packages/pandas/a.py:1\u{1b}[39m, in get()\n  1 a",
            "File /v/lib/python3.12/site-packages/pandas/b.py:2, in get()\n  2 b",
            "\nThe above exception was the direct cause of the following exception:\n",
            "KeyError      Traceback (most recent call last)",
            "Cell In[3], line 1\n----> 1 load()",
            "File ~/project/load.py:3, in load()\n  3 df['x']",
            "File /v/lib/python3.12/site-packages/pandas/c.py:1, in __getitem__()",
            "File /v/lib/python3.12/site-packages/pandas/d.py:1, in get_loc()",
            "File /v/lib/python3.12/site-packages/pandas/e.py:1, in get_loc()",
            "KeyError: 'x'",
        ];
        let raised = KernelException {
            ename: "KeyError".to_owned(),
            evalue: "'x'".to_owned(),
            traceback: parts.map(str::to_owned).to_vec(),
        };
        insta::assert_snapshot!(short_traceback(&raised, "--all shows all"), @r"
        -----
        KeyError      Traceback (most recent call last)
        … 1 frame of a library; --all shows all
        File /v/lib/python3.12/site-packages/pandas/b.py:2, in get()
          2 b

        The above exception was the direct cause of the following exception:

        KeyError      Traceback (most recent call last)
        Cell In[3], line 1
        ----> 1 load()
        File ~/project/load.py:3, in load()
          3 df['x']
        … 2 frames of libraries; --all shows all
        File /v/lib/python3.12/site-packages/pandas/e.py:1, in get_loc()
        KeyError: 'x'
        ");
    }
}
