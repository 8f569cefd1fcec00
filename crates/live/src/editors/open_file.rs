//! A notebook's file, as it is read for an editor that has it open.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use crate::editing::history;
use crate::editing::notebook_file::NotebookFile;
use crate::editing::transaction::stamp;
use crate::editing::view;
use crate::live::protocol::{EditorRequest, OpenedDocument};
use crate::live::{FileSnapshot, LiveDocument};
use crate::notebook::{ChangeKind, Document, Revision};
use crate::project::Project;
use crate::project::event::CellStep;
use crate::project::live_editor::{LiveNotebook, UnsavedText};

/// Who reads the notebook for the journal.
const NB: &str = "nb";

/// Who has written a file of which the journal says nothing.
const UNKNOWN_WRITER: &str = "another program";

/// How many times the journal is read for the writer of what the editor has not yet, and the pause between two times: an
/// edit is recorded once it is written. A writer that is not found by then is another program.
const LOOKS: u32 = 10;
const PAUSE: Duration = Duration::from_millis(25);

/// The events in which the writer is searched.
const RECENT_EVENTS: usize = 50;

/// A notebook that an editor has open, and its file.
pub(super) struct OpenFile {
    file: NotebookFile,
    /// The stamp of the file as it was read last.
    pub(super) stamp: String,
    /// When the version with this stamp was written.
    modified: Option<Timestamp>,
    /// Who has written the version with this stamp.
    by: String,
    /// What a writer is about to write.
    proposed: Option<FileSnapshot>,
    /// The revision of the last version that has the editor's texts, and that no command of `nb` wrote: the editor has
    /// saved it.
    saved: Option<Revision>,
    /// When the person began to type what is unsaved.
    since: Option<Timestamp>,
    pub(super) live: LiveDocument,
}

impl OpenFile {
    /// Reads a notebook that an editor has opened.
    ///
    /// # Errors
    /// The file cannot be read, or not edited; the message is for a reader.
    pub(super) async fn open(
        notebook: &Path,
        document: OpenedDocument,
        can_change: bool,
    ) -> Result<Self, String> {
        let path = notebook.to_owned();
        let opened = tokio::task::spawn_blocking(move || {
            let file = NotebookFile::of(&path).map_err(|error| error.to_string())?;
            let in_file = file.read().map_err(|error| error.to_string())?;
            let by = writer(&file, in_file.revision(), None).map(|it| it.by);
            let version = FileSnapshot {
                stamp: stamp(&in_file),
                by: by.unwrap_or_else(|| UNKNOWN_WRITER.to_owned()),
                document: in_file,
                removed: HashSet::new(),
            };
            let modified = modified(&file);
            let (stamp, by) = (version.stamp.clone(), version.by.clone());
            let earlier = match document.synced.as_ref().is_some_and(|it| *it != stamp) {
                true => earlier_texts(&file, &version.document, document.revision.as_deref()),
                false => HashMap::new(),
            };
            let live = LiveDocument::open(&document, version, &earlier, can_change);
            let live = live.map_err(|error| error.to_string())?;
            Ok(Self {
                file,
                stamp,
                modified,
                by,
                proposed: None,
                saved: None,
                since: None,
                live,
            })
        });
        opened.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Adds to a message about the file's version when that was written, and its revision.
    pub(super) fn date(&self, request: &mut EditorRequest) {
        if let EditorRequest::Synced {
            stamp,
            modified,
            revision,
        } = request
            && *stamp == self.stamp
        {
            *modified = self.modified;
            *revision = Some(self.live.revision().to_string());
        }
    }

    /// Returns the real path of the file.
    pub(super) fn real_path(&self) -> &Path {
        &self.file.real
    }

    /// Returns the file.
    pub(super) fn file(&self) -> &NotebookFile {
        &self.file
    }

    /// Returns the notebook's key in its project.
    pub(super) fn key(&self) -> &str {
        &self.file.key
    }

    pub(super) fn project(&self) -> &Project {
        &self.file.project
    }

    /// Takes in what a writer is about to write.
    pub(super) fn propose(&mut self, after: Document, by: String) {
        let after = FileSnapshot {
            stamp: stamp(&after),
            document: after,
            by,
            removed: HashSet::new(),
        };
        self.proposed = Some(after.clone());
        self.live.propose(after);
    }

    /// Says whether what a writer proposed is still to be written.
    pub(super) fn is_proposed(&self) -> bool {
        self.proposed.is_some()
    }

    /// The file has what was proposed.
    pub(super) fn wrote(&mut self) {
        let Some(after) = self.proposed.take() else {
            return;
        };
        self.stamp.clone_from(&after.stamp);
        self.by.clone_from(&after.by);
        self.modified = modified(&self.file);
        match self.live.needs_file() {
            true => self.live.file(after),
            false => self.live.written(),
        }
    }

    /// What was proposed is not written: with the next reading, what the file has counts.
    pub(super) fn forget_proposal(&mut self) {
        self.proposed = None;
    }

    /// Like [`OpenFile::forget_proposal`], and reads the file.
    pub(super) async fn withdraw(&mut self) {
        self.forget_proposal();
        self.read().await;
    }

    /// Reads the file again. While it cannot be read, the last version counts. What a writer proposed counts until the
    /// file changes.
    pub(super) async fn read(&mut self) {
        // A room's server writes what the editors have, also while they get what is proposed.
        if self.proposed.is_some() && self.live.is_room() {
            return;
        }
        let file = self.file.clone();
        let known = self.stamp.clone();
        let texts = self.live.texts();
        let before = self.live.revision();
        let read = tokio::task::spawn_blocking(move || {
            let document = file.read().ok()?;
            let stamp = stamp(&document);
            let modified = modified(&file);
            let revision = document.revision();
            let (writer, saved) = match stamp != known {
                true if has_texts(&document, &texts) => (None, Some(revision)),
                true => (writer_soon(&file, revision, before), None),
                false => (None, None),
            };
            Some((document, stamp, modified, writer, saved))
        });
        let Ok(Some((document, stamp, modified, writer, saved))) = read.await else {
            tracing::debug!(path = %self.file.real.display(), "an open notebook cannot be read");
            return;
        };
        if let Some(after) = &self.proposed {
            if stamp == after.stamp {
                return self.wrote();
            }
            if stamp == self.stamp {
                if self.live.needs_file() {
                    self.live.propose(after.clone());
                }
                return;
            }
            self.proposed = None;
        }
        self.modified = modified;
        self.saved = saved.or(self.saved);
        let mut removed = HashSet::new();
        if stamp != self.stamp {
            self.stamp.clone_from(&stamp);
            self.by = UNKNOWN_WRITER.to_owned();
            if let Some(writer) = writer {
                (self.by, removed) = (writer.by, writer.removed);
            }
        }
        self.live.file(FileSnapshot {
            document,
            stamp,
            by: self.by.clone(),
            removed,
        });
    }

    /// Has the journal say that the person has saved, while the record of this process is the evidence of it.
    pub(super) async fn record_save(&self) {
        if self.saved.is_none() {
            return;
        }
        let file = self.file.clone();
        let recorded = tokio::task::spawn_blocking(move || view::open(&file, NB).map(drop));
        if let Ok(Err(error)) = recorded.await {
            tracing::debug!(%error, "a save is not in the journal");
        }
    }

    /// Returns what a record has of the notebook.
    pub(super) fn record(&mut self) -> LiveNotebook {
        let unsaved = self.live.unsaved().into_iter();
        let cells: Vec<_> = unsaved
            .map(|text| UnsavedText {
                cell: text.id,
                source: text.source,
                base: text.base,
            })
            .collect();
        self.since = match cells.is_empty() {
            true => None,
            false => self.since.or_else(|| Some(Timestamp::now())),
        };
        LiveNotebook {
            notebook: self.file.key.clone(),
            room: self.live.is_room(),
            saved: self.saved,
            since: self.since,
            cells,
        }
    }
}

/// Returns the texts that a notebook's cells had at an earlier revision, by their ids, as far as they are kept.
fn earlier_texts(
    file: &NotebookFile,
    document: &Document,
    revision: Option<&str>,
) -> HashMap<String, String> {
    let revision = revision.and_then(|revision| revision.parse::<Revision>().ok());
    let earlier = revision.and_then(|revision| history::manifest_at(file, revision));
    let now: HashMap<_, _> = document
        .cells()
        .iter()
        .map(|cell| (cell.id(), cell))
        .collect();
    let text = |(id, revision): (String, Revision)| {
        let same = now.get(&*id).filter(|cell| cell.revision() == revision);
        let text = match same {
            Some(cell) => cell.source().into_owned(),
            None => history::version_source(file, revision)?,
        };
        Some((id, text))
    };
    earlier.into_iter().flatten().filter_map(text).collect()
}

/// Returns when a notebook was written last.
fn modified(file: &NotebookFile) -> Option<Timestamp> {
    let found = std::fs::metadata(&file.real).ok()?;
    found.modified().ok()?.try_into().ok()
}

/// Says whether a notebook has these texts, in this order.
fn has_texts(document: &Document, texts: &[String]) -> bool {
    let cells = document.cells();
    cells.len() == texts.len()
        && cells
            .iter()
            .zip(texts)
            .all(|(cell, text)| cell.source() == *text)
}

/// Who has written a version of the file, according to the journal.
struct Writer {
    by: String,
    /// The ids of the cells that commands of `nb` have removed since an earlier version.
    removed: HashSet<String>,
}

/// Looks in the journal for the writer of a version of the file, and for what was removed since the version `before`.
fn writer(file: &NotebookFile, revision: Revision, before: Option<Revision>) -> Option<Writer> {
    let events = file.project.events(&file.key).take(RECENT_EVENTS);
    let changes = events.filter_map(|event| Some((event.by.clone(), event.into_change()?)));
    let mut since = changes.skip_while(|(_, change)| change.after != revision);
    let (by, last) = since.next()?;
    let mut removed = HashSet::new();
    let earlier = since.map(|(_, change)| change);
    for change in std::iter::once(last).chain(earlier) {
        if Some(change.after) == before {
            break;
        }
        if change.op.is_some() {
            let steps = change.changes.into_iter();
            let is_removal = |step: &CellStep| step.kind == ChangeKind::Removed;
            removed.extend(steps.filter(is_removal).map(|step| step.cell));
        }
        // Nothing is known of what was before.
        if before.is_none() || Some(change.before) == before {
            break;
        }
    }
    Some(Writer { by: by?, removed })
}

/// Like [`writer`]; waits a moment for an edit that is not recorded yet.
fn writer_soon(file: &NotebookFile, revision: Revision, before: Revision) -> Option<Writer> {
    for look in 0..LOOKS {
        if look > 0 {
            std::thread::sleep(PAUSE);
        }
        if let Some(writer) = writer(file, revision, Some(before)) {
            return Some(writer);
        }
    }
    None
}
