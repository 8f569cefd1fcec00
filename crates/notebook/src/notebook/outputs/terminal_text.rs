//! A stream's text as a terminal shows it: progress bars overwrite themselves.

/// The text of a stream so far.
///
/// `\r` moves to the beginning of the line, a backspace by one character to the left, and following text
/// overwrites, as in JupyterLab. Colours (SGR escapes) belong to the characters that were written in them;
/// escapes that erase a line are applied; others stay where they are. A complete line never changes again,
/// so that a progress bar that is drawn a million times takes the memory of one line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::notebook) struct TerminalText {
    /// The complete lines, and the last line until something moves back in it.
    text: String,
    /// The position at which the last line begins.
    line_start: usize,
    /// The last line, once something moved back in it.
    line: Option<OverwrittenLine>,
    /// An incomplete escape, or a `\r` that a newline may follow.
    pending: String,
}

/// A line in which the position was moved back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OverwrittenLine {
    cells: Vec<StyledChar>,
    /// Escapes that are not colours, each with the index of the character after it.
    marks: Vec<(usize, String)>,
    at: usize,
    /// The active colours.
    style: String,
}

/// One character of a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct StyledChar {
    style: String,
    text: char,
}

/// The longest escape, in bytes; text beyond it is not part of the escape.
const LONGEST_ESCAPE: usize = 256;

/// How many characters at the end of a line can be overwritten. A longer line is not a progress bar, and
/// each character takes memory.
const LONGEST_LINE: usize = 16 << 10;

/// How many bytes of colour escapes a character may have.
const LONGEST_STYLE: usize = 128;

/// How many escapes that are not colours a line keeps.
const MOST_MARKS: usize = 256;

impl TerminalText {
    /// Adds text.
    pub(in crate::notebook) fn write(&mut self, more: &str) {
        let joined;
        let mut rest = if self.pending.is_empty() {
            more
        } else {
            joined = std::mem::take(&mut self.pending) + more;
            &joined
        };
        while let Some(at) = rest.find(['\r', '\u{8}', '\u{1b}', '\n']) {
            let (plain, special) = rest.split_at(at);
            self.put(plain);
            rest = match special.as_bytes() {
                [b'\n', ..] => {
                    self.end_line();
                    special.get(1..).unwrap_or_default()
                }
                // A Windows line end becomes a plain newline.
                [b'\r', b'\n', ..] => special.get(1..).unwrap_or_default(),
                [b'\r'] => {
                    self.pending = special.to_owned();
                    return;
                }
                [b'\r', ..] => {
                    self.open_line().at = 0;
                    special.get(1..).unwrap_or_default()
                }
                [8, ..] => {
                    let line = self.open_line();
                    line.at = line.at.saturating_sub(1);
                    special.get(1..).unwrap_or_default()
                }
                _ => match escape_length(special) {
                    Some(length) => {
                        let (escape, rest) = special.split_at(length);
                        self.escape(escape);
                        rest
                    }
                    None => {
                        self.pending = special.to_owned();
                        return;
                    }
                },
            };
        }
        self.put(rest);
    }

    /// Returns about how many bytes the text has.
    pub(in crate::notebook) fn size(&self) -> usize {
        let line = self.line.as_ref().map_or(0, |line| line.cells.len());
        self.text.len() + line + self.pending.len()
    }

    /// Removes and returns the beginning, of at most `most` bytes: whole lines, if there are any.
    pub(in crate::notebook) fn take_front(&mut self, most: usize) -> String {
        let most = self.text.floor_char_boundary(most);
        let lines = self.text.get(..most).and_then(|front| front.rfind('\n'));
        self.take(lines.map_or(most, |at| at + 1))
    }

    /// Removes and returns at least `least` bytes of the beginning, up to the end of a line if there is
    /// one; text that can still change stays.
    pub(in crate::notebook) fn drop_front(&mut self, least: usize) -> String {
        let least = self.text.floor_char_boundary(least);
        let line = self.text.get(least..).and_then(|rest| rest.find('\n'));
        self.take(line.map_or(least, |at| least + at + 1))
    }

    fn take(&mut self, bytes: usize) -> String {
        self.line_start = self.line_start.saturating_sub(bytes);
        let rest = self.text.split_off(bytes);
        std::mem::replace(&mut self.text, rest)
    }

    /// Returns the text as it is now.
    pub(in crate::notebook) fn text(&self) -> String {
        let mut text = self.text.clone();
        if let Some(line) = &self.line {
            line.write_to(&mut text);
        }
        if self.pending != "\r" {
            text.push_str(&self.pending);
        }
        text
    }

    fn put(&mut self, plain: &str) {
        match &mut self.line {
            None => self.text.push_str(plain),
            Some(line) => {
                plain.chars().for_each(|c| line.put(c));
                if line.cells.len() > 2 * LONGEST_LINE {
                    self.close_line();
                }
            }
        }
    }

    /// Turns a line that became too long to be overwritten into text.
    fn close_line(&mut self) {
        if let Some(line) = self.line.take() {
            line.write_to(&mut self.text);
        }
        self.line_start = self.text.len();
    }

    fn end_line(&mut self) {
        self.close_line();
        self.text.push('\n');
        self.line_start = self.text.len();
    }

    fn escape(&mut self, escape: &str) {
        match &mut self.line {
            None => self.text.push_str(escape),
            Some(line) => line.escape(escape),
        }
    }

    /// Returns the last line as single characters.
    fn open_line(&mut self) -> &mut OverwrittenLine {
        self.line.get_or_insert_with(|| {
            let end = self.text.len();
            if end - self.line_start > LONGEST_LINE {
                self.line_start = self.text.ceil_char_boundary(end - LONGEST_LINE);
            }
            let written = self.text.split_off(self.line_start);
            let mut line = OverwrittenLine::default();
            let mut rest = written.as_str();
            while let Some(at) = rest.find('\u{1b}') {
                let (plain, special) = rest.split_at(at);
                plain.chars().for_each(|c| line.put(c));
                let length = escape_length(special).unwrap_or(special.len());
                let (escape, after) = special.split_at(length);
                line.escape(escape);
                rest = after;
            }
            rest.chars().for_each(|c| line.put(c));
            line
        })
    }
}

impl OverwrittenLine {
    fn put(&mut self, text: char) {
        let style = self.style.clone();
        let place = StyledChar { style, text };
        match self.cells.get_mut(self.at) {
            Some(there) => *there = place,
            None => self.cells.push(place),
        }
        self.at += 1;
    }

    fn escape(&mut self, escape: &str) {
        let inside = escape.strip_prefix("\u{1b}[").unwrap_or_default();
        match (inside, inside.strip_suffix('m')) {
            (_, Some("" | "0")) => self.style.clear(),
            // The escape begins with a reset.
            (_, Some(codes))
                if codes.starts_with("0;") || self.style.len() + escape.len() > LONGEST_STYLE =>
            {
                escape.clone_into(&mut self.style);
            }
            (_, Some(_)) => self.style.push_str(escape),
            ("K" | "0K", _) => self.cells.truncate(self.at),
            ("1K" | "2K", _) => {
                let blank = StyledChar {
                    style: String::new(),
                    text: ' ',
                };
                let end = if inside == "2K" {
                    self.cells.len()
                } else {
                    self.at
                };
                self.cells
                    .iter_mut()
                    .take(end)
                    .for_each(|it| it.clone_from(&blank));
                while self.cells.last() == Some(&blank) && self.cells.len() > self.at {
                    self.cells.pop();
                }
            }
            _ => {
                let mark = (self.at, escape.to_owned());
                if self.marks.len() < MOST_MARKS && !self.marks.contains(&mark) {
                    self.marks.push(mark);
                    self.marks.sort_by_key(|(at, _)| *at);
                }
            }
        }
    }

    fn write_to(&self, text: &mut String) {
        let mut marks = self.marks.iter().peekable();
        let mut style = "";
        let mut change = |text: &mut String, to| {
            if style != to {
                if !style.is_empty() {
                    text.push_str("\u{1b}[0m");
                }
                text.push_str(to);
                style = to;
            }
        };
        for (at, place) in self.cells.iter().enumerate() {
            while let Some((_, mark)) = marks.next_if(|(before, _)| *before <= at) {
                text.push_str(mark);
            }
            change(text, &place.style);
            text.push(place.text);
        }
        change(text, &self.style);
        marks.for_each(|(_, mark)| text.push_str(mark));
    }
}

/// Returns the length of the escape at the beginning of a text; `None` if its end has not come yet.
fn escape_length(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let length = match bytes.get(1)? {
        // A control sequence ends with a byte from `@` on.
        b'[' => bytes
            .iter()
            .skip(2)
            .position(|byte| (0x40..=0x7e).contains(byte))
            .map(|at| at + 3),
        // An operating system command, for example a link, ends with a bell or a string terminator.
        b']' => {
            let bell = bytes.iter().position(|byte| *byte == 7).map(|at| at + 1);
            let terminator = text.find("\u{1b}\\").map(|at| at + 2);
            bell.into_iter().chain(terminator).min()
        }
        byte if byte.is_ascii() => Some(2),
        _ => Some(1),
    };
    match length {
        Some(length) if text.is_char_boundary(length) => Some(length),
        None if bytes.len() < LONGEST_ESCAPE && !text.contains('\n') => None,
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        let mut screen = TerminalText::default();
        screen.write(text);
        screen.text()
    }

    #[test]
    fn text_after_a_carriage_return_overwrites_the_line() {
        for (text, want) in [
            ("a\nb\n", "a\nb\n"),
            ("10%\r100%\r", "100%"),
            ("abc\rX", "Xbc"),
            ("a\r\nb\r\n", "a\nb\n"),
            ("ab\u{8}\u{8}\u{8}c", "cb"),
            ("no\nbar 1\rbar 2\nnext", "no\nbar 2\nnext"),
            ("日本\r x", " x"),
            ("", ""),
        ] {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }

    #[test]
    fn colours_stay_with_what_was_written_in_them() {
        for (text, want) in [
            (
                "\u{1b}[31mred\u{1b}[0m plain",
                "\u{1b}[31mred\u{1b}[0m plain",
            ),
            ("\u{1b}[31mred\u{1b}[0m\rok", "ok\u{1b}[31md\u{1b}[0m"),
            (
                "\r\u{1b}[32m 5%\u{1b}[0m\r\u{1b}[32m100%\u{1b}[0m|\n",
                "\u{1b}[32m100%\u{1b}[0m|\n",
            ),
            ("long\rab\u{1b}[K", "ab"),
            ("long\r\u{1b}[2Kab", "ab"),
            ("ab\u{1b}[1A\rc", "cb\u{1b}[1A"),
            (
                "\u{1b}]8;;http://x\u{7}link\rL",
                "\u{1b}]8;;http://x\u{7}Link",
            ),
            ("\u{1b}[", "\u{1b}["),
        ] {
            assert_eq!(shown(text), want, "{text:?}");
        }
    }

    #[test]
    fn a_bar_takes_the_memory_of_a_line() {
        let mut screen = TerminalText::default();
        for step in 0..10_000 {
            screen.write(&format!("\rstep {step:>8}"));
        }
        assert_eq!(screen.text(), "step     9999");
        assert!(screen.text.is_empty());
    }

    #[test]
    fn the_beginning_comes_off_by_lines() {
        let mut screen = TerminalText::default();
        screen.write("one\ntwo\nthree\r");
        assert_eq!(screen.take_front(6), "one\n");
        screen.write("T\nfour\nfi");
        assert_eq!(screen.drop_front(1), "two\n");
        assert_eq!(screen.text(), "Three\nfour\nfi");
        screen.write("ve\rF");
        assert_eq!(screen.text(), "Three\nfour\nFive");
        // A line without an end is cut in its middle, between characters.
        let mut screen = TerminalText::default();
        screen.write("é".repeat(10).as_str());
        assert_eq!(screen.take_front(5), "éé");
        assert_eq!(screen.drop_front(7), "ééé");
        screen.write("\ra");
        assert_eq!(screen.text(), "aéééé");
        assert_eq!(screen.size(), 5);
    }

    #[test]
    fn a_line_of_control_characters_stays_small() {
        let mut screen = TerminalText::default();
        let junk = "\u{8}x\u{1b}[1m\u{1b}[1Aabc\r".repeat(20_000);
        screen.write(&junk);
        assert!(screen.text().len() < 8 << 10, "{}", screen.text().len());
        screen.write(&"y".repeat(100_000));
        screen.write(&"\ry".repeat(100));
        screen.write(&"z".repeat(100_000));
        let places = screen.line.as_ref().map_or(0, |line| line.cells.len());
        assert!(places <= 2 * LONGEST_LINE + 100_000, "{places}");
        assert_eq!(screen.text().matches('z').count(), 100_000);
    }

    proptest! {
        /// The division of a stream into messages does not matter.
        #[test]
        fn where_it_is_cut_does_not_matter(
            words in proptest::collection::vec("[a-c\r\n\u{8}é]{0,4}|\u{1b}\\[[0-3]{0,2}m|\u{1b}\\[K", 0..12),
            cuts in proptest::collection::vec(0_usize..60, 0..6),
        ) {
            let text = words.concat();
            let mut screen = TerminalText::default();
            let mut places: Vec<_> = cuts.into_iter().filter(|at| text.is_char_boundary(*at)).collect();
            places.sort_unstable();
            places.push(text.len());
            let mut from = 0;
            for to in places.into_iter().filter(|to| *to <= text.len()) {
                screen.write(&text[from..to]);
                from = to;
            }
            prop_assert_eq!(screen.text(), shown(&text));
        }
    }
}
