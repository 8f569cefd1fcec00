//! The lines of `nb exec --replay` about the cells that it runs again, and those that it leaves out.

use std::collections::HashMap;
use std::path::Path;

use crate::cli::render::print;
use crate::execution::replay::{EndedKernel, Replay};
use crate::hint::shell::quote;
use crate::notebook::Document;

/// Returns the lines about a replay.
pub(crate) fn lines(replay: &Replay, document: &Document, notebook: &Path) -> Vec<String> {
    let cells = document.cells().iter().map(|cell| cell.id());
    let short: HashMap<_, _> = cells.zip(document.short_ids()).collect();
    let short = |id: &String| {
        short
            .get(id.as_str())
            .map_or_else(|| id.clone(), ToString::to_string)
    };
    let list = |ids: &[String]| ids.iter().map(short).collect::<Vec<_>>().join(", ");
    let runs = print::count(replay.cells.len(), "run");
    let mut distinct: Vec<_> = replay.cells.clone();
    distinct.sort();
    distinct.dedup();
    let cells = match distinct.len() == replay.cells.len() {
        true => print::count(replay.cells.len(), "cell"),
        false => format!("{runs} of {}", print::count(distinct.len(), "cell")),
    };
    let kernel = format!("kernel {}", replay.generation);
    let ended = replay.ended.as_ref().map(ended).unwrap_or_default();
    let mut lines = vec![format!(
        "replay of {kernel}{ended}: {cells} ran without error"
    )];
    if !replay.changed.is_empty() {
        let run = match replay.changed.len() {
            1 => "runs as it is now",
            _ => "run as they are now",
        };
        let ids = list(&replay.changed);
        lines.push(format!("replay: changed since then, and {run}: {ids}"));
    }
    if let Some(running) = &replay.running {
        let text = format!("replay: {} was running when it ended", short(running));
        let is_cell = document.cells().iter().any(|cell| cell.id() == running);
        lines.push(match is_cell {
            true => format!(
                "{text}, and is left out · next: nb exec {} {}",
                quote(notebook),
                short(running)
            ),
            false => format!("{text}; it is not a cell of the notebook (nb log shows it)"),
        });
    }
    let mut out = Vec::new();
    if !replay.failed.is_empty() {
        out.push(format!("{} failed", list(&replay.failed)));
    }
    if replay.gone > 0 {
        out.push(format!(
            "{} of cells that are not there any more",
            print::count(replay.gone, "run")
        ));
    }
    if replay.scratch > 0 {
        out.push(format!(
            "{} of code outside the notebook (nb log shows it)",
            print::count(replay.scratch, "run")
        ));
    }
    if replay.elsewhere > 0 {
        out.push(format!(
            "{} of other notebooks' cells",
            print::count(replay.elsewhere, "run")
        ));
    }
    if !out.is_empty() {
        lines.push(format!("replay: left out: {}", out.join(", ")));
    }
    lines
}

fn ended(ended: &EndedKernel) -> String {
    let by = ended
        .by
        .as_deref()
        .map(|by| format!(" by {by}"))
        .unwrap_or_default();
    let how = match ended.how.as_str() {
        "stopped" => "was shut down",
        "restarted" => "was restarted",
        _ => "died",
    };
    format!(", which {how}{by} {}", print::moment(ended.at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_cell_that_was_running_is_named_in_a_command() {
        let document = crate::notebook::tests::fixtures::cells("aaaa:1 bbbb:2");
        let line = |running: &str| {
            let replay = Replay {
                running: Some(running.to_owned()),
                ..Replay::default()
            };
            lines(&replay, &document, Path::new("a.ipynb"))
                .pop()
                .unwrap()
        };
        assert!(line("aaaa").ends_with("next: nb exec a.ipynb aaaa"));
        let scratch = line("\"import os; os.abort()\"");
        assert!(!scratch.contains("nb exec"), "{scratch}");
        assert!(
            scratch.contains("\"import os; os.abort()\" was running"),
            "{scratch}"
        );
    }
}
