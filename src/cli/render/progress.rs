//! The progress line that a terminal shows while a job runs: which cell, for how long, and its last printed
//! line.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use jiff::Timestamp;

use crate::api::job::describe_wait;
use crate::api::outputs::plain;
use crate::cli::render::print;
use crate::notebook::visible_line;
use crate::project::jobs::{Job, JobState};

/// A progress line at the bottom of the terminal; nothing is drawn if stderr is not a terminal.
pub(crate) struct Progress(ProgressBar);

/// How often the line is redrawn.
const TICK: Duration = Duration::from_millis(120);

impl Progress {
    /// Makes a progress line; a hidden one unless it is wanted.
    pub(crate) fn new(is_wanted: bool) -> Self {
        let target = if is_wanted {
            // Nothing is drawn if stderr is not a terminal.
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let bar = ProgressBar::with_draw_target(None, target);
        let style = ProgressStyle::with_template("{spinner} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self(bar)
    }

    /// Says whether the line is drawn.
    pub(crate) fn is_seen(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Shows a job's state; `last` is the last line that it printed.
    pub(crate) fn show(&self, job: &Job, last: &str) {
        if self.is_seen() && job.state != JobState::Done {
            self.say(&text(job, last));
        }
    }

    /// Shows a line.
    pub(crate) fn say(&self, text: &str) {
        self.0.enable_steady_tick(TICK);
        self.0.set_message(visible_line(text).into_owned());
    }

    /// Prints something above the progress line.
    pub(crate) fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Removes the line, until it is to show something again.
    pub(crate) fn clear(&self) {
        self.0.disable_steady_tick();
        self.0.reset();
        self.0.finish_and_clear();
        self.0.reset();
    }
}

fn text(job: &Job, last: &str) -> String {
    let count = job.cells.len();
    let current = job.cells.iter().position(|cell| cell.status.is_none());
    let at = current.unwrap_or(count.saturating_sub(1));
    let Some(cell) = job.cells.get(at) else {
        return String::new();
    };
    let mut text = cell.cell.clone().unwrap_or_else(|| "code".to_owned());
    if count > 1 {
        text = format!("{text} ({} of {count})", at + 1);
    }
    match (job.state, describe_wait(job), cell.begun_at) {
        (JobState::Queued, Some(behind), _) => text = format!("{text} · waits behind {behind}"),
        (JobState::WaitingInput, ..) => text.push_str(" · asks"),
        (_, _, Some(begun_at)) => {
            let age = Timestamp::now().duration_since(begun_at).unsigned_abs();
            text = format!("{text} · {}", print::took(age));
        }
        _ => text.push_str(" · waits"),
    }
    match plain(last).trim() {
        "" => text,
        last => format!("{text} · {last}"),
    }
}
