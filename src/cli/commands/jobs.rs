//! `nb jobs`, `nb wait`, `nb reply`: the jobs of a project, of any actor.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use regex::Regex;

use crate::api::job::{describe, describe_wait};
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{
    self, JobRecord, JobsRequest, ListedJob, QuestionRequest, ReplyRequest, WaitRequest,
    WriteJobAnswer, WriteJobRequest, WrittenCell,
};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::Command;
use crate::cli::commands::follow::{FollowLimits, Form};
use crate::cli::render::print;
use crate::hint;
use crate::hint::{Verb, nb};
use crate::project::event::CellEnd;
use crate::project::jobs::JobState;
use crate::text::report::head;

/// List the jobs that run or wait, and those that ended last
///
/// With a job's id: that one. Where its outputs are not in the notebook (it could not be written, or
/// the recorder was killed), --write puts them there: into their cells, by the cells' ids.
#[derive(Args, Debug)]
#[command(override_usage = "nb jobs [OPTIONS] [JOB] [NOTEBOOK]")]
pub(crate) struct Jobs {
    /// The job, by the beginning of its id; the notebook, without it all of the project
    #[arg(value_name = "WORD")]
    pub(crate) words: Vec<String>,
    /// Write the outputs that the job keeps into its notebook, or into the one that is named
    #[arg(long)]
    write: bool,
    /// With --write: also where the cell was run again since, or an editor has unsaved changes
    #[arg(long, requires = "write")]
    force: bool,
    /// Those that have ended too, all of them
    #[arg(long)]
    all: bool,
}

impl Command for Jobs {
    fn take_notebook(&mut self) -> Option<PathBuf> {
        // Beside a job's id, the notebook is the one into which the job's outputs are written.
        (self.words.len() == 1).then(|| first_notebook(&self.words))?
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let is_notebook = |word: &&String| word.ends_with(".ipynb");
        let (notebooks, ids): (Vec<_>, Vec<_>) = self.words.iter().partition(is_notebook);
        if ids.len() > 1 || notebooks.len() > 1 {
            return Err(
                Problem::new(ProblemKind::Usage, "one job at a time").hint("nb jobs --help")
            );
        }
        match ids.first() {
            Some(id) if self.write => {
                let request = WriteJobRequest {
                    job: (*id).clone(),
                    notebook: notebooks.first().map(PathBuf::from),
                    force: self.force,
                };
                let answer = api::write_job(&context.caller, request).await?;
                context.end_of_write(&answer)
            }
            Some(id) => {
                let answer = api::job(&context.caller, id).await?;
                context.print(&answer, |answer| context.show_job(answer))
            }
            None if self.write => {
                let text = "which job's outputs? --write needs its id";
                Err(Problem::new(ProblemKind::Usage, text)
                    .hint(hint![nb(Verb::Jobs).option("--all"), " lists them"]))
            }
            None => {
                let request = JobsRequest { all: self.all };
                let answer = api::jobs(&context.caller, request).await?;
                context.print(&answer, |answer| {
                    let mut lines: Vec<_> = answer.jobs.iter().map(line).collect();
                    lines.extend(answer.waits.iter().map(|it| format!("waits: {}", it.text)));
                    match lines.is_empty() {
                        true => print::line("no jobs"),
                        false => print::lines(&lines),
                    }
                })
            }
        }
    }
}

fn line(listed: &ListedJob) -> String {
    let job = &listed.job;
    let mut line = format!("{}  {}  {}", job.id, job.by, describe(job));
    match (job.ended_at, job.state) {
        (Some(ended), _) => {
            let mut statuses = job.cells.iter().filter_map(|cell| cell.status);
            let status = statuses
                .find(|it| *it != CellEnd::Ok)
                .unwrap_or(CellEnd::Ok);
            line = format!("{line} {}  {}", status.word(), print::moment(ended));
        }
        (None, JobState::Queued) => {
            if let Some(behind) = describe_wait(job) {
                line = format!("{line} behind {behind}");
            }
            line = format!("{line}  since {}", print::moment(job.asked_at));
        }
        (None, _) => line = format!("{line}  since {}", print::moment(job.asked_at)),
    }
    if !listed.recorded {
        line.push_str("  (its recorder was killed)");
    }
    if job.cells.iter().any(|cell| cell.unwritten.is_some()) {
        line.push_str("  (outputs are not in the notebook: nb jobs ");
        line.push_str(&job.id);
        line.push_str(" --write)");
    }
    line
}

impl Context {
    /// Prints one job.
    fn show_job(&self, record: &JobRecord) -> std::io::Result<()> {
        let job = &record.listed.job;
        let mut lines = vec![format!(
            "job {} · {} · {} · since {}",
            job.id,
            job.by,
            describe(job),
            print::moment(job.asked_at)
        )];
        for cell in &job.cells {
            lines.push(head(cell));
            if let Some(why) = &cell.unwritten {
                lines.push(format!("   its outputs are not in the notebook: {why}"));
            }
        }
        lines.extend(job.notes.iter().cloned());
        let printed = print::lines(&lines);
        if job.cells.iter().any(|cell| cell.unwritten.is_some()) {
            let write = nb(Verb::Jobs).job(&job.id).option("--write");
            print::note(&self.commands().complete(&hint!["next: ", write]));
        }
        printed
    }

    /// Prints which of a job's recorded outputs were written.
    fn end_of_write(&self, answer: &WriteJobAnswer) -> Result<ExitCode, Problem> {
        let (written, missed): (Vec<_>, Vec<_>) =
            answer.cells.iter().partition(|cell| cell.written);
        self.print(answer, |answer| {
            let id = &answer.job;
            if !written.is_empty() {
                let cells: Vec<_> = written.iter().copied().map(name).collect();
                let notebook = answer.notebook.display();
                let cells = cells.join(", ");
                print::line(&format!("job {id}: outputs of {cells} are in {notebook}"))?;
            }
            for cell in written.iter().filter(|cell| cell.stale) {
                print::note(&format!(
                    "cell {} says something else by now: its outputs say so",
                    name(cell)
                ));
            }
            for cell in &missed {
                let why = cell.why.as_deref().unwrap_or_default();
                print::note(&format!("outputs of {} are not written: {why}", name(cell)));
            }
            if !missed.is_empty() {
                print::note(&format!(
                    "they stay in job {id}: nb wait {id} shows them, --force writes over what ran since"
                ));
            }
            Ok(())
        })?;
        Ok(match missed.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(5),
        })
    }
}

fn name(cell: &WrittenCell) -> String {
    let id = cell.cell.clone();
    id.unwrap_or_else(|| format!("{} of the job", cell.at))
}

/// Follow a job to its end, and print what it says
///
/// Only what this name has not seen of it: of what nb exec, nb run or an earlier nb wait has shown, the
/// rest. Without JOB: your oldest one that is not over, else what runs now, else your last one, and it
/// says which. With --until it ends as soon as a line matches, and exits with 0 then; with the job's own
/// code, or 1, where the job is over and none did.
#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// The job; a beginning of its id is enough
    job: Option<String>,
    /// End at a line, of what is new, that matches this regular expression; the job goes on
    #[arg(long, value_name = "REGEX")]
    until: Option<Regex>,
    /// All that it said, not only what is new
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    limits: FollowLimits,
    #[command(flatten)]
    form: Form,
}

impl Command for Wait {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let watcher = context.watcher(&self.form);
        if self.job.is_none() {
            // The request prints which job it follows.
            watcher.announces_no_job();
        }
        let request = WaitRequest {
            job: self.job,
            all: self.all,
            follow: context.follow_options(&self.limits, &self.form, self.until),
        };
        let answer = api::wait(&context.caller, request, &watcher).await;
        watcher.end();
        let answer = answer?;
        context.end_of_job(&answer, &answer, &self.form)
    }
}

/// Answer what a job's code asks, and follow the job
///
/// Off a terminal it follows 45 s at most; exit code 4 then says that the job goes on.
#[derive(Args, Debug)]
#[command(override_usage = "nb reply [OPTIONS] [JOB] <TEXT>")]
pub(crate) struct Reply {
    /// The answer, or `-` to read a line from stdin; a password is taken from there only. The job may stand
    /// before it, or the beginning of its id; without it, the one job that asks is meant
    #[arg(required = true, num_args = 1..=2, value_name = "TEXT")]
    words: Vec<String>,
    /// Also where nothing is known to be asked: a front end that was closed got the question
    #[arg(long)]
    force: bool,
    /// Answer and do not follow: nb wait does
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    limits: FollowLimits,
    #[command(flatten)]
    form: Form,
}

impl Command for Reply {
    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let mut words = self.words.into_iter();
        let (job, text) = match (words.next(), words.next()) {
            (job, Some(text)) => (job, text),
            (text, None) => (None, text.unwrap_or_default()),
        };
        let request = QuestionRequest {
            job,
            force: self.force,
            number: None,
        };
        let question = api::question(&context.caller, request).await?;
        let id = question.job.clone();
        if question.prompt.password && text != "-" {
            let text = "this is a password: others could read it in the list of processes";
            let reply = nb(Verb::Reply).job(&id).stdin("FILE");
            return Err(Problem::new(ProblemKind::Usage, text).hint(reply));
        }
        let mut text = text;
        if text == "-" {
            text.clear();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Problem::failed("read the answer from stdin", &error))?;
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
        }
        let request = ReplyRequest { question, text };
        let answer = api::reply(&context.caller, request).await?;
        if self.detach {
            let wait = nb(Verb::Wait).job(&id);
            let line = hint![format!("job {id}: answered · "), wait];
            let line = context.commands().complete(&line);
            return context.print(&answer, |_| print::line(&line));
        }
        let watcher = context.watcher(&self.form);
        watcher.announces_no_job();
        let request = WaitRequest {
            job: Some(id),
            all: false,
            follow: context.follow_options(&self.limits, &self.form, None),
        };
        let answer = api::wait(&context.caller, request, &watcher).await;
        watcher.end();
        let answer = answer?;
        context.end_of_job(&answer, &answer, &self.form)
    }
}
