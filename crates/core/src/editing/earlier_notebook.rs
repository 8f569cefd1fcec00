//! An earlier version of a whole notebook: at a revision, as an actor last saw it, or in a git
//! commit.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use super::git::{self, GitError};
use super::history;
use super::notebook_file::NotebookFile;
use super::seen::SeenCells;
use crate::notebook::{Cell, ChangeKind, Document, Json, NotANotebook, Revision};

/// The number of revisions in an error message.
const MOST_NEAR: usize = 5;

/// The fewest digits that are accepted as the beginning of a revision.
const PREFIX_CHARS_MIN: usize = 3;

/// An earlier version of a notebook, to compare with.
#[derive(Clone, Debug)]
pub struct EarlierNotebook {
    /// The notebook.
    pub document: Document,
    /// Its name for a reader: `revision 9f8e7d6c5b`, `git HEAD (3f2c1a9)`.
    pub name: String,
    /// Whether it has its outputs; versions that `nb` stores have none.
    pub has_outputs: bool,
    /// The ids of cells whose earlier text is not known; `document` has them as they are now.
    pub unknown: Vec<String>,
    /// Why their text is not known.
    pub why_unknown: &'static str,
}

impl EarlierNotebook {
    /// Returns an earlier notebook whose every cell is known.
    pub fn whole(document: Document) -> Self {
        Self {
            name: format!("revision {}", document.revision()),
            document,
            has_outputs: true,
            unknown: Vec::new(),
            why_unknown: "",
        }
    }
}

/// A revision that a notebook had.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PastRevision {
    /// The revision.
    pub revision: Revision,
    /// When the notebook got it; none for the one that `nb` read first.
    pub at: Option<Timestamp>,
    /// The actor, if known.
    pub by: Option<String>,
}

/// Why an earlier notebook cannot be returned.
#[derive(Debug, thiserror::Error)]
pub enum EarlierError {
    /// The notebook never had that revision.
    #[error("the notebook has had no revision {prefix:?}")]
    NoSuchRevision {
        /// The revision asked for.
        prefix: String,
        /// The last revisions.
        last: Vec<PastRevision>,
    },
    /// The notebook had several revisions that begin so.
    #[error("the notebook has had several revisions that begin with {prefix:?}")]
    Ambiguous {
        /// The revision asked for.
        prefix: String,
        /// All of them.
        candidates: Vec<PastRevision>,
    },
    /// The journal has a gap, or does not reach back so far.
    #[error("which cells the notebook had at revision {0} is not known any more")]
    Unknown(Revision),
    /// Git has no such version.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The file in git is not a notebook.
    #[error("what git has at {reference} is not a notebook")]
    NotANotebook {
        /// The commit asked for.
        reference: String,
        /// The fault.
        source: NotANotebook,
    },
}

/// Returns a notebook at one of its revisions, given by a prefix. `now` is the notebook as it is,
/// and the saves of other programs have been recorded.
///
/// # Errors
/// The notebook never had that revision, or its cells at that revision are not known.
pub fn at_revision(
    notebook: &NotebookFile,
    now: &Document,
    prefix: &str,
) -> Result<EarlierNotebook, EarlierError> {
    let all = revisions(notebook, now.revision());
    let text = prefix.to_lowercase();
    let matches = |had: &&PastRevision| {
        text.len() >= PREFIX_CHARS_MIN && had.revision.to_string().starts_with(&text)
    };
    let found: Vec<_> = all.iter().filter(matches).cloned().collect();
    let revision = match found.as_slice() {
        [had] => had.revision,
        [] => {
            return Err(EarlierError::NoSuchRevision {
                prefix: prefix.to_owned(),
                last: all.into_iter().take(MOST_NEAR).collect(),
            });
        }
        _ => {
            return Err(EarlierError::Ambiguous {
                prefix: prefix.to_owned(),
                candidates: found,
            });
        }
    };
    let manifest = match revision == now.revision() {
        true => Some(history::steps::manifest(now)),
        false => history::manifest_at(notebook, revision),
    };
    let manifest = manifest.ok_or(EarlierError::Unknown(revision))?;
    let mut past = EarlierCells::of(notebook, now);
    for (id, revision) in manifest {
        past.add(id, Some(revision));
    }
    let why = "not remembered any more";
    Ok(past.earlier(format!("revision {revision}"), why))
}

/// Returns a notebook as an actor last saw it, cell by cell; `None` if it has seen no cell. Cells
/// that it never saw are included as they are now, unless they were inserted since.
pub fn as_seen(notebook: &NotebookFile, now: &Document, name: &str) -> Option<EarlierNotebook> {
    let seen = SeenCells::of(notebook, name);
    let known = seen.cells();
    if known.is_empty() {
        return None;
    }
    let mut inserted = HashSet::new();
    for event in history::events(notebook) {
        let steps = event.change.changes.into_iter();
        let new = steps.filter(|step| step.kind == ChangeKind::Inserted);
        inserted.extend(new.map(|step| step.cell));
    }
    let mut past = EarlierCells::of(notebook, now);
    for cell in now.cells() {
        let last = seen.last(cell.id());
        if last.is_some() || !inserted.contains(cell.id()) {
            past.add(cell.id().to_owned(), last);
        }
    }
    let mut deleted_cells: Vec<_> = history::deleted(notebook, now)
        .into_iter()
        .filter(|deleted| known.contains(&deleted.cell))
        .collect();
    deleted_cells.sort_by_key(|deleted| deleted.index);
    for deleted in deleted_cells {
        past.insert(deleted.index, deleted.cell, deleted.revision);
    }
    let why = "never shown whole, or not remembered any more";
    Some(past.earlier(format!("what {name} saw last"), why))
}

/// Returns a notebook in a commit.
///
/// # Errors
/// There is no git, no repository or no such commit; or the file is not in the commit or is not a
/// notebook there.
pub fn in_git(notebook: &NotebookFile, reference: &str) -> Result<EarlierNotebook, EarlierError> {
    let committed = git::committed(&notebook.real, reference)?;
    let document = Document::parse(committed.content);
    let document = document.map_err(|source| EarlierError::NotANotebook {
        reference: reference.to_owned(),
        source,
    })?;
    Ok(EarlierNotebook {
        name: match committed.commit == reference {
            true => format!("git {reference}"),
            false => format!("git {reference} ({})", committed.commit),
        },
        ..EarlierNotebook::whole(document)
    })
}

/// Returns the revisions that a notebook has had, the present one first, without repetitions.
fn revisions(notebook: &NotebookFile, now: Revision) -> Vec<PastRevision> {
    let mut list: Vec<PastRevision> = Vec::new();
    let mut add = |had: PastRevision| {
        if !list.iter().any(|known| known.revision == had.revision) {
            list.push(had);
        }
    };
    let mut first = now;
    for event in history::events(notebook) {
        add(PastRevision {
            revision: event.change.after,
            at: Some(event.at),
            by: event.by,
        });
        first = event.change.before;
    }
    for revision in [first, now] {
        add(PastRevision {
            revision,
            at: None,
            by: None,
        });
    }
    list
}

/// The cells of an earlier notebook.
struct EarlierCells<'a> {
    notebook: &'a NotebookFile,
    now: HashMap<&'a str, &'a Cell>,
    cells: Vec<(String, Json)>,
    unknown: Vec<String>,
}

impl<'a> EarlierCells<'a> {
    fn of(notebook: &'a NotebookFile, now: &'a Document) -> Self {
        let cells = now.cells().iter();
        Self {
            notebook,
            now: cells.map(|cell| (cell.id(), cell)).collect(),
            cells: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn add(&mut self, id: String, revision: Option<Revision>) {
        // Revisions leave out the outputs, which may be megabytes.
        let now = self.now.get(id.as_str()).copied();
        let json = match (revision, now) {
            (Some(revision), Some(cell)) if cell.revision() == revision => Some(cell.version()),
            (Some(revision), _) => history::version(self.notebook, revision),
            (None, _) => None,
        };
        let json = json.or_else(|| {
            self.unknown.push(id.clone());
            now.map(Cell::version)
        });
        self.cells.extend(json.map(|json| (id, json)));
    }

    fn insert(&mut self, index: usize, id: String, revision: Revision) {
        match history::version(self.notebook, revision) {
            Some(json) => {
                let index = index.min(self.cells.len());
                self.cells.insert(index, (id, json));
            }
            None => self.unknown.push(id),
        }
    }

    fn earlier(self, name: String, why_unknown: &'static str) -> EarlierNotebook {
        let cells = self.cells.iter().map(|(id, json)| (id.as_str(), json));
        EarlierNotebook {
            document: Document::of_cells(cells).expect("versions of cells are cells"),
            name,
            has_outputs: false,
            unknown: self.unknown,
            why_unknown,
        }
    }
}
