//! Edits as the command line makes and tells them.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use super::fault::{Fault, Kind};
use super::{Context, print};
use crate::notebook::{Change, Changed, Document, Operation};
use crate::ops::asker;
use crate::ops::edit::{self, Done, Editor};
use crate::ops::page::Page;

/// How a notebook is edited and what of it is told.
#[derive(Args, Debug, Default)]
pub(super) struct Manner {
    /// Write even where a cell is not what you saw last: the last writer wins
    #[arg(long)]
    pub(super) force: bool,
    /// Do not wait while a front end's own cell runs in this notebook
    #[arg(long)]
    pub(super) now: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

impl Context {
    /// Returns who edits.
    pub(super) fn editor(&self, manner: &Manner) -> Editor {
        // A person sees the notebook in an editor, of which nothing is known here.
        let is_person = std::io::stdout().is_terminal() && !asker::is_agent(&self.by);
        Editor {
            by: self.by.clone(),
            force: manner.force,
            now: manner.now,
            must_have_seen: !is_person,
            tell: print::note,
        }
    }

    /// Does operations on a notebook and tells what came of them; `command` is the subcommand.
    pub(super) fn edit(
        &self,
        page: &Page,
        operations: &[Operation],
        manner: &Manner,
        command: &str,
    ) -> Result<ExitCode, Fault> {
        let done = edit::apply(page, operations, &self.editor(manner));
        let done = done.map_err(|error| Fault::from(error).again(command))?;
        Ok(self.tell(page, &done, manner.json, command))
    }

    /// Tells what came of an edit. What of it is not in the notebook is a conflict.
    pub(super) fn tell(&self, page: &Page, done: &Done, json: bool, command: &str) -> ExitCode {
        self.tell_with(page, done, json.then(|| json!({})), command)
    }

    /// Tells what came of an edit; as one JSON object, with more fields, where there is one.
    pub(super) fn tell_with(
        &self,
        page: &Page,
        done: &Done,
        json: Option<Value>,
        command: &str,
    ) -> ExitCode {
        let fault = (!done.conflicts.is_empty()).then(|| {
            let count = done.conflicts.len();
            let these = if count == 1 { "this is" } else { "these are" };
            let message = format!(
                "somebody saved the same lines meanwhile, which stay; {these} not in the notebook:"
            );
            Fault::new(Kind::Conflict, message)
                .with_conflicts(&done.conflicts, false)
                .again(command)
        });
        let code = fault.as_ref().map_or(ExitCode::SUCCESS, Fault::code);
        if let Some(Value::Object(more)) = json {
            let mut answer = json!({
                "notebook": page.key,
                "path": page.real,
                "revision": done.document.revision(),
                "op": done.op,
                "changes": done.changes,
                "conflicts": done.conflicts,
                "notes": done.notes,
            });
            if let Some(fault) = fault {
                answer["error"] = fault.object()["error"].take();
            }
            if let Value::Object(answer) = &mut answer {
                answer.extend(more);
            }
            let _ = self.answer(answer);
        } else {
            let _ = print::raw(text(done).as_bytes());
            done.notes.iter().for_each(|note| print::note(note));
            if let Some(fault) = fault {
                fault.report(false);
            }
        }
        code
    }
}

/// Returns a line for each change, and with the last the notebook's revision.
fn text(done: &Done) -> String {
    let lines = runs(&done.changes);
    let lines = lines.iter().map(|it| line(it, &done.document));
    let mut lines: Vec<_> = lines.collect();
    let mut end = format!("notebook {}", done.document.revision());
    if let Some(op) = &done.op {
        end = format!("{end} · nb undo {op}");
    }
    match lines.as_mut_slice() {
        [] => lines.push(format!("unchanged · {end}")),
        [line] => *line = format!("{line} · {end}"),
        _ => lines.push(end),
    }
    lines.push(String::new());
    lines.join("\n")
}

/// Returns the changes, those of one cell that follow each other as one.
fn runs(changes: &[Changed]) -> Vec<Changed> {
    let mut runs: Vec<Changed> = Vec::new();
    for change in changes {
        let is_text = |it: &Changed| matches!(it.what, Change::Edited | Change::Nothing);
        match runs.last_mut() {
            Some(last) if last.cell == change.cell && is_text(last) && is_text(change) => {
                last.after = change.after;
                if change.what == Change::Edited {
                    last.what = Change::Edited;
                }
            }
            _ => runs.push(change.clone()),
        }
    }
    runs
}

fn line(change: &Changed, document: &Document) -> String {
    let cell = document.cells().get(change.index);
    let has_outputs = cell.is_some_and(|cell| cell.id() == change.cell && cell.has_run());
    let what = match change.what {
        Change::Nothing => "unchanged",
        Change::Inserted => "inserted",
        Change::Edited => "edited",
        Change::Moved => "moved",
        // An undo brings them back.
        Change::Outputs if has_outputs => "outputs are back:",
        Change::Outputs => "cleared",
        Change::Removed => "removed",
    };
    let Changed { cell, index, .. } = change;
    let revisions = match (change.before, change.after) {
        (Some(before), Some(after)) if before != after => format!(" {before} → {after}"),
        (_, Some(revision)) | (Some(revision), None) => format!(" {revision}"),
        (None, None) => String::new(),
    };
    let index = match change.what {
        Change::Removed => format!("was cell {index}"),
        _ => format!("cell {index}"),
    };
    format!("{what} {cell} ({index}){revisions}")
}
