//! The labels of cells and of code that runs.

use super::actor::Actor;
use crate::notebook::Document;
use crate::project::event::{ExecutionStart, RunningExecution};

/// How many characters of the source are shown for a cell without a readable id.
const SOURCE: usize = 32;

/// Returns the label of a running cell with its actor: `human (VS Code)'s cell 3f2c`.
pub fn cell_with_actor(cell: &RunningExecution) -> String {
    let kind_and_label = kind_and_label(cell.cell.as_deref(), cell.code.as_deref());
    format!("{}'s {kind_and_label}", Actor::parse(cell.by.as_deref()))
}

/// Returns the label of what a request ran: `3f2c`, or the beginning of its source.
pub fn label(start: &ExecutionStart) -> String {
    named(start.cell.as_deref(), start.code.as_deref())
}

/// Returns the label of code that ran: the beginning of its cell's id, or of its source.
pub fn named(cell: Option<&str>, code: Option<&str>) -> String {
    let name = short_id(cell).or_else(|| source(code));
    name.unwrap_or_else(|| "a cell".to_owned())
}

/// Returns the name of a cell by its place in the notebook, with the part of its id that commands need: `3 · 23a3`.
pub fn place(document: &Document, index: usize) -> Option<String> {
    let short = document.short_ids();
    Some(format!("{index} · {}", short.get(index)?))
}

/// Returns the label of a cell or of other code, with a word that says which it is.
pub fn kind_and_label(cell: Option<&str>, code: Option<&str>) -> String {
    let kind = if cell.is_some() { "cell" } else { "code" };
    match short_id(cell).or_else(|| source(code)) {
        Some(label) => format!("{kind} {label}"),
        None => kind.to_owned(),
    }
}

/// Returns a cell's id, shortened for people.
pub fn cell(id: &str) -> String {
    short_id(Some(id)).unwrap_or_else(|| id.to_owned())
}

/// Returns a cell's id, shortened to the prefix that people use. `None` for a URI, which VS Code
/// sends in place of an id.
fn short_id(cell: Option<&str>) -> Option<String> {
    let id = cell.filter(|id| !id.is_empty() && !id.contains([':', '/', '#']))?;
    let is_random = id.len() >= 8 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    Some(id.chars().take(if is_random { 4 } else { 24 }).collect())
}

/// Returns the beginning of a source, in quotes.
pub fn source(code: Option<&str>) -> Option<String> {
    let line = first_line(code?)?;
    let mut shown: String = line.chars().take(SOURCE).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    Some(format!("\"{shown}\""))
}

/// Returns the first line of code that is not empty, without the spaces around it.
pub fn first_line(code: &str) -> Option<&str> {
    code.lines().map(str::trim).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(by: Option<&str>, cell: Option<&str>, code: Option<&str>) -> String {
        cell_with_actor(&RunningExecution {
            notebook: "a.ipynb".to_owned(),
            msg_id: "1".to_owned(),
            by: by.map(str::to_owned),
            cell: cell.map(str::to_owned),
            code: code.map(str::to_owned),
            job: None,
            store_history: true,
            since: jiff::Timestamp::now(),
            prompt: None,
        })
    }

    #[test]
    fn a_cell_is_named_so_that_its_reader_finds_it() {
        let uuid = Some("3f2c9a1e-0000-4000-8000-c0ffee000000");
        assert_eq!(cell(Some("ada"), uuid, Some("x")), "ada's cell 3f2c");
        assert_eq!(
            cell(Some("ada"), Some("load-data"), None),
            "ada's cell load-data"
        );
        let address = Some("vscode-notebook-cell:/p/a.ipynb#W0sZmlsZQ%3D%3D");
        assert_eq!(
            cell(
                Some("human (VS Code)"),
                address,
                Some("\n  df = load()\ndf")
            ),
            "human (VS Code)'s cell \"df = load()\""
        );
        assert_eq!(
            cell(Some("claude"), None, Some(&"é".repeat(40))),
            format!("claude's code \"{}…\"", "é".repeat(SOURCE))
        );
        assert_eq!(cell(None, None, None), "another client's code");
        let uuid = Some("739085c8-1e43-4c37-be28-9e70b619cf8c");
        assert_eq!(cell(uuid, None, None), "another client's code");
        assert_eq!(
            cell(Some("username"), address, None),
            "another client's cell"
        );
    }
}
