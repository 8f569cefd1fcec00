//! What of an edit was refused or did not go in, as a person and a program read it.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Value, json};

use super::fault::{Fault, Kind, causes};
use super::print;
use super::which::of_selection;
use crate::kernel::python::quote;
use crate::notebook::{Conflict, EditError as CellError, OperationError};
use crate::ops::edit::EditError;
use crate::ops::transaction::WriteError;

/// Hints show no longer commands than this.
const LONG_COMMAND: usize = 300;

/// Returns a conflict as lines: each side as a block.
pub(super) fn blocks(conflict: &Conflict, unsaved: bool) -> Vec<String> {
    let mut lines = Vec::new();
    let what = match &conflict.cell {
        Some(cell) => format!("cell {cell}"),
        None => "the notebook".to_owned(),
    };
    let revision = conflict.revision.map(|it| format!(" · revision {it}"));
    let field = &conflict.field;
    lines.push(format!("{what} · {field}{}", revision.unwrap_or_default()));
    let theirs = match unsaved {
        true => "theirs (not saved yet)",
        false => "theirs (in the file)",
    };
    let deleted = field == "deleted";
    for (name, side) in [
        ("base", &conflict.base),
        ("yours", &conflict.yours),
        (theirs, &conflict.theirs),
    ] {
        match side {
            Some(text) => {
                lines.push(format!("  {name}:"));
                lines.extend(text.split('\n').map(|line| format!("    | {line}")));
            }
            None if deleted && name != "base" => lines.push(format!("  {name}: removed")),
            None => {}
        }
    }
    lines
}

/// Returns a conflict as a program reads it.
pub(super) fn object(conflict: &Conflict, unsaved: bool) -> Value {
    let mut object = json!(conflict);
    if unsaved {
        object["unsaved"] = json!(true);
    }
    object
}

impl Fault {
    /// Adds to what was refused because of a conflict how to do it all the same: `command` once
    /// more, now that its writer has seen what is there.
    pub(super) fn again(self, command: &str) -> Self {
        let unsaved = self.is_unsaved();
        let only_if = match self.conflicts() {
            [] => return self,
            [conflict] if matches!(command, "edit" | "rm") && !unsaved => conflict.revision,
            _ => None,
        };
        let only_if = only_if.map(|revision| format!(" --if-rev {revision}"));
        let typed = typed(command, &only_if.unwrap_or_default());
        let hint = match unsaved {
            true => format!("ask for it to be saved or reverted there, then repeat: {typed}"),
            false => format!("if it still holds, repeat it: {typed}"),
        };
        self.hint(hint).hint("--force writes without a check")
    }
}

/// Returns the command as it was typed, with one more option and without that of the last time.
fn typed(command: &str, option: &str) -> String {
    let mut words: Vec<String> = Vec::new();
    let mut given = std::env::args().skip(1);
    let mut named = false;
    while let Some(word) = given.next() {
        match word.as_str() {
            "--if-rev" => drop(given.next()),
            word if word.starts_with("--if-rev=") => {}
            word if word == command && !named => {
                named = true;
                words.push(format!("{word}{option}"));
            }
            word => words.push(quote(Path::new(word))),
        }
    }
    let typed = format!("nb {}", words.join(" "));
    match named && typed.chars().count() <= LONG_COMMAND {
        true => typed,
        false => format!("nb {command}{option} …"),
    }
}

impl From<EditError> for Fault {
    fn from(error: EditError) -> Self {
        match error {
            EditError::Page(error) => error.into(),
            // Which of the operations it was tells only somebody who gave a list of them.
            EditError::Operation(error) => of_operation(&error.source, &error.source.to_string()),
            EditError::Unseen { ref conflicts } => {
                Self::new(Kind::Conflict, error.to_string()).with_conflicts(conflicts, false)
            }
            EditError::Unsaved { ref conflicts } => {
                Self::new(Kind::Conflict, error.to_string()).with_conflicts(conflicts, true)
            }
            EditError::Other(error) => Self::new(Kind::Failed, error.to_string()),
            EditError::Write(ref error) => of_write(error),
        }
    }
}

/// Makes a fault of an operation that cannot be done.
pub(super) fn of_operation(error: &OperationError, message: &str) -> Fault {
    let fault = |kind| Fault::new(kind, message);
    match error {
        OperationError::Select(error) => of_selection(error, message),
        OperationError::Stale { conflict, .. } => {
            fault(Kind::Conflict).with_conflicts(std::slice::from_ref(conflict), false)
        }
        OperationError::Edit(CellError::ReadOnly(_)) => fault(Kind::Refused),
        OperationError::Edit(_) | OperationError::Place | OperationError::OneRevision => {
            fault(Kind::Failed)
        }
    }
}

fn of_write(error: &WriteError<EditError>) -> Fault {
    let fault = Fault::new(Kind::Failed, causes(error));
    let WriteError::Write { page, source } = error else {
        return fault;
    };
    let folder = page.real.parent().unwrap_or(&page.real);
    match source.kind() {
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            let free = rustix::fs::statvfs(folder).map(|disk| disk.f_bavail * disk.f_frsize);
            let free = free.map(|bytes| format!(" ({} free)", print::bytes(bytes)));
            fault.hint(format!(
                "the notebook is as it was; make room where {} lies{}",
                quote(folder),
                free.unwrap_or_default()
            ))
        }
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => fault.hint(format!(
            "the notebook is as it was; it and its folder {} must be writable, as it is replaced as a whole",
            quote(folder)
        )),
        _ => fault,
    }
}
