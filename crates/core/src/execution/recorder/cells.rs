//! Runs a job's cells, one after the other.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::plan::PlannedCode;
use super::state::Recorder;
use crate::execution::category;
use crate::execution::ending::Ending;
use crate::execution::follow::should_be_recorded;
use crate::execution::queue::{self, NextStep};
use crate::execution::run::{FinishedRun, RunError, RunOptions, Runner};
use crate::lifecycle::target::recorded;
use crate::lifecycle::witness;
use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell, JobFolder, JobState, RECORD};
use crate::project::{FolderWatch, Session};
use crate::task::causes::with_causes;

/// Returns the cell that a job runs next when all its cells have run; none if there is no further one. An error says why
/// the job ends before its goal.
pub type NextCell = fn(&Job) -> Result<Option<JobCell>, String>;

/// How often to check whether an earlier job has begun, in any case.
const POLL_PAUSE: Duration = Duration::from_millis(50);

impl Recorder<'_> {
    /// Runs the cells; returns the runner if one was connected, for the caller to disconnect.
    pub(super) async fn run_all(&self, next: NextCell) -> Option<Runner> {
        let mut runner = None;
        let mut goes_on = true;
        let mut planned = PlannedCode::default();
        self.wait_for_earlier_jobs().await;
        for at in 0.. {
            if at == self.job.borrow().cells.len() && !(goes_on && self.grow(next)) {
                break;
            }
            self.at.set(at);
            if !goes_on {
                self.job(|job| job.cells[at].status = Some(CellEnd::NotRun));
                continue;
            }
            if let Some(why) = self.edited(&mut planned).await {
                goes_on = false;
                self.job(|job| {
                    job.cells[at].status = Some(CellEnd::Edited);
                    job.notes.push(why);
                });
                continue;
            }
            let (status, notes) = match self.run_one(at, &mut runner).await {
                Ok(ran) => (self.ended(at, &ran), ran.notes),
                Err(error) => (error.cell_end(), vec![with_causes(&error)]),
            };
            goes_on = {
                let job = self.job.borrow();
                let may_raise = job.allow_errors || job.cells[at].may_raise;
                // An interrupt that this job was not asked for counts as an error.
                let has_raised = status == CellEnd::Error
                    || (status == CellEnd::Interrupted && !self.interrupted.get());
                status == CellEnd::Ok || (has_raised && may_raise)
            };
            self.job_soon(|job| {
                job.cells[at].status = Some(status);
                job.notes.extend(notes);
            });
        }
        runner
    }

    /// Adds the next cell to a job that may have further ones; returns whether there is one.
    fn grow(&self, next: NextCell) -> bool {
        if self.job.borrow().goal.is_none() {
            return false;
        }
        let next = next(&self.job.borrow());
        let has_next = match next {
            Ok(None) => return false,
            Ok(Some(cell)) => {
                self.job(|job| job.cells.push(cell));
                true
            }
            Err(why) => {
                self.job(|job| {
                    let last = job.cells.last().cloned().unwrap_or_default();
                    let unrun = JobCell::new(last.cell, last.code);
                    job.cells.push(JobCell {
                        status: Some(CellEnd::NotRun),
                        ..unrun
                    });
                    job.notes.push(why);
                });
                false
            }
        };
        self.outputs.borrow_mut().grow(&self.job.borrow());
        has_next
    }

    /// Waits until no earlier job of the same actor is in the kernel's queue. An interrupt ends the wait, and so does the
    /// end of the kernel for which the job was requested.
    async fn wait_for_earlier_jobs(&self) {
        while let Some((earlier, folder)) = self.earlier_job() {
            let mut watch = FolderWatch::begin(&[folder.path()], POLL_PAUSE);
            let is_known = {
                let job = self.job.borrow();
                (&job.behind, &job.behind_job, &job.behind_prompt)
                    == (&earlier.behind, &earlier.behind_job, &earlier.behind_prompt)
            };
            if !is_known {
                self.job(|job| {
                    job.behind = earlier.behind;
                    job.behind_since = earlier.behind_since;
                    job.behind_job = earlier.behind_job;
                    job.behind_prompt = earlier.behind_prompt;
                });
            }
            // It may have begun before the watch did.
            if self.earlier_job().is_some() {
                let is_record = |name: Option<&str>| name.is_none_or(|name| name == RECORD);
                let _ = tokio::time::timeout(POLL_PAUSE, watch.changed(is_record)).await;
            }
        }
    }

    /// Returns the first of the same actor's earlier jobs that the kernel has not begun, if this job waits for it.
    fn earlier_job(&self) -> Option<(Job, JobFolder)> {
        if self.interrupted.get() {
            return None;
        }
        let (_, session) = self.kernel().ok()?;
        let open = self.project.open_jobs().into_iter();
        let open = open.filter_map(|folder| Some((folder.read().ok()?, folder)));
        let open =
            open.filter(|(other, folder)| folder.has_recorder() || !should_be_recorded(other));
        match queue::next_step(&self.job.borrow(), &session, open) {
            NextStep::WaitFor(earlier) => Some(earlier),
            NextStep::Send | NextStep::End => None,
        }
    }

    /// Returns the session for whose kernel the job was requested, and its key.
    fn kernel(&self) -> Result<(String, Session), RunError> {
        let job = self.job.borrow();
        let key = self.project.current_key(&job.session);
        let state = self.project.state()?;
        let session = recorded(&state, self.project, &key);
        let session = session.ok_or_else(|| RunError::ended(&key, None))?;
        // A notebook that uses another one's kernel by now has ended its own.
        let has_own = state.owner_key(&key) == key;
        match job.for_generation {
            Some(generation) if !has_own || !queue::has_kernel(&session, Some(generation)) => {
                let ending = Ending::of_generation(&key, Some(&session), generation);
                Err(RunError::of(&ending, &session))
            }
            _ => Ok((key, session)),
        }
    }

    async fn run_one(
        &self,
        at: usize,
        runner: &mut Option<Runner>,
    ) -> Result<FinishedRun, RunError> {
        self.interrupted.set(false);
        self.is_over_time.set(false);
        self.ends_after.set(None);
        let (options, unbind) = {
            let job = self.job.borrow();
            let cell = &job.cells[at];
            let options = RunOptions {
                code: cell.code.clone(),
                cell: cell.cell.clone(),
                goes_on: at + 1 < job.cells.len(),
                may_ask: true,
            };
            (options, cell.unbind.clone())
        };
        let joined = match runner {
            Some(joined) => joined,
            None => {
                let (key, session) = self.kernel()?;
                let by = self.job.borrow().actor();
                let mut joined = Runner::join(self.project, &key, &session, &by, None).await?;
                self.job(|job| job.generation = Some(joined.generation()));
                joined.set_job(&self.job.borrow());
                self.begin_to_listen(joined.parts().1).await;
                runner.insert(joined)
            }
        };
        if !unbind.is_empty() && !witness::unbind(joined.parts().0, &unbind).await? {
            let names = unbind.join(", ");
            self.note(format!(
                "{names} could not be deleted: no cell gives it a value"
            ));
        }
        let ran = joined.run(&options, self).await;
        // If no front end fills output widgets, the recorder does, like nbclient: a front end that
        // joins later asks the kernel for their content.
        for content in self.outputs.borrow_mut().widgets.unsent_updates() {
            if let Ok(content) = RawValue::from_string(content.text().into_owned()) {
                joined.tell_comm(&content);
            }
        }
        ran
    }

    /// Records the end of a cell, and returns its status.
    fn ended(&self, at: usize, ran: &FinishedRun) -> CellEnd {
        let has_begun = self.job.borrow().cells[at].begun_at.is_some();
        if has_begun {
            self.has_changed(at);
        }
        let status = match ran.status {
            // The kernel never began to run it.
            CellEnd::Interrupted if !has_begun => CellEnd::Withdrawn,
            status => status,
        };
        let category = category::of_end(status, ran.category, self.is_over_time.get());
        self.job_soon(|job| {
            let cell = &mut job.cells[at];
            cell.idle_at = has_begun.then(Timestamp::now);
            cell.execution_count = ran.execution_count;
            cell.took_ms = u64::try_from(ran.took.as_millis()).ok();
            cell.category = category;
        });
        status
    }

    /// Writes the remaining outputs, and closes the job.
    pub(super) async fn finish(&self) {
        if self.may_write_at_last().await {
            self.write_all().await;
            self.show_elsewhere_at_last().await;
        }
        let config = self.project.config();
        let keeps_code = config.is_ok_and(|config| config.journal.code);
        let is_held = self.held.borrow().is_some();
        let is_written = self.try_job(|job| {
            job.state = JobState::Done;
            job.ended_at = Some(Timestamp::now());
            job.clear_wait();
            job.prompt = None;
            // Outputs that could not be written are matched by the code later, so the code is kept.
            let in_notebook = job.cells.iter().all(|cell| cell.unwritten.is_none());
            job.held = is_held && !in_notebook;
            if in_notebook && !keeps_code {
                job.cells.iter_mut().for_each(|cell| cell.code.clear());
            }
        });
        if !is_written {
            // The disk is full: as long as the job is open, the next command resumes and ends it.
            return;
        }
        self.folder.mark_over();
        if !self.job.borrow().held {
            self.project.close_job(self.folder);
        }
        self.project.sweep_jobs_after(self.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::Project;

    #[tokio::test]
    async fn a_job_whose_end_cannot_be_recorded_stays_open() {
        let temp = tempfile::tempdir().unwrap();
        let project = Project::for_notebook(&temp.path().join("a.ipynb")).unwrap();
        let mut job = Job::new(&project, "a.ipynb", "a.ipynb".to_owned(), "ada");
        let folder = project.make_job(&mut job).unwrap();
        let recorder = Recorder::new(&project, &folder, job).unwrap();
        let record = folder.path().join(RECORD);
        // No file can take the place of a folder.
        std::fs::remove_file(&record).unwrap();
        std::fs::create_dir(&record).unwrap();
        recorder.finish().await;
        assert_eq!(project.open_jobs(), std::slice::from_ref(&folder));
        std::fs::remove_dir(&record).unwrap();
        recorder.finish().await;
        assert!(project.open_jobs().is_empty());
        assert_eq!(folder.read().unwrap().state, JobState::Done);
    }
}
