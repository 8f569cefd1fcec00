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
    pub(super) is_news: bool,
}

impl Collected {
    fn bounded(most: Option<usize>) -> Self {
        let outputs = most.map(|most| OutputAccumulator::bounded(most, ""));
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
    most: Option<usize>,
    collects: bool,
    pub(super) until: Option<Until>,
    /// The outputs of each of the job's cells.
    pub(super) cells: Vec<Collected>,
    /// The last event about the job's state that was sent to the observer.
    state: Option<StateEvent>,
    /// The last event about each cell that was sent to the observer.
    ended: Vec<Option<CellEvent>>,
}

impl<'a, O: JobObserver> Listener<'a, O> {
    pub(super) fn new(options: &FollowOptions, observer: &'a O) -> Self {
        Self {
            observer,
            most: options.limit.map(collected_bytes),
            collects: options.outputs != OutputsAs::Events,
            until: options.until.clone().map(Until::new),
            cells: Vec::new(),
            state: None,
            ended: Vec::new(),
        }
    }

    /// Returns the outputs that were collected so far, and stops collecting.
    pub(super) fn stop_collecting(&mut self) -> Vec<Collected> {
        if !std::mem::take(&mut self.collects) {
            return Vec::new();
        }
        let empty = self.cells.iter().map(|_| Collected::bounded(self.most));
        let empty = empty.collect();
        std::mem::replace(&mut self.cells, empty)
    }

    /// Adds an output to its cell, and updates the cells that show the same display.
    fn collect(&mut self, said: &JobMessage) {
        let content = said.content.get().as_bytes();
        let cell = self.cells.get_mut(said.cell);
        let change = cell.map(|cell| cell.outputs.take(&said.msg_type, content));
        let Some(OutputChange::Displayed { display_id, shown }) = change else {
            return;
        };
        let mut is_shown = false;
        for cell in &mut self.cells {
            is_shown |= cell.outputs.update(&display_id, &shown);
        }
        // The display was created before following began: its update is shown as a new display.
        if let Some(cell) = self.cells.get_mut(said.cell).filter(|_| !is_shown) {
            cell.outputs.take("display_data", content);
        }
    }

    /// Sends the job's state to the observer, if it has changed.
    fn tell_state(&mut self, job: &Job) {
        if !self.state.as_ref().is_some_and(|told| told.is_of(job)) {
            let now = StateEvent::of(job);
            self.observer.happens(&JobEvent::State(now.clone()));
            self.state = Some(now);
        }
    }

    /// Sends an event for each cell that is over, from the first one without an event on. At the job's end,
    /// earlier events may be corrected.
    fn tell_cells(&mut self, job: &Job) {
        self.ended.resize(job.cells.len(), None);
        let first = self.ended.iter().position(Option::is_none);
        let first = first.filter(|_| job.state != JobState::Done);
        let cells = job.cells.iter().zip(&mut self.ended).enumerate();
        let cells = cells.skip(first.unwrap_or_default());
        // A cell has a status once it is over.
        for (at, (cell, told)) in cells.filter(|(_, (cell, _))| cell.status.is_some()) {
            let now = CellEvent::of(at, cell);
            if told.as_ref() != Some(&now) {
                *told = Some(now.clone());
                self.observer.happens(&JobEvent::Cell(now));
            }
        }
    }
}

impl<O: JobObserver> Follower for Listener<'_, O> {
    fn take_message(&mut self, job: &Job, said: &JobMessage) -> ControlFlow<()> {
        let most = self.most;
        self.cells
            .resize_with(job.cells.len(), || Collected::bounded(most));
        let Some(cell) = self.cells.get_mut(said.cell) else {
            return ControlFlow::Continue(());
        };
        cell.is_news = true;
        let event = OutputEvent::of(job, said);
        if matches!(&*said.msg_type, "stream" | "error") {
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
            self.collect(said);
        }
        if job.state == JobState::Running {
            self.tell_state(job);
        }
        let is_there = match &mut self.until {
            Some(until) => event.output().is_some_and(|output| until.hears(output)),
            None => false,
        };
        self.observer.happens(&JobEvent::Output(event));
        match is_there {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn take_state(&mut self, job: &Job) {
        let last = self.cells.iter().rev().find(|cell| cell.is_news);
        self.observer
            .sees(job, last.map_or("", |cell| &cell.last_line));
        self.tell_cells(job);
        if job.state != JobState::Done {
            self.tell_state(job);
        }
    }
}

/// Returns how many bytes of a cell are collected so that `limit` characters of it can be shown.
fn collected_bytes(limit: usize) -> usize {
    limit.saturating_mul(8).max(1 << 20)
}
