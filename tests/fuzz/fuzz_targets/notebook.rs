//! Whatever bytes stand in a file: no panic; what opens is written back as it was, and an edit
//! leaves a file that opens to the same cells.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::notebook::{Document, Json, merge};

fuzz_target!(|input: (u8, u8, &str, &[u8])| {
    let (choice, at, word, bytes) = input;
    // So that the fuzzer need not find what stands round the cells.
    let text = match choice & 0x80 {
        0 => [&b"{\"cells\":["[..], bytes, b"],\"nbformat\":4}"].concat(),
        _ => bytes.to_vec(),
    };
    let Ok(document) = Document::parse(text.clone()) else {
        return;
    };
    assert_eq!(document.to_bytes(), text);
    document.revision();
    let mut edited = document.clone();
    let at = usize::from(at) % document.cells().len().max(1);
    let done = match choice & 7 {
        0 => edited.set_source(at, word).is_ok(),
        1 => edited.remove(at).is_ok(),
        2 => edited
            .set_metadata(at, &["a", word], &Json::string(word))
            .is_ok(),
        3 => edited.clear_outputs(at).is_ok(),
        4 => edited.split(at, 1, "split").is_ok(),
        5 => edited.join(at, 2).is_ok(),
        6 => edited.move_cell(at, 0).is_ok(),
        _ => edited
            .set_notebook_metadata(&[word], &Json::from(1))
            .is_ok(),
    };
    let again = Document::parse(edited.to_bytes()).expect("an edit leaves a notebook");
    assert_eq!(again.revision(), edited.revision());
    if !done {
        assert_eq!(edited.to_bytes(), text);
    }
    for cell in document.cells() {
        cell.first_line(20);
        cell.outputs_line(40);
    }
    let merged = merge(&document, &document, &edited, &|_| false);
    assert_eq!(merged.document.to_bytes(), edited.to_bytes());
});
