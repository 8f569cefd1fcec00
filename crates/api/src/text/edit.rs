//! What an edit changed, as text.

use crate::api::EditAnswer;
use crate::hint;
use crate::hint::{Hint, Verb, nb};
use crate::notebook::{CellChange, ChangeKind, Conflict};

/// Returns the changes as lines: one for each kind of change, with the index and the id of each cell.
pub fn lines(answer: &EditAnswer) -> Vec<Hint> {
    let mut lines: Vec<String> = Vec::new();
    let mut last = "";
    for change in &runs(&answer.changes) {
        let (verb, cell) = described(change, answer);
        match lines.last_mut().filter(|_| last == verb) {
            Some(line) => line.push_str(&format!(", {cell}")),
            None => lines.push(format!("{verb} {cell}")),
        }
        last = verb;
    }
    if lines.is_empty() {
        lines.push("unchanged".to_owned());
    }
    let mut lines: Vec<_> = lines.into_iter().map(Hint::from).collect();
    if let Some(op) = &answer.op
        && let Some(line) = lines.pop()
    {
        lines.push(hint![line, " · ", nb(Verb::Undo).word(&**op)]);
    }
    if !answer.undefined.is_empty() {
        let names: Vec<_> = answer.undefined.iter().map(String::as_str).collect();
        lines.push(format!("names that no cell defines: {}", names.join(", ")).into());
    }
    lines
}

/// Returns the changes, with consecutive changes of one cell joined into one.
fn runs(changes: &[CellChange]) -> Vec<CellChange> {
    let mut runs: Vec<CellChange> = Vec::new();
    for change in changes {
        let is_text = |it: &CellChange| matches!(it.kind, ChangeKind::Edited | ChangeKind::Nothing);
        match runs.last_mut() {
            Some(last) if last.cell == change.cell && is_text(last) && is_text(change) => {
                last.after = change.after;
                if change.kind == ChangeKind::Edited {
                    last.kind = ChangeKind::Edited;
                }
            }
            _ => runs.push(change.clone()),
        }
    }
    runs
}

/// Returns what happened to a cell, and the cell.
fn described(change: &CellChange, answer: &EditAnswer) -> (&'static str, String) {
    let cell = answer.document.cells().get(change.index);
    let has_outputs = cell.is_some_and(|cell| cell.id() == change.cell && cell.has_run());
    let mut conflicts = answer.conflicts.iter();
    let of_it = |it: &&Conflict| it.cell.as_ref() == Some(&change.cell);
    let conflict = conflicts.find(of_it);
    let their_text = conflict.and_then(|it| it.theirs.as_deref());
    let is_theirs = cell.is_some_and(|cell| their_text == Some(&*cell.source()));
    let verb = match change.kind {
        // The cell holds what another program saved, and nothing of this edit.
        _ if is_theirs => "kept",
        ChangeKind::Nothing => "unchanged",
        ChangeKind::Inserted => "inserted",
        ChangeKind::Edited => "edited",
        ChangeKind::Moved => "moved",
        // An undo restores them.
        ChangeKind::Outputs if has_outputs => "outputs are back:",
        ChangeKind::Outputs => "cleared",
        ChangeKind::Removed => "removed",
    };
    let CellChange { cell, index, .. } = change;
    let in_part = match conflict {
        Some(_) if !is_theirs => " (only part of the edit)",
        _ => "",
    };
    let cell = match change.kind {
        ChangeKind::Removed => format!("{cell} (was {index})"),
        _ => format!("{index} {cell}{in_part}"),
    };
    (verb, cell)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::editing::edit::EditOutcome;
    use crate::editing::notebook_file::NotebookFile;
    use crate::notebook::{Document, Operation, merge};

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
        let outcome = EditOutcome {
            changes,
            conflicts: merged.conflicts,
            document: merged.document,
            op: None,
            notes: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ipynb");
        std::fs::write(&path, theirs.to_bytes()).unwrap();
        let file = NotebookFile::of(&path).unwrap();
        let lines = lines(&EditAnswer::of(&file, outcome));
        let lines: Vec<_> = lines.iter().map(ToString::to_string).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        edited 2 bbbb
        kept 3 cccc, 1 aaaa
        inserted 0 dddd
        names that no cell defines: d
        ");
    }
}
