//! Selectors: names of cells on a command line and in lists of operations.

use super::lossless::Document;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// A selector of one or several cells. A text that is read as one kind never falls back to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CellSelector {
    /// A position, from 0; a negative one counts from the end.
    Index(i64),
    /// An id, or a prefix of at least 3 characters that no other id has.
    Id(String),
    /// An execution count, the number in `In [ ]`.
    Count(u64),
    /// A range of positions, `2..5` without and `2..=5` with the last; a missing end is that of the
    /// notebook.
    Range {
        /// The first position.
        start: Option<i64>,
        /// The last position, or the one after it.
        end: Option<i64>,
        /// Whether `end` is the last position.
        inclusive: bool,
    },
}

/// A cell that an error suggests instead.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct CellCandidate {
    /// The cell's position, from 0.
    pub index: usize,
    /// The cell's id.
    pub id: String,
    /// The number in its `In [ ]`.
    pub execution_count: Option<u64>,
    /// The beginning of its source.
    pub first_line: String,
}

/// Why no cell was selected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// The text is not a selector.
    #[error("{0:?} names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5")]
    Malformed(String),
    /// No id has this prefix.
    #[error("there is no cell {text:?}{}", suggestion(near))]
    NoSuchId {
        /// The text, as typed.
        text: String,
        /// The cells with the ids most like it.
        near: Vec<CellCandidate>,
    },
    /// The text is too short for a prefix of an id.
    #[error(
        "{text:?} is too little of an id: give 3 characters or more{}",
        suggestion(near)
    )]
    TooShort {
        /// The text, as typed.
        text: String,
        /// The cells whose ids have this prefix.
        near: Vec<CellCandidate>,
    },
    /// Several cells match.
    #[error("{text} is more than one cell{}", suggestion(candidates))]
    Ambiguous {
        /// The text, as typed.
        text: String,
        /// All matching cells.
        candidates: Vec<CellCandidate>,
    },
    /// No cell has this execution count.
    #[error("no cell is In[{count}]{}", suggestion(near))]
    NoSuchCount {
        /// The number that was given.
        count: u64,
        /// The cells with the nearest numbers.
        near: Vec<CellCandidate>,
    },
    /// The notebook has fewer cells.
    #[error("there is no cell {index}: the notebook has {cells}, from 0")]
    OutOfRange {
        /// The position that was given.
        index: i64,
        /// How many cells there are.
        cells: usize,
    },
    /// The range has no cells.
    #[error("{0} holds no cell")]
    NoCells(CellSelector),
    /// A range was given where one cell is meant.
    #[error("{0} is a range: name one cell")]
    Many(CellSelector),
}

impl FromStr for CellSelector {
    type Err = SelectError;

    /// Reads a whole number of up to four digits as an index, `In[12]` as a count, a text with two dots as
    /// a range, and any other text as an id.
    fn from_str(text: &str) -> Result<Self, SelectError> {
        let malformed = || SelectError::Malformed(text.to_owned());
        let number = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            let whole =
                (1..=4).contains(&digits.len()) && digits.bytes().all(|c| c.is_ascii_digit());
            text.parse().ok().filter(|_| whole)
        };
        if let Some(index) = number(text) {
            return Ok(Self::Index(index));
        }
        let count = text.strip_prefix("In").map(str::trim_start);
        if let Some(count) = count.and_then(|rest| rest.strip_prefix('[')?.strip_suffix(']')) {
            return count
                .trim()
                .parse()
                .map(Self::Count)
                .map_err(|_| malformed());
        }
        if let Some((start, end)) = text.split_once("..") {
            let (inclusive, end) = match end.strip_prefix('=') {
                Some(end) => (true, end),
                None => (false, end),
            };
            let bound = |text: &str| match text {
                "" => Ok(None),
                text => number(text).map(Some).ok_or_else(malformed),
            };
            let (start, end) = (bound(start)?, bound(end)?);
            if inclusive && end.is_none() {
                return Err(malformed());
            }
            return Ok(Self::Range {
                start,
                end,
                inclusive,
            });
        }
        if text.is_empty() || text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(malformed());
        }
        Ok(Self::Id(text.to_owned()))
    }
}

impl<'de> serde::Deserialize<'de> for CellSelector {
    /// Reads a number as an index, a string as [`CellSelector::from_str`] does, and `{"id": "1234"}` as an
    /// id even if it looks like an index.
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = serde_json::Value::deserialize(deserializer)?;
        let id = word.as_object().filter(|object| object.len() == 1);
        let id = id.and_then(|object| object.get("id")?.as_str());
        match (word.as_i64(), word.as_str(), id) {
            (Some(index), ..) => Ok(Self::Index(index)),
            (_, Some(text), _) => text.parse().map_err(serde::de::Error::custom),
            (.., Some(id)) => Ok(Self::Id(id.to_owned())),
            _ => Err(serde::de::Error::custom(format!(
                "{word} names no cell: an index like 3 or -1, an id like \"3f2c\" or {{\"id\": \"1234\"}}, \"In[12]\", or a range like \"2..5\""
            ))),
        }
    }
}

impl Document {
    /// Returns the position of the one selected cell.
    ///
    /// # Errors
    /// No cell is selected, or several are; the error lists candidates.
    pub fn find(&self, selector: &CellSelector) -> Result<usize, SelectError> {
        match selector {
            CellSelector::Index(index) => self.position_of(*index, self.cells.len()),
            CellSelector::Id(text) => self.find_id(text),
            CellSelector::Count(count) => self.find_count(*count),
            CellSelector::Range { .. } => Err(SelectError::Many(selector.clone())),
        }
    }

    /// Returns the positions of all selected cells.
    ///
    /// # Errors
    /// Those of [`Document::find`]; also a range that has no cells or reaches beyond the end.
    pub fn select(&self, selector: &CellSelector) -> Result<Range<usize>, SelectError> {
        let CellSelector::Range {
            start,
            end,
            inclusive,
        } = selector
        else {
            return self.find(selector).map(|index| index..index + 1);
        };
        let cells = self.cells.len();
        let start = start.map_or(Ok(0), |start| self.position_of(start, cells))?;
        let end = match (end, inclusive) {
            (None, _) => cells,
            (Some(end), true) => self.position_of(*end, cells)? + 1,
            (Some(end), false) => self.position_of(*end, cells + 1)?,
        };
        if start >= end {
            return Err(SelectError::NoCells(selector.clone()));
        }
        Ok(start..end)
    }

    /// Resolves a position below `limit`; negative ones count from the last cell.
    pub(in crate::notebook) fn position_of(
        &self,
        index: i64,
        limit: usize,
    ) -> Result<usize, SelectError> {
        let cells = self.cells.len();
        let place = match usize::try_from(index) {
            Ok(place) => Some(place),
            Err(_) => usize::try_from(index.unsigned_abs())
                .ok()
                .and_then(|back| cells.checked_sub(back)),
        };
        place
            .filter(|place| *place < limit)
            .ok_or(SelectError::OutOfRange { index, cells })
    }

    fn find_id(&self, text: &str) -> Result<usize, SelectError> {
        if let Some(index) = self.position_by_id(text) {
            return Ok(index);
        }
        let begin: Vec<_> = (0..self.cells.len())
            .filter(|index| {
                self.cells
                    .get(*index)
                    .is_some_and(|cell| cell.id().starts_with(text))
            })
            .collect();
        let text = text.to_owned();
        match begin.as_slice() {
            [] => {
                let near = self.most_similar(&text);
                Err(SelectError::NoSuchId { text, near })
            }
            _ if text.chars().count() < 3 => {
                let near = self.candidates(begin.into_iter().take(MOST_NEAR));
                Err(SelectError::TooShort { text, near })
            }
            [index] => Ok(*index),
            _ => {
                let candidates = self.candidates(begin);
                Err(SelectError::Ambiguous { text, candidates })
            }
        }
    }

    fn find_count(&self, count: u64) -> Result<usize, SelectError> {
        let counts = self.cells.iter().enumerate();
        let counts = counts.filter_map(|(index, cell)| Some((index, cell.execution_count()?)));
        let mut counts: Vec<_> = counts.collect();
        let found: Vec<_> = counts.iter().filter(|(_, other)| *other == count).collect();
        match found.as_slice() {
            [(index, _)] => Ok(*index),
            [] => {
                counts.sort_by_key(|(_, other)| other.abs_diff(count));
                let near = counts.into_iter().map(|(index, _)| index).take(MOST_NEAR);
                let near = self.candidates(near);
                Err(SelectError::NoSuchCount { count, near })
            }
            _ => Err(SelectError::Ambiguous {
                text: format!("In[{count}]"),
                candidates: self.candidates(found.into_iter().map(|(index, _)| *index)),
            }),
        }
    }

    /// Returns the cells whose ids are most like a text.
    fn most_similar(&self, text: &str) -> Vec<CellCandidate> {
        let beginning = |text: &str| text.chars().take(64).collect::<String>();
        let text = beginning(text);
        let mut all: Vec<_> = self
            .cells
            .iter()
            .enumerate()
            .map(|(index, cell)| {
                // Also compare a prefix of the same length, for a prefix with a typing error.
                let id = beginning(cell.id());
                let part: String = id.chars().take(text.chars().count()).collect();
                let whole = strsim::damerau_levenshtein(&text, &id);
                (strsim::damerau_levenshtein(&text, &part).min(whole), index)
            })
            .filter(|(distance, _)| *distance <= text.chars().count().div_ceil(3))
            .collect();
        all.sort_unstable();
        self.candidates(all.into_iter().map(|(_, index)| index).take(MOST_NEAR))
    }

    fn candidates(&self, indexes: impl IntoIterator<Item = usize>) -> Vec<CellCandidate> {
        let candidates = indexes.into_iter().filter_map(|index| {
            let cell = self.cells.get(index)?;
            Some(CellCandidate {
                index,
                id: cell.id().to_owned(),
                execution_count: cell.execution_count(),
                first_line: cell.first_line(40),
            })
        });
        candidates.collect()
    }
}

/// How many cells an error suggests; for an ambiguous selector it lists all.
const MOST_NEAR: usize = 3;

fn suggestion(near: &[CellCandidate]) -> String {
    if near.is_empty() {
        return String::new();
    }
    let texts: Vec<_> = near.iter().map(CellCandidate::to_string).collect();
    format!("; there is {}", texts.join(", "))
}

impl fmt::Display for CellCandidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (cell {}", self.id, self.index)?;
        if let Some(count) = self.execution_count {
            write!(f, ", In[{count}]")?;
        }
        match self.first_line.as_str() {
            "" => f.write_str(", empty)"),
            line => write!(f, ": {line})"),
        }
    }
}

impl fmt::Display for CellSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index(index) => write!(f, "{index}"),
            Self::Id(id) => f.write_str(id),
            Self::Count(count) => write!(f, "In[{count}]"),
            Self::Range {
                start,
                end,
                inclusive,
            } => {
                let bound_text = |bound: &Option<i64>| bound.map(|bound| bound.to_string());
                let dots = if *inclusive { "..=" } else { ".." };
                let (start, end) = (bound_text(start), bound_text(end));
                write!(
                    f,
                    "{}{dots}{}",
                    start.unwrap_or_default(),
                    end.unwrap_or_default()
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notebook() -> Document {
        let cells: Vec<_> = [("3f2c11aa", 7), ("3f2d22bb", 12), ("7", 12), ("1234", 3), ("abcdef", 9)]
            .iter()
            .map(|(id, count)| {
                format!(r#"{{"cell_type":"code","id":"{id}","source":"\nx = {count}\ny","execution_count":{count}}}"#)
            })
            .collect();
        Document::parse(format!("{{\"cells\":[{}]}}", cells.join(","))).unwrap()
    }

    fn parse(text: &str) -> Result<Range<usize>, String> {
        let selector: CellSelector = text
            .parse()
            .map_err(|error: SelectError| error.to_string())?;
        notebook()
            .select(&selector)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn each_form_finds_its_cells() {
        for (text, range) in [
            ("0", 0..1),
            ("-1", 4..5),
            ("0004", 4..5),
            ("3f2c", 0..1),
            ("abcdef", 4..5),
            ("abc", 4..5),
            ("In[9]", 4..5),
            ("In [3]", 3..4),
            ("1..3", 1..3),
            ("1..=3", 1..4),
            ("..2", 0..2),
            ("3..", 3..5),
            ("-2..", 3..5),
            ("0..-1", 0..4),
            ("..5", 0..5),
            ("..=-1", 0..5),
        ] {
            assert_eq!(parse(text), Ok(range), "{text}");
        }
        assert_eq!(notebook().find(&CellSelector::Id("1234".to_owned())), Ok(3));
        assert_eq!(notebook().find(&CellSelector::Id("7".to_owned())), Ok(2));
    }

    #[test]
    fn errors_name_what_might_have_been_meant() {
        for (text, error) in [
            ("5", "there is no cell 5: the notebook has 5, from 0"),
            ("-6", "there is no cell -6: the notebook has 5, from 0"),
            ("1234", "there is no cell 1234: the notebook has 5, from 0"),
            (
                "3f2",
                "3f2 is more than one cell; there is 3f2c11aa (cell 0, In[7]: x = 7), 3f2d22bb (cell 1, In[12]: x = 12)",
            ),
            (
                "ab",
                "\"ab\" is too little of an id: give 3 characters or more; there is abcdef (cell 4, In[9]: x = 9)",
            ),
            (
                "3f2x",
                "there is no cell \"3f2x\"; there is 3f2c11aa (cell 0, In[7]: x = 7), 3f2d22bb (cell 1, In[12]: x = 12)",
            ),
            ("zzzzzzzz", "there is no cell \"zzzzzzzz\""),
            (
                "In[8]",
                "no cell is In[8]; there is 3f2c11aa (cell 0, In[7]: x = 7), abcdef (cell 4, In[9]: x = 9), 3f2d22bb (cell 1, In[12]: x = 12)",
            ),
            (
                "In[12]",
                "In[12] is more than one cell; there is 3f2d22bb (cell 1, In[12]: x = 12), 7 (cell 2, In[12]: x = 12)",
            ),
            ("2..2", "2..2 holds no cell"),
            ("3..1", "3..1 holds no cell"),
            ("2..6", "there is no cell 6: the notebook has 5, from 0"),
            ("2..=5", "there is no cell 5: the notebook has 5, from 0"),
            (
                "abc..4",
                "\"abc..4\" names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5",
            ),
            (
                "In[x]",
                "\"In[x]\" names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5",
            ),
            (
                "1..=",
                "\"1..=\" names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5",
            ),
            (
                "",
                "\"\" names no cell: an index like 3 or -1, an id, In[12], or a range like 2..5",
            ),
        ] {
            assert_eq!(parse(text), Err(error.into()), "{text}");
        }
        let range = "1..2".parse().unwrap();
        assert!(matches!(notebook().find(&range), Err(SelectError::Many(_))));
        assert_eq!("12345".parse(), Ok(CellSelector::Id("12345".to_owned())));
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_selector_or_an_error(text in "[-0-9.=In\\[\\] ab]{0,8}") {
            if let Ok(selector) = text.parse::<CellSelector>() {
                if let Ok(range) = notebook().select(&selector) {
                    proptest::prop_assert!(range.start < range.end && range.end <= 5);
                }
                proptest::prop_assert_eq!(selector.to_string().parse(), Ok(selector));
            }
        }
    }
}
