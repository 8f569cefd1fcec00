//! A cell's outputs as text: for people at a terminal and for agents that read characters.
//!
//! The cell's stdout, its displays and its result go to stdout; its stderr and errors go to stderr. An
//! image is shown as its type, its size and its file. All cells of an answer share one limit: errors come first,
//! then short texts. A text above its share keeps its head and tail, with a note between them that says how much
//! is left out.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;

use super::readable::{ShortTraceback, joined, plain_form, readable, without_similar_lines};
use crate::execution::run::{DisplayContent, KernelException, OutputMessage};
use crate::notebook::{MimeData, OmittedOutput, is_media, own_line, visible_output};

/// The outputs of a cell as text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct OutputText {
    /// What the cell raised, and behind it what it wrote to stderr.
    pub err: String,
    /// What the cell wrote to stdout, its displays and its result.
    pub out: String,
    /// All of these in the order in which they came, for a text in short; what the cell raised is at the end.
    #[serde(skip)]
    pub in_order: Option<String>,
}

/// How outputs become text.
pub(crate) struct TextOptions<'a> {
    /// Whether tables, charts and tracebacks are shortened, as agents read them.
    pub in_short: bool,
    /// How many characters are shown at most: above [`SHORT_LIMIT`] all similar lines are.
    pub limit: Option<usize>,
    /// The command that shows everything.
    pub more: &'a str,
}

/// The limit of a text in short. With a greater one a reader wants to read more.
pub(crate) const SHORT_LIMIT: usize = 6000;

/// Says whether a text in short has only the first and last of many similar lines.
pub(crate) fn leaves_out_similar_lines(limit: Option<usize>) -> bool {
    limit.is_none_or(|limit| limit <= SHORT_LIMIT)
}

/// The outputs of a cell as text that is not cut yet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct UncutText {
    /// The errors that the cell raised.
    raised: String,
    /// What the cell wrote to stderr.
    err: String,
    /// What the cell wrote to stdout, its displays and its result.
    out: String,
    /// What the cell wrote to stderr and stdout, its displays and its result, in order; where that is wanted.
    both: Option<String>,
    /// What is missing already.
    left_out: OmittedOutput,
}

impl UncutText {
    /// Reads outputs. `note` describes data that is not text.
    pub(crate) fn of(
        outputs: &[OutputMessage],
        left_out: OmittedOutput,
        options: &TextOptions<'_>,
        mut note: impl FnMut(&str, &Value) -> String,
    ) -> Self {
        let mut text = Self {
            left_out,
            both: options.in_short.then(String::new),
            ..Self::default()
        };
        for output in outputs {
            match output {
                OutputMessage::Stream(it) => {
                    let part = match it.name == "stderr" {
                        true => &mut text.err,
                        false => &mut text.out,
                    };
                    let shown = visible_output(&it.text);
                    for part in std::iter::once(part).chain(&mut text.both) {
                        part.push_str(&shown);
                    }
                }
                OutputMessage::Display(it)
                | OutputMessage::Update(it)
                | OutputMessage::Result(it) => {
                    let shown = bundle(it, options.in_short, &mut note);
                    for part in std::iter::once(&mut text.out).chain(&mut text.both) {
                        on_a_line_of_its_own(part, &shown);
                    }
                }
                OutputMessage::Error(it) if options.in_short && !it.traceback.is_empty() => {
                    let short = ShortTraceback { more: options.more };
                    let parts = it.traceback.iter().map(|part| visible_output(part));
                    let parts: Vec<_> = parts.collect();
                    on_a_line_of_its_own(&mut text.raised, &short.of(&parts));
                }
                OutputMessage::Error(it) => on_a_line_of_its_own(&mut text.raised, &traceback(it)),
            }
        }
        // A text of which much is missing already is cut, which counts that too.
        let leaves_out = options.in_short && leaves_out_similar_lines(options.limit);
        if leaves_out && left_out == OmittedOutput::default() {
            if let Some(both) = &mut text.both {
                *both = without_similar_lines(both, options.more).into_owned();
            }
            for part in [&mut text.out, &mut text.err] {
                let short = without_similar_lines(part, options.more).into_owned();
                text.left_out += OmittedOutput::between(part, &short);
                *part = short;
            }
        }
        text
    }

    /// Returns the texts of several cells with about `limit` characters together. What short texts do not use
    /// goes to long ones; errors come first.
    pub(crate) fn cut(texts: &[Self], limit: Option<usize>, more: &str) -> Vec<OutputText> {
        let errors: Vec<_> = texts.iter().map(|text| length(&text.raised)).collect();
        let others: Vec<_> = texts
            .iter()
            .flat_map(|text| [length(&text.err), length(&text.out)])
            .collect();
        let shares = limit.map(|limit| {
            let errors = shares(&errors, limit);
            let rest = limit.saturating_sub(errors.iter().sum());
            (errors, shares(&others, rest))
        });
        let share = |part: &str, share: Option<usize>, left_out: OmittedOutput| match share {
            Some(share) => cut_more(part, share, left_out, more).into_owned(),
            None => part.to_owned(),
        };
        let texts = texts.iter().enumerate().map(|(at, text)| {
            let [raised, err, out] = match &shares {
                None => [None; 3],
                Some((errors, others)) => {
                    [errors.get(at), others.get(2 * at), others.get(2 * at + 1)]
                        .map(Option::<&usize>::copied)
                }
            };
            // What was left out is counted as part of the longer text.
            let (of_err, of_out) = match text.out.len() >= text.err.len() {
                true => (OmittedOutput::default(), text.left_out),
                false => (text.left_out, OmittedOutput::default()),
            };
            let mut first = share(&text.raised, raised, OmittedOutput::default());
            // Line breaks between the parts are not cut off.
            let is_whole = err >= Some(length(&text.err)) && out >= Some(length(&text.out));
            let both = err.zip(out).map(|(err, out)| err + out);
            let both = both.map(|both| both.max(limit.filter(|_| is_whole).unwrap_or_default()));
            let in_order = text.both.as_ref().map(|text_of_both| {
                let mut in_order = share(text_of_both, both, text.left_out);
                if !first.is_empty() {
                    on_a_line_of_its_own(&mut in_order, &first);
                }
                in_order
            });
            first.push_str(&share(&text.err, err, of_err));
            OutputText {
                in_order,
                err: first,
                out: share(&text.out, out, of_out),
            }
        });
        texts.collect()
    }
}

fn length(text: &str) -> usize {
    text.chars().count()
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

/// The largest image in an answer, in bytes of its base64 form.
const LARGEST_IMAGE: usize = 32 << 20;

/// The types of images that models read.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the image of an output's data; `None` if there is none, or it is too large.
pub fn image<'a>(mut form: impl FnMut(&str) -> Option<Cow<'a, str>>) -> Option<Image> {
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
pub fn images(outputs: &[OutputMessage]) -> Vec<Image> {
    let images = outputs.iter().filter_map(|output| match output {
        OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
            image(|mime| it.data.get(mime).map(joined))
        }
        OutputMessage::Stream(_) | OutputMessage::Error(_) => None,
    });
    images.take(MOST_IMAGES).collect()
}

/// How many characters of each text are kept at least, however many texts there are.
const SHARE_MIN: usize = 80;

/// Shares a number of characters among texts of these lengths: what short texts do not use goes to long ones.
pub fn shares(lengths: &[usize], limit: usize) -> Vec<usize> {
    let mut by_length: Vec<_> = (0..lengths.len()).collect();
    by_length.sort_by_key(|at| lengths[*at]);
    let (mut left, mut shares) = (limit, vec![0; lengths.len()]);
    for (handled, at) in by_length.into_iter().enumerate() {
        let share = (left / (lengths.len() - handled)).min(lengths[at]);
        left -= share;
        shares[at] = share.max(SHARE_MIN).min(lengths[at]);
    }
    shares
}

/// Returns a MIME bundle as text in which all characters are visible, with a note on each form that is not text.
pub fn bundle(
    bundle: &DisplayContent,
    in_short: bool,
    mut note: impl FnMut(&str, &Value) -> String,
) -> String {
    let mut shown = match in_short {
        true => readable(&bundle.data),
        false => plain_form(&bundle.data).into_owned(),
    };
    if let Cow::Owned(visible) = visible_output(&shown) {
        shown = visible;
    }
    let is_told = !shown.is_empty() || bundle.data.keys().any(|mime| is_media(mime));
    for (mime, value) in &bundle.data {
        if is_media(mime) || !is_told {
            if !shown.is_empty() {
                shown.push('\n');
            }
            shown.push_str(&own_line(&note(mime, value)));
        }
    }
    shown
}

/// Returns a note with the type and size of data.
pub fn note(mime: &str, value: &Value) -> String {
    format!("[{}]", MimeData::of_value(mime, value))
}

/// Returns the error that the code raised, uncut, with all characters visible.
pub fn traceback(raised: &KernelException) -> String {
    let text = match raised.traceback.is_empty() {
        true => format!("{}: {}", raised.ename, raised.evalue),
        false => raised.traceback.join("\n"),
    };
    visible_output(&text).into_owned()
}

/// Prepares displays and errors for a JSON answer: without colours, and under a limit with long texts cut, and notes
/// in the place of other long data.
pub(crate) fn for_json(
    outputs: &mut [OutputMessage],
    limit: Option<usize>,
    more: &str,
    mut note: impl FnMut(&str, &Value) -> String,
) {
    for output in outputs {
        match output {
            OutputMessage::Error(raised) => {
                for line in &mut raised.traceback {
                    *line = plain(line);
                }
            }
            OutputMessage::Stream(_) => {}
            OutputMessage::Display(it) | OutputMessage::Update(it) | OutputMessage::Result(it) => {
                let Some(limit) = limit else { continue };
                for (mime, value) in &mut it.data {
                    let text = joined(value);
                    if mime.starts_with("text/") {
                        *value = Value::String(cut(&text, limit, more).into_owned());
                    } else if text.len() > limit {
                        *value = Value::String(note(mime, value));
                    }
                }
            }
        }
    }
}

/// Returns the text without colours, other escape sequences and control characters.
pub fn plain(text: &str) -> String {
    let text = anstream::adapter::strip_str(text).to_string();
    let is_kept = |c: &char| matches!(c, '\n' | '\t') || !c.is_control();
    match text.chars().all(|c| is_kept(&c)) {
        true => text,
        false => text.chars().filter(is_kept).collect(),
    }
}

/// Keeps the head and tail of a text of more than `limit` characters, as whole lines where possible. A note
/// between them says how much is left out, and contains `more`.
pub fn cut<'a>(text: &'a str, limit: usize, more: &str) -> Cow<'a, str> {
    cut_more(text, limit, OmittedOutput::default(), more)
}

/// A text that is cut keeps one of its first and one of its last lines for so many characters of its limit:
/// a log of thousands of lines is not worth all of them.
const CHARACTERS_OF_LINE: usize = 300;

/// How many of its first and of its last lines a text that is cut may keep at least.
const LEAST_LINES: usize = 2;

/// Cuts the middle out of a text from which `before` has been left out already.
pub(crate) fn cut_more<'a>(
    text: &'a str,
    limit: usize,
    before: OmittedOutput,
    more: &str,
) -> Cow<'a, str> {
    let count = text.chars().count();
    if count <= limit {
        return Cow::Borrowed(text);
    }
    let place = |chars: usize| {
        text.char_indices()
            .nth(chars)
            .map_or(text.len(), |(at, _)| at)
    };
    let lines = (limit / CHARACTERS_OF_LINE).max(LEAST_LINES);
    let (head, tail) = (place(limit - limit / 3), place(count - limit / 3));
    let mut ends = memchr::memchr_iter(b'\n', text.as_bytes()).map(|at| at + 1);
    let head = head.min(ends.nth(lines - 1).unwrap_or(head));
    let without_last = text.strip_suffix('\n').unwrap_or(text);
    let mut begins = memchr::memrchr_iter(b'\n', without_last.as_bytes()).map(|at| at + 1);
    let tail = tail.max(begins.nth(lines - 1).unwrap_or(tail));
    // Prefer to cut at a line's end if one is near.
    let head = text
        .get(..head)
        .and_then(|kept| Some(kept.rfind('\n')? + 1))
        .filter(|at| head - at < limit / 4)
        .unwrap_or(head);
    let tail = match text.get(..tail) {
        Some(before) if before.ends_with('\n') => tail,
        _ => text
            .get(tail..)
            .and_then(|kept| Some(tail + kept.find('\n')? + 1))
            .filter(|at| at - tail < limit / 4)
            .unwrap_or(tail),
    };
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
    on_a_line_of_its_own(&mut shown, &own_line(&note));
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
    fn plain_text_has_no_control_characters() {
        for (text, shown) in [
            ("\u{9d}52;c;cHduZWQ=\u{9c}\u{9b}6nX", "52;c;cHduZWQ=6nX"),
            ("\x1b[1;31mred\x1b[0m\n\tx\x07\x7f", "red\n\tx"),
        ] {
            assert_eq!(plain(text), shown);
        }
    }

    #[test]
    fn what_was_raised_comes_first() {
        let raised = KernelException {
            ename: "E".to_owned(),
            evalue: "v".to_owned(),
            traceback: vec!["line 1".to_owned(), "x".repeat(100)],
        };
        let outputs = [
            stream("stdout", &"y".repeat(1000)),
            stream("stderr", "warned\n"),
            OutputMessage::Error(raised),
        ];
        let options = TextOptions {
            in_short: false,
            limit: Some(300),
            more: "more",
        };
        let text = UncutText::of(&outputs, OmittedOutput::default(), &options, note);
        let texts = UncutText::cut(&[text, UncutText::default()], Some(300), "more");
        let raised = format!("line 1\n{}\nwarned\n", "x".repeat(100));
        assert_eq!(texts[0].err, raised);
        assert!(texts[0].out.contains("left out; more"), "{}", texts[0].out);
        let characters = texts[0].out.matches('y').count();
        assert!(
            (100..=300 - raised.len()).contains(&characters),
            "{characters}"
        );
        assert_eq!(texts[1], OutputText::default());
    }

    #[test]
    fn a_text_in_order_has_what_was_raised_at_the_end() {
        let raised = KernelException {
            ename: "E".to_owned(),
            evalue: "v".to_owned(),
            traceback: vec!["E: v".to_owned()],
        };
        let outputs = [
            stream("stdout", "one\n"),
            stream("stderr", "two\n"),
            stream("stdout", "three"),
            OutputMessage::Error(raised),
        ];
        let options = TextOptions {
            in_short: true,
            limit: None,
            more: "more",
        };
        let text = UncutText::of(&outputs, OmittedOutput::default(), &options, note);
        for limit in [None, Some(SHORT_LIMIT)] {
            let text = &UncutText::cut(std::slice::from_ref(&text), limit, "more")[0];
            assert_eq!(text.in_order.as_deref(), Some("one\ntwo\nthree\nE: v\n"));
            assert_eq!((&*text.out, &*text.err), ("one\nthree", "E: v\ntwo\n"));
        }
    }

    #[test]
    fn with_a_greater_limit_all_similar_lines_are_shown() {
        let lines: String = (0..400).map(|i| format!("line {i}\n")).collect();
        let shown = |limit| {
            let options = TextOptions {
                in_short: true,
                limit,
                more: "more",
            };
            let outputs = [stream("stdout", &lines)];
            let text = UncutText::of(&outputs, OmittedOutput::default(), &options, note);
            UncutText::cut(&[text], limit, "more").remove(0)
        };
        assert!(
            shown(Some(SHORT_LIMIT))
                .out
                .contains("[… 380 similar lines; more …]")
        );
        assert_eq!(shown(Some(100_000)).out, lines);
        assert_eq!(shown(Some(100_000)).in_order, Some(lines.clone()));
    }

    #[test]
    fn an_image_is_named_by_type_and_size() {
        let figure = shown(&json!({
            "image/png": "aGVsbG8=\n", "text/plain": "<Figure size 640x480 with 1 Axes>"
        }));
        let in_short = |data: &Value| bundle(&shown(data), true, note);
        assert_eq!(bundle(&figure, true, note), "‣ [image/png, 5 bytes]");
        assert_eq!(
            bundle(&figure, false, note),
            "<Figure size 640x480 with 1 Axes>\n‣ [image/png, 5 bytes]"
        );
        let table = json!({ "text/html": "<table>", "text/plain": ["a\n", "b"] });
        assert_eq!(in_short(&table), "a\nb");
        assert_eq!(
            in_short(&json!({ "text/html": "<script>x</script>" })),
            "‣ [text/html, 18 bytes]"
        );
        assert_eq!(in_short(&json!({})), "");
    }

    #[test]
    fn a_long_text_keeps_head_and_tail_and_says_so() {
        let lines: String = (0..1000).map(|i| format!("line {i}\n")).collect();
        let shown = cut(&lines, 300, "more");
        assert!(shown.starts_with("line 0\nline 1\n"), "{shown}");
        assert!(shown.ends_with("line 998\nline 999\n"), "{shown}");
        let note = shown
            .lines()
            .find(|line| line.starts_with("‣ […"))
            .expect("a note");
        let kept: usize = shown
            .lines()
            .filter(|line| *line != note)
            .map(|line| line.len() + 1)
            .sum();
        assert_eq!(kept, 2 * "line 0\n".len() + 2 * "line 999\n".len());
        assert!(note.contains(&format!("{} characters", lines.len() - kept)));
        assert_eq!(cut(&lines, 6000, "more").lines().count(), 41);

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
        assert_eq!(
            shares(&[10, 5000, 0, 3000, 400], 1000),
            [10, 330, 0, 330, 330]
        );
        assert_eq!(shares(&[10, 20], 1000), [10, 20]);
        assert_eq!(shares(&[5000], 1000), [1000]);
        assert_eq!(shares(&[100, 100], 10), [SHARE_MIN, SHARE_MIN]);
        assert_eq!(shares(&[], 10), [0; 0]);
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
        for_json(&mut outputs, None, "more", note);
        assert!(matches!(&outputs[0], OutputMessage::Error(it) if it.traceback == ["red"]));
        assert!(
            matches!(&outputs[1], OutputMessage::Display(it) if it.data["image/png"].as_str().is_some_and(|it| it.len() == 4000))
        );
        for_json(&mut outputs, Some(100), "more", note);
        assert!(
            matches!(&outputs[1], OutputMessage::Display(it) if it.data["image/png"] == "[image/png, 3.0 kB]" && it.data["text/plain"] == "x")
        );
    }
}
