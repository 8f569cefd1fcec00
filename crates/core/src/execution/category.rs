//! The category of an error: from the name and text of an exception, or from how the kernel ended. Pure.
//!
//! A kernel sends the name of an exception's class, and not the classes that it inherits from. So a class
//! of one's own counts as `runtime`, unless its text shows what it is: the text of a Python `OSError`
//! begins with the number of the system's error.

use crate::client::KernelException;
use crate::lifecycle::death::is_crash;
use crate::project::ErrorCategory::{Import, Io, Memory, Runtime, Syntax, Timeout, Unknown};
use crate::project::event::CellEnd;
use crate::project::{Ended, ErrorCategory, Exit, RemoteKernel};

/// Names of Python's own classes, and the category that each of them stands for. Kernels of other languages use many of
/// them too. Names that end with `MemoryError` or contain `timeout` need no entry.
const NAMES: [(ErrorCategory, &[&str]); 3] = [
    (
        Syntax,
        &["SyntaxError", "IndentationError", "TabError", "UsageError"],
    ),
    (Import, &["ImportError", "ModuleNotFoundError"]),
    (
        Io,
        &[
            "OSError",
            "IOError",
            "EOFError",
            "FileNotFoundError",
            "PermissionError",
            "BrokenPipeError",
            "ConnectionError",
            "HTTPError",
            "URLError",
            "SSLError",
            "StdinNotImplementedError",
            "UnsupportedOperation",
        ],
    ),
];

/// Texts in which programs of any language say that there is no memory, in lower case: GPUs' libraries raise errors
/// of their general classes.
const NO_MEMORY: &[&str] = &[
    "out of memory",
    "resource_exhausted",
    "bad_alloc",
    "cannot allocate memory",
];

/// How many bytes of an error's text are searched.
const SEARCHED_BYTES: usize = 2000;

/// The number of the system's error for "cannot allocate memory".
const ENOMEM: i32 = rustix::io::Errno::NOMEM.raw_os_error();

/// The number of the system's error for "connection timed out".
const ETIMEDOUT: i32 = rustix::io::Errno::TIMEDOUT.raw_os_error();

/// Returns the category of an exception.
pub(super) fn of_exception(raised: &KernelException) -> ErrorCategory {
    let text = beginning(&raised.evalue);
    let name = last_name(&raised.ename);
    if name.is_empty() || name == RemoteKernel::LOSS_ERROR {
        return Unknown;
    }
    let by_name = by_name(name);
    by_name
        .filter(|it| *it != Io)
        .or_else(|| of_system_error(text))
        .or(by_name)
        .or_else(|| says_no_memory(text).then_some(Memory))
        .unwrap_or(Runtime)
}

/// Returns the category of the error that ends a cell whose kernel has died.
pub(super) fn of_death(ended: Option<&Ended>) -> ErrorCategory {
    let Some((ended, exit)) = ended.and_then(|ended| Some((ended, ended.exit?))) else {
        return Unknown;
    };
    let is_own_end = match exit {
        Exit::OutOfMemory | Exit::PerhapsOutOfMemory => return Memory,
        Exit::Status(_) => true,
        Exit::Signal(signal) => is_crash(signal),
    };
    match ended
        .lines
        .iter()
        .any(|line| says_no_memory(beginning(line)))
    {
        true if is_own_end => Memory,
        false if is_own_end => Runtime,
        _ => Unknown,
    }
}

/// Returns the category of code that ended so; none if it was not run, or without an error. `category` is
/// the category of its exception or of its kernel's death.
pub(super) fn of_end(
    end: CellEnd,
    category: Option<ErrorCategory>,
    is_over_time: bool,
) -> Option<ErrorCategory> {
    match (end, category) {
        (CellEnd::Error | CellEnd::Interrupted | CellEnd::KernelDied, Some(Memory)) => Some(Memory),
        (CellEnd::Error | CellEnd::Interrupted | CellEnd::KernelDied, category) => {
            Some(match is_over_time {
                true => Timeout,
                false => category.unwrap_or(Unknown),
            })
        }
        (
            CellEnd::Ok
            | CellEnd::Withdrawn
            | CellEnd::Aborted
            | CellEnd::Edited
            | CellEnd::NotRun
            | CellEnd::NoKernel,
            _,
        ) => None,
        _ => Some(Unknown),
    }
}

/// Reads the name and the beginning of the text of an error, without its traceback.
pub(super) fn name_and_text(content: &[u8]) -> KernelException {
    let mut raised: KernelException = serde_json::from_slice(content).unwrap_or_default();
    raised.traceback = Vec::new();
    raised.evalue = beginning(&raised.evalue).to_owned();
    raised
}

/// Returns a class's own name: `OutOfMemoryError` of `torch.cuda.OutOfMemoryError`.
fn last_name(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name).trim()
}

fn beginning(text: &str) -> &str {
    let end = text.floor_char_boundary(SEARCHED_BYTES);
    text.get(..end).unwrap_or(text)
}

fn by_name(name: &str) -> Option<ErrorCategory> {
    if name.ends_with("MemoryError") {
        return Some(Memory);
    }
    if name.to_ascii_lowercase().contains("timeout") {
        return Some(Timeout);
    }
    let entry = NAMES.iter().find(|(_, names)| names.contains(&name));
    entry.map(|(category, _)| *category)
}

/// Reads the number in the text of an `OSError` or of a class that inherits from it: `[Errno 2] No such file`.
fn of_system_error(text: &str) -> Option<ErrorCategory> {
    let (number, _) = text.strip_prefix("[Errno ")?.split_once(']')?;
    Some(match number.parse::<i32>().ok()? {
        ENOMEM => Memory,
        ETIMEDOUT => Timeout,
        _ => Io,
    })
}

fn says_no_memory(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    NO_MEMORY.iter().any(|it| text.contains(it))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(ename: &str, evalue: &str) -> ErrorCategory {
        let raised = KernelException {
            ename: ename.to_owned(),
            evalue: evalue.to_owned(),
            ..KernelException::default()
        };
        of_exception(&raised)
    }

    #[test]
    fn each_exception_of_python_has_its_category() {
        for (ename, evalue, category) in [
            ("SyntaxError", "invalid syntax (a.py, line 1)", Syntax),
            ("IndentationError", "unexpected indent", Syntax),
            ("UsageError", "Line magic function `%no` not found.", Syntax),
            ("ModuleNotFoundError", "No module named 'no'", Import),
            ("ImportError", "cannot import name 'x'", Import),
            ("MemoryError", "", Memory),
            ("torch.cuda.OutOfMemoryError", "", Memory),
            ("_ArrayMemoryError", "", Memory),
            ("requests.exceptions.ReadTimeout", "", Timeout),
            ("RuntimeError", "CUDA error: out of memory", Memory),
            (
                "XlaRuntimeError",
                "RESOURCE_EXHAUSTED: failed to allocate",
                Memory,
            ),
            ("OSError", "[Errno 12] Cannot allocate memory", Memory),
            ("TimeoutError", "", Timeout),
            ("TimeoutError", "[Errno 110] Connection timed out", Timeout),
            ("TimeoutExpired", "Command 'x' timed out", Timeout),
            ("OSError", "[Errno 110] Connection timed out", Timeout),
            (
                "FileNotFoundError",
                "[Errno 2] No such file or directory: 'a'",
                Io,
            ),
            ("PermissionError", "[Errno 13] Permission denied", Io),
            (
                "ConnectionRefusedError",
                "[Errno 111] Connection refused",
                Io,
            ),
            ("EOFError", "EOF when reading a line", Io),
            ("NoConfig", "[Errno 2] No such file or directory: 'a'", Io),
            ("NoConfig", "there is no configuration", Runtime),
            ("NoConfig", "[Errno", Runtime),
            ("NoConfig", "[Errno two]", Runtime),
            ("KeyError", "'a'", Runtime),
            ("ZeroDivisionError", "division by zero", Runtime),
            ("KeyboardInterrupt", "", Runtime),
            ("SystemError", "an error of the interpreter", Runtime),
            ("", "1", Unknown),
            (
                RemoteKernel::LOSS_ERROR,
                "the connection to gpu was lost",
                Unknown,
            ),
        ] {
            assert_eq!(of(ename, evalue), category, "{ename}: {evalue}");
        }
    }

    #[test]
    fn the_death_of_a_kernel_has_the_category_of_its_cause() {
        let ended = |exit: Option<Exit>, line: &str| {
            let ended: Ended = serde_json::from_value(serde_json::json!({
                "at": "2026-01-02T03:12:00Z", "reason": "x", "generation": 1, "lines": [line],
            }))
            .unwrap();
            of_death(Some(&Ended { exit, ..ended }))
        };
        let alloc = "terminate called after throwing an instance of 'std::bad_alloc'";
        for (exit, line, category) in [
            (Some(Exit::OutOfMemory), "", Memory),
            (Some(Exit::PerhapsOutOfMemory), "", Memory),
            (Some(Exit::Signal(6)), alloc, Memory),
            (Some(Exit::Signal(6)), "assertion failed", Runtime),
            (Some(Exit::Signal(11)), "", Runtime),
            (Some(Exit::Status(3)), "", Runtime),
            (Some(Exit::Signal(9)), alloc, Unknown),
            (Some(Exit::Signal(15)), "", Unknown),
            (None, alloc, Unknown),
        ] {
            assert_eq!(ended(exit, line), category, "{exit:?} {line}");
        }
        assert_eq!(of_death(None), Unknown);
    }

    #[test]
    fn a_time_limit_and_the_status_decide_what_an_exception_means() {
        for (status, cause, is_over_time, category) in [
            ("ok", None, true, None),
            ("ok", Some(Runtime), false, None),
            ("error", Some(Io), false, Some(Io)),
            ("error", None, false, Some(Unknown)),
            ("interrupted", Some(Runtime), false, Some(Runtime)),
            ("interrupted", Some(Runtime), true, Some(Timeout)),
            ("kernel_died", Some(Unknown), true, Some(Timeout)),
            ("kernel_died", Some(Memory), true, Some(Memory)),
            ("no_reply", None, false, Some(Unknown)),
            ("unknown_end", None, true, Some(Unknown)),
            ("not_run", None, false, None),
            ("withdrawn", None, true, None),
        ] {
            let end = CellEnd::of_word(status);
            assert_eq!(of_end(end, cause, is_over_time), category, "{status}");
        }
    }

    #[test]
    fn an_error_is_remembered_without_its_traceback() {
        let long = "é".repeat(SEARCHED_BYTES);
        let content =
            serde_json::json!({ "ename": "E", "evalue": long, "traceback": ["x"] }).to_string();
        let raised = name_and_text(content.as_bytes());
        assert_eq!((&*raised.ename, raised.evalue.len()), ("E", SEARCHED_BYTES));
        assert!(raised.traceback.is_empty());
        assert_eq!(name_and_text(b"[]"), KernelException::default());
    }
}
