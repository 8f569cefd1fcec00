//! A job as the command line follows it.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use crate::api::outputs::Cut;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::render::news::{Audience, Manner, News};
use crate::cli::render::print;
use crate::cli::render::report::{Report, what};
use crate::cli::render::until::Until;
use crate::cli::terminal::{CtrlC, Lines};
use crate::execution::follow::{Followed, Left, follow, taken};
use crate::execution::reply::reply;
use crate::execution::run::EOF;
use crate::notebook::OmittedOutput;
use crate::project::cursor::Cursor;
use crate::project::jobs::{Ask, JobFolder, JobState};

/// How many characters of output are printed.
pub(crate) const LIMIT: usize = 6000;

/// How long a job is followed, and how much of it is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct Patience {
    /// Wait at most this long for what runs, 0 is for ever; it goes on after that
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT")]
    timeout: Option<f64>,
    /// Print at most this many characters of output, head and tail; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
}

impl Patience {
    /// Returns how long is to be waited; none is for ever. Where no person waits it is not long, unless
    /// that is said.
    pub(crate) fn wait(&self, context: &Context) -> Result<Option<Duration>, Problem> {
        Ok(match context.caller.wait(self.timeout)? {
            Some(wait) => wait,
            None if context.caller.actor.is_person => None,
            None => Some(crate::api::caller::PATIENCE),
        })
    }

    /// Returns how output is cut; `more` tells what shows the rest.
    pub(crate) fn cut(&self, more: &str) -> Cut {
        Cut {
            limit: self.limit(),
            left_out: OmittedOutput::default(),
            more: more.to_owned(),
        }
    }

    fn limit(&self) -> Option<usize> {
        (self.limit > 0).then_some(self.limit)
    }
}

/// How what a job says is printed: once at its end, unless it is said otherwise.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Form {
    /// Print outputs as they come, whole
    #[arg(long, conflicts_with_all = ["events", "json"])]
    stream: bool,
    /// Print what happens as it happens, one JSON object a line
    #[arg(long, conflicts_with = "json")]
    events: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Form {
    /// One JSON object, or text.
    pub(crate) fn of_json(json: bool) -> Self {
        Self {
            json,
            ..Self::default()
        }
    }
}

/// A job that is followed.
pub(crate) struct Following<'a> {
    context: &'a Context,
    folder: JobFolder,
    patience: &'a Patience,
    form: Form,
    /// Fields of the JSON object beside the job's.
    more: Value,
    until: Option<Until>,
    /// What this name has seen of it.
    seen: Cursor,
}

impl<'a> Following<'a> {
    pub(crate) fn new(
        context: &'a Context,
        folder: JobFolder,
        patience: &'a Patience,
        form: Form,
    ) -> Self {
        Self {
            context,
            folder,
            patience,
            form,
            more: json!({}),
            until: None,
            seen: Cursor::default(),
        }
    }

    /// Adds fields to the JSON object.
    pub(crate) fn with(mut self, more: Value) -> Self {
        self.more = more;
        self
    }

    /// Begins where this name has looked last.
    pub(crate) fn since_last(mut self) -> Self {
        self.seen = self.folder.cursor(self.context.by());
        self
    }

    /// Ends the following at a line, if one is given.
    pub(crate) fn until(mut self, until: Option<Until>) -> Self {
        self.until = until;
        self
    }

    /// Says which job it is, and leaves it to itself.
    pub(crate) fn leave(&self) -> Result<ExitCode, Problem> {
        let job = self.folder.read()?;
        let _ = if self.form.json || self.form.events {
            self.context
                .answer(&json!({ "job": job.id, "notebook": job.notebook, "state": job.state }))
        } else {
            print::line(&format!("job {} · {}", job.id, what(&job)))
        };
        Ok(ExitCode::SUCCESS)
    }

    /// Follows the job to its end, to the time limit, to the line that is waited for, or to a question
    /// that nobody is here to answer, and prints what came of it.
    pub(crate) async fn follow(mut self) -> Result<ExitCode, Problem> {
        let wait = self.patience.wait(self.context)?;
        let limit = self.patience.limit();
        let manner = match (self.form.events, self.form.stream) {
            (true, _) => Manner::Events,
            (_, true) => Manner::Streamed,
            _ => Manner::Folded,
        };
        let mut news = News::new(
            manner,
            limit.map(kept),
            self.until.take(),
            match self.form.json || self.form.events {
                true => Audience::Program,
                false if self.context.caller.actor.is_person => Audience::Person,
                false => Audience::Agent,
            },
        );
        let (begun, mut at) = (Instant::now(), self.seen.at);
        let followed = self.followed(&mut news, &mut at, wait, limit).await;
        news.ended();
        let followed = followed?;
        let report = Report {
            folder: &self.folder,
            followed: &followed,
            news: &news,
            seen: self.seen,
            limit,
            waited: begun.elapsed(),
            commands: self.context.commands(),
        };
        if self.form.json || self.form.events {
            let mut answer = report.object();
            if let (Value::Object(answer), Value::Object(more)) = (&mut answer, &mut self.more) {
                answer.append(more);
                if self.form.events {
                    answer.insert("event".to_owned(), json!("end"));
                    // They were told as they came.
                    answer.shift_remove("outputs");
                    let cells = answer.get_mut("cells").and_then(Value::as_array_mut);
                    for cell in cells.into_iter().flatten().filter_map(Value::as_object_mut) {
                        cell.shift_remove("outputs");
                    }
                }
            }
            let _ = self.context.answer(&answer);
        } else {
            let _ = report.print();
            self.context.has_told(&followed.job.notes);
        }
        let over = followed.job.cells.iter();
        let over = over.take_while(|cell| cell.status.is_some()).count();
        // Where it cannot be remembered the same is shown again.
        let _ = self
            .folder
            .move_cursor(self.context.by(), Cursor { at, over });
        Ok(ExitCode::from(report.code()))
    }

    /// Follows it; at a terminal its questions are put, and Ctrl-C interrupts it.
    async fn followed(
        &self,
        news: &mut News,
        at: &mut u64,
        wait: Option<Duration>,
        limit: Option<usize>,
    ) -> Result<Followed, Problem> {
        let ctrl_c = CtrlC::listen().map_err(|error| Problem::failed("handle Ctrl-C", &error))?;
        let asks = self.context.can_ask() && !self.form.json && !self.form.events;
        let lines = Lines::new();
        let folder = &self.folder;
        let mut is_interrupted = false;
        loop {
            let followed = tokio::select! {
                followed = follow(folder, at, wait, news) => followed?,
                () = ctrl_c.pressed() => {
                    let job = folder.read()?;
                    if std::mem::replace(&mut is_interrupted, true) && job.state != JobState::Done {
                        news.ended();
                        let text = format!("job {} goes on", folder.id());
                        let hint = format!("nb wait {}", folder.id());
                        return Err(Problem::new(ProblemKind::StillRunning, text).hint(hint));
                    }
                    self.interrupt()?;
                    continue;
                }
            };
            let Some(prompt) = followed
                .job
                .prompt
                .clone()
                .filter(|_| asks && followed.left == Left::Asks)
            else {
                return Ok(followed);
            };
            news.catch_up(&followed.job, limit);
            let answer = tokio::select! {
                answer = lines.ask(&prompt.prompt, prompt.password) => answer,
                () = ctrl_c.pressed() => {
                    is_interrupted = true;
                    self.interrupt()?;
                    taken(folder).await;
                    continue;
                }
            };
            let text = answer.unwrap_or_else(|| EOF.to_owned());
            // Until it is taken the question is still there.
            reply(folder, &prompt, text)
                .await
                .map_err(|error| Problem::failed("hand the answer on", &error))?;
        }
    }

    fn interrupt(&self) -> Result<(), Problem> {
        let by = self.context.by().to_owned();
        let asked = self.folder.ask(&Ask::Interrupt { by });
        asked.map_err(|error| Problem::failed("ask the recorder to interrupt", &error))
    }
}

/// How many bytes of a cell are kept to show so many characters of it.
fn kept(limit: usize) -> usize {
    limit.saturating_mul(8).max(1 << 20)
}
