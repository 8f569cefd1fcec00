//! Which cell of a notebook runs, as far as files tell of it.

use super::page::Page;
use crate::kernel::process::Process;
use crate::project::Status;
use crate::project::past::Cell;

/// Returns what the notebook's kernel runs.
///
/// Only records and the journal are read: no socket is opened, so that a list of cells costs
/// nothing. Where whoever would have told an execution's end was killed, it is still returned; the
/// kernel itself, which `nb status` asks, knows better.
pub fn running(page: &Page) -> Option<Cell> {
    let state = page.project.state().ok()?;
    let key = state.owner_key(&page.key);
    let session = state.session(&key)?;
    let lives = session.status == Status::Live
        && Process::recorded(&session).is_some_and(|process| process.is_alive());
    let present = lives.then(|| page.project.present(&key, session.generation));
    present?.running
}
