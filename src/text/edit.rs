//! What an edit changed, as text.

use crate::api::EditAnswer;
use crate::notebook::{CellChange, ChangeKind, Conflict};

/// Returns a line for each change; the last one also has the notebook's revision.
pub(crate) fn text(answer: &EditAnswer) -> String {
    let lines = runs(&answer.changes);
    let lines = lines.iter().map(|it| line(it, answer));
    let mut lines: Vec<_> = lines.collect();
    let mut end = format!("notebook {}", answer.revision);
    if let Some(op) = &answer.op {
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

/// Returns the changes, with consecutive changes of one cell joined into one.
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

fn line(change: &CellChange, answer: &EditAnswer) -> String {
    let cell = answer.document.cells().get(change.index);
    let has_outputs = cell.is_some_and(|cell| cell.id() == change.cell && cell.has_run());
    let mut conflicts = answer.conflicts.iter();
    let of_it = |it: &&Conflict| it.cell.as_ref() == Some(&change.cell);
    let conflict = conflicts.find(of_it);
    let theirs = conflict.and_then(|it| it.theirs.as_deref());
    let is_theirs = cell.is_some_and(|cell| theirs == Some(&*cell.source()));
    let what = match change.what {
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
    use serde_json::json;

    use super::*;
    use crate::editing::edit::Done;
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
        let done = Done {
            changes,
            conflicts: merged.conflicts,
            document: merged.document,
            op: None,
            notes: Vec::new(),
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.ipynb");
        std::fs::write(&path, theirs.to_bytes()).unwrap();
        let page = NotebookFile::of(&path).unwrap();
        insta::assert_snapshot!(text(&EditAnswer::of(&page, done)), @r"
        edited bbbb (cell 2) fd00a2ade3 → d18a98de4b
        kept cccc (cell 3) 4541c32095
        kept aaaa (cell 1) 0276849223
        inserted dddd (cell 0) 5c9e1216ab
        notebook 0897b4be8b
        ");
    }
}
