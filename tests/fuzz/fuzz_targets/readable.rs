//! Outputs in short: any HTML, JSON, log and traceback is read, and nothing gets longer than it was.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::api::readable::{ShortTraceback, readable, without_similar_lines};
use serde_json::{Map, Value};

const FORMS: [&str; 6] = [
    "text/html",
    "text/plain",
    "application/json",
    "application/vnd.plotly.v1+json",
    "application/vnd.vegalite.v5+json",
    "application/vnd.bokehjs_exec.v0+json",
];

fuzz_target!(|input: (Vec<(u8, &str)>, Vec<String>)| {
    let (forms, lines) = input;
    let forms = forms.into_iter().map(|(form, text)| {
        let form = FORMS[usize::from(form) % FORMS.len()];
        let value = serde_json::from_str(text).unwrap_or_else(|_| Value::from(text));
        (form.to_owned(), value)
    });
    let _ = readable(&forms.collect::<Map<_, _>>());
    let _ = ShortTraceback { more: "more" }.of(&lines);
    let text = lines.join("\n");
    let short = without_similar_lines(&text, "more");
    assert!(short.lines().count() <= text.lines().count());
});
