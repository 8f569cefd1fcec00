//! Text in columns, and the width of the terminal.

use std::io::{self, IsTerminal};

pub(crate) use crate::api::columns::{cut, lines};

/// Returns how many columns the terminal on stdout has; `None` if stdout is not a terminal.
pub(crate) fn of_terminal() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout
        .is_terminal()
        .then(|| rustix::termios::tcgetwinsize(&stdout))?;
    // Some terminals do not know their size, and report 0.
    size.ok()
        .map(|size| size.ws_col.into())
        .filter(|columns| *columns > 0)
}
