//! Who waits for a kernel: the cells of front ends that their proxies hold until another client's cell has ended.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Serialize;

use crate::activity::actor::Actor;
use crate::activity::labels;
use crate::execution::cell_lookup::CellLookup;
use crate::notebook::Document;
use crate::project::Project;
use crate::project::event::RunningExecution;

/// A front end's cell that waits for the kernel.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WaitingRequest {
    /// Who waits.
    pub by: String,
    /// The key of the cell's notebook.
    pub notebook: String,
    /// The cell's id; none where the notebook's file has no such cell.
    pub cell: Option<String>,
    /// Its place in the notebook, from 0; none like the id.
    pub index: Option<usize>,
    /// The id of the request.
    pub msg_id: String,
    /// Since when.
    pub since: Timestamp,
    /// Who waits with which cell, in words.
    pub text: String,
    /// The cell's name.
    #[serde(skip)]
    pub label: String,
}

impl WaitingRequest {
    /// Returns the cells that wait, with their names in their notebooks' files.
    pub(super) fn all(project: &Project, waiting: Vec<RunningExecution>) -> Vec<Self> {
        let mut documents: HashMap<String, Option<Document>> = HashMap::new();
        for cell in &waiting {
            let read =
                || Document::parse(std::fs::read(project.notebook(&cell.notebook)).ok()?).ok();
            documents.entry(cell.notebook.clone()).or_insert_with(read);
        }
        let named = waiting.into_iter().map(|cell| {
            let document = documents.get(&cell.notebook).and_then(Option::as_ref);
            Self::of(cell, document)
        });
        named.collect()
    }

    fn of(request: RunningExecution, document: Option<&Document>) -> Self {
        let (name, code) = (request.cell.as_deref(), request.code.as_deref());
        let index = document.and_then(|document| {
            let pair = name.zip(code);
            CellLookup::of(document, pair.into_iter()).position(name?)
        });
        let place = document.zip(index);
        let label = place.and_then(|(document, index)| labels::place(document, index));
        let label = match label {
            Some(place) => format!("cell {place}"),
            None => labels::kind_and_label(name, code),
        };
        let by = Actor::parse(request.by.as_deref()).name();
        Self {
            text: format!("{by}, {label}"),
            label,
            cell: place
                .and_then(|(document, index)| Some(document.cells().get(index)?.id().to_owned())),
            by,
            notebook: request.notebook,
            index,
            msg_id: request.msg_id,
            since: request.since,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::project::event::{Event, EventKind, ExecutionStart};

    #[test]
    fn a_waiting_cell_has_the_name_that_it_has_in_its_notebook() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a.ipynb");
        let cells = ["aaaa1111", "23a3beef"].map(|id| {
            format!(
                r#"{{"cell_type":"code","id":"{id}","source":"x = '{id}'","metadata":{{}},"outputs":[],"execution_count":null}}"#
            )
        });
        let cells = cells.join(",");
        std::fs::write(
            &path,
            format!(r#"{{"cells":[{cells}],"metadata":{{}},"nbformat":4,"nbformat_minor":5}}"#),
        )
        .unwrap();
        let project = Project::for_notebook(&path).unwrap();
        let queued = |id: &str, cell: &str, code: &str| {
            let start = ExecutionStart {
                cell: Some(cell.to_owned()),
                code: Some(code.to_owned()),
                ..ExecutionStart::new(id)
            };
            Event {
                generation: Some(1),
                by: Some("human (VS Code)".to_owned()),
                ..Event::now("a.ipynb", EventKind::Queued(start))
            }
        };
        let address = "vscode-notebook-cell:/p/a.ipynb#W1";
        project.record(&[
            queued("1", address, "x = '23a3beef'"),
            queued("2", "aaaa1111", "x"),
            queued("3", address, "unsaved"),
        ]);
        let waiting = project.present("a.ipynb", 1).waiting;
        let named = WaitingRequest::all(&project, waiting);
        let texts: Vec<_> = named.iter().map(|it| it.text.as_str()).collect();
        assert_eq!(
            texts,
            [
                "human (VS Code), cell 1 · 23a3",
                "human (VS Code), cell 0 · aaaa",
                "human (VS Code), cell \"unsaved\"",
            ]
        );
        assert_eq!(named[0].cell.as_deref(), Some("23a3beef"));
        assert_eq!((named[1].index, named[2].index), (Some(0), None));
    }
}
