//! What came of a job: in words, as JSON, and as an exit code.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::outputs;
use crate::cli::render::hints::Commands;
use crate::cli::render::news::News;
use crate::cli::render::print;
use crate::execution::fold;
use crate::execution::follow::{Followed, Left};
use crate::kernel::shell::quote;
use crate::lifecycle::death;
use crate::notebook::OmittedOutput;
use crate::project::cursor::Cursor;
use crate::project::jobs::{Job, JobCell, JobFolder, JobState};

/// What a report is made of.
pub(crate) struct Report<'a> {
    pub(crate) folder: &'a JobFolder,
    pub(crate) followed: &'a Followed,
    pub(crate) news: &'a News,
    /// What was seen before.
    pub(crate) seen: Cursor,
    /// How many characters of output are shown.
    pub(crate) limit: Option<usize>,
    /// For how long it was followed.
    pub(crate) waited: Duration,
    /// How its commands name the notebook.
    pub(crate) commands: Commands,
}

impl Report<'_> {
    /// Returns it as a program reads it: a job of code has its outputs at the top, one of cells under
    /// `cells`.
    pub(crate) fn object(&self) -> Value {
        let job = &self.followed.job;
        let mut object = json!({
            "job": job.id,
            "notebook": job.notebook,
            "state": if self.followed.left == Left::Lost { json!("lost") } else { json!(job.state) },
        });
        let cells = job.cells.iter().enumerate();
        let cells: Vec<_> = cells.map(|(at, cell)| self.cell(at, cell)).collect();
        match <[Value; 1]>::try_from(cells) {
            Ok([Value::Object(mut cell)]) if is_code(job) => {
                cell.shift_remove("cell");
                cell.shift_remove("revision");
                cell.shift_remove("unwritten");
                if let Some(object) = object.as_object_mut() {
                    object.append(&mut cell);
                }
            }
            Ok(cells) => object["cells"] = json!(cells),
            Err(cells) => object["cells"] = json!(cells),
        }
        if let Some(until) = self.news.until() {
            object["until"] = json!({ "regex": until.pattern(), "matched": until.matched() });
        }
        object["prompt"] = json!(job.prompt);
        object["behind"] = json!(job.behind);
        object["notes"] = json!(job.notes);
        object["kernel_generation"] = json!(job.generation);
        object
    }

    fn cell(&self, at: usize, cell: &JobCell) -> Value {
        let heard = self.news.of(at);
        let mut outputs = heard.map(|heard| heard.outputs.read()).unwrap_or_default();
        outputs::for_json(&mut outputs, self.limit, &more(&self.followed.job));
        let left_out = heard.map(|heard| heard.outputs.left_out());
        let left_out = left_out.filter(|it| *it != OmittedOutput::default());
        let mut object = json!({
            "cell": cell.cell, "revision": cell.revision, "status": cell.status,
            "execution_count": cell.execution_count, "took_ms": cell.took_ms,
            "outputs": fold::to_json(&outputs), "unwritten": cell.unwritten,
        });
        if let Some(it) = left_out {
            object["left_out"] =
                json!({ "bytes": it.bytes, "lines": it.lines, "displays": it.displays });
        }
        object
    }

    /// Prints it: of several cells each that said something, or did not end well, under a line of its
    /// own.
    pub(crate) fn print(&self) -> std::io::Result<()> {
        let job = &self.followed.job;
        let several = job.cells.len() > 1;
        let cells = job.cells.iter().enumerate();
        let cells = cells.map(|(at, cell)| (at, cell, self.news.of(at)));
        let shown: Vec<_> = cells
            .filter(|(at, cell, heard)| {
                let status = cell.status.as_deref();
                let is_bad = status.is_some_and(|it| it != "ok" && it != "not_run");
                heard.is_some() || (several && is_bad && *at >= self.seen.over)
            })
            .collect();
        let sizes: Vec<_> = shown
            .iter()
            .map(|(.., heard)| heard.map_or(0, |it| outputs::characters(&it.outputs.read())))
            .collect();
        let shares = outputs::shares(&sizes, self.limit);
        for ((_, cell, heard), share) in shown.iter().zip(shares) {
            if several {
                print::line(&head(cell))?;
            }
            if let Some(heard) = heard {
                print::both(&heard.text(job, share))?;
            }
        }
        // The cause first, then what follows from it.
        for note in job.notes.iter().filter(|note| !self.is_raised(note)) {
            self.note(note);
        }
        let cells = job.cells.iter().enumerate().skip(self.seen.over);
        for (at, cell) in cells {
            if let Some(text) = told(job, cell) {
                self.note(&text);
            }
            if let (Some(id), Some(why)) = (&cell.cell, &cell.unwritten) {
                print::note(&format!("outputs of {id} are not in the notebook: {why}"));
            }
            if self.followed.left == Left::Over && several && at + 1 == job.cells.len() {
                print::note(&summary(job));
            }
        }
        let is_missing = |cell: &JobCell| cell.cell.is_some() && cell.unwritten.is_some();
        if self.followed.left == Left::Over && job.cells.iter().any(is_missing) {
            let id = &job.id;
            self.note(&format!(
                "they are kept: nb jobs {id} --write writes them, once that is mended"
            ));
        }
        self.how_it_was_left();
        Ok(())
    }

    /// Says whether an error that was shown has this text.
    fn is_raised(&self, note: &str) -> bool {
        let mut heard = (0..self.followed.job.cells.len()).filter_map(|at| self.news.of(at));
        heard.any(|heard| heard.raised.as_deref() == Some(note))
    }

    /// Tells something in which commands may be named.
    fn note(&self, text: &str) {
        print::note(&self.commands.complete(text));
    }

    fn how_it_was_left(&self) {
        let job = &self.followed.job;
        let id = &job.id;
        let said_something = (0..job.cells.len()).any(|at| self.news.of(at).is_some());
        if let Some(until) = self.news.until() {
            match (until.matched(), self.followed.left) {
                (Some(line), _) => {
                    self.note(&format!("matched: {line}"));
                    if job.state != JobState::Done {
                        self.note(&format!("job {id} goes on · next: nb wait {id}"));
                    }
                    return;
                }
                (None, Left::Over) => {
                    let pattern = until.pattern();
                    self.note(&format!(
                        "job {id} is over, and no line of it matches {pattern}"
                    ));
                }
                (None, _) => {}
            }
        }
        match self.followed.left {
            Left::Over if !said_something && self.seen.at > 0 => self.note(&format!(
                "job {id} is over, and said nothing since you looked; nb wait {id} --all shows all"
            )),
            Left::Over | Left::Enough => {}
            Left::StillRunning => {
                self.note(&format!("{}. Nothing is lost.", self.still_running()));
                self.note(&format!("next: nb wait {id} | nb interrupt {id}"));
            }
            Left::Asks => {
                let prompt = job.prompt.as_ref();
                let asks = prompt.map_or("", |it| it.prompt.as_str());
                self.note(&format!("the code asks: {asks}"));
                let answer = if prompt.is_some_and(|it| it.password) {
                    "- < FILE"
                } else {
                    "TEXT"
                };
                self.note(&format!("next: nb reply {id} {answer} | nb interrupt {id}"));
            }
            Left::Lost => self.note(&format!(
                "the recorder of job {id} was killed: what the code said after that is not kept \
                 (what it said before is in {})",
                self.folder.path().display()
            )),
        }
    }

    /// Says what still runs, and how far it has come.
    fn still_running(&self) -> String {
        let job = &self.followed.job;
        let seconds = self.waited.as_secs();
        if let (JobState::Queued, Some(behind)) = (job.state, behind(job)) {
            return format!(
                "still waiting after {seconds} s behind {behind}: job {}, {}",
                job.id,
                of_what(job)
            );
        }
        let mut text = format!(
            "still running after {seconds} s: job {}, {}",
            job.id,
            of_what(job)
        );
        let under_way = job.cells.iter().position(|cell| cell.status.is_none());
        if let Some(at) = under_way {
            if let ([_, _, ..], Some(id)) = (&job.cells[..], &job.cells[at].cell) {
                text = format!("{text}, at {id} ({} of {})", at + 1, job.cells.len());
            }
            if let Some(heard) = self.news.of(at) {
                let last = outputs::plain(&heard.last);
                let last: String = last.trim().chars().take(LAST).collect();
                let lines = print::count(heard.lines, "new line");
                text = format!("{text}, {lines} (last: \"{last}\")");
            }
        }
        text
    }

    /// What the end of a job means to the caller.
    pub(crate) fn code(&self) -> u8 {
        let is_matched = self.news.until().map(|until| until.matched().is_some());
        match (self.followed.left, is_matched) {
            (_, Some(true)) => return 0,
            (Left::StillRunning, _) => return 4,
            (Left::Asks, _) => return 7,
            (Left::Lost, _) => return 1,
            (Left::Over | Left::Enough, _) => {}
        }
        let cells = self.followed.job.cells.iter();
        let statuses = cells.filter_map(|cell| match cell.status.as_deref() {
            Some("error") if cell.may_raise => None,
            status => status,
        });
        let mut codes = statuses.map(|status| match status {
            "ok" => 0,
            "error" => 3,
            "interrupted" | "withdrawn" => 130,
            "kernel_died" | "no_kernel" => 6,
            "aborted" => 5,
            _ => 1,
        });
        // The first that went wrong; those after it were not run.
        match codes.find(|code| *code != 0) {
            Some(code) => code,
            // What was waited for never came.
            None => u8::from(is_matched == Some(false)),
        }
    }
}

/// Returns what shows all that a job said.
pub(crate) fn more(job: &Job) -> String {
    format!("nb wait {} --all --stream shows all", job.id)
}

/// How many characters of the last line are told.
const LAST: usize = 80;

/// Returns whose cell a job waits for: `ada's cell 3f2c, running for 12 s`.
pub(crate) fn behind(job: &Job) -> Option<String> {
    let behind = job.behind.as_ref()?;
    Some(match job.behind_since {
        Some(since) => format!("{behind}, running for {}", print::age(since)),
        None => behind.clone(),
    })
}

/// Returns what a job is about: `cell 3f2c of train.ipynb · running`.
pub(crate) fn what(job: &Job) -> String {
    let state = match job.state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::WaitingInput => "asks something",
        JobState::Done => "done",
    };
    format!("{} · {state}", of_what(job))
}

fn of_what(job: &Job) -> String {
    match job.cells.as_slice() {
        [JobCell { cell: Some(id), .. }] => format!("cell {id} of {}", job.notebook),
        [_] => format!("code for {}", job.notebook),
        cells => format!("{} cells of {}", cells.len(), job.notebook),
    }
}

/// Whether it runs code outside the notebook.
fn is_code(job: &Job) -> bool {
    matches!(job.cells.as_slice(), [JobCell { cell: None, .. }])
}

pub(crate) fn head(cell: &JobCell) -> String {
    let id = cell.cell.as_deref().unwrap_or("code");
    let count = cell
        .execution_count
        .map_or_else(String::new, |count| format!(" In[{count}]"));
    let status = cell.status.as_deref().unwrap_or("running");
    let took = cell.took_ms.map_or_else(String::new, |took| {
        format!(" {}", print::took(Duration::from_millis(took)))
    });
    format!("── {id}{count} {status}{took}")
}

/// Returns how a job of several cells went: `3 of 5 cells ran in 1.2 s: 1 error; 2 were not run`.
fn summary(job: &Job) -> String {
    let count = |word: &str| {
        let cells = job.cells.iter();
        cells
            .filter(|it| it.status.as_deref() == Some(word))
            .count()
    };
    let (all, not_run) = (job.cells.len(), count("not_run"));
    let begun = job.cells.iter().find_map(|cell| cell.begun_at);
    let ended = job.ended_at.unwrap_or_else(Timestamp::now);
    let took = ended.duration_since(begun.unwrap_or(ended)).unsigned_abs();
    let took = print::took(took);
    if count("ok") == all {
        return format!("{all} cells ok in {took}");
    }
    let words = [
        "error",
        "interrupted",
        "withdrawn",
        "kernel_died",
        "no_kernel",
        "aborted",
        "no_reply",
        "unheard",
    ];
    let bad = words.iter().filter_map(|word| match count(word) {
        0 => None,
        count => Some(format!("{count} {}", word.replace('_', " "))),
    });
    let bad: Vec<_> = bad.collect();
    let rest = match not_run {
        0 => String::new(),
        1 => "; 1 more cell was not run".to_owned(),
        count => format!("; {count} more cells were not run"),
    };
    let ran = all - not_run;
    format!(
        "{ran} of {all} cells ran in {took}: {}{rest}",
        bad.join(", ")
    )
}

/// Says what the outputs of a cell do not.
fn told(job: &Job, cell: &JobCell) -> Option<String> {
    let notebook = quote(&job.path);
    Some(match cell.status.as_deref()? {
        "kernel_died" => {
            format!(
                "next: {} | nb log --kernel -n {notebook}",
                death::mend(&job.path)
            )
        }
        "no_kernel" => {
            "it was not run\nnext: nb status tells the kernel's state, nb open starts one"
                .to_owned()
        }
        "aborted" => {
            "another client's failing cell emptied the kernel's queue each time; it was not run"
                .to_owned()
        }
        "no_reply" => "the kernel went idle without a reply".to_owned(),
        "unheard" => "the kernel is through with it, and nobody heard how it ended".to_owned(),
        "interrupted" => "interrupted".to_owned(),
        "withdrawn" => "withdrawn before the kernel began with it".to_owned(),
        _ => return None,
    })
}
