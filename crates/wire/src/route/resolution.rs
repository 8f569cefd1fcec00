//! Which notebook the front end's traffic belongs to, where the launch did not name it.
//!
//! VS Code starts a kernel without naming the notebook. Its start-up code names it, or else the first cell;
//! kernel_info requests and other code do not.

use super::Action;
use super::cell_uri::notebook_of_cell;
use super::execution::cell_id;
use super::output::Output;
use super::timer::{NAME_WAIT, Timer, Timers};

/// Whether the front end's notebook is known, and whether its clients' session is.
#[derive(Debug, Default)]
pub(super) struct NotebookResolution {
    stage: NameStage,
    /// The notebook that the traffic named before the bridge was asked to wait for a name.
    named_early: Option<String>,
    /// Whether the clients' session is known.
    has_session: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum NameStage {
    /// The notebook was known at launch, or the traffic has named it.
    #[default]
    Known,
    /// The bridge waits for the name.
    Awaited,
    /// Nothing named the notebook in time, and the default was used; a later name replaces it.
    Assumed,
}

impl NotebookResolution {
    /// Starts to wait for the notebook's name.
    pub(super) fn begin(&mut self) {
        self.stage = NameStage::Awaited;
    }

    /// Reports the notebook that was named before [`Self::begin`].
    pub(super) fn use_early_name(&mut self, out: &mut Output, timers: &mut Timers) {
        if let Some(notebook) = self.named_early.take() {
            self.name(out, timers, notebook);
        }
    }

    /// Sets a deadline for the name, since a request waits for a kernel.
    pub(super) fn set_deadline(&self, timers: &mut Timers) {
        if self.stage == NameStage::Awaited && !timers.runs(&Timer::NameWait) {
            timers.start(NAME_WAIT, Timer::NameWait);
        }
    }

    /// Uses the default, since nothing has named the notebook in time.
    pub(super) fn assume_default(&mut self, out: &mut Output) {
        if self.stage == NameStage::Awaited {
            self.stage = NameStage::Assumed;
            out.push(Action::ResolveNotebook { notebook: None });
        }
    }

    /// Looks for the notebook's name in the metadata of a cell.
    pub(super) fn read_cell(&mut self, out: &mut Output, timers: &mut Timers, metadata: &[u8]) {
        if self.stage == NameStage::Known {
            return;
        }
        let notebook = cell_id(metadata).and_then(|id| notebook_of_cell(&id));
        if let Some(notebook) = notebook {
            self.name(out, timers, notebook);
        }
    }

    /// Takes the notebook that the traffic names, perhaps before [`Self::begin`].
    pub(super) fn name(&mut self, out: &mut Output, timers: &mut Timers, notebook: String) {
        if self.stage == NameStage::Known {
            self.named_early = Some(notebook);
            return;
        }
        self.stage = NameStage::Known;
        timers.stop(&Timer::NameWait);
        out.push(Action::ResolveNotebook {
            notebook: Some(notebook),
        });
    }

    /// Takes the session of a client's message; reports the first one.
    pub(super) fn record_session(&mut self, out: &mut Output, session: &str) {
        if !self.has_session && !session.is_empty() {
            self.has_session = true;
            out.push(Action::SessionSeen {
                session: session.to_owned(),
            });
        }
    }
}
