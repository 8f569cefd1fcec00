//! What a notebook's kernel has run, by what it said of each run, and which cells to run by that.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

use super::known::{Known, with_known};
use super::runs::{KernelRun, past_runs};
use crate::editing::notebook_file::NotebookFile;
use crate::execution::exec::{is_skipped, may_raise};
use crate::notebook::{Cell, CellType, Document};
use crate::project::StateError;
use crate::witness::{ExecutionFacts, RunCause, Uncertainty, WitnessStep, WitnessedKernel};

/// A notebook's code cells, and its kernel that says what each run changed.
#[derive(Debug)]
pub struct WitnessedNotebook {
    kernel: WitnessedKernel,
    /// The cells' indices in the notebook, ids and sources.
    cells: Vec<(usize, String, String)>,
    /// The places among them of those that are to be up to date; none for all.
    goals: Option<BTreeSet<usize>>,
    /// The ids of the cells that run, or wait to be run.
    open: HashSet<String>,
    /// The notebook's folder.
    folder: PathBuf,
}

/// What to do next.
#[derive(Debug)]
pub enum NextRun {
    /// Run the cell at this index of the notebook, once these variables are deleted.
    Cell(usize, BTreeSet<String>),
    /// Nothing. The places in it are indices of the notebook, and what is no variable is named in words.
    Nothing(Uncertainty),
}

/// A run of the kernel: its number, its cell, its text, and what the kernel said of it.
type WitnessedRun<'a> = (u64, Option<&'a str>, &'a str, Option<&'a ExecutionFacts>);

impl WitnessedNotebook {
    /// Puts together what a notebook's kernel has run and said; none if it says nothing, or the journal has no texts. The
    /// cells with the ids `only` are to be up to date; with none, all but those that are tagged `skip-execution`.
    /// `accepted` are the requests whose errors count as success.
    ///
    /// # Errors
    /// The project's state cannot be read.
    pub fn of(
        notebook: &NotebookFile,
        document: &Document,
        only: Option<&[String]>,
        accepted: &HashSet<&str>,
    ) -> Result<Option<Self>, StateError> {
        with_known(notebook, |known| {
            Self::read(notebook, document, only, accepted, known)
        })
    }

    /// Does the same with what is known of the notebook.
    pub(super) fn read(
        notebook: &NotebookFile,
        document: &Document,
        only: Option<&[String]>,
        accepted: &HashSet<&str>,
        Known { events, facts, .. }: &mut Known,
    ) -> Result<Option<Self>, StateError> {
        let project = &notebook.project;
        let state = project.state()?;
        let owner = state.owner_key(&notebook.key);
        let Some(session) = state.session(&owner) else {
            return Ok(None);
        };
        if !facts.read(project, &owner, &session) {
            return Ok(None);
        }
        let past = past_runs(project, &notebook.key, document, events)?;
        let has_texts = past
            .iter()
            .all(|it| it.past.cell.is_none() || it.past.code.is_some());
        let cells = cells_of(document, only.unwrap_or_default());
        let goals = only.map(|only| {
            let goals = cells.iter().enumerate();
            let goals = goals.filter(|(_, (_, id, _))| only.contains(id));
            goals.map(|(place, _)| place).collect()
        });
        let open = past.iter().filter(|it| it.is_open);
        Ok(has_texts.then(|| Self {
            kernel: kernel_of(document, &past, &facts.runs, accepted),
            cells,
            goals,
            open: open.filter_map(|it| it.past.cell.clone()).collect(),
            folder: notebook.real.parent().unwrap_or(&notebook.real).to_owned(),
        }))
    }

    /// Returns what to do next so that the kernel has what Restart & Run All would give it.
    pub fn next(mut self) -> NextRun {
        let mut unbind = BTreeSet::new();
        loop {
            match self.kernel.next_of(&self.texts(), self.goals.as_ref()) {
                WitnessStep::Unbind(names) => {
                    self.kernel.unbound(&names);
                    unbind.extend(names);
                }
                WitnessStep::Run(place) => return NextRun::Cell(self.index(place), unbind),
                WitnessStep::Done(uncertainty) => {
                    let words = |names: BTreeSet<String>| {
                        let names = names.iter().map(|name| self.in_words(name));
                        names.collect::<BTreeSet<_>>()
                    };
                    let files = uncertainty.files.into_iter();
                    let files = files.map(|(place, files)| (place, words(files)));
                    return NextRun::Nothing(Uncertainty {
                        cells: self.by_index(uncertainty.cells),
                        files: self.by_index(files.collect()),
                        left: words(uncertainty.left),
                        ..uncertainty
                    });
                }
            }
        }
    }

    /// Returns the indices in the notebook of the cells that would run if those that are out of date change what they
    /// changed before, and why. What is no variable is named in words.
    pub fn planned(&self) -> Vec<(usize, RunCause)> {
        let planned = self.kernel.planned(&self.texts(), self.goals.as_ref());
        let in_notebook = |cause| match cause {
            RunCause::Read { name, giver } => RunCause::Read {
                name: self.in_words(&name),
                giver: giver.map(|place| self.index(place)),
            },
            other => other,
        };
        let planned = planned.into_iter();
        let planned = planned.map(|(place, cause)| (self.index(place), in_notebook(cause)));
        planned.collect()
    }

    /// Returns how many cells there are.
    pub fn cell_count(&self) -> usize {
        self.cells.len()
    }

    /// Returns the name of a variable, or what else it is, in words.
    fn in_words(&self, resource: &str) -> String {
        match resource.split_once(':') {
            None => resource.to_owned(),
            Some(("file", path)) => {
                let path = Path::new(path);
                let path = path.strip_prefix(&self.folder).unwrap_or(path);
                format!("the file {}", path.display())
            }
            Some(("env", name)) => format!("the environment's {name}"),
            Some(("display", module)) => format!("the options of {module}"),
            Some((_, "cwd")) => "the working directory".to_owned(),
            Some((_, "path")) => "sys.path".to_owned(),
            Some((_, "random")) => "the state of random numbers".to_owned(),
            Some(_) => resource.to_owned(),
        }
    }

    /// Says whether the cell at an index of the notebook is one of the cells, and neither runs nor waits to be run.
    pub fn is_known(&self, index: usize) -> bool {
        let place = self.cells.binary_search_by_key(&index, |cell| cell.0);
        place.is_ok_and(|place| !self.open.contains(&self.cells[place].1))
    }

    fn texts(&self) -> Vec<(&str, &str)> {
        let cells = self.cells.iter();
        cells.map(|(_, id, text)| (&**id, &**text)).collect()
    }

    fn index(&self, place: usize) -> usize {
        self.cells.get(place).map_or(0, |cell| cell.0)
    }

    fn by_index<T>(&self, places: BTreeMap<usize, T>) -> BTreeMap<usize, T> {
        let places = places.into_iter();
        places.map(|(place, it)| (self.index(place), it)).collect()
    }
}

/// Returns the code cells that Restart & Run All runs, and those with the ids `also`.
fn cells_of(document: &Document, also: &[String]) -> Vec<(usize, String, String)> {
    let is_run = |cell: &Cell| !is_skipped(cell) || also.iter().any(|id| id == cell.id());
    let cells = document.cells().iter().enumerate();
    let cells = cells.filter(|(_, cell)| cell.cell_type() == CellType::Code && is_run(cell));
    let cells =
        cells.map(|(index, cell)| (index, cell.id().to_owned(), cell.source().into_owned()));
    cells.filter(|(.., text)| !text.trim().is_empty()).collect()
}

/// Follows the runs of a kernel in the order of their numbers. A number that is missing is a run that nobody saw.
fn kernel_of(
    document: &Document,
    past: &[KernelRun],
    facts: &HashMap<String, (u64, Option<ExecutionFacts>)>,
    accepted: &HashSet<&str>,
) -> WitnessedKernel {
    let cells = document.cells().iter();
    let mut by_text: HashMap<_, Option<&str>> = HashMap::new();
    for cell in cells.clone() {
        let entry = by_text.entry(cell.source());
        // If two cells have the same text, it is not known which one ran.
        entry.and_modify(|it| *it = None).or_insert(Some(cell.id()));
    }
    let raising = cells.filter(|cell| may_raise(cell));
    let raising: HashSet<_> = raising.map(|cell| cell.id()).collect();
    let (mut runs, mut known, mut last): (Vec<WitnessedRun<'_>>, _, _) =
        (Vec::new(), HashSet::new(), 0);
    for KernelRun {
        past,
        msg_id,
        is_open,
        ..
    } in past
    {
        let Some(msg_id) = msg_id else { continue };
        let text = past.code.as_deref().unwrap_or_default();
        let by_text = || by_text.get(text).copied().flatten();
        let cell = past.cell.as_deref().or_else(by_text);
        match facts.get(msg_id) {
            Some((run, facts)) => {
                known.insert(msg_id);
                last = last.max(*run);
                runs.push((*run, cell, text, facts.as_ref()));
            }
            None if text.trim().is_empty() || *is_open => {}
            // The kernel ended it without a word.
            None => runs.push((last, cell, text, None)),
        }
    }
    let others = facts.iter().filter(|(msg_id, _)| !known.contains(msg_id));
    runs.extend(others.map(|(_, (run, facts))| (*run, None, "", facts.as_ref())));
    runs.sort_by_key(|run| run.0);
    let accepted: HashSet<_> = past
        .iter()
        .filter(|it| it.msg_id.as_deref().is_some_and(|id| accepted.contains(id)))
        .filter_map(|it| it.past.cell.as_deref())
        .chain(raising)
        .collect();
    let mut kernel = WitnessedKernel::default();
    let mut next = 1;
    for (run, cell, text, facts) in runs {
        if run > next {
            kernel.ran(None, "", None);
        }
        next = next.max(run.saturating_add(1));
        match facts {
            Some(facts) if !facts.ok && cell.is_some_and(|it| accepted.contains(it)) => {
                let facts = ExecutionFacts {
                    ok: true,
                    ..facts.clone()
                };
                kernel.ran(cell, text, Some(&facts));
            }
            facts => kernel.ran(cell, text, facts),
        }
    }
    kernel
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{End, PastRun};
    use crate::notebook::tests::fixtures::cells;
    use crate::witness::{FactKind, FactWrite};

    /// Returns what is next after these runs of cells, each with the number that the kernel gave it, if it said anything,
    /// or 0 if the kernel runs it now; and after runs of other code.
    fn next(runs: &[(&str, Option<u64>)], console: &[u64]) -> WitnessStep {
        let document = cells("aaaa:x bbbb:y");
        let writes = |name: &str| ExecutionFacts {
            ok: true,
            writes: [(
                name.to_owned(),
                FactWrite(FactKind::Bound, None, true, true),
            )]
            .into(),
            ..ExecutionFacts::default()
        };
        let mut facts = HashMap::new();
        let mut past = Vec::new();
        for (at, (cell, run)) in runs.iter().enumerate() {
            let msg_id = at.to_string();
            let code = if *cell == "aaaa" { "x" } else { "y" };
            if let Some(run @ 1..) = run {
                facts.insert(msg_id.clone(), (*run, Some(writes(code))));
            }
            past.push(KernelRun {
                past: PastRun {
                    cell: Some((*cell).to_owned()),
                    code: Some(code.to_owned()),
                    end: End::Whole,
                },
                msg_id: Some(msg_id),
                is_open: *run == Some(0),
                at: None,
                is_cell: true,
            });
        }
        for run in console {
            facts.insert(format!("console {run}"), (*run, Some(writes("other"))));
        }
        let kernel = kernel_of(&document, &past, &facts, &HashSet::new());
        kernel.next(&[("aaaa", "x"), ("bbbb", "y")])
    }

    #[test]
    fn the_kernels_numbers_show_what_nobody_saw() {
        let is_certain = |step| match step {
            WitnessStep::Done(uncertainty) => Some(!uncertainty.is_any),
            _ => None,
        };
        let both = [("aaaa", Some(1)), ("bbbb", Some(2))];
        assert_eq!(is_certain(next(&both, &[])), Some(true));
        // Their order is the kernel's, whoever has stored them.
        let turned = [("aaaa", Some(2)), ("bbbb", Some(1))];
        assert_eq!(is_certain(next(&turned, &[])), Some(true));
        let WitnessStep::Done(uncertainty) = next(&both, &[3]) else {
            panic!("code that is no cell made a cell stale");
        };
        assert!(!uncertainty.is_any && uncertainty.left.contains("other"));
        // A number is missing, at the beginning or later; the largest one has no next.
        let late = [("aaaa", Some(2)), ("bbbb", Some(3))];
        assert_eq!(is_certain(next(&late, &[])), Some(false));
        assert_ne!(is_certain(next(&both, &[u64::MAX])), Some(true));
        // One run still goes on.
        let open = [("aaaa", Some(1)), ("bbbb", Some(2)), ("aaaa", Some(0))];
        assert_eq!(is_certain(next(&open, &[])), Some(true));
        // The kernel said nothing of one.
        assert_eq!(
            next(&[("aaaa", Some(1)), ("bbbb", None)], &[]),
            WitnessStep::Run(0)
        );
    }
}
