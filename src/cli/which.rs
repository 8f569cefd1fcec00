//! Which cells a command means, as its words name them.

use clap::Args;

use super::fault::{Fault, Kind};
use crate::notebook::{Document, Near, SelectError, Selector};

/// Names of cells that say themselves what they are.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Which {
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
    pub(super) fn selectors(&self, words: &[String]) -> Result<Vec<Selector>, Fault> {
        let words = words.iter().map(|word| Ok(word.parse()?));
        let ids = self.ids.iter().map(|id| Ok(Selector::id(id)));
        let indexes = self.indexes.iter().map(|index| Ok(Selector::index(*index)));
        words.chain(ids).chain(indexes).collect()
    }

    /// Returns the one cell that is named: by an option, else by the first of the words, which is
    /// taken from them.
    pub(super) fn one(&self, words: &mut Vec<String>) -> Result<Selector, Fault> {
        let mut named = self.selectors(&[])?;
        match (named.len(), words.is_empty()) {
            (0, true) => Err(missing("a cell is wanted")),
            (0, false) => Ok(words.remove(0).parse()?),
            (1, _) => Ok(named.remove(0)),
            _ => Err(Fault::new(Kind::Usage, "one cell is meant here")),
        }
    }
}

/// A place beside another cell. A command that knows other places puts them into the same group,
/// `place`: one place is wanted.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct Beside {
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
    pub(super) fn is_given(&self) -> bool {
        self.after.is_some() || self.before.is_some()
    }

    /// Returns the cell after which, and the one before which the place is.
    pub(super) fn selectors(&self) -> Result<(Option<Selector>, Option<Selector>), Fault> {
        let cell = |word: &Option<String>| -> Result<Option<Selector>, SelectError> {
            word.as_deref().map(str::parse).transpose()
        };
        Ok((cell(&self.after)?, cell(&self.before)?))
    }
}

/// Says that no cell is named.
pub(super) fn missing(what: &str) -> Fault {
    let forms = "an index like 3 or -1, an id, In[12], or a range like 2..5";
    Fault::new(Kind::Usage, format!("{what}: {forms}")).hint(LIST)
}

/// What helps to name a cell.
const LIST: &str = "nb cells lists the cells";

/// Returns the places of the cells that are named, each once, in the order of their naming.
pub(super) fn places(document: &Document, selectors: &[Selector]) -> Result<Vec<usize>, Fault> {
    let mut places = Vec::new();
    for selector in selectors {
        for place in document.select(selector)? {
            if !places.contains(&place) {
                places.push(place);
            }
        }
    }
    Ok(places)
}

impl From<SelectError> for Fault {
    fn from(error: SelectError) -> Self {
        of_selection(&error, &error.to_string())
    }
}

/// Makes a fault of cells that were not found; the message may say more than the error itself.
pub(super) fn of_selection(error: &SelectError, message: &str) -> Fault {
    let kind = match error {
        SelectError::Malformed(_) | SelectError::Many(_) | SelectError::TooShort { .. } => {
            Kind::Usage
        }
        _ => Kind::Failed,
    };
    let near: &[Near] = match error {
        SelectError::NoSuchId { near, .. }
        | SelectError::TooShort { near, .. }
        | SelectError::NoSuchCount { near, .. } => near,
        SelectError::Ambiguous { candidates, .. } => candidates,
        _ => &[],
    };
    // In lines of their own they are easier to read than after each other.
    let message = message.split("; there is ").next().unwrap_or(message);
    let near: Vec<_> = near.iter().map(Near::to_string).collect();
    let fault = Fault::new(kind, message).lines(&near);
    match error {
        SelectError::Malformed(_) | SelectError::Many(_) => fault,
        SelectError::Ambiguous { .. } | SelectError::TooShort { .. } => {
            fault.hint("give more of the id, or its index")
        }
        // Ids of digits alone are rare, and look like this.
        SelectError::OutOfRange { index, .. } if *index >= 100 => fault.hint(format!(
            "if {index} is an id: -c {index}; in a list of operations {{\"id\": \"{index}\"}}"
        )),
        _ => fault.hint(LIST),
    }
}
