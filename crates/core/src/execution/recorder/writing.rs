//! Writes a job's outputs into the notebook: seldom while it runs, and always at its end.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio::signal::unix::{SignalKind, signal};

use super::elsewhere::updates;
use super::gaps::{Gaps, WriteFacts};
use super::held::{RELOAD, is_in_room};
use super::salvage::asked_again;
use super::state::Recorder;
use crate::activity::participants::joined_to;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction;
use crate::execution::flush::{ask_to_write, holders};
use crate::execution::into_notebook::{self, Beside, ExecutionResult, Hold, NotPut};
use crate::project::displays::Displays;
use crate::project::event::CellEnd;
use crate::project::jobs::JobState;

impl Recorder<'_> {
    /// Writes outputs into the notebook while the job runs.
    pub(super) async fn write_now_and_then(&self) -> Infallible {
        let bytes = std::fs::metadata(&self.job.borrow().path).map(|it| it.len());
        let mut gaps = Gaps::new(bytes.unwrap_or_default());
        loop {
            self.changed.notified().await;
            tokio::time::sleep(gaps.next()).await;
            if let Some(left) = self.may_return() {
                tokio::time::sleep(left).await;
            }
            let path = self.job.borrow().path.clone();
            if is_open_in_editor(path).await {
                // Each write replaces the cell there, in which the person may be.
                continue;
            }
            let mut wrote = self.write().await;
            let session = self.job.borrow().session.clone();
            wrote.is_watched = !joined_to(self.project, &session).is_empty();
            let begun = {
                let job = self.job.borrow();
                job.cells.iter().find_map(|cell| cell.begun_at)
            };
            let age = begun.map(|at| Timestamp::now().duration_since(at).unsigned_abs());
            gaps.wrote(wrote, age.unwrap_or_default());
        }
    }

    /// Writes outputs when the system asks all processes to end (SIGTERM), and continues: the
    /// kernel may still run.
    pub(super) async fn write_on_sigterm(&self) -> Infallible {
        let Ok(mut terminate) = signal(SignalKind::terminate()) else {
            return std::future::pending().await;
        };
        loop {
            terminate.recv().await;
            if self.may_return().is_none() {
                self.write().await;
            }
        }
    }

    /// Writes the outputs that are not in the notebook yet. After a failure they are written with
    /// the next ones, and at the end.
    async fn write(&self) -> WriteFacts {
        let _turn = self.writing.lock().await;
        self.follow_move();
        let own = self.write_own().await;
        let others = self.show_elsewhere(false).await;
        WriteFacts {
            took: own.took + others.took,
            bytes: own.bytes + others.bytes,
            failed: own.failed || others.failed,
            held_by: own.held_by.or(others.held_by),
            is_watched: false,
        }
    }

    /// Follows the notebook to its new name, if `nb mv` has moved it.
    fn follow_move(&self) {
        let (notebook, session) = {
            let job = self.job.borrow();
            let now = |key: &str| self.project.current_key(key);
            (now(&job.notebook), now(&job.session))
        };
        if notebook != self.job.borrow().notebook {
            self.job(|job| {
                job.path = self.project.current_path(&job.path, &job.notebook);
                (job.notebook, job.session) = (notebook, session);
            });
        }
    }

    /// Writes the outputs of the job's own cells.
    async fn write_own(&self) -> WriteFacts {
        let cells = std::mem::take(&mut *self.unwritten.borrow_mut());
        if cells.is_empty() || !self.job.borrow().saves {
            return WriteFacts::default();
        }
        let is_late = self.job.borrow().state == JobState::Done;
        let (results, displays, widgets, path) = {
            let (job, outputs) = (self.job.borrow(), self.outputs.borrow());
            let again = asked_again(self.project, &job);
            let all = cells.iter().filter_map(|at| outputs.result(&job, *at));
            let results: Vec<_> = all
                .map(|result| ExecutionResult {
                    asked_since: again.contains(&result.at),
                    is_late,
                    is_partial: self.is_partial.get(),
                    ..result
                })
                .collect();
            let displays = cells.iter();
            let displays = displays.filter_map(|at| Some((*at, outputs.displays(&job, *at)?)));
            let displays: Vec<_> = displays.collect();
            (results, displays, outputs.widgets.clone(), job.path.clone())
        };
        let begun = Instant::now();
        // The recorder goes on receiving the kernel's messages.
        let (project, key) = (self.project.clone(), self.job.borrow().notebook.clone());
        let by = self.job.borrow().by.clone();
        let put = async {
            if let Some(mut held) = self.may_be_reloading() {
                if is_in_room(&path).await {
                    held.1 = Instant::now();
                }
                return Err(held);
            }
            let put = tokio::task::spawn_blocking(move || {
                let put = |path: &Path| {
                    into_notebook::put(path, &by, &results, &widgets, Beside::Nothing)
                };
                put(&path).or_else(|error| match project.current_path(&path, &key) {
                    // It was moved in the meantime.
                    now if now != path => put(&now),
                    _ => Err(error),
                })
            });
            let put = put.await;
            put.unwrap_or_else(|error| Err(error.to_string().into()))
                .map_err(|error| (error, Instant::now()))
        };
        let put = put.await;
        *self.held.borrow_mut() = {
            let error = put.as_ref().err();
            error.filter(|(error, _)| error.held_by.is_some()).cloned()
        };
        let wrote = WriteFacts {
            took: put
                .as_ref()
                .map_or_else(|_| begun.elapsed(), |put| put.took),
            bytes: put.as_ref().map_or(0, |put| put.bytes as u64),
            failed: put.is_err(),
            held_by: put.as_ref().err().and_then(|(error, _)| error.held_by),
            is_watched: false,
        };
        let put = match put {
            Ok(put) => put,
            Err((error, _)) => {
                self.unwritten.borrow_mut().extend(&cells);
                self.changed.notify_one();
                let why = error.of_outputs();
                let is_held = is_late && error.held_by.is_some();
                self.job(|job| {
                    for at in cells {
                        job.cells[at].unwritten = Some(why.clone());
                    }
                    job.held |= is_held;
                });
                if is_held {
                    self.project.reopen_job(self.folder);
                }
                return wrote;
            }
        };
        let is_in = |at| put.missed(at).is_none() && !put.stale.contains(&at);
        self.note_displays(displays.into_iter().filter(|(at, _)| is_in(*at)));
        for at in &put.stale {
            let id = self.job.borrow().cells[*at].cell.clone();
            self.note(format!(
                "{} was edited while it ran: its outputs are in the notebook, marked as those of its earlier text",
                id.unwrap_or_default()
            ));
        }
        self.job(|job| {
            for at in cells {
                let missed = put.missed(at);
                // A cell that was edited, cleared or run again since the job's end does not take late outputs.
                if !is_late || missed.is_none() {
                    job.cells[at].unwritten = missed;
                }
            }
        });
        wrote
    }

    /// Writes the outputs that are not in the notebook yet, and those that could not be written
    /// earlier: a cell that was deleted may be back.
    pub(super) async fn write_all(&self) {
        let missed: Vec<usize> = {
            let job = self.job.borrow();
            let cells = job.cells.iter().enumerate();
            let cells = cells.filter(|(_, cell)| cell.unwritten.is_some());
            cells.map(|(at, _)| at).collect()
        };
        self.unwritten.borrow_mut().extend(missed);
        self.write().await;
    }

    /// Writes the outputs that came after the end of their job; returns whether they are held back.
    pub(super) async fn write_late(&self) -> bool {
        self.write().await;
        self.show_elsewhere_at_last().await;
        self.held.borrow().is_some()
    }

    /// Returns the display ids of earlier executions on the kernel.
    pub(super) fn earlier_displays(&self) -> Vec<Displays> {
        let job = self.job.borrow();
        let generation = job.generation.unwrap_or_default();
        self.project.displays(&job.session, generation)
    }

    /// Stores the display ids of the cells that have just been written.
    fn note_displays(&self, all: impl Iterator<Item = (usize, Displays)>) {
        let noted = &mut self.earlier_updates.borrow_mut().noted;
        for (at, new) in all {
            let before = noted.get(&at);
            if before == Some(&new) || (before.is_none() && new.ids.is_empty()) {
                continue;
            }
            match self.project.note_displays(new.clone()) {
                Ok(()) => drop(noted.insert(at, new)),
                Err(error) => tracing::warn!(%error, "what is shown could not be noted"),
            }
        }
    }

    /// Writes this job's updates into the cells of earlier executions. What is held back is tried again, unless this is
    /// the last time.
    async fn show_elsewhere(&self, is_last: bool) -> WriteFacts {
        let mut shown = self.earlier_updates.borrow_mut().take_shown();
        if shown.is_empty() {
            return WriteFacts::default();
        }
        let (updates, found) = updates(&self.job.borrow(), &shown, &self.earlier_displays());
        let mut wrote = WriteFacts::default();
        for (path, updates) in updates {
            let name = path.display().to_string();
            let by = self.job.borrow().by.clone();
            let put = move || into_notebook::update(&path, &by, &updates);
            let put = tokio::task::spawn_blocking(put);
            let put = put.await;
            match put.unwrap_or_else(|error| Err(error.to_string().into())) {
                Ok(put) => {
                    wrote.bytes += put.bytes as u64;
                    wrote.took += put.took;
                }
                Err(NotPut { held_by, .. }) if held_by.is_some() && !is_last => {
                    wrote.failed = true;
                    wrote.held_by = held_by;
                    self.changed.notify_one();
                }
                Err(NotPut { why, .. }) => {
                    wrote.failed = true;
                    self.note(format!(
                        "what it shows in earlier cells of {name} is not there: {why}; run it again once that is mended"
                    ));
                }
            }
        }
        if !wrote.failed {
            // An id that was not found may be one that an earlier recorder has not stored yet.
            shown.retain(|id, _| !found.contains(id));
        }
        self.earlier_updates.borrow_mut().put_back(shown);
        wrote
    }

    /// Writes these updates at the end of the job, once earlier recorders have written their
    /// outputs.
    pub(super) async fn show_elsewhere_at_last(&self) {
        self.show_elsewhere(true).await;
        if self.earlier_updates.borrow().is_empty() {
            return;
        }
        let session = self.job.borrow().session.clone();
        let others = holders(self.project, |job| job.session == session);
        let others = others.into_iter().filter(|it| it.id() != self.folder.id());
        if let Err(error) = ask_to_write(others.collect()).await {
            tracing::warn!(%error, "other recorders could not be asked");
        }
        self.show_elsewhere(true).await;
    }

    /// Waits until a front end that has disconnected can no longer return, and returns whether the
    /// outputs are to be written. If the front end has restarted its kernel, it has the outputs and
    /// does not want them in the file.
    pub(super) async fn may_write_at_last(&self) -> bool {
        let Some(handed_at) = self.handed_at() else {
            return true;
        };
        tokio::time::sleep(self.left(handed_at)).await;
        let state = self.project.state().ok();
        let job = self.job.borrow();
        let now = state.and_then(|state| state.session(&job.session));
        let was_replaced = now.is_some_and(|now| Some(now.generation) != job.generation);
        let mut cells = job.cells.iter();
        !(was_replaced && cells.any(|cell| cell.status == Some(CellEnd::KernelDied)))
    }

    /// Returns why outputs are held back, if JupyterLab had the notebook open in a room a moment ago: its page may be
    /// loading again.
    fn may_be_reloading(&self) -> Option<(NotPut, Instant)> {
        let held = self.held.borrow();
        let is_recent = |(held, at): &&(NotPut, Instant)| {
            held.held_by == Some(Hold::Room) && at.elapsed() < RELOAD
        };
        held.as_ref().filter(is_recent).cloned()
    }

    /// Returns for how long a front end that has disconnected may still return.
    fn may_return(&self) -> Option<Duration> {
        Some(self.left(self.handed_at()?)).filter(|left| !left.is_zero())
    }

    /// Returns when the job's cells were handed over by a proxy whose front end may come back.
    fn handed_at(&self) -> Option<Timestamp> {
        let job = self.job.borrow();
        let front_end = job.front_end.as_ref().filter(|it| it.may_return)?;
        front_end.handed_at
    }

    /// Returns how long to wait until a front end that disconnected at that time can no longer return with another
    /// proxy: the cells that it restarts then are not overwritten.
    fn left(&self, handed_at: Timestamp) -> Duration {
        let age = Timestamp::now().duration_since(handed_at).unsigned_abs();
        let settings = self.project.settings().unwrap_or_default();
        settings.return_time().saturating_sub(age)
    }
}

/// Says whether an editor has a notebook open that gets what is written before it is written.
async fn is_open_in_editor(path: PathBuf) -> bool {
    let looks = move || NotebookFile::of(&path).is_ok_and(|it| transaction::has_open(&it));
    tokio::task::spawn_blocking(looks).await.unwrap_or(false)
}
