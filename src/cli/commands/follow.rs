//! The common arguments of the commands that follow a job, and the printing of their answers.

use std::process::ExitCode;

use clap::Args;
use regex::Regex;

use crate::api::envelope::Answer;
use crate::api::job::{
    FollowOptions, JobAnswer, JobEnd, JobVerdict, OutputsAs, RunAnswer, describe,
};
use crate::api::problem::Problem;
use crate::cli::Context;
use crate::cli::args::time::seconds;
use crate::cli::render::print;
use crate::cli::render::watcher::{Printed, Reader, Watcher};
use crate::text::Part;
use crate::text::report::{Piece, report};

/// How many characters of output are printed.
pub(crate) const LIMIT: usize = 6000;

/// How long a job is followed, and how much of it is printed.
#[derive(Args, Clone, Debug)]
pub(crate) struct FollowLimits {
    /// Wait at most this long for what runs, 0 is for ever; it goes on after that
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT", value_parser = seconds)]
    pub(crate) timeout: Option<f64>,
    /// Print at most this many characters of output, head and tail; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
}

impl FollowLimits {
    /// Returns how many characters of output are printed; `None` is no limit.
    pub(crate) fn limit(&self) -> Option<usize> {
        (self.limit > 0).then_some(self.limit)
    }
}

/// When the outputs of a job are printed: once at its end by default.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Form {
    /// Print outputs as they come, whole
    #[arg(long, conflicts_with_all = ["events", "json"])]
    stream: bool,
    /// Print what happens as it happens, one JSON object a line
    #[arg(long, conflicts_with = "json")]
    events: bool,
}

impl Context {
    /// Returns the form that the answer's outputs should have.
    pub(crate) fn outputs(&self, form: &Form) -> OutputsAs {
        match form {
            _ if self.json => OutputsAs::Objects,
            Form { events: true, .. } | Form { stream: true, .. } => OutputsAs::Events,
            Form { .. } => OutputsAs::Text,
        }
    }

    /// Returns the options for following a job.
    pub(crate) fn follow_options(
        &self,
        limits: &FollowLimits,
        form: &Form,
        until: Option<Regex>,
    ) -> FollowOptions {
        FollowOptions {
            timeout: limits.timeout,
            limit: limits.limit(),
            outputs: self.outputs(form),
            images: false,
            in_short: !self.caller.is_person && limits.limit > 0,
            until,
        }
    }

    /// Returns the watcher that shows a job for this command.
    pub(crate) fn watcher(&self, form: &Form) -> Watcher {
        let printed = match (form.events, form.stream) {
            (true, _) => Printed::Events,
            (_, true) => Printed::AsTheyCome,
            _ => Printed::AtTheEnd,
        };
        let reader = match self.json || form.events {
            true => Reader::Program,
            false if self.caller.is_person => Reader::Person,
            false => Reader::Agent,
        };
        Watcher::new(printed, reader, self.can_ask())
    }

    /// Prints the result of a job that was started; `answer` is the whole answer.
    pub(crate) fn end_of_run(
        &self,
        run: &RunAnswer,
        answer: &impl Answer,
        form: &Form,
    ) -> Result<ExitCode, Problem> {
        let started = match run {
            RunAnswer::Followed(job) => return self.end_of_job(job, answer, form),
            RunAnswer::Begun(started) => started,
        };
        if form.events {
            return self.printed(&self.print_json(answer));
        }
        let text = format!("job {} · {}", started.job, describe(&started.record));
        self.print(answer, |_| print::line(&text))
    }

    /// Prints the result of a job that was followed; `answer` is the whole answer.
    pub(crate) fn end_of_job(
        &self,
        job: &JobAnswer,
        answer: &impl Answer,
        form: &Form,
    ) -> Result<ExitCode, Problem> {
        if form.events {
            self.printed(&self.print_json(&JobEnd::of(answer)))?;
        } else {
            self.print(answer, |_| {
                let printed = self.print_report(job);
                self.note_printed(&job.notes);
                printed
            })?;
        }
        Ok(ExitCode::from(code(job.verdict())))
    }

    pub(crate) fn print_report(&self, job: &JobAnswer) -> std::io::Result<()> {
        let commands = self.commands();
        // What each cell wrote to stderr stands below its head.
        let has_heads = job.record.cells.len() > 1;
        report(job).iter().try_for_each(|piece| {
            match piece {
                Piece::Head(line) => print::parts(&[Part::Own(line.clone())])?,
                Piece::Outputs(text) if has_heads => {
                    print::raw(text.err.as_bytes())?;
                    print::raw(text.out.as_bytes())?;
                }
                Piece::Outputs(text) => print::both(text)?,
                Piece::Note(text) => print::note(&commands.complete(text)),
            }
            Ok(())
        })
    }
}

/// Returns the exit code of a job.
fn code(verdict: JobVerdict) -> u8 {
    match verdict {
        JobVerdict::Succeeded => 0,
        JobVerdict::Failed => 1,
        JobVerdict::Raised => 3,
        JobVerdict::StillRunning => 4,
        JobVerdict::Aborted | JobVerdict::Edited => 5,
        JobVerdict::NoKernel => 6,
        JobVerdict::Asks => 7,
        JobVerdict::Interrupted => 130,
    }
}
