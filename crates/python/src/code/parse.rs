//! Python code of a cell, parsed: the magics of IPython are known, and no nesting exhausts the stack.
//!
//! Only this module uses the parser.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use ruff_python_ast::ModModule;
use ruff_python_ast::token::TokenKind;
use ruff_python_parser::{Mode, ParseOptions, Parsed, lexer, parse_unchecked};
use ruff_text_size::Ranged;

/// The longest text that is parsed, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 4 << 20;

/// The deepest tree that is read. Python refuses it too: its compiler ends at about 3,000.
const DEEPEST: usize = 5_000;

/// The stack that one level of the tree needs, in bytes, for the parser and for the readers of the tree.
const STACK_PER_LEVEL: usize = 8 << 10;

/// The stack for a flat tree, in bytes.
const LEAST_STACK: usize = 1 << 20;

/// A text that is no Python code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxProblem {
    /// The line, from 1.
    pub line: usize,
    /// The fault.
    pub message: String,
}

/// Parses Python code as IPython takes it, and gives the tree to a function. Of code with errors the tree has
/// what could be read.
///
/// # Errors
///
/// The text is longer than 4 MiB, nested deeper than Python's own compiler can follow, or the parser fails.
pub(super) fn parsed<T>(
    source: &str,
    read: impl FnOnce(&Parsed<ModModule>) -> T,
) -> Result<T, SyntaxProblem> {
    let refused = |message: &str| SyntaxProblem {
        line: 1,
        message: message.to_owned(),
    };
    if source.len() > TEXT_BYTES_MAX {
        return Err(refused("the cell is longer than 4 MiB"));
    }
    let fails = || refused("the parser fails on this text");
    let depth = guarded(|| depth(source)).ok_or_else(fails)?;
    if depth > DEEPEST {
        return Err(refused("the code is nested too deeply"));
    }
    // Memory that is not used is not taken.
    let stack = LEAST_STACK + depth * STACK_PER_LEVEL;
    stacker::maybe_grow(stack, stack, || {
        let parse = || parse_unchecked(source, ParseOptions::from(Mode::Ipython));
        let parsed = guarded(parse).ok_or_else(fails)?;
        let parsed = parsed.try_into_module().map(|parsed| read(&parsed));
        parsed.ok_or_else(|| refused("the code is not a module"))
    })
}

thread_local! {
    /// Whether this thread runs the parser.
    static PARSES: Cell<bool> = const { Cell::new(false) };
}

/// Runs the parser. It panics on some texts that are no Python, like `[)` above a line `,`: then this returns `None`,
/// and nothing is printed.
fn guarded<T>(parse: impl FnOnce() -> T) -> Option<T> {
    static QUIET: Once = Once::new();
    QUIET.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |panic| {
            if !PARSES.get() {
                before(panic);
            }
        }));
    });
    PARSES.set(true);
    let parsed = catch_unwind(AssertUnwindSafe(parse));
    PARSES.set(false);
    parsed.ok()
}

/// Returns the first error of a parsed text.
pub(super) fn problem(source: &str, parsed: &Parsed<ModModule>) -> Option<SyntaxProblem> {
    let error = parsed.errors().first()?;
    Some(SyntaxProblem {
        line: 1 + count_lines(
            source
                .get(..error.location.start().to_usize())
                .unwrap_or_default(),
        ),
        message: error.error.to_string(),
    })
}

/// Returns an upper bound of the depth of the tree: each of its levels has an operator, a bracket or a keyword.
/// At a comma, or at the end of a statement, those since the last bracket are no longer nested.
fn depth(source: &str) -> usize {
    let mut lexer = lexer::lex(source, Mode::Ipython);
    let mut blocks: usize = 0;
    // Of each open bracket: how deep it is, and where the last comma leads back to.
    let mut open: Vec<(usize, usize)> = Vec::new();
    let (mut now, mut base): (usize, usize) = (0, 0);
    let mut deepest = 0;
    loop {
        match lexer.next_token() {
            TokenKind::EndOfFile => break deepest,
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            TokenKind::Newline | TokenKind::Semi if open.is_empty() => (now, base) = (0, 0),
            TokenKind::Comma => now = base,
            // A comma between its parameters does not end it.
            TokenKind::Lambda => {
                now += 1;
                base = now;
            }
            TokenKind::Lpar | TokenKind::Lsqb | TokenKind::Lbrace => {
                now += 1;
                open.push((now, base));
                base = now;
            }
            TokenKind::Rpar | TokenKind::Rsqb | TokenKind::Rbrace => {
                if let Some(before) = open.pop() {
                    (now, base) = before;
                }
            }
            TokenKind::Name | TokenKind::Int | TokenKind::Float | TokenKind::String => {}
            TokenKind::Comment | TokenKind::NonLogicalNewline => {}
            _ => now += 1,
        }
        deepest = deepest.max(now + 4 * blocks);
    }
}

pub(super) fn count_lines(text: &str) -> usize {
    memchr::memchr_iter(b'\n', text.as_bytes()).count()
}

/// The lines of a text, found by offset.
pub(super) struct Lines {
    /// The offset at which each line begins.
    starts: Vec<u32>,
    first: usize,
}

impl Lines {
    /// Counts the lines of a text; `first` is the number of its first line.
    pub(super) fn of(source: &str, first: usize) -> Self {
        let ends = memchr::memchr_iter(b'\n', source.as_bytes());
        let starts = ends.map(|end| u32::try_from(end + 1).unwrap_or(u32::MAX));
        Self {
            starts: std::iter::once(0).chain(starts).collect(),
            first,
        }
    }

    /// Returns the number of the line that a node begins in.
    pub(super) fn line(&self, node: &impl Ranged) -> usize {
        let offset = node.start().to_u32();
        self.first + self.starts.partition_point(|start| *start <= offset) - 1
    }
}
