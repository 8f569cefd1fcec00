//! The names of a kernel, as far as the code that ran shows: the runs that gave each its value, and what is known
//! of its object.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::code::effects::tables::{
    Builtin, Library, ReadingMethod, builtin, changes_module, is_builtin, is_output,
    is_reading_special_method, library, reading_method, takes_in,
};
use crate::code::effects::{
    Argument, Binder, Call, Effect, Effects, Function, FunctionLink, MethodKind, Name,
    ParameterKind, Share, Unknown, Value, ValueKind, ValueOrigin, VariableRef,
};

/// One run of a text. Later runs have greater numbers.
pub(super) type Run = u64;

/// The runs that made a value: one, or several if some may have left it as it was.
pub(super) type Version = Arc<[Run]>;

/// Numbers from here on are not of runs, but of modules: an import gives the same object each time.
const MODULES: Run = 1 << 63;

/// How deep calls are followed.
const DEEPEST: usize = 100;

/// The stack that must be left for one more call, and the stack that is added where it is not, in bytes.
const STACK_LEFT: usize = 128 << 10;
const MORE_STACK: usize = 2 << 20;

/// How much work one run may make, and all runs: one for each call and each step of a function, and
/// [`WORK_OF_NAME`] for each further name of a changed object. What would be more is not followed: it may do anything.
const MOST_WORK_OF_RUN: u64 = 100_000;
const MOST_WORK: u64 = 2_000_000;
const WORK_OF_NAME: usize = 8;

/// How many objects and functions a name is followed to.
const MOST_FOLLOWED: usize = 48;

/// How many names are followed that may have one object.
const MOST_SHARING: usize = 200;

/// How many runs a version has. Where more may have made a value, the last ones are named, and the value is doubtful.
const MOST_RUNS: usize = 256;

/// The names and what is known of each.
#[derive(Clone, Debug, Default)]
pub(super) struct Namespace {
    names: HashMap<Name, NameState>,
    /// The runs of code that may have written any name, in their order.
    any: Vec<Run>,
    /// The same runs as a version, once it is needed.
    any_version: Option<Version>,
    is_any_doubtful: bool,
    /// The work that all runs have made.
    work: u64,
}

/// What is known of a name and its object.
#[derive(Clone, Debug, Default)]
struct NameState {
    version: Version,
    kind: ObjectKind,
    /// The imported object's full name, if an import has bound the name.
    imported: Option<Name>,
    /// The run that imported it last.
    importer: Option<Run>,
    functions: Vec<(Arc<Function>, FunctionLink)>,
    /// Names of the same object.
    edges: Vec<(Name, Share)>,
    /// Its value may be another after Restart & Run All.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ObjectKind {
    #[default]
    Unknown,
    Scalar,
    Container,
    Iterator,
    Class,
}

/// The effects of one run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    /// The values that it needed, from before.
    pub(super) inputs: BTreeMap<Name, Version>,
    /// The last runs that imported values among these.
    pub(super) importers: BTreeMap<Name, Run>,
    /// The names that it gave a value, or whose object it may have changed.
    pub(super) writes: BTreeMap<Name, WriteKind>,
    /// Of the names in `writes`, those that it may have left as they were.
    weak: BTreeSet<Name>,
    /// The names that it used, also those that it bound itself.
    pub(super) uses: HashSet<Name>,
    /// The names that had no value, with the lines.
    pub(super) missing: BTreeMap<Name, usize>,
    /// The effects that cannot be known, with the lines.
    pub(super) unknown: Vec<(usize, Unknown)>,
    /// It depends on something that cannot be known.
    pub(super) is_doubtful: bool,
}

/// How a name was written; the greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum WriteKind {
    /// Its object was changed.
    Changed,
    /// Bound by a loop, `with` or a pattern alone.
    Temporary,
    /// An import.
    Imported,
    /// Bound.
    Bound,
    /// It was deleted.
    Deleted,
}

impl Trace {
    /// Says whether the run gave a name its value, or changed its object, whatever else happened.
    pub(super) fn certainly_writes(&self, name: &Name) -> bool {
        self.writes.contains_key(name) && !self.weak.contains(name)
    }

    /// Returns the places of the cells that give the value of a name that it needs, where the numbers of runs are
    /// places: also the cell that imports it, though an import gives the same wherever it is.
    pub(super) fn givers(&self, name: &Name) -> Vec<usize> {
        let version = self.inputs.get(name).into_iter();
        let runs = version.flat_map(|version| version.iter());
        places(runs.chain(self.importers.get(name)).copied())
    }
}

/// A run before, of the same cell with the same text.
pub(super) struct EarlierRun<'a> {
    pub(super) run: Run,
    pub(super) inputs: &'a BTreeMap<Name, Version>,
}

impl Namespace {
    /// Follows one run of a text.
    pub(super) fn run(
        &mut self,
        run: Run,
        effects: &Effects,
        before: Option<&EarlierRun>,
    ) -> Trace {
        let mut runner = Runner {
            names: self,
            run,
            trace: Trace::default(),
            bound: HashSet::new(),
            versions_before: HashMap::new(),
            weak: BTreeSet::new(),
            aliased: BTreeSet::new(),
            writes_any: false,
            line: 0,
            open: HashSet::new(),
            settled: HashMap::new(),
            changes: 0,
            work: 0,
        };
        for step in &effects.steps {
            runner.begin_line(step.line);
            runner.follow(&step.effect, None, true);
        }
        runner.finish(before)
    }

    /// Follows a run that ended with an error: what it has written is not known.
    pub(super) fn run_in_part(&mut self, run: Run, effects: &Effects) -> Trace {
        let before = self.clone();
        let trace = self.run(run, effects, None);
        for name in trace.writes.keys() {
            let earlier = before.names.get(name);
            let earlier = earlier
                .map(|state| state.version.clone())
                .unwrap_or_default();
            let state = self.names.entry(name.clone()).or_default();
            let all = earlier.iter().copied().chain([run]);
            state.version = version(all);
            state.is_doubtful = true;
        }
        trace
    }

    /// Follows a run whose code is not known: it may have written any name.
    pub(super) fn any_run(&mut self, run: Run) {
        self.writes_any(run);
        self.is_any_doubtful = true;
    }

    fn writes_any(&mut self, run: Run) {
        if self.any.last() != Some(&run) {
            // What reads these is doubtful, however many there are.
            if self.any.len() >= MOST_RUNS {
                self.any.remove(0);
            }
            self.any.push(run);
            self.any_version = None;
        }
    }

    fn any_version(&mut self) -> Version {
        let version = || self.any.as_slice().into();
        self.any_version.get_or_insert_with(version).clone()
    }

    /// Returns the names that have a value, with the runs that made it.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&Name, &Version)> {
        let names = self.names.iter();
        names.map(|(name, state)| (name, &state.version))
    }

    pub(super) fn version(&self, name: &Name) -> Option<&Version> {
        self.names.get(name).map(|state| &state.version)
    }

    /// Returns the last run that imported a name's value, if this version is of an import.
    fn importer(&self, name: &Name, version: &Version) -> Option<Run> {
        let is_imported = version.iter().any(|run| is_module(*run));
        self.names.get(name).filter(|_| is_imported)?.importer
    }

    /// Returns the places of the cells that give a name its value, where the numbers of runs are places.
    pub(super) fn givers(&self, name: &Name) -> Vec<usize> {
        let version = self.version(name).cloned().unwrap_or_default();
        let importer = self.importer(name, &version);
        places(version.iter().copied().chain(importer))
    }

    /// Returns the names that an iterator reads when it is read.
    pub(super) fn read_later(&self, name: &Name) -> impl Iterator<Item = &Name> {
        let state = self.names.get(name);
        let state = state.filter(|state| state.kind == ObjectKind::Iterator);
        let functions = state.into_iter().flat_map(|state| &state.functions);
        functions.flat_map(|(function, _)| names_in(function))
    }

    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.work
    }

    /// Says whether code ran that may have written any name.
    pub(super) fn is_any_doubtful(&self) -> bool {
        self.is_any_doubtful
    }

    pub(super) fn is_doubtful(&self, name: &Name) -> bool {
        self.is_any_doubtful || self.names.get(name).is_some_and(|state| state.is_doubtful)
    }
}

/// Says whether a number is a module's.
pub(super) fn is_module(run: Run) -> bool {
    run & MODULES != 0
}

/// Returns the places of the cells that made a value, where the numbers of runs are places.
pub(super) fn places(runs: impl IntoIterator<Item = Run>) -> Vec<usize> {
    let runs = runs.into_iter().filter(|run| !is_module(*run));
    runs.filter_map(|run| usize::try_from(run).ok()).collect()
}

fn module(imported: &Name) -> Run {
    let mut hasher = DefaultHasher::new();
    imported.hash(&mut hasher);
    hasher.finish() | MODULES
}

fn version(runs: impl IntoIterator<Item = Run>) -> Version {
    let mut runs: Vec<Run> = runs.into_iter().collect();
    runs.sort_unstable();
    runs.dedup();
    runs.into()
}

impl NameState {
    /// Adds a run to those that may have made the value. Says whether it is new.
    fn add_run(&mut self, run: Run) -> bool {
        if self.version.contains(&run) {
            return false;
        }
        let first = usize::from(self.version.len() >= MOST_RUNS);
        self.is_doubtful |= first > 0;
        let before = self.version.iter().copied().skip(first);
        self.version = version(before.chain([run]));
        true
    }

    /// Adds functions that the object may be or hold. Says whether some are new.
    fn add_functions(
        &mut self,
        functions: impl IntoIterator<Item = (Arc<Function>, FunctionLink)>,
    ) -> bool {
        let before = self.functions.len();
        for (function, link) in functions {
            let is_known = |(known, known_link): &(Arc<Function>, FunctionLink)| {
                Arc::ptr_eq(known, &function) && *known_link == link
            };
            if self.functions.len() < MOST_FOLLOWED && !self.functions.iter().any(is_known) {
                self.functions.push((function, link));
            }
        }
        self.functions.len() > before
    }

    /// Says whether the same is known of two objects.
    fn is_like(&self, other: &Self) -> bool {
        let functions = || self.functions.iter().zip(&other.functions);
        self.version == other.version
            && self.kind == other.kind
            && self.imported == other.imported
            && self.is_doubtful == other.is_doubtful
            && self.functions.len() == other.functions.len()
            && functions().all(|(one, other)| Arc::ptr_eq(&one.0, &other.0) && one.1 == other.1)
            && self.edges.len() == other.edges.len()
            && self.edges.iter().all(|edge| other.edges.contains(edge))
    }
}

struct Runner<'a> {
    names: &'a mut Namespace,
    run: Run,
    trace: Trace,
    /// Names that this run has certainly bound.
    bound: HashSet<Name>,
    /// The versions of names before this run wrote them.
    versions_before: HashMap<Name, Version>,
    /// Names that it may have left as they were.
    weak: BTreeSet<Name>,
    /// Names whose object it may have changed by another name.
    aliased: BTreeSet<Name>,
    writes_any: bool,
    line: usize,
    /// The calls that are followed now, one within the other.
    open: HashSet<FollowedCall>,
    /// The calls that were followed in this line and changed nothing that is known, with [`Self::changes`] at their end:
    /// as long as this is the same, they change nothing again.
    settled: HashMap<FollowedCall, u64>,
    /// Counts the changes of what is known.
    changes: u64,
    /// The work that this run has made.
    work: u64,
}

/// The objects that a function was called with, by parameter.
type CallArguments = Vec<Vec<(Name, Share)>>;

/// A function that is followed, and how.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FollowedCall {
    function: *const Function,
    what: Followed,
    arguments: CallArguments,
}

/// The steps of a function that are followed.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Followed {
    /// All, since it is called: certainly, or perhaps.
    All { certain: bool },
    /// The reads, since it may be called.
    Reads,
    /// What it changes, if it is called.
    Changes,
}

impl Runner<'_> {
    fn finish(mut self, before: Option<&EarlierRun>) -> Trace {
        if self.writes_any {
            self.names.writes_any(self.run);
        }
        // A run with the same inputs does the same: it has not left what the run before it wrote.
        if let Some(before) = before
            && *before.inputs == self.trace.inputs
        {
            for name in &self.weak {
                if let Some(state) = self.names.names.get_mut(name) {
                    let others = state.version.iter().copied();
                    state.version = version(others.filter(|run| *run != before.run));
                }
            }
        }
        let is_unknown = |unknown: &Unknown| !matches!(unknown, Unknown::SameObject(..));
        let trace = &mut self.trace;
        trace.is_doubtful |= trace.unknown.iter().any(|(_, it)| is_unknown(it));
        for name in trace.writes.keys() {
            if let Some(state) = self.names.names.get_mut(name) {
                state.is_doubtful |= trace.is_doubtful;
            }
        }
        for name in &self.aliased {
            if let Some(state) = self.names.names.get_mut(name) {
                state.is_doubtful = true;
            }
        }
        let mut anything = trace.unknown.iter();
        self.names.is_any_doubtful |= anything.any(|(_, it)| matches!(it, Unknown::AnyName(_)));
        trace.unknown.sort_by_key(|(line, _)| *line);
        trace.unknown.dedup();
        self.trace.weak = self.weak;
        self.trace
    }

    fn follow(&mut self, effect: &Effect, call_arguments: Option<&CallArguments>, certain: bool) {
        match effect {
            Effect::Read {
                variable,
                need,
                member,
            } => {
                for (name, _) in objects_of(variable, call_arguments) {
                    self.read(&name, *need);
                    self.read_held_functions(&name, member.as_ref());
                }
            }
            Effect::Bind {
                name,
                value,
                certain: always,
                by,
            } => self.bind(name, value, call_arguments, certain && *always, *by),
            Effect::Settle { name } => self.settle(name),
            Effect::Unsettle { name } => self.unsettle(name),
            Effect::Update { variable, value } => {
                for (name, _) in objects_of(variable, call_arguments) {
                    self.update(&name, value, call_arguments, call_arguments.is_some());
                }
            }
            Effect::Change { variable, deep } => {
                for (name, share) in objects_of(variable, call_arguments) {
                    self.change_shared(&name, *deep, share);
                }
            }
            Effect::Hold { variable, value } => {
                for (name, _) in objects_of(variable, call_arguments) {
                    self.hold(&name, value, call_arguments);
                }
            }
            Effect::Delete {
                name,
                need,
                certain: always,
            } => self.delete(name, *need, certain && *always),
            Effect::Call(call) => self.call(call, call_arguments, certain && call.certain),
            Effect::Unknown(Unknown::AnyName(what)) => self.may_write_any(what.clone()),
            Effect::Unknown(unknown) => self.unknown(unknown.clone()),
        }
    }

    fn begin_line(&mut self, line: usize) {
        if line != self.line {
            // What is unknown has its line: calls are followed again.
            self.settled.clear();
            self.line = line;
        }
    }

    fn changed(&mut self, is_changed: bool) {
        self.changes += u64::from(is_changed);
    }

    fn unknown(&mut self, unknown: Unknown) {
        let unknown = (self.line, unknown);
        if self.trace.unknown.last() != Some(&unknown) {
            self.trace.unknown.push(unknown);
        }
    }

    /// Says that any name may be read or written. The text names the cause.
    fn may_write_any(&mut self, cause: String) {
        self.changed(!self.writes_any);
        self.writes_any = true;
        self.unknown(Unknown::AnyName(cause));
    }

    // Reading.

    fn read(&mut self, name: &Name, need: ValueOrigin) {
        self.trace.uses.insert(name.clone());
        if is_output(name) && !self.names.names.contains_key(name) {
            self.unknown(Unknown::Outside(format!("the last output, {name}")));
            return;
        }
        if need == ValueOrigin::Own || self.bound.contains(name) {
            self.consume(name);
            return;
        }
        let state = self.names.names.get(name);
        let known = self.versions_before.get(name);
        let known = known.or_else(|| state.map(|state| &state.version)).cloned();
        let known = known.filter(|version| !version.is_empty());
        if let Some(state) = state {
            self.trace.is_doubtful |= state.is_doubtful;
        }
        self.trace.is_doubtful |= self.names.is_any_doubtful;
        let version = match known {
            Some(version) => version,
            None if is_builtin(name) => return,
            // Code that may write any name may have written this one.
            None if !self.names.any.is_empty() || self.writes_any => self.names.any_version(),
            None if need == ValueOrigin::Perhaps => return,
            None => {
                if state.is_none_or(|state| state.version.is_empty()) {
                    self.trace.missing.entry(name.clone()).or_insert(self.line);
                }
                Version::default()
            }
        };
        if let Some(importer) = self.names.importer(name, &version) {
            let importers = &mut self.trace.importers;
            importers.entry(name.clone()).or_insert(importer);
        }
        self.trace.inputs.entry(name.clone()).or_insert(version);
        self.consume(name);
    }

    /// Reading an iterator changes it.
    fn consume(&mut self, name: &Name) {
        let state = self.names.names.get(name);
        if state.is_some_and(|state| state.kind == ObjectKind::Iterator) {
            self.change(name, false);
        }
    }

    /// Follows what the functions read that an object holds, since it may call them, and what those change that
    /// reading the object, or this member of it, calls.
    fn read_held_functions(&mut self, name: &Name, member: Option<&Name>) {
        let Some(state) = self.names.names.get(name) else {
            return;
        };
        let is_class = state.kind == ObjectKind::Class;
        for (function, direct) in state.functions.clone() {
            if direct == FunctionLink::Holds {
                self.follow_reads(&function);
                if !is_class && is_called_by_reading(&function, member) {
                    self.follow_changes(&function, name);
                }
            }
        }
    }

    /// Follows what a method of this object changes, if it is called.
    fn follow_changes(&mut self, method: &Arc<Function>, object: &Name) {
        let arguments = self.arguments(method, &[], &[(object.clone(), Share::Same)], None);
        self.follow_function(method, Followed::Changes, &arguments);
    }

    /// Follows what a function reads, if it is called.
    fn follow_reads(&mut self, function: &Arc<Function>) {
        self.follow_function(function, Followed::Reads, &CallArguments::new());
    }

    /// Adds work, and says whether it is more than is done.
    fn is_too_much(&mut self, work: usize) -> bool {
        self.work += work as u64;
        self.names.work += work as u64;
        self.work > MOST_WORK_OF_RUN || self.names.work > MOST_WORK
    }

    /// Follows the steps of a function, unless that is being done, or was done and would change nothing now.
    fn follow_function(&mut self, function: &Function, what: Followed, arguments: &CallArguments) {
        let call = FollowedCall {
            function,
            what,
            arguments: arguments.clone(),
        };
        let objects = arguments.iter().map(Vec::len).sum::<usize>();
        let is_settled = self.settled.get(&call) == Some(&self.changes);
        let is_known = is_settled || self.open.contains(&call);
        let steps = if is_known { 0 } else { function.steps.len() };
        let is_too_much = self.is_too_much(1 + objects + steps);
        if is_known {
            return;
        }
        if self.open.len() >= DEEPEST || is_too_much {
            return self.may_write_any("a call that leads to too many others".to_owned());
        }
        let before = self.changes;
        self.open.insert(call.clone());
        stacker::maybe_grow(STACK_LEFT, MORE_STACK, || {
            for step in &function.steps {
                self.follow_step(&step.effect, what, arguments);
            }
        });
        self.open.remove(&call);
        if self.changes == before {
            self.settled.insert(call, before);
        }
    }

    fn follow_step(&mut self, effect: &Effect, what: Followed, arguments: &CallArguments) {
        let is_unknown = |runner: &Self, name: &Name| {
            !runner.names.names.contains_key(name) && !is_builtin(name)
        };
        match (what, effect) {
            (Followed::All { certain }, effect) => self.follow(effect, Some(arguments), certain),
            (
                Followed::Reads,
                Effect::Read {
                    variable: VariableRef::Global(name),
                    ..
                },
            ) => self.read_later(name),
            (Followed::Reads, Effect::Call(call)) => {
                if let Some(name) = &call.root {
                    self.read_later(name);
                    self.follow_held_functions(name);
                }
            }
            (Followed::Reads, _)
            | (Followed::Changes, Effect::Read { .. } | Effect::Unknown(_)) => {}
            (Followed::Changes, Effect::Call(call))
                if call.root.as_ref().is_some_and(|it| is_unknown(self, it)) => {}
            (Followed::Changes, effect) => self.follow(effect, Some(arguments), false),
        }
    }

    fn read_later(&mut self, name: &Name) {
        if self.names.names.contains_key(name) {
            self.read(name, ValueOrigin::Perhaps);
        }
    }

    fn follow_held_functions(&mut self, name: &Name) {
        let state = self.names.names.get(name);
        let functions = state
            .map(|state| state.functions.clone())
            .unwrap_or_default();
        for (function, _) in functions {
            self.follow_reads(&function);
        }
    }

    // Writing.

    fn record_write(&mut self, name: &Name, kind: WriteKind) {
        let known = self.trace.writes.entry(name.clone()).or_insert(kind);
        *known = (*known).max(kind);
    }

    /// Returns the state of a name, to be changed.
    fn state_mut(&mut self, name: &Name) -> &mut NameState {
        let state = self.names.names.entry(name.clone()).or_default();
        let before = self.versions_before.entry(name.clone());
        before.or_insert_with(|| state.version.clone());
        state
    }

    fn bind(
        &mut self,
        name: &Name,
        value: &Value,
        call_arguments: Option<&CallArguments>,
        certain: bool,
        by: Binder,
    ) {
        if let ValueKind::Imported(imported) = &value.kind {
            return self.import(name, imported, certain);
        }
        let new = self.evaluate(value, call_arguments);
        self.record_write(
            name,
            match by {
                Binder::Statement => WriteKind::Bound,
                Binder::Temporary => WriteKind::Temporary,
            },
        );
        let run = self.run;
        let edges = new.edges.clone();
        let changes = self.changes;
        let before = self.names.names.get(name).cloned();
        let mut has_connected = false;
        if certain {
            has_connected = self.forget(name);
            let state = self.state_mut(name);
            *state = NameState {
                version: version([run]),
                edges: Vec::new(),
                ..new
            };
        } else {
            let state = self.state_mut(name);
            state.add_run(run);
            if state.kind != new.kind {
                state.kind = ObjectKind::Unknown;
            }
            state.imported = None;
            state.add_functions(new.functions);
            state.is_doubtful |= new.is_doubtful;
        }
        for (other, share) in edges {
            let share = match certain {
                true => share,
                false => share.max(Share::Perhaps),
            };
            self.connect(name, &other, share);
        }
        let after = self.names.names.get(name);
        let is_same = (before.as_ref().zip(after)).is_some_and(|(one, other)| one.is_like(other));
        self.changes = changes;
        self.changed(has_connected || !is_same);
        self.is_bound(name, certain);
    }

    /// Records whether this run has given a name its value certainly, or may have left it as it was.
    fn is_bound(&mut self, name: &Name, certain: bool) {
        if certain {
            let is_new = self.bound.insert(name.clone());
            self.changed(is_new);
            self.weak.remove(name);
        } else if !self.bound.contains(name) {
            self.weak.insert(name.clone());
        }
    }

    fn import(&mut self, name: &Name, imported: &Name, certain: bool) {
        self.record_write(name, WriteKind::Imported);
        let run = self.run;
        let state = self.names.names.get(name);
        if state.is_none_or(|state| state.imported.as_ref() != Some(imported)) {
            self.changed(true);
            self.forget(name);
            let state = self.state_mut(name);
            // An import gives the same object each time, but whether there is one depends on the run.
            let before = std::mem::take(state);
            state.version = version([module(imported)]);
            state.imported = Some(imported.clone());
            if !certain {
                state.version = before.version;
                state.add_run(run);
                state.is_doubtful |= before.is_doubtful;
                state.importer = before.importer;
            }
        }
        let state = self.state_mut(name);
        if certain || state.importer.is_none() {
            state.importer = Some(run);
        }
        self.is_bound(name, certain);
    }

    /// Works out what is known of a value.
    fn evaluate(&mut self, value: &Value, call_arguments: Option<&CallArguments>) -> NameState {
        let mut state = NameState::default();
        let mut shares = Vec::new();
        for (variable, share) in &value.shares {
            for (name, further) in objects_of(variable, call_arguments) {
                shares.push((name, (*share).max(further)));
            }
        }
        let is_scalar = |names: &Namespace, name: &Name| {
            let bound_state = names.names.get(name);
            bound_state.is_some_and(|bound_state| bound_state.kind == ObjectKind::Scalar)
        };
        state.kind = match &value.kind {
            ValueKind::Scalar => ObjectKind::Scalar,
            ValueKind::Container => ObjectKind::Container,
            ValueKind::Iterator => ObjectKind::Iterator,
            ValueKind::Class => ObjectKind::Class,
            ValueKind::ScalarIf(variables) => {
                let mut names = variables
                    .iter()
                    .flat_map(|it| objects_of(it, call_arguments));
                match names.all(|(name, _)| is_scalar(self.names, &name)) {
                    true => ObjectKind::Scalar,
                    false => ObjectKind::Unknown,
                }
            }
            ValueKind::Unknown | ValueKind::Imported(_) => ObjectKind::Unknown,
        };
        state.functions.clone_from(&value.functions);
        // `y = x` is what `x` is.
        if let ([(name, Share::Same)], ObjectKind::Unknown, None) =
            (&*shares, state.kind, &value.result_of)
            && !value.is_part
            && let Some(bound_state) = self.names.names.get(name)
        {
            state.kind = bound_state.kind;
        }
        let is_copy = shares.len() == 1 && value.result_of.is_none();
        for (name, share) in &shares {
            let Some(bound_state) = self.names.names.get(name) else {
                continue;
            };
            for (function, direct) in &bound_state.functions {
                let direct = match is_copy && *share == Share::Same {
                    true => *direct,
                    false => FunctionLink::Holds,
                };
                state.functions.push((function.clone(), direct));
            }
        }
        if let Some(call) = &value.result_of {
            self.result(call, call_arguments, &mut state, &mut shares);
        }
        if value.is_part {
            let parts = shares.iter().flat_map(|(name, _)| self.objects_in(name));
            let parts: Vec<_> = parts.map(|part| (part, Share::Perhaps)).collect();
            shares.extend(parts);
        }
        let mut seen = HashSet::new();
        state
            .functions
            .retain(|(it, _)| seen.insert(Arc::as_ptr(it)));
        state.functions.truncate(MOST_FOLLOWED);
        shares.retain(|(name, _)| {
            let bound_state = self.names.names.get(name);
            bound_state.is_some_and(|bound_state| {
                bound_state.kind != ObjectKind::Scalar && bound_state.imported.is_none()
            })
        });
        shares.sort_unstable();
        shares.dedup_by(|later, first| later.0 == first.0);
        // What an iterator gives is that of the objects that it goes through.
        if state.kind == ObjectKind::Iterator {
            shares
                .iter_mut()
                .for_each(|(_, share)| *share = Share::Perhaps);
        }
        if state.kind != ObjectKind::Scalar {
            state.edges = shares;
        }
        state
    }

    /// Returns the names whose objects this one holds, in whatever depth: an item of it may be one of them.
    fn objects_in(&self, name: &Name) -> Vec<Name> {
        let mut seen = vec![name.clone()];
        let mut state = Vec::new();
        let mut next = 0;
        while let Some(name) = seen.get(next).cloned().filter(|_| next < MOST_FOLLOWED) {
            next += 1;
            let bound_state = self.names.names.get(&name);
            for (other, share) in bound_state
                .into_iter()
                .flat_map(|bound_state| &bound_state.edges)
            {
                let is_holder = matches!(share, Share::HeldBy | Share::PerhapsHeldBy);
                if is_holder || seen.contains(other) {
                    continue;
                }
                seen.push(other.clone());
                if matches!(share, Share::Holds | Share::PerhapsHolds) {
                    state.push(other.clone());
                }
            }
        }
        state
    }

    /// Works out what a call returned.
    fn result(
        &mut self,
        call: &Call,
        call_arguments: Option<&CallArguments>,
        state: &mut NameState,
        shares: &mut Vec<(Name, Share)>,
    ) {
        if call.is_item {
            return;
        }
        let method = call.path.last();
        let Some(root) = &call.root else {
            let functions = self.evaluate(&call.receiver, call_arguments).functions;
            if method.is_some_and(|method| is_new(method, &functions)) {
                shares.clear();
            }
            return;
        };
        let bound_state = self.names.names.get(root);
        match (bound_state, method) {
            (Some(bound_state), _) if bound_state.imported.is_some() => {
                match library(&full_name(bound_state.imported.as_ref(), &call.path)) {
                    Library::New | Library::ChangesFirst | Library::Outside => shares.clear(),
                    Library::Iterator => state.kind = ObjectKind::Iterator,
                    Library::Copies => shares
                        .iter_mut()
                        .for_each(|(_, share)| *share = Share::Elements),
                    Library::Keeps => {}
                }
            }
            (Some(bound_state), None) => {
                let mut direct = bound_state.functions.iter();
                let direct = direct.find(|(_, direct)| *direct == FunctionLink::Is);
                if let Some((function, _)) = direct {
                    if function.is_generator {
                        state.kind = ObjectKind::Iterator;
                    }
                    let arguments = self.arguments(function, &call.arguments, &[], call_arguments);
                    shares.clear();
                    for (variable, share) in &function.returns {
                        for (name, further) in objects_of(variable, Some(&arguments)) {
                            shares.push((name, (*share).max(further).max(Share::Perhaps)));
                        }
                    }
                }
            }
            (Some(bound_state), Some(method)) => {
                let is_container = bound_state.kind == ObjectKind::Container;
                if is_container && method == "copy" && call.path.len() == 1 {
                    state.kind = ObjectKind::Container;
                    shares
                        .iter_mut()
                        .for_each(|(_, share)| *share = Share::Elements);
                } else if is_new(method, &bound_state.functions) {
                    shares.clear();
                }
            }
            (None, None) => match builtin(root) {
                Builtin::Iterator => state.kind = ObjectKind::Iterator,
                Builtin::Outside if root == "open" => state.kind = ObjectKind::Iterator,
                Builtin::Copies => {
                    state.kind = ObjectKind::Container;
                    shares
                        .iter_mut()
                        .for_each(|(_, share)| *share = Share::Elements);
                }
                Builtin::Fresh if is_builtin(root) => {
                    shares.clear();
                    let is_scalar = matches!(
                        &**root,
                        "abs"
                            | "bool"
                            | "chr"
                            | "float"
                            | "hash"
                            | "id"
                            | "int"
                            | "len"
                            | "ord"
                            | "repr"
                            | "round"
                            | "str"
                    );
                    if is_scalar {
                        state.kind = ObjectKind::Scalar;
                    }
                }
                _ => {}
            },
            (None, Some(_)) => {}
        }
    }

    /// Removes a name from those that share its object. The others still share it. Says whether more is known of
    /// these than before.
    fn forget(&mut self, name: &Name) -> bool {
        let mut has_connected = false;
        let state = self.names.names.get_mut(name);
        let edges = state
            .map(|state| std::mem::take(&mut state.edges))
            .unwrap_or_default();
        for (other, _) in &edges {
            if let Some(state) = self.names.names.get_mut(other) {
                state.edges.retain(|(it, _)| it != name);
            }
        }
        for (at, (one, share)) in edges.iter().enumerate() {
            for (other, further) in edges.iter().skip(at + 1) {
                if let Some(share) = share.reversed().then(*further) {
                    has_connected |= self.connect(one, other, share);
                }
            }
        }
        has_connected
    }

    /// Says that two names share an object. Returns whether that is new.
    fn connect(&mut self, one: &Name, other: &Name, share: Share) -> bool {
        if one == other || !self.names.names.contains_key(other) {
            return false;
        }
        let mut is_new = false;
        for (from, to, share) in [(one, other, share), (other, one, share.reversed())] {
            if let Some(state) = self.names.names.get_mut(from) {
                let is_full = state.edges.len() >= MOST_FOLLOWED;
                match state.edges.iter_mut().find(|(it, _)| it == to) {
                    Some((_, known)) => {
                        is_new |= share < *known;
                        *known = (*known).min(share);
                    }
                    None if !is_full => {
                        is_new = true;
                        state.edges.push((to.clone(), share));
                    }
                    None => {}
                }
            }
        }
        self.changed(is_new);
        is_new
    }

    fn settle(&mut self, name: &Name) {
        let run = self.run;
        let state = self.names.names.get_mut(name);
        if let Some(state) = state.filter(|state| state.version.contains(&run)) {
            let is_new = *state.version != [run];
            state.version = version([run]);
            self.changed(is_new);
            self.is_bound(name, true);
        }
    }

    /// Says that this run may have left a name as it was before.
    fn unsettle(&mut self, name: &Name) {
        let run = self.run;
        let before = self.versions_before.get(name).cloned();
        let Some(state) = self.names.names.get_mut(name) else {
            return;
        };
        state.version = before.unwrap_or_default();
        state.add_run(run);
        self.bound.remove(name);
        self.weak.insert(name.clone());
        self.changed(true);
    }

    fn update(
        &mut self,
        name: &Name,
        value: &Value,
        call_arguments: Option<&CallArguments>,
        is_read: bool,
    ) {
        if is_read {
            self.read(name, ValueOrigin::Before);
        }
        let new = self.evaluate(value, call_arguments);
        let state = self.names.names.get(name);
        let kind = state.map(|state| state.kind).unwrap_or_default();
        match kind {
            ObjectKind::Scalar => {
                self.record_write(name, WriteKind::Bound);
                self.write_version(name);
                if new.kind != ObjectKind::Scalar {
                    self.state_mut(name).kind = ObjectKind::Unknown;
                    self.changed(true);
                }
            }
            _ => {
                // Only a number is bound anew: names that share it keep the old one.
                self.change_shared(name, false, Share::Same);
                for (other, share) in new.edges {
                    self.connect(name, &other, share.max(Share::Elements));
                }
            }
        }
    }

    /// Changes the object of a name, and says which others it may be.
    fn change_shared(&mut self, name: &Name, deep: bool, share: Share) {
        if share != Share::Same {
            // Only perhaps, and only one of its own.
            if share == Share::Perhaps || deep {
                self.alias(name, name, &HashSet::new());
            }
            return;
        }
        self.change(name, deep);
    }

    fn change(&mut self, name: &Name, deep: bool) {
        let Some(state) = self.names.names.get(name) else {
            self.read(name, ValueOrigin::Before);
            return;
        };
        if state.kind == ObjectKind::Scalar {
            return;
        }
        if state.imported.is_some() {
            // A setting: it is the same however often it is made.
            self.record_write(name, WriteKind::Changed);
            return self.write_version(name);
        }
        // With whether a change of what the object holds counts, and one of what it holds with others.
        let mut pending = vec![(name.clone(), deep, deep)];
        let mut changed: HashSet<Name> = HashSet::new();
        let mut perhaps = Vec::new();
        while let Some((next, parts, common)) = pending.pop() {
            if changed.contains(&next) {
                continue;
            }
            let is_further = !changed.is_empty();
            if changed.len() >= MOST_SHARING || (is_further && self.is_too_much(WORK_OF_NAME)) {
                self.may_write_any(format!(
                    "a change of {name}, whose object has too many names,"
                ));
                break;
            }
            let state = self.names.names.get(&next);
            for (other, share) in state.iter().flat_map(|state| &state.edges) {
                match share {
                    Share::Same => pending.push((other.clone(), parts, common)),
                    Share::HeldBy => pending.push((other.clone(), false, true)),
                    Share::Perhaps | Share::PerhapsHeldBy => {
                        perhaps.push((next.clone(), other.clone()));
                    }
                    Share::Holds | Share::PerhapsHolds if parts => {
                        perhaps.push((next.clone(), other.clone()));
                    }
                    Share::Elements if common => perhaps.push((next.clone(), other.clone())),
                    Share::Holds | Share::PerhapsHolds | Share::Elements => {}
                }
            }
            changed.insert(next);
        }
        for next in &changed {
            self.record_change(next);
        }
        for (one, other) in perhaps {
            if !changed.contains(&other) {
                self.alias(&one, &other, &changed);
            }
        }
    }

    /// Says that a change of one name may be one of the other, and so of all that share or hold the other's object;
    /// not of those that are changed anyway.
    fn alias(&mut self, one: &Name, other: &Name, changed: &HashSet<Name>) {
        let mut pending = vec![other.clone()];
        let mut seen: Vec<Name> = Vec::new();
        while let Some(next) = pending.pop() {
            if seen.len() >= MOST_FOLLOWED || seen.contains(&next) || changed.contains(&next) {
                continue;
            }
            let state = self.names.names.get(&next);
            let sharing = state.into_iter().flat_map(|state| &state.edges);
            let sharing = sharing.filter(|(_, share)| {
                !matches!(share, Share::Holds | Share::PerhapsHolds | Share::Elements)
            });
            pending.extend(sharing.map(|(name, _)| name.clone()));
            seen.push(next);
        }
        self.aliased.extend(seen);
        self.unknown(Unknown::SameObject(one.clone(), other.clone()));
    }

    fn record_change(&mut self, name: &Name) {
        if !self.bound.contains(name) {
            let state = self.names.names.get(name);
            let known = self.versions_before.get(name);
            let known = known.or_else(|| state.map(|state| &state.version)).cloned();
            let known = known.unwrap_or_default();
            self.trace.is_doubtful |= state.is_some_and(|state| state.is_doubtful);
            self.trace.inputs.entry(name.clone()).or_insert(known);
        }
        self.record_write(name, WriteKind::Changed);
        self.write_version(name);
    }

    /// Gives a name's value the version of this run.
    fn write_version(&mut self, name: &Name) {
        let run = self.run;
        let state = self.state_mut(name);
        let is_new = *state.version != [run];
        if is_new {
            state.version = version([run]);
        }
        self.changed(is_new);
    }

    fn hold(&mut self, name: &Name, value: &Value, call_arguments: Option<&CallArguments>) {
        let new = self.evaluate(value, call_arguments);
        for (other, share) in new.edges {
            self.connect(name, &other, share);
        }
        if let Some(state) = self.names.names.get_mut(name) {
            let functions = new.functions.into_iter();
            let is_new = state.add_functions(functions.map(|(it, _)| (it, FunctionLink::Holds)));
            self.changed(is_new);
        }
    }

    fn delete(&mut self, name: &Name, need: ValueOrigin, certain: bool) {
        self.read(name, need);
        self.record_write(name, WriteKind::Deleted);
        let run = self.run;
        if certain {
            self.forget(name);
            *self.state_mut(name) = NameState::default();
            self.bound.remove(name);
            self.changed(true);
        } else {
            let is_new = self.state_mut(name).add_run(run);
            self.changed(is_new);
            self.weak.insert(name.clone());
        }
    }

    // Calls.

    fn call(&mut self, call: &Call, call_arguments: Option<&CallArguments>, certain: bool) {
        match (&call.root, call.path.last()) {
            (Some(name), _) if call.is_item => {
                self.read(name, call.need);
                self.call_held_functions(name, call, call_arguments);
            }
            (Some(name), None) => self.call_name(name, call, call_arguments, certain),
            (Some(name), Some(method)) => {
                self.read(name, call.need);
                let Some(state) = self.names.names.get(name) else {
                    return self.call_passed_functions(call, call_arguments);
                };
                match state.imported.clone() {
                    Some(imported) => self.call_library(&imported, call, call_arguments),
                    None if state.kind == ObjectKind::Scalar => {}
                    None => {
                        let functions = state.functions.clone();
                        let objects = [(name.clone(), Share::Same)];
                        self.call_method(
                            &objects,
                            functions,
                            method,
                            call,
                            call_arguments,
                            certain,
                        );
                    }
                }
            }
            (None, method) => {
                let receiver = self.evaluate(&call.receiver, call_arguments);
                match method {
                    Some(method) => {
                        let functions = receiver.functions;
                        self.call_method(
                            &receiver.edges,
                            functions,
                            method,
                            call,
                            call_arguments,
                            certain,
                        );
                    }
                    None => {
                        for (function, _) in &receiver.functions {
                            let arguments =
                                self.arguments(function, &call.arguments, &[], call_arguments);
                            self.apply(function, &arguments, false);
                        }
                    }
                }
            }
        }
        self.call_passed_functions(call, call_arguments);
    }

    /// Follows the functions among the arguments: the called code may call them.
    fn call_passed_functions(&mut self, call: &Call, call_arguments: Option<&CallArguments>) {
        for argument in &call.arguments {
            for (function, direct) in &argument.value.functions {
                self.run_passed_function(function, *direct);
            }
            for (variable, share) in &argument.value.shares {
                for (name, _) in objects_of(variable, call_arguments) {
                    let state = self.names.names.get(&name);
                    let functions = state.map(|state| state.functions.clone());
                    for (function, direct) in functions.unwrap_or_default() {
                        match share {
                            Share::Same => self.run_passed_function(&function, direct),
                            _ => self.follow_reads(&function),
                        }
                    }
                }
            }
        }
    }

    fn run_passed_function(&mut self, function: &Arc<Function>, direct: FunctionLink) {
        match direct {
            FunctionLink::Is => self.apply(function, &CallArguments::new(), false),
            FunctionLink::Holds => self.follow_reads(function),
        }
    }

    /// Calls the functions that an object holds.
    fn call_held_functions(
        &mut self,
        name: &Name,
        call: &Call,
        call_arguments: Option<&CallArguments>,
    ) {
        let state = self.names.names.get(name);
        let functions = state
            .map(|state| state.functions.clone())
            .unwrap_or_default();
        let mut has_state = false;
        for (function, _) in &functions {
            let arguments = self.arguments(function, &call.arguments, &[], call_arguments);
            self.apply(function, &arguments, false);
            has_state |= function.keeps_state || function.name == "__call__";
            if function.is_cached && self.is_older_than_it_reads(name, function) {
                self.unknown(Unknown::Outside(format!("{name}, which keeps results,")));
            }
        }
        if has_state {
            self.change(name, false);
        }
    }

    /// Says whether a name that a function reads was written after the function.
    fn is_older_than_it_reads(&self, name: &Name, function: &Function) -> bool {
        let written = |name: &Name| {
            let version = self.names.version(name)?;
            version.iter().copied().filter(|run| !is_module(*run)).max()
        };
        let own = written(name);
        names_in(function).any(|read| read != name && written(read) > own)
    }

    fn call_name(
        &mut self,
        name: &Name,
        call: &Call,
        call_arguments: Option<&CallArguments>,
        certain: bool,
    ) {
        let Some(state) = self.names.names.get(name) else {
            if is_builtin(name) {
                self.trace.uses.insert(name.clone());
                self.call_builtin(name, call, call_arguments);
            } else {
                self.read(name, call.need);
            }
            return;
        };
        let functions = state.functions.clone();
        let imported = state.imported.clone();
        self.read(name, call.need);
        if let Some(imported) = imported {
            self.call_library(&imported, call, call_arguments);
            return;
        }
        if functions
            .iter()
            .all(|(_, direct)| *direct == FunctionLink::Holds)
        {
            self.call_held_functions(name, call, call_arguments);
            return;
        }
        for (function, direct) in functions {
            if direct == FunctionLink::Is {
                let arguments = self.arguments(&function, &call.arguments, &[], call_arguments);
                self.apply(&function, &arguments, certain);
                let has_default = |(place, it): (usize, &crate::code::effects::Parameter)| {
                    it.keeps_default && arguments.get(place).is_some_and(Vec::is_empty)
                };
                if function.parameters.iter().enumerate().any(has_default)
                    && changes_parameter(&function)
                {
                    self.change(name, false);
                }
            } else {
                self.follow_reads(&function);
            }
        }
    }

    fn call_builtin(&mut self, name: &Name, call: &Call, call_arguments: Option<&CallArguments>) {
        match builtin(name) {
            Builtin::AnyName => self.may_write_any(format!("{name}()")),
            Builtin::Outside => self.unknown(Unknown::Outside(format!("{name}()"))),
            Builtin::ChangesFirst => self.change_first(call, call_arguments),
            _ => {}
        }
        for argument in &call.arguments {
            let is_file = argument.keyword.as_ref().is_some_and(|name| name == "file");
            if is_file && !self.is_of_module(&argument.value) {
                self.change_argument(argument, call_arguments);
            }
        }
    }

    /// Says whether a value is an object of a module, like `sys.stderr`.
    fn is_of_module(&self, value: &Value) -> bool {
        value.shares.iter().all(|(variable, _)| match variable {
            VariableRef::Global(name) => {
                let state = self.names.names.get(name);
                state.is_some_and(|state| state.imported.is_some())
            }
            VariableRef::Parameter(_) => false,
        })
    }

    fn call_library(
        &mut self,
        imported: &Name,
        call: &Call,
        call_arguments: Option<&CallArguments>,
    ) {
        let name = full_name(Some(imported), &call.path);
        let method = call.path.last().filter(|_| call.path.len() > 1);
        if let (Some(root), Some(method)) = (&call.root, method)
            && changes_module(method)
        {
            self.change(root, true);
        }
        match library(&name) {
            Library::Outside => self.unknown(Unknown::Outside(format!("{name}()"))),
            Library::ChangesFirst => {
                self.change_first(call, call_arguments);
                if name.contains("random") {
                    self.unknown(Unknown::Outside(format!("{name}()")));
                }
            }
            _ => {}
        }
        for argument in &call.arguments {
            let is_out = argument.keyword.as_ref().is_some_and(|name| name == "out");
            let is_in_place = argument.is_true
                && argument
                    .keyword
                    .as_ref()
                    .is_some_and(|name| name == "inplace");
            if is_out {
                self.change_argument(argument, call_arguments);
            }
            if is_in_place {
                self.change_first(call, call_arguments);
            }
        }
    }

    fn call_method(
        &mut self,
        objects: &[(Name, Share)],
        functions: Vec<(Arc<Function>, FunctionLink)>,
        method: &Name,
        call: &Call,
        call_arguments: Option<&CallArguments>,
        certain: bool,
    ) {
        let (of_method, others): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|(it, _)| it.name == *method);
        for (function, _) in &others {
            self.follow_reads(function);
        }
        let certain = certain && of_method.len() == 1;
        for (function, _) in &of_method {
            let arguments = self.arguments(function, &call.arguments, objects, call_arguments);
            self.apply(function, &arguments, certain);
        }
        let keeps_state = of_method.iter().any(|(function, _)| function.keeps_state);
        let is_in_place = |it: &Argument| {
            it.keyword.as_ref().is_some_and(|name| name == "inplace") && !is_false(it)
        };
        let in_place = call.arguments.iter().any(is_in_place);
        let reads = reading_method(method).is_some() && !in_place;
        if keeps_state || (of_method.is_empty() && !reads) {
            for (name, share) in objects {
                self.change_shared(name, call.is_deep, *share);
                if takes_in(method) {
                    for argument in &call.arguments {
                        self.hold(name, &argument.value.clone().taken_in(), call_arguments);
                    }
                }
            }
        }
        for argument in &call.arguments {
            if argument.keyword.as_ref().is_some_and(|name| name == "out") {
                self.change_argument(argument, call_arguments);
            }
        }
    }

    fn change_first(&mut self, call: &Call, call_arguments: Option<&CallArguments>) {
        let first = call.arguments.iter().find(|it| it.keyword.is_none());
        if let Some(first) = first {
            self.change_argument(first, call_arguments);
        }
    }

    fn change_argument(&mut self, argument: &Argument, call_arguments: Option<&CallArguments>) {
        for (variable, share) in &argument.value.shares {
            for (name, further) in objects_of(variable, call_arguments) {
                self.change_shared(&name, false, (*share).max(further));
            }
        }
    }

    /// Works out which objects a function's parameters are.
    fn arguments(
        &self,
        function: &Function,
        arguments: &[Argument],
        receiver: &[(Name, Share)],
        call_arguments: Option<&CallArguments>,
    ) -> CallArguments {
        let mut places: CallArguments = vec![Vec::new(); function.parameters.len()];
        let mut next = 0;
        let mut give = |place: usize, objects: Vec<(Name, Share)>| {
            if let Some(place) = places.get_mut(place) {
                place.extend(objects);
            }
        };
        let kind_of = |place: usize| function.parameters.get(place).map(|it| it.kind);
        if !receiver.is_empty() && function.method != MethodKind::Static {
            give(0, receiver.to_vec());
            next = 1;
        }
        for argument in arguments {
            let mut objects = Vec::new();
            for (variable, share) in &argument.value.shares {
                for (name, further) in objects_of(variable, call_arguments) {
                    objects.push((name, (*share).max(further)));
                }
            }
            if argument.is_starred {
                for place in next..function.parameters.len() {
                    let parts = objects
                        .iter()
                        .map(|(name, _)| (name.clone(), Share::Perhaps));
                    give(place, parts.collect());
                }
                continue;
            }
            let place = match &argument.keyword {
                Some(keyword) => {
                    let mut all = function.parameters.iter();
                    let named = all.position(|it| it.name == *keyword);
                    let mut all = function.parameters.iter();
                    named.or_else(|| all.position(|it| it.kind == ParameterKind::VarKeyword))
                }
                None => match kind_of(next) {
                    Some(ParameterKind::Positional) => {
                        next += 1;
                        Some(next - 1)
                    }
                    Some(ParameterKind::VarPositional) => Some(next),
                    _ => None,
                },
            };
            if let Some(place) = place {
                give(place, objects);
            }
        }
        for objects in &mut places {
            objects.sort_unstable();
            objects.dedup();
        }
        places
    }

    /// Follows a function's steps.
    fn apply(&mut self, function: &Arc<Function>, arguments: &CallArguments, certain: bool) {
        self.follow_function(function, Followed::All { certain }, arguments);
    }
}

/// Returns the names of the objects that a variable stands for: for a parameter, those of the arguments.
fn objects_of(
    variable: &VariableRef,
    call_arguments: Option<&CallArguments>,
) -> Vec<(Name, Share)> {
    match variable {
        VariableRef::Global(name) => vec![(name.clone(), Share::Same)],
        VariableRef::Parameter(place) => {
            let call_arguments =
                call_arguments.and_then(|call_arguments| call_arguments.get(*place));
            call_arguments.cloned().unwrap_or_default()
        }
    }
}

/// Returns the kernel's names that a function's own text reads.
fn names_in(function: &Function) -> impl Iterator<Item = &Name> {
    function.steps.iter().filter_map(|step| match &step.effect {
        Effect::Read {
            variable: VariableRef::Global(name),
            ..
        } => Some(name),
        Effect::Call(call) => call.root.as_ref(),
        _ => None,
    })
}

fn full_name(imported: Option<&Name>, path: &[Name]) -> String {
    let mut name = imported
        .map(|name| name.as_str().to_owned())
        .unwrap_or_default();
    for part in path {
        name.push('.');
        name.push_str(part);
    }
    name
}

/// Says whether Python calls a method when an object is read, or this member of it: a property, or a special method
/// like `__len__`. Those that make or change an object are called by other code.
fn is_called_by_reading(method: &Function, member: Option<&Name>) -> bool {
    let name = method.name.as_str();
    match member {
        Some(member) if method.name == *member => {
            method.method == MethodKind::Property || name.starts_with("__")
        }
        Some(member) => name.starts_with("__getattr") && !member.starts_with("__"),
        None => method.method == MethodKind::Property || is_reading_special_method(name),
    }
}

/// Says whether a method returns a new object. A method of the notebook's own may return anything.
fn is_new(method: &Name, functions: &[(Arc<Function>, FunctionLink)]) -> bool {
    let mut functions = functions.iter();
    let is_own = functions.any(|(function, _)| function.name == *method);
    !is_own && reading_method(method) == Some(ReadingMethod::New)
}

fn changes_parameter(function: &Function) -> bool {
    let is_parameter = |variable: &VariableRef| matches!(variable, VariableRef::Parameter(_));
    function.steps.iter().any(|step| match &step.effect {
        Effect::Change { variable, .. } | Effect::Update { variable, .. } => is_parameter(variable),
        Effect::Call(call) => {
            let method = call.path.last();
            let changes = method.is_some_and(|method| reading_method(method).is_none());
            let mut objects = call.receiver.shares.iter();
            changes && objects.any(|(variable, _)| is_parameter(variable))
        }
        _ => false,
    })
}

fn is_false(argument: &Argument) -> bool {
    !argument.is_true && argument.value.kind == ValueKind::Scalar
}
