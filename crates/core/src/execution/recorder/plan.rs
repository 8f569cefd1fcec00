//! A job whose cells were planned for one revision of the notebook: an edit of the code ends it.

use std::collections::BTreeMap;

use super::state::Recorder;
use crate::editing::notebook_file::NotebookFile;
use crate::notebook::{CellType, Document};
use crate::project::jobs::Job;

/// The code of the notebook for which a job's cells were planned.
#[derive(Debug, Default)]
pub(super) struct PlannedCode {
    /// The id and the source of each code cell; none before the first reading.
    code: Option<Vec<(String, String)>>,
}

impl Recorder<'_> {
    /// Returns why the plan does not hold any more, if it does not.
    pub(super) async fn edited(&self, planned: &mut PlannedCode) -> Option<String> {
        let revision = self.job.borrow().plan.clone()?;
        let path = self.job.borrow().path.clone();
        let read = tokio::task::spawn_blocking(move || NotebookFile::of(&path)?.read());
        // A notebook that cannot be read now may be one that is being written.
        let document = read.await.ok()?.ok()?;
        let now = code(&document);
        let before = match planned.code.take() {
            Some(before) => before,
            None if document.revision().to_string() == revision => now.clone(),
            // It was edited before this recorder began: only the job's own cells are known.
            None => {
                let cell = edited_cell(&self.job.borrow(), &now);
                if let Some(cell) = cell {
                    return Some(text(&cell));
                }
                now.clone()
            }
        };
        let edited = first_difference(&before, &now);
        planned.code = Some(before);
        Some(text(&edited?))
    }
}

fn text(change: &str) -> String {
    format!("{change} since these cells were planned: the rest is not run")
}

/// Returns the id and the source of each code cell.
fn code(document: &Document) -> Vec<(String, String)> {
    let cells = document.cells().iter();
    let cells = cells.filter(|cell| cell.cell_type() == CellType::Code);
    cells
        .map(|cell| (cell.id().to_owned(), cell.source().into_owned()))
        .collect()
}

/// Returns what was done to the first of a job's cells that is not as it was planned.
fn edited_cell(job: &Job, now: &[(String, String)]) -> Option<String> {
    let now: BTreeMap<_, _> = now.iter().map(|(id, source)| (id, source)).collect();
    job.cells.iter().find_map(|cell| {
        let id = cell.cell.as_ref()?;
        match now.get(id) {
            Some(source) if **source == cell.code => None,
            Some(_) => Some(format!("cell {id} was edited")),
            None => Some(format!("cell {id} was removed")),
        }
    })
}

/// Returns what was done to the first cell that is not as it was.
fn first_difference(before: &[(String, String)], now: &[(String, String)]) -> Option<String> {
    if before == now {
        return None;
    }
    let known: BTreeMap<_, _> = before.iter().map(|(id, source)| (id, source)).collect();
    let present: BTreeMap<_, _> = now.iter().map(|(id, source)| (id, source)).collect();
    let changed = now.iter().find_map(|(id, source)| match known.get(id) {
        Some(before) if *before == source => None,
        Some(_) => Some(format!("cell {id} was edited")),
        None => Some(format!("cell {id} was inserted")),
    });
    let removed = || {
        let removed = before.iter().find(|(id, _)| !present.contains_key(id))?;
        Some(format!("cell {} was removed", removed.0))
    };
    let moved = || {
        let mut pairs = before.iter().zip(now);
        let (_, moved) = pairs.find(|(before, now)| before != now)?;
        Some(format!("cell {} was moved", moved.0))
    };
    changed.or_else(removed).or_else(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cells: &str) -> Vec<(String, String)> {
        let cells = cells.split(' ').filter_map(|cell| cell.split_once(':'));
        cells
            .map(|(id, source)| (id.to_owned(), source.to_owned()))
            .collect()
    }

    #[test]
    fn the_cell_that_is_not_as_planned_is_named() {
        let before = list("a:1 b:2 c:3");
        for (now, want) in [
            ("a:1 b:2 c:3", None),
            ("a:1 b:9 c:3", Some("cell b was edited")),
            ("a:1 c:3", Some("cell b was removed")),
            ("a:1 b:2 d:4 c:3", Some("cell d was inserted")),
            ("a:1 c:3 b:2", Some("cell c was moved")),
        ] {
            assert_eq!(
                first_difference(&before, &list(now)).as_deref(),
                want,
                "{now}"
            );
        }
    }
}
