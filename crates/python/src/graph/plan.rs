//! Which cells to run so that the kernel has what Restart & Run All would give it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::namespace::{EarlierRun, Trace, Version, places};
use super::stale::{KernelRuns, LastRun, Stale};
use super::{Cancel, Cancelled, Graph, Name};

/// Cells to run, in the notebook's order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The cells.
    pub cells: Vec<PlannedCell>,
    /// The names whose values may be others than after Restart & Run All, even when all these cells have run.
    pub doubtful: BTreeMap<Name, Doubt>,
    /// Code ran that may write any name: every value may be another.
    pub is_any_doubtful: bool,
}

/// A cell to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedCell {
    /// Its place among the code cells.
    pub cell: usize,
    /// Why.
    pub why: RunReason,
}

/// Why a cell is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunReason {
    /// It was asked for.
    Requested,
    /// It is out of date.
    Stale(Stale),
    /// Another cell in the plan reads a name as this one left it, and it was changed since.
    Restores(Name),
    /// It reads a name from another cell in the plan.
    Reads {
        /// The name.
        name: Name,
        /// The place of the other cell.
        cell: usize,
    },
}

/// Which cells are to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlanRequest {
    /// The places of the cells.
    pub cells: BTreeSet<usize>,
    /// Of these cells, only those that are out of date, or become so.
    pub only_stale: bool,
    /// Also the cells out of date that they depend on.
    pub with_upstream: bool,
    /// Also all cells that depend on them.
    pub with_downstream: bool,
}

/// Why a name's value is not certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// The code that made it depends on something that its text does not show.
    Unknown,
    /// No cell gives it a value: it is left from a cell that was removed or edited, or from other code.
    Left,
    /// Several cells give it a value and none reads it: it has the value of the one that ran last.
    Unread,
    /// An earlier run may have left it.
    Earlier,
}

impl Graph {
    /// Plans to run all cells that are out of date, and those whose values they need again.
    pub fn plan_stale(&self) -> Plan {
        let request = PlanRequest {
            cells: (0..self.cells.len()).collect(),
            only_stale: true,
            ..PlanRequest::default()
        };
        let plan = self.plan(&request, &Cancel::default());
        plan.expect("it is never cancelled")
    }

    /// Plans to run cells, with others that this needs or concerns.
    ///
    /// # Errors
    /// The analysis was cancelled.
    pub fn plan(&self, request: &PlanRequest, cancel: &Cancel) -> Result<Plan, Cancelled> {
        let mut why = BTreeMap::new();
        let mut among = request.cells.clone();
        if !request.only_stale {
            why.extend(
                request
                    .cells
                    .iter()
                    .map(|cell| (*cell, RunReason::Requested)),
            );
        }
        if request.with_downstream {
            for cell in self.downstream(&request.cells) {
                if let Some((name, from)) = self.read_from(cell, &among)
                    && among.insert(cell)
                    && !request.only_stale
                {
                    why.insert(cell, RunReason::Reads { name, cell: from });
                }
            }
        }
        let upstream = match request.with_upstream {
            true => self.upstream(&among),
            false => BTreeSet::new(),
        };
        let candidates = match request.only_stale {
            true => &among | &upstream,
            false => upstream,
        };
        for cell in &candidates {
            let stale = self.cells.get(*cell).and_then(|it| it.stale.clone());
            if let Some(stale) = stale {
                why.entry(*cell).or_insert(RunReason::Stale(stale));
            }
        }
        let restores = request.only_stale || request.with_upstream;
        loop {
            let (kernel, missing) = self.simulate(&why, &candidates, cancel)?;
            if missing.is_empty() || !restores {
                return Ok(self.planned(why, &kernel));
            }
            why.extend(missing);
        }
    }

    /// Returns a name that a cell reads from one of these cells, and that cell.
    fn read_from(&self, cell: usize, among: &BTreeSet<usize>) -> Option<(Name, usize)> {
        let trace = self.traces.get(cell)?;
        trace.inputs.keys().find_map(|name| {
            let mut from = trace.givers(name).into_iter();
            let from = from.find(|it| among.contains(it))?;
            Some((name.clone(), from))
        })
    }

    /// Follows a plan, and returns the cells that it lacks: those whose values it needs again, and those of the
    /// candidates that it makes stale.
    fn simulate(
        &self,
        why: &BTreeMap<usize, RunReason>,
        candidates: &BTreeSet<usize>,
        cancel: &Cancel,
    ) -> Result<(KernelRuns, BTreeMap<usize, RunReason>), Cancelled> {
        let is_all = candidates.len() == self.cells.len();
        let mut kernel = KernelRuns::clone(&self.kernel);
        let mut missing = BTreeMap::new();
        let mut add = |name: &Name, writers: Vec<usize>| {
            for writer in writers {
                if !why.contains_key(&writer) {
                    missing
                        .entry(writer)
                        .or_insert_with(|| RunReason::Restores(name.clone()));
                }
            }
        };
        for cell in why.keys() {
            let (Some(effects), Some(source), Some(notebook_trace)) = (
                self.effects.get(*cell),
                self.sources.get(*cell),
                self.traces.get(*cell),
            ) else {
                continue;
            };
            cancel.check()?;
            kernel.next += 1;
            let run = kernel.next;
            let before = kernel
                .last
                .get(cell)
                .filter(|last| last.code.as_ref() == Some(source));
            let before = before.map(|last| (last.run, last.inputs.clone()));
            let before = before
                .as_ref()
                .map(|(run, inputs)| EarlierRun { run: *run, inputs });
            let trace = kernel.names.run(run, effects, before.as_ref());
            for (name, expected) in &notebook_trace.inputs {
                let read = trace.inputs.get(name);
                let may_be_made = |read| kernel.may_be_made(read, name, expected, &self.traces);
                if !expected.is_empty() && !read.is_some_and(may_be_made) {
                    add(name, notebook_trace.givers(name));
                }
            }
            kernel
                .last
                .insert(*cell, LastRun::planned(run, source.clone(), trace.inputs));
        }
        // A cell that reads what a planned one writes anew.
        let after = kernel.stale_after(&self.sources, &self.traces);
        let mut further = BTreeMap::new();
        for (cell, stale) in after {
            if candidates.contains(&cell) && !why.contains_key(&cell) {
                further.insert(cell, RunReason::Stale(stale));
            }
        }
        if is_all {
            let read = self.read_names();
            for (name, expected) in self.last.versions() {
                let may_be_made = |made| kernel.may_be_made(made, name, expected, &self.traces);
                if read.contains(name)
                    && !expected.is_empty()
                    && !kernel.names.version(name).is_some_and(may_be_made)
                {
                    add(name, self.last.givers(name));
                }
            }
        }
        for (cell, why) in further {
            missing.entry(cell).or_insert(why);
        }
        Ok((kernel, missing))
    }

    /// Returns the names that a cell reads from another.
    fn read_names(&self) -> BTreeSet<&Name> {
        self.traces
            .iter()
            .flat_map(|trace| trace.inputs.keys())
            .collect()
    }

    /// Returns the cells that have read a value that an earlier run may have left, and those that read what they wrote.
    fn made_from_left(&self, kernel: &KernelRuns) -> BTreeSet<usize> {
        let mut all = BTreeSet::new();
        for (cell, trace) in self.traces.iter().enumerate() {
            let Some(last) = kernel.last.get(&cell) else {
                continue;
            };
            let is_left = trace.inputs.iter().any(|(name, expected)| {
                let is_left = |read: &Version| {
                    !kernel.is_made(read, expected)
                        && kernel.may_be_made(read, name, expected, &self.traces)
                };
                last.inputs.get(name).is_some_and(is_left)
                    || places(expected.iter().copied())
                        .into_iter()
                        .any(|it| all.contains(&it))
            });
            if is_left {
                all.insert(cell);
            }
        }
        all
    }

    fn planned(&self, why: BTreeMap<usize, RunReason>, kernel: &KernelRuns) -> Plan {
        let mut doubtful = BTreeMap::new();
        let read = self.read_names();
        for (name, expected) in self.last.versions() {
            let made = kernel.names.version(name);
            let is_made = made.is_some_and(|made| kernel.is_made(made, expected));
            if kernel.names.is_doubtful(name) && !expected.is_empty() {
                doubtful.insert(name.clone(), Doubt::Unknown);
            } else if !is_made && !expected.is_empty() {
                let doubt = match read.contains(name) {
                    true => Doubt::Earlier,
                    false => Doubt::Unread,
                };
                doubtful.insert(name.clone(), doubt);
            }
        }
        let from_left = self.made_from_left(kernel);
        for (name, expected) in self.last.versions() {
            if places(expected.iter().copied())
                .into_iter()
                .any(|it| from_left.contains(&it))
            {
                doubtful.entry(name.clone()).or_insert(Doubt::Earlier);
            }
        }
        let later: Vec<_> = self
            .last
            .versions()
            .map(|(name, _)| name)
            .filter(|name| {
                let mut later = kernel.names.read_later(name);
                later.any(|read| doubtful.contains_key(read))
            })
            .collect();
        for name in later {
            doubtful.entry(name.clone()).or_insert(Doubt::Unknown);
        }
        for (name, made) in kernel.names.versions() {
            let is_known = self.last.version(name).is_some_and(|it| !it.is_empty());
            if !made.is_empty() && !is_known {
                doubtful.insert(name.clone(), Doubt::Left);
            }
        }
        Plan {
            cells: why
                .into_iter()
                .map(|(cell, why)| PlannedCell { cell, why })
                .collect(),
            doubtful,
            is_any_doubtful: kernel.names.is_any_doubtful(),
        }
    }
}

impl KernelRuns {
    /// Returns the cells that are out of date, with the reasons.
    fn stale_after(&self, sources: &[Arc<str>], traces: &[Trace]) -> Vec<(usize, Stale)> {
        let all = self.stale(sources, traces);
        let all = all.into_iter().enumerate();
        all.filter_map(|(cell, stale)| Some((cell, stale?)))
            .collect()
    }
}
