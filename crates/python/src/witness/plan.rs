//! Which cell to run next so that the kernel has what Restart & Run All would give it.
//!
//! The version of a resource is a chain: the run that bound it, and then the runs that changed it. There are two chains
//! of each resource: the live one, and the one before a cell of the document if each cell had done what it did in its
//! last run. A cell is good if its last run had today's text and read the chains of the document. That one rule holds
//! for edited, deleted, new and moved cells, and for cells that ran in another order.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{ExecutionFacts, FactKind, FactWrite, Resource};

/// How many versions a live chain has at most.
const MOST_VERSIONS: usize = 1000;

/// A state of a resource after one run: the number of that run, or of an earlier one that gave the same.
type Version = u64;

/// The versions in the document, each with the place of its cell and the kind of its write.
type DocumentChains = BTreeMap<Resource, Vec<(Version, usize, FactKind)>>;

/// What a kernel has run, with what it said about each run.
#[derive(Clone, Debug, Default)]
pub struct WitnessedKernel {
    live: BTreeMap<Resource, Vec<Version>>,
    last: HashMap<String, LastRun>,
    /// The variables that the functions in a variable name.
    reach: BTreeMap<Resource, BTreeSet<Resource>>,
    runs: Version,
    /// A run of which nothing is known may have written any variable.
    has_unseen: bool,
}

/// The last run of a cell.
#[derive(Clone, Debug, Default)]
struct LastRun {
    text: String,
    is_seen: bool,
    is_ok: bool,
    reads_any: bool,
    reads: BTreeMap<Resource, Vec<Version>>,
    /// What runs of the same text have read before: which of two names a run reads may depend on their values.
    read_before: BTreeSet<Resource>,
    /// What it writes only perhaps: whether it did is seen only if the name has no value before.
    perhaps: BTreeSet<Resource>,
    writes: BTreeMap<Resource, (Version, FactWrite)>,
    uncertain: BTreeSet<String>,
}

/// What a walk over the cells has found.
#[derive(Debug, Default)]
struct Walk {
    /// The cells to run, with the variables to delete before.
    runs: Vec<(usize, RunCause, BTreeSet<Resource>)>,
    /// The cells that a cell needs again.
    wanted: BTreeSet<usize>,
    document: DocumentChains,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WitnessStep {
    /// Run the cell at this place.
    Run(usize),
    /// Delete these variables: the next cell mentions them, and no cell above it gives them a value.
    Unbind(BTreeSet<Resource>),
    /// Nothing: the kernel has what Restart & Run All would give.
    Done(Uncertainty),
}

/// Why a cell is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunCause {
    /// The kernel has not run it.
    NotRun,
    /// Its text is another one than the kernel ran.
    Edited,
    /// Nothing is known of its last run.
    Unseen,
    /// Its last run failed.
    Failed,
    /// Its last run read another version of a resource.
    Read {
        /// The resource.
        name: Resource,
        /// The place of the last cell above that writes it.
        giver: Option<usize>,
    },
    /// Another cell needs what it gives.
    Needed,
}

/// What is not certain when all cells have run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uncertainty {
    /// A run of which nothing is known may have written any variable.
    pub is_any: bool,
    /// The places of the cells that may give other values after a restart, with the reasons that are their own.
    pub cells: BTreeMap<usize, BTreeSet<String>>,
    /// The places of the cells that read files which no cell above binds: other programs may write them.
    pub files: BTreeMap<usize, BTreeSet<Resource>>,
    /// The resources that have a value from such a cell.
    pub resources: BTreeSet<Resource>,
    /// The resources that no cell gives a value: they are left from code that is no longer there.
    pub left: BTreeSet<Resource>,
}

/// Says whether a resource is a variable, which can be deleted.
fn is_variable(resource: &str) -> bool {
    !resource.contains(':')
}

impl WitnessedKernel {
    /// Notes that the kernel has run a text, of this cell if it is one's. Without facts it may have done anything.
    pub fn ran(&mut self, cell: Option<&str>, text: &str, facts: Option<&ExecutionFacts>) {
        self.runs += 1;
        let run = self.runs;
        let Some(facts) = facts else {
            self.has_unseen = true;
            self.live.values_mut().for_each(|chain| chain.push(run));
            if let Some(cell) = cell {
                let last = LastRun {
                    text: text.to_owned(),
                    ..LastRun::default()
                };
                self.last.insert(cell.to_owned(), last);
            }
            return;
        };
        if !facts.unbound.is_empty() {
            self.unbound(&facts.unbound);
        }
        let chain = |name: &Resource| {
            let chain = self.live.get(name).cloned().unwrap_or_default();
            (name.clone(), chain)
        };
        let mut reads: BTreeMap<_, _> = facts.reads.iter().map(chain).collect();
        if facts.reads_any {
            reads.extend(self.live.clone());
        }
        let earlier = cell.and_then(|cell| self.last.get(cell));
        let same_text = earlier.filter(|earlier| earlier.text == text);
        let read_before = same_text
            .into_iter()
            .flat_map(|it| it.reads.keys().chain(&it.read_before));
        let read_before = read_before.cloned().collect();
        let mut writes = BTreeMap::new();
        for (name, write) in &facts.writes {
            let live = self.live.entry(name.clone()).or_default();
            let earlier = earlier.and_then(|it| it.writes.get(name));
            let same = earlier.filter(|(version, it)| {
                let is_first = live.first() == Some(version);
                let is_free =
                    |it: &FactWrite| it.2 || it.3 && (is_first || it.0 == FactKind::Changed);
                it.1.is_some()
                    && it.1 == write.1
                    && it.0 == write.0
                    && is_free(it)
                    && is_free(write)
            });
            let version = same.map_or(run, |(version, _)| *version);
            write_chain(live, write.0, version);
            writes.insert(name.clone(), (version, write.clone()));
            match facts.reach.get(name) {
                Some(reach) => drop(self.reach.insert(name.clone(), reach.clone())),
                None => drop(self.reach.remove(name)),
            }
        }
        self.live.retain(|_, chain| !chain.is_empty());
        if let Some(cell) = cell {
            let last = LastRun {
                text: text.to_owned(),
                is_seen: true,
                is_ok: facts.ok,
                reads_any: facts.reads_any,
                reads,
                read_before,
                perhaps: facts.perhaps.clone(),
                writes,
                uncertain: facts.uncertain.clone(),
            };
            self.last.insert(cell.to_owned(), last);
        }
    }

    /// Notes that variables were deleted.
    pub fn unbound(&mut self, names: &BTreeSet<Resource>) {
        self.live.retain(|name, _| !names.contains(name));
    }

    /// Returns what to do next for cells, which are ids and texts in the document's order.
    pub fn next(&self, cells: &[(&str, &str)]) -> WitnessStep {
        self.next_of(cells, None)
    }

    /// Returns what to do next so that the cells at these places are up to date, and all if there are none. What other
    /// cells are out of date stays so; they run only to give a resource again that was changed since.
    pub fn next_of(&self, cells: &[(&str, &str)], goals: Option<&BTreeSet<usize>>) -> WitnessStep {
        let found = self.walk_all(cells, goals, false);
        match found.runs.first() {
            Some((.., unbind)) if !unbind.is_empty() => WitnessStep::Unbind(unbind.clone()),
            Some((place, ..)) => WitnessStep::Run(*place),
            None => WitnessStep::Done(self.doubts(cells, &found.document)),
        }
    }

    /// Returns the cells that run if each of them that is out of date changes all that it changed before, and why.
    pub fn planned(
        &self,
        cells: &[(&str, &str)],
        goals: Option<&BTreeSet<usize>>,
    ) -> Vec<(usize, RunCause)> {
        let runs = self.walk_all(cells, goals, true).runs.into_iter();
        runs.map(|(place, cause, _)| (place, cause)).collect()
    }

    /// Walks over the cells until no cell needs others that do not run.
    fn walk_all(
        &self,
        cells: &[(&str, &str)],
        goals: Option<&BTreeSet<usize>>,
        renews: bool,
    ) -> Walk {
        let mut wanted = BTreeSet::new();
        loop {
            let found = self.walk(cells, goals, &wanted, renews);
            // A cell above is wanted, too: what was found below it may change.
            if found.wanted.is_subset(&wanted) {
                return found;
            }
            wanted.extend(found.wanted);
        }
    }

    /// Walks over the cells as if those that are to run gave what they gave before; with `renews`, those that are out of
    /// date give other values. It ends at the first cell that needs others.
    fn walk(
        &self,
        cells: &[(&str, &str)],
        goals: Option<&BTreeSet<usize>>,
        wanted: &BTreeSet<usize>,
        renews: bool,
    ) -> Walk {
        let is_all = goals.is_none();
        let mut walk = Walk::default();
        let mut live = self.live.clone();
        for (place, (id, text)) in cells.iter().enumerate() {
            let any = self.last.get(*id);
            let is_goal = goals.is_none_or(|goals| goals.contains(&place));
            let is_known = |last: &&LastRun| last.is_seen && (last.text == *text || !is_goal);
            let last = any.filter(is_known);
            let cause = match (any, last) {
                _ if !is_goal => None,
                (None, _) => Some(RunCause::NotRun),
                (Some(any), None) if any.text != *text => Some(RunCause::Edited),
                (_, None) => Some(RunCause::Unseen),
                (_, Some(last)) if !last.is_ok => Some(RunCause::Failed),
                (_, Some(last)) => read_other(last, &walk.document, &self.live, is_all),
            };
            let other = (renews && cause.is_some()).then_some(Version::MAX - place as Version);
            if cause.is_some() || wanted.contains(&place) {
                let reads = match last {
                    Some(last) if !last.reads_any => last
                        .reads
                        .keys()
                        .chain(&last.read_before)
                        .cloned()
                        .collect(),
                    Some(_) => walk.document.keys().chain(live.keys()).cloned().collect(),
                    None => self.mentioned(text),
                };
                let (more, mut unbind) = to_restore(&reads, &walk.document, &live);
                // Where other cells are out of date, a name may be one of theirs.
                unbind.retain(|_| is_all);
                if !more.is_empty() {
                    walk.wanted = more;
                    return walk;
                }
                let perhaps = last.into_iter().flat_map(|last| &last.perhaps);
                let is_left = |name: &&Resource| {
                    live.contains_key(*name) && walk.document.get(*name).is_none_or(Vec::is_empty)
                };
                unbind.extend(perhaps.filter(is_left).filter(|_| is_all).cloned());
                live.retain(|name, _| !unbind.contains(name));
                for (name, (version, write)) in last.into_iter().flat_map(|last| &last.writes) {
                    let chain = live.entry(name.clone()).or_default();
                    write_chain(chain, write.0, other.unwrap_or(*version));
                }
                walk.runs
                    .push((place, cause.unwrap_or(RunCause::Needed), unbind));
            }
            if let Some(last) = last {
                write_document(&mut walk.document, place, last, other);
            }
        }
        if is_all {
            let all: BTreeSet<_> = walk.document.keys().cloned().collect();
            walk.wanted = to_restore(&all, &walk.document, &live).0;
        }
        walk
    }

    /// Returns the variables that a text mentions which did not run, and those that their functions name.
    fn mentioned(&self, text: &str) -> BTreeSet<Resource> {
        let words = text.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let mut all: BTreeSet<Resource> = words
            .filter(|it| !it.is_empty())
            .map(str::to_owned)
            .collect();
        let mut open: Vec<_> = all.iter().cloned().collect();
        while let Some(name) = open.pop() {
            for name in self.reach.get(&name).into_iter().flatten() {
                if all.insert(name.clone()) {
                    open.push(name.clone());
                }
            }
        }
        all
    }

    fn doubts(&self, cells: &[(&str, &str)], document: &DocumentChains) -> Uncertainty {
        let mut doubts = Uncertainty {
            is_any: self.has_unseen,
            ..Uncertainty::default()
        };
        let mut chains = DocumentChains::new();
        for (place, (id, _)) in cells.iter().enumerate() {
            let Some(last) = self.last.get(*id) else {
                continue;
            };
            let is_doubtful = last.reads.iter().any(|(name, read)| {
                let want = chains.get(name).map_or(&[][..], Vec::as_slice);
                let is_left = !can_restore(name, want) && !read.is_empty();
                is_left || want.iter().any(|it| doubts.cells.contains_key(&it.1))
            });
            if !last.uncertain.is_empty() || is_doubtful {
                doubts.cells.insert(place, last.uncertain.clone());
            }
            let is_others = |name: &&Resource| {
                let want = chains.get(*name).map_or(&[][..], Vec::as_slice);
                name.starts_with("file:") && !can_restore(name, want)
            };
            let files: BTreeSet<_> = last.reads.keys().filter(is_others).cloned().collect();
            if !files.is_empty() {
                doubts.files.insert(place, files);
            }
            write_document(&mut chains, place, last, None);
        }
        for (name, chain) in document {
            if chain.iter().any(|it| doubts.cells.contains_key(&it.1)) || !can_restore(name, chain)
            {
                doubts.resources.insert(name.clone());
            }
        }
        let is_left = |name: &&Resource| document.get(*name).is_none_or(Vec::is_empty);
        doubts.left = self.live.keys().filter(is_left).cloned().collect();
        doubts
    }
}

/// Says whether runs can give a resource this chain. What is no variable cannot be deleted: only a cell that binds it
/// makes it as it was.
fn can_restore(name: &str, want: &[(Version, usize, FactKind)]) -> bool {
    is_variable(name) || want.first().is_some_and(|it| it.2 == FactKind::Bound)
}

fn write_chain(chain: &mut Vec<Version>, kind: FactKind, version: Version) {
    match kind {
        FactKind::Bound => *chain = vec![version],
        // No document has such a chain: what binds the name has to run again.
        FactKind::Changed if chain.len() >= MOST_VERSIONS => *chain = vec![version],
        FactKind::Changed => chain.push(version),
        FactKind::Gone => chain.clear(),
    }
}

/// Adds what the last run of a cell wrote, in its versions or in another one.
fn write_document(
    document: &mut DocumentChains,
    place: usize,
    last: &LastRun,
    other: Option<Version>,
) {
    for (name, (version, write)) in &last.writes {
        let chain = document.entry(name.clone()).or_default();
        let version = other.unwrap_or(*version);
        match write.0 {
            FactKind::Bound => *chain = vec![(version, place, write.0)],
            FactKind::Changed => chain.push((version, place, write.0)),
            FactKind::Gone => chain.clear(),
        }
    }
}

/// Returns what the last run of a cell has read that is not what the document has before it. What the document does not
/// have there counts only if all cells are to be up to date.
fn read_other(
    last: &LastRun,
    document: &DocumentChains,
    live: &BTreeMap<Resource, Vec<Version>>,
    is_all: bool,
) -> Option<RunCause> {
    let in_document = document.keys().filter(|_| last.reads_any);
    let mut all = last.reads.keys().chain(in_document);
    let other = all.find(|name| {
        let name = *name;
        let want = document.get(name).map_or(&[][..], Vec::as_slice);
        let read = last.reads.get(name).map_or(&[][..], Vec::as_slice);
        if want.is_empty() && !is_all {
            return false;
        }
        if can_restore(name, want) {
            return !want.iter().map(|it| it.0).eq(read.iter().copied());
        }
        // What was there before the cells cannot be made again: the last of them counts, or what is there now.
        let is_now = live.get(name).and_then(|live| live.last()) == read.last();
        !is_now && want.last().is_some_and(|it| Some(&it.0) != read.last())
    });
    other.map(|name| RunCause::Read {
        name: name.clone(),
        giver: document.get(name).and_then(|want| Some(want.last()?.1)),
    })
}

/// Returns the cells that give resources what the document has there, and the variables that it does not have.
fn to_restore(
    names: &BTreeSet<Resource>,
    document: &DocumentChains,
    live: &BTreeMap<Resource, Vec<Version>>,
) -> (BTreeSet<usize>, BTreeSet<Resource>) {
    let (mut cells, mut unbind) = (BTreeSet::new(), BTreeSet::new());
    for name in names {
        let want = document.get(name).map_or(&[][..], Vec::as_slice);
        let live = live.get(name).map_or(&[][..], Vec::as_slice);
        let are_same = want
            .iter()
            .zip(live)
            .filter(|(it, live)| it.0 == **live)
            .count();
        if are_same == live.len() && are_same == want.len() || !can_restore(name, want) {
            continue;
        }
        if want.is_empty() {
            unbind.insert(name.clone());
        }
        // If the live chain is the beginning of the document's one, the rest is enough.
        let rest = if are_same == live.len() { are_same } else { 0 };
        cells.extend(want.iter().skip(rest).map(|it| it.1));
    }
    (cells, unbind)
}
