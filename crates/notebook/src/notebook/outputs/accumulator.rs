//! Accumulates a cell's outputs from a kernel's messages, as front ends do.
//!
//! The rules are JupyterLab's and nbclient's, which agree: consecutive texts of one stream are one output;
//! `clear_output` clears (with `wait`, when the next output comes); a display or update with a display id
//! replaces all displays with that id, in any cell.
//!
//! Under a limit, a cell with more output keeps its beginning and end, and a line between them says how
//! much is left out: no front end opens a notebook of ten million lines.

use std::borrow::Cow;

use super::limit::{OmittedOutput, OutputLimit, note, weight};
use super::terminal_text::TerminalText;
use crate::notebook::json::{Json, Object, in_parts, lossy, string_at, value_at};

/// The outputs of a cell so far.
#[derive(Clone, Debug, Default)]
pub struct OutputAccumulator {
    /// The first outputs, once outputs after them have been left out.
    head: Vec<AccumulatedOutput>,
    left_out: OmittedOutput,
    /// Whether outputs were left out, and `head` is set.
    is_cut: bool,
    outputs: Vec<AccumulatedOutput>,
    /// About how many bytes `outputs` takes.
    size: usize,
    clear_with_next: bool,
    bound: Option<OutputLimit>,
}

#[derive(Clone, Debug)]
enum AccumulatedOutput {
    Stream {
        name: String,
        screen: TerminalText,
    },
    /// An execution result or a display.
    Bundle {
        /// The message's type.
        kind: String,
        /// The execution count of a result.
        count: Option<Json>,
        shown: MimeBundle,
        display_id: Option<String>,
    },
    Error(Json),
}

/// A MIME bundle: the forms of one output, and their metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MimeBundle {
    data: Json,
    metadata: Json,
    /// About how many bytes of text it has, see [`weight`].
    size: usize,
}

/// The effect of a message on a cell's outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputChange {
    /// The message is not an output.
    Nothing,
    /// The outputs changed, or a later message will change them.
    Changed,
    /// A bundle is shown under a display id, which other cells may show too: see
    /// [`OutputAccumulator::update`].
    Displayed {
        /// The id.
        display_id: String,
        /// The bundle that is shown now.
        shown: MimeBundle,
    },
    /// The message is an output, but its content is not a JSON object.
    Unreadable,
}

impl OutputAccumulator {
    /// Makes an accumulator that keeps about `most` bytes of text. `more` is the command that shows the
    /// rest, for the note among the outputs.
    pub fn bounded(most: usize, more: impl Into<String>) -> Self {
        Self {
            bound: Some(OutputLimit {
                most,
                more: more.into(),
            }),
            ..Self::default()
        }
    }

    /// Returns how much the limit left out.
    pub fn left_out(&self) -> OmittedOutput {
        self.left_out
    }

    /// Adds an iopub message of the cell's request: its type and its content.
    pub fn take(&mut self, msg_type: &str, content: &[u8]) -> OutputChange {
        if !matches!(
            msg_type,
            "stream"
                | "display_data"
                | "update_display_data"
                | "execute_result"
                | "error"
                | "clear_output"
        ) {
            return OutputChange::Nothing;
        }
        let content = decoded(content);
        let content = content.as_bytes();
        let Some(object) = Object::read(content) else {
            return OutputChange::Unreadable;
        };
        match msg_type {
            "stream" => {
                let text = object.get(content, "text");
                let text = text.map(|text| text.of(content));
                let text = text.filter(|text| text.starts_with(b"\""));
                self.stream(string(content, "name"), text.unwrap_or_default());
                OutputChange::Changed
            }
            "clear_output" => {
                let waits = value_at(content, &["wait"]);
                if waits.is_some_and(|waits| waits.bytes() == b"true") {
                    self.clear_with_next = true;
                    return OutputChange::Changed;
                }
                self.clear();
                // As in JupyterLab, this cancels an earlier `wait`.
                self.clear_with_next = false;
                OutputChange::Changed
            }
            "error" => {
                let traceback = value_at(content, &["traceback"]);
                // Some kernels send one text.
                let traceback = traceback.map(|it| match it.as_string() {
                    Some(text) => Json::list(&text.lines().map(Json::string).collect::<Vec<_>>()),
                    None => it,
                });
                let traceback = traceback.filter(|lines| lines.bytes().starts_with(b"["));
                let traceback = traceback.unwrap_or_else(|| Json::list([]));
                let traceback = match &self.bound {
                    Some(bound) => bound.traceback(traceback),
                    None => traceback,
                };
                let [name, value] = ["ename", "evalue"].map(|key| {
                    let text = string(content, key);
                    Json::string(&match &self.bound {
                        Some(bound) => bound.error_text(text),
                        None => text,
                    })
                });
                self.add(AccumulatedOutput::Error(Json::object([
                    ("output_type", &Json::string("error")),
                    ("ename", &name),
                    ("evalue", &value),
                    ("traceback", &traceback),
                ])));
                OutputChange::Changed
            }
            _ => self.bundle(msg_type, content),
        }
    }

    /// Replaces the bundles that are shown under a display id, and returns whether there were any.
    pub fn update(&mut self, id: &str, new: &MimeBundle) -> bool {
        let mut found = false;
        for output in self.head.iter_mut().chain(&mut self.outputs) {
            if let AccumulatedOutput::Bundle {
                shown, display_id, ..
            } = output
                && display_id.as_deref() == Some(id)
            {
                shown.clone_from(new);
                found = true;
            }
        }
        if found {
            self.size = self.outputs.iter().map(AccumulatedOutput::size).sum();
        }
        found
    }

    /// Says whether a bundle is shown under a display id.
    pub fn shows(&self, id: &str) -> bool {
        self.displayed().1.any(|(shown, _)| shown == id)
    }

    /// Returns how many outputs there are, and which of them have display ids: each id with its position in
    /// [`Self::outputs`].
    pub fn displayed(&self) -> (usize, impl Iterator<Item = (&str, usize)>) {
        let note = usize::from(self.more().is_some());
        let behind = self.head.len() + note;
        let places = (0..self.head.len()).chain(behind..);
        let all = self.head.iter().chain(&self.outputs).zip(places);
        let shown = all.filter_map(|(output, place)| match output {
            AccumulatedOutput::Bundle { display_id, .. } => Some((display_id.as_deref()?, place)),
            _ => None,
        });
        (behind + self.outputs.len(), shown)
    }

    /// Returns the command that shows the rest, if the limit has left something out.
    fn more(&self) -> Option<&str> {
        let more = self.bound.as_ref().map_or("", |bound| bound.more.as_str());
        (!more.is_empty() && self.left_out != OmittedOutput::default()).then_some(more)
    }

    /// Returns the outputs as nbformat 4 has them.
    pub fn outputs(&self) -> Vec<Json> {
        // A line on stderr is not mistaken for one of the cell's own results.
        let more = self.more();
        let note = more.map(|more| stream_output("stderr", &note(&self.left_out, more)));
        let head = self.head.iter().map(AccumulatedOutput::to_json);
        let outputs = self.outputs.iter().map(AccumulatedOutput::to_json);
        head.chain(note).chain(outputs).collect()
    }

    /// Adds a text, given as a JSON string, to a stream.
    fn stream(&mut self, name: String, text: &[u8]) {
        self.clear_if_due();
        let goes_on = self.outputs.last().is_some_and(
            |output| matches!(output, AccumulatedOutput::Stream { name: last, .. } if *last == name),
        );
        if !goes_on {
            let screen = TerminalText::default();
            self.add(AccumulatedOutput::Stream { name, screen });
        }
        for part in in_parts(text, PART) {
            // The last output stays, even if others are left out.
            if let Some(AccumulatedOutput::Stream { screen, .. }) = self.outputs.last_mut() {
                let before = screen.size();
                screen.write(&lossy(part));
                self.size = (self.size + screen.size()).saturating_sub(before);
                self.enforce_limit();
            }
        }
    }

    fn bundle(&mut self, msg_type: &str, content: &[u8]) -> OutputChange {
        // The data is copied only once it is known to be small enough.
        let object = |key: &str| {
            let fields = Object::read(content)?;
            let value = fields.get(content, key)?.of(content);
            value.starts_with(b"{").then_some(value)
        };
        let data = object("data").unwrap_or(b"{}");
        let data = match &self.bound {
            Some(bound) => bound.data(data),
            None => Json::of_valid(data),
        };
        let shown = MimeBundle {
            size: weight(data.bytes()),
            data,
            metadata: Json::of_valid(object("metadata").unwrap_or(b"{}")),
        };
        let display_id =
            string_at(content, &["transient", "display_id"]).filter(|id| !id.is_empty());
        if let Some(id) = &display_id {
            self.update(id, &shown);
        }
        if msg_type != "update_display_data" {
            let count = (msg_type == "execute_result").then(|| {
                let count = value_at(content, &["execution_count"]);
                count.unwrap_or_else(|| Json::of_valid(b"null"))
            });
            self.add(AccumulatedOutput::Bundle {
                kind: msg_type.to_owned(),
                count,
                shown: shown.clone(),
                display_id: display_id.clone(),
            });
        }
        match display_id {
            Some(display_id) => OutputChange::Displayed { display_id, shown },
            None => OutputChange::Changed,
        }
    }

    fn add(&mut self, output: AccumulatedOutput) {
        self.clear_if_due();
        self.size += output.size();
        self.outputs.push(output);
        self.enforce_limit();
    }

    fn clear_if_due(&mut self) {
        if std::mem::take(&mut self.clear_with_next) {
            self.clear();
        }
    }

    fn clear(&mut self) {
        self.outputs.clear();
        self.head.clear();
        self.left_out = OmittedOutput::default();
        self.is_cut = false;
        self.size = 0;
    }

    /// Leaves out what exceeds the limit, from the middle: the beginning and the end are the most
    /// informative.
    fn enforce_limit(&mut self) {
        let Some(most) = self.bound.as_ref().map(|bound| bound.most) else {
            return;
        };
        let half = most / 2;
        let limit = if self.is_cut { half } else { most };
        if self.size <= limit {
            return;
        }
        if !std::mem::replace(&mut self.is_cut, true) {
            self.split_head(half);
        }
        // Leave out an eighth more than necessary: the rest has to be moved, which would take too long for
        // each line.
        self.leave_out(self.size.saturating_sub(half - half / 8));
    }

    /// Moves the first outputs, of at most `most` bytes, to `head`, where they stay.
    fn split_head(&mut self, most: usize) {
        let mut remaining = most;
        let last = self.outputs.len().saturating_sub(1);
        let whole = self.outputs.iter().take(last).take_while(|output| {
            let fits = output.size() <= remaining;
            remaining = remaining.saturating_sub(output.size());
            fits
        });
        let whole = whole.count();
        self.head = self.outputs.drain(..whole).collect();
        let taken: usize = self.head.iter().map(AccumulatedOutput::size).sum();
        if let Some(AccumulatedOutput::Stream { name, screen }) = self.outputs.first_mut() {
            let text = screen.take_front(most.saturating_sub(taken));
            if !text.is_empty() {
                let mut screen = TerminalText::default();
                screen.write(&text);
                let name = name.clone();
                self.head.push(AccumulatedOutput::Stream { name, screen });
            }
        }
        self.size = self.outputs.iter().map(AccumulatedOutput::size).sum();
    }

    /// Leaves out at least `least` bytes from the first of the outputs; errors stay.
    fn leave_out(&mut self, least: usize) {
        let mut left = least;
        let last = self.outputs.len().saturating_sub(1);
        let mut kept = Vec::new();
        let mut whole = 0;
        for output in self.outputs.iter().take(last) {
            let can_be_cut = matches!(output, AccumulatedOutput::Stream { .. });
            if left == 0 || (can_be_cut && output.size() - OVERHEAD > left) {
                break;
            }
            whole += 1;
            left = left.saturating_sub(output.size());
        }
        for output in self.outputs.drain(..whole) {
            match output {
                AccumulatedOutput::Error(_) => kept.push(output),
                AccumulatedOutput::Stream { screen, .. } => self.left_out.text(&screen.text()),
                AccumulatedOutput::Bundle { shown, .. } => {
                    self.left_out.display(shown.data.bytes());
                }
            }
        }
        if let Some(AccumulatedOutput::Stream { screen, .. }) = self.outputs.first_mut()
            && left > 0
        {
            self.left_out.text(&screen.drop_front(left));
        }
        self.outputs.splice(..0, kept);
        self.size = self.outputs.iter().map(AccumulatedOutput::size).sum();
    }
}

/// How many bytes of a text are added at once, so that text to be left out is never in memory as a whole.
const PART: usize = 64 << 10;

/// How many bytes an output counts for in addition to its text.
const OVERHEAD: usize = 200;

impl MimeBundle {
    /// Returns an output of a notebook with this bundle in place of its own; `None` if the output is
    /// neither a display nor a result.
    pub(in crate::notebook) fn within(&self, output: &Json) -> Option<Json> {
        let kind = output.get("output_type")?.as_string()?;
        let count = match kind.as_str() {
            "display_data" => None,
            "execute_result" => Some(output.get("execution_count")?),
            _ => return None,
        };
        Some(self.output(&kind, count.as_ref()))
    }

    /// Returns an output of this kind with the bundle in it.
    fn output(&self, kind: &str, count: Option<&Json>) -> Json {
        let kind = Json::string(kind);
        let head = [("output_type", Some(&kind)), ("execution_count", count)];
        let head = head
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)));
        Json::object(head.chain([("data", &self.data), ("metadata", &self.metadata)]))
    }
}

impl AccumulatedOutput {
    /// Returns about how many bytes the output counts for.
    fn size(&self) -> usize {
        OVERHEAD
            + match self {
                Self::Stream { screen, .. } => screen.size(),
                Self::Bundle { shown, .. } => shown.size,
                Self::Error(error) => error.bytes().len(),
            }
    }

    fn to_json(&self) -> Json {
        match self {
            Self::Stream { name, screen } => stream_output(name, &screen.text()),
            Self::Bundle {
                kind, count, shown, ..
            } => shown.output(kind, count.as_ref()),
            Self::Error(error) => error.clone(),
        }
    }
}

/// Returns the pages in a reply's payload, which IPython's `?` sends, each as the content of a
/// `display_data`: JupyterLab shows them among the outputs.
pub fn pager_pages(reply: &[u8]) -> Vec<Json> {
    let reply = decoded(reply);
    let reply = reply.as_bytes();
    let payload = value_at(reply, &["payload"]);
    let pages = payload.iter().flat_map(Json::items).filter_map(|item| {
        let data = item
            .get("data")
            .filter(|_| string(item.bytes(), "source") == "page")?;
        let metadata = Json::object([]);
        Some(Json::object([("data", &data), ("metadata", &metadata)]))
    });
    pages.collect()
}

/// Returns the output of a stream.
pub(super) fn stream_output(name: &str, text: &str) -> Json {
    Json::object([
        ("output_type", &Json::string("stream")),
        ("name", &Json::string(name)),
        ("text", &Json::string(text)),
    ])
}

/// Returns a string field of an object; an empty string if there is none.
fn string(object: &[u8], key: &str) -> String {
    string_at(object, &[key]).unwrap_or_default()
}

/// Returns a content as text; invalid UTF-8 is replaced, as in jupyter_client.
fn decoded(content: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(messages: &[(&str, &str)]) -> Vec<String> {
        let mut folded = OutputAccumulator::default();
        for (msg_type, content) in messages {
            folded.take(msg_type, content.as_bytes());
        }
        let outputs = folded.outputs().into_iter();
        outputs.map(|output| output.text().into_owned()).collect()
    }

    fn stream(name: &str, text: &str) -> String {
        format!(r#"{{"output_type":"stream","name":"{name}","text":"{text}"}}"#)
    }

    #[test]
    fn invalid_utf_8_is_replaced() {
        let mut folded = OutputAccumulator::default();
        let stream = b"{\"name\":\"stdout\",\"text\":\"a\\n\xff\"}";
        assert_eq!(folded.take("stream", stream), OutputChange::Changed);
        folded.take("display_data", b"{\"data\":{\"text/plain\":\"\xe9\"}}");
        folded.take("error", b"{\"ename\":\"\xda\",\"traceback\":[\"\xff\"]}");
        let reply = b"{\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"\xff\"}}]}";
        for page in pager_pages(reply) {
            folded.take("display_data", page.text().as_bytes());
        }
        let outputs = folded.outputs();
        let texts: Vec<_> = outputs.iter().map(Json::text).collect();
        assert_eq!(texts.len(), 4);
        assert!(
            texts.iter().all(|text| text.contains('\u{fffd}')),
            "{texts:?}"
        );
    }

    #[test]
    fn streams_are_joined_by_name() {
        let messages = [
            ("stream", r#"{"name":"stdout","text":"a"}"#),
            ("status", r#"{"execution_state":"busy"}"#),
            ("stream", r#"{"name":"stdout","text":"b\n"}"#),
            ("stream", r#"{"name":"stderr","text":"c"}"#),
            ("stream", r#"{"name":"stdout","text":"1\r2"}"#),
        ];
        assert_eq!(
            fold(&messages),
            [
                stream("stdout", "ab\\n"),
                stream("stderr", "c"),
                stream("stdout", "2")
            ]
        );
    }

    #[test]
    fn clear_output_waits_for_the_next_output() {
        let a = ("stream", r#"{"name":"stdout","text":"a"}"#);
        let b = ("stream", r#"{"name":"stdout","text":"b"}"#);
        let waits = ("clear_output", r#"{"wait":true}"#);
        let now = ("clear_output", r#"{"wait":false}"#);
        assert_eq!(fold(&[a, waits]), [stream("stdout", "a")]);
        assert_eq!(fold(&[a, waits, b, b]), [stream("stdout", "bb")]);
        assert_eq!(fold(&[a, now]), [""; 0]);
        assert_eq!(fold(&[waits, now, a, b]), [stream("stdout", "ab")]);
        // It counts as a change, so that it is stored with the messages and has its effect in a replay.
        let waits = OutputAccumulator::default().take(waits.0, waits.1.as_bytes());
        assert_eq!(waits, OutputChange::Changed);
    }

    #[test]
    fn a_display_id_is_one_thing_wherever_it_is_shown() {
        let show = |kind, id: &str, text: &str| {
            let content = format!(
                r#"{{"data":{{"text/plain":"{text}"}},"metadata":{{}},"transient":{{"display_id":"{id}"}}}}"#
            );
            (kind, content)
        };
        let messages = [
            show("display_data", "a", "1"),
            show("display_data", "b", "2"),
            show("display_data", "a", "3"),
            show("update_display_data", "b", "4"),
            show("update_display_data", "c", "5"),
        ];
        let messages: Vec<_> = messages.iter().map(|(kind, it)| (*kind, &it[..])).collect();
        let is = |text| {
            format!(
                r#"{{"output_type":"display_data","data":{{"text/plain":"{text}"}},"metadata":{{}}}}"#
            )
        };
        assert_eq!(fold(&messages), [is("3"), is("4"), is("3")]);
        let mut here = OutputAccumulator::default();
        here.take(messages[0].0, messages[0].1.as_bytes());
        let mut there = here.clone();
        let change = there.take(messages[2].0, messages[2].1.as_bytes());
        let OutputChange::Displayed { display_id, shown } = change else {
            panic!("{change:?}");
        };
        assert!(here.update(&display_id, &shown));
        assert_eq!(here.outputs()[0].text(), is("3"));
        assert!(!here.update("other", &shown));
    }

    #[test]
    fn outputs_stay_as_the_kernel_sent_them() {
        let result = r#"{"data":{"text/plain":"1","application/json":{"big":12345678901234567890123,"x":1e-05}},"metadata":{"text/plain":{"a":[1]}},"execution_count":7,"transient":null}"#;
        assert_eq!(
            fold(&[("execute_result", result)]),
            [
                r#"{"output_type":"execute_result","execution_count":7,"data":{"text/plain":"1","application/json":{"big":12345678901234567890123,"x":1e-05}},"metadata":{"text/plain":{"a":[1]}}}"#
            ]
        );
        let error = r#"{"ename":"E","evalue":"x","traceback":["\u001b[31ma"]}"#;
        let is = r#"{"output_type":"error","ename":"E","evalue":"x","traceback":["\u001b[31ma"]}"#;
        assert_eq!(fold(&[("error", error)]), [is]);
        let error = r#"{"ename":"E","evalue":"x","traceback":"\u001b[31ma\nb"}"#;
        let is =
            r#"{"output_type":"error","ename":"E","evalue":"x","traceback":["\u001b[31ma","b"]}"#;
        assert_eq!(fold(&[("error", error)]), [is]);
        let mut folded = OutputAccumulator::default();
        folded.take("error", br#"{"ename":"E","evalue":"x","traceback":null}"#);
        assert_eq!(folded.outputs().len(), 1);
        for wrong in ["", "[]", "{", "7"] {
            assert_eq!(
                folded.take("stream", wrong.as_bytes()),
                OutputChange::Unreadable
            );
        }
        assert_eq!(
            folded.take("stream", b"{\"text\":3}"),
            OutputChange::Changed
        );
    }

    fn printed(folded: &OutputAccumulator) -> Vec<(String, String)> {
        let outputs = folded.outputs().into_iter().map(|output| {
            let field = |key: &str| output.get(key).and_then(|it| it.as_string());
            (
                field("name").unwrap_or_default(),
                field("text").unwrap_or_default(),
            )
        });
        outputs.collect()
    }

    fn print(folded: &mut OutputAccumulator, name: &str, text: &str) {
        let text = Json::string(text);
        let content = format!("{{\"name\":\"{name}\",\"text\":{}}}", text.text());
        folded.take("stream", content.as_bytes());
    }

    #[test]
    fn of_endless_text_the_beginning_and_the_end_stay() {
        let mut folded = OutputAccumulator::bounded(10_000, "nb wait 1 shows all");
        for line in 0..100_000 {
            print(&mut folded, "stdout", &format!("line {line}\n"));
            if line % 97 == 0 {
                let shown = printed(&folded).into_iter();
                let shown: usize = shown.map(|(_, text)| text.len()).sum();
                assert!(shown <= 10_100, "{shown} at line {line}");
            }
        }
        let [head, note, tail] = &printed(&folded)[..] else {
            panic!("{:?}", printed(&folded));
        };
        assert!(head.1.starts_with("line 0\nline 1\n") && head.1.ends_with('\n'));
        assert!(tail.1.starts_with("line ") && tail.1.ends_with("\nline 99999\n"));
        assert!(
            head.1.len() > 4500 && tail.1.len() > 4000,
            "{} {}",
            head.1.len(),
            tail.1.len()
        );
        let left_out = folded.left_out();
        let lines = (head.1.lines().count() + tail.1.lines().count()) as u64 + left_out.lines;
        assert_eq!(lines, 100_000);
        assert_eq!((&head.0[..], &tail.0[..]), ("stdout", "stdout"));
        let is = format!(
            "[… 1.1 MB, {} lines left out here; nb wait 1 shows all …]\n",
            left_out.lines
        );
        assert_eq!((&note.0[..], &note.1[..]), ("stderr", &is[..]));
        // After `clear_output` the whole limit is available again.
        folded.take("clear_output", b"{}");
        print(&mut folded, "stdout", "x");
        assert_eq!(folded.outputs().len(), 1);
    }

    #[test]
    fn many_outputs_are_bounded_as_one_is() {
        let mut folded = OutputAccumulator::bounded(20_000, "");
        let error = br#"{"ename":"E","evalue":"x","traceback":[]}"#;
        folded.take(
            "display_data",
            br#"{"data":{"text/plain":"first"},"transient":{"display_id":"d"}}"#,
        );
        folded.take("error", error);
        for at in 0..5000 {
            print(&mut folded, ["stdout", "stderr"][at % 2], "x\n");
            folded.take("display_data", br#"{"data":{"text/plain":"y"}}"#);
            assert!(folded.outputs.len() + folded.head.len() < 200);
        }
        let left_out = folded.left_out();
        assert!(
            left_out.displays > 4000 && left_out.lines > 4000,
            "{left_out}"
        );
        // Outputs in `head` can still be updated, and an empty command adds no note.
        folded.take(
            "update_display_data",
            br#"{"data":{"text/plain":"new"},"transient":{"display_id":"d"}}"#,
        );
        let texts: Vec<_> = folded
            .outputs()
            .iter()
            .map(|it| it.text().into_owned())
            .collect();
        assert!(texts[0].contains("new"), "{}", texts[0]);
        assert!(!texts.iter().any(|text| text.contains("left out")));
        folded.take("error", error);
        for _ in 0..5000 {
            folded.take("display_data", br#"{"data":{"text/plain":"y"}}"#);
        }
        let errors = folded
            .outputs()
            .iter()
            .filter(|it| it.text().contains("ename"))
            .count();
        assert_eq!(errors, 2, "what was raised stays");
    }

    #[test]
    fn each_display_id_has_the_position_of_its_output() {
        let mut folded = OutputAccumulator::bounded(20_000, "more");
        let show = |id: &str| {
            format!(r#"{{"data":{{"text/plain":"{id}"}},"transient":{{"display_id":"{id}"}}}}"#)
        };
        folded.take("display_data", show("first").as_bytes());
        print(&mut folded, "stdout", &"line\n".repeat(20_000));
        folded.take("display_data", show("last").as_bytes());
        let outputs = folded.outputs();
        let (count, displayed) = folded.displayed();
        assert_eq!(count, outputs.len());
        let displayed: Vec<_> = displayed.collect();
        assert_eq!(
            displayed.iter().map(|it| it.0).collect::<Vec<_>>(),
            ["first", "last"]
        );
        for (id, place) in displayed {
            assert!(outputs[place].text().contains(id), "{id}: {outputs:?}");
        }
        assert!(folded.shows("last") && !folded.shows("line"));
    }

    #[test]
    fn one_output_that_is_too_large_is_cut() {
        let mut folded = OutputAccumulator::bounded(10_000, "more");
        let long = "z".repeat(200_000);
        let data = format!(
            r#"{{"data":{{"text/plain":"{long}","text/html":"{long}","image/png":"{long}","image/gif":"AA"}},"metadata":{{}}}}"#
        );
        folded.take("display_data", data.as_bytes());
        let error = format!(r#"{{"ename":"E","evalue":"{long}","traceback":["{long}","last"]}}"#);
        folded.take("error", error.as_bytes());
        let outputs = folded.outputs();
        let plain = outputs[0]
            .get("data")
            .and_then(|data| data.get("text/plain"));
        let plain = plain.and_then(|it| it.as_string()).expect("a text");
        for wanted in [
            "zz\n[… 195 kB left out here; more …]\nzz",
            "[text/html, 200 kB, left out]\n[more]",
            "[image/png, 200 kB, left out]",
        ] {
            assert!(plain.contains(wanted), "{plain}");
        }
        assert!(outputs[0].text().contains("image/gif"));
        let error = outputs[1].text();
        assert!(
            error.len() < 5000 && error.contains("\"last\""),
            "{}",
            error.len()
        );
        // Figures count less than text.
        let mut folded = OutputAccumulator::bounded(10_000, "more");
        let figure = format!(r#"{{"data":{{"image/png":"{}"}}}}"#, "A".repeat(40_000));
        for _ in 0..3 {
            folded.take("display_data", figure.as_bytes());
        }
        assert_eq!(folded.outputs().len(), 3);
    }

    #[test]
    fn pages_are_shown_among_the_outputs() {
        let reply = br#"{"payload":[{"source":"set_next_input","text":"x"},{"source":"page","data":{"text/plain":"help"},"start":0}]}"#;
        let pages = pager_pages(reply);
        assert_eq!(pages.len(), 1);
        let is = r#"{"output_type":"display_data","data":{"text/plain":"help"},"metadata":{}}"#;
        assert_eq!(fold(&[("display_data", &pages[0].text())]), [is]);
        for none in ["not json", "{}", r#"{"payload":[{"source":"page"},7]}"#] {
            assert!(super::pager_pages(none.as_bytes()).is_empty(), "{none}");
        }
    }
}
