//! What a cell's code does to the names of its kernel, in order.
//!
//! The steps are of one text alone. What they mean depends on the cells before it: whether `f(x)` changes `x` is
//! known where `f` is. [`crate::graph`] puts them together.

mod locals;
mod magics;
mod reader;
pub mod tables;

use std::sync::Arc;

pub use ruff_python_ast::name::Name;

pub use super::parse::SyntaxProblem;

/// What a cell's code does.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// What it does, in the order of the text.
    pub steps: Vec<EffectStep>,
    /// Why the code could not be read, or not all of it.
    pub problem: Option<SyntaxProblem>,
}

/// One thing that code does.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectStep {
    /// The line of the cell, from 1.
    pub line: usize,
    /// What it does.
    pub act: Act,
}

/// What code does to a name or to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// It reads a variable.
    Read {
        /// Which.
        variable: VariableRef,
        /// Whether its value comes from elsewhere.
        need: Need,
    },
    /// It gives a name a value.
    Bind {
        /// The name.
        name: Name,
        /// What is known of the value.
        value: Value,
        /// Whether this happens each time, and not in one branch or only if a loop has a turn.
        certain: bool,
        /// What binds it.
        by: Binder,
    },
    /// All branches have bound the name.
    Settle {
        /// The name.
        name: Name,
    },
    /// `x += y`: it binds the name anew, or changes its object.
    Update {
        /// Which.
        variable: VariableRef,
        /// What comes into it.
        value: Value,
    },
    /// It changes an object in place.
    Change {
        /// A name of the object.
        variable: VariableRef,
        /// It changes an object that this one holds.
        deep: bool,
    },
    /// An object takes another in: `d[k] = x`.
    Hold {
        /// The holder.
        variable: VariableRef,
        /// What it holds from now on.
        value: Value,
    },
    /// `del x`.
    Delete {
        /// The name.
        name: Name,
        /// Whether its value comes from elsewhere.
        need: Need,
        /// Whether this happens each time.
        certain: bool,
    },
    /// It calls a function or a method.
    Call(Arc<Call>),
    /// It does something whose effect its text does not show.
    Unknown(Unknown),
}

/// What an analysis of code cannot know.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Unknown {
    /// Any variable may be read or written: `exec`, `%run`, a star import. The text says by what.
    AnyName(String),
    /// The result may be another each time: time, random numbers, files, the network, programs.
    Outside(String),
    /// A change of one name's object may be a change of the other's.
    SameObject(Name, Name),
}

/// Whether a variable's value comes from elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Need {
    /// It must have a value before.
    #[default]
    Before,
    /// It may be a name of something else: a table of a database, a variable of the shell.
    Perhaps,
    /// The same text has certainly given it its value.
    Own,
}

/// What binds a name.
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
    /// A parameter of the function whose step this is, by its place.
    Parameter(usize),
}

/// What the text shows of a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Value {
    /// What kind it is.
    pub kind: ValueKind,
    /// It is an item or an attribute of what it shares: an object that this one holds.
    pub is_part: bool,
    /// Objects that it may be, or hold, or be held by.
    pub shares: Vec<(VariableRef, Share)>,
    /// Functions that a call of it may run.
    pub functions: Vec<(Arc<Function>, Direct)>,
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
    /// What an import binds: the module's name, and the object's in it.
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
    /// Returns how the other one shares with the first.
    pub fn reversed(self) -> Self {
        match self {
            Self::Holds => Self::HeldBy,
            Self::HeldBy => Self::Holds,
            Self::PerhapsHolds => Self::PerhapsHeldBy,
            Self::PerhapsHeldBy => Self::PerhapsHolds,
            same => same,
        }
    }

    /// Returns how one shares with a third, if it shares with another like this, and that one with the third like
    /// `next`.
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

/// How a value has a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direct {
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
    pub need: Need,
    /// What the callee begins with, if it is no name of the kernel.
    pub receiver: Value,
    /// The attributes after it; the last one is the method.
    pub path: Vec<Name>,
    /// What is called is an item: `handlers[0](x)`.
    pub is_item: bool,
    /// The method is one of a part of the root: `a.b.c()`, `a[0].c()`.
    pub is_deep: bool,
    /// The arguments.
    pub arguments: Vec<Argument>,
}

/// An argument of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Argument {
    /// The parameter's name, for a keyword argument.
    pub keyword: Option<Name>,
    /// `*args` or `**kwargs`.
    pub is_starred: bool,
    /// The value.
    pub value: Value,
    /// The value as a constant, if it is `True`.
    pub is_true: bool,
}

/// A function's own steps. Names that only it knows are left out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// Its name; empty for a lambda.
    pub name: Name,
    /// What its body does, with what functions inside it do.
    pub steps: Vec<EffectStep>,
    /// Its parameters.
    pub parameters: Vec<Parameter>,
    /// What it is to its class.
    pub method: Method,
    /// It returns an iterator.
    pub is_generator: bool,
    /// A function that it returns may have a state of its own.
    pub keeps_state: bool,
    /// What it returns, of its parameters and of the kernel's names.
    pub returns: Vec<(VariableRef, Share)>,
}

/// A parameter of a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Its name.
    pub name: Name,
    /// Which arguments it takes.
    pub takes: Takes,
    /// Its default is an object that can change.
    pub keeps_default: bool,
}

/// Which arguments a parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// One, by place or by name.
    One,
    /// One, by name only.
    Keyword,
    /// The rest of those by place.
    Rest,
    /// The rest of those by name.
    RestOfKeywords,
}

/// What a function is to its class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// A function, or a method that gets its object.
    #[default]
    Plain,
    /// A static method.
    Static,
    /// A class method.
    Class,
}

impl Effects {
    /// Reads a cell's code. Cells in other languages have no effects on names, or unknown ones.
    pub fn of(source: &str) -> Self {
        magics::effects_of_cell(source)
    }

    /// Returns the effects of code in a language that is not read.
    pub fn of_other_language() -> Self {
        Self::in_line_1([Act::Unknown(Unknown::AnyName(
            "code in another language".to_owned(),
        ))])
    }

    /// Returns the effects of code that depends on all code before it: both read and write this name.
    pub fn of_next_in_order(name: Name) -> Self {
        let read = Act::Read {
            variable: VariableRef::Global(name.clone()),
            need: Need::Perhaps,
        };
        let bind = Act::Bind {
            name,
            value: Value::default(),
            certain: true,
            by: Binder::Statement,
        };
        Self::in_line_1([read, bind])
    }

    fn in_line_1(acts: impl IntoIterator<Item = Act>) -> Self {
        let steps = acts.into_iter().map(|act| EffectStep { line: 1, act });
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
            *direct = Direct::Holds;
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
