//! Whether a person runs the cells of a front end.
//!
//! nbclient, papermill and `jupyter execute` run cells without a person. Each cell needs the variables of the
//! cell before it. So this process exits when the kernel ends: those tools watch the process that they
//! launched, and report that their kernel has died. If they got an error reply instead, `--allow-errors`
//! would go on with a kernel that has no variables.

/// Whether a person runs the cells of a front end, as far as the cells' `allow_stdin` shows it.
///
/// `allow_stdin` says whether a person can answer a prompt of the cell: nbclient never allows it, consoles
/// do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Attendance {
    /// No cell has arrived yet.
    #[default]
    Unknown,
    /// None of the cells so far allows stdin.
    Unattended,
    /// A cell has allowed stdin.
    Attended,
    /// The kernel has ended, and the front end's proxy exits with it.
    Exited,
}

impl Attendance {
    /// Takes a cell; `allows_stdin` says whether a person can answer a prompt of it.
    pub(super) fn record_cell(&mut self, allows_stdin: bool) {
        match self {
            Self::Exited => {}
            _ if allows_stdin => *self = Self::Attended,
            Self::Unknown => *self = Self::Unattended,
            Self::Unattended | Self::Attended => {}
        }
    }
}
