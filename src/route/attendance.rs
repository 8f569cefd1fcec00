//! Whether a person runs the cells of a front end.
//!
//! nbclient, papermill and `jupyter execute` run them without one. Their next cell needs the variables of the
//! one before. So this process ends with the kernel: they watch the process that they launched,
//! and report that their kernel has died. An error in the place of a reply would let `--allow-errors` go on with a
//! kernel without variables.

/// Whether a person runs the cells of a front end, as far as the cells show it.
///
/// `allow_stdin` says whether somebody can answer what a cell asks: nbclient never allows it, consoles do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Attendance {
    /// No cell came yet.
    #[default]
    Unknown,
    /// Nobody could answer any of its cells.
    Unattended,
    /// Somebody could answer one.
    Attended,
    /// The front end ends with its kernel.
    Over,
}

impl Attendance {
    /// Takes whether somebody can answer what a cell asks.
    pub(super) fn see_cell(&mut self, may_ask: bool) {
        match self {
            Self::Over => {}
            _ if may_ask => *self = Self::Attended,
            Self::Unknown => *self = Self::Unattended,
            Self::Unattended | Self::Attended => {}
        }
    }
}
