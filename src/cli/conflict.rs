//! What of an edit was refused or did not go in, as a person and a program read it.

use std::io::ErrorKind;
use std::path::Path;

use serde_json::{Value, json};

use super::fault::{Fault, Kind, causes};
use super::which::of_selection;
use crate::editing::edit::EditError;
use crate::editing::transaction::WriteError;
use crate::kernel::shell::quote;
use crate::notebook::{Conflict, EditError as CellError, OperationError};

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
                lines.extend(indented(text));
            }
            None if deleted && name != "base" => lines.push(format!("  {name}: removed")),
            None => {}
        }
    }
    lines
}

/// Returns a text as a block of lines of its own.
pub(super) fn indented(text: &str) -> Vec<String> {
    text.split('\n')
        .map(|line| format!("    | {line}"))
        .collect()
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
    let given = std::env::args_os().skip(1);
    let mut given = given.map(|word| word.to_string_lossy().into_owned());
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
            EditError::Unsaved { ref conflicts, .. } => {
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
        OperationError::Edit(CellError::NotFound(cell)) => fault(Kind::Failed).hint(format!(
            "nb cell -c {} --source-only shows its text",
            quote(Path::new(cell))
        )),
        OperationError::Edit(CellError::Several { .. }) => {
            fault(Kind::Failed).hint("--all replaces it wherever it is")
        }
        OperationError::Edit(_)
        | OperationError::Place
        | OperationError::Apart
        | OperationError::OneRevision => fault(Kind::Failed),
    }
}

/// Makes a fault of a notebook that was not written.
pub(super) fn of_write<E: std::error::Error + 'static>(error: &WriteError<E>) -> Fault {
    let fault = Fault::new(Kind::Failed, causes(error));
    match error {
        WriteError::Full { .. } => fault.hint("the notebook is as it was; make room and repeat"),
        WriteError::ReadOnly { page } => fault.hint(format!(
            "if it may be changed: chmod u+w {}",
            quote(&page.path)
        )),
        WriteError::Immutable { what, .. } => fault.hint(format!(
            "if it may be changed: sudo chattr -i {}",
            quote(what)
        )),
        WriteError::Sticky { page } => {
            let name = page.real.file_name().unwrap_or_default();
            fault.hint(format!(
                "work on a copy in a folder of yours: cp {} ~/{}",
                quote(&page.path),
                quote(Path::new(name))
            ))
        }
        WriteError::Folder { page, source } | WriteError::Write { page, source } => {
            match source.kind() {
                ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                    let folder = page.real.parent().unwrap_or(&page.real);
                    fault.hint(format!(
                    "the notebook is as it was; its folder {} must be writable too, as a notebook is replaced as a whole",
                    quote(folder)
                ))
                }
                ErrorKind::ResourceBusy => fault.hint(
                "is it mounted on its own, as into a container? Mount its folder instead: a notebook is replaced as a whole",
            ),
                ErrorKind::FileTooLarge => fault.hint(
                    "the notebook is as it was; files may not become that large here: ulimit -f shows the shell's limit",
                ),
                _ => fault.hint("the notebook is as it was"),
            }
        }
        WriteError::Locked { .. } | WriteError::Contended { .. } => {
            fault.hint("the notebook is without this edit; repeat it in a moment")
        }
        WriteError::Page(_) | WriteError::Change(_) => fault,
    }
}
