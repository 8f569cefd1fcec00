//! Writing to stdout. A closed pipe is a quiet end.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::api::outputs::{self, OutputText};
pub(crate) use crate::api::time::{age, moment, took};
use crate::cli::render::harmless::{Kind, harmless};
use crate::execution::run::Output;

/// Prints one JSON object, as one line. Control characters that JSON may hold as they are, DEL and
/// those of C1, are escaped: what is taken out for a terminal would be missing in the text.
pub(crate) fn json(value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_string(value)?;
    if !text.contains(char::is_control) {
        return line(&text);
    }
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => escaped.push(c),
        }
    }
    line(&escaped)
}

/// Prints one line.
pub(crate) fn line(text: &str) -> io::Result<()> {
    raw(format!("{text}\n").as_bytes())
}

/// Tells something that is no data, on stderr. Where nobody can read it, it is not said.
pub(crate) fn note(text: &str) {
    let _ = on_stderr(&format!("{text}\n"), Kind::Text);
}

/// Prints bytes; where no terminal shows them, without colours.
pub(crate) fn raw(bytes: &[u8]) -> io::Result<()> {
    shown(bytes, Kind::Text)
}

fn shown(bytes: &[u8], kind: Kind) -> io::Result<()> {
    // To take them out of a long text takes longer than to make it.
    let has_control = bytes
        .iter()
        .fold(false, |any, byte| any | is_control(*byte));
    match has_control {
        true if io::stdout().is_terminal() => {
            let text = String::from_utf8_lossy(bytes);
            written(anstream::stdout().lock(), harmless(&text, kind).as_bytes())
        }
        true => written(anstream::stdout().lock(), bytes),
        false => exact(bytes),
    }
}

/// Whether it is one of those that begin an escape, or that a text has no need of.
fn is_control(byte: u8) -> bool {
    // A byte of 0xc2 may begin one of the other control characters.
    (byte < b' ') & (byte != b'\n') & (byte != b'\t') | (byte == 0x7f) | (byte == 0xc2)
}

/// Prints a cell's text, what went wrong first.
pub(crate) fn both(text: &OutputText) -> io::Result<()> {
    on_stderr(&text.err, Kind::Text)?;
    raw(text.out.as_bytes())
}

/// Prints one output as it comes.
pub(crate) fn streamed(output: &Output) -> io::Result<()> {
    match output {
        Output::Stream(it) if it.name == "stderr" => on_stderr(&it.text, Kind::Live),
        Output::Stream(it) => shown(it.text.as_bytes(), Kind::Live),
        Output::Display(it) | Output::Result(it) => line(&outputs::bundle(it)),
        Output::Error(it) => on_stderr(&format!("{}\n", outputs::traceback(it)), Kind::Text),
        // What it replaces is printed already.
        Output::Update(_) => Ok(()),
    }
}

fn on_stderr(text: &str, kind: Kind) -> io::Result<()> {
    let text = match io::stderr().is_terminal() {
        true => harmless(text, kind),
        false => text.into(),
    };
    let mut stderr = anstream::stderr().lock();
    stderr.write_all(text.as_bytes())?;
    stderr.flush()
}

/// Prints bytes as they are, escapes and all: a source, an image. A terminal gets only what is
/// harmless of them.
pub(crate) fn exact(bytes: &[u8]) -> io::Result<()> {
    if io::stdout().is_terminal() {
        let text = String::from_utf8_lossy(bytes);
        return drawn(&harmless(&text, Kind::Text));
    }
    written(io::stdout().lock(), bytes)
}

/// Prints escapes of our own.
pub(crate) fn drawn(text: &str) -> io::Result<()> {
    written(io::stdout().lock(), text.as_bytes())
}

fn written(mut stdout: impl Write, bytes: &[u8]) -> io::Result<()> {
    let done = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match &done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            // Nobody reads any more.
            std::process::exit(0);
        }
        Err(error) => {
            // An answer that is lost, on a full disk, must not look like an empty one. What was
            // done is done all the same, so the exit code stays.
            note(&format!("nb: cannot write the answer: {error}"));
            done
        }
        Ok(()) => done,
    }
}

/// Shows how many there are of something: `1 line`, `3 lines`.
pub(crate) fn count(count: usize, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {what}{plural}")
}
