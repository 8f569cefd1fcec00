//! The category of an error: from the name and text of an exception, or from how the kernel ended. Pure.
//!
//! A kernel sends the name of an exception's class, and not the classes that it inherits from. So a class
//! of one's own counts as `runtime`, unless its text shows what it is: the text of a Python `OSError`
//! begins with the number of the system's error. The R kernel calls each error `ERROR`: there the text decides.

use crate::client::KernelException;
use crate::lifecycle::death::is_crash;
use crate::project::ErrorCategory::{Import, Io, Memory, Runtime, Syntax, Timeout, Unknown};
use crate::project::{Ended, ErrorCategory, Exit, RemoteKernel};

/// Words, and the category that each of them stands for.
type CategoryNames = &'static [(ErrorCategory, &'static [&'static str])];

/// The names of exceptions in Python and its libraries. Kernels of other languages use many of them too.
const NAMES: CategoryNames = &[
    (
        Syntax,
        &["SyntaxError", "IndentationError", "TabError", "UsageError"],
    ),
    (
        Import,
        &["ImportError", "ModuleNotFoundError", "PackageNotFoundError"],
    ),
    (
        Memory,
        &[
            "MemoryError",
            "_ArrayMemoryError",
            "ArrowMemoryError",
            "OutOfMemoryError",
            "ResourceExhaustedError",
        ],
    ),
    (
        Timeout,
        &[
            "TimeoutError",
            "timeout",
            "Timeout",
            "TimeoutExpired",
            "TimeoutException",
            "ConnectTimeout",
            "ConnectTimeoutError",
            "ConnectionTimeout",
            "ReadTimeout",
            "ReadTimeoutError",
            "WriteTimeout",
            "PoolTimeout",
            "ServerTimeoutError",
            "CellTimeoutError",
            "DeadlineExceeded",
        ],
    ),
    (
        Io,
        &[
            "OSError",
            "IOError",
            "EnvironmentError",
            "BlockingIOError",
            "BrokenPipeError",
            "ChildProcessError",
            "ConnectionAbortedError",
            "ConnectionError",
            "ConnectionRefusedError",
            "ConnectionResetError",
            "EOFError",
            "FileExistsError",
            "FileNotFoundError",
            "InterruptedError",
            "IsADirectoryError",
            "NotADirectoryError",
            "PermissionError",
            "ProcessLookupError",
            "StdinNotImplementedError",
            "UnsupportedOperation",
            "gaierror",
            "herror",
            "SSLError",
            "SSLCertVerificationError",
            "HTTPError",
            "URLError",
            "ConnectError",
            "ReadError",
            "ProxyError",
            "MaxRetryError",
            "NewConnectionError",
            "RemoteDisconnected",
            "IncompleteRead",
            "ClientConnectorError",
            "ServerDisconnectedError",
        ],
    ),
];

/// The names of exceptions in Julia that the names above lack, or that mean something else there.
const JULIA: CategoryNames = &[
    (Syntax, &["ParseError", "syntax"]),
    (Io, &["SystemError", "DNSError", "RequestError"]),
];

/// Texts of exceptions in Julia.
const JULIA_TEXTS: CategoryNames = &[(
    Import,
    &[
        "ArgumentError: Package ",
        "Failed to precompile",
        "could not load library",
    ],
)];

/// Texts of errors in R, in English: in other languages such an error is `runtime`.
const R_TEXTS: CategoryNames = &[
    (Syntax, &["Error in parse("]),
    (
        Import,
        &[
            "there is no package called",
            "package or namespace load failed",
        ],
    ),
    (Memory, &["cannot allocate", "memory exhausted"]),
    (
        Timeout,
        &[
            "reached elapsed time limit",
            "reached CPU time limit",
            "Timeout was reached",
        ],
    ),
    (
        Io,
        &[
            "cannot open",
            "cannot read",
            "No such file or directory",
            "Could not resolve host",
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

/// Returns the category of an exception in a language.
pub(super) fn of_exception(language: &str, raised: &KernelException) -> ErrorCategory {
    let text = beginning(&raised.evalue);
    let name = last_name(&raised.ename);
    if name.is_empty() || name == RemoteKernel::LOSS_ERROR {
        return Unknown;
    }
    let by_language = match &*language.to_ascii_lowercase() {
        "r" => by_text(R_TEXTS, text),
        "julia" => {
            // IJulia names the cell's `LoadError`, with the text of the error in it.
            let inner = text.split([':', '(']).next().map(last_name);
            let name = inner.filter(|_| name == "LoadError").unwrap_or(name);
            let by_text = by_text(JULIA_TEXTS, text);
            by_text
                .or_else(|| by_name(JULIA, name))
                .or_else(|| by_name(NAMES, name))
        }
        _ => None,
    };
    by_language
        .or_else(|| by_name(NAMES, name).filter(|it| *it != Io))
        .or_else(|| of_system_error(text))
        .or_else(|| by_name(NAMES, name))
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

/// Returns the category of code that ended with a status; none if it was not run, or without an error. `category` is
/// the category of its exception or of its kernel's death.
pub(super) fn of_status(
    status: &str,
    category: Option<ErrorCategory>,
    is_over_time: bool,
) -> Option<ErrorCategory> {
    match (status, category) {
        ("error" | "interrupted" | "kernel_died", Some(Memory)) => Some(Memory),
        ("error" | "interrupted" | "kernel_died", _) if is_over_time => Some(Timeout),
        ("error" | "interrupted" | "kernel_died", category) => Some(category.unwrap_or(Unknown)),
        ("ok" | "withdrawn" | "aborted" | "edited" | "not_run" | "no_kernel", _) => None,
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

fn by_name(table: CategoryNames, name: &str) -> Option<ErrorCategory> {
    let entry = table.iter().find(|(_, names)| names.contains(&name));
    entry.map(|(category, _)| *category)
}

fn by_text(table: CategoryNames, text: &str) -> Option<ErrorCategory> {
    let is_in = |texts: &[&str]| texts.iter().any(|it| text.contains(it));
    let entry = table.iter().find(|(_, texts)| is_in(texts));
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

    fn of(language: &str, ename: &str, evalue: &str) -> ErrorCategory {
        let raised = KernelException {
            ename: ename.to_owned(),
            evalue: evalue.to_owned(),
            ..KernelException::default()
        };
        of_exception(language, &raised)
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
            assert_eq!(of("python", ename, evalue), category, "{ename}: {evalue}");
        }
    }

    #[test]
    fn errors_of_julia_and_r_have_their_categories() {
        for (language, ename, evalue, category) in [
            (
                "julia",
                "LoadError",
                "ParseError:\n# Error @ In[1]:1:3",
                Syntax,
            ),
            (
                "julia",
                "LoadError",
                "syntax: incomplete: premature end of input",
                Syntax,
            ),
            (
                "julia",
                "LoadError",
                "ArgumentError: Package No not found in current path.",
                Import,
            ),
            ("julia", "LoadError", "ArgumentError: invalid base", Runtime),
            ("julia", "OutOfMemoryError", "OutOfMemoryError()", Memory),
            ("julia", "LoadError", "OutOfMemoryError()", Memory),
            (
                "julia",
                "SystemError",
                "SystemError: opening file \"a\": No such file or directory",
                Io,
            ),
            ("julia", "Base.IOError", "IOError: connect: refused", Io),
            (
                "julia",
                "UndefVarError",
                "UndefVarError: `x` not defined",
                Runtime,
            ),
            (
                "R",
                "ERROR",
                "Error in parse(text = x): <text>:1:3: unexpected symbol\n",
                Syntax,
            ),
            (
                "R",
                "ERROR",
                "Error in library(no): there is no package called \u{2018}no\u{2019}\n",
                Import,
            ),
            (
                "R",
                "ERROR",
                "Error: cannot allocate vector of size 8.0 Gb\n",
                Memory,
            ),
            (
                "R",
                "ERROR",
                "Error in f(): reached elapsed time limit\n",
                Timeout,
            ),
            (
                "R",
                "ERROR",
                "Error in file(file, \"rt\"): cannot open the connection\n",
                Io,
            ),
            ("R", "ERROR", "Error in f(): no\n", Runtime),
            ("typescript", "SyntaxError", "Unexpected token", Syntax),
        ] {
            assert_eq!(of(language, ename, evalue), category, "{ename}: {evalue}");
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
            ("unheard", None, true, Some(Unknown)),
            ("not_run", None, false, None),
            ("withdrawn", None, true, None),
        ] {
            assert_eq!(of_status(status, cause, is_over_time), category, "{status}");
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
