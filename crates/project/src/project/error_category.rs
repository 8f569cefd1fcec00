//! The category of an error that ended a piece of code, for programs.

use serde::{Deserialize, Serialize};

/// The kind of error that ended a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum ErrorCategory {
    /// The code, or code that it evaluates or imports, could not be parsed.
    Syntax,
    /// The code raised an error of no other category, or crashed its kernel.
    Runtime,
    /// A module or package could not be found or loaded.
    Import,
    /// Memory ran out: in the code, or so that the system killed the kernel.
    Memory,
    /// The code ran longer than it may, or waited too long for something.
    Timeout,
    /// A file, a network connection or the input failed.
    Io,
    /// The end is not known, or the kernel was ended from outside.
    #[serde(other)]
    Unknown,
}
