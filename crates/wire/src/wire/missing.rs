//! Messages of a kernel that never arrived, in words.

use std::fmt;

/// How many messages of a kernel are missing; `None` if it is not known whether any are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MissingMessages(pub Option<u64>);

impl fmt::Display for MissingMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            None => f.write_str("messages of the kernel may be missing"),
            Some(1) => f.write_str("1 message of the kernel is missing"),
            Some(count) => write!(f, "{count} messages of the kernel are missing"),
        }
    }
}
