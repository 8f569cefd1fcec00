//! The messages between an editor and `nb`: one JSON object a line.
//!
//! An editor is any program that has a notebook open in its own memory. Cells are called by names that are unique in
//! their document: the editor's own for the cells that it opens or makes, `nb`'s for those that `nb` inserts. Texts have
//! `\n` at the ends of lines. Fields that a reader does not know are passed over.

use jiff::Timestamp;
use nb_notebook::notebook::CellType;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The version of the protocol.
pub const PROTOCOL: u32 = 1;

/// A cell as an editor has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct EditorCell {
    /// The cell's name in this protocol.
    pub cell: String,
    /// The cell's id in the file, if the editor knows one. Two cells of an editor may have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The type.
    pub cell_type: CellType,
    /// The text.
    pub source: String,
}

/// A document as an editor has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OpenedDocument {
    /// The cells in their order.
    pub cells: Vec<EditorCell>,
    /// Whether the document has changes that are not saved.
    pub dirty: bool,
    /// Whether a server has the document in a room with other people's pages, and writes the file.
    #[serde(default)]
    pub room: bool,
    /// The stamp of the last [`EditorRequest::Synced`] that the editor got for the document, from whichever process of
    /// `nb`. If the file still has it, all that differs from the file is the person's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub synced: Option<String>,
    /// The revision in that [`EditorRequest::Synced`]. If the file is another one by now, it is known what others have
    /// changed since, as far as the notebook's history has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// What an editor reports about one document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EditorEvent {
    /// The document's cells: when it is opened, when the editor has loaded the file anew, and after
    /// [`EditorRequest::Reopen`].
    Open(OpenedDocument),
    /// The person changed a cell's text.
    Text {
        /// The cell.
        cell: String,
        /// The whole text.
        source: String,
    },
    /// The person inserted, removed or moved cells.
    Cells {
        /// The names of all cells in their order.
        order: Vec<String>,
        /// The cells that were not there before, and those whose id the editor knows only now. A cell that is saved with
        /// an id has it here before.
        #[serde(default)]
        new: Vec<EditorCell>,
    },
    /// The editor is about to save, and waits for [`EditorRequest::Synced`]. From then until `saved` it reports each
    /// change of a text at once, and `nb` asks for nothing.
    Saving,
    /// The editor has saved the document.
    Saved {
        /// The names of the saved cells in their order.
        order: Vec<String>,
    },
    /// The editor did what a request asked for. It is sent before any later `text` or `cells`.
    Applied {
        /// The number of the request.
        seq: u64,
    },
    /// The editor did not do it: the cell has another text than the request replaces, or the person types just now.
    Refused {
        /// The number of the request.
        seq: u64,
        /// The text that the cell has.
        #[serde(default)]
        source: Option<String>,
    },
    /// The person chose between two texts of a cell in conflict, or of one that was overwritten.
    Choose {
        /// The cell.
        cell: String,
        /// Which text the cell keeps.
        keep: Keep,
        /// The file's text that the person has seen. If it is another one by now, the conflict stands.
        theirs: String,
    },
}

/// Which text a cell in conflict keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Keep {
    /// The person's.
    Mine,
    /// The file's.
    Theirs,
    /// The person's, and then the file's.
    Both,
}

/// What `nb` asks an editor to do with a document, or tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum EditorRequest {
    /// Replace a cell's text, if it is `was`.
    Set {
        /// The number that the answer names.
        seq: u64,
        /// The cell.
        cell: String,
        /// The text that is replaced.
        was: String,
        /// The new text.
        source: String,
        /// The text that the file has, or gets, if it is another one: lines of the new text are unsaved. Only for an editor
        /// that takes texts alone.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        base: Option<String>,
        /// Who wrote it.
        by: String,
    },
    /// Insert a cell, unless one has its name.
    Insert {
        /// The number that the answer names.
        seq: u64,
        /// The cell before it; none is the document's beginning.
        after: Option<String>,
        /// The new cell; its name is its id.
        #[serde(flatten)]
        new: EditorCell,
        /// Who wrote it.
        by: String,
    },
    /// Remove a cell, if its text is `was`.
    Remove {
        /// The number that the answer names.
        seq: u64,
        /// The cell.
        cell: String,
        /// The text that is removed.
        was: String,
        /// Who removed it.
        by: String,
    },
    /// Give the cells another order. Cells that the list does not name stay behind the cell that they follow.
    Order {
        /// The number that the answer names.
        seq: u64,
        /// The cells in their new order.
        order: Vec<String>,
        /// Who moved them.
        by: String,
    },
    /// Give metadata other values: each key of `metadata` gets its value, and one that only `was` has is removed.
    Metadata {
        /// The number that the answer names.
        seq: u64,
        /// The cell; none is the notebook itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        cell: Option<String>,
        /// The keys that get another value or are removed, with their values before.
        was: Map<String, Value>,
        /// The keys that are new or get another value.
        metadata: Map<String, Value>,
        /// Who wrote it.
        by: String,
    },
    /// Give a code cell the outputs and the execution count of another run. The editor answers at once, and shows them
    /// when the cell neither waits nor runs and the person is not in it.
    Outputs {
        /// The number that the answer names.
        seq: u64,
        /// The cell.
        cell: String,
        /// The outputs, as a notebook of format 4 has them.
        outputs: Vec<Value>,
        /// The execution count.
        execution_count: Option<u64>,
        /// Who ran the cell.
        by: String,
    },
    /// Know from which text the person's unsaved lines are made: the file has it. Only for an editor that takes texts alone,
    /// where no `set` says so.
    Base {
        /// The cell.
        cell: String,
        /// The text.
        source: String,
    },
    /// Have the server of the document's room write the file. The editor answers when the server has been asked.
    Store {
        /// The number that the answer names.
        seq: u64,
    },
    /// Show that a cell has two texts. It stands until [`EditorRequest::Settled`].
    Conflict {
        /// The cell.
        cell: String,
        /// Who wrote the other text.
        by: String,
        /// The text before both changes; none if it is not known.
        base: Option<String>,
        /// The text in the editor.
        mine: String,
        /// The text in the file.
        theirs: String,
    },
    /// Take away what shows a conflict.
    Settled {
        /// The cell.
        cell: String,
    },
    /// Offer once to bring back the text of a cell in conflict over which the person has saved: with
    /// [`EditorEvent::Choose`]. The conflict is settled.
    Overwritten {
        /// The cell.
        cell: String,
        /// The text that was in the file.
        theirs: String,
    },
    /// The document contains all that the file with this stamp has: a save over it loses nothing.
    Synced {
        /// The file's stamp.
        stamp: String,
        /// When the file was written.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(test, schemars(with = "Option<String>"))]
        modified: Option<Timestamp>,
        /// The file's revision.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        revision: Option<String>,
    },
    /// Report all cells once more: a message named a cell that `nb` does not know.
    Reopen,
}

/// What others do in a document, for an editor that shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ActivityMessage {
    /// What the kernel of the notebook does. Sent when it changes.
    Activity {
        /// Whether a kernel of `nb` is there, to which a front end can connect.
        kernel: bool,
        /// What it runs.
        running: Option<CellRun>,
        /// What waits until that has ended, the next one first.
        waiting: Vec<CellRun>,
    },
    /// What a running cell has output so far, with the count of its run. Sent when it changes, to an editor that shows it, if
    /// `nb` records the run. The outputs at its end come as [`EditorRequest::Outputs`].
    Output {
        /// The id of the request.
        run: String,
        /// The cell.
        cell: String,
        /// The outputs, as a notebook of format 4 has them; very long ones lack their middle.
        outputs: Vec<Value>,
        /// The execution count.
        execution_count: Option<u64>,
    },
    /// Which cells agents have run or changed in the last ten minutes, if the person has neither run nor changed them
    /// since. Sent when it changes.
    Marks {
        /// The cells, each once.
        cells: Vec<CellMark>,
    },
    /// Which cells have outputs that are out of date, for an editor that shows it. Sent when it changes.
    Stale {
        /// The cells, in their order.
        cells: Vec<StaleMark>,
    },
}

/// A cell whose outputs are out of date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct StaleMark {
    /// The cell: in [`ActivityMessage::Stale`] the editor's name of it, before that its id in the file.
    pub cell: String,
    /// Why, in words.
    pub why: String,
}

/// A cell, or other code, that the kernel runs or that waits for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellRun {
    /// The id of the request.
    pub run: String,
    /// Who asked for it.
    pub by: String,
    /// Whether that is the person, at this or another front end.
    pub person: bool,
    /// The notebook of the cell, as its path in the project, if it is another one that uses the same kernel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notebook: Option<String>,
    /// The cell's place in the document, from 0. None for code that belongs to no cell, or to another notebook's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cell: Option<String>,
    /// The first line of the code, if code is stored; at most 80 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// When it was asked for.
    #[cfg_attr(test, schemars(with = "String"))]
    pub since: Timestamp,
}

/// What an agent did to a cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellMark {
    /// The cell.
    pub cell: String,
    /// The cell's id in the file.
    pub id: String,
    /// Who did it.
    pub by: String,
    /// What was done.
    pub what: MarkKind,
    /// When.
    #[cfg_attr(test, schemars(with = "String"))]
    pub at: Timestamp,
    /// The name of the edit, for `nb undo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edit: Option<String>,
    /// The cell's revision before the edit, for `nb cell CELL@REVISION`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<String>,
}

/// What an agent did to a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum MarkKind {
    /// It ran the cell.
    Ran,
    /// It changed the cell.
    Edited,
    /// It inserted the cell.
    Inserted,
}
