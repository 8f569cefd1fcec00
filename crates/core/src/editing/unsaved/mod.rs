//! Finds unsaved text of a notebook in editors, before an edit.
//!
//! An editor that speaks to `nb live` reports its unsaved text within a moment (`live.rs`). Of VS Code without that there
//! are its backups.
//!
//! VS Code stores unsaved text in backup files (about a second after it was typed, ten seconds for
//! files on a server) and removes them when it saves or reverts. So the text of a backup is unsaved,
//! however old the file is: an editor that was closed or killed shows it again when it is next opened.
//! It then offers to overwrite the notebook, and what was written since is lost.
//!
//! Text that differs from the file was not always typed by a person. VS Code does not read others'
//! writes while its editor has unsaved changes: if `nb` edits a cell then, the backup still has the
//! cell's earlier text. The backup records the modification time of the file on which its text is
//! based. If that is not the present file, and a cell's text in the backup is the one from before an
//! edit in the journal, the cell does not count as typed in.

mod backup;
mod data_folders;
mod live;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use self::backup::Preamble;
use self::data_folders::DataFolder;
pub use self::live::LiveText;
use super::editor_back_off;
use super::notebook_file::NotebookFile;
use crate::activity::notification;
use crate::activity::zone;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::notebook::{Cell, Conflict, Document, Revision, merge_keeping_both, merge_texts};
use crate::project::joined::JoinedFrontEnd;

/// How many files are read at most.
const MOST_FILES: usize = 5_000;

/// The largest backup that is read, in bytes. VS Code writes none with more than 10 MB of outputs,
/// unless its `notebook.backup.sizeLimit` allows it.
const LARGEST_BACKUP: u64 = 256 << 20;

/// How long a backup that ends too early is read again: VS Code is writing it.
const HALF_WRITTEN: Duration = Duration::from_millis(500);

/// The time between two reads of such a backup.
const PAUSE: Duration = Duration::from_millis(20);

/// The age from which on the message contains a backup's path: its editor may have been killed.
const LONG_AGE: Duration = Duration::from_secs(3600);

/// The unsaved text of a notebook in VS Code.
#[derive(Clone, Debug)]
pub enum Unsaved {
    /// There is none that was typed more than a moment ago.
    None,
    /// VS Code has the notebook open, and its backups cannot be read from here.
    Unknown {
        /// The reason, for a reader.
        why: &'static str,
    },
    /// These texts; several if several editors have unsaved text.
    Found(Vec<UnsavedVersion>),
}

/// The unsaved text of one editor.
#[derive(Clone, Debug)]
pub enum UnsavedVersion {
    /// A backup of VS Code.
    Backup(Box<Backup>),
    /// What an editor reports through `nb live`.
    Live(LiveText),
}

/// A note for the actor that edits a notebook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnsavedNote {
    /// The note, one line.
    pub text: String,
    /// The notice to store once the note is printed, if an actor gets this note only once.
    pub notice: Option<String>,
}

/// One file of unsaved text.
#[derive(Clone, Debug)]
pub struct Backup {
    file: PathBuf,
    /// When it was written.
    at: Option<Timestamp>,
    /// The notebook that a save would write; `None` if it is not a notebook.
    document: Option<Document>,
    /// The modification time of the file on which the text is based, if that is not the present
    /// file.
    based_on: Option<Timestamp>,
}

/// Searches for unsaved text of a notebook.
pub fn find(notebook: &NotebookFile) -> Unsaved {
    find_with(notebook, &ProcessVariables)
}

fn find_with(notebook: &NotebookFile, variables: &dyn Variables) -> Unsaved {
    if let Some(texts) = live::texts(notebook) {
        let found = texts.into_iter().filter(|it| !it.is_empty());
        let found: Vec<_> = found.map(UnsavedVersion::Live).collect();
        return match found.is_empty() {
            true => Unsaved::None,
            false => Unsaved::Found(found),
        };
    }
    let places = data_folders::of_user(variables);
    let found = backups(notebook, &places);
    if !found.is_empty() {
        return Unsaved::Found(
            found
                .into_iter()
                .map(|it| UnsavedVersion::Backup(Box::new(it)))
                .collect(),
        );
    }
    let elsewhere = match data_folders::elsewhere(variables, &|path| Path::new(path).exists()) {
        None if places.is_empty() => Some("the folder of its backups is not known"),
        elsewhere => elsewhere,
    };
    let joined = || {
        editor_back_off::joined(notebook)
            .iter()
            .any(editor_back_off::is_vs_code)
    };
    match elsewhere {
        Some(why) if joined() => Unsaved::Unknown { why },
        _ => Unsaved::None,
    }
}

/// The setting that makes VS Code save automatically.
pub const AUTO_SAVE: &str = "\"files.autoSave\": \"afterDelay\"";

/// Returns the settings files of the installed editors that do not save automatically: an unsaved tab
/// hides what others write.
pub fn without_auto_save(variables: &dyn Variables) -> Vec<PathBuf> {
    let mut files = data_folders::settings(variables);
    files.retain(|file| {
        let settings = std::fs::read_to_string(file).unwrap_or_default();
        data_folders::saves_nothing(&settings)
    });
    files
}

impl Unsaved {
    /// Returns the changes of cells that have unsaved text, as conflicts with that text as `theirs`. A change of other lines is
    /// none where the editor merges it, nor is one `by` the person who has typed the text there.
    pub fn conflicts(
        &self,
        notebook: &NotebookFile,
        before: &Document,
        after: &Document,
        by: &str,
    ) -> Vec<Conflict> {
        let Self::Found(versions) = self else {
            return Vec::new();
        };
        let cells = after.cells().iter();
        let remaining: HashMap<_, _> = cells.map(|cell| (cell.id(), cell)).collect();
        let mut conflicts: Vec<Conflict> = Vec::new();
        for version in versions.iter().filter(|it| !it.is_by(by)) {
            for (cell, theirs) in version.typed_in(notebook, before) {
                let yours = remaining.get(cell.id());
                let is_conflict = yours.is_none_or(|yours| {
                    yours.revision() != cell.revision()
                        && !yours.has_same_text(&theirs)
                        && !version.merges(cell, yours, &theirs)
                });
                let is_new = |it: &Conflict| it.cell.as_deref() != Some(cell.id());
                if is_conflict && conflicts.iter().all(is_new) {
                    conflicts.push(conflict(cell, yours.copied(), &theirs));
                }
            }
        }
        conflicts
    }

    /// Returns the ids of the cells that have unsaved text.
    pub fn typed_in(&self, notebook: &NotebookFile, document: &Document) -> Vec<String> {
        let Self::Found(versions) = self else {
            return Vec::new();
        };
        let mut cells: Vec<String> = Vec::new();
        for version in versions {
            for (cell, _) in version.typed_in(notebook, document) {
                if !cells.iter().any(|known| known == cell.id()) {
                    cells.push(cell.id().to_owned());
                }
            }
        }
        cells
    }

    /// Returns how long there has been unsaved text, for a reader.
    pub fn age(&self) -> String {
        let Self::Found(versions) = self else {
            return String::new();
        };
        let ages: Vec<_> = versions.iter().map(UnsavedVersion::age).collect();
        ages.join(", ")
    }

    /// Returns the name of the editor that has unsaved text, for a reader.
    pub fn editor(&self) -> String {
        match self {
            Self::Found(versions) => {
                let mut names: Vec<_> = versions.iter().map(UnsavedVersion::editor).collect();
                names.dedup();
                names.join(" and ")
            }
            _ => JoinedFrontEnd::VS_CODE.to_owned(),
        }
    }

    /// Returns the note for the actor that edits the notebook; `None` if no editor has unsaved text that hides the edit.
    /// Each actor is notified only once that it cannot be known.
    pub fn note(
        &self,
        notebook: &NotebookFile,
        document: &Document,
        actor: &str,
    ) -> Option<UnsavedNote> {
        let versions = match self {
            Self::None => return None,
            Self::Unknown { why } => {
                let notice = editors(notebook);
                if !notification::is_new(&notebook.project, actor, &notice) {
                    return None;
                }
                let text = format!(
                    "VS Code has this notebook open; whether with unsaved changes is not known from here, since {why}: \
                     its backups may be elsewhere, and come up to 10 s after typing; {AUTO_SAVE} in its settings saves within a second"
                );
                return Some(UnsavedNote {
                    text,
                    notice: Some(notice),
                });
            }
            // It has the edit already, and its save asks nothing.
            Self::Found(versions) if versions.iter().all(UnsavedVersion::can_change) => {
                return None;
            }
            Self::Found(versions) => versions,
        };
        let cells = self.typed_in(notebook, document);
        let readable = versions.iter().all(UnsavedVersion::is_readable);
        let changes = match (cells.len(), readable) {
            (0, true) => "unsaved changes, though not of a cell's text".to_owned(),
            (0, false) => "unsaved changes that cannot be read".to_owned(),
            (1, _) => format!("unsaved changes in cell {}", cells[0]),
            (..) => format!("unsaved changes in cells {}", cells.join(", ")),
        };
        let text = format!(
            "{} has {changes}: at its next save it will ask whether to overwrite what was written here",
            self.editor()
        );
        let notice = None;
        Some(UnsavedNote { text, notice })
    }
}

impl UnsavedVersion {
    /// Returns the editor's name.
    fn editor(&self) -> String {
        match self {
            Self::Backup(_) => JoinedFrontEnd::VS_CODE.to_owned(),
            Self::Live(text) => text.editor.clone(),
        }
    }

    fn can_change(&self) -> bool {
        matches!(self, Self::Live(text) if text.can_change)
    }

    /// Says whether the editor merges a change of a cell with the person's, which is in other lines.
    fn merges(&self, cell: &Cell, yours: &Cell, theirs: &Cell) -> bool {
        let Self::Live(text) = self else {
            return false;
        };
        let base = text.base(cell.id()).filter(|_| text.can_change);
        let Some(base) = base.filter(|_| yours.cell_type() == cell.cell_type()) else {
            return false;
        };
        // The editor may not have the last lines of the file yet: they are not what the person has changed.
        let file = cell.source();
        let theirs = merge_keeping_both(base, &theirs.source(), &file);
        merge_texts(&file, &yours.source(), &theirs).is_some()
    }

    /// Says whether the person who acts under this name has typed it. A backup does not tell.
    fn is_by(&self, by: &str) -> bool {
        matches!(self, Self::Live(text) if text.by == by)
    }

    fn is_readable(&self) -> bool {
        match self {
            Self::Backup(backup) => backup.document.is_some(),
            Self::Live(_) => true,
        }
    }

    fn age(&self) -> String {
        match self {
            Self::Backup(backup) => backup.age(),
            Self::Live(text) => text.age(),
        }
    }

    /// Returns the cells that a person has typed in, each with its unsaved version.
    fn typed_in<'a>(&self, notebook: &NotebookFile, file: &'a Document) -> Vec<(&'a Cell, Cell)> {
        match self {
            Self::Backup(backup) => backup.typed_in(notebook, file),
            Self::Live(text) => text.typed_in(file),
        }
    }
}

impl Backup {
    /// Returns how long the text has been unsaved, for a reader; with the path if the backup is
    /// old.
    fn age(&self) -> String {
        let place = format!("in {}", self.file.display());
        let Some(at) = self.at else {
            return place;
        };
        let clock = zone::clock(at, &zone::here());
        let age = Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or_default();
        match age > LONG_AGE {
            true => format!("since {clock}, {place}"),
            false => format!("since {clock}"),
        }
    }

    /// Returns the cells that a person has typed in, each with its unsaved version.
    fn typed_in<'a>(&self, notebook: &NotebookFile, file: &'a Document) -> Vec<(&'a Cell, Cell)> {
        let Some(unsaved) = &self.document else {
            return Vec::new();
        };
        let pairs = file.cells().iter().zip(file.counterparts(unsaved));
        let differing = pairs.filter_map(|(cell, at)| Some((cell, unsaved.cells().get(at?)?)));
        let mut differing: Vec<_> = differing
            .filter(|(cell, theirs)| !cell.has_same_text(theirs))
            .map(|(cell, theirs)| (cell, theirs.clone()))
            .collect();
        if let Some(based_on) = self.based_on
            && !differing.is_empty()
        {
            let earlier = earlier(notebook, based_on);
            differing.retain(|(cell, theirs)| {
                let earlier = earlier.get(cell.id());
                earlier.is_none_or(|earlier| !earlier.contains(&theirs.revision()))
            });
        }
        differing
    }
}

fn conflict(base: &Cell, yours: Option<&Cell>, theirs: &Cell) -> Conflict {
    let differ = base.source() != theirs.source();
    let (field, text): (_, fn(&Cell) -> String) = match (yours, differ) {
        (None, _) => ("deleted", |cell| cell.source().into_owned()),
        (Some(_), true) => ("source", |cell| cell.source().into_owned()),
        (Some(_), false) => ("cell_type", |cell| cell.cell_type().to_string()),
    };
    Conflict {
        cell: Some(base.id().to_owned()),
        field: field.to_owned(),
        base: Some(text(base)),
        yours: yours.map(text),
        theirs: Some(text(theirs)),
        revision: Some(base.revision()),
    }
}

/// Returns the revisions that cells had before the edits since a moment, according to the journal. A file's time in
/// the future, from another machine's clock, says nothing about the order: then all edits count.
fn earlier(notebook: &NotebookFile, since: Timestamp) -> HashMap<String, HashSet<Revision>> {
    let mut found: HashMap<String, HashSet<Revision>> = HashMap::new();
    let events = notebook.project.events(&notebook.key);
    let proves_nothing = since > Timestamp::now();
    for event in events.take_while(|event| proves_nothing || event.at > since) {
        let changes = event.into_change().map(|change| change.changes);
        for change in changes.unwrap_or_default() {
            if let Some(before) = change.before {
                found.entry(change.cell).or_default().insert(before);
            }
        }
    }
    found
}

/// Returns the notice for the VS Code windows that have the notebook open now; other windows give
/// another notice.
fn editors(notebook: &NotebookFile) -> String {
    let joined = editor_back_off::joined(notebook);
    let editors = joined
        .iter()
        .filter(|joined| editor_back_off::is_vs_code(joined));
    let editors: Vec<_> = editors
        .map(|joined| format!("{} {}", joined.pid, joined.start_time))
        .collect();
    format!("editors of {}: {}", notebook.key, editors.join(", "))
}

/// Returns the backups of a notebook.
fn backups(notebook: &NotebookFile, places: &[DataFolder]) -> Vec<Backup> {
    let modified_ms = std::fs::metadata(&notebook.real)
        .and_then(|found| found.modified())
        .ok()
        .and_then(|at| at.duration_since(UNIX_EPOCH).ok())
        .map(|since| since.as_secs_f64() * 1000.0);
    let mut found = Vec::new();
    for (file, scheme) in files(places) {
        let Ok(begin) = beginning(&file) else {
            continue;
        };
        let Some(preamble) = Preamble::read(&begin, scheme) else {
            continue;
        };
        if !is_of(notebook, &preamble.path) {
            continue;
        }
        // VS Code's times are whole milliseconds, rounded up or down.
        let is_based_on_this = |ms: f64| modified_ms.is_some_and(|now| (now - ms).abs() <= 1.0);
        let based_on = preamble.based_on_ms.filter(|ms| !is_based_on_this(*ms));
        let written = std::fs::metadata(&file).and_then(|found| found.modified());
        let at = written.ok().and_then(|at| Timestamp::try_from(at).ok());
        // If the file was removed in the meantime, VS Code has saved.
        if let Ok(document) = content(&file) {
            found.push(Backup {
                document,
                based_on: based_on.and_then(timestamp),
                at,
                file,
            });
        }
    }
    found
}

/// Returns the files in these folders, each with the scheme of its URI.
fn files(places: &[DataFolder]) -> impl Iterator<Item = (PathBuf, &'static str)> {
    let schemes = places.iter().flat_map(|place| {
        let workspaces = data_folders::folders(&place.folder).into_iter();
        workspaces.map(|workspace| (workspace.join(place.scheme), place.scheme))
    });
    let files = schemes.flat_map(|(folder, scheme)| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // Opening a pipe may block for ever.
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        files.map(move |entry| (entry.path(), scheme))
    });
    files.take(MOST_FILES)
}

fn beginning(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?
        .take(backup::LINE as u64)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// Reads the notebook that a save would write; `None` if it is not a notebook.
fn content(file: &Path) -> io::Result<Option<Document>> {
    let begun = Instant::now();
    loop {
        if std::fs::metadata(file)?.len() > LARGEST_BACKUP {
            return Ok(None);
        }
        let mut text = std::fs::read(file)?;
        let line = text
            .iter()
            .take(backup::LINE)
            .position(|byte| *byte == b'\n');
        let cut_off = match line {
            None => true,
            Some(end) => match Document::parse(text.split_off(end + 1)) {
                Ok(document) => return Ok(Some(document)),
                Err(fault) => fault.cut_off,
            },
        };
        if !cut_off || begun.elapsed() >= HALF_WRITTEN {
            return Ok(None);
        }
        std::thread::sleep(PAUSE);
    }
}

/// Returns whether a path leads to the notebook.
fn is_of(notebook: &NotebookFile, path: &Path) -> bool {
    if path == notebook.real || path == notebook.path {
        return true;
    }
    let is_notebook = path.extension().is_some_and(|ending| ending == "ipynb");
    is_notebook && std::fs::canonicalize(path).is_ok_and(|real| real == notebook.real)
}

fn timestamp(ms: f64) -> Option<Timestamp> {
    let since = Duration::try_from_secs_f64(ms / 1000.0).ok()?;
    Timestamp::try_from(SystemTime::UNIX_EPOCH.checked_add(since)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editing::editor_back_off::joined_here;
    use crate::kernel::process::Process;
    use crate::notebook::{NewCell, Operation};
    use crate::project::event::fixtures::event;
    use crate::project::live_editor::{LiveEditor, LiveNotebook, UnsavedText};
    use crate::project::pid_namespace;

    const NOTEBOOK: &str = r#"{"cells":[
 {"cell_type":"code","execution_count":null,"id":"aaaa","metadata":{},"outputs":[],"source":"x = 1"},
 {"cell_type":"code","execution_count":null,"id":"bbbb","metadata":{},"outputs":[],"source":"y = 1"}
],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;

    /// A home folder with a notebook, VS Code's folders and its unsaved text.
    struct Desk {
        home: tempfile::TempDir,
        notebook: NotebookFile,
    }

    impl Desk {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a é.ipynb");
            std::fs::write(&path, NOTEBOOK).unwrap();
            let notebook = NotebookFile::of(&path).unwrap();
            std::fs::create_dir_all(home.path().join(".config/Code/Backups/1/file")).unwrap();
            Self { home, notebook }
        }

        fn backups(&self) -> PathBuf {
            let settings = match cfg!(target_os = "macos") {
                true => "Library/Application Support",
                false => ".config",
            };
            self.home.path().join(settings).join("Code/Backups/1/file")
        }

        fn address(&self) -> String {
            let folder = self.home.path().canonicalize().unwrap();
            format!("file://{}/a%20%C3%A9.ipynb", folder.display())
        }

        /// Makes the notebook's text unsaved, based on the file as it was so many milliseconds ago.
        fn unsaved(&self, text: &str, ago_ms: f64) {
            let modified = std::fs::metadata(&self.notebook.real).unwrap().modified();
            let since = modified.unwrap().duration_since(UNIX_EPOCH).unwrap();
            let mtime = (since.as_secs_f64() * 1000.0 - ago_ms).round();
            let address = self.address();
            let line = format!("{address} {{\"mtime\":{mtime},\"typeId\":\"notebook/x/x\"}}\n");
            std::fs::write(self.backups().join("-5f3e"), line + text).unwrap();
        }

        fn find(&self) -> Unsaved {
            let home = self.home.path().to_str().unwrap();
            find_with(&self.notebook, &HashMap::from([("HOME", home)]))
        }

        /// Returns the conflicts and the note of an edit of the first cell.
        fn is_conflict(&self, source: &str) -> (Vec<Conflict>, Option<String>) {
            let before = self.notebook.read().unwrap();
            let edit = Operation::read_list(&format!(
                r#"[{{"op":"edit","cell":"aaaa","source":{source:?}}}]"#
            ));
            let (after, _) = before
                .applied(&edit.unwrap(), &mut || unreachable!("no new cell"))
                .unwrap();
            let unsaved = self.find();
            (
                unsaved.conflicts(&self.notebook, &before, &after, "claude"),
                unsaved
                    .note(&self.notebook, &before, "claude")
                    .map(|note| note.text),
            )
        }
    }

    #[test]
    fn text_of_the_same_cell_is_a_conflict_and_of_another_a_note() {
        let desk = Desk::new();
        assert!(matches!(desk.find(), Unsaved::None));
        desk.unsaved(&NOTEBOOK.replace("x = 1", "x = 'typed'"), 0.0);
        let (conflicts, note) = desk.is_conflict("x = 2");
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].base.as_deref(), Some("x = 1"));
        assert_eq!(conflicts[0].yours.as_deref(), Some("x = 2"));
        assert_eq!(conflicts[0].theirs.as_deref(), Some("x = 'typed'"));
        assert!(note.unwrap().contains("unsaved changes in cell aaaa"));
        // If the editor was killed long ago, the message names the file.
        let (file, place) = (desk.backups().join("-5f3e"), "/Code/Backups/1/file/-5f3e");
        assert!(!desk.find().age().contains(place));
        let backup = File::options().append(true).open(&file).unwrap();
        backup.set_modified(UNIX_EPOCH).unwrap();
        assert!(desk.find().age().ends_with(place));
        // The text that the person typed may be written.
        assert_eq!(desk.is_conflict("x = 'typed'").0, []);
        desk.unsaved(&NOTEBOOK.replace("y = 1", "y = 'typed'"), 0.0);
        let (conflicts, note) = desk.is_conflict("x = 2");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("unsaved changes in cell bbbb"));
        // Outputs also make an editor unsaved.
        desk.unsaved(&NOTEBOOK.replacen("null", "3", 1), 0.0);
        let (conflicts, note) = desk.is_conflict("x = 2");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("though not of a cell's text"));
    }

    #[test]
    fn a_text_that_was_edited_here_meanwhile_is_not_the_persons() {
        let desk = Desk::new();
        let notebook = &desk.notebook;
        let before = notebook.read().unwrap().cells()[0].revision();
        std::fs::write(&notebook.real, NOTEBOOK.replace("x = 1", "x = 'agent'")).unwrap();
        // The editor had read the file of a minute ago, and still has its text of this cell.
        desk.unsaved(&NOTEBOOK.replace("y = 1", "y = 'typed'"), 60_000.0);
        assert_eq!(
            desk.is_conflict("x = 3").0.len(),
            1,
            "nobody knows of an edit"
        );
        let change = serde_json::json!({
            "cell": "aaaa", "what": "edited", "index": 0, "before": before.to_string(),
        });
        notebook.project.record(&[event(serde_json::json!({
            "event": "edited", "session": notebook.key, "before": "0123456789", "after": "0123456789",
            "changes": [change],
        }))]);
        let (conflicts, note) = desk.is_conflict("x = 3");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("unsaved changes in cell bbbb:"));
        // A machine whose clock is ahead had written the file that the editor has read.
        desk.unsaved(&NOTEBOOK.replace("y = 1", "y = 'typed'"), -3_600_000.0);
        assert_eq!(desk.is_conflict("x = 3").0, []);
        // A person changed the cell back to the earlier text, in an editor that had read the edit:
        // that is typed.
        desk.unsaved(NOTEBOOK, 0.0);
        assert_eq!(desk.is_conflict("x = 3").0.len(), 1);
    }

    #[test]
    fn only_this_notebooks_backups_are_taken_and_none_of_them_is_trusted() {
        let desk = Desk::new();
        let file = desk.backups().join("1");
        for text in [
            String::new(),
            "\n".to_owned(),
            format!("{} {{}}", desk.address()),
            format!("untitled:Untitled-1.ipynb {{}}\n{NOTEBOOK}"),
            format!("file:///elsewhere/a.ipynb {{}}\n{NOTEBOOK}"),
        ] {
            std::fs::write(&file, text).unwrap();
            assert!(matches!(desk.find(), Unsaved::None));
        }
        for text in ["", "{\"cells\":[", "[1]", "\u{0}", &"[".repeat(100_000)] {
            std::fs::write(&file, format!("{} {{}}\n{text}", desk.address())).unwrap();
            let (conflicts, note) = desk.is_conflict("x = 2");
            assert_eq!(conflicts, []);
            assert!(note.unwrap().contains("cannot be read"));
        }
        std::fs::remove_file(&file).unwrap();
        let link = desk.home.path().join("link.ipynb");
        std::os::unix::fs::symlink(&desk.notebook.real, &link).unwrap();
        let typed = NOTEBOOK.replace("x = 1", "x = 'typed'");
        let address = format!("file://{}", link.display());
        std::fs::write(&file, format!("{address} {{}}\n{typed}")).unwrap();
        assert_eq!(desk.is_conflict("x = 2").0.len(), 1);
    }

    #[test]
    fn cells_without_ids_are_found_by_what_they_say() {
        let desk = Desk::new();
        let old = NOTEBOOK
            .replace("\"id\":\"aaaa\",", "")
            .replace("\"id\":\"bbbb\",", "")
            .replace("minor\":5", "minor\":4");
        std::fs::write(&desk.notebook.real, &old).unwrap();
        let before = desk.notebook.read().unwrap();
        let mut theirs = before.clone();
        let new = NewCell {
            id: "cccc".to_owned(),
            cell_type: crate::notebook::CellType::Code,
            source: "z = 1".to_owned(),
            metadata: None,
        };
        theirs.insert(0, &new).unwrap();
        desk.unsaved(std::str::from_utf8(&theirs.to_bytes()).unwrap(), 0.0);
        let note = desk.find().note(&desk.notebook, &before, "claude").unwrap();
        assert!(
            note.text.contains("though not of a cell's text"),
            "{note:?}"
        );
    }

    #[test]
    fn backups_that_cannot_be_read_are_noted_until_the_note_is_printed() {
        let desk = Desk::new();
        let home = desk.home.path().to_str().unwrap();
        let ssh = HashMap::from([("HOME", home), ("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22")]);
        let find = || find_with(&desk.notebook, &ssh);
        let note = |name| find().note(&desk.notebook, &desk.notebook.read().unwrap(), name);
        assert_eq!(note("claude"), None, "no VS Code is joined");
        let joined = joined_here(&desk.notebook, "VS Code", Timestamp::now());
        desk.notebook.project.write_joined(&joined).unwrap();
        let first = note("claude").unwrap();
        // The tests themselves may run in a container.
        let says = "not known from here, since this is";
        assert!(first.text.contains(says), "{first:?}");
        // A command that was killed before it printed the note does not count.
        assert_eq!(note("claude").as_ref(), Some(&first));
        notification::noticed(&desk.notebook.project, "claude", &[first.notice.unwrap()]);
        assert_eq!(note("claude"), None);
        assert!(note("codex").is_some());
    }

    #[test]
    fn an_edit_of_other_lines_is_a_conflict_only_where_the_editor_does_not_merge_it() {
        let desk = Desk::new();
        let text = |source: &str| NOTEBOOK.replace("x = 1", source);
        std::fs::write(&desk.notebook.real, text("x = 1\\ny = 1")).unwrap();
        let conflicts = |base: Option<&str>, source: &str, by: &str| {
            let process = Process::current();
            let record = LiveEditor {
                pid: process.pid,
                start_time: process.start_time,
                boot_id: process.boot_id,
                pid_namespace: pid_namespace(),
                at: Timestamp::now(),
                editor: "browser".to_owned(),
                can_change: true,
                only_texts: true,
                notebooks: vec![LiveNotebook {
                    notebook: desk.notebook.key.clone(),
                    room: false,
                    saved: None,
                    since: None,
                    cells: vec![UnsavedText {
                        cell: "aaaa".to_owned(),
                        source: "typed\ny = 1".to_owned(),
                        base: base.map(str::to_owned),
                    }],
                }],
            };
            desk.notebook.project.write_live_editor(&record).unwrap();
            let before = desk.notebook.read().unwrap();
            let after = Document::parse(text(source).into_bytes()).unwrap();
            desk.find()
                .conflicts(&desk.notebook, &before, &after, by)
                .len()
        };
        let merges = Some("x = 1\ny = 1");
        assert_eq!(conflicts(merges, "agent\\ny = 1", "claude"), 1);
        assert_eq!(conflicts(merges, "x = 1\\ny = 2", "claude"), 0);
        assert_eq!(conflicts(None, "x = 1\\ny = 2", "claude"), 1);
        // The file has lines of others, and of an earlier save, that the editor does not take into account yet.
        let earlier = text("typ\\ny = 0");
        std::fs::write(&desk.notebook.real, earlier).unwrap();
        assert_eq!(conflicts(merges, "typ\\ny = 2", "claude"), 0);
        // The person's own save comes from there.
        assert_eq!(conflicts(merges, "agent\\ny = 1", "human (browser)"), 0);
    }
}
