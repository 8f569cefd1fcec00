//! Outputs of a cell compared with those of another run of its code.
//!
//! Compared is what a reader sees. How the kernel cut its texts into messages, execution counts, tracebacks and the order
//! of keys make no difference: the texts of a stream between two other outputs are one text, as a terminal shows it.
//! Images are compared by their bytes, widgets only by their text, since the rest of them is made anew in each kernel.

use std::collections::BTreeMap;

use super::accumulator::{OutputAccumulator, stream_output};
use super::limit::is_note;
use super::mime::{MimeBytes, is_binary, is_json, is_media};
use super::size::size;
use super::terminal_text::TerminalText;
use crate::notebook::document::joined_strings;
use crate::notebook::json::{Json, Object, digest, lossy};

/// The form of a widget, which names a model in the kernel.
const WIDGET: &str = "application/vnd.jupyter.widget-view+json";

/// The form of what is in place of outputs beyond a limit.
const LIMIT: &str = "limit";

/// The outputs of a cell in the form in which they are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ComparableOutputs(Vec<Part>);

/// One form of one output.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    /// The number of the output.
    output: usize,
    /// The name of a stream, a MIME type, the kind of the output, or what of it this is.
    form: String,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// Text, line by line.
    Lines(Vec<String>),
    /// What is equal or not, with a line for readers.
    Whole(Vec<u8>, String),
}

/// How the outputs of a cell differ from those of another run, for a reader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OutputsDifference {
    /// What a reader sees as text, before and in the other run.
    Text(String, String),
    /// The forms that differ, and have no text that does: `image/png`.
    Forms(Vec<String>),
}

impl ComparableOutputs {
    /// Reads outputs as a notebook has them. Of outputs with more than about `most` bytes, only the beginning is compared.
    pub fn of(outputs: Vec<Json>, most: usize) -> Self {
        let size: usize = outputs.iter().map(|output| output.bytes().len()).sum();
        let outputs = match size > most {
            true => limited(&outputs, most),
            false => outputs,
        };
        let mut reader = Reader::default();
        for output in outputs {
            if !reader.add(&output) {
                break;
            }
        }
        reader.end_streams();
        Self(reader.parts)
    }

    /// Says whether outputs beyond a limit are missing.
    pub fn is_cut(&self) -> bool {
        self.0.last().is_some_and(|part| part.form == LIMIT)
    }

    /// Says whether nothing is shown.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Says whether these outputs differ from those of a fresh run where two fresh runs agree. A form of an output that
    /// differs between the fresh runs cannot be compared, not even in part: of two times, some digits are equal by chance.
    pub fn differs_where_agreed(&self, fresh: &Self, again: &Self) -> bool {
        if !fresh.shape().eq(again.shape()) {
            return false;
        }
        if !self.shape().eq(fresh.shape()) {
            return true;
        }
        let mut all = self.0.iter().zip(fresh.0.iter().zip(&again.0));
        all.any(|(stored, (fresh, again))| fresh == again && stored != fresh)
    }

    /// Returns how a fresh run differs from these outputs.
    pub fn difference(&self, fresh: &Self) -> OutputsDifference {
        let (before, after) = (self.shown(), fresh.shown());
        if before != after {
            return OutputsDifference::Text(before, after);
        }
        let at = |at: usize| (self.0.get(at), fresh.0.get(at));
        let pairs = (0..self.0.len().max(fresh.0.len())).map(at);
        let differing = pairs.filter(|(one, other)| one != other);
        let named = differing.filter_map(|(one, other)| Some(one.or(other)?.form.clone()));
        let mut forms: Vec<_> = named.collect();
        forms.dedup();
        OutputsDifference::Forms(forms)
    }

    /// Returns which outputs there are, and in which forms.
    fn shape(&self) -> impl Iterator<Item = (usize, &str)> {
        self.0.iter().map(|part| (part.output, &*part.form))
    }

    /// Returns the outputs as a reader sees them without images: each output by its plain text, or the first of its forms
    /// that is text.
    fn shown(&self) -> String {
        let mut lines: Vec<&str> = Vec::new();
        for output in self.0.chunk_by(|one, next| one.output == next.output) {
            let texts = output.iter().filter(|part| part.is_text());
            let plain = texts.clone().find(|part| part.form == "text/plain");
            match plain.or_else(|| texts.clone().next()).map(|it| &it.content) {
                Some(Content::Lines(text)) => lines.extend(text.iter().map(String::as_str)),
                _ => lines.extend(output.iter().filter_map(|part| match &part.content {
                    Content::Whole(_, line) => Some(line.as_str()).filter(|it| !it.is_empty()),
                    Content::Lines(_) => None,
                })),
            }
        }
        lines.join("\n")
    }
}

impl Part {
    fn is_text(&self) -> bool {
        matches!(self.content, Content::Lines(_))
    }
}

/// Reads outputs one after the other.
#[derive(Default)]
struct Reader {
    parts: Vec<Part>,
    /// The number of the next output.
    output: usize,
    /// The texts of the streams since the last other output. Which of two streams came first is chance.
    streams: BTreeMap<String, TerminalText>,
}

impl Reader {
    /// Adds an output; returns whether those after it are compared, too.
    fn add(&mut self, output: &Json) -> bool {
        let raw = output.bytes();
        let kind = string(raw, "output_type");
        if kind == "stream" {
            let (name, text) = (string(raw, "name"), string(raw, "text"));
            if is_note(&text) {
                // Where the outputs after it begin depends on how they were cut into messages.
                self.end_streams();
                self.push(LIMIT, Content::Lines(Vec::new()));
                return false;
            }
            self.streams.entry(name).or_default().write(&text);
            return true;
        }
        self.end_streams();
        self.push(&kind, Content::Whole(Vec::new(), String::new()));
        if kind == "error" {
            let (name, text) = (string(raw, "ename"), string(raw, "evalue"));
            self.push("error", lines(&format!("{name}: {text}")));
        }
        let fields = |name: &str| {
            let object = Object::read(raw).unwrap_or_default();
            let value = object.get(raw, name).map(|it| it.of(raw));
            value.unwrap_or(b"{}")
        };
        let data = fields("data");
        for (mime, value) in Object::read(data).unwrap_or_default().by_name(data) {
            self.push(&mime, content(&mime, value.of(data)));
        }
        let metadata = fields("metadata");
        if digest(metadata) != digest(b"{}") {
            let digest = digest(metadata).to_vec();
            self.push("metadata", Content::Whole(digest, String::new()));
        }
        self.output += 1;
        true
    }

    fn push(&mut self, form: &str, content: Content) {
        self.parts.push(Part {
            output: self.output,
            form: form.to_owned(),
            content,
        });
    }

    fn end_streams(&mut self) {
        // In the order in which a kernel flushes them before another output.
        for (name, screen) in std::mem::take(&mut self.streams).into_iter().rev() {
            let text = screen.text();
            if !text.is_empty() {
                self.push(&name, lines(&text));
                self.output += 1;
            }
        }
    }
}

/// Returns a text of an output, whose lines may be a list.
fn string(raw: &[u8], name: &str) -> String {
    let object = Object::read(raw).unwrap_or_default();
    let value = object.get(raw, name).map(|it| it.of(raw));
    lossy(joined_strings(value.unwrap_or_default())).into_owned()
}

/// Returns outputs without those beyond a limit, as they would be if they had been recorded under it.
fn limited(outputs: &[Json], most: usize) -> Vec<Json> {
    let mut folded = OutputAccumulator::bounded(most, "…");
    for output in outputs {
        let raw = output.bytes();
        let kind = string(raw, "output_type");
        match kind.as_str() {
            "stream" => {
                let text = stream_output(&string(raw, "name"), &string(raw, "text"));
                folded.take("stream", text.bytes());
            }
            kind => drop(folded.take(kind, raw)),
        }
    }
    folded.outputs()
}

fn lines(text: &str) -> Content {
    Content::Lines(text.split('\n').map(str::to_owned).collect())
}

/// Returns the content of one form of an output's data.
fn content(mime: &str, value: &[u8]) -> Content {
    if mime == WIDGET {
        return Content::Whole(Vec::new(), String::new());
    }
    if is_binary(mime) || is_media(mime) {
        let bytes = MimeBytes::of(value, mime).bytes;
        let line = format!("[{mime}, {}]", size(bytes.len() as u64));
        return Content::Whole(bytes, line);
    }
    if is_json(mime) || !matches!(value.first(), Some(b'"' | b'[')) {
        return Content::Whole(digest(value).to_vec(), format!("[{mime}]"));
    }
    lines(&lossy(joined_strings(value)))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(outputs: &Value) -> ComparableOutputs {
        let outputs = outputs.as_array().unwrap().iter();
        let outputs = outputs.map(|it| Json::parse(&it.to_string()).unwrap());
        ComparableOutputs::of(outputs.collect(), 1 << 20)
    }

    fn stream(name: &str, text: &str) -> Value {
        json!({"output_type": "stream", "name": name, "text": text})
    }

    fn result(data: &Value) -> Value {
        json!({"output_type": "execute_result", "execution_count": 3, "metadata": {}, "data": data})
    }

    #[test]
    fn what_a_reader_does_not_see_makes_no_difference() {
        let png = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHgCAYAAAA10dzk";
        let wrapped = format!("{}\n{}\n", &png[..20], &png[20..]);
        for (one, other) in [
            (
                json!([stream("stdout", "a\nb\n")]),
                json!([stream("stdout", "a\n"), stream("stdout", "b\n")]),
            ),
            (
                json!([stream("stdout", "a\nb\n")]),
                json!([{"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]}]),
            ),
            // Which of two streams comes first is chance.
            (
                json!([
                    stream("stdout", "a\n"),
                    stream("stderr", "e\n"),
                    stream("stdout", "b\n")
                ]),
                json!([stream("stderr", "e\n"), stream("stdout", "a\nb\n")]),
            ),
            // A progress bar as the kernel sent it, and as a front end has stored it.
            (
                json!([stream("stderr", "10%\r20%\r30%\n")]),
                json!([stream("stderr", "30%\n")]),
            ),
            (json!([stream("stdout", "")]), json!([])),
            (
                json!([result(&json!({"text/plain": "1"}))]),
                json!([{"output_type": "execute_result", "execution_count": 9, "data": {"text/plain": ["1"]}}]),
            ),
            (
                json!([result(&json!({"text/html": "<b>", "text/plain": "b"}))]),
                json!([result(&json!({"text/plain": "b", "text/html": "<b>"}))]),
            ),
            (
                json!([result(&json!({"image/png": png}))]),
                json!([result(&json!({"image/png": wrapped}))]),
            ),
            (
                json!([result(&json!({"application/json": {"a": 1, "b": [2.0]}}))]),
                json!([result(&json!({"application/json": {"b": [2], "a": 1}}))]),
            ),
            (
                json!([result(
                    &json!({"text/plain": "IntSlider()", WIDGET: {"model_id": "a"}})
                )]),
                json!([result(
                    &json!({"text/plain": "IntSlider()", WIDGET: {"model_id": "b"}})
                )]),
            ),
            (
                json!([{"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["In[3]"]}]),
                json!([{"output_type": "error", "ename": "E", "evalue": "v", "traceback": ["In[4]"]}]),
            ),
        ] {
            assert_eq!(of(&one), of(&other), "{one} {other}");
        }
        assert!(of(&json!([stream("stdout", "")])).is_empty());
    }

    #[test]
    fn more_than_a_limit_is_compared_up_to_it() {
        let printed = |tail: &str, part: usize| {
            let text = "0123456789\n".repeat(2000) + tail;
            let mut folded = OutputAccumulator::bounded(8000, format!("nb wait {part} shows all"));
            for part in text.as_bytes().chunks(part) {
                let text = String::from_utf8_lossy(part);
                let message = json!({"name": "stdout", "text": text}).to_string();
                folded.take("stream", message.as_bytes());
            }
            ComparableOutputs::of(folded.outputs(), 8000)
        };
        let whole = printed("", 100_000);
        assert!(whole.is_cut());
        let unlimited = vec![stream_output("stdout", &"0123456789\n".repeat(2000))];
        assert_eq!(whole, ComparableOutputs::of(unlimited, 8000));
        // Another cut into messages leaves another part out.
        assert_eq!(whole, printed("", 700));
        assert_ne!(whole, of(&json!([stream("stdout", "0123456789\n")])));
    }

    #[test]
    fn what_differs_between_two_fresh_runs_is_not_compared() {
        let at = |time: &str, value: &str| {
            of(&json!([
                stream("stdout", time),
                result(&json!({"text/plain": value}))
            ]))
        };
        let (stored, fresh, again) = (at("10:00", "1"), at("11:00", "1"), at("12:00", "1"));
        assert!(!stored.differs_where_agreed(&fresh, &again));
        // The output beside it is compared all the same.
        let (fresh, again) = (at("11:00", "2"), at("12:00", "2"));
        assert!(stored.differs_where_agreed(&fresh, &again));
        // An output more in each fresh run is a difference; in one of them it is chance.
        let more = |time: &str| of(&json!([stream("stdout", time), stream("stderr", "e")]));
        assert!(stored.differs_where_agreed(&more("11:00"), &more("12:00")));
        assert!(!stored.differs_where_agreed(&more("11:00"), &again));
    }

    #[test]
    fn a_difference_is_shown_as_lines_or_by_its_form() {
        let table = |cell: &str, html: &str| {
            of(&json!([result(
                &json!({"text/plain": format!("a\n{cell}"), "text/html": html})
            )]))
        };
        let text = |before: &str, after: &str| {
            OutputsDifference::Text(before.to_owned(), after.to_owned())
        };
        let forms = |form: &str| OutputsDifference::Forms(vec![form.to_owned()]);
        let difference = table("1", "<td>1").difference(&table("2", "<td>2"));
        assert_eq!(difference, text("a\n1", "a\n2"));
        let difference = table("1", "<td>1").difference(&table("1", "<td>2"));
        assert_eq!(difference, forms("text/html"));
        let figure = |png: &str| {
            of(&json!([result(
                &json!({"text/plain": "<Figure>", "image/png": png})
            )]))
        };
        let difference = figure("aGk=").difference(&figure("aGo="));
        assert_eq!(difference, forms("image/png"));
        let nothing = ComparableOutputs::default();
        let difference = of(&json!([result(&json!({"image/png": "aGk="}))])).difference(&nothing);
        assert_eq!(difference, text("[image/png, 2 bytes]", ""));
    }

    /// Random numbers that a seed repeats (SplitMix64).
    struct Random(u64);

    impl Random {
        fn below(&mut self, end: usize) -> usize {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.0;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((mixed ^ (mixed >> 31)) % end as u64) as usize
        }

        fn text(&mut self) -> String {
            let lines = 1 + self.below(5);
            let line = |random: &mut Self| {
                let length = 1 + random.below(12);
                let one = |random: &mut Self| char::from(b'a' + random.below(26) as u8);
                (0..length).map(|_| one(random)).collect::<String>()
            };
            (0..lines).map(|_| line(self) + "\n").collect()
        }

        fn output(&mut self) -> Value {
            let text = self.text();
            match self.below(7) {
                0 => stream("stdout", &text),
                1 => stream("stderr", &text),
                2 => result(&json!({"text/plain": text, "text/html": format!("<p>{text}")})),
                3 => {
                    json!({"output_type": "error", "ename": "E", "evalue": text, "traceback": []})
                }
                4 => {
                    let bytes: Vec<_> = (0..48).map(|_| self.below(256) as u8).collect();
                    let png =
                        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, bytes);
                    json!({"output_type": "display_data", "metadata": {}, "data": {"image/png": png}})
                }
                5 => result(&json!({"application/json": {"values": [self.below(9), text]}})),
                _ => {
                    json!({"output_type": "display_data", "metadata": {"image/png": {"width": 1 + self.below(99)}},
                           "data": {"text/latex": text}})
                }
            }
        }

        /// Changes one character that is compared.
        fn change(&mut self, text: &str) -> String {
            let mut characters: Vec<_> = text.chars().collect();
            let places: Vec<_> = (0..characters.len())
                .filter(|at| characters[*at].is_ascii_alphabetic())
                .collect();
            let at = places[self.below(places.len())];
            characters[at] = if characters[at] == 'x' { 'y' } else { 'x' };
            characters.into_iter().collect()
        }

        /// Changes one thing of an output that is compared.
        fn mutate(&mut self, output: &mut Value) {
            let changed = |random: &mut Self, value: &mut Value| {
                *value = random.change(value.as_str().unwrap()).into();
            };
            match output["output_type"].as_str().unwrap() {
                "stream" if self.below(4) == 0 => {
                    let other = if output["name"] == "stdout" {
                        "stderr"
                    } else {
                        "stdout"
                    };
                    output["name"] = other.into();
                }
                "stream" => changed(self, &mut output["text"]),
                "error" if self.below(3) == 0 => output["ename"] = "Other".into(),
                "error" => changed(self, &mut output["evalue"]),
                kind => {
                    let other = if kind == "display_data" {
                        "execute_result"
                    } else {
                        "display_data"
                    };
                    if self.below(6) == 0 {
                        output["output_type"] = other.into();
                        return;
                    }
                    if let Some(width) = output["metadata"]["image/png"]["width"].as_u64()
                        && self.below(2) == 0
                    {
                        output["metadata"]["image/png"]["width"] = (width + 1).into();
                        return;
                    }
                    let data = output["data"].as_object_mut().unwrap();
                    let at = self.below(data.len());
                    let (mime, value) = data.iter_mut().nth(at).unwrap();
                    match mime.as_str() {
                        "application/json" => changed(self, &mut value["values"][1]),
                        _ => changed(self, value),
                    }
                }
            }
        }
    }

    #[test]
    fn each_of_a_thousand_changes_is_found() {
        let mut kinds = [0; 4];
        for seed in 0..1000 {
            let mut random = Random(seed);
            let mut outputs: Vec<_> = (0..=random.below(4)).map(|_| random.output()).collect();
            let before = of(&outputs.clone().into());
            let at = random.below(outputs.len());
            let kind = random.below(8);
            match kind {
                0 => drop(outputs.remove(at)),
                1 => outputs.insert(at, random.output()),
                2 => {
                    let again = outputs[at].clone();
                    outputs.insert(at, again);
                }
                _ => random.mutate(&mut outputs[at]),
            }
            kinds[kind.min(3)] += 1;
            let after = of(&outputs.clone().into());
            assert_ne!(before, after, "seed {seed}: {outputs:?}");
            assert!(before.differs_where_agreed(&after, &after), "seed {seed}");
            // A reader is shown it.
            let is_shown = match before.difference(&after) {
                OutputsDifference::Text(before, after) => before != after,
                OutputsDifference::Forms(forms) => !forms.is_empty(),
            };
            assert!(is_shown, "seed {seed}: {outputs:?}");
        }
        assert!(kinds.iter().all(|count| *count > 50), "{kinds:?}");
    }
}
