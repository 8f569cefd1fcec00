//! Text in columns, and how wide the terminal is.

use std::io::{self, IsTerminal};

pub(crate) use crate::api::columns::{Widths, cut, lines, width};

/// Returns how many columns the terminal has that stdout is; none where it is none.
pub(crate) fn of_terminal() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout))?;
    // Some terminals do not know, and say 0.
    size.ok()
        .map(|size| size.ws_col.into())
        .filter(|columns| *columns > 0)
}
