use std::fs::{File, OpenOptions, Permissions};
use std::io::{Seek, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use super::*;
use crate::notebook::{Operation, OperationFailure};

struct Folder {
    temp: tempfile::TempDir,
}

impl Folder {
    fn new() -> Self {
        let folder = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        std::fs::write(folder.path(), text("one", "two")).unwrap();
        folder
    }

    fn path(&self) -> PathBuf {
        self.temp.path().join("t.ipynb")
    }

    fn notebook(&self) -> NotebookFile {
        NotebookFile::of(&self.path()).unwrap()
    }

    /// Returns the file's text without the spaces that give it another size.
    fn text(&self) -> String {
        let text = std::fs::read_to_string(self.path()).unwrap();
        let parts: Vec<_> = text.split('}').collect();
        let parts: Vec<_> = parts
            .iter()
            .map(|part| part.trim_end_matches(' '))
            .collect();
        parts.join("}")
    }

    /// Returns the files beside the notebook and the project's folder.
    fn left(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.temp.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let bases = std::fs::read_dir(self.temp.path().join(".nb/unfinished"));
        let bases = bases.into_iter().flatten();
        let bases = bases.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name != ".nb" && !name.ends_with(".ipynb"))
            .chain(bases)
            .collect()
    }
}

fn text(one: &str, two: &str) -> String {
    let cell = |id: &str, source: &str| {
        format!(
            "{{\"cell_type\": \"raw\", \"id\": \"{id}\", \"metadata\": {{}}, \"source\": \"{source}\"}}"
        )
    };
    format!(
        "{{\"cells\": [{}, {}], \"metadata\": {{}}, \"nbformat\": 4, \"nbformat_minor\": 5}}\n",
        cell("aaaa", one),
        cell("bbbb", two)
    )
}

/// Sets the source of a cell.
fn set(document: &Document, id: &str, source: &str) -> Result<Document, OperationFailure> {
    let list = format!(r#"[{{"op": "edit", "cell": "{id}", "source": "{source}"}}]"#);
    let operations = Operation::read_list(&list).unwrap();
    Ok(document.applied(&operations, &mut || "cccc".into())?.0)
}

#[test]
fn a_link_a_mode_and_attributes_are_kept() {
    let folder = Folder::new();
    let real = folder.path();
    let link = folder.temp.path().join("link.ipynb");
    symlink("t.ipynb", &link).unwrap();
    std::fs::set_permissions(&real, Permissions::from_mode(0o640)).unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    let attributes = rustix::fs::setxattr(&real, "user.note", b"mine", flags).is_ok();
    let other_name = folder.temp.path().join("other.ipynb");
    std::fs::hard_link(&real, &other_name).unwrap();

    let notebook = NotebookFile::of(&link).unwrap();
    let written = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    assert!(written.wrote && written.conflicts.is_empty());
    assert_eq!(folder.text(), text("1", "two"));
    assert!(link.is_symlink());
    assert_eq!(std::fs::metadata(&real).unwrap().mode() & 0o7777, 0o640);
    let mut value = [0; 16];
    if attributes {
        let read = rustix::fs::getxattr(&real, "user.note", &mut value[..]).unwrap();
        assert_eq!(&value[..read], b"mine");
    }
    assert_eq!(
        std::fs::read_to_string(other_name).unwrap(),
        text("one", "two")
    );

    // If nothing changes, nothing is written: watchers and editors with unsaved changes see
    // nothing.
    let before = std::fs::metadata(&real).unwrap().ino();
    let written = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    assert!(!written.wrote);
    assert_eq!(std::fs::metadata(&real).unwrap().ino(), before);
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn a_save_after_the_read_is_merged() {
    let folder = Folder::new();
    let notebook = folder.notebook();
    for by_moving in [false, true] {
        std::fs::write(folder.path(), text("one", "two")).unwrap();
        let written = write(&notebook, "ada", false, |document| {
            if by_moving {
                let new = folder.temp.path().join("new");
                std::fs::write(&new, text("one", "2 of theirs")).unwrap();
                std::fs::rename(new, folder.path()).unwrap();
            } else {
                std::fs::write(folder.path(), text("one", "2 of theirs")).unwrap();
            }
            set(document, "aaaa", "1 of mine")
        });
        let written = written.unwrap();
        assert_eq!(folder.text(), text("1 of mine", "2 of theirs"));
        assert_eq!(written.before.to_bytes(), text("one", "two").as_bytes());
        let theirs = written.theirs.unwrap().to_bytes();
        assert_eq!(theirs, text("one", "2 of theirs").as_bytes());
        assert!(written.conflicts.is_empty());
    }
    // Both changed the same line: theirs stays.
    let written = write(&notebook, "ada", false, |document| {
        std::fs::write(folder.path(), text("theirs", "two")).unwrap();
        set(document, "aaaa", "mine")
    });
    let written = written.unwrap();
    assert_eq!(folder.text(), text("theirs", "two"));
    assert_eq!(written.conflicts[0].yours.as_deref(), Some("mine"));
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn with_force_the_last_writer_wins_and_what_cannot_be_changed_stays_theirs() {
    let folder = Folder::new();
    let notebook = folder.notebook();
    let mut once = true;
    let written = write(&notebook, "ada", true, |document| {
        if std::mem::take(&mut once) {
            std::fs::write(folder.path(), text("theirs", "2")).unwrap();
        }
        set(document, "aaaa", "mine")
    });
    assert!(written.unwrap().conflicts.is_empty());
    assert_eq!(folder.text(), text("mine", "2"));

    let gone = text("x", "y").replace("aaaa", "dddd");
    let written = write(&notebook, "ada", true, |document| {
        std::fs::write(folder.path(), &gone).unwrap();
        set(document, "aaaa", "mine again")
    });
    assert!(matches!(written, Err(WriteError::Change(_))));
    assert_eq!(folder.text(), gone);
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

/// Waits until the notebook is another file than `old`.
fn swapped(path: &PathBuf, old: &File) {
    let old = old.metadata().unwrap().ino();
    while std::fs::metadata(path).is_ok_and(|found| found.ino() == old) {
        std::thread::yield_now();
    }
}

/// Writes like an editor that has the file open.
fn save(mut file: &File, text: &str) {
    file.set_len(0).unwrap();
    file.rewind().unwrap();
    // In two halves.
    let (one, two) = text.as_bytes().split_at(text.len() / 2);
    file.write_all(one).unwrap();
    std::thread::yield_now();
    file.write_all(two).unwrap();
}

fn open(path: &PathBuf) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).open(path).unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn a_save_into_the_swapped_out_file_is_merged() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let editor = open(&path);
    let written = std::thread::scope(|scope| {
        let saves = scope.spawn(|| {
            swapped(&path, &editor);
            save(&editor, &text("one", "2 of theirs"));
            drop(editor);
        });
        let written = write(&notebook, "ada", false, |document| {
            set(document, "aaaa", "1 of mine")
        });
        saves.join().unwrap();
        written.unwrap()
    });
    assert_eq!(folder.text(), text("1 of mine", "2 of theirs"));
    assert!(written.theirs.is_some());
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
#[cfg(target_os = "linux")]
fn a_save_after_the_command_is_merged_by_the_next_one() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let editor = open(&path);
    let written = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1 of mine")
    })
    .unwrap();
    // The file is held by a process, so it stays, and a second command changes nothing.
    let who = format!("process {} (", std::process::id());
    assert!(written.notes[0].starts_with(&who), "{:?}", written.notes);
    assert_eq!(folder.left().len(), 2, "{:?}", folder.left());
    assert!(finish(&notebook).is_empty());
    assert_eq!(folder.text(), text("1 of mine", "two"));

    // The holder has saved, and still has the file open.
    save(&editor, &text("one", "2 of theirs"));
    let notes = finish(&notebook);
    assert!(notes[0].contains("is merged"), "{notes:?}");
    assert_eq!(folder.text(), text("1 of mine", "2 of theirs"));
    assert_eq!(folder.left().len(), 2, "{:?}", folder.left());
    assert!(finish(&notebook).is_empty());

    // It saves again and closes the file; the next command is one that writes.
    save(&editor, &text("one", "2 again"));
    drop(editor);
    let written = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1 again")
    })
    .unwrap();
    assert!(
        written.notes[0].contains("is merged"),
        "{:?}",
        written.notes
    );
    assert_eq!(folder.text(), text("1 again", "2 again"));
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
#[cfg(target_os = "linux")]
fn incomplete_and_conflicting_saves_are_moved_to_the_trash() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let trash = |note: &str| {
        let at = note.rfind(" as ").unwrap() + 4;
        std::fs::read_to_string(&note[at..]).unwrap()
    };
    let editor = open(&path);
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    editor.set_len(10).unwrap();
    drop(editor);
    let notes = finish(&notebook);
    assert_eq!(trash(&notes[0]), text("one", "two")[..10]);
    assert_eq!(folder.text(), text("1", "two"));

    let editor = open(&path);
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "11")
    })
    .unwrap();
    write(&notebook, "ada", false, |document| {
        set(document, "bbbb", "22")
    })
    .unwrap();
    save(&editor, &text("theirs", "two"));
    drop(editor);
    // The thread that touches the notebook holds its lock for a moment.
    settle();
    let notes = finish(&notebook);
    // The text in the notebook was saved later than the swapped-out one.
    assert_eq!(folder.text(), text("11", "22"));
    assert_eq!(trash(&notes[0]), text("theirs", "two"));
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn a_save_that_goes_on_without_the_lock_is_left_alone() {
    let folder = Folder::new();
    let notebook = folder.notebook();
    let (document, stamp) = notebook.read_stamped().unwrap();
    let living = leftover::Leftover::prepare(&notebook, &document, &stamp);
    std::fs::write(&living.path, "half").unwrap();
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    assert!(finish(&notebook).is_empty());
    assert_eq!(folder.left().len(), 2, "{:?}", folder.left());
    // The living command ends.
    drop(living);
    finish(&notebook);
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn a_file_that_cannot_be_written_stays_and_the_error_says_why() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let error = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let error = write(&notebook, "ada", false, |document| {
        std::fs::remove_file(&path).unwrap();
        set(document, "aaaa", "1")
    });
    assert!(matches!(
        error,
        Err(WriteError::NotebookFile(NotebookFileError::Missing { .. }))
    ));
    assert!(!path.exists());
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn a_write_beside_continuous_saves_fails_in_the_end() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let mut count = 0;
    let error = write(&notebook, "ada", true, |document| {
        count += 1;
        std::fs::write(&path, text("theirs", &"x".repeat(count))).unwrap();
        set(document, "aaaa", "mine")
    });
    assert!(matches!(error, Err(WriteError::Contended { .. })));
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

/// Saves like a program that moves a new file into the place of the old one.
fn save_by_moving(folder: &Folder, text: &str) {
    let new = folder.temp.path().join("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, folder.path()).unwrap();
}

/// Prepares a write of "mine" into the first cell up to the point at which its draft is on disk.
fn drafted(notebook: &NotebookFile) -> (Document, FileStamp, leftover::Leftover, draft::Draft) {
    let (there, stamp) = notebook.read_stamped().unwrap();
    let mine = set(&there, "aaaa", "mine").unwrap();
    let early = leftover::Leftover::prepare(notebook, &there, &stamp);
    let found = std::fs::metadata(&notebook.real).unwrap();
    let draft = draft::Draft::write(early.path.clone(), &notebook.real, &found, &mine).unwrap();
    (there, stamp, early, draft)
}

#[test]
fn a_save_during_the_draft_never_leaves_the_file() {
    let folder = Folder::new();
    let notebook = folder.notebook();
    for by_moving in [true, false] {
        let (there, stamp, early, draft) = drafted(&notebook);
        let theirs = text("one", if by_moving { "theirs" } else { "theirs again" });
        match by_moving {
            true => save_by_moving(&folder, &theirs),
            false => std::fs::write(folder.path(), &theirs).unwrap(),
        }
        let file = std::fs::metadata(&notebook.real).unwrap().ino();
        let put = swap::place(&notebook, &there, &stamp, &early, draft).unwrap();
        assert!(matches!(put, SwapResult::Missed), "{put:?}");
        assert_eq!(folder.text(), theirs);
        assert_eq!(std::fs::metadata(&notebook.real).unwrap().ino(), file);
        early.remove();
    }
    assert!(folder.left().is_empty(), "{:?}", folder.left());
}

#[test]
fn a_file_replaced_without_an_exchange_is_checked_by_its_hard_link() {
    let folder = Folder::new();
    let notebook = folder.notebook();
    let (_, stamp, early, mut draft) = drafted(&notebook);
    let leftover = early.with_draft(&notebook, &draft.stamp());
    draft.move_to(&leftover.path).unwrap();
    // A save after the last check of the file.
    save_by_moving(&folder, &text("one", "theirs"));
    let replaced = swap::replace(&notebook, &stamp, &early, &leftover, draft).unwrap();
    let replaced = text::read(&replaced.unwrap().unwrap()).unwrap();
    assert_eq!(replaced, text("one", "theirs").as_bytes());
    assert_eq!(folder.text(), text("mine", "two"));
}

/// Waits until the modification time of a file has changed.
fn touched(path: &PathBuf, before: &FileStamp) -> FileStamp {
    touch::settle();
    let now = FileStamp::of(&std::fs::metadata(path).unwrap());
    assert_eq!(before.ino(), now.ino());
    now
}

#[test]
fn an_edit_for_which_no_size_is_free_says_so() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    settle();
    let stamp = FileStamp::of(&std::fs::metadata(&path).unwrap());
    let lock = crate::project::lock_notebook(&path, LOCK_TIMEOUT).unwrap();
    let mut saves = Saves::before(Some(&lock), &stamp, None);
    for size in 0..5000 {
        saves.sizes.add(size, None, jiff::Timestamp::now());
    }
    saves.record_write(&notebook, &stamp);
    drop(lock);
    let written = write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "2")
    })
    .unwrap();
    assert_eq!(written.notes, [SIZE_NOTE]);
    // A recorder need not avoid these sizes.
    let runs_none = |_: &str| false;
    let written = write_running(&notebook, "ada", false, &runs_none, |document| {
        set(document, "aaaa", "3")
    });
    assert!(written.unwrap().notes.is_empty());
    assert_eq!(folder.text(), text("3", "two"));
}

#[test]
fn a_write_close_to_a_save_touches_the_file_once_more() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let stamp = || FileStamp::of(&std::fs::metadata(&path).unwrap());
    // A save before the write.
    std::fs::write(&path, text("one", "saved")).unwrap();
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "1")
    })
    .unwrap();
    let placed = stamp();
    let now = touched(&path, &placed);
    assert!(now.content().1 > placed.content().1, "it is not touched");
    assert_eq!(folder.text(), text("1", "saved"));
    // A save during the write.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(10);
    open(&path).set_modified(old).unwrap();
    let written = write(&notebook, "ada", false, |document| {
        std::fs::write(&path, text("1", "saved again")).unwrap();
        set(document, "aaaa", "11")
    });
    assert!(written.unwrap().theirs.is_some());
    let placed = stamp();
    assert!(touched(&path, &placed).content().1 > placed.content().1);

    // A save long ago, and `nb`'s own consecutive writes, do not count as close saves.
    open(&path).set_modified(old).unwrap();
    for source in ["2", "3"] {
        write(&notebook, "ada", false, |document| {
            set(document, "aaaa", source)
        })
        .unwrap();
        let placed = stamp();
        assert!(placed.agrees(&touched(&path, &placed)));
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_touched_file_counts_as_the_killed_commands_file() {
    let folder = Folder::new();
    let (notebook, path) = (folder.notebook(), folder.path());
    let editor = open(&path);
    save(&editor, &text("one", "saved"));
    write(&notebook, "ada", false, |document| {
        set(document, "aaaa", "mine")
    })
    .unwrap();
    touch::settle();
    // A save into the swapped-out file, which is the older file but has the newer time.
    save(&editor, &text("theirs", "saved"));
    drop(editor);
    finish(&notebook);
    assert_eq!(folder.text(), text("theirs", "saved"));
    touch::settle();
    assert!(
        folder.left().iter().all(|name| name == "trash"),
        "{:?}",
        folder.left()
    );
}
