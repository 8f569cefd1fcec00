//! Who else is at a kernel, and what they run: the words for it.

use crate::project::event::{ExecutionStart, RunningCell, split_actor};

/// Names whom the journal does not know.
pub const SOMEBODY: &str = "another client";

/// How many characters of its source stand for a cell that has no readable id.
const SOURCE: usize = 32;

/// Returns the name that an event's actor is known by.
///
/// A client that `nb` knows only from the kernel calls itself what its library does, `username`
/// or, in VS Code, a UUID: that is nobody's name.
pub fn name(by: Option<&str>) -> &str {
    match by {
        None | Some("" | "username") => SOMEBODY,
        Some(id) if uuid::Uuid::try_parse(id).is_ok() => SOMEBODY,
        Some(name) => name,
    }
}

/// Returns whether two actors have one name: there is one human, at whatever front end.
pub fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (split_actor(one).0, split_actor(other).0);
    one == other || (is_human(one) && is_human(other))
}

/// Returns whether what a name did in one of its sessions is this actor's own. Where one of the sessions is
/// not known the name decides.
pub fn is_own(by: &str, session: Option<&str>, actor: &str) -> bool {
    let own = split_actor(actor).1;
    is_same(by, actor) && session.zip(own).is_none_or(|(one, other)| one == other)
}

/// Says whether a name is the human's, at a terminal or in a front end.
pub fn is_human(name: &str) -> bool {
    name == "human" || name.starts_with("human (")
}

/// Says whether what a name did is asked for by this word: a name, `human` for the one human at
/// whatever front end, or `agent` for all others.
pub fn is_meant(name: &str, word: &str) -> bool {
    is_same(name, word) || (word == "agent" && !is_human(name) && name != SOMEBODY)
}

/// Returns the words for a cell that runs: `human (VS Code)'s cell 3f2c`.
pub fn whose(cell: &RunningCell) -> String {
    let what = what(cell.cell.as_deref(), cell.code.as_deref());
    format!("{}'s {what}", name(cell.by.as_deref()))
}

/// Returns the words for what a request ran: `3f2c`, or the beginning of its source.
pub fn label(start: &ExecutionStart) -> String {
    named(start.cell.as_deref(), start.code.as_deref())
}

/// Returns the words for code that ran: the beginning of its cell's id, or of the source.
pub fn named(cell: Option<&str>, code: Option<&str>) -> String {
    let name = short_id(cell).or_else(|| source(code));
    name.unwrap_or_else(|| "a cell".to_owned())
}

fn what(cell: Option<&str>, code: Option<&str>) -> String {
    let kind = if cell.is_some() { "cell" } else { "code" };
    match short_id(cell).or_else(|| source(code)) {
        Some(label) => format!("{kind} {label}"),
        None => kind.to_owned(),
    }
}

/// Returns a cell's id as people use it.
pub fn cell(id: &str) -> String {
    short_id(Some(id)).unwrap_or_else(|| id.to_owned())
}

/// A cell's id as people use it: its beginning is enough. VS Code sends an address in its place.
fn short_id(cell: Option<&str>) -> Option<String> {
    let id = cell.filter(|id| !id.is_empty() && !id.contains([':', '/', '#']))?;
    let is_random = id.len() >= 8 && id.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    Some(id.chars().take(if is_random { 4 } else { 24 }).collect())
}

/// Returns the beginning of a source, in quotes.
pub fn source(code: Option<&str>) -> Option<String> {
    let line = code?.lines().map(str::trim).find(|line| !line.is_empty())?;
    let mut shown: String = line.chars().take(SOURCE).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    Some(format!("\"{shown}\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(by: Option<&str>, cell: Option<&str>, code: Option<&str>) -> String {
        whose(&RunningCell {
            msg_id: "1".to_owned(),
            by: by.map(str::to_owned),
            cell: cell.map(str::to_owned),
            code: code.map(str::to_owned),
            since: jiff::Timestamp::now(),
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

    #[test]
    fn there_is_one_human() {
        assert!(is_same("human", "human (VS Code)"));
        assert!(is_same("claude", "claude"));
        assert!(!is_same("claude", "human"));
        assert!(!is_same("claude", "codex"));
        let (one, other) = ("claude#00000001", "claude#00000002");
        assert!(is_same(one, other) && is_same(one, "claude"));
        assert!(is_own("claude", Some("00000001"), one) && is_own("claude", None, one));
        assert!(!is_own("claude", Some("00000002"), one) && is_own("claude", Some("1"), "claude"));
        assert!(!is_human("humanoid"));
        assert!(is_meant("claude", "agent") && is_meant("agent", "agent"));
        assert!(is_meant("human (VS Code)", "human") && !is_meant("human (VS Code)", "agent"));
        assert!(!is_meant(SOMEBODY, "agent") && !is_meant("claude", "codex"));
    }
}
