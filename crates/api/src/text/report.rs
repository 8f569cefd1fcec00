//! The result of a job as text.

use std::time::Duration;

use jiff::Timestamp;

use super::count;
use crate::api::job::{BlockingJob, JobAnswer, describe_code, describe_wait};
use crate::api::outputs::{self, OutputText};
use crate::api::time;
use crate::execution::follow::FollowEnd;
use crate::hint;
use crate::hint::{Command, Hint, Joint, Verb, nb};
use crate::lifecycle::death;
use crate::project::event::CellEnd;
use crate::project::jobs::{Job, JobCell, JobPrompt, JobState};

/// The time that a cell took is printed from here on.
const SHORT: Duration = Duration::from_millis(50);

/// A piece of a report.
pub enum Piece<'a> {
    /// The line above a cell's outputs.
    Head(String),
    /// A cell's outputs.
    Outputs(&'a OutputText),
    /// What there is to know besides.
    Note(Hint),
}

/// Returns the answer of a job as a person or an agent reads it. If there are several cells, each one that
/// has outputs or went wrong gets a line above it.
pub fn report(answer: &JobAnswer) -> Vec<Piece<'_>> {
    let mut report = Report {
        answer,
        pieces: Vec::new(),
    };
    report.write();
    report.pieces
}

struct Report<'a> {
    answer: &'a JobAnswer,
    pieces: Vec<Piece<'a>>,
}

impl Report<'_> {
    fn write(&mut self) {
        let answer = self.answer;
        let job = &answer.record;
        let several = job.cells.len() > 1;
        let results = job.cells.iter().zip(answer.runs()).enumerate();
        for (at, (cell, result)) in results {
            if several && result.is_listed(at, answer.seen) {
                self.pieces.push(Piece::Head(head(cell)));
            }
            if let Some(text) = &result.text {
                self.pieces.push(Piece::Outputs(text));
            }
        }
        // The cause comes before its consequences.
        for note in job.notes.iter().filter(|note| !is_raised(answer, note)) {
            self.note(note.clone());
        }
        let cells = job.cells.iter().enumerate().skip(answer.seen.over);
        for (at, cell) in cells {
            if let Some(text) = cell_end(job, cell) {
                self.note(text);
            }
            if let (Some(id), Some(why)) = (&cell.cell, &cell.unwritten) {
                self.note(format!("outputs of {id} are not in the notebook: {why}"));
            }
            if answer.left == FollowEnd::Over && several && at + 1 == job.cells.len() {
                self.note(summary(job));
            }
        }
        let is_missing = |cell: &JobCell| cell.cell.is_some() && cell.unwritten.is_some();
        if answer.left == FollowEnd::Over && !job.held && job.cells.iter().any(is_missing) {
            self.note(hint![
                "they are kept: ",
                nb(Verb::Jobs).job(&job.id).option("--write"),
                " writes them, once that is mended"
            ]);
        }
        self.note_follow_end();
    }

    fn note(&mut self, text: impl Into<Hint>) {
        self.pieces.push(Piece::Note(text.into()));
    }

    fn note_follow_end(&mut self) {
        let answer = self.answer;
        let job = &answer.record;
        let id = &job.id;
        let wait = || nb(Verb::Wait).job(id);
        let interrupt = || nb(Verb::Interrupt).job(id);
        let peek = || nb(Verb::Run).option("--peek").word("CODE");
        let has_output = answer.runs().iter().any(|result| result.summary.is_some());
        if let Some(until) = &answer.until {
            match (&until.matched, answer.left) {
                (Some(line), _) => {
                    self.note(format!("matched: {line}"));
                    if job.state != JobState::Done {
                        self.note(hint![format!("job {id} goes on · next: "), wait()]);
                    }
                    return;
                }
                (None, FollowEnd::Over) => {
                    let pattern = &until.regex;
                    self.note(format!(
                        "job {id} is over, and no line of it matches {pattern}"
                    ));
                }
                (None, _) => {}
            }
        }
        match answer.left {
            FollowEnd::Over if !has_output && answer.seen.at > 0 => self.note(hint![
                format!("job {id} is over, without output since you last looked; "),
                wait().option("--all"),
                " shows all"
            ]),
            FollowEnd::Over if !has_output => {
                if let [cell] = job.cells.as_slice()
                    && cell.status == Some(CellEnd::Ok)
                {
                    let took = Duration::from_millis(cell.took_ms.unwrap_or_default());
                    let took = match took < SHORT {
                        true => String::new(),
                        false => format!(", {}", time::took(took)),
                    };
                    self.note(format!("ok, no output{took}"));
                }
            }
            FollowEnd::Over | FollowEnd::Enough => {}
            FollowEnd::StillRunning => {
                self.note(format!("{}. Nothing is lost.", self.still_running()));
                let next = hint!["next: ", wait(), Joint::Or, interrupt()];
                self.note(match job.state {
                    JobState::Queued => hint![next, Joint::Or, peek()],
                    _ => next,
                });
            }
            FollowEnd::BehindQuestion => {
                self.note(format!("{}. Nothing is lost.", self.still_running()));
                if let Some(BlockingJob {
                    job: other,
                    prompt: Some(prompt),
                    ..
                }) = &answer.behind_job
                {
                    self.note(format!("job {other} asks: {}", prompt.prompt));
                    let reply = reply(other, prompt);
                    self.note(hint!["next: ", reply, Joint::Or, wait()]);
                } else if let Some(prompt) = &job.behind_prompt {
                    self.note(format!(
                        "that cell asks: {} (it is answered where it was run)",
                        prompt.trim()
                    ));
                    let next = hint!["next: ", wait(), Joint::Or, interrupt()];
                    self.note(hint![next, Joint::Or, peek()]);
                }
            }
            FollowEnd::Asks => {
                let prompt = job.prompt.clone().unwrap_or_default();
                self.note(format!("the code asks: {}", prompt.prompt));
                let reply = reply(id, &prompt);
                self.note(hint!["next: ", reply, Joint::Or, interrupt()]);
            }
            FollowEnd::Lost => {
                let why = recorder_end(answer.almost_full());
                self.note(format!(
                    "the recorder of job {id} was {why}: its output after that is not kept \
                     (the output before is in {})",
                    answer.folder.path().display()
                ));
            }
        }
    }

    /// Describes what still runs, and for how long.
    fn still_running(&self) -> String {
        let job = &self.answer.record;
        let seconds = self.answer.waited.as_secs();
        if let (JobState::Queued, Some(behind)) = (job.state, describe_wait(job)) {
            let last = self.answer.behind_job.as_ref();
            let last = last.and_then(|other| other.last_line.as_deref());
            let last = last.map(|line| format!(" (last: \"{}\")", shortened(line)));
            return format!(
                "still waiting after {seconds} s behind {behind}{}: job {}, {}",
                last.unwrap_or_default(),
                job.id,
                describe_code(job)
            );
        }
        let mut text = format!(
            "still running after {seconds} s: job {}, {}",
            job.id,
            describe_code(job)
        );
        let current = job.cells.iter().position(|cell| cell.status.is_none());
        if let Some(at) = current {
            if let ([_, _, ..], Some(id)) = (&job.cells[..], &job.cells[at].cell) {
                text = format!("{text}, at {id} ({} of {})", at + 1, job.cells.len());
            }
            if let Some(summary) = self
                .answer
                .runs()
                .get(at)
                .and_then(|it| it.summary.as_ref())
            {
                let last = shortened(&summary.last_line);
                let lines = count(summary.lines, "new line");
                text = format!("{text}, {lines} (last: \"{last}\")");
            }
        }
        text
    }
}

/// Describes how a recorder ended that recorded no end; `free` is the number of free bytes on an almost full disk.
fn recorder_end(free: Option<u64>) -> String {
    match free {
        Some(free) => format!("killed, or the disk is full ({free} bytes free)"),
        None => "killed".to_owned(),
    }
}

/// Returns the command that answers a job's question.
fn reply(job: &str, prompt: &JobPrompt) -> Command {
    let reply = nb(Verb::Reply).job(job);
    match prompt.password {
        true => reply.stdin("FILE"),
        false => reply.word("TEXT"),
    }
}

/// Says whether an error that is among the outputs has this text.
fn is_raised(answer: &JobAnswer, note: &str) -> bool {
    let runs = answer.runs();
    let mut summaries = runs.iter().filter_map(|result| result.summary.as_ref());
    summaries.any(|summary| summary.raised.as_deref() == Some(note))
}

/// How many characters of the last line are printed.
const LAST: usize = 80;

fn shortened(line: &str) -> String {
    outputs::plain(line).trim().chars().take(LAST).collect()
}

/// Returns the line above a cell's outputs.
pub fn head(cell: &JobCell) -> String {
    let mut head = "──".to_owned();
    let mut add = |word: &str| {
        head.push(' ');
        head.push_str(word);
    };
    if let Some(index) = cell.index {
        add(&index.to_string());
    }
    add(cell.cell.as_deref().unwrap_or("code"));
    if let Some(count) = cell.execution_count {
        add(&format!("In[{count}]"));
    }
    add(&cell
        .status
        .map_or_else(|| "running".to_owned(), CellEnd::word));
    let took = cell.took_ms.map(Duration::from_millis);
    if let Some(took) = took.filter(|took| *took >= SHORT) {
        add(&time::took(took));
    }
    head
}

/// Returns how a job of several cells went: `3 of 5 cells ran in 1.2 s: 1 error; 2 were not run`.
fn summary(job: &Job) -> String {
    let count = |status: CellEnd| {
        let cells = job.cells.iter();
        cells.filter(|it| it.status == Some(status)).count()
    };
    let (all, not_run) = (job.cells.len(), count(CellEnd::NotRun));
    let start = job.cells.iter().find_map(|cell| cell.begun_at);
    let ended = job.ended_at.unwrap_or_else(Timestamp::now);
    let took = ended.duration_since(start.unwrap_or(ended)).unsigned_abs();
    let took = time::took(took);
    if count(CellEnd::Ok) == all {
        return format!("{all} cells ok in {took}");
    }
    let statuses = [
        CellEnd::Error,
        CellEnd::Interrupted,
        CellEnd::Withdrawn,
        CellEnd::KernelDied,
        CellEnd::NoKernel,
        CellEnd::Aborted,
        CellEnd::Edited,
        CellEnd::NoReply,
        CellEnd::UnknownEnd,
    ];
    let failures = statuses.iter().filter_map(|status| match count(*status) {
        0 => None,
        count => Some(format!("{count} {}", status.word().replace('_', " "))),
    });
    let failures: Vec<_> = failures.collect();
    let failures = match failures.is_empty() {
        true => String::new(),
        false => format!(": {}", failures.join(", ")),
    };
    let rest = match not_run {
        0 => String::new(),
        1 => "; 1 more cell was not run".to_owned(),
        count => format!("; {count} more cells were not run"),
    };
    let ran = all - not_run;
    format!("{ran} of {all} cells ran in {took}{failures}{rest}")
}

/// Describes how a cell ended, if its outputs do not show that.
fn cell_end(job: &Job, cell: &JobCell) -> Option<Hint> {
    Some(match cell.status? {
        CellEnd::KernelDied => {
            let log = nb(Verb::Log).option("--kernel").option("-n");
            let log = log.notebook(&job.path);
            hint!["next: ", death::fix_command(&job.path), Joint::Or, log]
        }
        CellEnd::NoKernel => hint![
            "it was not run; next: ",
            nb(Verb::Status),
            " shows whether a kernel runs, ",
            nb(Verb::Open),
            " starts one if none does"
        ],
        CellEnd::Edited => hint![nb(Verb::Exec).option("--stale"), " plans anew"],
        CellEnd::Aborted => {
            "another client's failing cell emptied the kernel's queue each time; it was not run"
                .into()
        }
        CellEnd::NoReply => "the kernel went idle without a reply".into(),
        CellEnd::UnknownEnd => {
            "the kernel is idle again, but how the cell ended is not known".into()
        }
        CellEnd::Interrupted => "interrupted".into(),
        CellEnd::Withdrawn => "withdrawn before the kernel began with it".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_may_be_why_a_recorder_is_gone() {
        assert_eq!(recorder_end(None), "killed");
        assert_eq!(
            recorder_end(Some(8)),
            "killed, or the disk is full (8 bytes free)"
        );
    }
}
