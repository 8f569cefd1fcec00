//! The operations that make one notebook's cells those of another.

use std::collections::HashSet;

use super::operation::Operation;
use crate::notebook::document::{Cell, CellSelector, Document};
use crate::notebook::json::Json;

impl Document {
    /// Returns the operations that give the cells of this notebook the texts, types, metadata and order that
    /// they have in `other`. Cells are the same if their ids are. Outputs, and the notebook's own metadata,
    /// are not compared.
    pub fn operations_to(&self, other: &Self) -> Vec<Operation> {
        let ids_after: HashSet<_> = other.cells().iter().map(Cell::id).collect();
        let (stay, go): (Vec<_>, Vec<_>) = self
            .cells()
            .iter()
            .map(Cell::id)
            .partition(|id| ids_after.contains(id));
        let mut operations = Vec::new();
        if !go.is_empty() {
            operations.push(Operation::Remove {
                cells: go.into_iter().map(by_id).collect(),
                if_rev: None,
            });
        }
        let mut order = stay;
        for (index, cell) in other.cells().iter().enumerate() {
            let Some(before) = self.cell_by_id(cell.id()) else {
                order.insert(index, cell.id());
                operations.push(Operation::Insert {
                    after: None,
                    before: None,
                    at: Some(index as i64),
                    id: Some(cell.id().to_owned()),
                    cell_type: Some(cell.cell_type()),
                    source: cell.source().into_owned(),
                    metadata: cell.metadata(&[]),
                });
                continue;
            };
            let now = order.iter().position(|id| *id == cell.id());
            if let Some(now) = now.filter(|now| *now != index) {
                let id = order.remove(now);
                order.insert(index, id);
                operations.push(Operation::Move {
                    cell: by_id(cell.id()),
                    if_rev: None,
                    after: None,
                    before: None,
                    to: Some(index as i64),
                });
            }
            let (old, new) = (before.source(), cell.source());
            let source = (old != new).then(|| new.into_owned());
            let is_other_type = before.cell_type() != cell.cell_type();
            let metadata = metadata(before, cell);
            if source.is_some() || is_other_type || !metadata.is_empty() {
                operations.push(Operation::Edit {
                    cell: by_id(cell.id()),
                    if_rev: None,
                    source,
                    cell_type: is_other_type.then(|| cell.cell_type()),
                    metadata,
                });
            }
        }
        operations
    }
}

fn by_id(id: &str) -> CellSelector {
    CellSelector::Id(id.to_owned())
}

/// Returns the values of a cell's metadata that differ; null for one that is gone.
fn metadata(before: &Cell, after: &Cell) -> Vec<(Vec<String>, Json)> {
    let read = |cell: &Cell| -> serde_json::Map<String, serde_json::Value> {
        let json = cell.metadata(&[]);
        let parsed = json.and_then(|json| serde_json::from_slice(json.bytes()).ok());
        parsed.unwrap_or_default()
    };
    let (before, after) = (read(before), read(after));
    let removed = before.keys().filter(|key| !after.contains_key(*key));
    let removed = removed.map(|key| (key, serde_json::Value::Null));
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| (key, value.clone()));
    removed
        .chain(changed)
        .filter_map(|(key, value)| {
            let value = Json::parse(&value.to_string()).ok()?;
            Some((vec![key.clone()], value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook(cells: &[(&str, &str, &str)]) -> Document {
        let cells: Vec<_> = cells
            .iter()
            .map(|(id, cell_type, source)| {
                let mut cell = serde_json::json!({
                    "id": id, "cell_type": cell_type, "metadata": {"tags": [id]}, "source": source,
                });
                if *cell_type == "code" {
                    cell["outputs"] = serde_json::json!([]);
                    cell["execution_count"] = serde_json::Value::Null;
                }
                cell
            })
            .collect();
        let whole = serde_json::json!({
            "cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5,
        });
        Document::parse(whole.to_string()).unwrap()
    }

    #[test]
    fn the_operations_lead_to_the_other_notebook() {
        let start = [
            ("aaaa", "code", "1"),
            ("bbbb", "code", "2"),
            ("cccc", "markdown", "3"),
            ("dddd", "raw", "4"),
        ];
        let ends: [&[(&str, &str, &str)]; 6] = [
            &start,
            &[],
            &[("dddd", "raw", "4"), ("aaaa", "code", "1")],
            &[
                ("cccc", "code", "3"),
                ("new1", "code", "x"),
                ("bbbb", "code", "2\n3"),
            ],
            &[("new1", "code", ""), ("new2", "markdown", "# T")],
            &[
                ("bbbb", "code", "2"),
                ("aaaa", "code", "1"),
                ("dddd", "raw", "4"),
                ("cccc", "markdown", "3"),
            ],
        ];
        for end in ends {
            let (before, target) = (notebook(&start), notebook(end));
            let operations = before.operations_to(&target);
            assert_eq!(operations.is_empty(), end == start, "{operations:?}");
            let mut ids = || panic!("each cell has its id");
            let (after, _) = before.applied(&operations, &mut ids).unwrap();
            let all = |document: &Document| -> Vec<_> {
                let cells = document.cells().iter();
                let parts = cells.map(|it| {
                    let metadata = it.metadata(&[]).map(|json| json.bytes().to_vec());
                    let metadata: serde_json::Value =
                        serde_json::from_slice(&metadata.unwrap()).unwrap();
                    (
                        it.id().to_owned(),
                        it.cell_type(),
                        it.source().into_owned(),
                        metadata,
                    )
                });
                parts.collect()
            };
            assert_eq!(all(&after), all(&target), "{end:?}");
        }
    }
}
