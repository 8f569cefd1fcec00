//! A whole notebook as it was: at an earlier revision, when a name saw it last, in git.

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use serde::Serialize;

use super::git::{self, GitError};
use super::history;
use super::notebook_file::NotebookFile;
use super::seen::Seen;
use crate::notebook::{Cell, ChangeKind, Document, Json, NotANotebook, Revision};

/// How many revisions an error suggests.
const MOST_NEAR: usize = 5;

/// The fewest digits of a revision that name it.
const LEAST: usize = 3;

/// A notebook as it was, to compare with.
#[derive(Clone, Debug)]
pub struct EarlierNotebook {
    /// The notebook.
    pub document: Document,
    /// The words for it: `revision 9f8e7d6c5b`, `git HEAD (3f2c1a9)`.
    pub name: String,
    /// Whether its outputs are what they were; what `nb` remembers has none.
    pub has_outputs: bool,
    /// The ids of cells whose earlier content is not known; `document` has them as they are now.
    pub unknown: Vec<String>,
    /// Why their content is not known.
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
    /// Since when; none for what `nb` found when it met the notebook.
    pub at: Option<Timestamp>,
    /// Who made it so, where that is known.
    pub by: Option<String>,
}

/// Why an earlier notebook cannot be given.
#[derive(Debug, thiserror::Error)]
pub enum EarlierError {
    /// It never had that revision.
    #[error("the notebook has had no revision {given:?}")]
    NoSuchRevision {
        /// What was asked for.
        given: String,
        /// The last ones.
        last: Vec<PastRevision>,
    },
    /// It had several that begin so.
    #[error("the notebook has had several revisions that begin with {given:?}")]
    Ambiguous {
        /// What was asked for.
        given: String,
        /// All of them.
        candidates: Vec<PastRevision>,
    },
    /// The journal has a gap, or does not reach back so far.
    #[error("which cells the notebook had at revision {0} is not known any more")]
    Unknown(Revision),
    /// Git has no such version.
    #[error(transparent)]
    Git(#[from] GitError),
    /// What git has is no notebook.
    #[error("what git has at {reference} is no notebook")]
    NotANotebook {
        /// What was asked for.
        reference: String,
        /// Where one would have gone on otherwise.
        source: NotANotebook,
    },
}

/// Returns a notebook as it was at a revision of its own, of which a beginning is enough; `now` is
/// what it is, and others' saves have been written down.
///
/// # Errors
/// It never had that revision, or too little is known of it.
pub fn at_revision(
    page: &NotebookFile,
    now: &Document,
    given: &str,
) -> Result<EarlierNotebook, EarlierError> {
    let all = had(page, now.revision());
    let text = given.to_lowercase();
    let begins =
        |had: &&PastRevision| text.len() >= LEAST && had.revision.to_string().starts_with(&text);
    let found: Vec<_> = all.iter().filter(begins).cloned().collect();
    let revision = match found.as_slice() {
        [had] => had.revision,
        [] => {
            return Err(EarlierError::NoSuchRevision {
                given: given.to_owned(),
                last: all.into_iter().take(MOST_NEAR).collect(),
            });
        }
        _ => {
            return Err(EarlierError::Ambiguous {
                given: given.to_owned(),
                candidates: found,
            });
        }
    };
    let manifest = match revision == now.revision() {
        true => Some(history::steps::manifest(now)),
        false => history::manifest_at(page, revision),
    };
    let manifest = manifest.ok_or(EarlierError::Unknown(revision))?;
    let mut past = Past::of(page, now);
    for (id, revision) in manifest {
        past.add(id, Some(revision));
    }
    let why = "not remembered any more";
    Ok(past.earlier(format!("revision {revision}"), why))
}

/// Returns a notebook as a name saw it last, cell by cell; none where it has seen nothing of it.
/// Cells that it never saw are as they are now, unless somebody has inserted them since.
pub fn as_seen(page: &NotebookFile, now: &Document, name: &str) -> Option<EarlierNotebook> {
    let seen = Seen::of(page, name);
    let known = seen.cells();
    if known.is_empty() {
        return None;
    }
    let mut inserted = HashSet::new();
    for event in history::events(page) {
        let steps = event.recorded.changes.into_iter();
        let new = steps.filter(|step| step.what == ChangeKind::Inserted);
        inserted.extend(new.map(|step| step.cell));
    }
    let mut past = Past::of(page, now);
    for cell in now.cells() {
        let last = seen.last(cell.id());
        if last.is_some() || !inserted.contains(cell.id()) {
            past.add(cell.id().to_owned(), last);
        }
    }
    let mut gone: Vec<_> = history::deleted(page, now)
        .into_iter()
        .filter(|deleted| known.contains(&deleted.cell))
        .collect();
    gone.sort_by_key(|deleted| deleted.index);
    for deleted in gone {
        past.insert(deleted.index, deleted.cell, deleted.revision);
    }
    let why = "never shown whole, or not remembered any more";
    Some(past.earlier(format!("what {name} saw last"), why))
}

/// Returns a notebook as it was in a commit.
///
/// # Errors
/// There is no git, no repository, no such commit; the commit does not have it, or it was none.
pub fn in_git(page: &NotebookFile, reference: &str) -> Result<EarlierNotebook, EarlierError> {
    let committed = git::committed(&page.real, reference)?;
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

/// Returns the revisions that a notebook has had, the present one first, each once.
fn had(page: &NotebookFile, now: Revision) -> Vec<PastRevision> {
    let mut list: Vec<PastRevision> = Vec::new();
    let mut add = |had: PastRevision| {
        if !list.iter().any(|known| known.revision == had.revision) {
            list.push(had);
        }
    };
    let mut first = now;
    for event in history::events(page) {
        add(PastRevision {
            revision: event.recorded.after,
            at: Some(event.at),
            by: event.by,
        });
        first = event.recorded.before;
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

/// The cells of a notebook that was, as they are put together.
struct Past<'a> {
    page: &'a NotebookFile,
    now: HashMap<&'a str, &'a Cell>,
    cells: Vec<(String, Json)>,
    unknown: Vec<String>,
}

impl<'a> Past<'a> {
    fn of(page: &'a NotebookFile, now: &'a Document) -> Self {
        let cells = now.cells().iter();
        Self {
            page,
            now: cells.map(|cell| (cell.id(), cell)).collect(),
            cells: Vec::new(),
            unknown: Vec::new(),
        }
    }

    fn add(&mut self, id: String, revision: Option<Revision>) {
        // Without its outputs, which may be megabytes and are not compared.
        let now = self.now.get(id.as_str()).copied();
        let json = match (revision, now) {
            (Some(revision), Some(cell)) if cell.revision() == revision => Some(cell.version()),
            (Some(revision), _) => history::version(self.page, revision),
            (None, _) => None,
        };
        let json = json.or_else(|| {
            self.unknown.push(id.clone());
            now.map(Cell::version)
        });
        self.cells.extend(json.map(|json| (id, json)));
    }

    fn insert(&mut self, index: usize, id: String, revision: Revision) {
        match history::version(self.page, revision) {
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
