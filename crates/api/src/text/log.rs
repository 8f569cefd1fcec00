//! Who did what in a notebook, as text.

use crate::activity::labels;
use crate::api::time::{moment, took};
use crate::api::{LogEntry, LogEvent, LoggedExecution};
use crate::notebook::ChangeKind;
use crate::project::event::{CellEnd, NotebookChange, ToolCall};

/// Returns an entry's line.
pub fn line(entry: &LogEntry, notebook: &str) -> String {
    let by = match (&entry.event, entry.by.as_deref()) {
        (LogEvent::Saved(_), None) => "somebody",
        (_, None) => "",
        (_, Some(by)) => by,
    };
    let actor = match by {
        "" => String::new(),
        by => format!("{by} "),
    };
    let at = moment(entry.at);
    format!("{at}  {actor}{}", description(&entry.event, notebook))
}

fn description(event: &LogEvent, notebook: &str) -> String {
    match event {
        LogEvent::Ran(it) => ran(it, notebook),
        LogEvent::Edited(it) => {
            let command = match it.command.as_deref() {
                Some("undo") => {
                    format!("took back {}: ", it.undoes.as_deref().unwrap_or("an edit"))
                }
                Some("restore") => "restored: ".to_owned(),
                _ => String::new(),
            };
            let mut parts = vec![format!("{command}{}", changes(it))];
            if it.forced {
                parts.push("forced".to_owned());
            }
            if it.conflicts > 0 {
                let s = if it.conflicts == 1 { "" } else { "s" };
                parts.push(format!("{} conflict{s}", it.conflicts));
            }
            parts.extend(it.op.as_deref().map(|op| format!("op {op}")));
            parts.push(format!("notebook {}", it.after));
            parts.join(" · ")
        }
        LogEvent::Saved(it) => {
            let mut parts = vec![format!("saved: {}", changes(it))];
            parts.extend(circumstances(it));
            for lost in &it.overwritten {
                parts.push(format!(
                    "that wiped out {}'s edit of {} (op {})",
                    lost.by, lost.cell, lost.op
                ));
            }
            parts.push(format!("notebook {}", it.after));
            parts.join(" · ")
        }
        LogEvent::Moved { from } => format!("moved the notebook from {from}"),
        LogEvent::Called(call) => called(call),
        LogEvent::Messaged(turn) => {
            let cell = turn.cell.as_ref().map(|cell| format!(" cell {cell}"));
            let message = turn.message.as_ref().map(|text| format!(": “{text}”"));
            format!(
                "did that for {}{}{}",
                turn.chat,
                cell.unwrap_or_default(),
                message.unwrap_or_default()
            )
        }
        LogEvent::Kernel { event, generation } => {
            let action = match *event {
                "opened" => "started the kernel",
                "restarted" => "restarted the kernel: variables are gone",
                "stopped" => "shut the kernel down",
                "interrupted" => "interrupted the kernel",
                "withdrew" => "withdrew cells that waited for the kernel",
                "died" => "the kernel died: variables are gone",
                other => other,
            };
            let generation = generation.map(|it| format!(" · generation {it}"));
            format!("{action}{}", generation.unwrap_or_default())
        }
    }
}

/// Returns what is known of a save by an unknown actor: who was joined, and what moved git's HEAD.
fn circumstances(change: &NotebookChange) -> Vec<String> {
    let joined = match &*change.joined {
        [] => None,
        [one] => Some(format!("{one} was joined")),
        several => Some(format!("{} were joined", several.join(", "))),
    };
    let git = change.git.as_ref();
    let git = git.map(|words| format!("git HEAD moved: {words}"));
    joined.into_iter().chain(git).collect()
}

/// Describes a call: `called update_cell ok, 12 ms · 1a2b3c4d5e → 5e4d3c2b1a · claude-code 2.1 · session 3f2c11aa`.
fn called(call: &ToolCall) -> String {
    let duration = took(std::time::Duration::from_millis(call.took_ms));
    let mut parts = vec![format!("called {} {}, {duration}", call.tool, call.result)];
    if let (Some(before), Some(after)) = (&call.before, &call.after) {
        parts.push(format!("notebook {before} → {after}"));
    }
    let version = call.client_version.as_deref().unwrap_or_default();
    let client = call
        .client
        .as_deref()
        .map(|name| format!("{name} {version}"));
    parts.extend(client.map(|client| client.trim_end().to_owned()));
    parts.push(format!("session {}", call.client_session));
    let digest = call.arguments.get(..12).unwrap_or(&call.arguments);
    parts.push(format!("arguments {digest}"));
    parts.extend(
        call.warnings
            .iter()
            .map(|warning| format!("warning: {warning}")),
    );
    parts.join(" · ")
}

/// Describes an execution: `ran 3f2c "df = load()" ok, 1.2 s · job 7f3a01bc`.
fn ran(it: &LoggedExecution, notebook: &str) -> String {
    let duration = it.took_ms.map(std::time::Duration::from_millis);
    let took = duration.map(|it| format!(", {}", took(it)));
    let end = match it.status {
        None => " (no end is known)",
        Some(CellEnd::Ok) => " ok",
        Some(CellEnd::Error) => ": it failed",
        Some(CellEnd::Interrupted) => ": it was interrupted",
        Some(CellEnd::Withdrawn) => ": it was withdrawn",
        Some(CellEnd::Aborted) => ": it was not run, since one before it failed",
        Some(CellEnd::KernelDied) => ": the kernel ended",
        Some(CellEnd::Unobserved) => ": its end was not seen",
        Some(_) => ": how it ended is not known",
    };
    let source = labels::source(it.code.as_deref());
    let source = source.filter(|source| *source != it.label);
    let code: Vec<_> = [Some(it.label.clone()), source]
        .into_iter()
        .flatten()
        .collect();
    let mut parts = vec![format!(
        "ran {}{end}{}",
        code.join(" "),
        took.unwrap_or_default()
    )];
    let other_notebook = it
        .notebook
        .as_deref()
        .filter(|other_notebook| *other_notebook != notebook);
    parts.extend(other_notebook.map(|other_notebook| format!("in {other_notebook}")));
    parts.extend(it.job.as_ref().map(|job| format!("job {job}")));
    if it.past_nb {
        parts.push("straight on the kernel".to_owned());
    }
    parts.join(" · ")
}

/// Describes changes to cells: `edited 3f2c 9f8e7d6c5b → 1a2b3c4d5e, removed 77de`.
pub(super) fn changes(it: &NotebookChange) -> String {
    const CHANGES_MAX: usize = 4;
    let mut parts: Vec<String> = Vec::new();
    for step in it.changes.iter().take(CHANGES_MAX) {
        let verb = match step.kind {
            ChangeKind::Inserted => "inserted",
            ChangeKind::Edited => "edited",
            ChangeKind::Removed => "removed",
            ChangeKind::Moved => "moved",
            ChangeKind::Outputs if step.kept.is_some() => "cleared",
            ChangeKind::Outputs => "brought back the outputs of",
            ChangeKind::Nothing => continue,
        };
        let revisions = match (step.kind, step.before, step.after) {
            (ChangeKind::Edited, Some(before), Some(after)) => format!(" {before} → {after}"),
            (ChangeKind::Inserted, _, Some(revision))
            | (ChangeKind::Removed, Some(revision), _) => {
                format!(" {revision}")
            }
            _ => String::new(),
        };
        let cell = &step.cell;
        parts.push(match step.kind {
            ChangeKind::Moved => format!("{verb} {cell} to {}", step.index),
            _ => format!("{verb} {cell}{revisions}"),
        });
    }
    match it.changes.len().saturating_sub(CHANGES_MAX) {
        0 if parts.is_empty() => parts.push("no cell".to_owned()),
        0 => {}
        more => parts.push(format!("{more} more")),
    }
    parts.join(", ")
}
