//! Which cells a command means, as its words name them.

use clap::Args;

use crate::api::problem::editing::LIST;
use crate::api::problem::{Problem, ProblemKind};
use crate::notebook::{CellSelector, SelectError};

/// Names of cells that say themselves what they are.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Which {
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

impl Which {
    /// Returns what is named: by the words, by ids and by indexes, in this order.
    pub(crate) fn selectors(&self, words: &[String]) -> Result<Vec<CellSelector>, Problem> {
        let words = words.iter().map(|word| Ok(word.parse()?));
        let ids = self.ids.iter().map(|id| Ok(CellSelector::id(id)));
        let indexes = self
            .indexes
            .iter()
            .map(|index| Ok(CellSelector::index(*index)));
        words.chain(ids).chain(indexes).collect()
    }

    /// Returns the one cell that is named: by an option, else by the first of the words, which is
    /// taken from them.
    pub(crate) fn one(&self, words: &mut Vec<String>) -> Result<CellSelector, Problem> {
        let mut named = self.selectors(&[])?;
        match (named.len(), words.is_empty()) {
            (0, true) => Err(missing("a cell is wanted")),
            (0, false) => Ok(words.remove(0).parse()?),
            (1, _) => Ok(named.remove(0)),
            _ => Err(Problem::new(ProblemKind::Usage, "one cell is meant here")),
        }
    }
}

/// A place beside another cell. A command that knows other places puts them into the same group,
/// `place`: one place is wanted.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Beside {
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

impl Beside {
    /// Says whether a place is named.
    pub(crate) fn is_given(&self) -> bool {
        self.after.is_some() || self.before.is_some()
    }

    /// Returns the cell after which, and the one before which the place is.
    pub(crate) fn selectors(
        &self,
    ) -> Result<(Option<CellSelector>, Option<CellSelector>), Problem> {
        let cell = |word: &Option<String>| -> Result<Option<CellSelector>, SelectError> {
            word.as_deref().map(str::parse).transpose()
        };
        Ok((cell(&self.after)?, cell(&self.before)?))
    }
}

/// Says that no cell is named.
pub(crate) fn missing(what: &str) -> Problem {
    let forms = "an index like 3 or -1, an id, In[12], or a range like 2..5";
    Problem::new(ProblemKind::Usage, format!("{what}: {forms}")).hint(LIST)
}
