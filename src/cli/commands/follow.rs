//! How the commands that follow a job do it: their common arguments, and the printing of the answer.

use std::process::ExitCode;

use clap::Args;
use regex::Regex;

use crate::api::envelope::Answer;
use crate::api::job::{FollowOptions, JobAnswer, JobEnd, OutputsAs, RunAnswer, describe};
use crate::cli::Context;
use crate::cli::render::print;
use crate::cli::render::report::{self, Report};
use crate::cli::render::watcher::{Printed, Reader, Watcher};

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
    /// Returns the seconds to wait, where they are given.
    pub(crate) fn timeout(&self) -> Option<f64> {
        self.timeout
    }

    /// Returns how many characters of output are printed; none is no limit.
    pub(crate) fn limit(&self) -> Option<usize> {
        (self.limit > 0).then_some(self.limit)
    }

    /// Returns how a job is followed.
    pub(crate) fn options(&self, form: &Form, until: Option<Regex>) -> FollowOptions {
        FollowOptions {
            timeout: self.timeout,
            limit: self.limit(),
            outputs: form.outputs(),
            until,
        }
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

    /// Says whether a program reads what is printed.
    pub(crate) fn is_json(&self) -> bool {
        self.json || self.events
    }

    /// Returns how the answer is to have the outputs.
    pub(crate) fn outputs(&self) -> OutputsAs {
        match self {
            Self { json: true, .. } => OutputsAs::Objects,
            Self { events: true, .. } | Self { stream: true, .. } => OutputsAs::Events,
            _ => OutputsAs::Text,
        }
    }
}

impl Context {
    /// Returns what watches a job for this command.
    pub(crate) fn watcher(&self, form: &Form) -> Watcher {
        let printed = match (form.events, form.stream) {
            (true, _) => Printed::Events,
            (_, true) => Printed::AsTheyCome,
            _ => Printed::AtTheEnd,
        };
        let reader = match form.is_json() {
            true => Reader::Program,
            false if self.caller.actor.is_person => Reader::Person,
            false => Reader::Agent,
        };
        Watcher::new(printed, reader, self.can_ask())
    }

    /// Prints what came of a job that was begun; `answer` is all of the answer.
    pub(crate) fn end_of_run(
        &self,
        run: &RunAnswer,
        answer: &impl Answer,
        form: &Form,
    ) -> ExitCode {
        match run {
            RunAnswer::Followed(job) => self.end_of_job(job, answer, form),
            RunAnswer::Begun(begun) => {
                let _ = if form.is_json() {
                    self.answer(answer)
                } else {
                    print::line(&format!("job {} · {}", begun.job, describe(&begun.record)))
                };
                ExitCode::SUCCESS
            }
        }
    }

    /// Prints what came of a job that was followed; `answer` is all of the answer.
    pub(crate) fn end_of_job(
        &self,
        job: &JobAnswer,
        answer: &impl Answer,
        form: &Form,
    ) -> ExitCode {
        let _ = if form.events {
            self.answer(&JobEnd::of(answer))
        } else if form.json {
            self.answer(answer)
        } else {
            let commands = self.commands();
            let report = Report {
                answer: job,
                commands,
            };
            let printed = report.print();
            self.has_told(&job.notes);
            printed
        };
        job.delivered(&self.caller);
        ExitCode::from(report::code(job.verdict()))
    }
}
