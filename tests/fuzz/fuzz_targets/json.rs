//! What Python takes for JSON is JSON, and nothing else is.
//!
//! Each text is shown to a Python that runs beside (`PYTHON` names it, else `python3`): it says
//! whether `json.loads(strict=False)` reads it, and whether it reads as a notebook. Beyond what the
//! two promise to share, deeper than 900 levels and integers over 4,300 digits, nothing is compared.

#![no_main]

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex};

use libfuzzer_sys::fuzz_target;
use nb::notebook::{Document, Json};

/// Answers each text, which follows its length in four bytes, with `1` where it is JSON, and one
/// where it is a notebook.
const JUDGE: &str = r#"
import json, sys
def is_notebook(value):
    if type(value) is not dict or type(value.get("cells")) is not list:
        return False
    return all(type(cell) is dict for cell in value["cells"])
def reads(text, judge):
    try:
        return b"1" if judge(json.loads(text, strict=False)) else b"0"
    except (ValueError, RecursionError):
        return b"0"
while len(length := sys.stdin.buffer.read(4)) == 4:
    text = sys.stdin.buffer.read(int.from_bytes(length, "little"))
    answer = reads(text.decode("utf-8"), lambda value: True)
    sys.stdout.buffer.write(answer + reads(text.decode("utf-8-sig"), is_notebook))
    sys.stdout.buffer.flush()
"#;

static PYTHON: LazyLock<Mutex<Child>> = LazyLock::new(|| {
    let name = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let child = Command::new(name)
        .args(["-c", JUDGE])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    Mutex::new(child.expect("run Python"))
});

fn judged(text: &str) -> [bool; 2] {
    let mut python = PYTHON.lock().expect("one thread");
    let mut question = u32::try_from(text.len())
        .expect("a short text")
        .to_le_bytes()
        .to_vec();
    question.extend_from_slice(text.as_bytes());
    let stdin = python.stdin.as_mut().expect("a pipe");
    stdin
        .write_all(&question)
        .and_then(|()| stdin.flush())
        .expect("ask Python");
    let mut answer = [0; 2];
    let stdout = python.stdout.as_mut().expect("a pipe");
    stdout.read_exact(&mut answer).expect("Python's answer");
    answer.map(|byte| byte == b'1')
}

/// Whether both sides promise to agree on it.
fn is_shared(text: &str) -> bool {
    let brackets = text.bytes().filter(|byte| b"{[".contains(byte)).count();
    let digits = text
        .split(|c: char| !c.is_ascii_digit())
        .map(str::len)
        .max();
    brackets <= 900 && digits <= Some(4300)
}

fuzz_target!(|bytes: &[u8]| {
    let Some(text) = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| is_shared(text))
    else {
        assert!(std::str::from_utf8(bytes).is_ok() || Document::parse(bytes.to_vec()).is_err());
        return;
    };
    let in_cells = format!("{{\"cells\":[{text}]}}");
    for text in [text, &in_cells] {
        let [is_json, is_notebook] = judged(text);
        assert_eq!(Json::parse(text).is_ok(), is_json, "{text:?}");
        let document = Document::parse(text.to_owned());
        // Formats 2 and 3 keep their cells elsewhere, and are read.
        if document
            .as_ref()
            .is_ok_and(|document| document.nbformat().0 < 4)
        {
            continue;
        }
        assert_eq!(document.is_ok(), is_notebook, "{text:?}");
    }
});
