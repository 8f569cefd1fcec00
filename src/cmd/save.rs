//! `nb save`: the file checked.

use std::convert::Infallible;
use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use super::cells::about;
use super::fault::{Fault, Kind};
use super::{Context, conflict, print};
use crate::kernel::python::quote;
use crate::notebook::{self, Document};
use crate::ops::editing::transaction;

/// Below this a size is told in bytes.
const SMALL: usize = 10_000;

/// Check that the file is whole, and print its revision
///
/// An edit is in the file when its command ends: nothing needs to be saved after it. What an earlier
/// command had to leave unfinished is finished now; then the notebook is read as a front end would
/// read it. Its bytes stay as they are.
#[derive(Args, Debug)]
#[command(override_usage = "nb save [OPTIONS] [NOTEBOOK]")]
pub(super) struct Save {
    /// The notebook; without it, the only open one
    #[arg(value_name = "NOTEBOOK")]
    words: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Save {
    /// Runs the command.
    pub(super) async fn run(mut self, context: &Context) -> Result<ExitCode, Fault> {
        let other = self.words.iter().find(|word| !word.ends_with(".ipynb"));
        if let Some(word) = other {
            let message = format!("{word:?} is no notebook: its name ends in .ipynb");
            return Err(Fault::new(Kind::Usage, message));
        }
        let page = context.page(&mut self.words, "nb save").await?;
        // A change of nothing writes nothing, and finishes what is pending.
        let written = transaction::write(&page, false, |document| {
            Ok::<_, Infallible>(document.clone())
        });
        let written = written.map_err(|error| conflict::of_write(&error))?;
        let document = written.after;
        let size: usize = document.chunks().map(<[u8]>::len).sum();
        let mut notes = written.notes;
        notes.extend(remarks(&document));
        let _ = if self.json {
            let mut answer = about(&page, &document);
            answer["bytes"] = json!(size);
            answer["notes"] = json!(notes);
            context.answer(answer)
        } else {
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
        Ok(ExitCode::SUCCESS)
    }
}

/// Returns what front ends would stumble over, or change by themselves.
fn remarks(document: &Document) -> Vec<String> {
    let mut remarks = Vec::new();
    let (major, _) = document.nbformat();
    if document.is_read_only() {
        remarks.push(format!(
            "format {major} is only read: `jupyter nbconvert --to notebook` makes it one of format 4"
        ));
        return remarks;
    }
    let cells = document.cells().iter();
    let without = cells.filter(|cell| !cell.has_own_id()).count();
    if without > 0 {
        remarks.push(format!(
            "{without} cells have no id of their own: the first edit adds them"
        ));
    }
    remarks
}
