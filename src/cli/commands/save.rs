//! `nb save`: what recorders hold written, and the file checked.

use std::convert::Infallible;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem;
use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::args::first_notebook;
use crate::cli::commands::cells::about;
use crate::cli::commands::{Command, Group};
use crate::cli::render::print;
use crate::editing::transaction;
use crate::execution::flush::{Flushed, flush};
use crate::kernel::shell::quote;
use crate::notebook::{self, Document};
use crate::project::jobs::Job;

/// Below this a size is told in bytes.
const SMALL: usize = 10_000;

/// Have running cells' outputs written, check that the file is whole, and print its revision
///
/// An edit is in the file when its command ends: nothing needs to be saved after it. Outputs of a cell
/// that runs go into the file every few seconds or seldom, and all at its end; nb save has what came so
/// far written now, and says of which cells. What an earlier command had to leave unfinished is finished
/// too; then the notebook is read as a front end would read it. Exits with 1 where outputs could not be
/// written: their job keeps them.
#[derive(Args, Debug)]
#[command(override_usage = "nb save [OPTIONS] [NOTEBOOK]")]
pub(crate) struct Save {
    /// The notebook; without it, the only open one
    #[arg(value_name = "NOTEBOOK")]
    pub(crate) words: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Command for Save {
    const NAME: &'static str = "save";
    const GROUP: Group = Group::Notebook;

    fn notebook(&self) -> Option<PathBuf> {
        first_notebook(&self.words)
    }

    fn json(&self) -> bool {
        self.json
    }

    async fn run(mut self, context: &Context) -> Result<ExitCode, Problem> {
        let other = self.words.iter().find(|word| !word.ends_with(".ipynb"));
        if let Some(word) = other {
            let message = format!("{word:?} is no notebook: its name ends in .ipynb");
            return Err(Problem::new(ProblemKind::Usage, message));
        }
        let page = context.page(&mut self.words).await?;
        let flushed = flush(&page.project, &page.key, || page.read().ok()).await;
        let flushed = flushed.map_err(|error| Problem::failed("ask the recorders", &error))?;
        // A change of nothing writes nothing, and finishes what is pending.
        let written = transaction::write(&page, false, |document| {
            Ok::<_, Infallible>(document.clone())
        });
        let written = written.map_err(|error| problem::of_write(&error))?;
        let document = written.after;
        let size: usize = document.chunks().map(<[u8]>::len).sum();
        let mut notes = written.notes;
        notes.extend(remarks(&document));
        let _ = if self.json {
            let mut answer = about(&page, &document);
            answer["bytes"] = json!(size);
            answer["notes"] = json!(notes);
            answer["flushed"] = flushed.iter().map(in_json).collect();
            context.answer(&answer)
        } else {
            for flushed in &flushed {
                say(flushed);
            }
            notes.iter().for_each(|note| print::note(note));
            let (major, minor) = document.nbformat();
            let bytes = match size {
                0..SMALL => format!("{size} bytes"),
                _ => notebook::size(size as u64),
            };
            print::line(&format!(
                "{}: revision {} · {} cells · format {major}.{minor} · {bytes}",
                quote(&page.path),
                document.revision(),
                document.cells().len(),
            ))
        };
        let is_whole = |it: &Flushed| it.heard && it.missed.is_empty();
        Ok(match flushed.iter().all(is_whole) {
            true => ExitCode::SUCCESS,
            false => ExitCode::FAILURE,
        })
    }
}

fn in_json(flushed: &Flushed) -> Value {
    let missed = flushed.missed.iter();
    let missed = missed.map(|(cell, why)| json!({ "cell": cell, "why": why }));
    json!({
        "job": flushed.job.id,
        "by": flushed.job.by,
        "answered": flushed.heard,
        "written": flushed.written,
        "unwritten": missed.collect::<Vec<_>>(),
    })
}

/// Says what a recorder has written, and what not.
fn say(flushed: &Flushed) {
    let Job { id, by, .. } = &flushed.job;
    if !flushed.heard {
        let text = format!("job {id} ({by}): its recorder has not written its outputs in time");
        print::note(&format!("{text}; next: nb jobs {id} --write"));
        return;
    }
    for (cell, why) in &flushed.missed {
        let text = format!("job {id} ({by}): outputs of {cell} are not in the file: {why}");
        print::note(&format!(
            "{text}; they stay in the job: nb jobs {id} --write"
        ));
    }
    if flushed.missed.is_empty() {
        let _ = print::line(&match flushed.written.as_slice() {
            [] => format!("job {id} ({by}): all its outputs so far were in the file"),
            cells => format!("job {id} ({by}): wrote its outputs of {}", cells.join(", ")),
        });
    }
}

/// Returns what front ends would stumble over, or change by themselves.
fn remarks(document: &Document) -> Vec<String> {
    let mut remarks = Vec::new();
    let (major, minor) = document.nbformat();
    if document.is_read_only() {
        remarks.push(format!(
            "format {major} is only read: `jupyter nbconvert --to notebook` makes it one of format 4"
        ));
        return remarks;
    }
    let cells = document.cells().iter();
    let without = cells.filter(|cell| !cell.has_own_id()).count();
    // An older format has no ids.
    if without > 0 && minor >= 5 {
        remarks.push(format!(
            "{without} cells have no id of their own: nb fmt --write adds them"
        ));
    }
    remarks
}
