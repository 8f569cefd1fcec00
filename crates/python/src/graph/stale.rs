//! Which cells are out of date: what the kernel has run, beside what Restart & Run All would run.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::namespace::{EarlierRun, Namespace, Run, Trace, Version, is_module, places};
use super::{Cancel, Cancelled, EffectsCache, Name};

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
    /// Its end is not known.
    Unknown,
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
    /// The end or the text of its last run is not known.
    UnknownEnd,
    /// It reads a name that another cell gives a value.
    Needs {
        /// The name.
        name: Name,
        /// The place of that cell.
        cell: usize,
        /// Why that cell's value is out of date.
        because: StaleCause,
    },
    /// When it ran, a name had a value that no cell above gives it.
    OtherValue(Name),
}

/// Why a value is out of date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StaleCause {
    /// The cell that gives it is out of date itself.
    IsStale,
    /// That cell ran later.
    RanAfter,
    /// Its value was then another cell's.
    WasOther,
}

/// The runs of a kernel.
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
    /// Its text, if it is known.
    pub(super) code: Option<Arc<str>>,
    pub(super) inputs: BTreeMap<Name, Version>,
}

/// The runs of a kernel that were followed before, each with the place of its cell.
#[derive(Debug, Default)]
pub(super) struct FollowedRuns {
    runs: Vec<(Option<usize>, PastRun)>,
    kernel: Arc<KernelRuns>,
}

impl KernelRuns {
    /// Follows the runs of a kernel; those that were followed before are not followed again.
    pub(super) fn of(
        cells: &[(&str, &str)],
        runs: &[PastRun],
        cache: &mut EffectsCache,
        cancel: &Cancel,
    ) -> Result<Arc<Self>, Cancelled> {
        let mut places = HashMap::new();
        let mut by_text: HashMap<&str, Option<usize>> = HashMap::new();
        for (at, (id, source)) in cells.iter().enumerate() {
            places.entry(*id).or_insert(at);
            // If two cells have the same text, it is not known which one ran.
            by_text
                .entry(*source)
                .and_modify(|it| *it = None)
                .or_insert(Some(at));
        }
        let place = |past: &PastRun| match &past.cell {
            Some(id) => places.get(id.as_str()).copied(),
            None => by_text.get(past.code.as_deref()?).copied().flatten(),
        };
        let runs: Vec<_> = runs.iter().map(|past| (place(past), past)).collect();
        let mut followed = std::mem::take(&mut cache.followed);
        let known = followed.runs.iter().map(|(place, past)| (*place, past));
        if followed.runs.len() > runs.len()
            || !known.eq(runs.iter().copied().take(followed.runs.len()))
        {
            followed = FollowedRuns::default();
        }
        let kernel = Arc::make_mut(&mut followed.kernel);
        for (place, past) in runs.into_iter().skip(followed.runs.len()) {
            cancel.check()?;
            kernel.follow(place, past, cache);
            followed.runs.push((place, past.clone()));
        }
        let kernel = followed.kernel.clone();
        cache.followed = followed;
        Ok(kernel)
    }

    /// Follows one run; its cell is at this place.
    fn follow(&mut self, place: Option<usize>, past: &PastRun, cache: &mut EffectsCache) {
        self.next += 1;
        let run = self.next;
        let mut last = LastRun {
            run,
            end: past.end,
            code: None,
            inputs: BTreeMap::new(),
        };
        match past.code.as_deref() {
            Some(code) => {
                let effects = cache.of(code);
                let before = place.and_then(|place| self.last.get(&place));
                let same =
                    before.filter(|it| it.code.as_deref() == Some(code) && it.end == End::Whole);
                let same = same.map(|it| EarlierRun {
                    run: it.run,
                    inputs: &it.inputs,
                });
                let trace = match past.end {
                    End::Whole => self.names.run(run, &effects, same.as_ref()),
                    End::Failed | End::Unknown => self.names.run_in_part(run, &effects),
                };
                last.code = Some(code.into());
                last.inputs = trace.inputs;
            }
            None => self.names.any_run(run),
        }
        if let Some(place) = place {
            self.last.insert(place, last);
        }
    }

    /// Returns why each cell is out of date.
    pub(super) fn stale(&self, sources: &[Arc<str>], traces: &[Trace]) -> Vec<Option<Stale>> {
        let mut all: Vec<Option<Stale>> = Vec::with_capacity(traces.len());
        for (at, (source, trace)) in sources.iter().zip(traces).enumerate() {
            all.push(self.why(at, source, trace, traces, &all));
        }
        all
    }

    fn why(
        &self,
        at: usize,
        source: &str,
        trace: &Trace,
        traces: &[Trace],
        above: &[Option<Stale>],
    ) -> Option<Stale> {
        let Some(last) = self.last.get(&at) else {
            return Some(Stale::NotRun);
        };
        let is_current = last.code.as_deref().map(|code| code == source);
        match (is_current, last.end) {
            (Some(false), _) => return Some(Stale::Edited),
            (None, _) | (_, End::Unknown) => return Some(Stale::UnknownEnd),
            (_, End::Failed) => return Some(Stale::Failed),
            (Some(true), End::Whole) => {}
        }
        for (name, expected) in &trace.inputs {
            let writers = places(expected.iter().copied());
            let is_stale = |cell: &usize| above.get(*cell).is_some_and(Option::is_some);
            if let Some(cell) = writers.iter().copied().find(is_stale) {
                let because = StaleCause::IsStale;
                return Some(Stale::Needs {
                    name: name.clone(),
                    cell,
                    because,
                });
            }
            let read = last.inputs.get(name);
            if expected.is_empty()
                || read.is_some_and(|read| self.may_be_made(read, name, expected, traces))
            {
                continue;
            }
            let Some(cell) = trace.givers(name).last().copied() else {
                return Some(Stale::OtherValue(name.clone()));
            };
            let ran_after = self.last.get(&cell).is_some_and(|it| it.run > last.run);
            let because = match ran_after {
                true => StaleCause::RanAfter,
                false => StaleCause::WasOther,
            };
            return Some(Stale::Needs {
                name: name.clone(),
                cell,
                because,
            });
        }
        None
    }

    /// Says whether a value was made by the last runs of these cells.
    pub(super) fn is_made(&self, version: &Version, expected: &Version) -> bool {
        let made = self.last_runs(expected);
        made.is_some_and(|made| *version.as_ref() == *made)
    }

    /// Says whether running these cells again would give a name nothing that is more certain: they made its value, or
    /// they only perhaps write it, and left in it what runs before theirs gave.
    pub(super) fn may_be_made(
        &self,
        version: &Version,
        name: &Name,
        expected: &Version,
        traces: &[Trace],
    ) -> bool {
        let Some(made) = self.last_runs(expected) else {
            return false;
        };
        if *version.as_ref() == *made {
            return true;
        }
        let places = places(expected.iter().copied());
        let first = places.first().and_then(|place| traces.get(*place));
        let is_earlier = |run: &Run| is_module(*run) || made.first().is_some_and(|it| run < it);
        first.is_some_and(|trace| !trace.certainly_writes(name))
            && made.iter().all(|run| version.contains(run))
            && version.iter().all(|it| made.contains(it) || is_earlier(it))
    }

    /// Returns the last runs of the cells that give a value.
    fn last_runs(&self, expected: &Version) -> Option<Vec<Run>> {
        let expected = expected.iter().map(|run| match is_module(*run) {
            true => Some(*run),
            false => {
                let place = usize::try_from(*run).ok()?;
                self.last.get(&place).map(|last| last.run)
            }
        });
        let mut expected = expected.collect::<Option<Vec<Run>>>()?;
        expected.sort_unstable();
        Some(expected)
    }
}

impl LastRun {
    /// A run that is planned.
    pub(super) fn planned(run: Run, source: Arc<str>, inputs: BTreeMap<Name, Version>) -> Self {
        Self {
            run,
            end: End::Whole,
            code: Some(source),
            inputs,
        }
    }
}
