//! Lists of operations, applied all or none.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize as _;

use super::cells::{CellChange, ChangeKind, NewCell};
use super::conflict::Conflict;
use super::error::DocumentEditError;
use crate::notebook::document::{CellSelector, CellType, Document, Revision, SelectError};
use crate::notebook::json::{Json, JsonError, Object, items, value_at};

/// One edit; [`Operation::read_list`] reads them from JSON.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Operation {
    /// Insert a cell: after or before another, at a position, or at the end.
    Insert {
        /// The cell that it comes after.
        after: Option<CellSelector>,
        /// The cell that it comes before.
        before: Option<CellSelector>,
        /// Its position, from 0; a negative one counts from the end, -1 is before the last cell.
        at: Option<i64>,
        /// Its id; a random one if there is none.
        id: Option<String>,
        /// Its type; code by default.
        #[serde(rename = "type")]
        cell_type: Option<CellType>,
        /// Its source.
        #[serde(default)]
        source: String,
        /// Its metadata.
        metadata: Option<Json>,
    },
    /// Set the source, the type, metadata, or several of these.
    Edit {
        /// The cell.
        cell: CellSelector,
        /// The cell's required revision.
        if_rev: Option<Revision>,
        /// The new source.
        source: Option<String>,
        /// The new type.
        #[serde(rename = "type")]
        cell_type: Option<CellType>,
        /// Values to set, each with its path of keys; null removes a value. In JSON this is an object of
        /// keys and values.
        #[serde(default, deserialize_with = "values")]
        metadata: Vec<(Vec<String>, Json)>,
    },
    /// Replace a part of the source.
    Replace {
        /// The cell.
        cell: CellSelector,
        /// The cell's required revision.
        if_rev: Option<Revision>,
        /// The text to replace, which must occur exactly once unless `all` is set.
        old: String,
        /// The text that replaces it.
        new: String,
        /// Whether to replace each occurrence.
        #[serde(default)]
        all: bool,
    },
    /// Add lines at the end of the source.
    Append {
        /// The cell.
        cell: CellSelector,
        /// The cell's required revision.
        if_rev: Option<Revision>,
        /// The lines to add.
        source: String,
    },
    /// Remove cells.
    #[serde(alias = "rm")]
    Remove {
        /// The cells or ranges, as they are before any is removed.
        #[serde(rename = "cell", alias = "cells", deserialize_with = "one_or_several")]
        cells: Vec<CellSelector>,
        /// The cell's required revision, if it is one cell.
        if_rev: Option<Revision>,
    },
    /// Move a cell: after or before another cell, or to a position.
    Move {
        /// The cell.
        cell: CellSelector,
        /// The cell's required revision.
        if_rev: Option<Revision>,
        /// The cell that it comes after.
        after: Option<CellSelector>,
        /// The cell that it comes before.
        before: Option<CellSelector>,
        /// Its new position, from 0; a negative one counts from the end, -1 is the last.
        to: Option<i64>,
    },
    /// Clear outputs.
    Clear {
        /// The cells or ranges; an empty list is all cells.
        #[serde(
            rename = "cell",
            alias = "cells",
            default,
            deserialize_with = "one_or_several"
        )]
        cells: Vec<CellSelector>,
    },
    /// Split a cell in two.
    Split {
        /// The cell.
        cell: CellSelector,
        /// The cell's required revision.
        if_rev: Option<Revision>,
        /// The line that begins the second cell, from 0.
        line: usize,
        /// The second cell's id; a random one if there is none.
        id: Option<String>,
    },
    /// Join several cells.
    #[serde(alias = "merge")]
    Join {
        /// A range of cells, or a list of adjacent cells.
        #[serde(rename = "cells", alias = "cell", deserialize_with = "one_or_several")]
        cells: Vec<CellSelector>,
    },
}

/// Reads one selector, or a list of selectors that is not empty.
fn one_or_several<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<CellSelector>, D::Error> {
    let read = |cell| CellSelector::deserialize(cell).map_err(serde::de::Error::custom);
    let cells = match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Array(cells) => {
            cells.into_iter().map(read).collect::<Result<Vec<_>, _>>()?
        }
        cell => vec![read(cell)?],
    };
    match cells.is_empty() {
        true => Err(serde::de::Error::custom("an empty list of cells")),
        false => Ok(cells),
    }
}

fn values<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<(Vec<String>, Json)>, D::Error> {
    let values = BTreeMap::<String, Json>::deserialize(deserializer)?.into_iter();
    Ok(values.map(|(key, value)| (vec![key], value)).collect())
}

/// The error for a text that is not a list of operations.
#[derive(Debug, thiserror::Error)]
pub enum OperationListError {
    /// The text is not JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The text is not a list.
    #[error("expected a list of operations: [{{\"op\": \"edit\", ...}}, ...]")]
    NoList,
    /// An item of the list is not an operation.
    #[error("operation {number}: {reason}")]
    Operation {
        /// Its number in the list, from 0.
        number: usize,
        /// Why it is not an operation.
        reason: String,
    },
}

impl Operation {
    /// Reads a list like `[{"op": "edit", "cell": "3f2c", "source": "x = 1"}]`.
    ///
    /// # Errors
    /// The text is not JSON or not a list, or an item has an unknown or a missing field.
    pub fn read_list(text: &str) -> Result<Vec<Self>, OperationListError> {
        let list = Json::parse(text)?;
        let list = list.bytes();
        if !list.starts_with(b"[") {
            return Err(OperationListError::NoList);
        }
        let operations = items(list).into_iter().enumerate();
        let operations = operations.map(|(number, item)| {
            let read = Self::read(item.of(list));
            read.map_err(|reason| OperationListError::Operation { number, reason })
        });
        operations.collect()
    }

    /// Reads one operation. Its name becomes the outer key, as in `{"edit": {…}}`: only in this form does
    /// serde keep the bytes of metadata values.
    fn read(text: &[u8]) -> Result<Self, String> {
        let object = Object::read(text).ok_or("expected an object with \"op\"")?;
        let name = object.get(text, "op").map(|name| name.of(text));
        let name = name.ok_or("it has no \"op\"")?;
        let rest = object.remove(text, "op");
        let outside = [b"{", name, b":", &rest, b"}"].concat();
        serde_json::from_slice(&outside).map_err(|error| {
            let text = error.to_string();
            let reason = text.split(" at line ").next();
            reason.unwrap_or_default().to_owned()
        })
    }
}

/// Why a list of operations was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("operation {number}: {source}")]
pub struct OperationFailure {
    /// Its number in the list, from 0.
    pub number: usize,
    /// The error of this operation.
    pub source: OperationError,
}

/// Why an operation cannot be done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// The cell was not found.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// The edit cannot be made.
    #[error(transparent)]
    Edit(#[from] DocumentEditError),
    /// The cell does not have the required revision.
    #[error("cell {cell} has changed: its revision is {actual}, not {expected}")]
    Stale {
        /// The cell's id.
        cell: String,
        /// The required revision.
        expected: Revision,
        /// The revision that it has.
        actual: Revision,
        /// The new source, and the source in the file.
        conflict: Box<Conflict>,
    },
    /// Other cells are between those to join.
    #[error("only cells that stand next to each other can be joined: move them first")]
    Apart,
    /// A revision was given together with several cells.
    #[error("a revision applies to one cell, but several cells are named")]
    OneRevision,
    /// No position was given, or more than one.
    #[error("say one place: `after` or `before` a cell, or a number")]
    Place,
}

/// Refuses tags that the format does not allow: other programs cannot read such a notebook.
fn check_tags(path: &[&str], value: &Json) -> Result<(), DocumentEditError> {
    let are_tags = || serde_json::from_slice::<Vec<String>>(value.bytes()).is_ok();
    match path {
        ["tags"] if value.is_null() || are_tags() => Ok(()),
        ["tags", ..] => Err(DocumentEditError::BadTags),
        _ => Ok(()),
    }
}

impl Document {
    /// Applies operations in order, each to the result of the one before, and returns the resulting
    /// document. `fresh_id` makes ids for new cells.
    ///
    /// # Errors
    /// An operation cannot be done; the document is unchanged.
    pub fn applied(
        &self,
        operations: &[Operation],
        fresh_id: &mut dyn FnMut() -> String,
    ) -> Result<(Self, Vec<CellChange>), OperationFailure> {
        let mut document = self.clone();
        let mut changes = Vec::new();
        for (number, operation) in operations.iter().enumerate() {
            let done = document.apply(operation, fresh_id);
            changes.extend(done.map_err(|source| OperationFailure { number, source })?);
        }
        Ok((document, changes))
    }

    fn apply(
        &mut self,
        operation: &Operation,
        fresh_id: &mut dyn FnMut() -> String,
    ) -> Result<Vec<CellChange>, OperationError> {
        match operation {
            Operation::Insert {
                after,
                before,
                at,
                id,
                cell_type,
                source,
                metadata,
            } => {
                let cells = self.cells.len();
                let at = at.map(|at| self.position_of(at, cells + 1)).transpose()?;
                let at = self.place(after.as_ref(), before.as_ref(), at, Some(cells))?;
                let tags = metadata
                    .as_ref()
                    .and_then(|all| value_at(all.bytes(), &["tags"]));
                if let Some(tags) = tags {
                    check_tags(&["tags"], &tags)?;
                }
                let cell = NewCell {
                    id: id.clone().unwrap_or_else(&mut *fresh_id),
                    cell_type: cell_type.unwrap_or(CellType::Code),
                    source: source.clone(),
                    metadata: metadata.clone(),
                };
                Ok(vec![self.insert(at, &cell)?])
            }
            Operation::Edit {
                cell,
                if_rev,
                source,
                cell_type,
                metadata,
            } => {
                let at = self.expected(cell, *if_rev, source.as_deref())?;
                let mut changes = Vec::new();
                if let Some(cell_type) = cell_type {
                    changes.push(self.set_type(at, *cell_type)?);
                }
                if let Some(source) = source {
                    changes.push(self.set_source(at, source)?);
                }
                for (path, value) in metadata {
                    let path: Vec<_> = path.iter().map(String::as_str).collect();
                    check_tags(&path, value)?;
                    changes.push(match value.is_null() {
                        true => self.remove_metadata(at, &path)?,
                        false => self.set_metadata(at, &path, value)?,
                    });
                }
                Ok(as_one(changes))
            }
            Operation::Replace {
                cell,
                if_rev,
                old,
                new,
                all,
            } => {
                let at = self.expected(cell, *if_rev, None)?;
                Ok(vec![self.replace(at, old, new, *all)?])
            }
            Operation::Append {
                cell,
                if_rev,
                source,
            } => {
                let at = self.expected(cell, *if_rev, None)?;
                let mut text = self.check(at)?.source_bytes().into_owned();
                if !text.is_empty() {
                    text.push(b'\n');
                }
                text.extend_from_slice(source.as_bytes());
                Ok(vec![self.set_source_bytes(at, &text)?])
            }
            Operation::Remove { cells, if_rev } => {
                match (cells.as_slice(), if_rev) {
                    ([cell], Some(_)) => drop(self.expected(cell, *if_rev, None)?),
                    (_, Some(_)) => return Err(OperationError::OneRevision),
                    (_, None) => {}
                }
                let places = self.places(cells)?;
                // Remove from the end, so that the positions of the others stay valid.
                let removed = places.into_iter().rev().map(|at| self.remove(at));
                let mut removed: Vec<_> = removed.collect::<Result<_, _>>()?;
                removed.reverse();
                Ok(removed)
            }
            Operation::Move {
                cell,
                if_rev,
                after,
                before,
                to,
            } => {
                let from = match if_rev {
                    Some(_) => self.expected(cell, *if_rev, None)?,
                    None => self.find(cell)?,
                };
                let cells = self.cells.len();
                let to = to.map(|to| self.position_of(to, cells)).transpose()?;
                let place = self.place(after.as_ref(), before.as_ref(), to, None)?;
                // Removing the cell first shifts the cells after it by one.
                let beside = to.is_none() && place > from;
                Ok(vec![self.move_cell(from, place - usize::from(beside))?])
            }
            Operation::Clear { cells } => {
                let places = match cells.is_empty() {
                    true => (0..self.cells.len()).collect(),
                    false => self.places(cells)?,
                };
                // A single cell that cannot have outputs is an error; within a range it is skipped.
                let named = places.len() == 1 && !cells.is_empty();
                let mut changes = Vec::new();
                for at in places {
                    let code = self.check(at)?.cell_type() == CellType::Code;
                    if code || named {
                        let change = self.clear_outputs(at)?;
                        changes.extend(
                            Some(change).filter(|it| named || it.kind != ChangeKind::Nothing),
                        );
                    }
                }
                Ok(changes)
            }
            Operation::Split {
                cell,
                if_rev,
                line,
                id,
            } => {
                let at = self.expected(cell, *if_rev, None)?;
                let id = id.clone().unwrap_or_else(&mut *fresh_id);
                Ok(self.split(at, *line, &id)?.to_vec())
            }
            Operation::Join { cells } => {
                let places = self.places(cells)?;
                let (first, last) = (places.first(), places.last());
                let (Some(first), Some(last)) = (first, last) else {
                    return Err(DocumentEditError::NothingToJoin.into());
                };
                if last - first + 1 != places.len() {
                    return Err(OperationError::Apart);
                }
                Ok(self.join(*first, places.len())?)
            }
        }
    }

    /// Finds a cell and checks its revision, if one is required; `yours` is the new source, for the
    /// conflict.
    fn expected(
        &self,
        cell: &CellSelector,
        revision: Option<Revision>,
        yours: Option<&str>,
    ) -> Result<usize, OperationError> {
        let at = self.find(cell)?;
        let cell = self.check(at)?;
        let actual = cell.revision();
        match revision {
            Some(expected) if expected != actual => Err(OperationError::Stale {
                cell: cell.id().to_owned(),
                expected,
                actual,
                conflict: Box::new(Conflict {
                    cell: Some(cell.id().to_owned()),
                    field: "source".to_owned(),
                    base: None,
                    yours: yours.map(str::to_owned),
                    theirs: Some(cell.source().into_owned()),
                    revision: Some(actual),
                }),
            }),
            _ => Ok(at),
        }
    }

    /// Returns the positions of all selected cells, each once, in order.
    pub(super) fn places(&self, cells: &[CellSelector]) -> Result<BTreeSet<usize>, SelectError> {
        let mut places = BTreeSet::new();
        for cell in cells {
            places.extend(self.select(cell)?);
        }
        Ok(places)
    }

    fn place(
        &self,
        after: Option<&CellSelector>,
        before: Option<&CellSelector>,
        at: Option<usize>,
        end: Option<usize>,
    ) -> Result<usize, OperationError> {
        match (after, before, at) {
            (Some(after), None, None) => Ok(self.find(after)? + 1),
            (None, Some(before), None) => Ok(self.find(before)?),
            (None, None, Some(at)) => Ok(at),
            (None, None, None) => end.ok_or(OperationError::Place),
            _ => Err(OperationError::Place),
        }
    }
}

/// Merges several changes of one cell into one.
fn as_one(changes: Vec<CellChange>) -> Vec<CellChange> {
    let before = changes.first().and_then(|change| change.before);
    let edited = changes
        .iter()
        .any(|change| change.kind == ChangeKind::Edited);
    let one = changes.into_iter().next_back().map(|last| CellChange {
        before,
        kind: if edited {
            ChangeKind::Edited
        } else {
            last.kind
        },
        ..last
    });
    one.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook() -> Document {
        let cell = |id: &str| {
            format!(
                "{{\"cell_type\":\"code\",\"id\":\"{id}\",\"metadata\":{{}},\"source\":\"{id} 1\\n{id} 2\",\"outputs\":[],\"execution_count\":1}}"
            )
        };
        let cells = ["aaaa", "bbbb", "cccc"].map(cell).join(",");
        let text = format!(
            "{{\"cells\":[{cells}],\"metadata\":{{}},\"nbformat\":4,\"nbformat_minor\":5}}"
        );
        Document::parse(text).unwrap()
    }

    fn in_words(operations: &str) -> Result<String, String> {
        let operations = Operation::read_list(operations).map_err(|error| error.to_string())?;
        let mut number = 0;
        let mut fresh = || {
            number += 1;
            format!("new{number}")
        };
        let done = notebook().applied(&operations, &mut fresh);
        let (document, _) = done.map_err(|error| error.to_string())?;
        Ok(crate::notebook::tests::fixtures::in_words(&document))
    }

    #[test]
    fn each_sees_what_the_one_before_left() {
        for (operations, want) in [
            (
                "[]",
                "aaaa:aaaa 1|aaaa 2 bbbb:bbbb 1|bbbb 2 cccc:cccc 1|cccc 2",
            ),
            (
                r#"[{"op":"insert","source":"x"},{"op":"insert","after":"aaaa","id":"y","source":"y"},{"op":"rm","cell":"2..=3"}]"#,
                "aaaa:aaaa 1|aaaa 2 y:y new1:x",
            ),
            (
                r#"[{"op":"edit","cell":0,"source":"x"},{"op":"replace","cell":"bbbb","old":"bbbb","new":"b","all":true},{"op":"move","cell":"aaa","after":"cccc"}]"#,
                "bbbb:b 1|b 2 cccc:cccc 1|cccc 2 aaaa:x",
            ),
            (
                r#"[{"op":"move","cell":"cccc","before":"aaaa"},{"op":"move","cell":"aaaa","to":2},{"op":"split","cell":-1,"line":1},{"op":"join","cells":"0..2"}]"#,
                "cccc:cccc 1|cccc 2|bbbb 1|bbbb 2 aaaa:aaaa 1 new1:aaaa 2",
            ),
            (
                r#"[{"op":"rm","cell":[0,"2..","cccc"]},{"op":"insert","at":-1,"source":"x"},{"op":"insert","at":2,"source":"y"},{"op":"move","cell":0,"to":-1},{"op":"rm","cell":{"id":"new1"}},{"op":"join","cells":["new2","bbbb"]}]"#,
                "bbbb:bbbb 1|bbbb 2|y",
            ),
        ] {
            assert_eq!(in_words(operations), Ok(want.into()), "{operations}");
        }
    }

    #[test]
    fn one_that_cannot_be_done_stops_all() {
        let revision = notebook().cells()[0].revision();
        for (operations, want) in [
            (
                r#"[{"op":"rm","cell":"aaaa"},{"op":"rm","cell":"aaaa"}]"#.to_owned(),
                "operation 1: there is no cell \"aaaa\"".to_owned(),
            ),
            (
                r#"[{"op":"replace","cell":"aaaa","old":"a","new":"b"}]"#.to_owned(),
                "operation 0: the text to replace is 8 times in cell aaaa, on lines 1, 2: give more of it, or replace all".to_owned(),
            ),
            (
                r#"[{"op":"edit","cell":"aaaa","if_rev":"0000000000","source":""}]"#.to_owned(),
                format!("operation 0: cell aaaa has changed: its revision is {revision}, not 0000000000"),
            ),
            (
                r#"[{"op":"move","cell":"aaaa"}]"#.to_owned(),
                "operation 0: say one place: `after` or `before` a cell, or a number".to_owned(),
            ),
            (
                r#"[{"op":"insert","after":"aaaa","before":"bbbb"}]"#.to_owned(),
                "operation 0: say one place: `after` or `before` a cell, or a number".to_owned(),
            ),
            (
                r#"[{"op":"insert","at":4}]"#.to_owned(),
                "operation 0: there is no cell 4: the notebook has 3, from 0".to_owned(),
            ),
            (
                format!(r#"[{{"op":"rm","cell":[0,1],"if_rev":"{revision}"}}]"#),
                "operation 0: a revision applies to one cell, but several cells are named".to_owned(),
            ),
        ] {
            assert_eq!(in_words(&operations), Err(want), "{operations}");
        }
        for (text, error) in [
            (
                r#"[{"op":"rm","cell":0},{"op":"burn"}]"#,
                "operation 1: unknown variant `burn`",
            ),
            (
                r#"[{"op":"rm","cell":"aaaa","hard":true}]"#,
                "operation 0: unknown field `hard`",
            ),
            (r#"[{"op":"rm"}]"#, "operation 0: missing field `cell`"),
            (
                r#"[{"op":"clear","cell":[]}]"#,
                "operation 0: an empty list of cells",
            ),
            (
                r#"[{"op":"edit","cell":["a"]}]"#,
                "operation 0: [\"a\"] names no cell: an index like 3",
            ),
            (
                r#"[{"op":"join","cells":["aaaa","cccc"]}]"#,
                "operation 0: only cells that stand next to each other can be joined",
            ),
            (
                r#"[{"op":"rm","cell":"a b"}]"#,
                "operation 0: \"a b\" names no cell",
            ),
            (r#"[{"cell":0}]"#, "operation 0: it has no \"op\""),
            ("[3]", "operation 0: expected an object with \"op\""),
            ("{}", "expected a list of operations"),
            ("[", "not JSON: at byte 1, expected a value"),
        ] {
            let fault = in_words(text).unwrap_err();
            assert!(fault.starts_with(error), "{fault}");
        }
    }

    #[test]
    fn tags_are_a_list_of_strings_or_refused() {
        let apply = |operation: &str| {
            let operations = Operation::read_list(&format!("[{operation}]")).unwrap();
            notebook()
                .applied(&operations, &mut || "n".to_owned())
                .map(drop)
        };
        let tags = |tags: &str| {
            let edit = format!(r#"{{"op":"edit","cell":0,"metadata":{{"tags":{tags}}}}}"#);
            let insert = format!(r#"{{"op":"insert","metadata":{{"tags":{tags}}}}}"#);
            let (edited, inserted) = (apply(&edit), apply(&insert));
            assert_eq!(edited, inserted, "{tags}");
            edited
        };
        for good in [r#"["draft"]"#, "[]", "null"] {
            tags(good).unwrap();
        }
        for bad in [r#""draft""#, "[1]", r#"{"a": 1}"#] {
            let error = tags(bad).unwrap_err();
            assert!(error.to_string().contains(r#"["draft"]"#), "{error}");
        }
    }

    #[test]
    fn metadata_stays_as_it_is_written() {
        let text = r#"[{"op":"edit","cell":0,"type":"raw","metadata":{"big":12345678901234567890123,"gone":null}}]"#;
        let operations = Operation::read_list(text).unwrap();
        let (document, changes) = notebook().applied(&operations, &mut String::new).unwrap();
        let metadata = document.cells()[0].metadata(&[]).unwrap();
        assert_eq!(metadata.text(), "{\"big\":12345678901234567890123}");
        let [change] = changes.as_slice() else {
            panic!("one change of one cell: {changes:?}");
        };
        assert_eq!(change.kind, ChangeKind::Edited);
        assert_eq!(change.before, Some(notebook().cells()[0].revision()));
        assert_eq!(change.after, Some(document.cells()[0].revision()));
    }
}
