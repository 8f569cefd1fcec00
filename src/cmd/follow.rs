//! A job as the command line follows it, and what of it is printed.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::fault::{Fault, Kind};
use super::outputs::{self, Text};
use super::terminal::{CtrlC, Lines, can_ask};
use super::{Context, print};
use crate::ops::executions::fold::Outputs;
use crate::ops::executions::follow::{FollowError, Followed, Left, follow, taken};
use crate::project::jobs::{Ask, Job, JobCell, JobFolder, JobState, NoJob, Said};

/// How many characters of output are printed.
const LIMIT: usize = 6000;

/// How long a job is followed, and how much of it is printed.
#[derive(Args, Clone, Debug)]
pub(super) struct Patience {
    /// Wait at most this long for what runs, 0 is for ever; it goes on after that
    #[arg(long, value_name = "SECONDS", env = "NB_TIMEOUT")]
    timeout: Option<f64>,
    /// Print at most this many characters of output, head and tail; 0 is no limit
    #[arg(long, value_name = "CHARACTERS", default_value_t = LIMIT)]
    limit: usize,
}

/// A job that is followed.
pub(super) struct Following<'a> {
    context: &'a Context,
    folder: JobFolder,
    /// The outputs of each cell.
    outputs: Vec<Outputs>,
    /// What was said on stderr of what is waited for.
    told: bool,
}

impl<'a> Following<'a> {
    pub(super) fn new(context: &'a Context, folder: JobFolder) -> Self {
        Self {
            context,
            folder,
            outputs: Vec::new(),
            told: false,
        }
    }

    /// Says which job it is, and leaves it to itself.
    pub(super) fn leave(&self, json: bool) -> Result<ExitCode, Fault> {
        let job = self.folder.read()?;
        let _ = if json {
            self.context
                .answer(json!({ "job": job.id, "notebook": job.notebook, "state": job.state }))
        } else {
            print::line(&format!("job {} · {}", job.id, what(&job)))
        };
        Ok(ExitCode::SUCCESS)
    }

    /// Follows the job to its end, to the time limit, or to a question that nobody is here to answer,
    /// and prints what came of it; as one JSON object, with more fields, where there is one.
    pub(super) async fn follow(
        mut self,
        patience: &Patience,
        json: Option<Value>,
    ) -> Result<ExitCode, Fault> {
        let wait = match self.context.wait(patience.timeout)? {
            Some(wait) => wait,
            None if std::io::stdout().is_terminal() => None,
            None => Some(super::PATIENCE),
        };
        if json.is_none() {
            let job = self.folder.read()?;
            print::note(&format!("job {} · {}", job.id, what(&job)));
        }
        let followed = self.followed(wait, json.is_some()).await?;
        let code = code(&followed);
        let _ = match json {
            Some(more) => {
                let mut answer = self.object(&followed, patience.limit);
                if let (Value::Object(answer), Value::Object(more)) = (&mut answer, more) {
                    answer.extend(more);
                }
                self.context.answer(answer)
            }
            None => self.print(&followed, patience.limit),
        };
        Ok(ExitCode::from(code))
    }

    /// Follows it; at a terminal its questions are put, and Ctrl-C interrupts it.
    async fn followed(
        &mut self,
        wait: Option<std::time::Duration>,
        json: bool,
    ) -> Result<Followed, Fault> {
        let ctrl_c = CtrlC::listen().map_err(|error| Fault::failed("handle Ctrl-C", &error))?;
        let asks = can_ask() && !json;
        let lines = Lines::new();
        let folder = self.folder.clone();
        let (mut at, mut presses) = (0, 0);
        loop {
            let round = follow(&folder, &mut at, wait, |job, said| {
                self.sees(job, said, json);
            });
            let followed = tokio::select! {
                followed = round => followed?,
                () = ctrl_c.pressed() => {
                    presses += 1;
                    if presses > 1 {
                        return Err(Fault::new(
                            Kind::StillRunning,
                            format!("job {} goes on", folder.id()),
                        )
                        .hint(format!("nb wait {}", folder.id())));
                    }
                    let by = self.context.by.clone();
                    folder.ask(&Ask::Interrupt { by }).map_err(|error| {
                        Fault::failed("ask the recorder to interrupt", &error)
                    })?;
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
            let answer = lines.ask(&prompt.prompt, prompt.password).await;
            let text = answer.unwrap_or_else(|| "\u{4}".to_owned());
            folder
                .ask(&Ask::Reply { text })
                .map_err(|error| Fault::failed("hand the answer on", &error))?;
            // Until it is taken the question is still there.
            taken(&folder).await;
        }
    }

    fn sees(&mut self, job: &Job, said: &[Said], json: bool) {
        self.outputs.resize_with(job.cells.len(), Outputs::default);
        for said in said {
            if let Some(outputs) = self.outputs.get_mut(said.cell) {
                outputs.take_message(&said.msg_type, said.content.get().as_bytes());
            }
        }
        if let Some(behind) = job.behind.as_ref().filter(|_| !self.told && !json) {
            print::note(&format!("waiting behind {behind}"));
            self.told = true;
        }
    }

    /// Returns what came of the job as a program reads it.
    fn object(&self, followed: &Followed, limit: usize) -> Value {
        let job = &followed.job;
        let cells = job.cells.iter().enumerate().map(|(at, cell)| {
            let mut outputs = self.outputs.get(at).map(Outputs::read).unwrap_or_default();
            outputs::for_json(&mut outputs, (limit > 0).then_some(limit));
            let outputs = crate::ops::executions::fold::to_json(&outputs);
            json!({
                "cell": cell.cell, "revision": cell.revision, "status": cell.status,
                "execution_count": cell.execution_count, "took_ms": cell.took_ms,
                "outputs": outputs, "unwritten": cell.unwritten,
            })
        });
        json!({
            "job": job.id,
            "notebook": job.notebook,
            "state": if followed.left == Left::Lost { json!("lost") } else { json!(job.state) },
            "cells": cells.collect::<Vec<_>>(),
            "prompt": job.prompt,
            "behind": job.behind,
            "notes": job.notes,
            "kernel_generation": job.generation,
        })
    }

    /// Prints what came of the job: of several cells each with a line of its own.
    fn print(&self, followed: &Followed, limit: usize) -> std::io::Result<()> {
        let job = &followed.job;
        let several = job.cells.len() > 1;
        let shown: Vec<_> = job
            .cells
            .iter()
            .zip(&self.outputs)
            .filter(|(cell, _)| cell.begun_at.is_some())
            .collect();
        let limit = (limit > 0).then(|| limit / shown.len().max(1));
        for (cell, outputs) in shown {
            if several {
                print::line(&head(cell))?;
            }
            let Text { err, out } = outputs::text(&outputs.read(), limit);
            print::raw(out.as_bytes())?;
            if !err.is_empty() {
                print::note(err.trim_end_matches('\n'));
            }
        }
        for cell in &job.cells {
            if let (Some(id), Some(why)) = (&cell.cell, &cell.unwritten) {
                print::note(&format!("outputs of {id} are not in the notebook: {why}"));
            }
        }
        job.notes.iter().for_each(|note| print::note(note));
        let id = &job.id;
        match followed.left {
            Left::Over => {
                let ran = job
                    .cells
                    .iter()
                    .filter(|cell| cell.begun_at.is_some())
                    .count();
                if several && ran < job.cells.len() {
                    let rest = job.cells.len() - ran;
                    print::note(&format!("{rest} more cells were not run"));
                }
            }
            Left::StillRunning => {
                let seconds = jiff::Timestamp::now()
                    .duration_since(job.asked_at)
                    .as_secs();
                print::note(&format!(
                    "still running after {seconds} s: {}. Nothing is lost.",
                    what(job)
                ));
                print::note(&format!("next: nb wait {id} | nb interrupt {id}"));
            }
            Left::Asks => {
                let prompt = job.prompt.as_ref().map(|it| it.prompt.as_str());
                print::note(&format!("the code asks: {}", prompt.unwrap_or_default()));
                print::note(&format!("next: nb reply {id} TEXT | nb interrupt {id}"));
            }
            Left::Lost => print::note(&format!(
                "the recorder of job {id} was killed: what the code said after that is not kept \
                 (what it said before is in {})",
                self.folder.path().display()
            )),
        }
        Ok(())
    }
}

/// Returns what a job is about: `cell 3f2c of train.ipynb · running`.
pub(super) fn what(job: &Job) -> String {
    let state = match job.state {
        JobState::Queued => "queued",
        JobState::Running => "running",
        JobState::WaitingInput => "asks something",
        JobState::Done => "done",
    };
    let cells = match job.cells.as_slice() {
        [JobCell { cell: Some(id), .. }] => format!("cell {id} of {}", job.notebook),
        [_] => format!("code for {}", job.notebook),
        cells => format!("{} cells of {}", cells.len(), job.notebook),
    };
    format!("{cells} · {state}")
}

fn head(cell: &JobCell) -> String {
    let id = cell.cell.as_deref().unwrap_or("code");
    let count = cell
        .execution_count
        .map_or_else(String::new, |count| format!(" In[{count}]"));
    let status = cell.status.as_deref().unwrap_or("running");
    let took = cell.took_ms.map_or_else(String::new, |took| {
        format!(" {}", print::took(std::time::Duration::from_millis(took)))
    });
    format!("── {id}{count} {status}{took}")
}

/// What the end of a job means to the caller.
fn code(followed: &Followed) -> u8 {
    match followed.left {
        Left::StillRunning => return 4,
        Left::Asks => return 7,
        Left::Lost => return 1,
        Left::Over => {}
    }
    let statuses = followed
        .job
        .cells
        .iter()
        .filter_map(|cell| match cell.status.as_deref() {
            Some("error") if cell.may_raise => None,
            status => status,
        });
    let mut codes = statuses.map(|status| match status {
        "ok" => 0,
        "error" => 3,
        "interrupted" | "withdrawn" => 130,
        "kernel_died" => 6,
        "aborted" | "busy" => 5,
        _ => 1,
    });
    // The first that went wrong; those after it were not run.
    codes.find(|code| *code != 0).unwrap_or(0)
}

impl From<NoJob> for Fault {
    fn from(error: NoJob) -> Self {
        Self::new(Kind::Usage, super::fault::causes(&error)).hint("nb jobs lists them")
    }
}

impl From<FollowError> for Fault {
    fn from(error: FollowError) -> Self {
        Self::new(Kind::Failed, super::fault::causes(&error))
    }
}
