//! The names of a kernel, as far as the code that ran shows: who gave each its value, and what is known of it.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::code::effects::tables::{
    Builtin, Library, ReadingMethod, builtin, changes_module, is_builtin, is_output, library,
    reading_method, takes_in,
};
use crate::code::effects::{
    Act, Argument, Binder, Call, Direct, Effects, Function, Method, Name, Need, Share, Takes,
    Unknown, Value, ValueKind, VariableRef,
};

/// One run of a text. Later runs have greater numbers.
pub(super) type Run = u64;

/// Whose runs made a value: one, or several if some may have left it as it was.
pub(super) type Version = Arc<[Run]>;

/// Numbers from here on are not of runs, but of modules: an import gives the same object each time.
const MODULES: Run = 1 << 63;

/// How deep calls are followed.
const DEEPEST: usize = 24;

/// How many objects and functions a name is followed to.
const MOST: usize = 48;

/// The names and what they hold.
#[derive(Clone, Debug, Default)]
pub(super) struct Namespace {
    names: HashMap<Name, Held>,
    /// The runs of code that may have written any name, in their order.
    any: Vec<Run>,
    /// The same as a version, once it is needed.
    any_version: Option<Version>,
    is_any_doubtful: bool,
}

/// What a name holds.
#[derive(Clone, Debug, Default)]
struct Held {
    version: Version,
    kind: HeldKind,
    /// What an import has bound.
    imported: Option<Name>,
    functions: Vec<(Arc<Function>, Direct)>,
    /// Names of the same object.
    edges: Vec<(Name, Share)>,
    /// Its value may be another after Restart & Run All.
    is_doubtful: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HeldKind {
    #[default]
    Unknown,
    Scalar,
    Container,
    Iterator,
}

/// What one run did.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Trace {
    /// The values that it needed, from before.
    pub(super) inputs: BTreeMap<Name, Version>,
    /// The names that it gave a value, or whose object it may have changed.
    pub(super) writes: BTreeMap<Name, Written>,
    /// The names that it used, of its own too.
    pub(super) uses: HashSet<Name>,
    /// The names that had no value, with the lines.
    pub(super) missing: BTreeMap<Name, usize>,
    /// What cannot be known, with the lines.
    pub(super) unknown: Vec<(usize, Unknown)>,
    /// It depends on something that cannot be known.
    pub(super) is_doubtful: bool,
}

/// How a name was written; the greater one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Written {
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

/// A run before, of the same cell with the same text.
pub(super) struct Before<'a> {
    pub(super) run: Run,
    pub(super) inputs: &'a BTreeMap<Name, Version>,
}

impl Namespace {
    /// Follows one run of a text.
    pub(super) fn run(&mut self, run: Run, effects: &Effects, before: Option<&Before>) -> Trace {
        let mut runner = Runner {
            names: self,
            run,
            trace: Trace::default(),
            own: HashSet::new(),
            start: HashMap::new(),
            weak: BTreeSet::new(),
            aliased: BTreeSet::new(),
            writes_any: false,
            line: 0,
            calls: Vec::new(),
        };
        for step in &effects.steps {
            runner.line = step.line;
            runner.act(&step.act, None, true);
        }
        runner.finish(before)
    }

    /// Follows a run that ended with an error: what it has written is not known.
    pub(super) fn run_in_part(&mut self, run: Run, effects: &Effects) -> Trace {
        let before = self.clone();
        let trace = self.run(run, effects, None);
        for name in trace.writes.keys() {
            let earlier = before.names.get(name);
            let earlier = earlier.map(|held| held.version.clone()).unwrap_or_default();
            let held = self.names.entry(name.clone()).or_default();
            let all = earlier.iter().copied().chain([run]);
            held.version = version(all);
            held.is_doubtful = true;
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
            self.any.push(run);
            self.any_version = None;
        }
    }

    fn any_version(&mut self) -> Version {
        let version = || self.any.as_slice().into();
        self.any_version.get_or_insert_with(version).clone()
    }

    /// Returns the names that have a value, with whose runs made it.
    pub(super) fn versions(&self) -> impl Iterator<Item = (&Name, &Version)> {
        let names = self.names.iter();
        names.map(|(name, held)| (name, &held.version))
    }

    pub(super) fn version(&self, name: &Name) -> Option<&Version> {
        self.names.get(name).map(|held| &held.version)
    }

    /// Returns the names that an iterator reads when it is read.
    pub(super) fn read_later(&self, name: &Name) -> impl Iterator<Item = &Name> {
        let held = self.names.get(name);
        let held = held.filter(|held| held.kind == HeldKind::Iterator);
        let functions = held.into_iter().flat_map(|held| &held.functions);
        let steps = functions.flat_map(|(function, _)| &function.steps);
        steps.filter_map(|step| match &step.act {
            Act::Read {
                variable: VariableRef::Global(name),
                ..
            } => Some(name),
            Act::Call(call) => call.root.as_ref(),
            _ => None,
        })
    }

    /// Says whether code ran that may have written any name.
    pub(super) fn is_any_doubtful(&self) -> bool {
        self.is_any_doubtful
    }

    pub(super) fn is_doubtful(&self, name: &Name) -> bool {
        self.is_any_doubtful || self.names.get(name).is_some_and(|held| held.is_doubtful)
    }
}

/// Says whether a number is a module's.
pub(super) fn is_module(run: Run) -> bool {
    run & MODULES != 0
}

fn module(imported: &Name) -> Run {
    let mut hasher = DefaultHasher::new();
    imported.hash(&mut hasher);
    hasher.finish() | MODULES
}

fn version(runs: impl IntoIterator<Item = Run>) -> Version {
    let runs: BTreeSet<Run> = runs.into_iter().collect();
    runs.into_iter().collect()
}

struct Runner<'a> {
    names: &'a mut Namespace,
    run: Run,
    trace: Trace,
    /// Names that this run has certainly bound.
    own: HashSet<Name>,
    /// The versions of names before this run wrote them.
    start: HashMap<Name, Version>,
    /// Names that it may have left as they were.
    weak: BTreeSet<Name>,
    /// Names whose object it may have changed by another name.
    aliased: BTreeSet<Name>,
    writes_any: bool,
    line: usize,
    /// The functions whose steps are followed.
    calls: Vec<*const Function>,
}

/// What a function was called with, by parameter.
type Given = Vec<Vec<(Name, Share)>>;

impl Runner<'_> {
    fn finish(mut self, before: Option<&Before>) -> Trace {
        if self.writes_any {
            self.names.writes_any(self.run);
        }
        // A run with the same inputs does the same: it has not left what the run before it wrote.
        if let Some(before) = before
            && *before.inputs == self.trace.inputs
        {
            for name in &self.weak {
                if let Some(held) = self.names.names.get_mut(name) {
                    let others = held.version.iter().copied();
                    held.version = version(others.filter(|run| *run != before.run));
                }
            }
        }
        let is_unknown = |unknown: &Unknown| !matches!(unknown, Unknown::SameObject(..));
        let trace = &mut self.trace;
        trace.is_doubtful |= trace.unknown.iter().any(|(_, it)| is_unknown(it));
        for name in trace.writes.keys() {
            if let Some(held) = self.names.names.get_mut(name) {
                held.is_doubtful |= trace.is_doubtful;
            }
        }
        for name in &self.aliased {
            if let Some(held) = self.names.names.get_mut(name) {
                held.is_doubtful = true;
            }
        }
        let mut anything = trace.unknown.iter();
        self.names.is_any_doubtful |= anything.any(|(_, it)| matches!(it, Unknown::AnyName(_)));
        trace.unknown.sort_by_key(|(line, _)| *line);
        trace.unknown.dedup();
        self.trace
    }

    fn act(&mut self, act: &Act, given: Option<&Given>, certain: bool) {
        match act {
            Act::Read { variable, need } => {
                for (name, _) in meant(variable, given) {
                    self.read(&name, *need);
                    self.mention(&name);
                }
            }
            Act::Bind {
                name,
                value,
                certain: always,
                by,
            } => self.bind(name, value, given, certain && *always, *by),
            Act::Settle { name } => self.settle(name),
            Act::Update { variable, value } => {
                for (name, _) in meant(variable, given) {
                    self.update(&name, value, given, given.is_some());
                }
            }
            Act::Change { variable, deep } => {
                for (name, share) in meant(variable, given) {
                    self.change_shared(&name, *deep, share);
                }
            }
            Act::Hold { variable, value } => {
                for (name, _) in meant(variable, given) {
                    self.hold(&name, value, given);
                }
            }
            Act::Delete {
                name,
                need,
                certain: always,
            } => self.delete(name, *need, certain && *always),
            Act::Call(call) => self.call(call, given, certain),
            Act::Unknown(unknown) => {
                self.writes_any |= matches!(unknown, Unknown::AnyName(_));
                self.unknown(unknown.clone());
            }
        }
    }

    fn unknown(&mut self, unknown: Unknown) {
        self.trace.unknown.push((self.line, unknown));
    }

    // Reading.

    fn read(&mut self, name: &Name, need: Need) {
        self.trace.uses.insert(name.clone());
        if is_output(name) && !self.names.names.contains_key(name) {
            self.unknown(Unknown::Outside(format!("the last output, {name}")));
            return;
        }
        if need == Need::Own || self.own.contains(name) {
            self.consume(name);
            return;
        }
        let held = self.names.names.get(name);
        let known = self.start.get(name);
        let known = known.or_else(|| held.map(|held| &held.version)).cloned();
        let known = known.filter(|version| !version.is_empty());
        if let Some(held) = held {
            self.trace.is_doubtful |= held.is_doubtful;
        }
        self.trace.is_doubtful |= self.names.is_any_doubtful;
        let version = match known {
            Some(version) => version,
            None if is_builtin(name) => return,
            // Code that may write any name may have written this one.
            None if !self.names.any.is_empty() || self.writes_any => self.names.any_version(),
            None if need == Need::Perhaps => return,
            None => {
                if held.is_none_or(|held| held.version.is_empty()) {
                    self.trace.missing.entry(name.clone()).or_insert(self.line);
                }
                Version::default()
            }
        };
        self.trace.inputs.entry(name.clone()).or_insert(version);
        self.consume(name);
    }

    /// Reading an iterator changes it.
    fn consume(&mut self, name: &Name) {
        let held = self.names.names.get(name);
        if held.is_some_and(|held| held.kind == HeldKind::Iterator) {
            self.change(name, false);
        }
    }

    /// Follows what the functions read that an object holds: it may call them.
    fn mention(&mut self, name: &Name) {
        let held = self.names.names.get(name);
        let functions = held.map(|held| held.functions.clone()).unwrap_or_default();
        for (function, direct) in functions {
            if direct == Direct::Holds {
                self.only_read(&function);
            }
        }
    }

    fn only_read(&mut self, function: &Arc<Function>) {
        if !self.enter(function) {
            return;
        }
        for step in &function.steps {
            match &step.act {
                Act::Read {
                    variable: VariableRef::Global(name),
                    ..
                } => self.read_later(name),
                Act::Call(call) => {
                    if let Some(name) = &call.root {
                        self.read_later(name);
                        self.mention_all(name);
                    }
                }
                _ => {}
            }
        }
        self.calls.pop();
    }

    fn read_later(&mut self, name: &Name) {
        if self.names.names.contains_key(name) {
            self.read(name, Need::Perhaps);
        }
    }

    fn mention_all(&mut self, name: &Name) {
        let held = self.names.names.get(name);
        let functions = held.map(|held| held.functions.clone()).unwrap_or_default();
        for (function, _) in functions {
            self.only_read(&function);
        }
    }

    fn enter(&mut self, function: &Arc<Function>) -> bool {
        let pointer = Arc::as_ptr(function);
        if self.calls.len() >= DEEPEST || self.calls.contains(&pointer) {
            return false;
        }
        self.calls.push(pointer);
        true
    }

    // Writing.

    fn written(&mut self, name: &Name, written: Written) {
        let now = self.trace.writes.entry(name.clone()).or_insert(written);
        *now = (*now).max(written);
    }

    /// Returns what a name holds, to be changed.
    fn held(&mut self, name: &Name) -> &mut Held {
        let held = self.names.names.entry(name.clone()).or_default();
        let start = self.start.entry(name.clone());
        start.or_insert_with(|| held.version.clone());
        held
    }

    fn bind(
        &mut self,
        name: &Name,
        value: &Value,
        given: Option<&Given>,
        certain: bool,
        by: Binder,
    ) {
        if let ValueKind::Imported(imported) = &value.kind {
            self.written(name, Written::Imported);
            let held = self.names.names.get(name);
            let is_there = held.is_some_and(|held| held.imported.as_ref() == Some(imported));
            if !is_there {
                self.forget(name);
                let held = self.held(name);
                *held = Held {
                    version: version([module(imported)]),
                    imported: Some(imported.clone()),
                    ..Held::default()
                };
            }
            self.own.insert(name.clone());
            return;
        }
        let new = self.evaluate(value, given);
        self.written(
            name,
            match by {
                Binder::Statement => Written::Bound,
                Binder::Temporary => Written::Temporary,
            },
        );
        let run = self.run;
        let edges = new.edges.clone();
        if certain {
            self.forget(name);
            let held = self.held(name);
            *held = Held {
                version: version([run]),
                edges: Vec::new(),
                ..new
            };
            self.own.insert(name.clone());
            self.weak.remove(name);
        } else {
            let is_own = self.own.contains(name);
            let held = self.held(name);
            held.version = version(held.version.iter().copied().chain([run]));
            if held.kind != new.kind {
                held.kind = HeldKind::Unknown;
            }
            held.imported = None;
            held.functions.extend(new.functions);
            held.functions.truncate(MOST);
            held.is_doubtful |= new.is_doubtful;
            if !is_own {
                self.weak.insert(name.clone());
            }
        }
        for (other, share) in edges {
            let share = match certain {
                true => share,
                false => share.max(Share::Perhaps),
            };
            self.connect(name, &other, share);
        }
    }

    /// Works out what is known of a value.
    fn evaluate(&mut self, value: &Value, given: Option<&Given>) -> Held {
        let mut held = Held::default();
        let mut shares = Vec::new();
        for (variable, share) in &value.shares {
            for (name, further) in meant(variable, given) {
                shares.push((name, (*share).max(further)));
            }
        }
        let is_scalar = |names: &Namespace, name: &Name| {
            let found = names.names.get(name);
            found.is_some_and(|found| found.kind == HeldKind::Scalar)
        };
        held.kind = match &value.kind {
            ValueKind::Scalar => HeldKind::Scalar,
            ValueKind::Container => HeldKind::Container,
            ValueKind::Iterator => HeldKind::Iterator,
            ValueKind::ScalarIf(variables) => {
                let mut names = variables.iter().flat_map(|it| meant(it, given));
                match names.all(|(name, _)| is_scalar(self.names, &name)) {
                    true => HeldKind::Scalar,
                    false => HeldKind::Unknown,
                }
            }
            ValueKind::Unknown | ValueKind::Imported(_) => HeldKind::Unknown,
        };
        held.functions.clone_from(&value.functions);
        // `y = x` is what `x` is.
        if let ([(name, Share::Same)], HeldKind::Unknown, None) =
            (&*shares, held.kind, &value.result_of)
            && !value.is_part
            && let Some(found) = self.names.names.get(name)
        {
            held.kind = found.kind;
        }
        let is_copy = shares.len() == 1 && value.result_of.is_none();
        for (name, share) in &shares {
            let Some(found) = self.names.names.get(name) else {
                continue;
            };
            for (function, direct) in &found.functions {
                let direct = match is_copy && *share == Share::Same {
                    true => *direct,
                    false => Direct::Holds,
                };
                held.functions.push((function.clone(), direct));
            }
        }
        if let Some(call) = &value.result_of {
            self.result(call, given, &mut held, &mut shares);
        }
        if value.is_part {
            let parts = shares.iter().flat_map(|(name, _)| self.held_in(name));
            let parts: Vec<_> = parts.map(|part| (part, Share::Perhaps)).collect();
            shares.extend(parts);
        }
        held.functions.truncate(MOST);
        let mut seen = HashSet::new();
        held.functions
            .retain(|(it, _)| seen.insert(Arc::as_ptr(it)));
        shares.retain(|(name, _)| {
            let found = self.names.names.get(name);
            found.is_some_and(|found| found.kind != HeldKind::Scalar && found.imported.is_none())
        });
        shares.sort_unstable();
        shares.dedup_by(|later, first| later.0 == first.0);
        // What an iterator gives is that of the objects that it goes through.
        if held.kind == HeldKind::Iterator {
            shares
                .iter_mut()
                .for_each(|(_, share)| *share = Share::Perhaps);
        }
        if held.kind != HeldKind::Scalar {
            held.edges = shares;
        }
        held
    }

    /// Returns the names whose objects this one holds, in whatever depth: an item of it may be one of them.
    fn held_in(&self, name: &Name) -> Vec<Name> {
        let mut seen = vec![name.clone()];
        let mut held = Vec::new();
        let mut next = 0;
        while let Some(name) = seen.get(next).cloned().filter(|_| next < MOST) {
            next += 1;
            let found = self.names.names.get(&name);
            for (other, share) in found.into_iter().flat_map(|found| &found.edges) {
                let is_holder = matches!(share, Share::HeldBy | Share::PerhapsHeldBy);
                if is_holder || seen.contains(other) {
                    continue;
                }
                seen.push(other.clone());
                if matches!(share, Share::Holds | Share::PerhapsHolds) {
                    held.push(other.clone());
                }
            }
        }
        held
    }

    /// Works out what a call returned.
    fn result(
        &mut self,
        call: &Call,
        given: Option<&Given>,
        held: &mut Held,
        shares: &mut Vec<(Name, Share)>,
    ) {
        if call.is_item {
            return;
        }
        let method = call.path.last();
        let Some(root) = &call.root else {
            let functions = self.evaluate(&call.receiver, given).functions;
            if method.is_some_and(|method| is_new(method, &functions)) {
                shares.clear();
            }
            return;
        };
        let found = self.names.names.get(root);
        match (found, method) {
            (Some(found), _) if found.imported.is_some() => {
                match library(&full_name(found.imported.as_ref(), &call.path)) {
                    Library::New | Library::ChangesFirst | Library::Outside => shares.clear(),
                    Library::Iterator => held.kind = HeldKind::Iterator,
                    Library::Keeps => {}
                }
            }
            (Some(found), None) => {
                let mut direct = found.functions.iter();
                let direct = direct.find(|(_, direct)| *direct == Direct::Is);
                if let Some((function, _)) = direct {
                    if function.is_generator {
                        held.kind = HeldKind::Iterator;
                    }
                    let arguments = self.arguments(function, &call.arguments, &[], given);
                    shares.clear();
                    for (variable, share) in &function.returns {
                        for (name, further) in meant(variable, Some(&arguments)) {
                            shares.push((name, (*share).max(further).max(Share::Perhaps)));
                        }
                    }
                }
            }
            (Some(found), Some(method)) => {
                if is_new(method, &found.functions) {
                    shares.clear();
                }
            }
            (None, None) => match builtin(root) {
                Builtin::Iterator => held.kind = HeldKind::Iterator,
                Builtin::Outside if root == "open" => held.kind = HeldKind::Iterator,
                Builtin::Copies => {
                    held.kind = HeldKind::Container;
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
                        held.kind = HeldKind::Scalar;
                    }
                }
                _ => {}
            },
            (None, Some(_)) => {}
        }
    }

    /// Takes a name out of those that share its object. They still share it.
    fn forget(&mut self, name: &Name) {
        let held = self.names.names.get_mut(name);
        let edges = held
            .map(|held| std::mem::take(&mut held.edges))
            .unwrap_or_default();
        for (other, _) in &edges {
            if let Some(held) = self.names.names.get_mut(other) {
                held.edges.retain(|(it, _)| it != name);
            }
        }
        for (at, (one, share)) in edges.iter().enumerate() {
            for (other, further) in edges.iter().skip(at + 1) {
                if let Some(share) = share.reversed().then(*further) {
                    self.connect(one, other, share);
                }
            }
        }
    }

    fn connect(&mut self, one: &Name, other: &Name, share: Share) {
        if one == other || !self.names.names.contains_key(other) {
            return;
        }
        for (from, to, share) in [(one, other, share), (other, one, share.reversed())] {
            if let Some(held) = self.names.names.get_mut(from) {
                let is_full = held.edges.len() >= MOST;
                match held.edges.iter_mut().find(|(it, _)| it == to) {
                    Some((_, known)) => *known = (*known).min(share),
                    None if !is_full => held.edges.push((to.clone(), share)),
                    None => {}
                }
            }
        }
    }

    fn settle(&mut self, name: &Name) {
        let run = self.run;
        let held = self.names.names.get_mut(name);
        if let Some(held) = held.filter(|held| held.version.contains(&run)) {
            held.version = version([run]);
            self.own.insert(name.clone());
            self.weak.remove(name);
        }
    }

    fn update(&mut self, name: &Name, value: &Value, given: Option<&Given>, is_read: bool) {
        if is_read {
            self.read(name, Need::Before);
        }
        let new = self.evaluate(value, given);
        let held = self.names.names.get(name);
        let kind = held.map(|held| held.kind).unwrap_or_default();
        match kind {
            HeldKind::Scalar => {
                let run = self.run;
                self.written(name, Written::Bound);
                let held = self.held(name);
                held.version = version([run]);
                if new.kind != HeldKind::Scalar {
                    held.kind = HeldKind::Unknown;
                }
            }
            _ => {
                // A number is only bound anew: whoever shares it keeps the old one.
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
                self.alias(name, name, &[]);
            }
            return;
        }
        self.change(name, deep);
    }

    fn change(&mut self, name: &Name, deep: bool) {
        let Some(held) = self.names.names.get(name) else {
            self.read(name, Need::Before);
            return;
        };
        if held.kind == HeldKind::Scalar {
            return;
        }
        if held.imported.is_some() {
            // A setting: it is the same however often it is made.
            let run = self.run;
            self.written(name, Written::Changed);
            self.held(name).version = version([run]);
            return;
        }
        // With whether a change of what the object holds counts, and one of what it holds with others.
        let mut open = vec![(name.clone(), deep, deep)];
        let mut changed: Vec<Name> = Vec::new();
        let mut perhaps = Vec::new();
        while let Some((next, parts, common)) = open.pop() {
            if changed.contains(&next) {
                continue;
            }
            let held = self.names.names.get(&next);
            for (other, share) in held.iter().flat_map(|held| &held.edges) {
                match share {
                    Share::Same => open.push((other.clone(), parts, common)),
                    Share::HeldBy => open.push((other.clone(), false, true)),
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
            changed.push(next);
        }
        for next in &changed {
            self.change_one(next);
        }
        for (one, other) in perhaps {
            if !changed.contains(&other) {
                self.alias(&one, &other, &changed);
            }
        }
    }

    /// Says that a change of one name may be one of the other, and so of all that share or hold the other's object;
    /// not of those that are changed anyway.
    fn alias(&mut self, one: &Name, other: &Name, changed: &[Name]) {
        let mut open = vec![other.clone()];
        let mut seen: Vec<Name> = Vec::new();
        while let Some(next) = open.pop() {
            if seen.len() >= MOST || seen.contains(&next) || changed.contains(&next) {
                continue;
            }
            let held = self.names.names.get(&next);
            let sharing = held.into_iter().flat_map(|held| &held.edges);
            let sharing = sharing.filter(|(_, share)| {
                !matches!(share, Share::Holds | Share::PerhapsHolds | Share::Elements)
            });
            open.extend(sharing.map(|(name, _)| name.clone()));
            seen.push(next);
        }
        self.aliased.extend(seen);
        self.unknown(Unknown::SameObject(one.clone(), other.clone()));
    }

    fn change_one(&mut self, name: &Name) {
        if !self.own.contains(name) {
            let held = self.names.names.get(name);
            let known = self.start.get(name);
            let known = known.or_else(|| held.map(|held| &held.version)).cloned();
            let known = known.unwrap_or_default();
            self.trace.is_doubtful |= held.is_some_and(|held| held.is_doubtful);
            self.trace.inputs.entry(name.clone()).or_insert(known);
        }
        let run = self.run;
        self.written(name, Written::Changed);
        self.held(name).version = version([run]);
    }

    fn hold(&mut self, name: &Name, value: &Value, given: Option<&Given>) {
        let new = self.evaluate(value, given);
        for (other, share) in new.edges {
            self.connect(name, &other, share);
        }
        if let Some(held) = self.names.names.get_mut(name) {
            let functions = new.functions.into_iter();
            held.functions
                .extend(functions.map(|(it, _)| (it, Direct::Holds)));
            held.functions.truncate(MOST);
        }
    }

    fn delete(&mut self, name: &Name, need: Need, certain: bool) {
        self.read(name, need);
        self.written(name, Written::Deleted);
        let run = self.run;
        if certain {
            self.forget(name);
            *self.held(name) = Held::default();
            self.own.remove(name);
        } else {
            let held = self.held(name);
            held.version = version(held.version.iter().copied().chain([run]));
            self.weak.insert(name.clone());
        }
    }

    // Calls.

    fn call(&mut self, call: &Call, given: Option<&Given>, certain: bool) {
        match (&call.root, call.path.last()) {
            (Some(name), _) if call.is_item => {
                self.read(name, call.need);
                self.call_held(name, call, given);
            }
            (Some(name), None) => self.call_name(name, call, given, certain),
            (Some(name), Some(method)) => {
                self.read(name, call.need);
                let Some(held) = self.names.names.get(name) else {
                    return self.call_given(call, given);
                };
                match held.imported.clone() {
                    Some(imported) => self.call_library(&imported, call, given),
                    None if held.kind == HeldKind::Scalar => {}
                    None => {
                        let functions = held.functions.clone();
                        let objects = [(name.clone(), Share::Same)];
                        self.call_method(&objects, functions, method, call, given, certain);
                    }
                }
            }
            (None, method) => {
                let receiver = self.evaluate(&call.receiver, given);
                match method {
                    Some(method) => {
                        let functions = receiver.functions;
                        self.call_method(&receiver.edges, functions, method, call, given, certain);
                    }
                    None => {
                        for (function, _) in &receiver.functions {
                            let arguments = self.arguments(function, &call.arguments, &[], given);
                            self.apply(function, &arguments, false);
                        }
                    }
                }
            }
        }
        self.call_given(call, given);
    }

    /// Whoever gets a function may call it.
    fn call_given(&mut self, call: &Call, given: Option<&Given>) {
        for argument in &call.arguments {
            for (function, direct) in &argument.value.functions {
                self.run_given(function, *direct);
            }
            for (variable, share) in &argument.value.shares {
                for (name, _) in meant(variable, given) {
                    let held = self.names.names.get(&name);
                    let functions = held.map(|held| held.functions.clone());
                    for (function, direct) in functions.unwrap_or_default() {
                        match share {
                            Share::Same => self.run_given(&function, direct),
                            _ => self.only_read(&function),
                        }
                    }
                }
            }
        }
    }

    fn run_given(&mut self, function: &Arc<Function>, direct: Direct) {
        match direct {
            Direct::Is => self.apply(function, &Given::new(), false),
            Direct::Holds => self.only_read(function),
        }
    }

    /// Calls whatever functions an object holds.
    fn call_held(&mut self, name: &Name, call: &Call, given: Option<&Given>) {
        let held = self.names.names.get(name);
        let functions = held.map(|held| held.functions.clone()).unwrap_or_default();
        let mut has_state = false;
        for (function, _) in &functions {
            let arguments = self.arguments(function, &call.arguments, &[], given);
            self.apply(function, &arguments, false);
            has_state |= function.keeps_state || function.name == "__call__";
        }
        if has_state {
            self.change(name, false);
        }
    }

    fn call_name(&mut self, name: &Name, call: &Call, given: Option<&Given>, certain: bool) {
        let Some(held) = self.names.names.get(name) else {
            if is_builtin(name) {
                self.trace.uses.insert(name.clone());
                self.call_builtin(name, call, given);
            } else {
                self.read(name, call.need);
            }
            return;
        };
        let functions = held.functions.clone();
        let imported = held.imported.clone();
        self.read(name, call.need);
        if let Some(imported) = imported {
            self.call_library(&imported, call, given);
            return;
        }
        if functions.iter().all(|(_, direct)| *direct == Direct::Holds) {
            self.call_held(name, call, given);
            return;
        }
        for (function, direct) in functions {
            if direct == Direct::Is {
                let arguments = self.arguments(&function, &call.arguments, &[], given);
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
                self.only_read(&function);
            }
        }
    }

    fn call_builtin(&mut self, name: &Name, call: &Call, given: Option<&Given>) {
        match builtin(name) {
            Builtin::AnyName => {
                self.writes_any = true;
                self.unknown(Unknown::AnyName(format!("{name}()")));
            }
            Builtin::Outside => self.unknown(Unknown::Outside(format!("{name}()"))),
            Builtin::ChangesFirst => self.change_first(call, given),
            _ => {}
        }
        for argument in &call.arguments {
            let is_file = argument.keyword.as_ref().is_some_and(|name| name == "file");
            if is_file && !self.is_of_module(&argument.value) {
                self.change_argument(argument, given);
            }
        }
    }

    /// Says whether a value is an object of a module, like `sys.stderr`.
    fn is_of_module(&self, value: &Value) -> bool {
        value.shares.iter().all(|(variable, _)| match variable {
            VariableRef::Global(name) => {
                let held = self.names.names.get(name);
                held.is_some_and(|held| held.imported.is_some())
            }
            VariableRef::Parameter(_) => false,
        })
    }

    fn call_library(&mut self, imported: &Name, call: &Call, given: Option<&Given>) {
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
                self.change_first(call, given);
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
                self.change_argument(argument, given);
            }
            if is_in_place {
                self.change_first(call, given);
            }
        }
    }

    fn call_method(
        &mut self,
        objects: &[(Name, Share)],
        functions: Vec<(Arc<Function>, Direct)>,
        method: &Name,
        call: &Call,
        given: Option<&Given>,
        certain: bool,
    ) {
        let (own, others): (Vec<_>, Vec<_>) = functions
            .into_iter()
            .partition(|(it, _)| it.name == *method);
        for (function, _) in &others {
            self.only_read(function);
        }
        let certain = certain && own.len() == 1;
        for (function, _) in &own {
            let arguments = self.arguments(function, &call.arguments, objects, given);
            self.apply(function, &arguments, certain);
        }
        let keeps_state = own.iter().any(|(function, _)| function.keeps_state);
        let is_in_place = |it: &Argument| {
            it.keyword.as_ref().is_some_and(|name| name == "inplace") && !is_false(it)
        };
        let in_place = call.arguments.iter().any(is_in_place);
        let reads = reading_method(method).is_some() && !in_place;
        if keeps_state || (own.is_empty() && !reads) {
            for (name, share) in objects {
                self.change_shared(name, call.is_deep, *share);
                if takes_in(method) {
                    for argument in &call.arguments {
                        self.hold(name, &argument.value.clone().taken_in(), given);
                    }
                }
            }
        }
        for argument in &call.arguments {
            if argument.keyword.as_ref().is_some_and(|name| name == "out") {
                self.change_argument(argument, given);
            }
        }
    }

    fn change_first(&mut self, call: &Call, given: Option<&Given>) {
        let first = call.arguments.iter().find(|it| it.keyword.is_none());
        if let Some(first) = first {
            self.change_argument(first, given);
        }
    }

    fn change_argument(&mut self, argument: &Argument, given: Option<&Given>) {
        for (variable, share) in &argument.value.shares {
            for (name, further) in meant(variable, given) {
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
        given: Option<&Given>,
    ) -> Given {
        let mut places: Given = vec![Vec::new(); function.parameters.len()];
        let mut next = 0;
        let mut give = |place: usize, objects: Vec<(Name, Share)>| {
            if let Some(place) = places.get_mut(place) {
                place.extend(objects);
            }
        };
        let takes = |place: usize| function.parameters.get(place).map(|it| it.takes);
        if !receiver.is_empty() && function.method != Method::Static {
            give(0, receiver.to_vec());
            next = 1;
        }
        for argument in arguments {
            let mut objects = Vec::new();
            for (variable, share) in &argument.value.shares {
                for (name, further) in meant(variable, given) {
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
                    named.or_else(|| all.position(|it| it.takes == Takes::RestOfKeywords))
                }
                None => match takes(next) {
                    Some(Takes::One) => {
                        next += 1;
                        Some(next - 1)
                    }
                    Some(Takes::Rest) => Some(next),
                    _ => None,
                },
            };
            if let Some(place) = place {
                give(place, objects);
            }
        }
        places
    }

    /// Follows a function's steps.
    fn apply(&mut self, function: &Arc<Function>, arguments: &Given, certain: bool) {
        if !self.enter(function) {
            return;
        }
        for step in &function.steps {
            self.act(&step.act, Some(arguments), certain);
        }
        self.calls.pop();
    }
}

/// Returns the names that a variable stands for: of a parameter, those that the caller gave.
fn meant(variable: &VariableRef, given: Option<&Given>) -> Vec<(Name, Share)> {
    match variable {
        VariableRef::Global(name) => vec![(name.clone(), Share::Same)],
        VariableRef::Parameter(place) => {
            let given = given.and_then(|given| given.get(*place));
            given.cloned().unwrap_or_default()
        }
    }
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

/// Says whether a method returns a new object. A method of the notebook's own may return anything.
fn is_new(method: &Name, functions: &[(Arc<Function>, Direct)]) -> bool {
    let mut functions = functions.iter();
    let is_own = functions.any(|(function, _)| function.name == *method);
    !is_own && reading_method(method) == Some(ReadingMethod::New)
}

fn changes_parameter(function: &Function) -> bool {
    let is_parameter = |variable: &VariableRef| matches!(variable, VariableRef::Parameter(_));
    function.steps.iter().any(|step| match &step.act {
        Act::Change { variable, .. } | Act::Update { variable, .. } => is_parameter(variable),
        Act::Call(call) => {
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
