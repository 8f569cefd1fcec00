//! A cell on its own, to be kept and put back.

use super::cell::{Cell, joined};
use super::json::{Json, Layout, Object, lossy};
use super::revision::EXECUTION_KEYS;

impl Cell {
    /// Returns the cell as it stands in the file, with its outputs.
    pub fn json(&self) -> Json {
        Json::of_valid(&self.text)
    }

    /// Returns the cell without what running it has left: no outputs, no count. A cell of megabytes
    /// of pictures is as small as its source.
    pub fn version(&self) -> Json {
        let mut bare = self.clone();
        for (name, nothing) in [("outputs", &b"[]"[..]), ("execution_count", b"null")] {
            if bare.raw(name).is_some_and(|raw| raw != nothing) {
                bare.rewrite(bare.with(name, nothing, &Layout::default()));
            }
        }
        Json::of_valid(&bare.text)
    }

    /// Returns whether it is the other cell untouched: the same bytes in memory, not only equal ones.
    pub fn is_untouched(&self, other: &Self) -> bool {
        self.id == other.id && self.text.as_ptr_range() == other.text.as_ptr_range()
    }

    /// Returns whether running it has left something, outputs, a count or times, that is not in the
    /// other.
    pub fn ran_unlike(&self, other: Option<&Self>) -> bool {
        let left = |name, nothing: &[u8], other: Option<&Self>| {
            let own = self.raw(name).filter(|raw| *raw != nothing);
            own.is_some() && own != other.and_then(|other| other.raw(name))
        };
        let times = |cell: &Self| EXECUTION_KEYS.map(|key| cell.metadata(&[key]));
        let no_times = EXECUTION_KEYS.map(|_| None);
        let (own, others) = (times(self), other.map_or_else(|| no_times.clone(), times));
        left("outputs", b"[]", other)
            || left("execution_count", b"null", other)
            || (own != no_times && own != others)
    }
}

impl Json {
    /// Returns the source of a cell that was kept, the lines joined; none where it is no cell.
    pub fn cell_source(&self) -> Option<String> {
        let object = Object::read(self.bytes())?;
        let raw = object.get(self.bytes(), "source")?.of(self.bytes());
        Some(lossy(joined(raw)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Document;

    #[test]
    fn a_version_is_the_cell_without_what_running_left() {
        let text = r#"{"cells": [
 {"cell_type": "code", "id": "a", "outputs": [{"data": {}}], "execution_count": 3, "source": ["x"], "my": 1},
 {"cell_type": "markdown", "id": "b", "source": "y"}]}"#;
        let document = Document::parse(text).unwrap();
        let [code, words] = document.cells() else {
            panic!("two cells")
        };
        assert_eq!(
            code.version().text(),
            r#"{"cell_type": "code", "id": "a", "outputs": [], "execution_count": null, "source": ["x"], "my": 1}"#
        );
        assert_eq!(code.version().cell_source().as_deref(), Some("x"));
        assert_eq!(words.version(), words.json());
        assert!(text.contains(&*code.json().text()));
        let mut copy = document.clone();
        copy.set_source(1, "z").unwrap();
        assert!(copy.cells()[0].is_untouched(code) && !copy.cells()[1].is_untouched(words));
        assert!(code.ran_unlike(None) && code.ran_unlike(Some(words)));
        assert!(!words.ran_unlike(Some(code)) && !code.ran_unlike(Some(code)));
    }
}
