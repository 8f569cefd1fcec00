//! A cell's outputs as a front end has them in the end, from the messages that a kernel sends.
//!
//! The rules are JupyterLab's and nbclient's, which agree: consecutive texts of one stream are one
//! output, `clear_output` clears (with `wait`, when the next output comes), and what is displayed
//! or updated under a display id replaces whatever was displayed under it, in whichever cell.

use std::borrow::Cow;

use super::json::{Json, Object};
use super::metadata;
use super::screen::Screen;

/// The outputs so far.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    outputs: Vec<Folding>,
    clear_with_next: bool,
}

#[derive(Clone, Debug)]
enum Folding {
    Stream {
        name: String,
        screen: Screen,
    },
    /// A result or something displayed.
    Bundle {
        /// What is there beside data and metadata, as fields of JSON with a comma after each.
        head: String,
        shown: Bundle,
        display_id: Option<String>,
    },
    Error(Json),
}

/// One thing in several forms, and what is said of them: two objects of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bundle {
    data: Json,
    metadata: Json,
}

/// What a message did to a cell's outputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Nothing: it is no output.
    Nothing,
    /// It changed the outputs.
    Changed,
    /// It shows something under a display id, which other cells may show too: see
    /// [`Folded::update`].
    Displayed {
        /// The id.
        display_id: String,
        /// What it is now.
        shown: Bundle,
    },
    /// It is an output, and its content is none of JSON's objects.
    Unreadable,
}

impl Folded {
    /// Takes a message of iopub that belongs to the cell: its type and its content.
    pub fn take(&mut self, msg_type: &str, content: &[u8]) -> Fold {
        if !matches!(
            msg_type,
            "stream"
                | "display_data"
                | "update_display_data"
                | "execute_result"
                | "error"
                | "clear_output"
        ) {
            return Fold::Nothing;
        }
        let content = decoded(content);
        let content = content.as_bytes();
        if Object::read(content).is_none() {
            return Fold::Unreadable;
        }
        match msg_type {
            "stream" => {
                let [name, text] = ["name", "text"].map(|key| string(content, key));
                self.stream(name, &text);
                Fold::Changed
            }
            "clear_output" => {
                let waits = metadata::at(content, &["wait"]);
                if waits.is_some_and(|waits| waits.bytes() == b"true") {
                    self.clear_with_next = true;
                    return Fold::Nothing;
                }
                self.outputs.clear();
                // JupyterLab forgets an earlier wait.
                self.clear_with_next = false;
                Fold::Changed
            }
            "error" => {
                let traceback = metadata::at(content, &["traceback"])
                    .filter(|lines| lines.bytes().starts_with(b"["))
                    .map_or_else(|| "[]".to_owned(), |lines| lines.text().into_owned());
                let [name, value] =
                    ["ename", "evalue"].map(|key| Json::string(&string(content, key)));
                self.add(Folding::Error(json(&format!(
                    "{{\"output_type\":\"error\",\"ename\":{},\"evalue\":{},\"traceback\":{traceback}}}",
                    name.text(),
                    value.text(),
                ))));
                Fold::Changed
            }
            _ => self.bundle(msg_type, content),
        }
    }

    /// Returns whether an error is among them.
    pub fn has_error(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| matches!(output, Folding::Error(_)))
    }

    /// Returns whether a text on stderr is among them.
    pub fn has_stderr(&self) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|output| matches!(output, Folding::Stream { name, .. } if name == "stderr"))
    }

    /// Replaces what is shown under a display id, and says whether there was anything.
    pub fn update(&mut self, id: &str, new: &Bundle) -> bool {
        let mut found = false;
        for output in &mut self.outputs {
            if let Folding::Bundle {
                shown, display_id, ..
            } = output
                && display_id.as_deref() == Some(id)
            {
                shown.clone_from(new);
                found = true;
            }
        }
        found
    }

    /// Returns the outputs as nbformat 4 has them.
    pub fn outputs(&self) -> Vec<Json> {
        self.outputs.iter().map(Folding::to_json).collect()
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.outputs.is_empty()
    }

    fn stream(&mut self, name: String, text: &str) {
        self.clear_if_due();
        if let Some(Folding::Stream { name: last, screen }) = self.outputs.last_mut()
            && *last == name
        {
            screen.write(text);
            return;
        }
        let mut screen = Screen::default();
        screen.write(text);
        self.outputs.push(Folding::Stream { name, screen });
    }

    fn bundle(&mut self, msg_type: &str, content: &[u8]) -> Fold {
        let object = |key: &str| {
            let value = metadata::at(content, &[key]);
            let value = value.filter(|value| value.bytes().starts_with(b"{"));
            value.unwrap_or_else(|| json("{}"))
        };
        let shown = Bundle {
            data: object("data"),
            metadata: object("metadata"),
        };
        let display_id = metadata::at(content, &["transient", "display_id"])
            .and_then(|id| id.as_string())
            .filter(|id| !id.is_empty());
        if let Some(id) = &display_id {
            self.update(id, &shown);
        }
        if msg_type != "update_display_data" {
            let mut head = format!("\"output_type\":\"{msg_type}\",");
            if msg_type == "execute_result" {
                let count = metadata::at(content, &["execution_count"]);
                let count = count.map_or_else(|| "null".to_owned(), |it| it.text().into_owned());
                head.push_str(&format!("\"execution_count\":{count},"));
            }
            self.add(Folding::Bundle {
                head,
                shown: shown.clone(),
                display_id: display_id.clone(),
            });
        }
        match display_id {
            Some(display_id) => Fold::Displayed { display_id, shown },
            None => Fold::Changed,
        }
    }

    fn add(&mut self, output: Folding) {
        self.clear_if_due();
        self.outputs.push(output);
    }

    fn clear_if_due(&mut self) {
        if std::mem::take(&mut self.clear_with_next) {
            self.outputs.clear();
        }
    }
}

impl Folding {
    fn to_json(&self) -> Json {
        match self {
            Self::Stream { name, screen } => json(&format!(
                "{{\"output_type\":\"stream\",\"name\":{},\"text\":{}}}",
                Json::string(name).text(),
                Json::string(&screen.text()).text(),
            )),
            Self::Bundle { head, shown, .. } => json(&format!(
                "{{{head}\"data\":{},\"metadata\":{}}}",
                shown.data.text(),
                shown.metadata.text(),
            )),
            Self::Error(error) => error.clone(),
        }
    }
}

/// Returns the pages of a reply's payload, as IPython's `?` sends them, each as the content of a
/// `display_data`: JupyterLab shows them among the outputs.
pub fn pages(reply: &[u8]) -> Vec<Json> {
    let reply = decoded(reply);
    let reply = reply.as_bytes();
    let payload = metadata::at(reply, &["payload"]);
    let payload = payload.as_ref().map_or(&b"[]"[..], Json::bytes);
    let items = super::json::items(payload).into_iter();
    let pages = items.filter_map(|item| {
        let item = item.of(payload);
        let data = metadata::at(item, &["data"]).filter(|_| string(item, "source") == "page")?;
        Some(json(&format!(
            "{{\"data\":{},\"metadata\":{{}}}}",
            data.text()
        )))
    });
    pages.collect()
}

fn json(text: &str) -> Json {
    Json::of_valid(text.as_bytes())
}

/// Returns a string of an object; an empty one where there is none.
fn string(object: &[u8], key: &str) -> String {
    let value = metadata::at(object, &[key]);
    value
        .and_then(|value| value.as_string())
        .unwrap_or_default()
}

/// Returns a content as text: what is not UTF-8 is replaced, as jupyter_client does.
fn decoded(content: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(messages: &[(&str, &str)]) -> Vec<String> {
        let mut folded = Folded::default();
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
    fn what_is_not_utf_8_is_replaced() {
        let mut folded = Folded::default();
        let stream = b"{\"name\":\"stdout\",\"text\":\"a\\n\xff\"}";
        assert_eq!(folded.take("stream", stream), Fold::Changed);
        folded.take("display_data", b"{\"data\":{\"text/plain\":\"\xe9\"}}");
        folded.take("error", b"{\"ename\":\"\xda\",\"traceback\":[\"\xff\"]}");
        let reply = b"{\"payload\":[{\"source\":\"page\",\"data\":{\"text/plain\":\"\xff\"}}]}";
        for page in pages(reply) {
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
        let mut here = Folded::default();
        here.take(messages[0].0, messages[0].1.as_bytes());
        let mut there = here.clone();
        let told = there.take(messages[2].0, messages[2].1.as_bytes());
        let Fold::Displayed { display_id, shown } = told else {
            panic!("{told:?}");
        };
        assert!(here.update(&display_id, &shown));
        assert_eq!(here.outputs()[0].text(), is("3"));
        assert!(!here.update("other", &shown));
    }

    #[test]
    fn what_a_kernel_says_stays_as_it_says_it() {
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
        let mut folded = Folded::default();
        assert!(!folded.has_error());
        folded.take("error", br#"{"ename":"E","evalue":"x","traceback":null}"#);
        assert!(folded.has_error());
        for wrong in ["", "[]", "{", "7"] {
            assert_eq!(folded.take("stream", wrong.as_bytes()), Fold::Unreadable);
        }
        assert_eq!(folded.take("stream", b"{\"text\":3}"), Fold::Changed);
    }

    #[test]
    fn pages_are_shown_among_the_outputs() {
        let reply = br#"{"payload":[{"source":"set_next_input","text":"x"},{"source":"page","data":{"text/plain":"help"},"start":0}]}"#;
        let pages = pages(reply);
        assert_eq!(pages.len(), 1);
        let is = r#"{"output_type":"display_data","data":{"text/plain":"help"},"metadata":{}}"#;
        assert_eq!(fold(&[("display_data", &pages[0].text())]), [is]);
        for none in ["not json", "{}", r#"{"payload":[{"source":"page"},7]}"#] {
            assert!(super::pages(none.as_bytes()).is_empty(), "{none}");
        }
    }
}
