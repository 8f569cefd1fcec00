//! Edits as the command line makes and tells them.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};

use crate::api::problem::{Problem, ProblemKind};
use crate::cli::Context;
use crate::cli::render::conflict::with_repeat;
use crate::cli::render::problem;

use crate::cli::render::print;
use crate::editing::edit::{self, Done, Editor};
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{Cell, CellChange, ChangeKind, Conflict, Operation};

/// How a notebook is edited and what of it is told.
#[derive(Args, Debug, Default)]
pub(crate) struct Manner {
    /// Write even where a cell is not what you saw last: the last writer wins
    #[arg(long)]
    pub(crate) force: bool,
    /// Do not wait while a front end's own cell runs in this notebook
    #[arg(long)]
    pub(crate) now: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

impl Context {
    /// Returns who edits.
    pub(crate) fn editor(&self, manner: &Manner) -> Editor {
        Editor {
            by: self.by().to_owned(),
            force: manner.force,
            now: manner.now,
            // A person sees the notebook in an editor, of which nothing is known here.
            must_have_seen: !self.caller.actor.is_person,
            tell: print::note,
        }
    }

    /// Does operations on a notebook and tells what came of them; `command` is the subcommand.
    pub(crate) fn edit(
        &self,
        page: &NotebookFile,
        operations: &[Operation],
        manner: &Manner,
        command: &str,
    ) -> Result<ExitCode, Problem> {
        let done = self.done(page, operations, manner, command)?;
        Ok(self.tell(page, &done, manner.json, command))
    }

    /// Does operations on a notebook.
    pub(crate) fn done(
        &self,
        page: &NotebookFile,
        operations: &[Operation],
        manner: &Manner,
        command: &str,
    ) -> Result<Done, Problem> {
        let done = edit::apply(page, operations, &self.editor(manner));
        done.map_err(|error| with_repeat(error.into(), command))
    }

    /// Tells what came of an edit. What of it is not in the notebook is a conflict.
    pub(crate) fn tell(
        &self,
        page: &NotebookFile,
        done: &Done,
        json: bool,
        command: &str,
    ) -> ExitCode {
        self.tell_with(page, done, json.then(|| json!({})), command)
    }

    /// Tells what came of an edit; as one JSON object, with more fields, where there is one.
    pub(crate) fn tell_with(
        &self,
        page: &NotebookFile,
        done: &Done,
        json: Option<Value>,
        command: &str,
    ) -> ExitCode {
        let problem = (!done.conflicts.is_empty()).then(|| {
            let count = done.conflicts.len();
            let these = if count == 1 { "this is" } else { "these are" };
            let message = format!(
                "somebody saved the same lines meanwhile, which stay; {these} not in the notebook:"
            );
            let problem = Problem::new(ProblemKind::Conflict, message);
            with_repeat(problem.with_conflicts(&done.conflicts, false), command)
        });
        let code = problem
            .as_ref()
            .map_or(ExitCode::SUCCESS, |it| problem::code(it.kind));
        let changes = as_they_are(done);
        if let Some(Value::Object(more)) = json {
            let mut answer = json!({
                "notebook": page.key,
                "path": page.real,
                "revision": done.document.revision(),
                "op": done.op,
                "changes": changes,
                "conflicts": done.conflicts,
                "notes": done.notes,
            });
            if let Some(problem) = problem {
                let problem = problem::completed(problem, &self.commands());
                answer["error"] = json!(problem);
            }
            if let Value::Object(answer) = &mut answer {
                answer.extend(more);
            }
            let _ = self.answer(&answer);
        } else {
            let _ = print::raw(text(done, &changes).as_bytes());
            let commands = self.commands();
            let notes = done.notes.iter();
            notes.for_each(|note| print::note(&commands.complete(note)));
            if let Some(problem) = problem {
                problem::report(&problem::completed(problem, &commands), false);
            }
        }
        code
    }
}

/// Returns the changes with what the notebook has now: what somebody saved in between is in it too.
fn as_they_are(done: &Done) -> Vec<CellChange> {
    let mut changes = done.changes.clone();
    let cells = done.document.cells();
    for at in 0..changes.len() {
        let (before, rest) = changes.split_at_mut(at + 1);
        let Some(change) = before.last_mut() else {
            continue;
        };
        // What came after it in the same edit tells of it.
        if rest.iter().any(|later| later.cell == change.cell) {
            continue;
        }
        let Some(index) = cells.iter().position(|cell| cell.id() == change.cell) else {
            continue;
        };
        change.index = index;
        change.after = cells.get(index).map(Cell::revision);
        if change.what == ChangeKind::Removed {
            // Somebody's edit of it outlives that.
            change.what = ChangeKind::Nothing;
        }
    }
    changes
}

/// Returns a line for each change, and with the last the notebook's revision.
fn text(done: &Done, changes: &[CellChange]) -> String {
    let lines = runs(changes);
    let lines = lines.iter().map(|it| line(it, done));
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
fn runs(changes: &[CellChange]) -> Vec<CellChange> {
    let mut runs: Vec<CellChange> = Vec::new();
    for change in changes {
        let is_text = |it: &CellChange| matches!(it.what, ChangeKind::Edited | ChangeKind::Nothing);
        match runs.last_mut() {
            Some(last) if last.cell == change.cell && is_text(last) && is_text(change) => {
                last.after = change.after;
                if change.what == ChangeKind::Edited {
                    last.what = ChangeKind::Edited;
                }
            }
            _ => runs.push(change.clone()),
        }
    }
    runs
}

fn line(change: &CellChange, done: &Done) -> String {
    let cell = done.document.cells().get(change.index);
    let has_outputs = cell.is_some_and(|cell| cell.id() == change.cell && cell.has_run());
    let mut conflicts = done.conflicts.iter();
    let of_it = |it: &&Conflict| it.cell.as_ref() == Some(&change.cell);
    let conflict = conflicts.find(of_it);
    let theirs = conflict.and_then(|it| it.theirs.as_deref());
    let is_theirs = cell.is_some_and(|cell| theirs == Some(&*cell.source()));
    let what = match change.what {
        // What they saved stays, and nothing of the edit is there.
        _ if is_theirs => "kept",
        ChangeKind::Nothing => "unchanged",
        ChangeKind::Inserted => "inserted",
        ChangeKind::Edited => "edited",
        ChangeKind::Moved => "moved",
        // An undo brings them back.
        ChangeKind::Outputs if has_outputs => "outputs are back:",
        ChangeKind::Outputs => "cleared",
        ChangeKind::Removed => "removed",
    };
    let CellChange { cell, index, .. } = change;
    let revisions = match (change.before, change.after) {
        (Some(before), Some(after)) if before != after && !is_theirs => {
            format!(" {before} → {after}")
        }
        (_, Some(revision)) | (Some(revision), None) => format!(" {revision}"),
        (None, None) => String::new(),
    };
    let index = match change.what {
        ChangeKind::Removed => format!("was cell {index}"),
        _ => format!("cell {index}"),
    };
    let in_part = match conflict {
        Some(_) if !is_theirs => ", but not all that was meant",
        _ => "",
    };
    format!("{what} {cell} ({index}){revisions}{in_part}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notebook::{Document, merge};

    fn notebook(sources: [&str; 3]) -> Document {
        let cells = ["aaaa", "bbbb", "cccc"].iter().zip(sources);
        let cells = cells.map(|(id, source)| {
            json!({"cell_type": "code", "id": id, "metadata": {}, "source": source,
                "outputs": [], "execution_count": null})
        });
        let cells: Vec<_> = cells.collect();
        let text = json!({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5});
        Document::parse(text.to_string()).unwrap()
    }

    #[test]
    fn what_somebody_saved_in_between_is_told() {
        let before = notebook(["a = 1", "b = 1\nb = 2", "c = 1"]);
        let theirs = notebook(["a = 9", "b = 1\nb = 9", "c = 9"]);
        let operations = Operation::read_list(
            r#"[{"op":"edit","cell":"bbbb","source":"b = 3\nb = 2"},
                {"op":"edit","cell":"cccc","source":"c = 3"},
                {"op":"remove","cell":"aaaa"},
                {"op":"insert","at":0,"id":"dddd","source":"d"}]"#,
        );
        let operations = operations.unwrap();
        let (mine, changes) = before.applied(&operations, &mut String::new).unwrap();
        let merged = merge(&before, &theirs, &mine, &|_| false);
        let done = Done {
            changes,
            conflicts: merged.conflicts,
            document: merged.document,
            op: None,
            notes: Vec::new(),
        };
        insta::assert_snapshot!(text(&done, &as_they_are(&done)), @r"
        edited bbbb (cell 2) fd00a2ade3 → d18a98de4b
        kept cccc (cell 3) 4541c32095
        kept aaaa (cell 1) 0276849223
        inserted dddd (cell 0) 5c9e1216ab
        notebook 0897b4be8b
        ");
    }
}
