//! The outputs of a job's cells: collected for the answer, and passed to the observer as they come.

use std::ops::ControlFlow;

use super::observer::{CellEvent, JobEvent, JobObserver, OutputEvent, StateEvent};
use super::options::{FollowOptions, OutputsAs};
use super::until::Until;
use crate::execution::fold::last_line;
use crate::execution::follow::Follower;
use crate::execution::run::OutputMessage;
use crate::notebook::{OutputAccumulator, OutputChange};
use crate::project::jobs::{Job, JobMessage, JobState};

/// The outputs of one cell.
#[derive(Default)]
pub(super) struct Collected {
    /// The outputs as a notebook would show them; empty where only the observer gets them.
    pub(super) outputs: OutputAccumulator,
    /// How many lines the cell printed.
    pub(super) lines: usize,
    /// The last printed line that is not empty, possibly incomplete.
    pub(super) last_line: String,
    /// The text of the last error that the cell raised.
    pub(super) raised: Option<String>,
    /// Whether there was any output.
    pub(super) has_output: bool,
}

impl Collected {
    fn bounded(max_bytes: Option<usize>) -> Self {
        let outputs = max_bytes.map(|max_bytes| OutputAccumulator::bounded(max_bytes, ""));
        Self {
            outputs: outputs.unwrap_or_default(),
            ..Self::default()
        }
    }
}

/// Follows a job: collects its outputs for the answer, informs the observer, and looks for the awaited
/// line.
pub(super) struct Listener<'a, O> {
    observer: &'a O,
    /// How many bytes of a cell's text are collected; `None` is no limit.
    max_bytes: Option<usize>,
    collects: bool,
    pub(super) until: Option<Until>,
    /// The outputs of each of the job's cells.
    pub(super) cells: Vec<Collected>,
    /// The last event about the job's state that was sent to the observer.
    state: Option<StateEvent>,
    /// The last event about each cell that was sent to the observer.
    cell_events: Vec<Option<CellEvent>>,
}

impl<'a, O: JobObserver> Listener<'a, O> {
    pub(super) fn new(options: &FollowOptions, observer: &'a O) -> Self {
        Self {
            observer,
            max_bytes: options.limit.map(collected_bytes),
            collects: options.outputs != OutputsAs::Events,
            until: options.until.clone().map(Until::new),
            cells: Vec::new(),
            state: None,
            cell_events: Vec::new(),
        }
    }

    /// Returns the outputs that were collected so far, and stops collecting.
    pub(super) fn stop_collecting(&mut self) -> Vec<Collected> {
        if !std::mem::take(&mut self.collects) {
            return Vec::new();
        }
        let empty = self
            .cells
            .iter()
            .map(|_| Collected::bounded(self.max_bytes));
        let empty = empty.collect();
        std::mem::replace(&mut self.cells, empty)
    }

    /// Adds an output to its cell, and updates the cells that show the same display.
    fn collect(&mut self, message: &JobMessage) {
        let content = message.content.get().as_bytes();
        let cell = self.cells.get_mut(message.cell);
        let change = cell.map(|cell| cell.outputs.take(&message.msg_type, content));
        let Some(OutputChange::Displayed { display_id, shown }) = change else {
            return;
        };
        let mut is_shown = false;
        for cell in &mut self.cells {
            is_shown |= cell.outputs.update(&display_id, &shown);
        }
        // The display was created before following began: its update is shown as a new display.
        if let Some(cell) = self.cells.get_mut(message.cell).filter(|_| !is_shown) {
            cell.outputs.take("display_data", content);
        }
    }

    /// Sends the job's state to the observer, if it has changed.
    fn send_state(&mut self, job: &Job) {
        if !self.state.as_ref().is_some_and(|sent| sent.is_of(job)) {
            let now = StateEvent::of(job);
            self.observer.on_event(&JobEvent::State(now.clone()));
            self.state = Some(now);
        }
    }

    /// Sends an event for each cell that is over, from the first one without an event on. At the job's end,
    /// earlier events may be corrected.
    fn send_cells(&mut self, job: &Job) {
        self.cell_events.resize(job.cells.len(), None);
        let first = self.cell_events.iter().position(Option::is_none);
        let first = first.filter(|_| job.state != JobState::Done);
        let cells = job.cells.iter().zip(&mut self.cell_events).enumerate();
        let cells = cells.skip(first.unwrap_or_default());
        // A cell has a status once it is over.
        for (at, (cell, sent)) in cells.filter(|(_, (cell, _))| cell.status.is_some()) {
            let now = CellEvent::of(at, cell);
            if sent.as_ref() != Some(&now) {
                *sent = Some(now.clone());
                self.observer.on_event(&JobEvent::Cell(now));
            }
        }
    }
}

impl<O: JobObserver> Follower for Listener<'_, O> {
    fn take_message(&mut self, job: &Job, message: &JobMessage) -> ControlFlow<()> {
        let max_bytes = self.max_bytes;
        self.cells
            .resize_with(job.cells.len(), || Collected::bounded(max_bytes));
        let Some(cell) = self.cells.get_mut(message.cell) else {
            return ControlFlow::Continue(());
        };
        cell.has_output = true;
        let event = OutputEvent::of(job, message);
        if matches!(&*message.msg_type, "stream" | "error") {
            match event.output() {
                Some(OutputMessage::Stream(stream)) => {
                    cell.lines += stream.text.matches('\n').count();
                    if let Some(line) = last_line(&stream.text) {
                        line.clone_into(&mut cell.last_line);
                    }
                }
                Some(OutputMessage::Error(error)) => cell.raised = Some(error.evalue.clone()),
                _ => {}
            }
        }
        if self.collects {
            self.collect(message);
        }
        if job.state == JobState::Running {
            self.send_state(job);
        }
        let is_matched = match &mut self.until {
            Some(until) => event.output().is_some_and(|output| until.search(output)),
            None => false,
        };
        self.observer.on_event(&JobEvent::Output(event));
        match is_matched {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn take_state(&mut self, job: &Job) {
        let last = self.cells.iter().rev().find(|cell| cell.has_output);
        self.observer
            .on_record(job, last.map_or("", |cell| &cell.last_line));
        self.send_cells(job);
        if job.state != JobState::Done {
            self.send_state(job);
        }
    }
}

/// Returns how many bytes of a cell are collected so that `limit` characters of it can be shown.
fn collected_bytes(limit: usize) -> usize {
    limit.saturating_mul(8).max(1 << 20)
}
