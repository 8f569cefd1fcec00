//! The line that a caller awaits in the outputs of a job.

use regex::Regex;

use crate::api::outputs::{self, plain};
use crate::execution::run::OutputMessage;

/// A search for a line in outputs as they come.
pub(super) struct Until {
    pattern: Regex,
    /// The incomplete last lines of stdout and of stderr.
    lines: [String; 2],
    matched: Option<String>,
}

/// How many bytes of an incomplete line are searched.
const LINE_BYTES_MAX: usize = 64 << 10;

impl Until {
    pub(super) fn new(pattern: Regex) -> Self {
        Self {
            pattern,
            lines: [String::new(), String::new()],
            matched: None,
        }
    }

    /// Returns the regular expression.
    pub(super) fn pattern(&self) -> &str {
        self.pattern.as_str()
    }

    /// Returns the line that matched.
    pub(super) fn matched(&self) -> Option<&str> {
        self.matched.as_deref()
    }

    /// Searches an output; says whether a line has matched by now.
    pub(super) fn search(&mut self, output: &OutputMessage) -> bool {
        if self.matched.is_none() {
            self.matched = match output {
                OutputMessage::Stream(it) => {
                    self.stream(usize::from(it.name == "stderr"), &it.text)
                }
                OutputMessage::Display(it)
                | OutputMessage::Result(it)
                | OutputMessage::Update(it) => {
                    self.text(&outputs::bundle(it, false, outputs::note))
                }
                // The traceback quotes the source, which may contain the line as well.
                OutputMessage::Error(it) => self.text(&format!("{}: {}", it.ename, it.evalue)),
            };
        }
        self.matched.is_some()
    }

    /// Searches a piece of a stream: a line is searched again each time it grows.
    fn stream(&mut self, name: usize, text: &str) -> Option<String> {
        let mut line = std::mem::take(self.lines.get_mut(name)?);
        for (at, piece) in text.split(['\n', '\r']).enumerate() {
            if at > 0 {
                line.clear();
            }
            if line.len() > LINE_BYTES_MAX {
                line.clear();
            }
            line.push_str(piece);
            let shown = plain(&line);
            if !line.is_empty() && self.pattern.is_match(&shown) {
                return Some(shown);
            }
        }
        *self.lines.get_mut(name)? = line;
        None
    }

    fn text(&self, text: &str) -> Option<String> {
        let text = plain(text);
        let mut lines = text.lines();
        let line = lines.find(|line| self.pattern.is_match(line));
        line.map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::execution::run::{KernelException, StreamText};

    fn prints(text: &str) -> OutputMessage {
        OutputMessage::Stream(StreamText {
            name: "stdout".to_owned(),
            text: text.to_owned(),
        })
    }

    #[test]
    fn a_line_is_seen_however_it_comes() {
        let until = || Until::new(Regex::new(r"^epoch 3/\d+ done$").expect("a pattern"));
        for (pieces, matches) in [
            (&["epoch 3/40 done\n"][..], true),
            (&["epoch 3", "/40 d", "one"], true),
            (&["epoch 2/40\repoch 3/40 done\r"], true),
            (&["\u{1b}[32mepoch 3/40 done\u{1b}[0m\n"], true),
            (&["epoch 3/40 done?\n"], false),
            (&["epoch 3/40\n", " done\n"], false),
        ] {
            let mut until = until();
            let is_matched = pieces.iter().any(|piece| until.search(&prints(piece)));
            assert_eq!(is_matched, matches, "{pieces:?}");
            assert_eq!(until.matched(), matches.then_some("epoch 3/40 done"));
        }
        let raised = OutputMessage::Error(KernelException {
            ename: "E".to_owned(),
            evalue: "no".to_owned(),
            ..KernelException::default()
        });
        let mut until = Until::new(Regex::new("^E: no").expect("a pattern"));
        assert!(!until.search(&prints("E")) && until.search(&raised));
    }
}
