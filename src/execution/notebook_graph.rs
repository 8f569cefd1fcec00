//! Which cells of a notebook depend on which and which are out of date: its cells and its kernel's past, put
//! together.

use std::collections::BTreeSet;

use super::runs::past_runs;
use super::stale::outputs_of_earlier_text;
use crate::editing::language;
use crate::editing::notebook_file::NotebookFile;
use crate::graph::{CellLanguage, EffectsCache, Graph, GraphCell, PastRun, Stale};
use crate::notebook::{CellType, Document};
use crate::project::StateError;

/// A notebook's graph. Its cells are the code cells that are not blank.
#[derive(Debug)]
pub struct NotebookGraph {
    /// The graph.
    pub graph: Graph,
    /// The language of the cells.
    pub language: CellLanguage,
    /// The index in the notebook of each cell of the graph.
    places: Vec<usize>,
    /// The indices in the notebook of cells that the kernel has not run, and whose outputs are of an earlier text.
    with_earlier_outputs: BTreeSet<usize>,
    /// The kernel has run something.
    has_run: bool,
}

impl NotebookGraph {
    /// Analyses a notebook.
    ///
    /// # Errors
    /// The project's state cannot be read.
    pub fn of(
        notebook: &NotebookFile,
        document: &Document,
        assume_order: bool,
    ) -> Result<Self, StateError> {
        let runs = past_runs(&notebook.project, &notebook.key, document)?;
        let language = language_of(notebook, document, assume_order);
        let mut graph = Self::with(document, &runs, &mut EffectsCache::new(language));
        let not_run = graph.cells().filter(|(_, cell)| cell.stale == Some(Stale::NotRun));
        let not_run: Vec<_> = not_run.map(|(place, _)| place).collect();
        let earlier = outputs_of_earlier_text(notebook, document, &not_run);
        graph.with_earlier_outputs = earlier.into_iter().collect();
        graph.language = language;
        Ok(graph)
    }

    /// Analyses a notebook whose kernel has run this.
    pub fn with(document: &Document, runs: &[PastRun], cache: &mut EffectsCache) -> Self {
        let cells = document.cells().iter().enumerate();
        let code = cells.filter(|(_, cell)| cell.cell_type() == CellType::Code);
        let code = code.map(|(place, cell)| (place, cell.id(), cell.source()));
        let code: Vec<_> = code.filter(|(.., source)| !source.trim().is_empty()).collect();
        let cells = code.iter().map(|(_, id, source)| (*id, source.as_ref()));
        Self {
            graph: Graph::of(&cells.collect::<Vec<_>>(), runs, cache),
            language: CellLanguage::default(),
            places: code.iter().map(|(place, ..)| *place).collect(),
            with_earlier_outputs: BTreeSet::new(),
            has_run: !runs.is_empty(),
        }
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
fn language_of(notebook: &NotebookFile, document: &Document, assume_order: bool) -> CellLanguage {
    let named = document
        .metadata_string(&["language_info", "name"])
        .or_else(|| document.metadata_string(&["kernelspec", "language"]))
        .or_else(|| language::known(notebook)?["name"].as_str().map(str::to_owned));
    match (named, assume_order) {
        (_, true) => CellLanguage::InOrder,
        (Some(named), _) if !named.to_lowercase().contains("python") => CellLanguage::Other,
        _ => CellLanguage::Python,
    }
}
