//! The reader of parsed code: it follows Python's scopes, and writes down what happens to the kernel's names.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ruff_python_ast::{
    Comprehension, Decorator, ExceptHandler, Expr, ExprCall, FStringPart,
    InterpolatedStringElement, InterpolatedStringElements, IpyEscapeKind, MatchCase, Operator,
    Parameters, Pattern, Stmt, StmtClassDef, StmtFor, StmtFunctionDef, StmtTry, TypeParam,
    TypeParams, UnaryOp, WithItem,
};
use ruff_text_size::Ranged;

use super::locals::{LocalBindings, bound_by_import, captured};
use super::tables::{caches, only_wraps};
use super::{
    Argument, Binder, Call, Effect, EffectStep, Function, FunctionLink, MethodKind, Name,
    Parameter, ParameterKind, Share, Unknown, Value, ValueKind, ValueOrigin, VariableRef,
};
use crate::code::parse::Lines;

/// How many objects a value is followed to.
const MOST_SHARES: usize = 16;

/// Reads a line that is no Python: its kind, its text, and its number.
pub(super) type ReadLine = fn(&mut Reader, IpyEscapeKind, &str, usize);

pub(super) struct Reader<'a> {
    lines: &'a Lines,
    steps: Vec<EffectStep>,
    /// The scopes that are open, outermost first; none is the module.
    scopes: Vec<Scope>,
    /// The names that this block has certainly bound before, at the level of the module.
    bound: HashSet<Name>,
    /// How many branches are open, each of which may not be executed.
    branches: usize,
    binder: Binder,
    /// Whether a function inside the present one changes a variable of an outer function.
    keeps_state: bool,
    /// Reads a line magic or a command of the shell.
    read_line: ReadLine,
}

struct Scope {
    kind: ScopeKind,
    /// The local names, with their values as far as known.
    names: HashMap<Name, Value>,
    global: HashSet<Name>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Function,
    Class,
    /// A comprehension, or the parameters of types.
    Inner,
}

/// The scope of a name.
enum NameScope {
    Global,
    /// Local to the scope at this index.
    Local(usize),
}

impl<'a> Reader<'a> {
    pub(super) fn new(lines: &'a Lines, read_line: ReadLine) -> Self {
        Self {
            lines,
            steps: Vec::new(),
            scopes: Vec::new(),
            bound: HashSet::new(),
            branches: 0,
            binder: Binder::Statement,
            keeps_state: false,
            read_line,
        }
    }

    pub(super) fn into_steps(self) -> Vec<EffectStep> {
        self.steps
    }

    fn push(&mut self, node: &impl Ranged, effect: Effect) {
        self.push_at(self.lines.line(node), effect);
    }

    fn push_at(&mut self, line: usize, effect: Effect) {
        self.steps.push(EffectStep { line, effect });
    }

    /// Adds a step of a line that is no Python. In a branch it may not be executed.
    pub(super) fn push_of_line(&mut self, mut step: EffectStep) {
        match &mut step.effect {
            Effect::Bind { name, .. } if !self.is_in_function() => {
                self.bound.insert(name.clone());
            }
            Effect::Delete { name, .. } => {
                self.bound.remove(name);
            }
            Effect::Read {
                variable: VariableRef::Global(name),
                need,
                ..
            } if *need == ValueOrigin::Before => *need = self.need(name),
            Effect::Call(call) if call.need == ValueOrigin::Before => {
                if let Some(name) = call.root.clone() {
                    Arc::make_mut(call).need = self.need(&name);
                }
            }
            _ => {}
        }
        if self.branches > 0 {
            step = uncertain(step);
        }
        self.steps.push(step);
    }

    fn unknown(&mut self, node: &impl Ranged, unknown: Unknown) {
        self.push(node, Effect::Unknown(unknown));
    }

    // Names.

    fn scope_of(&self, name: &Name) -> NameScope {
        let mut is_inner = true;
        for (at, scope) in self.scopes.iter().enumerate().rev() {
            if scope.global.contains(name) {
                return NameScope::Global;
            }
            // A class's names are seen by its own statements only, not by functions or comprehensions in it.
            let is_seen = scope.kind != ScopeKind::Class || is_inner;
            if is_seen && scope.names.contains_key(name) {
                return NameScope::Local(at);
            }
            is_inner = false;
        }
        NameScope::Global
    }

    fn is_in_function(&self) -> bool {
        let mut scopes = self.scopes.iter();
        scopes.any(|scope| scope.kind == ScopeKind::Function)
    }

    fn need(&self, name: &Name) -> ValueOrigin {
        match !self.is_in_function() && self.bound.contains(name) {
            true => ValueOrigin::Own,
            false => ValueOrigin::Before,
        }
    }

    fn load(&mut self, node: &impl Ranged, name: &Name) -> Value {
        match self.scope_of(name) {
            NameScope::Local(at) => self.local_value(at, name),
            NameScope::Global => {
                let variable = VariableRef::Global(name.clone());
                let effect = Effect::Read {
                    variable: variable.clone(),
                    need: self.need(name),
                    member: None,
                };
                self.push(node, effect);
                same(variable)
            }
        }
    }

    fn local_value(&self, at: usize, name: &Name) -> Value {
        let scope = self.scopes.get(at);
        let value = scope.and_then(|scope| scope.names.get(name));
        value.cloned().unwrap_or_default()
    }

    fn bind(&mut self, node: &impl Ranged, name: &Name, value: Value) {
        let scope = self
            .scopes
            .iter()
            .rposition(|it| it.kind != ScopeKind::Inner);
        let is_own = scope.filter(|at| {
            self.scopes
                .get(*at)
                .is_some_and(|scope| !scope.global.contains(name))
        });
        let Some(mut at) = is_own else {
            let effect = Effect::Bind {
                name: name.clone(),
                value,
                certain: self.branches == 0,
                by: self.binder,
            };
            self.push(node, effect);
            if !self.is_in_function() {
                self.bound.insert(name.clone());
            }
            return;
        };
        // `nonlocal` binds a name of a function outside.
        let has = |at: usize| {
            self.scopes
                .get(at)
                .is_some_and(|scope| scope.names.contains_key(name))
        };
        let is_function = |at: usize| {
            self.scopes
                .get(at)
                .is_some_and(|scope| scope.kind == ScopeKind::Function)
        };
        if is_function(at) && !has(at) {
            let outer = (0..at).rev().find(|at| is_function(*at) && has(*at));
            at = outer.unwrap_or(at);
        }
        if let Some(scope) = self.scopes.get_mut(at) {
            // Which of several assignments counts is not followed.
            let own = scope.names.entry(name.clone()).or_default();
            own.is_part |= value.is_part;
            own.shares.extend(value.shares);
            own.shares.sort_unstable_by(order);
            own.shares.dedup();
            own.shares.truncate(MOST_SHARES);
            own.functions.extend(value.functions);
            own.functions.truncate(MOST_SHARES);
        }
    }

    /// Says that an object is changed.
    fn change(&mut self, node: &impl Ranged, value: &Value, deep: bool) {
        for (variable, share) in &value.shares {
            let deep = deep || value.is_part || *share != Share::Same;
            let effect = Effect::Change {
                variable: variable.clone(),
                deep,
            };
            self.push(node, effect);
        }
    }

    /// Says whether a scope is one of an outer function.
    fn is_outer(&self, at: usize) -> bool {
        let mut inner = self.scopes.iter().skip(at + 1);
        let is_function = |scope: &Scope| scope.kind == ScopeKind::Function;
        self.scopes.get(at).is_some_and(is_function) && inner.any(is_function)
    }

    // Statements.

    /// Reads code that is run as the body of a function.
    pub(super) fn function_body(&mut self, body: &[Stmt]) {
        let opened = self.open(ScopeKind::Function);
        let bound = LocalBindings::by(body);
        self.own(bound.names);
        self.body(body);
        self.close(opened);
    }

    pub(super) fn body(&mut self, body: &[Stmt]) {
        for statement in body {
            self.statement(statement);
        }
    }

    fn statement(&mut self, statement: &Stmt) {
        match statement {
            Stmt::FunctionDef(it) => self.function_definition(it),
            Stmt::ClassDef(it) => self.class_definition(it),
            Stmt::Return(it) => {
                self.optional(it.value.as_deref());
            }
            Stmt::Delete(it) => it.targets.iter().for_each(|target| self.delete(target)),
            Stmt::TypeAlias(it) => {
                let opened = self.open_type_parameters(it.type_params.as_deref());
                // Its value is read when somebody asks for it.
                self.expression(&it.value);
                self.close(opened);
                if let Expr::Name(name) = &*it.name {
                    self.bind(statement, &name.id, Value::default());
                }
            }
            Stmt::Assign(it) => self.assignment(&it.targets, &it.value),
            Stmt::AugAssign(it) => self.augmented(&it.target, it.op, &it.value),
            Stmt::AnnAssign(it) => {
                self.expression(&it.annotation);
                if let Some(value) = &it.value {
                    self.assignment(std::slice::from_ref(&*it.target), value);
                }
            }
            Stmt::For(it) => self.for_loop(it),
            Stmt::While(it) => {
                self.expression(&it.test);
                self.alternatives(&[&it.body, &[]]);
                self.alternatives(&[&it.orelse, &[]]);
            }
            Stmt::If(it) => {
                self.expression(&it.test);
                let before = self.begin_branches();
                let mut after = Vec::new();
                self.branch(&before, &it.body, &mut after);
                let mut is_exhaustive = false;
                for clause in &it.elif_else_clauses {
                    self.bound.clone_from(&before);
                    self.optional(clause.test.as_ref());
                    is_exhaustive |= clause.test.is_none();
                    let start = self.bound.clone();
                    self.branch(&start, &clause.body, &mut after);
                }
                if !is_exhaustive {
                    after.push(before.clone());
                }
                self.end_branches(statement, before, after);
            }
            Stmt::With(it) => {
                let mut items = it.items.iter();
                let stops = items.position(|item| suppresses(&item.context_expr));
                let certain = stops.map_or(it.items.len(), |at| at + 1);
                let (certain, others) = it.items.split_at(certain);
                self.with_items(certain);
                match stops {
                    Some(_) => {
                        self.perhaps(statement, &it.body, |reader| reader.with_items(others));
                    }
                    None => self.body(&it.body),
                }
            }
            Stmt::Match(it) => {
                let subject = self.expression(&it.subject);
                let before = self.begin_branches();
                let mut after = Vec::new();
                let mut is_exhaustive = false;
                for case in &it.cases {
                    self.bound.clone_from(&before);
                    self.case(case, &subject);
                    is_exhaustive |= case.guard.is_none() && case.pattern.is_irrefutable();
                    if !leaves(&case.body) {
                        after.push(std::mem::take(&mut self.bound));
                    }
                }
                if !is_exhaustive {
                    after.push(before.clone());
                }
                self.end_branches(statement, before, after);
            }
            Stmt::Raise(it) => {
                self.optional(it.exc.as_deref());
                self.optional(it.cause.as_deref());
            }
            Stmt::Try(it) => self.try_statement(it),
            Stmt::Assert(it) => {
                self.expression(&it.test);
                self.optional(it.msg.as_deref());
            }
            Stmt::Import(it) => {
                for alias in &it.names {
                    let module = &alias.name.id;
                    let (name, imported) = match &alias.asname {
                        Some(name) => (name.id.clone(), module.clone()),
                        None => (bound_by_import(module), bound_by_import(module)),
                    };
                    self.bind(alias, &name, Value::of(ValueKind::Imported(imported)));
                }
            }
            Stmt::ImportFrom(it) => {
                let dots = ".".repeat(it.level as usize);
                let module = it.module.as_ref().map_or("", |module| module.as_str());
                for alias in &it.names {
                    if alias.name.as_str() == "*" {
                        let import = format!("from {dots}{module} import *");
                        self.unknown(alias, Unknown::AnyName(import));
                        continue;
                    }
                    let name = alias.asname.as_ref().unwrap_or(&alias.name);
                    let imported = Name::from(format!("{dots}{module}.{}", alias.name));
                    self.bind(alias, &name.id, Value::of(ValueKind::Imported(imported)));
                }
            }
            Stmt::Expr(it) => {
                self.expression(&it.value);
            }
            Stmt::IpyEscapeCommand(it) => {
                let line = self.lines.line(it);
                (self.read_line)(self, it.kind, &it.value, line);
            }
            // A function's are known from its body.
            Stmt::Global(it)
                if self
                    .scopes
                    .last()
                    .is_some_and(|scope| scope.kind == ScopeKind::Class) =>
            {
                if let Some(scope) = self.scopes.last_mut() {
                    scope.global.extend(it.names.iter().map(|it| it.id.clone()));
                }
            }
            Stmt::Global(_)
            | Stmt::Nonlocal(_)
            | Stmt::Pass(_)
            | Stmt::Break(_)
            | Stmt::Continue(_) => {}
        }
    }

    fn with_items(&mut self, items: &[WithItem]) {
        for item in items {
            let value = self.expression(&item.context_expr);
            // A file or a lock is another one afterwards.
            if !matches!(&item.context_expr, Expr::Call(_)) {
                self.change(&item.context_expr, &value, false);
            }
            if let Some(target) = &item.optional_vars {
                self.temporary(|reader| reader.store(target, value));
            }
        }
    }

    /// Reads a block that is perhaps not executed, and what is executed before it.
    fn perhaps(&mut self, node: &impl Ranged, body: &[Stmt], first: impl FnOnce(&mut Self)) {
        let before = self.begin_branches();
        first(self);
        self.body(body);
        let mut after = vec![before.clone()];
        if !leaves(body) {
            after.push(std::mem::take(&mut self.bound));
        }
        self.end_branches(node, before, after);
    }

    /// Reads alternative blocks, of which one is executed; an empty block means that perhaps none is.
    fn alternatives(&mut self, branches: &[&[Stmt]]) {
        let Some(first) = branches.iter().find_map(|branch| branch.first()) else {
            return;
        };
        let before = self.begin_branches();
        let mut after = Vec::new();
        for branch in branches {
            self.branch(&before, branch, &mut after);
        }
        self.end_branches(first, before, after);
    }

    fn begin_branches(&mut self) -> HashSet<Name> {
        self.branches += 1;
        self.bound.clone()
    }

    fn branch(&mut self, start: &HashSet<Name>, body: &[Stmt], after: &mut Vec<HashSet<Name>>) {
        self.bound.clone_from(start);
        self.body(body);
        if !leaves(body) {
            after.push(std::mem::take(&mut self.bound));
        }
    }

    /// Ends branches: what all have bound is bound.
    fn end_branches(
        &mut self,
        node: &impl Ranged,
        before: HashSet<Name>,
        after: Vec<HashSet<Name>>,
    ) {
        self.branches -= 1;
        let mut after = after.into_iter();
        let Some(mut all) = after.next() else {
            self.bound = before;
            return;
        };
        for other in after {
            all.retain(|name| other.contains(name));
        }
        if self.branches == 0 && !self.is_in_function() {
            let mut new: Vec<_> = all.difference(&before).cloned().collect();
            new.sort_unstable();
            for name in new {
                self.push(node, Effect::Settle { name });
            }
        }
        self.bound = all;
    }

    fn temporary(&mut self, read: impl FnOnce(&mut Self)) {
        let before = std::mem::replace(&mut self.binder, Binder::Temporary);
        read(self);
        self.binder = before;
    }

    fn for_loop(&mut self, it: &StmtFor) {
        let iterated = self.expression(&it.iter);
        let mut value = item_of(&it.iter, iterated);
        value
            .functions
            .iter_mut()
            .for_each(|(_, direct)| *direct = FunctionLink::Holds);
        let before = self.bound.clone();
        self.temporary(|reader| reader.store(&it.target, value));
        let has_iteration = has_iteration(&it.iter);
        match has_iteration && !has_jump(&it.body) {
            true => self.body(&it.body),
            false => self.alternatives(&[&it.body, &[]]),
        }
        // In its body it is bound; a loop without an iteration leaves its variable as it was.
        if !has_iteration {
            let mut names = Vec::new();
            targets(&it.target, &mut names);
            names.retain(|name| !before.contains(name));
            for name in names {
                if let NameScope::Global = self.scope_of(&name) {
                    self.bound.remove(&name);
                    self.push(it, Effect::Unsettle { name });
                }
            }
        }
        self.alternatives(&[&it.orelse, &[]]);
    }

    fn try_statement(&mut self, it: &StmtTry) {
        let before = self.begin_branches();
        let mut after = Vec::new();
        self.body(&it.body);
        self.body(&it.orelse);
        if !leaves(&it.body) && !leaves(&it.orelse) {
            after.push(self.bound.clone());
        }
        for ExceptHandler::ExceptHandler(handler) in &it.handlers {
            self.bound.clone_from(&before);
            self.optional(handler.type_.as_deref());
            if let Some(name) = &handler.name {
                self.temporary(|reader| reader.bind(handler, &name.id, Value::default()));
            }
            self.body(&handler.body);
            if let Some(name) = &handler.name
                && let NameScope::Global = self.scope_of(&name.id)
            {
                self.bound.remove(&name.id);
                let effect = Effect::Delete {
                    name: name.id.clone(),
                    need: ValueOrigin::Own,
                    certain: false,
                };
                self.push(handler, effect);
            }
            if !leaves(&handler.body) {
                after.push(std::mem::take(&mut self.bound));
            }
        }
        self.end_branches(it, before, after);
        self.body(&it.finalbody);
    }

    fn case(&mut self, case: &MatchCase, subject: &Value) {
        self.pattern(&case.pattern, subject);
        self.optional(case.guard.as_deref());
        self.body(&case.body);
    }

    fn pattern(&mut self, pattern: &Pattern, subject: &Value) {
        let names: Vec<_> = captured(pattern).cloned().collect();
        for name in names {
            self.temporary(|reader| reader.bind(pattern, &name, part_of(subject.clone())));
        }
        match pattern {
            Pattern::MatchValue(it) => {
                self.expression(&it.value);
            }
            Pattern::MatchSequence(it) => self.patterns(&it.patterns, subject),
            Pattern::MatchMapping(it) => {
                for key in &it.keys {
                    self.expression(key);
                }
                self.patterns(&it.patterns, subject);
            }
            Pattern::MatchClass(it) => {
                self.expression(&it.cls);
                self.patterns(&it.arguments.patterns, subject);
                for keyword in &it.arguments.keywords {
                    self.pattern(&keyword.pattern, subject);
                }
            }
            Pattern::MatchAs(it) => {
                if let Some(pattern) = &it.pattern {
                    self.pattern(pattern, subject);
                }
            }
            Pattern::MatchOr(it) => self.patterns(&it.patterns, subject),
            Pattern::MatchSingleton(_) | Pattern::MatchStar(_) => {}
        }
    }

    fn patterns(&mut self, patterns: &[Pattern], subject: &Value) {
        for pattern in patterns {
            self.pattern(pattern, subject);
        }
    }

    fn assignment(&mut self, targets: &[Expr], value: &Expr) {
        // `a, b = b, a`: each has its own value.
        if let ([Expr::Tuple(to)], Expr::Tuple(from)) = (targets, value)
            && to.elts.len() == from.elts.len()
            && !to.elts.iter().chain(&from.elts).any(Expr::is_starred_expr)
        {
            let values: Vec<_> = from.elts.iter().map(|it| self.expression(it)).collect();
            for (target, value) in to.elts.iter().zip(values) {
                self.store(target, value);
            }
            return;
        }
        let value = self.expression(value);
        for target in targets {
            self.store(target, value.clone());
        }
        // Both names have it from now on.
        for pair in targets.windows(2) {
            if let [Expr::Name(first), Expr::Name(second)] = pair
                && let (NameScope::Global, NameScope::Global) =
                    (self.scope_of(&first.id), self.scope_of(&second.id))
            {
                let effect = Effect::Hold {
                    variable: VariableRef::Global(first.id.clone()),
                    value: same(VariableRef::Global(second.id.clone())),
                };
                self.push(second, effect);
            }
        }
    }

    fn store(&mut self, target: &Expr, value: Value) {
        match target {
            Expr::Name(name) => self.bind(target, &name.id, value),
            Expr::Tuple(it) => self.store_all(&it.elts, &value),
            Expr::List(it) => self.store_all(&it.elts, &value),
            Expr::Starred(it) => self.store(&it.value, weaker(value, Share::Elements)),
            Expr::Attribute(it) => {
                let holder = self.expression(&it.value);
                self.store_in(target, &it.value, &holder, value);
            }
            Expr::Subscript(it) => {
                let holder = self.expression(&it.value);
                self.expression(&it.slice);
                self.store_in(target, &it.value, &holder, value);
            }
            other => {
                self.expression(other);
            }
        }
    }

    fn store_all(&mut self, targets: &[Expr], value: &Value) {
        for target in targets {
            self.store(target, part_of(value.clone()));
        }
    }

    /// Records that an object stores another one.
    fn store_in(&mut self, node: &Expr, of: &Expr, holder: &Value, mut value: Value) {
        if let Some(name) = root(of)
            && let NameScope::Local(at) = self.scope_of(name)
        {
            self.keeps_state |= self.is_outer(at);
        }
        self.change(node, holder, !of.is_name_expr());
        value.kind = ValueKind::Unknown;
        value.result_of = None;
        let has_more = !value.shares.is_empty() || !value.functions.is_empty();
        let holders = holder.shares.iter();
        let holders = holders.filter(|(_, share)| has_more && *share == Share::Same);
        for (variable, _) in holders {
            let effect = Effect::Hold {
                variable: variable.clone(),
                value: value.clone().taken_in(),
            };
            self.push(node, effect);
        }
    }

    fn augmented(&mut self, target: &Expr, operator: Operator, value: &Expr) {
        match target {
            Expr::Name(name) => {
                let before = self.load(target, &name.id);
                let value = self.expression(value);
                match self.scope_of(&name.id) {
                    NameScope::Global => {
                        let effect = Effect::Update {
                            variable: VariableRef::Global(name.id.clone()),
                            value: weaker(value, Share::Elements),
                        };
                        self.push(target, effect);
                        // Within a function it is declared as global.
                        if !self.is_in_function() {
                            self.bound.insert(name.id.clone());
                        }
                    }
                    NameScope::Local(_) => {
                        // Numbers are only bound anew; what adds up a list changes it.
                        let is_list = matches!(
                            operator,
                            Operator::Add | Operator::BitOr | Operator::Mult | Operator::BitAnd
                        );
                        if is_list || value.kind != ValueKind::Scalar {
                            let updates =
                                before.shares.iter().map(|(variable, _)| Effect::Update {
                                    variable: variable.clone(),
                                    value: weaker(value.clone(), Share::Elements),
                                });
                            let updates: Vec<_> = updates.collect();
                            for effect in updates {
                                self.push(target, effect);
                            }
                        }
                    }
                }
            }
            Expr::Attribute(_) | Expr::Subscript(_) => {
                self.expression(target);
                let value = self.expression(value);
                self.store(target, weaker(value, Share::Elements));
            }
            other => {
                self.expression(other);
                self.expression(value);
            }
        }
    }

    fn delete(&mut self, target: &Expr) {
        match target {
            Expr::Name(name) => match self.scope_of(&name.id) {
                NameScope::Global => {
                    let effect = Effect::Delete {
                        name: name.id.clone(),
                        need: self.need(&name.id),
                        certain: self.branches == 0,
                    };
                    self.bound.remove(&name.id);
                    self.push(target, effect);
                }
                NameScope::Local(_) => {}
            },
            Expr::Tuple(it) => it.elts.iter().for_each(|it| self.delete(it)),
            Expr::List(it) => it.elts.iter().for_each(|it| self.delete(it)),
            Expr::Attribute(it) => {
                let holder = self.expression(&it.value);
                self.change(target, &holder, !it.value.is_name_expr());
            }
            Expr::Subscript(it) => {
                let holder = self.expression(&it.value);
                self.expression(&it.slice);
                self.change(target, &holder, !it.value.is_name_expr());
            }
            _ => {}
        }
    }

    // Functions and classes.

    fn open(&mut self, kind: ScopeKind) -> usize {
        self.scopes.push(Scope {
            kind,
            names: HashMap::new(),
            global: HashSet::new(),
        });
        self.scopes.len()
    }

    fn close(&mut self, opened: usize) {
        self.scopes.truncate(opened - 1);
    }

    fn own(&mut self, names: impl IntoIterator<Item = Name>) {
        if let Some(scope) = self.scopes.last_mut() {
            for name in names {
                scope.names.entry(name).or_default();
            }
        }
    }

    fn open_type_parameters(&mut self, parameters: Option<&TypeParams>) -> usize {
        let opened = self.open(ScopeKind::Inner);
        for parameter in parameters.into_iter().flatten() {
            self.own([parameter.name().id.clone()]);
            let (bound, default) = match parameter {
                TypeParam::TypeVar(it) => (it.bound.as_deref(), it.default.as_deref()),
                TypeParam::TypeVarTuple(it) => (None, it.default.as_deref()),
                TypeParam::ParamSpec(it) => (None, it.default.as_deref()),
            };
            self.optional(bound);
            self.optional(default);
        }
        opened
    }

    fn function_definition(&mut self, it: &StmtFunctionDef) {
        let (mut carried, decorators) = self.decorators(&it.decorator_list);
        let names = || {
            it.decorator_list
                .iter()
                .filter_map(|it| last_name(&it.expression))
        };
        let mut methods = names().filter_map(|name| match name {
            "staticmethod" => Some(MethodKind::Static),
            "classmethod" => Some(MethodKind::Class),
            "property" | "cached_property" => Some(MethodKind::Property),
            _ => None,
        });
        let method = methods.next().unwrap_or_default();
        self.defaults(&it.parameters);
        let opened = self.open_type_parameters(it.type_params.as_deref());
        let annotated = it.parameters.iter().filter_map(|it| it.annotation());
        for annotation in annotated.chain(it.returns.as_deref()) {
            self.expression(annotation);
        }
        let bound = LocalBindings::by(&it.body);
        let yields = bound.yields;
        let function = self.function(Some(&*it.parameters), bound, |reader| {
            reader.body(&it.body);
            returned(&it.body, reader)
        });
        self.close(opened);
        let function = Arc::new(Function {
            name: it.name.id.clone(),
            method,
            is_generator: yields,
            is_cached: method == MethodKind::Plain && names().any(caches),
            ..function
        });
        let is_plain = matches!(method, MethodKind::Static | MethodKind::Class);
        let direct = match it.decorator_list.is_empty() || is_plain {
            true => FunctionLink::Is,
            false => FunctionLink::Holds,
        };
        carried.functions.push((function, direct));
        self.bind(it, &it.name.id, carried.clone());
        self.decorate(it, &it.name.id, &carried, decorators);
    }

    /// Reads decorators: what the decorated object may have in common with others, and the calls of the decorators.
    fn decorators(&mut self, decorators: &[Decorator]) -> (Value, Vec<Call>) {
        let mut carried = Value::default();
        let mut calls = Vec::new();
        for decorator in decorators {
            let decorator = &decorator.expression;
            let value = self.expression(decorator);
            let mut call = Call::default();
            match decorator {
                // What this call returns is called: it is not known.
                Expr::Call(_) => {}
                _ if root(decorator).is_some() => self.callee(decorator, &mut call),
                _ => call.receiver = value.clone(),
            }
            carried.shares.extend(weaker(value, Share::Perhaps).shares);
            if !last_name(decorator).is_some_and(only_wraps) {
                calls.push(call);
            }
        }
        (carried, calls)
    }

    /// Calls decorators with the object of a name, the last one first.
    fn decorate(&mut self, node: &impl Ranged, name: &Name, object: &Value, calls: Vec<Call>) {
        let value = match self.scope_of(name) {
            NameScope::Global => same(VariableRef::Global(name.clone())),
            NameScope::Local(_) => object.clone(),
        };
        for mut call in calls.into_iter().rev() {
            if call.root.as_ref() == Some(name) {
                // The name had another object then.
                call = Call::default();
            }
            call.arguments.push(Argument {
                keyword: None,
                is_starred: false,
                value: value.clone(),
                is_true: false,
            });
            call.certain = self.branches == 0;
            self.push(node, Effect::Call(Arc::new(call)));
        }
    }

    fn defaults(&mut self, parameters: &Parameters) {
        let parameters = parameters.iter_non_variadic_params();
        for default in parameters.filter_map(|parameter| parameter.default()) {
            self.expression(default);
        }
    }

    /// Reads the body of a function into its own steps.
    fn function(
        &mut self,
        parameters: Option<&Parameters>,
        bound: LocalBindings,
        read: impl FnOnce(&mut Self) -> Vec<(VariableRef, Share)>,
    ) -> Function {
        let outer = std::mem::take(&mut self.steps);
        let was_bound = std::mem::take(&mut self.bound);
        let had_state = std::mem::replace(&mut self.keeps_state, !bound.nonlocal.is_empty());
        let branches = std::mem::replace(&mut self.branches, 0);
        let is_nested = self.is_in_function();
        let opened = self.open(ScopeKind::Function);
        self.own(bound.names);
        if let Some(scope) = self.scopes.last_mut() {
            scope.global = bound.global;
        }
        let all = parameters.map(all_parameters).unwrap_or_default();
        if let Some(scope) = self.scopes.last_mut() {
            for (place, parameter) in all.iter().enumerate() {
                // A function within a function may get anything: its parameters lead nowhere.
                let value = match is_nested {
                    true => Value::default(),
                    false => same(VariableRef::Parameter(place)),
                };
                scope.names.insert(parameter.name.clone(), value);
            }
        }
        let returns = read(self);
        self.close(opened);
        self.bound = was_bound;
        self.branches = branches;
        let steps = std::mem::replace(&mut self.steps, outer);
        let keeps_state = std::mem::replace(&mut self.keeps_state, had_state);
        self.keeps_state |= is_nested && keeps_state;
        if is_nested {
            // Whoever calls the outer function may have this one called.
            self.steps.extend(steps.iter().cloned().map(uncertain));
        }
        Function {
            name: Name::empty(),
            keeps_state,
            steps,
            parameters: all,
            method: MethodKind::Plain,
            is_generator: false,
            is_cached: false,
            returns,
        }
    }

    fn class_definition(&mut self, it: &StmtClassDef) {
        let (mut value, decorators) = self.decorators(&it.decorator_list);
        value.kind = ValueKind::Class;
        let opened = self.open_type_parameters(it.type_params.as_deref());
        if let Some(arguments) = &it.arguments {
            for base in arguments.args.iter() {
                // A class has its bases' methods.
                let base = self.expression(base);
                value.shares.extend(weaker(base, Share::Perhaps).shares);
            }
            for keyword in &arguments.keywords {
                self.expression(&keyword.value);
            }
        }
        self.open(ScopeKind::Class);
        self.body(&it.body);
        let own = self.scopes.pop().map(|scope| scope.names);
        for (_, member) in own.into_iter().flatten() {
            let functions = member.functions.into_iter();
            value
                .functions
                .extend(functions.map(|(function, _)| (function, FunctionLink::Holds)));
            value
                .shares
                .extend(weaker_all(member.shares, Share::Elements));
        }
        value
            .functions
            .sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        self.close(opened);
        self.bind(it, &it.name.id, value.clone());
        self.decorate(it, &it.name.id, &value, decorators);
    }

    // Expressions.

    fn optional(&mut self, expression: Option<&Expr>) {
        if let Some(expression) = expression {
            self.expression(expression);
        }
    }

    pub(super) fn expression(&mut self, expression: &Expr) -> Value {
        match expression {
            Expr::Name(it) => self.load(expression, &it.id),
            Expr::StringLiteral(_)
            | Expr::BytesLiteral(_)
            | Expr::NumberLiteral(_)
            | Expr::BooleanLiteral(_)
            | Expr::NoneLiteral(_)
            | Expr::EllipsisLiteral(_) => Value::of(ValueKind::Scalar),
            Expr::FString(it) => {
                for part in it.value.as_slice() {
                    if let FStringPart::FString(it) = part {
                        self.interpolated(&it.elements);
                    }
                }
                Value::of(ValueKind::Scalar)
            }
            Expr::TString(it) => {
                for part in it.value.as_slice() {
                    self.interpolated(&part.elements);
                }
                Value::default()
            }
            Expr::BoolOp(it) => {
                let mut value = Value::default();
                for (at, part) in it.values.iter().enumerate() {
                    let part = self.maybe(at > 0, part);
                    value.shares.extend(part.shares);
                    value.functions.extend(part.functions);
                }
                weaker(value, Share::Perhaps)
            }
            Expr::Named(it) => {
                let value = self.expression(&it.value);
                self.store(&it.target, value.clone());
                value
            }
            Expr::BinOp(it) => {
                let left = self.expression(&it.left);
                let right = self.expression(&it.right);
                combined(left, right)
            }
            Expr::UnaryOp(it) => {
                let value = self.expression(&it.operand);
                match it.op {
                    UnaryOp::Not => Value::of(ValueKind::Scalar),
                    _ => combined(value, Value::of(ValueKind::Scalar)),
                }
            }
            Expr::Compare(it) => {
                self.expression(&it.left);
                for (at, other) in it.comparators.iter().enumerate() {
                    self.maybe(at > 0, other);
                }
                Value::default()
            }
            Expr::Lambda(it) => {
                if let Some(parameters) = &it.parameters {
                    self.defaults(parameters);
                }
                let bound = LocalBindings::by_expression(&it.body);
                let yields = bound.yields;
                let function = self.function(it.parameters.as_deref(), bound, |reader| {
                    reader.expression(&it.body).shares
                });
                let function = Function {
                    is_generator: yields,
                    ..function
                };
                Value {
                    functions: vec![(Arc::new(function), FunctionLink::Is)],
                    ..Value::default()
                }
            }
            Expr::If(it) => {
                self.expression(&it.test);
                let mut value = self.maybe(true, &it.body);
                let other = self.maybe(true, &it.orelse);
                value.is_part |= other.is_part;
                value.shares.extend(other.shares);
                value.functions.extend(other.functions);
                value.result_of = None;
                if value.kind != other.kind {
                    value.kind = ValueKind::Unknown;
                }
                weaker(value, Share::Perhaps)
            }
            Expr::Tuple(it) => self.display(&it.elts),
            Expr::List(it) => self.display(&it.elts),
            Expr::Set(it) => self.display(&it.elts),
            Expr::Dict(it) => {
                let mut value = Value::of(ValueKind::Container);
                for item in &it.items {
                    self.optional(item.key.as_ref());
                    let part = self.expression(&item.value);
                    add_part(&mut value, part);
                }
                value
            }
            Expr::ListComp(it) => self.comprehension(&[&it.elt], &it.generators),
            Expr::SetComp(it) => self.comprehension(&[&it.elt], &it.generators),
            Expr::DictComp(it) => {
                let key = it.key.as_deref();
                let parts: Vec<&Expr> = key.into_iter().chain([&*it.value]).collect();
                self.comprehension(&parts, &it.generators)
            }
            Expr::Generator(it) => {
                // Whoever reads it reads what it names, now or later.
                let begin = self.steps.len();
                let mut value = self.comprehension(&[&it.elt], &it.generators);
                let steps = self.steps.get(begin..).unwrap_or_default().to_vec();
                let function = Function {
                    steps,
                    ..Function::default()
                };
                value.kind = ValueKind::Iterator;
                value
                    .functions
                    .push((Arc::new(function), FunctionLink::Holds));
                value
            }
            Expr::Await(it) => self.expression(&it.value),
            Expr::Yield(it) => {
                self.optional(it.value.as_deref());
                Value::default()
            }
            Expr::YieldFrom(it) => {
                self.expression(&it.value);
                Value::default()
            }
            Expr::Call(it) => self.call(it),
            Expr::Attribute(it) => part_of(self.member(&it.value, &it.attr.id)),
            Expr::Subscript(it) => {
                let value = self.member(&it.value, &Name::new_static("__getitem__"));
                self.expression(&it.slice);
                match is_constant(&it.slice) {
                    true => part_of(value),
                    false => weaker(part_of(value), Share::Perhaps),
                }
            }
            Expr::Starred(it) => self.expression(&it.value),
            Expr::Slice(it) => {
                self.optional(it.lower.as_deref());
                self.optional(it.upper.as_deref());
                self.optional(it.step.as_deref());
                Value::default()
            }
            Expr::IpyEscapeCommand(it) => {
                let line = self.lines.line(it);
                (self.read_line)(self, it.kind, &it.value, line);
                Value::default()
            }
        }
    }

    /// Reads an object of which only a member is used.
    fn member(&mut self, object: &Expr, name: &Name) -> Value {
        let value = self.expression(object);
        if let (Expr::Name(_), Some(step)) = (object, self.steps.last_mut())
            && let Effect::Read {
                variable, member, ..
            } = &mut step.effect
            && matches!(&*value.shares, [(it, Share::Same)] if it == variable)
        {
            *member = Some(name.clone());
        }
        value
    }

    /// Reads an expression that may not be evaluated.
    fn maybe(&mut self, is_branch: bool, expression: &Expr) -> Value {
        if !is_branch {
            return self.expression(expression);
        }
        let before = self.begin_branches();
        let value = self.expression(expression);
        self.end_branches(expression, before.clone(), vec![before]);
        value
    }

    fn interpolated(&mut self, elements: &InterpolatedStringElements) {
        for element in elements.iter() {
            if let InterpolatedStringElement::Interpolation(it) = element {
                self.expression(&it.expression);
                if let Some(format) = &it.format_spec {
                    self.interpolated(&format.elements);
                }
            }
        }
    }

    fn display(&mut self, elements: &[Expr]) -> Value {
        let mut value = Value::of(ValueKind::Container);
        for element in elements {
            let part = self.expression(element);
            add_part(&mut value, part);
        }
        value
    }

    fn comprehension(&mut self, parts: &[&Expr], generators: &[Comprehension]) -> Value {
        let mut generators = generators.iter();
        // The first is evaluated outside.
        let first = generators.next();
        let iterated = first.map(|it| (it, self.expression(&it.iter)));
        let opened = self.open(ScopeKind::Inner);
        let before = self.begin_branches();
        if let Some((first, iterated)) = iterated {
            self.generator(first, &item_of(&first.iter, iterated));
        }
        for generator in generators {
            let iterated = self.expression(&generator.iter);
            self.generator(generator, &item_of(&generator.iter, iterated));
        }
        let mut value = Value::of(ValueKind::Container);
        for part in parts {
            let part = self.expression(part);
            add_part(&mut value, part);
        }
        self.close(opened);
        let after = vec![before.clone()];
        if let Some(part) = parts.first() {
            self.end_branches(*part, before, after);
        }
        value
    }

    fn generator(&mut self, generator: &Comprehension, item: &Value) {
        let mut names = Vec::new();
        targets(&generator.target, &mut names);
        if let Some(scope) = self.scopes.last_mut() {
            for name in names {
                scope.names.insert(name, item.clone());
            }
        }
        for condition in &generator.ifs {
            self.expression(condition);
        }
    }

    fn call(&mut self, it: &ExprCall) -> Value {
        let mut call = Call::default();
        self.callee(&it.func, &mut call);
        for argument in it.arguments.args.iter() {
            let value = self.expression(argument);
            call.arguments.push(Argument {
                keyword: None,
                is_starred: argument.is_starred_expr(),
                value,
                is_true: false,
            });
        }
        for keyword in &it.arguments.keywords {
            let value = self.expression(&keyword.value);
            call.arguments.push(Argument {
                keyword: keyword.arg.as_ref().map(|name| name.id.clone()),
                is_starred: keyword.arg.is_none(),
                value,
                is_true: matches!(&keyword.value, Expr::BooleanLiteral(it) if it.value),
            });
        }
        if let Some(method @ ("eval" | "query")) = call.path.last().map(Name::as_str) {
            self.query(it, method, call.path.len() == 1);
        }
        let mut value = Value::default();
        for argument in &call.arguments {
            add_perhaps(&mut value, argument.value.clone());
        }
        match &call.root {
            Some(root) => add_perhaps(&mut value, same(VariableRef::Global(root.clone()))),
            None => add_perhaps(&mut value, call.receiver.clone()),
        }
        call.certain = self.branches == 0;
        let call = Arc::new(call);
        self.push(it, Effect::Call(call.clone()));
        value.result_of = Some(call);
        value
    }

    /// Reads the text of a pandas query: `@name` in it is a variable, and each name may be one in that of `pd.eval`.
    fn query(&mut self, it: &ExprCall, method: &str, is_of_name: bool) {
        let Some(text) = it.arguments.find_argument_value("expr", 0) else {
            return;
        };
        let texts: Vec<&str> = match text {
            Expr::StringLiteral(text) => vec![text.value.to_str()],
            Expr::FString(text) => {
                let parts = text.value.iter().flat_map(|part| match part {
                    FStringPart::Literal(part) => vec![&*part.value],
                    FStringPart::FString(part) => {
                        let literals = part.elements.literals();
                        literals.map(|part| &*part.value).collect()
                    }
                });
                parts.collect()
            }
            _ => {
                let what = format!("{method}() of a text that the cell does not show");
                return self.unknown(it, Unknown::Outside(what));
            }
        };
        for text in texts {
            for (start, name) in words(text) {
                let is_variable = text[..start].ends_with('@');
                let name = Name::new(name);
                if (is_variable || (method == "eval" && is_of_name))
                    && let NameScope::Global = self.scope_of(&name)
                {
                    // It may be a column.
                    let effect = Effect::Read {
                        variable: VariableRef::Global(name),
                        need: ValueOrigin::Perhaps,
                        member: None,
                    };
                    self.push(it, effect);
                }
            }
        }
    }

    /// Reads what is called, `a.b.c` or another expression, without reading the name itself: the call does.
    fn callee(&mut self, function: &Expr, call: &mut Call) {
        match function {
            Expr::Name(it) => match self.scope_of(&it.id) {
                NameScope::Global => {
                    call.need = self.need(&it.id);
                    call.root = Some(it.id.clone());
                }
                NameScope::Local(at) => {
                    call.receiver = self.local_value(at, &it.id);
                    self.keeps_state |= self.is_outer(at);
                }
            },
            Expr::Attribute(it) => {
                self.callee(&it.value, call);
                call.is_deep |= !it.value.is_name_expr();
                call.is_item = false;
                call.path.push(it.attr.id.clone());
            }
            Expr::Subscript(it) => {
                self.callee(&it.value, call);
                self.expression(&it.slice);
                call.is_deep = true;
                call.is_item = true;
            }
            other => call.receiver = self.expression(other),
        }
        call.is_deep |= call.receiver.is_part;
    }
}

/// Returns a step that is perhaps not executed.
fn uncertain(mut step: EffectStep) -> EffectStep {
    match &mut step.effect {
        Effect::Bind { certain, .. } | Effect::Delete { certain, .. } => *certain = false,
        Effect::Call(call) if call.certain => Arc::make_mut(call).certain = false,
        _ => {}
    }
    step
}

/// Returns the words of a text that may be names, with their places.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_part = |letter: char| letter == '_' || letter.is_alphanumeric();
    let words = text.split(move |letter| !is_part(letter));
    let words = words.map(|word| (word.as_ptr().addr() - text.as_ptr().addr(), word));
    words.filter(|(_, word)| word.starts_with(|first: char| first == '_' || first.is_alphabetic()))
}

/// Returns the last name of what is called, or would be: `b` for `a.b(c)`.
fn last_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Call(it) => last_name(&it.func),
        Expr::Name(it) => Some(&it.id),
        Expr::Attribute(it) => Some(&it.attr),
        _ => None,
    }
}

fn add_perhaps(value: &mut Value, part: Value) {
    let part = weaker(part, Share::Perhaps);
    value.is_part |= part.is_part;
    value.shares.extend(part.shares);
    value.shares.truncate(MOST_SHARES);
    value.functions.extend(part.functions);
    value.functions.truncate(MOST_SHARES);
}

fn same(variable: VariableRef) -> Value {
    Value {
        shares: vec![(variable, Share::Same)],
        ..Value::default()
    }
}

fn order(one: &(VariableRef, Share), other: &(VariableRef, Share)) -> std::cmp::Ordering {
    let key = |it: &(VariableRef, Share)| match &it.0 {
        VariableRef::Global(name) => (name.clone(), 0, it.1),
        VariableRef::Parameter(place) => (Name::empty(), *place, it.1),
    };
    key(one).cmp(&key(other))
}

fn weaker_all(
    shares: Vec<(VariableRef, Share)>,
    at_most: Share,
) -> impl Iterator<Item = (VariableRef, Share)> {
    shares
        .into_iter()
        .map(move |(variable, share)| (variable, share.max(at_most)))
}

/// Returns a value that has no more in common with others than this.
fn weaker(mut value: Value, at_most: Share) -> Value {
    value.shares = weaker_all(value.shares, at_most).collect();
    value
        .functions
        .iter_mut()
        .for_each(|(_, direct)| *direct = FunctionLink::Holds);
    value.result_of = None;
    value
}

/// Returns an item or an attribute of a value.
fn part_of(mut value: Value) -> Value {
    value.kind = ValueKind::Unknown;
    value.is_part = true;
    value
        .functions
        .iter_mut()
        .for_each(|(_, direct)| *direct = FunctionLink::Holds);
    // An item of a list that holds `x` may be `x`.
    for (_, share) in &mut value.shares {
        if matches!(share, Share::Holds | Share::PerhapsHolds | Share::Elements) {
            *share = Share::Perhaps;
        }
    }
    value.result_of = None;
    value
}

fn add_part(value: &mut Value, part: Value) {
    let part = part.taken_in();
    value.shares.extend(part.shares);
    value.shares.truncate(MOST_SHARES);
    value.functions.extend(part.functions);
    value.functions.truncate(MOST_SHARES);
}

/// Returns the result of an operator: a new object, which may hold what the operands hold.
fn combined(left: Value, right: Value) -> Value {
    let mut needed = Vec::new();
    let mut is_scalar = true;
    for side in [&left, &right] {
        match &side.kind {
            ValueKind::Scalar => {}
            ValueKind::ScalarIf(variables) => needed.extend(variables.iter().cloned()),
            ValueKind::Unknown if !side.shares.is_empty() && side.result_of.is_none() => {
                needed.extend(side.shares.iter().map(|(variable, _)| variable.clone()));
            }
            _ => is_scalar = false,
        }
    }
    let mut value = weaker(left, Share::Elements);
    value.is_part = false;
    value.shares.extend(weaker(right, Share::Elements).shares);
    value.functions = Vec::new();
    value.kind = match (is_scalar, needed.is_empty()) {
        (false, _) => ValueKind::Unknown,
        (true, true) => ValueKind::Scalar,
        (true, false) => ValueKind::ScalarIf(needed),
    };
    value
}

/// Returns what a loop gets from an iterable.
fn item_of(iterable: &Expr, value: Value) -> Value {
    let called = match iterable {
        Expr::Call(call) => call.func.as_name_expr().map(|name| name.id.as_str()),
        _ => None,
    };
    match called {
        Some("range" | "len") => Value::of(ValueKind::Scalar),
        _ => part_of(value),
    }
}

/// Returns the name that an expression of attributes and items begins with.
fn root(expression: &Expr) -> Option<&Name> {
    match expression {
        Expr::Name(it) => Some(&it.id),
        Expr::Attribute(it) => root(&it.value),
        Expr::Subscript(it) => root(&it.value),
        _ => None,
    }
}

fn is_constant(index: &Expr) -> bool {
    match index {
        Expr::UnaryOp(it) => it.operand.is_number_literal_expr(),
        other => other.is_number_literal_expr() || other.is_string_literal_expr(),
    }
}

/// Says whether a loop over this has at least one iteration.
fn has_iteration(iterable: &Expr) -> bool {
    match iterable {
        Expr::List(it) => !it.elts.is_empty() && !it.elts.iter().all(Expr::is_starred_expr),
        Expr::Tuple(it) => !it.elts.is_empty() && !it.elts.iter().all(Expr::is_starred_expr),
        Expr::StringLiteral(it) => !it.value.is_empty(),
        Expr::Call(it) => {
            let is_range = it
                .func
                .as_name_expr()
                .is_some_and(|name| name.id == "range");
            let number = match &*it.arguments.args {
                [Expr::NumberLiteral(it)] => it.value.as_int(),
                _ => None,
            };
            let number = number.and_then(|number| number.as_u64());
            is_range && number.is_some_and(|number| number > 0)
        }
        _ => false,
    }
}

/// Says whether a block is left before its end.
fn leaves(body: &[Stmt]) -> bool {
    let last = body.last();
    last.is_some_and(|last| {
        matches!(
            last,
            Stmt::Raise(_) | Stmt::Return(_) | Stmt::Break(_) | Stmt::Continue(_)
        )
    })
}

/// Says whether a loop's body may be left in its middle.
fn has_jump(body: &[Stmt]) -> bool {
    body.iter().any(|statement| match statement {
        Stmt::Break(_) | Stmt::Continue(_) | Stmt::Return(_) | Stmt::Raise(_) => true,
        Stmt::If(it) => {
            has_jump(&it.body) || it.elif_else_clauses.iter().any(|it| has_jump(&it.body))
        }
        Stmt::With(it) => has_jump(&it.body),
        Stmt::For(it) => has_jump(&it.body) || has_jump(&it.orelse),
        Stmt::While(it) => has_jump(&it.body) || has_jump(&it.orelse),
        Stmt::Match(it) => it.cases.iter().any(|it| has_jump(&it.body)),
        Stmt::Try(_) => true,
        _ => false,
    })
}

fn suppresses(context: &Expr) -> bool {
    let called = context.as_call_expr().map(|call| &*call.func);
    match called {
        Some(Expr::Name(name)) => name.id == "suppress" || name.id == "raises",
        Some(Expr::Attribute(it)) => it.attr.as_str() == "suppress" || it.attr.as_str() == "raises",
        _ => false,
    }
}

fn targets(target: &Expr, names: &mut Vec<Name>) {
    match target {
        Expr::Name(name) => names.push(name.id.clone()),
        Expr::Tuple(it) => it.elts.iter().for_each(|it| targets(it, names)),
        Expr::List(it) => it.elts.iter().for_each(|it| targets(it, names)),
        Expr::Starred(it) => targets(&it.value, names),
        _ => {}
    }
}

/// Returns what a function's `return` statements give, of those that are not in functions of its own. The names
/// are looked up once more, without steps.
fn returned(body: &[Stmt], reader: &mut Reader) -> Vec<(VariableRef, Share)> {
    let mut all = Vec::new();
    let before = reader.steps.len();
    for_returns(body, &mut |value| {
        let value = reader.expression(value);
        all.extend(value.shares);
    });
    reader.steps.truncate(before);
    all.sort_unstable_by(order);
    all.dedup();
    all.truncate(MOST_SHARES);
    all
}

fn for_returns(body: &[Stmt], visit: &mut impl FnMut(&Expr)) {
    for statement in body {
        match statement {
            Stmt::Return(it) => {
                if let Some(value) = &it.value {
                    visit(value);
                }
            }
            Stmt::If(it) => {
                for_returns(&it.body, visit);
                it.elif_else_clauses
                    .iter()
                    .for_each(|it| for_returns(&it.body, visit));
            }
            Stmt::For(it) => {
                for_returns(&it.body, visit);
                for_returns(&it.orelse, visit);
            }
            Stmt::While(it) => {
                for_returns(&it.body, visit);
                for_returns(&it.orelse, visit);
            }
            Stmt::With(it) => for_returns(&it.body, visit),
            Stmt::Match(it) => it.cases.iter().for_each(|it| for_returns(&it.body, visit)),
            Stmt::Try(it) => {
                for_returns(&it.body, visit);
                for ExceptHandler::ExceptHandler(handler) in &it.handlers {
                    for_returns(&handler.body, visit);
                }
                for_returns(&it.orelse, visit);
                for_returns(&it.finalbody, visit);
            }
            _ => {}
        }
    }
}

fn all_parameters(parameters: &Parameters) -> Vec<Parameter> {
    let parameter = |name: &Name, kind, keeps_default| Parameter {
        name: name.clone(),
        kind,
        keeps_default,
    };
    let keeps_default = |default: Option<&Expr>| {
        default.is_some_and(|default| !default.is_literal_expr() && !default.is_tuple_expr())
    };
    let by_place = parameters.posonlyargs.iter().chain(&parameters.args);
    let by_place = by_place.map(|it| {
        parameter(
            &it.parameter.name.id,
            ParameterKind::Positional,
            keeps_default(it.default()),
        )
    });
    let rest = parameters
        .vararg
        .iter()
        .map(|it| parameter(&it.name.id, ParameterKind::VarPositional, false));
    let by_name = parameters.kwonlyargs.iter();
    let by_name = by_name.map(|it| {
        parameter(
            &it.parameter.name.id,
            ParameterKind::Keyword,
            keeps_default(it.default()),
        )
    });
    let others = parameters.kwarg.iter();
    let others = others.map(|it| parameter(&it.name.id, ParameterKind::VarKeyword, false));
    by_place.chain(rest).chain(by_name).chain(others).collect()
}
