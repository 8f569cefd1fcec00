//! What depends on what: the cells of a notebook as a graph, which of them are out of date, and which to run.
//!
//! The order is the notebook's own: a cell reads what the last cell above it wrote. Restart & Run All gives the
//! values that count. [`Graph::of`] compares them with what the kernel has run, by following the names of both;
//! nothing is run for that. Where the code does not show what it does, [`Unknown`] says so.

mod namespace;
mod plan;
mod stale;
#[cfg(test)]
mod tests;

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

pub use crate::code::effects::{Name, SyntaxProblem, Unknown};
pub use plan::{Doubt, Plan, PlanRequest, PlannedCell, RunReason};
pub use stale::{End, PastRun, Stale, StaleCause};

use crate::code::effects::Effects;
use namespace::{Namespace, Trace, WriteKind, places};
use stale::FollowedRuns;

/// How many texts' effects are kept.
const MOST_KEPT: usize = 20_000;

/// How many texts are kept that are no longer used.
const FEW: usize = 100;

/// The language of a notebook's code cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CellLanguage {
    /// Python, as IPython runs it.
    #[default]
    Python,
    /// Another one, whose code is not read: what a cell does is unknown.
    Other,
    /// Another one, where each cell is taken to depend on all cells above it.
    InOrder,
}

/// The name that each cell of [`CellLanguage::InOrder`] reads and writes.
pub const CELLS_ABOVE: Name = Name::new_static("the cells above");

/// The effects of texts that were read before, and the runs that were followed: a text is parsed once.
#[derive(Debug, Default)]
pub struct EffectsCache {
    language: CellLanguage,
    known: HashMap<u64, (usize, Arc<Effects>)>,
    followed: FollowedRuns,
}

impl EffectsCache {
    /// Sets the language of the cells. What is known of texts in another one is forgotten.
    pub fn set_language(&mut self, language: CellLanguage) {
        if self.language != language {
            *self = Self {
                language,
                ..Self::default()
            };
        }
    }

    /// Forgets the texts that are no longer used, if they are more than those of so many cells.
    fn forget_unused(&mut self, cells: usize) {
        if self.known.len() > 2 * cells + FEW {
            self.known
                .retain(|_, (_, effects)| Arc::strong_count(effects) > 1);
        }
    }

    /// Returns what a text does.
    pub fn of(&mut self, source: &str) -> Arc<Effects> {
        match self.language {
            CellLanguage::Python => {}
            CellLanguage::Other => return Arc::new(Effects::of_other_language()),
            CellLanguage::InOrder => return Arc::new(Effects::of_next_in_order(CELLS_ABOVE)),
        }
        let mut hasher = DefaultHasher::new();
        source.hash(&mut hasher);
        let key = hasher.finish();
        if let Some((length, effects)) = self.known.get(&key)
            && *length == source.len()
        {
            return effects.clone();
        }
        if self.known.len() >= MOST_KEPT {
            self.known.clear();
        }
        let effects = Arc::new(Effects::of(source));
        self.known.insert(key, (source.len(), effects.clone()));
        effects
    }
}

/// The code cells of a notebook, and what is known of each.
#[derive(Debug)]
pub struct Graph {
    cells: Vec<GraphCell>,
    sources: Vec<Arc<str>>,
    effects: Vec<Arc<Effects>>,
    /// The names that each cell needs and writes when all are run in order; their places are the runs.
    traces: Vec<Trace>,
    /// The names after Restart & Run All.
    last: Namespace,
    kernel: Arc<stale::KernelRuns>,
}

/// A cell of a graph.
#[derive(Clone, Debug)]
pub struct GraphCell {
    /// The names that it reads and does not give a value itself, with the cells that they come from: several, if
    /// some may have left the value as it was; none, if no cell gives it one.
    pub reads: BTreeMap<Name, Vec<usize>>,
    /// The names that it binds.
    pub writes: BTreeSet<Name>,
    /// The names whose object it may change.
    pub changes: BTreeSet<Name>,
    /// The names that it deletes.
    pub deletes: BTreeSet<Name>,
    /// The names that have no value where it reads them, with the lines.
    pub undefined: BTreeMap<Name, usize>,
    /// The names that it binds and no cell reads.
    pub unused: BTreeSet<Name>,
    /// The effects that its text does not show, with the lines.
    pub unknown: Vec<(usize, Unknown)>,
    /// Why its text is not understood.
    pub problem: Option<SyntaxProblem>,
    /// Why it is out of date, if it is.
    pub stale: Option<Stale>,
}

/// A request to end an analysis. Clones are of one request.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Ends the analysis.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns an error if the analysis was ended.
    ///
    /// # Errors
    /// It was ended.
    pub fn check(&self) -> Result<(), Cancelled> {
        match self.0.load(Ordering::Relaxed) {
            true => Err(Cancelled),
            false => Ok(()),
        }
    }
}

/// An analysis was ended before it was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request was cancelled")]
pub struct Cancelled;

impl Graph {
    /// Analyses the code cells of a notebook, in its order, and the runs of its kernel, in theirs.
    pub fn of(cells: &[(&str, &str)], runs: &[PastRun], cache: &mut EffectsCache) -> Self {
        let graph = Self::until(cells, runs, cache, &Cancel::default());
        graph.expect("it is never cancelled")
    }

    /// The same, until it is cancelled.
    ///
    /// # Errors
    /// It was cancelled.
    pub fn until(
        cells: &[(&str, &str)],
        runs: &[PastRun],
        cache: &mut EffectsCache,
        cancel: &Cancel,
    ) -> Result<Self, Cancelled> {
        let mut last = Namespace::default();
        let mut all_effects = Vec::with_capacity(cells.len());
        let mut traces = Vec::with_capacity(cells.len());
        for (run, (_, source)) in (0..).zip(cells) {
            cancel.check()?;
            let effects = cache.of(source);
            traces.push(last.run(run, &effects, None));
            all_effects.push(effects);
        }
        let mut graph = Self {
            cells: Vec::new(),
            sources: cells.iter().map(|(_, source)| Arc::from(*source)).collect(),
            effects: all_effects,
            traces,
            last,
            kernel: stale::KernelRuns::of(cells, runs, cache, cancel)?,
        };
        cache.forget_unused(cells.len());
        let stale = graph.kernel.stale(&graph.sources, &graph.traces);
        let used = graph.used();
        let mut all = Vec::with_capacity(cells.len());
        for (at, trace) in graph.traces.iter().enumerate() {
            let effects = graph.effects.get(at);
            let names_written = |kinds: &[WriteKind]| {
                let writes = trace.writes.iter();
                let writes = writes.filter(|(_, kind)| kinds.contains(kind));
                writes
                    .map(|(name, _)| name.clone())
                    .collect::<BTreeSet<_>>()
            };
            let bound = names_written(&[WriteKind::Bound, WriteKind::Imported]);
            all.push(GraphCell {
                reads: trace
                    .inputs
                    .iter()
                    .map(|(name, version)| (name.clone(), places(version.iter().copied())))
                    .filter(|(name, _)| !trace.missing.contains_key(name))
                    .collect(),
                unused: bound
                    .iter()
                    .filter(|name| !used.contains(&(at, *name)))
                    .filter(|name| !name.starts_with('_') && !trace.uses.contains(*name))
                    .cloned()
                    .collect(),
                writes: names_written(&[
                    WriteKind::Bound,
                    WriteKind::Imported,
                    WriteKind::Temporary,
                ]),
                changes: names_written(&[WriteKind::Changed]),
                deletes: names_written(&[WriteKind::Deleted]),
                undefined: trace.missing.clone(),
                unknown: trace.unknown.clone(),
                problem: effects.and_then(|effects| effects.problem.clone()),
                stale: stale.get(at).cloned().flatten(),
            });
        }
        graph.cells = all;
        Ok(graph)
    }

    /// Replaces the reasons why cells are out of date: `reason` gets the place of a cell and the reason that its text gives.
    pub fn set_stale(&mut self, mut reason: impl FnMut(usize, Option<Stale>) -> Option<Stale>) {
        for (place, cell) in self.cells.iter_mut().enumerate() {
            cell.stale = reason(place, cell.stale.take());
        }
    }

    /// Returns the cells, in the notebook's order.
    pub fn cells(&self) -> &[GraphCell] {
        &self.cells
    }

    /// Returns the names that a cell reads and no cell of the notebook gives a value, if that is certain: each cell is
    /// understood, and none may write any name.
    pub fn defined_nowhere(&self, cell: usize) -> BTreeSet<&Name> {
        let is_open = |it: &GraphCell| {
            let mut unknown = it.unknown.iter();
            it.problem.is_some() || unknown.any(|(_, why)| matches!(why, Unknown::AnyName(_)))
        };
        let names = self.cells.get(cell).into_iter();
        let mut names: BTreeSet<_> = names.flat_map(|it| it.undefined.keys()).collect();
        names.retain(|name| {
            let mut cells = self.cells.iter();
            !cells.any(|it| is_open(it) || it.writes.contains(*name))
        });
        names
    }

    /// Returns how many calls and steps of functions were followed.
    #[cfg(test)]
    fn namespace_work(&self) -> u64 {
        self.last.work()
    }

    /// Returns which names of which cells another cell reads.
    fn used(&self) -> HashSet<(usize, &Name)> {
        let mut used = HashSet::new();
        let mut writers: HashMap<&Name, Vec<usize>> = HashMap::new();
        for (at, trace) in self.traces.iter().enumerate() {
            for name in trace.inputs.keys().chain(&trace.uses) {
                // Each is noted once.
                let writers = writers.get_mut(name).map(std::mem::take);
                used.extend(writers.into_iter().flatten().map(|writer| (writer, name)));
            }
            for (name, kind) in &trace.writes {
                let writers = writers.entry(name).or_default();
                if *kind != WriteKind::Changed && !trace.inputs.contains_key(name) {
                    writers.clear();
                }
                writers.push(at);
            }
        }
        used
    }

    /// Returns the cells that a cell depends on directly.
    pub fn needs(&self, cell: usize) -> BTreeSet<usize> {
        let Some(trace) = self.traces.get(cell) else {
            return BTreeSet::new();
        };
        let names = trace.inputs.keys();
        names.flat_map(|name| trace.givers(name)).collect()
    }

    /// Returns these cells and all that they depend on.
    pub fn upstream(&self, cells: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut all = cells.clone();
        for cell in (0..self.cells.len()).rev() {
            if all.contains(&cell) {
                all.extend(self.needs(cell));
            }
        }
        all
    }

    /// Returns these cells and all that depend on them.
    pub fn downstream(&self, cells: &BTreeSet<usize>) -> BTreeSet<usize> {
        let mut all = cells.clone();
        for cell in 0..self.cells.len() {
            if self.needs(cell).iter().any(|needed| all.contains(needed)) {
                all.insert(cell);
            }
        }
        all
    }
}
