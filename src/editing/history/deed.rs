//! What a command of `nb` means to do to a notebook, for the journal.

use serde::{Deserialize, Serialize};

/// What kind of command an edit was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// `edit`, `insert`, `rm`, `move`, `clear`, `split`, `join`, `apply`, `undo`, `restore`, `fmt`.
    pub op: String,
    /// Whether nothing was checked: the last writer won.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forced: bool,
    /// The op that it took back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<String>,
}
