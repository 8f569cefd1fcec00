//! Commands of `nb` as values.

use std::fmt;
use std::path::{Path, PathBuf};

use super::shell::{quote, quote_word};

/// A command of `nb` with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command's own name.
    pub verb: Verb,
    /// The words after it, in their order.
    pub words: Vec<Word>,
    /// Whether the words name its notebook, or it is about none. Otherwise a front door adds the notebook of the request
    /// where a user has typed it.
    pub is_complete: bool,
}

/// A word of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// Any word, such as a cell, or the value of the option before it.
    Text(String),
    /// A file.
    Path(PathBuf),
    /// A job.
    Job(String),
    /// An option with its dashes.
    Option(&'static str),
    /// The notebook of the request, under any name.
    Notebook,
    /// A text from the standard input, which is this file.
    Stdin(&'static str),
}

/// Begins a command.
pub fn nb(verb: Verb) -> Command {
    Command {
        verb,
        words: Vec::new(),
        is_complete: false,
    }
}

impl Command {
    /// Adds a word.
    #[must_use]
    pub fn word(mut self, word: impl Into<Word>) -> Self {
        self.words.push(word.into());
        self
    }

    /// Adds an option; its value, if any, is the next word.
    #[must_use]
    pub fn option(self, name: &'static str) -> Self {
        self.word(Word::Option(name))
    }

    /// Adds a job's id.
    #[must_use]
    pub fn job(self, id: &str) -> Self {
        self.word(Word::Job(id.to_owned()))
    }

    /// Adds a text that is read from a file on the standard input.
    #[must_use]
    pub fn stdin(self, file: &'static str) -> Self {
        self.word(Word::Stdin(file))
    }

    /// Adds the notebook that the command is about.
    #[must_use]
    pub fn notebook(self, path: &Path) -> Self {
        self.word(path).without_notebook()
    }

    /// Adds the notebook of the request, as a word in capitals where it is not known which it is.
    #[must_use]
    pub fn this(self) -> Self {
        self.word(Word::Notebook).without_notebook()
    }

    /// Makes the command one that no notebook is added to.
    #[must_use]
    pub fn without_notebook(mut self) -> Self {
        self.is_complete = true;
        self
    }

    /// Replaces the notebook of the request by a path.
    pub(super) fn name(&mut self, notebook: &Path) {
        for word in &mut self.words {
            if *word == Word::Notebook {
                *word = notebook.into();
            }
        }
    }

    /// Says whether the command is about a job, which tells its notebook.
    pub fn is_of_job(&self) -> bool {
        let has_job = || self.words.iter().any(|word| matches!(word, Word::Job(_)));
        matches!(self.verb, Verb::Jobs | Verb::Reply | Verb::Wait) || has_job()
    }

    /// Returns the command for a shell, with words in the caller's spelling; `first` is put before them.
    pub fn spelled(&self, first: Option<String>, spell: impl Fn(&Word) -> String) -> String {
        let words = first.into_iter().chain(self.words.iter().map(spell));
        words.fold(format!("nb {}", self.verb), |command, word| {
            command + " " + &word
        })
    }
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.spelled(None, Word::to_string))
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(word) | Self::Job(word) => f.write_str(&quote_word(word.as_ref())),
            Self::Path(path) => f.write_str(&quote(path)),
            Self::Option(name) => f.write_str(name),
            Self::Notebook => f.write_str("NOTEBOOK"),
            Self::Stdin(file) => write!(f, "- < {file}"),
        }
    }
}

impl From<&str> for Word {
    fn from(word: &str) -> Self {
        Self::Text(word.to_owned())
    }
}

impl From<String> for Word {
    fn from(word: String) -> Self {
        Self::Text(word)
    }
}

impl From<&Path> for Word {
    fn from(path: &Path) -> Self {
        Self::Path(path.to_owned())
    }
}

macro_rules! verbs {
    ($($verb:ident $name:literal,)+) => {
        /// The commands that hints name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Verb {
            $(#[doc = concat!("`nb ", $name, "`.")] $verb,)+
        }

        impl Verb {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$verb),+];

            /// Returns the command's name.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$verb => $name,)+
                }
            }
        }
    };
}

verbs! {
    Apply "apply",
    Cell "cell",
    Cells "cells",
    Diff "diff",
    Edit "edit",
    Exec "exec",
    Graph "graph",
    Insert "insert",
    Interrupt "interrupt",
    Jobs "jobs",
    Kernels "kernels",
    Log "log",
    Move "move",
    Mv "mv",
    Open "open",
    Reply "reply",
    Restart "restart",
    Restore "restore",
    Rm "rm",
    Run "run",
    Search "search",
    Shutdown "shutdown",
    Status "status",
    Undo "undo",
    Vars "vars",
    Wait "wait",
}

impl Verb {
    /// Says whether the first word of the command may be a notebook.
    pub fn takes_notebook(self) -> bool {
        !matches!(self, Self::Kernels | Self::Mv | Self::Search)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
