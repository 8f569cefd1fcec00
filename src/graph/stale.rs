//! Which cells are out of date: what the kernel has run, beside what Restart & Run All would run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::namespace::{Before, Namespace, Run, Trace, Version, is_module};
use super::{EffectsCache, Name};

/// One execution by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastRun {
    /// The cell that was run; none for other code.
    pub cell: Option<String>,
    /// The code; none if it was not recorded.
    pub code: Option<String>,
    /// How it ended.
    pub end: End,
}

/// How an execution ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It ran to its end, or still runs.
    Whole,
    /// It raised, or was interrupted.
    Failed,
    /// Nobody heard how it ended.
    Unheard,
}

/// Why a cell is out of date.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stale {
    /// This kernel has not run it.
    NotRun,
    /// Its text is another one than the kernel ran.
    Edited,
    /// Its last run failed.
    Failed,
    /// Nobody heard how its last run ended, or what its text was.
    Unheard,
    /// It reads a name that another cell gives a value.
    Needs {
        /// The name.
        name: Name,
        /// The place of that cell.
        cell: usize,
        /// What is the matter with that cell.
        because: Because,
    },
    /// When it ran, a name had a value that no cell above gives it.
    OtherValue(Name),
}

/// Why a value is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Because {
    /// The cell that gives it is out of date itself.
    IsStale,
    /// That cell ran later.
    RanAfter,
    /// Its value was then another cell's.
    WasOther,
}

/// What the kernel has run.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelRuns {
    /// The kernel's names now.
    pub(super) names: Namespace,
    /// The number of the next run.
    pub(super) next: Run,
    /// The last run of each cell, by its place.
    pub(super) last: HashMap<usize, LastRun>,
}

/// The last run of a cell.
#[derive(Clone, Debug)]
pub(super) struct LastRun {
    pub(super) run: Run,
    pub(super) end: End,
    /// Its text is still the cell's; none if the text is not known.
    pub(super) is_current: Option<bool>,
    code: Option<Arc<str>>,
    pub(super) inputs: BTreeMap<Name, Version>,
}

impl KernelRuns {
    /// Follows the runs of a kernel.
    pub(super) fn of(cells: &[(&str, &str)], runs: &[PastRun], cache: &mut EffectsCache) -> Self {
        let mut places = HashMap::new();
        let mut by_text: HashMap<&str, Option<usize>> = HashMap::new();
        for (at, (id, source)) in cells.iter().enumerate() {
            places.entry(*id).or_insert(at);
            // Of two cells with one text it is not known which one was meant.
            by_text
                .entry(*source)
                .and_modify(|it| *it = None)
                .or_insert(Some(at));
        }
        let mut kernel = Self {
            next: 1,
            ..Self::default()
        };
        for past in runs {
            let place = match &past.cell {
                Some(id) => places.get(id.as_str()).copied(),
                None => past
                    .code
                    .as_deref()
                    .and_then(|code| by_text.get(code).copied().flatten()),
            };
            let run = kernel.next;
            kernel.next += 1;
            let Some(code) = past.code.as_deref() else {
                kernel.names.any_run(run);
                if let Some(place) = place {
                    kernel
                        .last
                        .insert(place, LastRun::without_code(run, past.end));
                }
                continue;
            };
            let effects = cache.of(code);
            let before = place.and_then(|place| kernel.last.get(&place));
            let same = before.filter(|it| it.code.as_deref() == Some(code) && it.end == End::Whole);
            let same = same.map(|it| Before {
                run: it.run,
                inputs: &it.inputs,
            });
            let trace = match past.end {
                End::Whole => kernel.names.run(run, &effects, same.as_ref()),
                End::Failed | End::Unheard => kernel.names.run_in_part(run, &effects),
            };
            if let Some(place) = place {
                let is_current = cells.get(place).is_some_and(|(_, source)| *source == code);
                kernel.last.insert(
                    place,
                    LastRun {
                        run,
                        end: past.end,
                        is_current: Some(is_current),
                        code: Some(code.into()),
                        inputs: trace.inputs,
                    },
                );
            }
        }
        kernel
    }

    /// Returns why each cell is out of date.
    pub(super) fn stale(&self, traces: &[Trace]) -> Vec<Option<Stale>> {
        let mut all: Vec<Option<Stale>> = Vec::with_capacity(traces.len());
        for (at, trace) in traces.iter().enumerate() {
            all.push(self.why(at, trace, &all));
        }
        all
    }

    fn why(&self, at: usize, trace: &Trace, above: &[Option<Stale>]) -> Option<Stale> {
        let Some(last) = self.last.get(&at) else {
            return Some(Stale::NotRun);
        };
        match (last.is_current, last.end) {
            (Some(false), _) => return Some(Stale::Edited),
            (None, _) | (_, End::Unheard) => return Some(Stale::Unheard),
            (_, End::Failed) => return Some(Stale::Failed),
            (Some(true), End::Whole) => {}
        }
        for (name, wanted) in &trace.inputs {
            let writers = super::places(wanted);
            let is_stale = |cell: &usize| above.get(*cell).is_some_and(Option::is_some);
            if let Some(cell) = writers.iter().copied().find(is_stale) {
                let because = Because::IsStale;
                return Some(Stale::Needs {
                    name: name.clone(),
                    cell,
                    because,
                });
            }
            if wanted.is_empty() || self.has_read(last, name, wanted) {
                continue;
            }
            let Some(cell) = writers.last().copied() else {
                return Some(Stale::OtherValue(name.clone()));
            };
            let ran_after = self.last.get(&cell).is_some_and(|it| it.run > last.run);
            let because = match ran_after {
                true => Because::RanAfter,
                false => Because::WasOther,
            };
            return Some(Stale::Needs {
                name: name.clone(),
                cell,
                because,
            });
        }
        None
    }

    /// Says whether a run has read of a name what the cells above last wrote.
    pub(super) fn has_read(&self, last: &LastRun, name: &Name, wanted: &Version) -> bool {
        let read = last.inputs.get(name);
        read.is_some_and(|read| self.is_made(read, wanted))
    }

    /// Says whether a value was made by the last runs of these cells.
    pub(super) fn is_made(&self, version: &Version, wanted: &Version) -> bool {
        let wanted = wanted.iter().map(|run| match is_module(*run) {
            true => Some(*run),
            false => {
                let place = usize::try_from(*run).ok()?;
                self.last.get(&place).map(|last| last.run)
            }
        });
        let wanted: Option<Vec<Run>> = wanted.collect();
        wanted.is_some_and(|mut wanted| {
            wanted.sort_unstable();
            *version.as_ref() == *wanted
        })
    }
}

impl LastRun {
    /// A run whose code is not known.
    fn without_code(run: Run, end: End) -> Self {
        Self {
            run,
            end,
            is_current: None,
            code: None,
            inputs: BTreeMap::new(),
        }
    }

    /// A run that is planned.
    pub(super) fn planned(run: Run, inputs: BTreeMap<Name, Version>) -> Self {
        Self {
            run,
            end: End::Whole,
            is_current: Some(true),
            code: None,
            inputs,
        }
    }
}
