//! The arguments by which a command selects cells.

use clap::Args;

use crate::api::problem::editing::no_cell;
use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::{CellSelector, SelectError};

/// Names of cells that say themselves what they are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CellOptions {
    /// Name a cell by its id, also one that looks like an index
    #[arg(short = 'c', long = "cell", visible_alias = "id", value_name = "ID")]
    ids: Vec<String>,
    /// Name a cell by its index, from 0, or from the end: -1
    #[arg(
        short = 'i',
        long = "index",
        alias = "cell-index",
        value_name = "INDEX",
        allow_negative_numbers = true
    )]
    indexes: Vec<i64>,
}

impl CellOptions {
    /// Returns the selectors given as words, as ids and as indices, in this order.
    pub(crate) fn selectors(&self, words: &[String]) -> Result<Vec<CellSelector>, Problem> {
        let words = words.iter().flat_map(|word| word.split(','));
        let words = words.map(|word| Ok(word.parse()?));
        let ids = self.ids.iter().map(|id| Ok(CellSelector::Id(id.clone())));
        let indexes = self
            .indexes
            .iter()
            .map(|index| Ok(CellSelector::Index(*index)));
        words.chain(ids).chain(indexes).collect()
    }

    /// Returns the selector of the only cell: from an option, else from the first of the words, which is
    /// removed from them.
    pub(crate) fn one(&self, words: &mut Vec<String>) -> Result<CellSelector, Problem> {
        let mut named = self.selectors(&[])?;
        match (named.len(), words.is_empty()) {
            (0, true) => Err(no_cell("name a cell")),
            (0, false) => Ok(words.remove(0).parse()?),
            (1, _) => Ok(named.remove(0)),
            _ => Err(Problem::new(ProblemKind::Usage, "name one cell")),
        }
    }
}

/// A place beside another cell. A command that knows other places puts them into the same group,
/// `place`: only one place may be given.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct CellPosition {
    /// Put it after this cell
    #[arg(
        short,
        long,
        value_name = "CELL",
        allow_negative_numbers = true,
        group = "place"
    )]
    after: Option<String>,
    /// Put it before this cell
    #[arg(
        short,
        long,
        value_name = "CELL",
        allow_negative_numbers = true,
        group = "place"
    )]
    before: Option<String>,
}

impl CellPosition {
    /// Says whether a position is given.
    pub(crate) fn is_given(&self) -> bool {
        self.after.is_some() || self.before.is_some()
    }

    /// Returns the selectors of the cell before the position and of the cell after it.
    pub(crate) fn selectors(
        &self,
    ) -> Result<(Option<CellSelector>, Option<CellSelector>), Problem> {
        let cell = |word: &Option<String>| -> Result<Option<CellSelector>, SelectError> {
            word.as_deref().map(str::parse).transpose()
        };
        Ok((cell(&self.after)?, cell(&self.before)?))
    }
}
