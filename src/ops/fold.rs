//! A cell's outputs as a notebook would show them in the end.
//!
//! Streams are joined, carriage returns and backspaces are resolved, `clear_output` clears (with
//! `wait`, when the next output comes), and `update_display_data` replaces what it names.

use serde::{Serialize, Serializer};

use crate::client::{Event, Output, Raised};

/// Above this a stream is resolved while it grows: a progress bar must not fill the memory.
const RESOLVE_BYTES: usize = 1 << 20;

/// The outputs so far.
#[derive(Clone, Debug, Default)]
pub struct Folded {
    outputs: Vec<Output>,
    clear_with_next: bool,
    /// Where the last stream is resolved next: twice what was left the last time.
    resolve_at: usize,
}

impl Folded {
    /// Takes what happened; what is no output changes nothing.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Clear { wait: true } => self.clear_with_next = true,
            Event::Clear { wait: false } => self.outputs.clear(),
            Event::Output(Output::Update(bundle)) => {
                // One that names nothing of this cell belongs to another's output.
                for output in &mut self.outputs {
                    if let Output::Display(shown) | Output::Result(shown) = output
                        && shown.display_id().is_some()
                        && shown.display_id() == bundle.display_id()
                    {
                        shown.data = bundle.data.clone();
                        shown.metadata = bundle.metadata.clone();
                    }
                }
            }
            Event::Output(output) => self.add(output),
            Event::Begun | Event::Counted(_) | Event::Prompt(_) => {}
        }
    }

    fn add(&mut self, output: Output) {
        if std::mem::take(&mut self.clear_with_next) {
            self.outputs.clear();
        }
        if let (Some(Output::Stream(last)), Output::Stream(more)) =
            (self.outputs.last_mut(), &output)
            && last.name == more.name
        {
            last.text.push_str(&more.text);
            if last.text.len() > self.resolve_at.max(RESOLVE_BYTES) {
                last.text = resolved(&last.text);
                self.resolve_at = 2 * last.text.len();
            }
            return;
        }
        self.resolve_at = 0;
        self.outputs.push(output);
    }

    /// Takes the error of a reply, for kernels that tell of it there alone.
    pub fn take_missing_error(&mut self, raised: Raised) {
        let told = self
            .outputs
            .iter()
            .any(|output| matches!(output, Output::Error(_)));
        if !told {
            self.add(Output::Error(raised));
        }
    }

    /// Returns the outputs, every stream resolved.
    pub fn into_outputs(self) -> Vec<Output> {
        let mut outputs = self.outputs;
        for output in &mut outputs {
            if let Output::Stream(stream) = output
                && stream.text.contains(['\r', '\u{8}'])
            {
                stream.text = resolved(&stream.text);
            }
        }
        outputs
    }
}

/// Returns what a terminal would show in the end: `\r` goes back to the line's start and what
/// follows overwrites, a backspace goes back by one. A line's end ends that.
fn resolved(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        if line.contains(['\r', '\u{8}']) {
            let mut cells: Vec<char> = Vec::new();
            let mut at = 0_usize;
            for c in line.chars() {
                match c {
                    '\r' => at = 0,
                    '\u{8}' => at = at.saturating_sub(1),
                    c => {
                        match cells.get_mut(at) {
                            Some(cell) => *cell = c,
                            None => cells.push(c),
                        }
                        at += 1;
                    }
                }
            }
            shown.extend(cells);
        } else {
            shown.push_str(line);
        }
        shown.push_str(end);
    }
    shown
}

/// Writes an output as a notebook file has it.
pub(super) fn serialize<S: Serializer>(output: &Output, serializer: S) -> Result<S::Ok, S::Error> {
    use serde_json::json;
    match output {
        Output::Stream(it) => {
            json!({ "output_type": "stream", "name": it.name, "text": it.text })
        }
        Output::Display(it) | Output::Update(it) => {
            json!({ "output_type": "display_data", "data": it.data, "metadata": it.metadata })
        }
        Output::Result(it) => json!({
            "output_type": "execute_result", "data": it.data, "metadata": it.metadata,
            "execution_count": it.execution_count,
        }),
        Output::Error(it) => json!({
            "output_type": "error", "ename": it.ename, "evalue": it.evalue,
            "traceback": it.traceback,
        }),
    }
    .serialize(serializer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Bundle, StreamText};

    fn stream(name: &str, text: &str) -> Event {
        Event::Output(Output::Stream(StreamText {
            name: name.to_owned(),
            text: text.to_owned(),
        }))
    }

    fn shown(id: &str, text: &str) -> Bundle {
        serde_json::from_value(serde_json::json!({
            "data": { "text/plain": text }, "transient": { "display_id": id },
        }))
        .expect("a bundle")
    }

    fn fold(events: impl IntoIterator<Item = Event>) -> Vec<String> {
        let mut folded = Folded::default();
        for event in events {
            folded.take(event);
        }
        folded
            .into_outputs()
            .iter()
            .map(|output| match output {
                Output::Stream(it) => format!("{}: {}", it.name, it.text),
                Output::Display(it) => format!("display: {}", it.data["text/plain"]),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn streams_are_joined_by_name() {
        let said = [
            ("stdout", "a"),
            ("stdout", "b\n"),
            ("stderr", "c"),
            ("stdout", "d"),
        ];
        assert_eq!(
            fold(said.map(|(name, text)| stream(name, text))),
            ["stdout: ab\n", "stderr: c", "stdout: d"]
        );
    }

    #[test]
    fn a_progress_bar_is_its_last_state() {
        assert_eq!(
            fold([
                stream("stderr", "10%\r"),
                stream("stderr", "100%\r9"),
                stream("stderr", "\n1\u{8}2\r\n")
            ]),
            ["stderr: 900%\n2\n"]
        );
        let bar = (0..200_000).map(|i| stream("stderr", &format!("\rstep {i:>8}")));
        assert_eq!(fold(bar), ["stderr: step   199999"]);
    }

    #[test]
    fn clear_output_waits_for_the_next_output() {
        let wait = || Event::Clear { wait: true };
        assert_eq!(fold([stream("stdout", "a"), wait()]), ["stdout: a"]);
        assert_eq!(
            fold([stream("stdout", "a"), wait(), stream("stdout", "b")]),
            ["stdout: b"]
        );
        assert_eq!(
            fold([stream("stdout", "a"), Event::Clear { wait: false }]),
            [""; 0]
        );
    }

    #[test]
    fn an_update_replaces_what_it_names() {
        let display = |id, text| Event::Output(Output::Display(shown(id, text)));
        let update = |id, text| Event::Output(Output::Update(shown(id, text)));
        assert_eq!(
            fold([
                display("a", "1"),
                display("b", "2"),
                update("a", "3"),
                update("c", "4")
            ]),
            ["display: \"3\"", "display: \"2\""]
        );
    }
}
