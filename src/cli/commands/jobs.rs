//! `nb jobs`, `nb wait`, `nb reply`: what runs, whoever asked for it.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use regex::Regex;
use serde_json::json;

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::commands::follow::{Following, Form, Patience};
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::cli::render::report::{behind, what};
use crate::cli::render::until::Until;
use crate::execution::reply::reply;
use crate::project::Project;
use crate::project::jobs::{Job, JobFolder, JobPrompt, JobState};

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
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// How many jobs that have ended are listed.
const ENDED: usize = 5;

impl Command for Jobs {
    const NAME: &'static str = "jobs";
    const GROUP: Group = Group::Running;

    fn notebook(&self) -> Option<PathBuf> {
        let mut words = self.words.iter();
        words
            .find(|word| word.ends_with(".ipynb"))
            .map(PathBuf::from)
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let is_notebook = |word: &&String| word.ends_with(".ipynb");
        let (notebooks, ids): (Vec<_>, Vec<_>) = self.words.iter().partition(is_notebook);
        if ids.len() > 1 || notebooks.len() > 1 {
            return Err(
                Problem::new(ProblemKind::Usage, "one job at a time").hint("nb jobs --help")
            );
        }
        let notebook = notebooks.first().map(PathBuf::from);
        if let Some(id) = ids.first() {
            // A notebook may have been moved elsewhere: the job is here.
            let project = context.caller.project_of(None)?;
            let folder = project.job(id)?;
            if !self.write {
                return context.show_job(&folder, self.json);
            }
            return context
                .write_job(
                    &project,
                    &folder,
                    notebook.as_deref(),
                    self.force,
                    self.json,
                )
                .await;
        }
        if self.write {
            let text = "which job's outputs? --write needs its id";
            return Err(Problem::new(ProblemKind::Usage, text).hint("nb jobs --all lists them"));
        }
        let project = context.caller.project_of(notebook.as_deref())?;
        let key = notebook.as_deref().map(|it| project.key(it));
        let most = if self.all { usize::MAX } else { ENDED };
        let jobs = read_last(&project, key.as_deref(), most);
        let (mut ended, mut shown): (Vec<_>, Vec<_>) = jobs
            .into_iter()
            .partition(|(_, job)| job.state == JobState::Done);
        ended.append(&mut shown);
        let _ = if self.json {
            let jobs = ended.iter().map(|(folder, job)| {
                let mut object = serde_json::to_value(job).unwrap_or_default();
                object["recorded"] = json!(is_recorded(folder, job));
                object
            });
            context.answer(&json!({ "jobs": jobs.collect::<Vec<_>>() }))
        } else if ended.is_empty() {
            print::line("no jobs")
        } else {
            let lines: Vec<_> = ended
                .iter()
                .map(|(folder, job)| line(folder, job))
                .collect();
            print::line(&lines.join("\n"))
        };
        Ok(ExitCode::SUCCESS)
    }
}

fn line(folder: &JobFolder, job: &Job) -> String {
    let mut line = format!("{}  {}  {}", job.id, job.by, what(job));
    match (job.ended_at, job.state) {
        (Some(ended), _) => {
            let first_bad = job.cells.iter().filter_map(|cell| cell.status.as_deref());
            let status = first_bad.clone().find(|it| *it != "ok").unwrap_or("ok");
            line = format!("{line} {status}  {}", print::moment(ended));
        }
        (None, JobState::Queued) => {
            if let Some(behind) = behind(job) {
                line = format!("{line} behind {behind}");
            }
            line = format!("{line}  since {}", print::moment(job.asked_at));
        }
        (None, _) => line = format!("{line}  since {}", print::moment(job.asked_at)),
    }
    if !is_recorded(folder, job) {
        line.push_str("  (its recorder was killed)");
    }
    if job.cells.iter().any(|cell| cell.unwritten.is_some()) {
        line.push_str("  (outputs are not in the notebook: nb jobs ");
        line.push_str(&job.id);
        line.push_str(" --write)");
    }
    line
}

fn is_recorded(folder: &JobFolder, job: &Job) -> bool {
    job.state == JobState::Done || job.generation.is_none() || folder.has_recorder()
}

/// Returns the jobs of a notebook, or of all, that run or wait, and at most so many of those that
/// ended last; the oldest first. Of the others nothing is read.
fn read_last(project: &Project, key: Option<&str>, most: usize) -> Vec<(JobFolder, Job)> {
    let open = project.open_jobs();
    let mut ended = 0;
    let mut jobs = Vec::new();
    for folder in project.jobs_lately() {
        let has_room = ended < most;
        if !has_room && open.iter().all(|open| open.id() != folder.id()) {
            continue;
        }
        let Ok(job) = folder.read() else { continue };
        let is_over = job.state == JobState::Done;
        if key.is_none_or(|key| key == job.notebook) && (has_room || !is_over) {
            ended += usize::from(is_over);
            jobs.push((folder, job));
        }
    }
    jobs.sort_by_key(|(_, job)| job.asked_at);
    jobs
}

/// Returns the job that was asked for last and is not over, else the last one.
fn last(project: &Project) -> Option<JobFolder> {
    let last_of = |folders: Vec<JobFolder>, wanted: fn(&Job) -> bool| {
        let read = |folder: JobFolder| Some((folder.read().ok()?, folder));
        let jobs = folders.into_iter().filter_map(read);
        let last = jobs
            .filter(|(job, _)| wanted(job))
            .max_by_key(|(job, _)| job.asked_at);
        last.map(|(_, folder)| folder)
    };
    last_of(project.open_jobs(), |job| job.state != JobState::Done)
        .or_else(|| last_of(project.jobs(), |_| true))
}

/// Follow a job to its end, and print what it says
///
/// Only what this name has not seen of it: of what nb exec, nb run or an earlier nb wait has shown, the
/// rest. Without JOB: the one that was asked for last and is not over, else the last one. With --until
/// it ends as soon as a line matches, and exits with 0 then; with the job's own code, or 1, where the
/// job is over and none did.
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
    patience: Patience,
    #[command(flatten)]
    pub(crate) form: Form,
}

impl Command for Wait {
    const NAME: &'static str = "wait";
    const GROUP: Group = Group::Running;
    const IS_FIRST: bool = true;

    fn json(&self) -> bool {
        self.form.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let project = context.caller.project_of(None)?;
        let folder = match &self.job {
            Some(id) => project.job(id)?,
            None => last(&project).ok_or_else(|| {
                Problem::new(ProblemKind::Usage, "there are no jobs")
                    .hint("nb exec CELL begins one")
            })?,
        };
        context.concerns(&project, &folder.read()?.notebook);
        let following = Following::new(context, folder, &self.patience, self.form);
        let following = if self.all {
            following
        } else {
            following.since_last()
        };
        following.until(self.until.map(Until::new)).follow().await
    }
}

/// Answer what a job's code asks
#[derive(Args, Debug)]
pub(crate) struct Reply {
    /// The job; a beginning of its id is enough
    job: String,
    /// The answer, or `-` to read a line from stdin; a password is taken from there only
    #[arg(allow_hyphen_values = true)]
    text: String,
    /// Also where nothing is known to be asked: a front end that was closed got the question
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Reply {
    const NAME: &'static str = "reply";
    const GROUP: Group = Group::Running;

    fn json(&self) -> bool {
        self.json
    }

    async fn run(self, context: &Context) -> Result<ExitCode, Problem> {
        let project = context.caller.project_of(None)?;
        let folder = project.job(&self.job)?;
        let job = folder.read()?;
        // What its code asks since, its front end was asked, and has gone.
        let unheard = job.front_end.is_some() && job.state == JobState::Running;
        let unseen = JobPrompt {
            prompt: String::new(),
            password: false,
        };
        let prompt = match &job.prompt {
            Some(prompt) => prompt,
            None if unheard && self.force => &unseen,
            None => {
                let text = format!("job {} asks nothing: {}", job.id, what(&job));
                let problem = Problem::new(ProblemKind::Refused, text);
                return Err(match unheard {
                    true => problem.hint(format!(
                        "if its code waits for input all the same: nb reply {} TEXT --force",
                        job.id
                    )),
                    false => problem,
                });
            }
        };
        if prompt.password && self.text != "-" {
            let text = "this is a password: others could read it in the list of processes";
            return Err(Problem::new(ProblemKind::Usage, text)
                .hint(format!("nb reply {} - < FILE", job.id)));
        }
        let mut text = self.text.clone();
        if text == "-" {
            text.clear();
            let read = std::io::stdin().read_to_string(&mut text);
            read.map_err(|error| Problem::failed("read the answer from stdin", &error))?;
            text.truncate(text.trim_end_matches(['\n', '\r']).len());
        }
        if !folder.has_recorder() {
            let text = format!(
                "nobody records job {} any more: its recorder was killed",
                job.id
            );
            return Err(Problem::new(ProblemKind::Failed, text)
                .hint("nb interrupt interrupts what the kernel runs"));
        }
        reply(&folder, prompt, text)
            .await
            .map_err(|error| Problem::failed("hand the answer on", &error))?;
        let _ = if self.json {
            context.answer(&json!({ "job": job.id, "answered": true }))
        } else {
            let told = format!("job {0}: answered · nb wait {0}", job.id);
            print::line(&context.commands().complete(&told))
        };
        Ok(ExitCode::SUCCESS)
    }
}
