//! Which notebook the front end's traffic is about, where nothing said so at its launch.
//!
//! VS Code starts a kernel without a word on the notebook. Its start-up code names it, and else
//! the first cell; kernel_info and code that names nothing decide nothing.

use super::Action;
use super::cell_uri::notebook_of_cell;
use super::execution::cell_id;
use super::output::Output;
use super::timer::{NAMELESS, Now, Timer, Timers};

/// How far the front end's notebook is known, and the session that its clients have.
#[derive(Debug, Default)]
pub(super) struct NotebookResolution {
    stage: Stage,
    /// The notebook that the traffic named before it was asked for.
    named_early: Option<String>,
    /// Whether the clients' session is known.
    has_session: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// It was known at launch, or the traffic has named it.
    #[default]
    Known,
    /// It is waited for.
    Wanted,
    /// Nothing named it in time: the default was taken, and a name still changes that.
    Assumed,
}

impl NotebookResolution {
    /// Waits for the notebook's name from now on.
    pub(super) fn begin(&mut self) {
        self.stage = Stage::Wanted;
    }

    /// Gives the notebook out that was named before it was asked for.
    pub(super) fn use_early_name(&mut self, out: &mut Output, timers: &mut Timers) {
        if let Some(notebook) = self.named_early.take() {
            self.name(out, timers, notebook);
        }
    }

    /// Takes that something waits for a kernel: the name is not waited for much longer.
    pub(super) fn set_deadline(&self, now: Now, timers: &mut Timers) {
        if self.stage == Stage::Wanted && !timers.runs(&Timer::Nameless) {
            timers.start(now.instant + NAMELESS, Timer::Nameless);
        }
    }

    /// Takes that nothing has named the notebook for long enough.
    pub(super) fn assume_default(&mut self, out: &mut Output) {
        if self.stage == Stage::Wanted {
            self.stage = Stage::Assumed;
            out.push(Action::ResolveNotebook { notebook: None });
        }
    }

    /// Looks for the notebook's name in the metadata of a cell.
    pub(super) fn read_cell(&mut self, out: &mut Output, timers: &mut Timers, metadata: &[u8]) {
        if self.stage == Stage::Known {
            return;
        }
        let notebook = cell_id(metadata).and_then(|id| notebook_of_cell(&id));
        if let Some(notebook) = notebook {
            self.name(out, timers, notebook);
        }
    }

    /// Takes the notebook that the traffic names, perhaps before anybody knows that this is needed.
    pub(super) fn name(&mut self, out: &mut Output, timers: &mut Timers, notebook: String) {
        if self.stage == Stage::Known {
            self.named_early = Some(notebook);
            return;
        }
        self.stage = Stage::Known;
        timers.stop(&Timer::Nameless);
        out.push(Action::ResolveNotebook {
            notebook: Some(notebook),
        });
    }

    /// Takes the session of a client's message; the first one is given out.
    pub(super) fn see_session(&mut self, out: &mut Output, session: &str) {
        if !self.has_session && !session.is_empty() {
            self.has_session = true;
            out.push(Action::SessionSeen {
                session: session.to_owned(),
            });
        }
    }
}
