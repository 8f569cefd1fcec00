//! What the arguments of a call ask for. A call and its preview read them by the same functions.

use std::path::PathBuf;

use rmcp::RoleServer;
use rmcp::model::JsonObject;
use rmcp::service::RequestContext;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::arguments::{
    ApplyEdits, CellName, CreateCell, DeleteCell, History, OfNotebook, RelatedCells, RunCell,
    UpdateCell,
};
use super::session::Session;
use crate::api::caller::Caller;
use crate::api::problem::{Problem, ProblemKind};
use crate::api::{CellsToRun, EditPolicy, RestoreRequest, UndoRequest};
use crate::notebook::{Operation, Revision};

/// The arguments of a call about a notebook, the notebook's path, and who calls.
pub(super) struct CallTarget<T> {
    pub(super) arguments: T,
    pub(super) notebook: PathBuf,
    pub(super) caller: Caller,
    /// The names of what was passed over.
    pub(super) unknown: Vec<String>,
}

impl Session {
    /// Reads the arguments of a call about a notebook.
    pub(super) fn target<T: OfNotebook + DeserializeOwned>(
        &self,
        arguments: JsonObject,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallTarget<T>, Problem> {
        let (arguments, unknown) = read::<T>(arguments)?;
        let notebook = self.root().notebook(arguments.notebook())?;
        let caller = self.caller(Some(notebook.clone()), context)?;
        Ok(CallTarget {
            arguments,
            notebook,
            caller,
            unknown,
        })
    }
}

/// How many arguments of a call are passed over, and how many are read in another form, at most.
const MOST_REPAIRS: usize = 16;

/// Reads arguments as models write them. A value in a string is read as the value that is wanted: `"true"`, `"100"`,
/// `"[0, 1]"`. Arguments that there are not are passed over; their names are returned.
pub(super) fn read<T: DeserializeOwned>(
    mut arguments: JsonObject,
) -> Result<(T, Vec<String>), Problem> {
    let mut unknown = Vec::new();
    for _ in 0..MOST_REPAIRS {
        let message = match T::deserialize(Value::Object(arguments.clone())) {
            Ok(read) => return Ok((read, unknown)),
            Err(error) => error.to_string(),
        };
        if let Some(name) = unknown_field(&message)
            && arguments.remove(name).is_some()
        {
            unknown.push(name.to_owned());
            continue;
        }
        let fails = |name: &str, value: &Value| {
            let alone = serde_json::json!({name: value});
            let error = T::deserialize(&alone).err();
            error.is_some_and(|error| error.to_string() == message)
        };
        let Some((name, value)) = arguments.iter().find(|(name, value)| fails(name, value)) else {
            return Err(Problem::new(ProblemKind::Usage, message));
        };
        let (name, meant) = (name.clone(), meant(value));
        match meant.filter(|meant| !fails(&name, meant)) {
            Some(meant) => arguments.insert(name, meant),
            None => {
                // These name the argument themselves.
                let is_named = message.contains(" field `");
                let named = format!("{name}: {message}");
                let message = if is_named { message } else { named };
                return Err(Problem::new(ProblemKind::Usage, message));
            }
        };
    }
    usage("too many arguments are unknown, or of another type")
}

/// Returns the name of the field that an error says is unknown.
fn unknown_field(message: &str) -> Option<&str> {
    message.strip_prefix("unknown field `")?.split('`').next()
}

/// Returns the value that a model may have meant by another one.
fn meant(value: &Value) -> Option<Value> {
    match value {
        Value::String(text) => match text.trim() {
            "True" => Some(true.into()),
            "False" => Some(false.into()),
            text => serde_json::from_str(text).ok(),
        },
        Value::Number(number) => {
            let number = number.as_f64().filter(|it| it.fract() == 0.0)?;
            // Larger ones are no index and no limit.
            (number.abs() < 1e15).then(|| (number as i64).into())
        }
        _ => None,
    }
}

fn usage<T>(text: &str) -> Result<T, Problem> {
    Err(Problem::new(ProblemKind::Usage, text))
}

/// An edit that a call asks for.
pub(super) struct RequestedEdit {
    pub(super) operations: Vec<Operation>,
    /// Whether what others changed is written over.
    pub(super) force: bool,
    /// The seconds to wait for the written cells, if these are run; `None` within is the usual time.
    pub(super) run_timeout: Option<Option<f64>>,
}

/// The arguments of a call that edits a notebook.
pub(super) trait EditArguments: OfNotebook + DeserializeOwned {
    /// Returns the edit.
    fn edit(&self) -> Result<RequestedEdit, Problem>;
}

impl EditArguments for CreateCell {
    fn edit(&self) -> Result<RequestedEdit, Problem> {
        let selector = |cell: &Option<CellName>| cell.as_ref().map(CellName::selector);
        let operations = vec![Operation::Insert {
            after: selector(&self.after),
            before: selector(&self.before),
            // At other servers -1 is the end.
            at: self.index.filter(|index| *index != -1),
            id: None,
            cell_type: self.cell_type,
            source: self.source.clone(),
            metadata: None,
        }];
        Ok(RequestedEdit {
            operations,
            force: false,
            run_timeout: self.run.then_some(self.timeout_s),
        })
    }
}

impl EditArguments for UpdateCell {
    fn edit(&self) -> Result<RequestedEdit, Problem> {
        let cell = self.cell.selector();
        let mut if_rev = revision(self.expected_revision.as_deref())?;
        let mut operations = Vec::new();
        if self.source.is_some() && self.old_string.is_some() {
            return usage("either source or old_string and new_string are meant");
        }
        if self.source.is_some() || self.cell_type.is_some() {
            operations.push(Operation::Edit {
                cell: cell.clone(),
                if_rev: if_rev.take(),
                source: self.source.clone(),
                cell_type: self.cell_type,
                metadata: Vec::new(),
            });
        }
        match (&self.old_string, &self.new_string) {
            (Some(old), Some(new)) => operations.push(Operation::Replace {
                cell,
                if_rev: if_rev.take(),
                old: old.clone(),
                new: new.clone(),
                all: self.replace_all,
            }),
            (None, None) => {}
            _ => return usage("old_string and new_string go together"),
        }
        match operations.is_empty() {
            true => {
                usage("there is nothing to change: give source, old_string and new_string, or type")
            }
            false => Ok(RequestedEdit {
                operations,
                force: self.force,
                run_timeout: self.run.then_some(self.timeout_s),
            }),
        }
    }
}

impl EditArguments for DeleteCell {
    fn edit(&self) -> Result<RequestedEdit, Problem> {
        let operations = vec![Operation::Remove {
            cells: self.cell.selectors(),
            if_rev: revision(self.expected_revision.as_deref())?,
        }];
        Ok(RequestedEdit {
            operations,
            force: self.force,
            run_timeout: None,
        })
    }
}

impl EditArguments for ApplyEdits {
    fn edit(&self) -> Result<RequestedEdit, Problem> {
        let list = serde_json::to_string(&self.operations);
        let list = list.map_err(|error| Problem::failed("read the operations", &error))?;
        let operations = Operation::read_list(&list)
            .map_err(|error| Problem::new(ProblemKind::Usage, error.to_string()))?;
        Ok(RequestedEdit {
            operations,
            force: self.force,
            run_timeout: None,
        })
    }
}

/// What `run_cell` runs.
pub(super) enum ToRun {
    /// Code outside of the notebook.
    Code(String),
    /// Cells of the notebook.
    Cells(CellsToRun),
    /// All cells, in a fresh kernel.
    Verify,
}

impl RunCell {
    /// Returns what is to be run.
    pub(super) fn to_run(&self) -> Result<ToRun, Problem> {
        let Self { all, stale, .. } = *self;
        if self.verify {
            let is_part =
                self.cell.is_some() || stale || self.with.is_some() || self.code.is_some();
            return match is_part {
                true => usage("verify runs all cells, and nothing else"),
                false => Ok(ToRun::Verify),
            };
        }
        if let Some(code) = &self.code {
            return match self.cell.is_some() || all || stale || self.with.is_some() {
                true => usage("either cells or code are meant"),
                false => Ok(ToRun::Code(code.clone())),
            };
        }
        let with =
            |related| matches!(self.with, Some(it) if it == related || it == RelatedCells::Both);
        Ok(ToRun::Cells(CellsToRun {
            named: self
                .cell
                .as_ref()
                .map(|cell| cell.selectors())
                .unwrap_or_default(),
            all,
            stale,
            with_upstream: with(RelatedCells::Upstream),
            with_downstream: with(RelatedCells::Downstream),
            ..CellsToRun::default()
        }))
    }
}

impl History {
    /// Returns which edit is undone.
    pub(super) fn undo(&self) -> UndoRequest {
        UndoRequest {
            op: self.op.clone(),
            policy: policy(self.force),
        }
    }

    /// Returns which version of which cell is restored.
    pub(super) fn restore(&self) -> Result<RestoreRequest, Problem> {
        Ok(RestoreRequest {
            cell: self.cell()?,
            revision: self.revision.clone(),
            policy: policy(self.force),
        })
    }

    /// Returns the cell.
    pub(super) fn cell(&self) -> Result<crate::notebook::CellSelector, Problem> {
        match &self.cell {
            Some(cell) => Ok(cell.selector()),
            None => usage("which cell is meant?"),
        }
    }
}

/// Returns the policy by which a call writes.
pub(super) fn policy(force: bool) -> EditPolicy {
    EditPolicy {
        force,
        ..EditPolicy::default()
    }
}

/// Reads a revision.
pub(super) fn revision(text: Option<&str>) -> Result<Option<Revision>, Problem> {
    let read = |text: &str| {
        text.parse().map_err(|_| {
            let text = format!("{text:?} is no revision: ten hexadecimal digits");
            Problem::new(ProblemKind::Usage, text)
        })
    };
    text.map(read).transpose()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::arguments::ReadCell;
    use super::*;
    use crate::notebook::CellSelector;

    #[test]
    fn a_bad_argument_is_named() {
        let message = |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            read::<ReadCell>(arguments).map(drop).unwrap_err().message
        };
        for (arguments, expected) in [
            (
                json!({"notebook": "a.ipynb", "cell": 1.5}),
                "cell: an id or an index is expected, or a list of these",
            ),
            (
                json!({"notebook": "a.ipynb", "cell": 1, "limit": -1}),
                "limit: invalid value: integer `-1`, expected usize",
            ),
            (json!({"cell": 1}), "missing field `notebook`"),
        ] {
            assert_eq!(message(arguments), expected);
        }
    }

    #[test]
    fn values_in_strings_and_unknown_arguments_cost_no_turn() {
        let read = |arguments: Value| {
            let arguments = arguments.as_object().cloned().unwrap_or_default();
            read::<RunCell>(arguments).map(|(read, unknown)| {
                let cells = read.cell.map(|it| it.selectors()).unwrap_or_default();
                (cells, read.all, read.limit, read.timeout_s, unknown)
            })
        };
        let index = |all: &[i64]| {
            all.iter()
                .map(|it| CellSelector::Index(*it))
                .collect::<Vec<_>>()
        };
        for (arguments, expected) in [
            (
                json!({"notebook": "a", "all": "true", "limit": "100", "timeout": "2.5"}),
                (vec![], true, Some(100), Some(2.5), vec![]),
            ),
            (
                json!({"notebook": "a", "cells": "[0, 2]", "all": "False", "limit": 5.0}),
                (index(&[0, 2]), false, Some(5), None, vec![]),
            ),
            (
                json!({"notebook": "a", "cell": 0.0, "dry": true, "reason": "it is stale"}),
                (
                    index(&[0]),
                    false,
                    None,
                    None,
                    vec!["dry".to_owned(), "reason".to_owned()],
                ),
            ),
            // A string is never an index.
            (
                json!({"notebook": "a", "cell": "12"}),
                (
                    vec![CellSelector::Id("12".to_owned())],
                    false,
                    None,
                    None,
                    vec![],
                ),
            ),
        ] {
            assert_eq!(read(arguments.clone()).unwrap(), expected, "{arguments}");
        }
        for arguments in [
            json!({"notebook": "a", "all": "yes"}),
            json!({"notebook": "a", "limit": "ten"}),
            json!({"notebook": "a", "limit": 1.5}),
            json!({"notebook": "a", "cell": "[0"}),
            json!({"cell": 0, "file": "a"}),
        ] {
            let refused = read(arguments.clone());
            // Half a list is an id that there is not.
            let is_id = refused
                .as_ref()
                .is_ok_and(|it| it.0 == [CellSelector::Id("[0".to_owned())]);
            assert!(refused.is_err() || is_id, "{arguments}");
        }
        let many: JsonObject = (0..40).map(|at| (format!("a{at}"), json!(1))).collect();
        assert!(super::read::<RunCell>(many).is_err());
    }
}
