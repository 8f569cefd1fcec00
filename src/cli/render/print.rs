//! Writes to stdout and stderr. A closed pipe ends the program without an error.
//!
//! A line of `nb` is one line: a line break in a name is drawn. On stderr, and on stdout where outputs and sources stand
//! beside it, it begins with the mark that the texts of others cannot have (see `notebook::visible`).

use std::borrow::Cow;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde::Serialize;

use crate::api::outputs::{self, OutputText};
pub(crate) use crate::api::time::{age, moment, took};
use crate::cli::render::harmless::{Kind, harmless};
use crate::execution::run::OutputMessage;
use crate::notebook::{is_hidden, own_line, visible, visible_line, visible_output};
use crate::text::Part;
pub(crate) use crate::text::count;

/// Prints one JSON object on one line. Control characters that JSON allows unescaped (DEL and C1), and characters that a
/// reader would not see, are escaped: removing or naming them would change the text.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    let is_escaped = |c: char| c.is_control() || is_hidden(c);
    if !text.contains(is_escaped) {
        return raw(format!("{text}\n").as_bytes());
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match is_escaped(c) {
            true => {
                let units = c.encode_utf16(&mut [0; 2]).to_vec();
                escaped.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
            }
            false => escaped.push(c),
        }
    }
    raw(format!("{escaped}\n").as_bytes())
}

/// Prints one line of an answer that has no outputs and no sources.
pub(crate) fn line(text: &str) -> io::Result<()> {
    raw(format!("{}\n", visible_line(text)).as_bytes())
}

/// Prints lines of such an answer.
pub(crate) fn lines<T: Display>(lines: impl IntoIterator<Item = T>) -> io::Result<()> {
    let lines = lines.into_iter();
    let lines = lines.map(|line| format!("{}\n", visible_line(&line.to_string())));
    raw(lines.collect::<String>().as_bytes())
}

/// Prints the parts of an answer.
pub(crate) fn parts(parts: &[Part]) -> io::Result<()> {
    raw(parts.iter().map(Part::text).collect::<String>().as_bytes())
}

/// Returns the exit code of a command that does nothing but print.
pub(crate) fn code(printed: &io::Result<()>) -> ExitCode {
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints a line of `nb` that is not data to stderr. Write errors are ignored.
pub(crate) fn note(text: &str) {
    let _ = on_stderr(&format!("{}\n", own_line(text)), Kind::Text);
}

/// Prints notes about an answer to stderr, one line each.
pub(crate) fn notes<T: Display>(notes: impl IntoIterator<Item = T>) {
    for text in notes {
        note(&format!("note: {text}"));
    }
}

/// Prints text in which all characters are visible, without colours if stdout is not a terminal.
pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
    shown(bytes, Kind::Text)
}

fn shown(bytes: &[u8], kind: Kind) -> io::Result<()> {
    // Stripping escapes from a long text takes longer than producing it, so text without control characters
    // skips that.
    let has_control = bytes
        .iter()
        .fold(false, |any, byte| any | is_control(*byte));
    match has_control {
        true => {
            let text = String::from_utf8_lossy(bytes);
            written(anstream::stdout().lock(), harmless(&text, kind).as_bytes())
        }
        false => written(io::stdout().lock(), bytes),
    }
}

/// Says whether a byte begins an escape sequence or another control character.
fn is_control(byte: u8) -> bool {
    // A byte of 0xc2 may begin a C1 control character.
    (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f) | (byte == 0xc2)
}

/// Prints a cell's text: first its errors and stderr, then stdout.
pub(crate) fn both(text: &OutputText) -> io::Result<()> {
    on_stderr(&text.err, Kind::Text)?;
    raw(text.out.as_bytes())
}

/// Prints one output as it comes.
pub(crate) fn streamed(output: &OutputMessage) -> io::Result<()> {
    match output {
        OutputMessage::Stream(it) if it.name == "stderr" => {
            on_stderr(&visible_output(&it.text), Kind::Live)
        }
        OutputMessage::Stream(it) => shown(visible_output(&it.text).as_bytes(), Kind::Live),
        OutputMessage::Display(it) | OutputMessage::Result(it) => {
            raw(format!("{}\n", outputs::bundle(it, false, outputs::note)).as_bytes())
        }
        OutputMessage::Error(it) => on_stderr(&format!("{}\n", outputs::traceback(it)), Kind::Text),
        // The display that it replaces is printed already.
        OutputMessage::Update(_) => Ok(()),
    }
}

fn on_stderr(text: &str, kind: Kind) -> io::Result<()> {
    let mut stderr = anstream::stderr().lock();
    stderr.write_all(harmless(text, kind).as_bytes())?;
    stderr.flush()
}

/// Returns a source, or a part of one, as it is printed: on a terminal nothing of it is hidden.
pub(crate) fn source(text: &str) -> Cow<'_, str> {
    match io::stdout().is_terminal() {
        true => visible(text),
        false => text.into(),
    }
}

/// Prints bytes unchanged, including escape sequences: a source, an image. A terminal receives only what is
/// harmless and visible.
pub(crate) fn exact(bytes: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        let visible = visible_output(&text);
        return written(
            io::stdout().lock(),
            harmless(&visible, Kind::Text).as_bytes(),
        );
    }
    written(io::stdout().lock(), bytes)
}

fn written(mut stdout: impl Write, bytes: &[u8]) -> io::Result<()> {
    let result = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match &result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // The reader has closed the pipe.
            std::process::exit(0);
        }
        Err(error) => {
            // An answer that is lost, for example on a full disk, must not look like an empty one. What that
            // means for the exit code depends on the command.
            note(&format!("nb: cannot write the answer: {error}"));
            result
        }
        Ok(()) => result,
    }
}
