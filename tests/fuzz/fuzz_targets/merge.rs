//! Whatever two sides made of a notebook, and however the human's editor wrote it: what they are
//! merged to is a notebook, and merging once more changes no cell.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::notebook::{Document, merge};
use nb_fuzz::{Page, Step, assert_whole, worked};

fuzz_target!(
    |input: (Page<'_>, Vec<Step<'_>>, Vec<Step<'_>>, Option<Page<'_>>)| {
        let (page, human, agent, other) = input;
        let Ok(base) = Document::parse(page.text()) else {
            return;
        };
        // Or the human put another file in its place.
        let other = other.and_then(|page| Document::parse(page.text()).ok());
        let file = other.unwrap_or_else(|| worked(&base, &human, "human"));
        let writer = worked(&base, &agent, "agent");
        let merged = merge(&base, &file, &writer, &|id| id.ends_with('3'));
        assert_whole(&merged.document);
        for conflict in &merged.conflicts {
            assert!(!conflict.field.is_empty());
        }
        let again = merge(&base, &merged.document, &writer, &|id| id.ends_with('3'));
        assert_whole(&again.document);
    }
);
