//! White space that gives a written file another size than the file had before.
//!
//! VS Code refuses to save over a newer file only if both its time and its size differ from those that it
//! read (`validateWriteFile` in its file service). It would overwrite an edit that keeps the size, such as
//! `0.1` to `0.5`, without asking, and so it would two edits of which the second brings the size back. The spaces go
//! between two JSON tokens, before the last one of a line that the edit has changed: no reader of the notebook sees
//! them, and `git diff --check` does not report them as it does a space at the end. Sources are never touched, since a
//! space may have a meaning there.

use super::align::out_of_order;
use crate::notebook::document::{Cell, Document};

/// How many spaces stand at one position at most.
const MOST_SPACES: usize = 4096;

impl Document {
    /// Returns the number of bytes of the notebook's file.
    pub fn size(&self) -> usize {
        self.chunks().map(<[u8]>::len).sum()
    }

    /// Returns the notebook with a size that is allowed, or, if no number of spaces leads to one, with another size
    /// than `before`, from which it was made by edits. It stays unchanged if its size is allowed, or if the bytes are
    /// equal. `mover` is the id of the cell that was moved, if known: of two cells that changed places, either may be it.
    #[must_use]
    pub fn with_size(
        mut self,
        before: &Self,
        mover: Option<&str>,
        is_allowed: &dyn Fn(usize) -> bool,
    ) -> Self {
        let (size, current) = (self.size(), before.size());
        if is_allowed(size) || self.has_same_bytes(before) {
            return self;
        }
        // The sizes of the part that gets the spaces.
        let spaced = |text: &[u8], from| {
            let whole = |part: usize| size - text.len() + part;
            let place = SpacePlace::in_text(text, from);
            let mut numbers = 0..=MOST_SPACES;
            let number = numbers.find(|number| is_allowed(whole(place.length_with(*number))));
            let number =
                number.or_else(|| (0..=1).find(|it| whole(place.length_with(*it)) != current));
            place.with(number.unwrap_or_default())
        };
        let places = before.positions_by_id();
        let old = |cell: &Cell| before.cells.get(*places.get(cell.id())?);
        let is_other = |cell: &&mut Cell| old(cell).is_none_or(|old| old.text != cell.text);
        let changed = self.cells.iter_mut().find(is_other);
        if let Some(cell) = changed {
            let from = old(cell).map_or(0, |old| end_of_change(&old.text, &cell.text));
            cell.rewrite(spaced(&cell.text, from));
            return self;
        }
        let order: Vec<_> = self
            .cells
            .iter()
            .map(|cell| places.get(cell.id()).copied())
            .collect();
        let named = self.cells.iter().position(|cell| Some(cell.id()) == mover);
        let named = named.filter(|at| order.get(*at) != Some(&Some(*at)));
        let mover = named.or_else(|| out_of_order(&order).iter().position(|moved| *moved));
        if let Some(cell) = mover.and_then(|at| self.cells.get_mut(at)) {
            cell.rewrite(spaced(&cell.text, 0));
            return self;
        }
        let from = end_of_change(&before.frame.text, &self.frame.text);
        self.frame = self.frame.rewritten(spaced(&self.frame.text, from));
        self
    }
}

/// Returns the end, in the new text, of the last part that differs from the old one.
fn end_of_change(old: &[u8], new: &[u8]) -> usize {
    let pairs = old.iter().rev().zip(new.iter().rev());
    new.len() - pairs.take_while(|(a, b)| a == b).count()
}

/// The place of the spaces in a JSON text: in the line at a position or in one after it; in a text of one line, before
/// the last bracket.
struct SpacePlace<'a> {
    head: &'a [u8],
    tail: &'a [u8],
}

impl<'a> SpacePlace<'a> {
    fn in_text(text: &'a [u8], from: usize) -> Self {
        let at = last_token(text, from)
            .or_else(|| text.iter().rposition(|byte| *byte == b'}'))
            .unwrap_or(text.len());
        let (head, tail) = text.split_at(at);
        let is_space = |byte: &&u8| **byte == b' ';
        let spaces = head.iter().rev().take_while(is_space).count();
        // As many spaces may belong to the file's style.
        let own = match head.iter().rev().nth(spaces) {
            Some(b':') => 1,
            Some(b'\n') => {
                let indent = |line: &[u8]| line.iter().take_while(is_space).count();
                let lines = |text: &'a [u8]| text.split(|byte| *byte == b'\n');
                let next = lines(tail).nth(1).unwrap_or_default();
                // The next line is as deep, or closes the bracket round this one.
                let step = match next.trim_ascii_start().first() {
                    Some(b']' | b'}') => {
                        let inside = lines(text).nth(1).map_or(0, indent);
                        inside.saturating_sub(lines(text).next_back().map_or(0, indent))
                    }
                    _ => 0,
                };
                indent(next) + step
            }
            _ => 0,
        };
        let earlier = spaces.saturating_sub(own);
        let head = head.get(..at - earlier).unwrap_or_default();
        Self { head, tail }
    }

    /// Returns the length of the text with so many spaces.
    fn length_with(&self, spaces: usize) -> usize {
        self.head.len() + spaces + self.tail.len()
    }

    fn with(&self, spaces: usize) -> Vec<u8> {
        [self.head, &vec![b' '; spaces], self.tail].concat()
    }
}

/// Returns the start of a line's last token: of the first line, from a position on, that ends neither within a
/// string nor behind an opening bracket. Empty brackets are one token.
fn last_token(text: &[u8], from: usize) -> Option<usize> {
    let (mut in_string, mut escaped, mut in_word) = (false, false, false);
    let (mut token, mut opens) = (0, false);
    for (at, byte) in text.iter().enumerate() {
        let was_in_word = std::mem::take(&mut in_word);
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => {
                if !in_string {
                    (token, opens) = (at, false);
                }
                in_string = !in_string;
            }
            _ if in_string => {}
            b'\n' if at >= from && !opens => return Some(token),
            b' ' | b'\t' | b'\r' | b'\n' => {}
            b'}' | b']' if opens => opens = false,
            b'{' | b'[' => (token, opens) = (at, true),
            b'}' | b']' | b',' | b':' => (token, opens) = (at, false),
            _ => {
                in_word = true;
                if !was_in_word {
                    (token, opens) = (at, false);
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::notebook::CellType;
    use crate::notebook::Json;
    use crate::notebook::NewCell;
    use crate::notebook::tests::laws::{assert_whole, meaning, notebook, open};

    const FILE: &str = "{\n \"cells\": [\n  {\n   \"cell_type\": \"code\",\n   \"execution_count\": 1,\n   \"id\": \"a\",\n   \"metadata\": {},\n   \"outputs\": [],\n   \"source\": [\n    \"x = 0.1 \\\\\\n\",\n    \"'''\"\n   ]\n  },\n  {\n   \"cell_type\": \"raw\",\n   \"id\": \"b\",\n   \"metadata\": {},\n   \"source\": \"y\"\n  }\n ],\n \"metadata\": {\n  \"k\": \"1\"\n },\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}\n";

    /// Returns the notebook with another size than the one before.
    fn other_size(after: Document, before: &Document, mover: Option<&str>) -> Document {
        after.with_size(before, mover, &|size| size != before.size())
    }

    fn text(document: &Document) -> String {
        String::from_utf8(document.to_bytes()).unwrap()
    }

    #[test]
    fn an_edit_of_the_same_length_changes_the_size_on_its_own_line_and_no_text() {
        let before = open(FILE.as_bytes());
        let mut after = before.clone();
        after.replace(0, "0.1", "0.5", false).unwrap();
        let after = other_size(after, &before, None);
        let want = FILE.replace("0.1 \\\\\\n\",", "0.5 \\\\\\n\" ,");
        assert_eq!(text(&after), want);
        assert_eq!(after.cells()[0].source(), "x = 0.5 \\\n'''");
        // A move, and a change of the notebook's own metadata.
        let mut moved = before.clone();
        moved.move_cell(1, 0).unwrap();
        let moved = other_size(moved, &before, Some("b"));
        assert_eq!(text(&moved).len(), FILE.len() + 1);
        assert_eq!(moved.cells()[1].text, before.cells()[0].text);
        let mut named = before.clone();
        named
            .set_notebook_metadata(&["k"], &Json::string("2"))
            .unwrap();
        let named = other_size(named, &before, None);
        assert_eq!(text(&named), FILE.replace("\"1\"", " \"2\""));
        assert_whole(&named);
        // A document whose size differs already, or that has not changed, stays as it is.
        let mut longer = before.clone();
        longer.replace(0, "0.1", "0.15", false).unwrap();
        assert_eq!(
            text(&other_size(longer.clone(), &before, None)),
            text(&longer)
        );
        assert_eq!(text(&other_size(before.clone(), &before, None)), FILE);
        assert_eq!(
            text(&other_size(open(FILE.as_bytes()), &before, None)),
            FILE
        );
    }

    #[test]
    fn no_line_gets_a_space_at_its_end() {
        let before = open(FILE.as_bytes());
        let edits: [fn(&mut Document); 5] = [
            |it| drop(it.replace(0, "0.1", "0.5", false)),
            |it| drop(it.replace(0, "'''", "###", false)),
            |it| drop(it.set_source(1, "z")),
            |it| drop(it.move_cell(1, 0)),
            |it| drop(it.set_notebook_metadata(&["k"], &Json::string("2"))),
        ];
        for edit in edits {
            let mut after = before.clone();
            edit(&mut after);
            let after = text(&other_size(after, &before, Some("b")));
            assert_ne!(after, FILE);
            assert!(!after.contains(" \n"), "{after}");
        }
        // The indent of a line stays, whichever number of spaces is chosen.
        let last = SpacePlace::in_text(b"{\n \"a\": [\n  1\n ]\n}", 12);
        assert_eq!(last.with(0), b"{\n \"a\": [\n  1\n ]\n}");
        // The space is not put into empty brackets, which mean the same only without it.
        let brackets = b"{\n \"a\": [\n  1\n ],\n \"b\": {}\n}";
        let with_space = |from| SpacePlace::in_text(brackets, from).with(1);
        let found = with_space(25);
        assert_eq!(found, b"{\n \"a\": [\n  1\n ],\n \"b\":  {}\n}");
        assert_eq!(with_space(0), b"{\n \"a\": [\n   1\n ],\n \"b\": {}\n}");
    }

    #[test]
    fn the_space_is_before_the_last_token_of_the_line() {
        for (text, from, want) in [
            (
                "{\n \"a\": 1,\n \"b\": 2\n}",
                0,
                "{\n \"a\": 1 ,\n \"b\": 2\n}",
            ),
            // The line ends at this position.
            (
                "{\n \"a\": 1,\n \"b\": 2\n}",
                10,
                "{\n \"a\": 1 ,\n \"b\": 2\n}",
            ),
            ("{\n \"a\": true\n}", 0, "{\n \"a\":  true\n}"),
            ("{\n \"a\": \"x y\"\n}", 0, "{\n \"a\":  \"x y\"\n}"),
            (
                "{\n \"a\": \"x\\\", y\",\n \"b\": 2\n}",
                0,
                "{\n \"a\": \"x\\\", y\" ,\n \"b\": 2\n}",
            ),
            ("{\n \"a\": [\n  1\n ]\n}", 14, "{\n \"a\": [\n  1\n  ]\n}"),
            // A text of one line.
            ("{\"a\":{\"b\":1}}", 0, "{\"a\":{\"b\":1} }"),
        ] {
            let found = SpacePlace::in_text(text.as_bytes(), from).with(1);
            assert_eq!(String::from_utf8(found).unwrap(), want, "{text} {from}");
        }
        // The spaces of an earlier edit go, those of the style stay.
        for (text, from, want) in [
            (
                "{\n \"a\": 1 ,\n \"b\": 2\n}",
                0,
                "{\n \"a\": 1,\n \"b\": 2\n}",
            ),
            (
                "{\n   \"a\": [\n    1\n     ]\n  }",
                22,
                "{\n   \"a\": [\n    1\n   ]\n  }",
            ),
        ] {
            let found = SpacePlace::in_text(text.as_bytes(), from).with(0);
            assert_eq!(String::from_utf8(found).unwrap(), want, "{text} {from}");
        }
    }

    #[test]
    fn the_new_or_the_moved_cell_gets_the_space() {
        let before = open(FILE.as_bytes());
        let new = NewCell {
            id: "c".into(),
            cell_type: CellType::Raw,
            source: "z".into(),
            metadata: None,
        };
        let mut three = before.clone();
        three.insert(2, &new).unwrap();
        /// Returns the ids of the cells whose bytes the space changes.
        fn spaced<'a>(
            before: &Document,
            after: &'a Document,
            mover: Option<&str>,
        ) -> (Document, Vec<&'a str>) {
            let size = before.size().max(after.size());
            let with = after.clone().with_size(before, mover, &|it| it > size);
            assert_eq!(with.size(), size + 1);
            let cells = after.cells().iter().zip(with.cells());
            let cells = cells.filter(|(plain, cell)| plain.text != cell.text);
            let ids = cells.map(|(cell, _)| cell.id()).collect();
            (with, ids)
        }
        assert_eq!(spaced(&before, &three, None).1, ["c"]);
        let moved = |from, to| {
            let mut after = three.clone();
            after.move_cell(from, to).unwrap();
            after
        };
        for mover in ["a", "b"] {
            assert_eq!(spaced(&three, &moved(1, 0), Some(mover)).1, [mover]);
        }
        // Not known, unknown, or not the one that moved.
        for (from, to, mover, want) in [
            (2, 0, None, "c"),
            (0, 2, Some("x"), "a"),
            (0, 2, None, "a"),
            (2, 0, Some("c"), "c"),
        ] {
            assert_eq!(spaced(&three, &moved(from, to), mover).1, [want]);
        }
        let after = moved(2, 1);
        let (_, ids) = spaced(&three, &after, Some("a"));
        assert!(ids == ["b"] || ids == ["c"], "{ids:?}");
    }

    #[test]
    fn an_allowed_size_stays() {
        let before = open(FILE.as_bytes());
        let mut after = before.clone();
        after.set_source(1, "x").unwrap();
        let mut spaced = other_size(after.clone(), &before, None);
        spaced.set_source(1, "z").unwrap();
        let same = spaced.clone().with_size(&before, None, &|_| true);
        assert_eq!(text(&same), text(&spaced));
        // No size is allowed, and this one differs already.
        after.set_source(1, "longer").unwrap();
        let longer = after.clone().with_size(&before, None, &|_| false);
        assert_eq!(text(&longer), text(&after));
    }

    #[test]
    fn new_lines_do_not_inherit_the_space() {
        let before = open(FILE.as_bytes());
        let mut after = before.clone();
        after.replace(0, "0.1", "0.5", false).unwrap();
        let mut longer = other_size(after, &before, None);
        longer.set_source(0, "x = 0.5 \\\ny\nz").unwrap();
        assert!(!text(&longer).contains(" ,"), "{}", text(&longer));
    }

    #[test]
    fn a_line_does_not_grow_for_ever() {
        let mut now = open(FILE.as_bytes());
        let mut longest = 0;
        for round in 0..60 {
            let mut next = now.clone();
            let digit = (b'2' + round % 5) as char;
            next.set_source(1, &digit.to_string()).unwrap();
            let next = other_size(next, &now, None);
            assert_ne!(text(&next).len(), text(&now).len());
            longest = longest.max(text(&next).len());
            now = next;
        }
        assert!(longest <= FILE.len() + 1, "{longest}");
    }

    #[test]
    fn the_fewest_spaces_are_added_that_lead_to_an_allowed_size() {
        let before = open(FILE.as_bytes());
        let mut after = before.clone();
        after.set_source(1, "x").unwrap();
        let with_size = |is_allowed: &dyn Fn(usize) -> bool| {
            text(&after.clone().with_size(&before, None, is_allowed))
        };
        let line = |spaces| FILE.replace("\"y\"", &format!("{}\"x\"", " ".repeat(spaces)));
        assert_eq!(with_size(&|size| size > FILE.len() + 40), line(41));
        let most = FILE.len() + MOST_SPACES;
        assert_eq!(with_size(&|size| size >= most), line(MOST_SPACES));
        // None is allowed: the size differs at least from that of the file.
        assert_eq!(with_size(&|size| size > most), line(1));
        after = open(with_size(&|size| size > FILE.len() + 40).as_bytes());
        after.set_source(1, "longer").unwrap();
        let shorter = after
            .clone()
            .with_size(&before, None, &|size| size < FILE.len() + 6);
        assert_eq!(
            text(&shorter),
            FILE.replace("\"y\"", "\"longer\""),
            "spaces go again"
        );
    }

    proptest! {
        #[test]
        fn no_edit_keeps_the_size_and_none_is_seen_in_what_the_notebook_says(
            written in any::<bool>().prop_flat_map(notebook), kind in 0..5, at in 0..6_usize, to in 0..6_usize,
        ) {
            let before = open(&written.text);
            let count = before.cells().len().max(1);
            let (at, to) = (at % count, to % count);
            let mut after = before.clone();
            let source = before.cells().get(at).map(|cell| cell.source().into_owned());
            let other: String = source.unwrap_or_default().chars().map(|it| if it == 'a' { 'b' } else { it }).collect();
            let _ = match kind {
                0 => after.set_source(at, &other).map(drop),
                1 => after.move_cell(at, to).map(drop),
                2 => after.set_type(at, CellType::Raw).map(drop),
                3 => after.remove(at).and_then(|_| {
                    let new = NewCell { id: "n".into(), cell_type: CellType::Code, source: other, metadata: None };
                    after.insert(at, &new).map(drop)
                }),
                _ => after.clear_outputs(at).map(drop),
            };
            let with_space = other_size(after.clone(), &before, None);
            assert_whole(&with_space);
            prop_assert_eq!(meaning(&with_space), meaning(&after));
            let (old, new) = (before.to_bytes(), with_space.to_bytes());
            prop_assert!(old == new || old.len() != new.len());
            // Only bytes of edited cells differ.
            for (cell, plain) in with_space.cells().iter().zip(after.cells()) {
                let untouched = before.cells().iter().any(|old| old.id() == cell.id() && old.text == plain.text);
                prop_assert!(cell.text == plain.text || !untouched || kind == 1);
            }
        }
    }
}
