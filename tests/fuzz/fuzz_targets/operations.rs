//! Whatever stands in a notebook and whatever is asked for: all of it is done, or none, and what is
//! left is a notebook that reads, lists and compares without a panic.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::notebook::{Document, diff};
use nb_fuzz::{Page, Step, assert_whole};

fuzz_target!(|input: (Page<'_>, Vec<Step<'_>>, u8)| {
    let (page, steps, limit) = input;
    let text = page.text();
    let Ok(document) = Document::parse(text.clone()) else {
        return; // not every value of metadata or cells is one
    };
    assert_eq!(document.to_bytes(), text.as_bytes());
    let operations: Vec<_> = steps.iter().map(Step::operation).collect();
    let mut number = 0;
    let mut fresh = || {
        number += 1;
        format!("new{number}")
    };
    match document.applied(&operations, &mut fresh) {
        Ok((after, changes)) => {
            assert_whole(&after);
            assert!(after.to_bytes() == text.as_bytes() || !changes.is_empty());
            let formatted = after.formatted().expect("format 4 is written");
            assert_whole(&formatted);
            let again = formatted.formatted().expect("format 4 is written");
            assert_eq!(again.to_bytes(), formatted.to_bytes());
            diff(&document, &after, true);
            diff(&after, &document, false);
            for cell in after.cells() {
                cell.first_line(usize::from(limit));
                cell.outputs_line(usize::from(limit));
            }
        }
        Err(error) => drop(error.to_string()),
    }
});
