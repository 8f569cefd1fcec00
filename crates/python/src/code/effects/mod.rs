//! The effects of a cell's code on the names of its kernel, in order.
//!
//! The steps are those of one text alone. Their meaning depends on the cells before it: `f(x)` changes `x` if `f`
//! does, which another cell defines. [`crate::graph`] combines the cells.

mod locals;
mod magics;
mod reader;
pub mod tables;

use std::sync::Arc;

pub use ruff_python_ast::name::Name;

pub use super::parse::SyntaxProblem;

/// The effects of a cell's code.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// The effects, in the order of the text.
    pub steps: Vec<EffectStep>,
    /// Why the code could not be read, or not all of it.
    pub problem: Option<SyntaxProblem>,
}

/// One effect of code, with its line.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectStep {
    /// The line of the cell, from 1.
    pub line: usize,
    /// The effect.
    pub effect: Effect,
}

/// An effect of code on a name or an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// It reads a variable.
    Read {
        /// The variable.
        variable: VariableRef,
        /// The origin of its value.
        need: ValueOrigin,
        /// The only member of it that is read: an attribute, or `__getitem__` for an item.
        member: Option<Name>,
    },
    /// It gives a name a value.
    Bind {
        /// The name.
        name: Name,
        /// The value, as far as the text shows it.
        value: Value,
        /// Whether this happens each time, and not only in one branch or if a loop has an iteration.
        certain: bool,
        /// The kind of statement that binds it.
        by: Binder,
    },
    /// All branches have bound the name.
    Settle {
        /// The name.
        name: Name,
    },
    /// A loop has bound the name, if it had an iteration.
    Unsettle {
        /// The name.
        name: Name,
    },
    /// `x += y`: it binds the name anew, or changes its object.
    Update {
        /// The variable.
        variable: VariableRef,
        /// The value on the right.
        value: Value,
    },
    /// It changes an object in place.
    Change {
        /// A name of the object.
        variable: VariableRef,
        /// Whether it changes an object that this one holds.
        deep: bool,
    },
    /// An object stores another one: `d[k] = x`.
    Hold {
        /// The holder.
        variable: VariableRef,
        /// The stored value.
        value: Value,
    },
    /// `del x`.
    Delete {
        /// The name.
        name: Name,
        /// The origin of its value.
        need: ValueOrigin,
        /// Whether this happens each time.
        certain: bool,
    },
    /// It calls a function or a method.
    Call(Arc<Call>),
    /// An effect that the text does not show.
    Unknown(Unknown),
}

/// An effect that an analysis of the text cannot know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// Any variable may be read or written: `exec`, `%run`, a star import. The string names the cause.
    AnyName(String),
    /// The result may be another each time: time, random numbers, files, the network, programs.
    Outside(String),
    /// A change of one name's object may be a change of the other's.
    SameObject(Name, Name),
}

/// The origin of a variable's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ValueOrigin {
    /// It must have a value before.
    #[default]
    Before,
    /// It may be a name of something else: a table of a database, a variable of the shell.
    Perhaps,
    /// The same text has certainly given it its value.
    Own,
}

/// The kind of statement that binds a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binder {
    /// An assignment, a definition, an import.
    Statement,
    /// A loop, `with`, or a pattern: the name is often a temporary one.
    Temporary,
}

/// A variable as code sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum VariableRef {
    /// A name of the kernel.
    Global(Name),
    /// A parameter of the function that contains this step, by its index.
    Parameter(usize),
}

/// A value, as far as the text shows it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// Its kind.
    pub kind: ValueKind,
    /// Whether it is an item or an attribute of the objects in `shares`.
    pub is_part: bool,
    /// Objects that it may be, or hold, or be held by.
    pub shares: Vec<(VariableRef, Share)>,
    /// Functions that a call of it may run.
    pub functions: Vec<(Arc<Function>, FunctionLink)>,
    /// The call that returned it.
    pub result_of: Option<Arc<Call>>,
}

/// The kind of a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ValueKind {
    /// It is not known.
    #[default]
    Unknown,
    /// A number, a text, a truth value, `None`: it cannot change.
    Scalar,
    /// A scalar if all these are; otherwise unknown.
    ScalarIf(Vec<VariableRef>),
    /// A list, a dictionary or a set, which changes only through its known methods.
    Container,
    /// An iterator: it changes whenever it is read.
    Iterator,
    /// A class.
    Class,
    /// An imported object: its module's name, and its name in the module.
    Imported(Name),
}

/// How two names may share an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Share {
    /// Both have the object, or one has a part of the other's.
    Same,
    /// Both may have the object.
    Perhaps,
    /// The first one holds the other's object, as a list its elements.
    Holds,
    /// The other one holds the first one's object.
    HeldBy,
    /// The first one may hold the other's object.
    PerhapsHolds,
    /// The other one may hold the first one's object.
    PerhapsHeldBy,
    /// Both may hold the same objects: only a change of those is a change of both.
    Elements,
}

impl Share {
    /// Returns the relation in the other direction.
    pub fn reversed(self) -> Self {
        match self {
            Self::Holds => Self::HeldBy,
            Self::HeldBy => Self::Holds,
            Self::PerhapsHolds => Self::PerhapsHeldBy,
            Self::PerhapsHeldBy => Self::PerhapsHolds,
            same => same,
        }
    }

    /// Returns the relation between `a` and `c`, if this is the one between `a` and `b`, and `next` that between `b` and
    /// `c`.
    pub fn then(self, next: Self) -> Option<Self> {
        let holds = |share| matches!(share, Self::Holds | Self::PerhapsHolds);
        let is_held = |share| matches!(share, Self::HeldBy | Self::PerhapsHeldBy);
        let perhaps = |share| share == Self::Perhaps;
        match (self, next) {
            (Self::Same, share) | (share, Self::Same) => Some(share),
            (one, other) if is_held(one) && holds(other) => None,
            (one, other) if one == other => Some(one),
            (one, other) if [one, other].iter().all(|it| holds(*it) || perhaps(*it)) => {
                Some(Self::PerhapsHolds)
            }
            (one, other) if [one, other].iter().all(|it| is_held(*it) || perhaps(*it)) => {
                Some(Self::PerhapsHeldBy)
            }
            _ => Some(Self::Elements),
        }
    }
}

/// The relation between a value and a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionLink {
    /// It is the function.
    Is,
    /// It holds the function, or has it as a method.
    Holds,
}

/// A call.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Call {
    /// The name of the kernel that the callee begins with.
    pub root: Option<Name>,
    /// Whether the root's value comes from elsewhere.
    pub need: ValueOrigin,
    /// The first part of the callee, if it is no name of the kernel.
    pub receiver: Value,
    /// The attributes after it; the last one is the method.
    pub path: Vec<Name>,
    /// Whether an item is called: `handlers[0](x)`.
    pub is_item: bool,
    /// Whether the method is called on a part of the root: `a.b.c()`, `a[0].c()`.
    pub is_deep: bool,
    /// The arguments.
    pub arguments: Vec<Argument>,
    /// Whether this happens each time, and not only in one branch or if a loop has an iteration.
    pub certain: bool,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The parameter's name, for a keyword argument.
    pub keyword: Option<Name>,
    /// Whether it is `*args` or `**kwargs`.
    pub is_starred: bool,
    /// The value.
    pub value: Value,
    /// Whether the value is the constant `True`.
    pub is_true: bool,
}

/// A function, with its steps. Its local names are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its name; empty for a lambda.
    pub name: Name,
    /// The effects of its body and of the functions inside it.
    pub steps: Vec<EffectStep>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// Its kind as a method.
    pub method: MethodKind,
    /// Whether it returns an iterator.
    pub is_generator: bool,
    /// Whether a decorator may keep its results, or its code with the values of names.
    pub is_cached: bool,
    /// Whether a function that it returns may have a state of its own.
    pub keeps_state: bool,
    /// The objects that it may return: parameters and the kernel's names.
    pub returns: Vec<(VariableRef, Share)>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// Its kind.
    pub kind: ParameterKind,
    /// Whether its default is an object that can change.
    pub keeps_default: bool,
}

/// The kind of a parameter, by the names of Python's `inspect`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterKind {
    /// One argument, by position or by name.
    Positional,
    /// One argument, by name only.
    Keyword,
    /// `*args`.
    VarPositional,
    /// `**kwargs`.
    VarKeyword,
}

/// The kind of a function in a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MethodKind {
    /// A plain function, or a method with `self`.
    #[default]
    Plain,
    /// A static method.
    Static,
    /// A class method.
    Class,
    /// A property: reading the attribute calls it.
    Property,
}

impl Effects {
    /// Reads a cell's code. Cells in other languages have no effects on names, or unknown ones.
    pub fn of(source: &str) -> Self {
        magics::effects_of_cell(source)
    }

    /// Returns the names to which the code gives a value.
    pub fn bound(&self) -> impl Iterator<Item = &Name> {
        self.steps.iter().filter_map(|step| match &step.effect {
            Effect::Bind { name, .. } => Some(name),
            _ => None,
        })
    }

    /// Returns the effects of code in a language that is not analysed.
    pub fn of_other_language() -> Self {
        Self::in_line_1([Effect::Unknown(Unknown::AnyName(
            "code in another language".to_owned(),
        ))])
    }

    /// Returns the effects of code that depends on all code before it: both read and write this name.
    pub fn of_next_in_order(name: Name) -> Self {
        let read = Effect::Read {
            variable: VariableRef::Global(name.clone()),
            need: ValueOrigin::Perhaps,
            member: None,
        };
        let bind = Effect::Bind {
            name,
            value: Value::default(),
            certain: true,
            by: Binder::Statement,
        };
        Self::in_line_1([read, bind])
    }

    fn in_line_1(effects: impl IntoIterator<Item = Effect>) -> Self {
        let steps = effects
            .into_iter()
            .map(|effect| EffectStep { line: 1, effect });
        Self {
            steps: steps.collect(),
            problem: None,
        }
    }
}

impl Value {
    /// Returns what an object has in common with others that takes this one in.
    pub fn taken_in(mut self) -> Self {
        for (_, share) in &mut self.shares {
            *share = match share {
                Share::Same if !self.is_part => Share::Holds,
                Share::Perhaps => Share::PerhapsHolds,
                _ => Share::Elements,
            };
        }
        for (_, direct) in &mut self.functions {
            *direct = FunctionLink::Holds;
        }
        Self {
            kind: ValueKind::Unknown,
            is_part: false,
            result_of: None,
            ..self
        }
    }

    /// Returns a value of which only the kind is known.
    pub fn of(kind: ValueKind) -> Self {
        Self {
            kind,
            ..Self::default()
        }
    }
}
