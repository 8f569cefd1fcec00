//! What the cells of a job said, collected for the answer, and told as it comes.

use std::ops::ControlFlow;

use super::observer::{CellEvent, JobEvent, JobObserver, OutputEvent, StateEvent};
use super::options::{FollowOptions, OutputsAs};
use super::until::Until;
use crate::execution::fold::Outputs;
use crate::execution::follow::Follower;
use crate::execution::run::Output;
use crate::project::jobs::{Job, JobState, Said};

/// What one cell said.
#[derive(Default)]
pub(super) struct Collected {
    /// As a notebook would show it; empty where the observer alone is told.
    pub(super) outputs: Outputs,
    /// How many lines it printed.
    pub(super) lines: usize,
    /// The last of them that is not empty, as far as it has come.
    pub(super) last_line: String,
    /// The text of the last error that it raised.
    pub(super) raised: Option<String>,
    /// Whether it said anything.
    pub(super) is_news: bool,
}

impl Collected {
    fn bounded(most: Option<usize>) -> Self {
        Self {
            outputs: most.map_or_else(Outputs::default, Outputs::bounded),
            ..Self::default()
        }
    }
}

/// Listens to a job: collects for the answer, tells the observer, and looks for a line.
pub(super) struct Listener<'a, O> {
    observer: &'a O,
    /// How many bytes of a cell's text are collected; none is no limit.
    most: Option<usize>,
    collects: bool,
    pub(super) until: Option<Until>,
    /// What each of the job's cells said.
    pub(super) cells: Vec<Collected>,
    /// What was told last of the job, and of its cells that are over.
    state: Option<StateEvent>,
    ended: Vec<CellEvent>,
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

    /// Returns what was collected so far, and collects nothing from now on.
    pub(super) fn stop_collecting(&mut self) -> Vec<Collected> {
        if !std::mem::take(&mut self.collects) {
            return Vec::new();
        }
        let empty = self.cells.iter().map(|_| Collected::bounded(self.most));
        let empty = empty.collect();
        std::mem::replace(&mut self.cells, empty)
    }

    /// Adds an output to those of its cell, and to the others that show the same display.
    fn collect(&mut self, said: &Said) {
        let content = said.content.get().as_bytes();
        let Some(shown) = self
            .cells
            .get_mut(said.cell)
            .and_then(|cell| cell.outputs.take(&said.msg_type, content))
        else {
            return;
        };
        let mut is_shown = false;
        for cell in &mut self.cells {
            is_shown |= cell.outputs.update(&shown);
        }
        // What was displayed before following began is not here; what became of it is news.
        if let Some(cell) = self.cells.get_mut(said.cell).filter(|_| !is_shown) {
            cell.outputs.take("display_data", content);
        }
    }

    /// Tells how far the job is, where that has changed.
    fn tell_state(&mut self, job: &Job) {
        if !self.state.as_ref().is_some_and(|told| told.is_of(job)) {
            let now = StateEvent::of(job);
            self.observer.happens(&JobEvent::State(now.clone()));
            self.state = Some(now);
        }
    }

    /// Tells which cells are over, where one was not told.
    fn tell_cells(&mut self, job: &Job) {
        // A cell has a status once it is over.
        let over = job.cells.iter().enumerate();
        for (at, cell) in over.filter(|(_, cell)| cell.status.is_some()) {
            let told = self.ended.iter().position(|it| it.at == at);
            let now = CellEvent::of(at, cell);
            match told.and_then(|told| self.ended.get_mut(told)) {
                Some(told) if *told == now => continue,
                Some(told) => told.clone_from(&now),
                None => self.ended.push(now.clone()),
            }
            self.observer.happens(&JobEvent::Cell(now));
        }
    }
}

impl<O: JobObserver> Follower for Listener<'_, O> {
    fn hears(&mut self, job: &Job, said: &Said) -> ControlFlow<()> {
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
                Some(Output::Stream(stream)) => {
                    cell.lines += stream.text.matches('\n').count();
                    let mut lines = stream.text.rsplit(['\n', '\r']);
                    if let Some(line) = lines.find(|line| !line.trim().is_empty()) {
                        line.clone_into(&mut cell.last_line);
                    }
                }
                Some(Output::Error(error)) => cell.raised = Some(error.evalue.clone()),
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

    fn sees(&mut self, job: &Job) {
        let last = self.cells.iter().rev().find(|cell| cell.is_news);
        self.observer
            .sees(job, last.map_or("", |cell| &cell.last_line));
        self.tell_cells(job);
        if job.state != JobState::Done {
            self.tell_state(job);
        }
    }
}

/// Returns how many bytes of a cell are collected to show so many characters of it.
fn collected_bytes(limit: usize) -> usize {
    limit.saturating_mul(8).max(1 << 20)
}
