//! Which cells of a notebook depend on which and which are out of date: its cells and its kernel's past, put
//! together.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::earlier_outputs::outputs_of_earlier_text;
use super::known::{Known, with_known};
use super::runs::past_runs;
use super::witnessed::WitnessedNotebook;
use crate::editing::language;
use crate::editing::notebook_file::NotebookFile;
use crate::graph::{
    Cancel, Cancelled, CellLanguage, EffectsCache, Graph, GraphCell, PastRun, Stale, StaleCause,
};
use crate::notebook::{CellType, Document};
use crate::project::StateError;
use crate::witness::RunCause;

/// The part of a notebook's code that is analysed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Analysis {
    /// All of it, if it is in a language that can be read.
    Whole,
    /// The same, but nothing as long as the kernel has run nothing, or where the project's state cannot be read: then
    /// each cell is only one that was not run.
    IfRun,
    /// Nothing: each cell is taken to depend on all cells above it.
    InOrder,
}

/// Why a notebook has no graph.
#[derive(Debug, thiserror::Error)]
pub enum GraphError {
    /// The project's state cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The analysis was cancelled.
    #[error(transparent)]
    Cancelled(#[from] Cancelled),
}

/// A notebook's graph. Its cells are the code cells that are not blank.
#[derive(Debug)]
pub struct NotebookGraph {
    /// The graph.
    pub graph: Graph,
    /// The index in the notebook of each cell of the graph.
    places: Vec<usize>,
    /// The indices in the notebook of cells that the kernel has not run, and whose outputs are of an earlier text.
    with_earlier_outputs: BTreeSet<usize>,
    /// How often the kernel has run each cell, by its id.
    run_counts: HashMap<String, usize>,
    /// The kernel has run something.
    has_run: bool,
}

impl NotebookGraph {
    /// Analyses a notebook. What a process has found out about a notebook's texts and its kernel's past is kept, so
    /// that an analysis costs the same however much was run before.
    ///
    /// # Errors
    /// The project's state cannot be read, or the analysis was cancelled.
    pub fn of(
        notebook: &NotebookFile,
        document: &Document,
        analysis: Analysis,
        cancel: &Cancel,
    ) -> Result<Self, GraphError> {
        with_known(notebook, |known| {
            Self::of_known(notebook, document, analysis, cancel, known)
        })
    }

    fn of_known(
        notebook: &NotebookFile,
        document: &Document,
        analysis: Analysis,
        cancel: &Cancel,
        known: &mut Known,
    ) -> Result<Self, GraphError> {
        let runs = past_runs(
            &notebook.project,
            &notebook.key,
            document,
            &mut known.events,
        );
        let runs = match analysis {
            Analysis::IfRun => runs.unwrap_or_default(),
            Analysis::Whole | Analysis::InOrder => runs?,
        };
        let runs: Vec<_> = runs.into_iter().map(|run| run.past).collect();
        known.effects.set_language(match analysis {
            Analysis::InOrder => CellLanguage::InOrder,
            Analysis::IfRun if runs.is_empty() => CellLanguage::Other,
            Analysis::IfRun | Analysis::Whole => language_of(notebook, document),
        });
        let mut graph = Self::of_runs(notebook, document, &runs, &mut known.effects, cancel)?;
        let none = HashSet::new();
        let witnessed = match analysis {
            Analysis::InOrder => None,
            Analysis::IfRun => {
                WitnessedNotebook::read(notebook, document, None, &none, known).unwrap_or_default()
            }
            Analysis::Whole => WitnessedNotebook::read(notebook, document, None, &none, known)?,
        };
        if let Some(witnessed) = witnessed {
            graph.set_stale(&witnessed);
        }
        Ok(graph)
    }

    /// Replaces the cells that are out of date by those that the kernel's facts name.
    fn set_stale(&mut self, witnessed: &WitnessedNotebook) {
        let planned: HashMap<_, _> = witnessed.planned().into_iter().collect();
        let places = &self.places;
        let at = |index: usize| places.binary_search(&index).ok();
        self.graph.set_stale(|cell, by_text| {
            let index = *places.get(cell)?;
            if !witnessed.is_known(index) {
                return by_text;
            }
            let by_kernel = match planned.get(&index)? {
                RunCause::Needed => return by_text,
                RunCause::NotRun => Stale::NotRun,
                RunCause::Edited => Stale::Edited,
                RunCause::Failed => Stale::Failed,
                RunCause::Unseen => Stale::UnknownEnd,
                RunCause::Read { name, giver } => match giver.and_then(at) {
                    None => Stale::OtherValue(name.as_str().into()),
                    Some(cell) => Stale::Needs {
                        name: name.as_str().into(),
                        cell,
                        because: match giver.is_some_and(|giver| planned.contains_key(&giver)) {
                            true => StaleCause::IsStale,
                            false => StaleCause::WasOther,
                        },
                    },
                },
            };
            Some(by_text.unwrap_or(by_kernel))
        });
    }

    fn of_runs(
        notebook: &NotebookFile,
        document: &Document,
        runs: &[PastRun],
        cache: &mut EffectsCache,
        cancel: &Cancel,
    ) -> Result<Self, GraphError> {
        let mut graph = Self::with(document, |_, _| true, runs, cache, cancel)?;
        let not_run = graph
            .cells()
            .filter(|(_, cell)| cell.stale == Some(Stale::NotRun));
        let not_run: Vec<_> = not_run.map(|(place, _)| place).collect();
        let earlier = outputs_of_earlier_text(notebook, document, &not_run);
        graph.with_earlier_outputs = earlier.into_iter().collect();
        Ok(graph)
    }

    /// Analyses a notebook whose kernel has run this.
    /// Makes the graph of the code cells for whose index in the notebook and source `is_meant` is true.
    fn with(
        document: &Document,
        is_meant: impl Fn(usize, &str) -> bool,
        runs: &[PastRun],
        cache: &mut EffectsCache,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let cells = document.cells().iter().enumerate();
        let code = cells.filter(|(_, cell)| cell.cell_type() == CellType::Code);
        let code = code.map(|(place, cell)| (place, cell.id(), cell.source()));
        let code: Vec<_> = code
            .filter(|(place, _, source)| !source.trim().is_empty() && is_meant(*place, source))
            .collect();
        let cells = code.iter().map(|(_, id, source)| (*id, source.as_ref()));
        let mut run_counts = HashMap::new();
        for id in runs.iter().filter_map(|run| run.cell.as_ref()) {
            *run_counts.entry(id.clone()).or_default() += 1;
        }
        Ok(Self {
            graph: Graph::until(&cells.collect::<Vec<_>>(), runs, cache, cancel)?,
            places: code.iter().map(|(place, ..)| *place).collect(),
            with_earlier_outputs: BTreeSet::new(),
            run_counts,
            has_run: !runs.is_empty(),
        })
    }

    /// Returns the names that these cells read, by their indices in the notebook, and that certainly no cell gives a value.
    pub fn defined_nowhere(
        notebook: &NotebookFile,
        document: &Document,
        places: &BTreeSet<usize>,
    ) -> BTreeSet<String> {
        // The graphs of few cells would make the common cache forget the others.
        let mut cache = EffectsCache::default();
        cache.set_language(language_of(notebook, document));
        let mut nowhere = |is_meant: &dyn Fn(usize, &str) -> bool| {
            let none = Cancel::default();
            let graph = Self::with(document, is_meant, &[], &mut cache, &none).ok();
            let names = graph.map(|graph| graph.names_defined_nowhere(places));
            names.unwrap_or_default()
        };
        // Most often the few cells that have the names that these ones read give them a value: the others need not be read.
        let of_others = nowhere(&|place, _| places.contains(&place));
        let has_one = |source: &str| of_others.iter().any(|name| source.contains(name));
        let near = nowhere(&|place, source| places.contains(&place) || has_one(source));
        match near.is_empty() {
            true => near,
            false => nowhere(&|_, _| true),
        }
    }

    fn names_defined_nowhere(&self, places: &BTreeSet<usize>) -> BTreeSet<String> {
        let cells = places.iter().filter_map(|place| self.cell_at(*place));
        let names = cells.flat_map(|cell| self.graph.defined_nowhere(cell));
        names.map(ToString::to_string).collect()
    }

    /// Returns the cells, with their indices in the notebook.
    pub fn cells(&self) -> impl Iterator<Item = (usize, &GraphCell)> {
        self.places.iter().copied().zip(self.graph.cells())
    }

    /// Returns the cell at an index of the notebook: none if it is no code.
    pub fn at(&self, place: usize) -> Option<&GraphCell> {
        self.graph.cells().get(self.cell_at(place)?)
    }

    /// Returns the index in the notebook of a cell of the graph.
    pub fn place(&self, cell: usize) -> Option<usize> {
        self.places.get(cell).copied()
    }

    /// Returns the place in the graph of the cell at an index of the notebook: none if it is no code.
    pub fn cell_at(&self, place: usize) -> Option<usize> {
        self.places.binary_search(&place).ok()
    }

    /// Returns how often the kernel has run a cell.
    pub fn runs_of(&self, id: &str) -> usize {
        self.run_counts.get(id).copied().unwrap_or_default()
    }

    /// Says whether the kernel has run something.
    pub fn has_run(&self) -> bool {
        self.has_run
    }

    /// Says whether the outputs of the cell at an index of the notebook are of an earlier text, which the present
    /// kernel has not run.
    pub fn has_earlier_outputs(&self, place: usize) -> bool {
        self.with_earlier_outputs.contains(&place)
    }
}

/// Returns the language of a notebook's code cells: what the notebook says, or else its kernel.
pub fn language_of(notebook: &NotebookFile, document: &Document) -> CellLanguage {
    let named = document
        .metadata_string(&["language_info", "name"])
        .or_else(|| document.metadata_string(&["kernelspec", "language"]))
        .or_else(|| {
            language::of_kernel(notebook)?["name"]
                .as_str()
                .map(str::to_owned)
        });
    match named {
        Some(named) if !named.to_lowercase().contains("python") => CellLanguage::Other,
        _ => CellLanguage::Python,
    }
}
