//! Unsaved text that an editor reports through `nb live`.

use crate::activity::zone;
use crate::editing::notebook_file::NotebookFile;
use crate::kernel::process::Process;
use crate::notebook::{Cell, Document};
use crate::project::live_editor::LiveNotebook;

/// The text that one editor has of a notebook and the file has not.
#[derive(Clone, Debug)]
pub struct LiveText {
    /// The editor's name, for a reader.
    pub(super) editor: String,
    /// Whether it takes in what others write.
    pub(super) can_change: bool,
    /// The name under which the person at it acts.
    pub(super) by: String,
    notebook: LiveNotebook,
}

/// Returns what each editor that has the notebook open reports; `None` if no editor reports.
pub(super) fn texts(notebook: &NotebookFile) -> Option<Vec<LiveText>> {
    let mut editors = notebook.project.live_editors();
    editors.retain(Process::is_live_editor);
    let of_this = editors.into_iter().flat_map(|editor| {
        let by = editor.by();
        let notebooks = editor.notebooks.into_iter();
        let notebooks = notebooks.filter(|it| it.notebook == notebook.key);
        notebooks.map(move |notebook| LiveText {
            editor: editor.editor.clone(),
            can_change: editor.can_change,
            by: by.clone(),
            notebook,
        })
    });
    let texts: Vec<_> = of_this.collect();
    (!texts.is_empty()).then_some(texts)
}

impl LiveText {
    /// Returns the text from which the person began to change a cell, if the editor merges what others write.
    pub(super) fn base(&self, cell: &str) -> Option<&str> {
        let mut cells = self.notebook.cells.iter();
        cells.find(|it| it.cell == cell)?.base.as_deref()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notebook.cells.is_empty()
    }

    /// Returns since when there has been unsaved text, for a reader.
    pub(super) fn age(&self) -> String {
        match self.notebook.since {
            Some(since) => format!("since {}", zone::clock(since, &zone::here())),
            None => "not saved yet".to_owned(),
        }
    }

    /// Returns the cells of the file that have another text in the editor, each with that text.
    pub(super) fn typed_in<'a>(&self, file: &'a Document) -> Vec<(&'a Cell, Cell)> {
        let mut edited = file.clone();
        for text in &self.notebook.cells {
            if let Some(at) = file.position_by_id(&text.cell) {
                let _ = edited.set_source(at, &text.source);
            }
        }
        let pairs = file.cells().iter().zip(edited.cells());
        pairs
            .filter(|(cell, theirs)| !cell.has_same_text(theirs))
            .map(|(cell, theirs)| (cell, theirs.clone()))
            .collect()
    }
}
