//! What a job says that its follower has not seen yet.

use std::ops::ControlFlow;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::outputs::{self, Cut, Text};
use crate::cli::render::print;
use crate::cli::render::progress::Progress;
use crate::cli::render::report::{behind, more, what};
use crate::cli::render::until::Until;
use crate::execution::fold::{self, Outputs};
use crate::execution::follow::Follower;
use crate::execution::run::Output;
use crate::project::jobs::{Job, JobState, Said};

/// How what a job says is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// Once, at the end.
    Folded,
    /// As it comes.
    Streamed,
    /// As it comes, in JSON.
    Events,
}

/// Who reads what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// It is told nothing beside the answer.
    Program,
    /// It is told in lines.
    Agent,
    /// A line at the bottom of the terminal moves.
    Person,
}

/// What was heard, cell by cell.
pub(crate) struct News {
    manner: Manner,
    /// How many bytes of a cell's text are kept for the end; none is no limit.
    most: Option<usize>,
    until: Option<Until>,
    progress: Progress,
    /// What each of the job's cells said.
    cells: Vec<Heard>,
    /// Whether it is still to be said on stderr which job is waited for, and behind whom.
    announces_job: bool,
    announces_behind: bool,
    /// What was told last of the job's and its cells' states.
    states: Vec<Value>,
}

/// What one cell said.
#[derive(Default)]
pub(crate) struct Heard {
    /// As a notebook would show it; nothing of what was streamed.
    pub(crate) outputs: Outputs,
    /// How many lines it printed.
    pub(crate) lines: usize,
    /// The last of them that is not empty, as far as it has come.
    pub(crate) last: String,
    /// The text of the last error that it raised.
    pub(crate) raised: Option<String>,
    /// Whether it said anything.
    pub(crate) is_news: bool,
}

impl Heard {
    fn keeping(most: Option<usize>) -> Self {
        Self {
            outputs: most.map_or_else(Outputs::default, Outputs::bounded),
            ..Self::default()
        }
    }

    /// Returns what it said, as text of at most `limit` characters each way.
    pub(crate) fn text(&self, job: &Job, limit: Option<usize>) -> Text {
        let cut = Cut {
            limit,
            left_out: self.outputs.left_out(),
            more: more(job),
        };
        outputs::text(&self.outputs.read(), &cut)
    }
}

/// How long a job is followed in silence: most are over by then.
const SOON: Duration = Duration::from_millis(700);

impl News {
    /// Begins to listen, to keep about `most` bytes of each cell for the end.
    pub(crate) fn new(
        manner: Manner,
        most: Option<usize>,
        until: Option<Until>,
        audience: Audience,
    ) -> Self {
        let progress = Progress::new(audience == Audience::Person);
        // The line at the bottom says the same.
        let announces = audience != Audience::Program && !progress.is_seen();
        Self {
            manner,
            most,
            until,
            progress,
            cells: Vec::new(),
            announces_job: announces,
            announces_behind: announces,
            states: Vec::new(),
        }
    }

    /// Returns what a cell said, by its place in the job.
    pub(crate) fn of(&self, at: usize) -> Option<&Heard> {
        self.cells.get(at).filter(|heard| heard.is_news)
    }

    /// Returns what was waited for, and whether it came.
    pub(crate) fn until(&self) -> Option<&Until> {
        self.until.as_ref()
    }

    /// Shows what was kept for the end, since a question may make no sense without it, and streams
    /// from now on.
    pub(crate) fn catch_up(&mut self, job: &Job, limit: Option<usize>) {
        self.progress.clear();
        if self.manner != Manner::Folded {
            return;
        }
        self.manner = Manner::Streamed;
        for heard in &mut self.cells {
            let _ = print::both(&heard.text(job, limit));
            *heard = Heard::keeping(self.most);
        }
    }

    /// Ends the line at the bottom of the terminal.
    pub(crate) fn ended(&self) {
        self.progress.clear();
    }

    /// Folds an output into those of its cell, and of the others that show the same display.
    fn fold(&mut self, said: &Said) {
        let content = said.content.get().as_bytes();
        let Some(shown) = self
            .cells
            .get_mut(said.cell)
            .and_then(|heard| heard.outputs.take(&said.msg_type, content))
        else {
            return;
        };
        let mut is_shown = false;
        for heard in &mut self.cells {
            is_shown |= heard.outputs.update(&shown);
        }
        // What was displayed before the follower came is not here; what became of it is news.
        if let Some(heard) = self.cells.get_mut(said.cell).filter(|_| !is_shown) {
            heard.outputs.take("display_data", content);
        }
    }

    /// Tells what changed of the job and its cells.
    fn tell_states(&mut self, job: &Job) {
        let of_cells = job.cells.iter().enumerate();
        // A cell has a word once it is over.
        let of_cells = of_cells.filter(|(_, cell)| cell.status.is_some());
        let of_cells = of_cells.map(|(at, cell)| {
            json!({
                "event": "cell", "at": at, "cell": cell.cell, "status": cell.status,
                "execution_count": cell.execution_count, "took_ms": cell.took_ms,
            })
        });
        let now = of_cells.chain((job.state != JobState::Done).then(|| state(job)));
        let now: Vec<_> = now.collect();
        for told in now.iter().filter(|told| !self.states.contains(told)) {
            let _ = print::json(told);
        }
        self.states = now;
    }

    /// Tells that a job runs, before what it says.
    fn tell_running(&mut self, job: &Job) {
        let now = state(job);
        if job.state == JobState::Running && !self.states.contains(&now) {
            let _ = print::json(&now);
            self.states.push(now);
        }
    }
}

fn state(job: &Job) -> Value {
    json!({
        "event": "state", "job": job.id, "state": job.state, "behind": job.behind,
        "prompt": job.prompt,
    })
}

impl Follower for News {
    fn hears(&mut self, job: &Job, said: &Said) -> ControlFlow<()> {
        let most = self.most;
        self.cells
            .resize_with(job.cells.len(), || Heard::keeping(most));
        let Some(heard) = self.cells.get_mut(said.cell) else {
            return ControlFlow::Continue(());
        };
        heard.is_news = true;
        let is_read = self.manner == Manner::Streamed || self.until.is_some();
        let output = (is_read || matches!(&*said.msg_type, "stream" | "error"))
            .then(|| fold::output(said))
            .flatten();
        if let Some(Output::Stream(stream)) = &output {
            heard.lines += stream.text.matches('\n').count();
            let mut lines = stream.text.rsplit(['\n', '\r']);
            if let Some(line) = lines.find(|line| !line.trim().is_empty()) {
                line.clone_into(&mut heard.last);
            }
        }
        if let Some(Output::Error(error)) = &output {
            heard.raised = Some(error.evalue.clone());
        }
        match (self.manner, &output) {
            (Manner::Folded, _) => self.fold(said),
            (Manner::Streamed, Some(output)) => {
                let _ = self.progress.above(|| print::streamed(output));
            }
            (Manner::Streamed, None) => {}
            (Manner::Events, _) => {
                self.tell_running(job);
                let cell = job.cells.get(said.cell).and_then(|cell| cell.cell.as_ref());
                // The content as the kernel wrote it.
                let _ = print::line(&format!(
                    "{{\"event\":\"output\",\"at\":{},\"cell\":{},\"msg_type\":{},\"content\":{}}}",
                    said.cell,
                    json!(cell),
                    json!(said.msg_type),
                    said.content.get()
                ));
            }
        }
        let is_enough = match (&mut self.until, &output) {
            (Some(until), Some(output)) => until.hears(output),
            _ => false,
        };
        if is_enough {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn sees(&mut self, job: &Job) {
        let last = self.cells.iter().rev().find(|heard| heard.is_news);
        self.progress
            .sees(job, last.map_or("", |heard| &heard.last));
        let age = Timestamp::now().duration_since(job.asked_at);
        if self.announces_job && job.state != JobState::Done && age.unsigned_abs() > SOON {
            self.announces_job = false;
            print::note(&format!("job {} · {}", job.id, what(job)));
        }
        if let Some(behind) = behind(job).filter(|_| self.announces_behind) {
            self.announces_behind = false;
            print::note(&format!("waiting behind {behind}"));
        }
        if self.manner == Manner::Events {
            self.tell_states(job);
        }
    }
}
