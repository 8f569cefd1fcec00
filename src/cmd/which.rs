//! Which cells a command means, as its words name them.

use clap::Args;

use super::fault::{Fault, Kind};
use crate::notebook::{Document, SelectError, Selector};

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
}

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
        let kind = match &error {
            SelectError::Malformed(_) | SelectError::Many(_) | SelectError::TooShort { .. } => {
                Kind::Usage
            }
            _ => Kind::Failed,
        };
        let fault = Self::new(kind, error.to_string());
        match error {
            SelectError::Malformed(_) | SelectError::Many(_) => fault,
            SelectError::Ambiguous { .. } | SelectError::TooShort { .. } => {
                fault.hint("give more of the id, or its index")
            }
            _ => fault.hint("nb cells lists them"),
        }
    }
}
