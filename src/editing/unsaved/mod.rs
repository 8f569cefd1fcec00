//! What a person typed in VS Code and has not saved: looked for before an edit.
//!
//! VS Code keeps unsaved text in files of its own (about a second after it was typed, ten for what
//! it edits on a server) and removes them when it saves or reverts. So whatever such a file holds
//! is unsaved, however old the file is: an editor that was closed or killed shows it again when it
//! is next opened. Overwriting is what it offers then, and what was written since is lost.
//!
//! The text that differs from the file is not always the person's. VS Code does not take in what
//! others write while its editor has unsaved changes: of a cell that was edited here meanwhile it
//! keeps the text of before. It records when the file was modified on which its text is based; if
//! that is not the file as it is now, a cell that says there what it said before an edit that the
//! journal knows of is one that nobody has typed in.

mod backup;
mod data_folders;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

use self::backup::Preamble;
use self::data_folders::DataFolder;
use super::notebook_file::NotebookFile;
use super::write_policy;
use crate::activity::notification;
use crate::activity::zone;
use crate::kernel::variables::{ProcessVariables, Variables};
use crate::notebook::{Cell, Conflict, Document, Revision};

/// How many files are looked into at most.
const MANY: usize = 5_000;

/// How large one is at most that is read: VS Code keeps none with more than 10 MB of outputs,
/// unless its `notebook.backup.sizeLimit` says so.
const LARGE: u64 = 256 << 20;

/// How long a backup that ends too early is read again: it is just being written.
const HALF_WRITTEN: Duration = Duration::from_millis(500);

/// How often it is read meanwhile.
const LOOK: Duration = Duration::from_millis(20);

/// What is unsaved for longer is not being typed just now.
const LONG: Duration = Duration::from_secs(3600);

/// What is unsaved of a notebook in VS Code.
#[derive(Clone, Debug)]
pub enum Unsaved {
    /// Nothing that was typed more than a moment ago.
    None,
    /// A VS Code has the notebook open, and keeps its unsaved text where it cannot be seen.
    Unknown {
        /// What makes one think so, in words for a reader.
        why: &'static str,
    },
    /// These; more than one where the notebook is open in several.
    Found(Vec<Backup>),
}

/// One file of unsaved text.
#[derive(Clone, Debug)]
pub struct Backup {
    file: PathBuf,
    /// When it was written.
    at: Option<Timestamp>,
    /// What a save would write; none where it is no notebook.
    document: Option<Document>,
    /// When the notebook was modified on which it is based, where that is not the notebook as it
    /// is now.
    based_on: Option<Timestamp>,
}

/// Looks for unsaved text of a notebook.
pub fn look(page: &NotebookFile) -> Unsaved {
    look_with(page, &ProcessVariables)
}

fn look_with(page: &NotebookFile, variables: &dyn Variables) -> Unsaved {
    let places = data_folders::of_user(variables);
    let found = backups(page, &places);
    if !found.is_empty() {
        return Unsaved::Found(found);
    }
    let elsewhere = match data_folders::elsewhere(variables, &|path| Path::new(path).exists()) {
        None if places.is_empty() => Some("the folder of its backups is not known"),
        elsewhere => elsewhere,
    };
    let joined = || {
        write_policy::joined(page)
            .iter()
            .any(write_policy::is_vs_code)
    };
    match elsewhere {
        Some(why) if joined() => Unsaved::Unknown { why },
        _ => Unsaved::None,
    }
}

/// The setting with which VS Code saves by itself.
pub const AUTO_SAVE: &str = "\"files.autoSave\": \"afterDelay\"";

/// Returns the settings of the editors that are installed here and save nothing by themselves: an
/// unsaved tab hides what others write.
pub fn without_auto_save(variables: &dyn Variables) -> Vec<PathBuf> {
    let mut files = data_folders::settings(variables);
    files.retain(|file| {
        let settings = std::fs::read_to_string(file).unwrap_or_default();
        data_folders::saves_nothing(&settings)
    });
    files
}

impl Unsaved {
    /// Returns which of a notebook's changes meet unsaved text of the same cell, as conflicts in
    /// which that text is `theirs`.
    pub fn conflicts(
        &self,
        page: &NotebookFile,
        before: &Document,
        after: &Document,
    ) -> Vec<Conflict> {
        let Self::Found(backups) = self else {
            return Vec::new();
        };
        let cells = after.cells().iter();
        let kept: HashMap<_, _> = cells.map(|cell| (cell.id(), cell)).collect();
        let mut conflicts: Vec<Conflict> = Vec::new();
        for backup in backups {
            for (cell, theirs) in backup.typed_in(page, before) {
                let yours = kept.get(cell.id());
                let meets = yours.is_none_or(|yours| {
                    yours.revision() != cell.revision() && !is_same(yours, &theirs)
                });
                let is_new = |it: &Conflict| it.cell.as_deref() != Some(cell.id());
                if meets && conflicts.iter().all(is_new) {
                    conflicts.push(conflict(cell, yours.copied(), &theirs));
                }
            }
        }
        conflicts
    }

    /// Returns since when something is unsaved, in words.
    pub fn age(&self) -> String {
        let Self::Found(backups) = self else {
            return String::new();
        };
        let ages: Vec<_> = backups.iter().map(Backup::age).collect();
        ages.join(", ")
    }

    /// Returns what the writer of a notebook should know, as one line. None where VS Code has
    /// nothing unsaved; that it is not known is told to each name once.
    pub fn note(&self, page: &NotebookFile, document: &Document, name: &str) -> Option<String> {
        let backups = match self {
            Self::None => return None,
            Self::Unknown { why } => {
                let notice = editors(page);
                if !notification::is_new(&page.project, name, &notice) {
                    return None;
                }
                notification::noticed(&page.project, name, &[notice]);
                return Some(format!(
                    "VS Code has this notebook open; whether with unsaved changes is not known from here, since {why}: \
                     its backups may be elsewhere, and come up to 10 s after typing; {AUTO_SAVE} in its settings saves within a second"
                ));
            }
            Self::Found(backups) => backups,
        };
        let mut cells: Vec<String> = Vec::new();
        for backup in backups {
            for (cell, _) in backup.typed_in(page, document) {
                if !cells.iter().any(|known| known == cell.id()) {
                    cells.push(cell.id().to_owned());
                }
            }
        }
        let readable = backups.iter().all(|backup| backup.document.is_some());
        let what = match (cells.len(), readable) {
            (0, true) => "unsaved changes, though not of a cell's text".to_owned(),
            (0, false) => "unsaved changes that cannot be read".to_owned(),
            (1, _) => format!("unsaved changes in cell {}", cells[0]),
            (..) => format!("unsaved changes in cells {}", cells.join(", ")),
        };
        Some(format!(
            "VS Code has {what}: at its next save it will ask whether to overwrite what was written here"
        ))
    }
}

impl Backup {
    /// Returns since when it is there, in words. What has lain there for long may be of an editor
    /// that was killed, and is to be found.
    fn age(&self) -> String {
        let place = format!("in {}", self.file.display());
        let Some(at) = self.at else {
            return place;
        };
        let clock = zone::clock(at, &zone::here());
        let age = Duration::try_from(Timestamp::now().duration_since(at)).unwrap_or_default();
        match age > LONG {
            true => format!("since {clock}, {place}"),
            false => format!("since {clock}"),
        }
    }

    /// Returns the cells that somebody typed in, with what they say there.
    fn typed_in<'a>(&self, page: &NotebookFile, file: &'a Document) -> Vec<(&'a Cell, Cell)> {
        let Some(unsaved) = &self.document else {
            return Vec::new();
        };
        let pairs = file.cells().iter().zip(file.counterparts(unsaved));
        let differing = pairs.filter_map(|(cell, at)| Some((cell, unsaved.cells().get(at?)?)));
        let mut differing: Vec<_> = differing
            .filter(|(cell, theirs)| !is_same(cell, theirs))
            .map(|(cell, theirs)| (cell, theirs.clone()))
            .collect();
        if let Some(based_on) = self.based_on
            && !differing.is_empty()
        {
            let earlier = earlier(page, based_on);
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
    let (field, say): (_, fn(&Cell) -> String) = match (yours, differ) {
        (None, _) => ("deleted", |cell| cell.source().into_owned()),
        (Some(_), true) => ("source", |cell| cell.source().into_owned()),
        (Some(_), false) => ("cell_type", |cell| cell.cell_type().to_string()),
    };
    Conflict {
        cell: Some(base.id().to_owned()),
        field: field.to_owned(),
        base: Some(say(base)),
        yours: yours.map(say),
        theirs: Some(say(theirs)),
        revision: Some(base.revision()),
    }
}

/// Whether two cells say the same; metadata is for programs.
fn is_same(one: &Cell, other: &Cell) -> bool {
    one.cell_type() == other.cell_type() && one.source() == other.source()
}

/// Returns what each cell was before the edits since a moment, as far as the journal knows.
fn earlier(page: &NotebookFile, since: Timestamp) -> HashMap<String, HashSet<Revision>> {
    let mut found: HashMap<String, HashSet<Revision>> = HashMap::new();
    let events = page.project.events(&page.key);
    for event in events.take_while(|event| event.at > since) {
        let changes = event.into_change().map(|change| change.changes);
        for change in changes.unwrap_or_default() {
            if let Some(before) = change.before {
                found.entry(change.cell).or_default().insert(before);
            }
        }
    }
    found
}

/// Returns the notice of the VS Codes that have the notebook open now: of others it is told anew.
fn editors(page: &NotebookFile) -> String {
    let joined = write_policy::joined(page);
    let editors = joined
        .iter()
        .filter(|joined| write_policy::is_vs_code(joined));
    let editors: Vec<_> = editors
        .map(|joined| format!("{} {}", joined.pid, joined.start_time))
        .collect();
    format!("editors of {}: {}", page.key, editors.join(", "))
}

/// Finds the files that hold unsaved text of a notebook.
fn backups(page: &NotebookFile, places: &[DataFolder]) -> Vec<Backup> {
    let modified_ms = std::fs::metadata(&page.real)
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
        if !is_of(page, &preamble.path) {
            continue;
        }
        // VS Code's times are whole milliseconds, rounded one way or the other.
        let is_based_on_this = |ms: f64| modified_ms.is_some_and(|now| (now - ms).abs() <= 1.0);
        let based_on = preamble.based_on_ms.filter(|ms| !is_based_on_this(*ms));
        let written = std::fs::metadata(&file).and_then(|found| found.modified());
        let at = written.ok().and_then(|at| Timestamp::try_from(at).ok());
        // A file that was removed meanwhile holds nothing any more: VS Code has saved.
        if let Ok(document) = content(&file) {
            found.push(Backup {
                document,
                based_on: based_on.and_then(moment),
                at,
                file,
            });
        }
    }
    found
}

/// Returns the files in these places, with the scheme of the addresses in them.
fn files(places: &[DataFolder]) -> impl Iterator<Item = (PathBuf, &'static str)> {
    let schemes = places.iter().flat_map(|place| {
        let workspaces = data_folders::folders(&place.folder).into_iter();
        workspaces.map(|workspace| (workspace.join(place.scheme), place.scheme))
    });
    let files = schemes.flat_map(|(folder, scheme)| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // Opening something else, a pipe, might wait for ever.
        let files = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file()));
        files.map(move |entry| (entry.path(), scheme))
    });
    files.take(MANY)
}

fn beginning(file: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(file)?
        .take(backup::LINE as u64)
        .read_to_end(&mut text)?;
    Ok(text)
}

/// Reads what a save would write; none where that is no notebook.
fn content(file: &Path) -> io::Result<Option<Document>> {
    let begun = Instant::now();
    loop {
        if std::fs::metadata(file)?.len() > LARGE {
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
        std::thread::sleep(LOOK);
    }
}

/// Whether that is this notebook, by whichever of its names.
fn is_of(page: &NotebookFile, path: &Path) -> bool {
    if path == page.real || path == page.path {
        return true;
    }
    let is_notebook = path.extension().is_some_and(|ending| ending == "ipynb");
    is_notebook && std::fs::canonicalize(path).is_ok_and(|real| real == page.real)
}

fn moment(ms: f64) -> Option<Timestamp> {
    let since = Duration::try_from_secs_f64(ms / 1000.0).ok()?;
    Timestamp::try_from(SystemTime::UNIX_EPOCH.checked_add(since)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editing::write_policy::joined_here;
    use crate::notebook::{NewCell, Operation};
    use crate::project::event::fixtures::event;

    const NOTEBOOK: &str = r#"{"cells":[
 {"cell_type":"code","execution_count":null,"id":"aaaa","metadata":{},"outputs":[],"source":"x = 1"},
 {"cell_type":"code","execution_count":null,"id":"bbbb","metadata":{},"outputs":[],"source":"y = 1"}
],"metadata":{},"nbformat":4,"nbformat_minor":5}"#;

    /// A home with a notebook, a VS Code's folders, and what of it is unsaved.
    struct Desk {
        home: tempfile::TempDir,
        page: NotebookFile,
    }

    impl Desk {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("a é.ipynb");
            std::fs::write(&path, NOTEBOOK).unwrap();
            let page = NotebookFile::of(&path).unwrap();
            std::fs::create_dir_all(home.path().join(".config/Code/Backups/1/file")).unwrap();
            Self { home, page }
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

        /// Has a notebook unsaved, based on the file as it was so many milliseconds ago.
        fn unsaved(&self, text: &str, ago_ms: f64) {
            let modified = std::fs::metadata(&self.page.real).unwrap().modified();
            let since = modified.unwrap().duration_since(UNIX_EPOCH).unwrap();
            let mtime = (since.as_secs_f64() * 1000.0 - ago_ms).round();
            let address = self.address();
            let line = format!("{address} {{\"mtime\":{mtime},\"typeId\":\"notebook/x/x\"}}\n");
            std::fs::write(self.backups().join("-5f3e"), line + text).unwrap();
        }

        fn look(&self) -> Unsaved {
            let home = self.home.path().to_str().unwrap();
            look_with(&self.page, &HashMap::from([("HOME", home)]))
        }

        /// Returns what an edit of the first cell meets, and what is noted beside it.
        fn meets(&self, source: &str) -> (Vec<Conflict>, Option<String>) {
            let before = self.page.read().unwrap();
            let edit = Operation::read_list(&format!(
                r#"[{{"op":"edit","cell":"aaaa","source":{source:?}}}]"#
            ));
            let (after, _) = before
                .applied(&edit.unwrap(), &mut || unreachable!("no new cell"))
                .unwrap();
            let unsaved = self.look();
            (
                unsaved.conflicts(&self.page, &before, &after),
                unsaved.note(&self.page, &before, "claude"),
            )
        }
    }

    #[test]
    fn text_of_the_same_cell_is_a_conflict_and_of_another_a_note() {
        let desk = Desk::new();
        assert!(matches!(desk.look(), Unsaved::None));
        desk.unsaved(&NOTEBOOK.replace("x = 1", "x = 'typed'"), 0.0);
        let (conflicts, note) = desk.meets("x = 2");
        assert_eq!(conflicts.len(), 1);
        assert_eq!(conflicts[0].base.as_deref(), Some("x = 1"));
        assert_eq!(conflicts[0].yours.as_deref(), Some("x = 2"));
        assert_eq!(conflicts[0].theirs.as_deref(), Some("x = 'typed'"));
        assert!(note.unwrap().contains("unsaved changes in cell aaaa"));
        // Of an editor that was killed long ago it is said where it is.
        let (file, place) = (desk.backups().join("-5f3e"), "/Code/Backups/1/file/-5f3e");
        assert!(!desk.look().age().contains(place));
        let backup = File::options().append(true).open(&file).unwrap();
        backup.set_modified(UNIX_EPOCH).unwrap();
        assert!(desk.look().age().ends_with(place));
        // What the person typed may be written.
        assert_eq!(desk.meets("x = 'typed'").0, []);
        desk.unsaved(&NOTEBOOK.replace("y = 1", "y = 'typed'"), 0.0);
        let (conflicts, note) = desk.meets("x = 2");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("unsaved changes in cell bbbb"));
        // Outputs make an editor unsaved too.
        desk.unsaved(&NOTEBOOK.replacen("null", "3", 1), 0.0);
        let (conflicts, note) = desk.meets("x = 2");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("though not of a cell's text"));
    }

    #[test]
    fn a_text_that_was_edited_here_meanwhile_is_not_the_persons() {
        let desk = Desk::new();
        let page = &desk.page;
        let before = page.read().unwrap().cells()[0].revision();
        std::fs::write(&page.real, NOTEBOOK.replace("x = 1", "x = 'agent'")).unwrap();
        // The editor had the file of a minute ago, and kept its text of this cell.
        desk.unsaved(&NOTEBOOK.replace("y = 1", "y = 'typed'"), 60_000.0);
        assert_eq!(desk.meets("x = 3").0.len(), 1, "nobody knows of an edit");
        let change = serde_json::json!({
            "cell": "aaaa", "what": "edited", "index": 0, "before": before.to_string(),
        });
        page.project.record(&[event(serde_json::json!({
            "event": "edited", "session": page.key, "before": "0123456789", "after": "0123456789",
            "changes": [change],
        }))]);
        let (conflicts, note) = desk.meets("x = 3");
        assert_eq!(conflicts, []);
        assert!(note.unwrap().contains("unsaved changes in cell bbbb:"));
        // Back to the text of before by hand, in an editor that had the edit: that is typed.
        desk.unsaved(NOTEBOOK, 0.0);
        assert_eq!(desk.meets("x = 3").0.len(), 1);
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
            assert!(matches!(desk.look(), Unsaved::None));
        }
        for text in ["", "{\"cells\":[", "[1]", "\u{0}", &"[".repeat(100_000)] {
            std::fs::write(&file, format!("{} {{}}\n{text}", desk.address())).unwrap();
            let (conflicts, note) = desk.meets("x = 2");
            assert_eq!(conflicts, []);
            assert!(note.unwrap().contains("cannot be read"));
        }
        std::fs::remove_file(&file).unwrap();
        let link = desk.home.path().join("link.ipynb");
        std::os::unix::fs::symlink(&desk.page.real, &link).unwrap();
        let typed = NOTEBOOK.replace("x = 1", "x = 'typed'");
        let address = format!("file://{}", link.display());
        std::fs::write(&file, format!("{address} {{}}\n{typed}")).unwrap();
        assert_eq!(desk.meets("x = 2").0.len(), 1);
    }

    #[test]
    fn cells_without_ids_are_found_by_what_they_say() {
        let desk = Desk::new();
        let old = NOTEBOOK
            .replace("\"id\":\"aaaa\",", "")
            .replace("\"id\":\"bbbb\",", "")
            .replace("minor\":5", "minor\":4");
        std::fs::write(&desk.page.real, &old).unwrap();
        let before = desk.page.read().unwrap();
        let mut theirs = before.clone();
        let new = NewCell {
            id: "cccc".to_owned(),
            cell_type: crate::notebook::CellType::Code,
            source: "z = 1".to_owned(),
            metadata: None,
        };
        theirs.insert(0, &new).unwrap();
        desk.unsaved(std::str::from_utf8(&theirs.to_bytes()).unwrap(), 0.0);
        let note = desk.look().note(&desk.page, &before, "claude").unwrap();
        assert!(note.contains("though not of a cell's text"), "{note}");
    }

    #[test]
    fn what_cannot_be_seen_is_told_once_for_each_editor() {
        let desk = Desk::new();
        let home = desk.home.path().to_str().unwrap();
        let ssh = HashMap::from([("HOME", home), ("SSH_CONNECTION", "1.2.3.4 5 6.7.8.9 22")]);
        let look = || look_with(&desk.page, &ssh);
        let note = |name| look().note(&desk.page, &desk.page.read().unwrap(), name);
        assert_eq!(note("claude"), None, "no VS Code is joined");
        let joined = joined_here(&desk.page, "VS Code", Timestamp::now());
        desk.page.project.write_joined(&joined).unwrap();
        let said = note("claude").unwrap();
        // The tests may run in a container themselves.
        assert!(
            said.contains("not known from here, since this is"),
            "{said}"
        );
        assert_eq!(note("claude"), None);
        assert!(note("codex").is_some());
    }
}
