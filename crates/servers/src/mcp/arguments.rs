//! The arguments of the tools, as clients send them.
//!
//! An unknown argument is an error. The doc comments are the descriptions that clients read.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::notebook::{CellSelector, CellType};

/// Arguments that name a notebook.
pub(super) trait OfNotebook {
    /// Returns the notebook's path as the client has named it.
    fn notebook(&self) -> &Path;
}

macro_rules! of_notebook {
    ($($name:ident),*) => {
        $(impl OfNotebook for $name {
            fn notebook(&self) -> &Path {
                &self.notebook
            }
        })*
    };
}

of_notebook!(
    OpenNotebook,
    GetNotebookState,
    ReadCell,
    CreateCell,
    UpdateCell,
    DeleteCell,
    ApplyEdits,
    RunCell,
    GetRunStatus,
    AnswerInput,
    Kernel,
    Variables,
    History
);

/// `notebooks`
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Notebooks {}

/// `open_notebook`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenNotebook {
    /// The .ipynb file; created if there is none
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Kernelspec, if not the notebook's own
    #[serde(alias = "kernel_name")]
    pub(super) kernel: Option<String>,
    /// Python to start
    pub(super) python: Option<PathBuf>,
    /// Notebook whose kernel is shared
    pub(super) kernel_of: Option<PathBuf>,
    /// Jupyter server
    pub(super) server: Option<String>,
}

/// `get_notebook_state`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetNotebookState {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Only what has changed since this notebook revision
    pub(super) since: Option<String>,
}

/// `read_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadCell {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Cell, or list of cells
    #[serde(alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Cells,
    /// Include outputs; true by default
    #[serde(alias = "include_outputs")]
    pub(super) outputs: Option<bool>,
    /// Characters of output; 6000 by default
    pub(super) limit: Option<usize>,
    /// Longest side of images, in pixels
    pub(super) image_size: Option<u32>,
}

/// `create_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateCell {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Text of the cell
    #[serde(
        alias = "content",
        alias = "cell_source",
        alias = "new_source",
        deserialize_with = "text"
    )]
    pub(super) source: String,
    /// code by default
    #[serde(rename = "type", alias = "cell_type")]
    #[schemars(with = "Option<CellKind>")]
    pub(super) cell_type: Option<CellType>,
    /// Cell that it comes after
    #[serde(alias = "after_cell", alias = "after_cell_id")]
    pub(super) after: Option<CellName>,
    /// Cell that it comes before
    #[serde(alias = "before_cell", alias = "before_cell_id")]
    pub(super) before: Option<CellName>,
    /// Its index, from 0; -1 is the end
    #[serde(alias = "position", alias = "cell_index")]
    pub(super) index: Option<i64>,
    /// Run it
    #[serde(default, alias = "execute")]
    pub(super) run: bool,
    /// Seconds to wait; 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `update_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateCell {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Cell
    #[serde(alias = "cell_id", alias = "cell_index")]
    pub(super) cell: CellName,
    /// Its whole new text
    #[serde(
        default,
        alias = "content",
        alias = "cell_source",
        alias = "new_source",
        deserialize_with = "some_text"
    )]
    pub(super) source: Option<String>,
    /// Instead of source: a part that occurs exactly once
    #[serde(alias = "old")]
    pub(super) old_string: Option<String>,
    /// The part's new text
    #[serde(alias = "new")]
    pub(super) new_string: Option<String>,
    /// Replace it everywhere
    #[serde(default)]
    pub(super) replace_all: bool,
    /// New cell type
    #[serde(rename = "type", alias = "cell_type")]
    #[schemars(with = "Option<CellKind>")]
    pub(super) cell_type: Option<CellType>,
    /// Refuse unless it has this revision
    #[serde(alias = "if_rev")]
    pub(super) expected_revision: Option<String>,
    /// Overwrite what others changed
    #[serde(default)]
    pub(super) force: bool,
    /// Run it
    #[serde(default, alias = "execute")]
    pub(super) run: bool,
    /// Seconds to wait; 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `delete_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteCell {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Cell, or list of cells
    #[serde(alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Cells,
    /// Refuse unless it has this revision
    #[serde(alias = "if_rev")]
    pub(super) expected_revision: Option<String>,
    /// Delete even what others changed
    #[serde(default)]
    pub(super) force: bool,
}

/// `apply_edits`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyEdits {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Operations, in order, each with "op": insert {after|before|at, source, type}, edit {cell, source,
    /// type, metadata}, replace {cell, old, new, all}, append {cell, source}, remove {cells}, move {cell,
    /// after|before|to}, clear {cells}, split {cell, line}, join {cells}
    #[serde(alias = "edits")]
    pub(super) operations: Vec<serde_json::Map<String, Value>>,
    /// Overwrite what others changed
    #[serde(default)]
    pub(super) force: bool,
}

/// `run_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCell {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Cell, or list of cells, run in the notebook's order
    #[serde(default, alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Option<Cells>,
    /// All code cells
    #[serde(default)]
    pub(super) all: bool,
    /// Only cells out of date, of these or of all
    #[serde(default)]
    pub(super) stale: bool,
    /// Also the stale cells that these need, or all that need these
    pub(super) with: Option<RelatedCells>,
    /// Instead of cells: code, not put into the notebook
    #[serde(default, deserialize_with = "some_text")]
    pub(super) code: Option<String>,
    /// Seconds to wait; 45 by default. Clients may cancel at 60 s, which interrupts: for long runs wait: false and
    /// get_run_status
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
    /// false: start it and return its run_id
    pub(super) wait: Option<bool>,
    /// Characters of output; 6000 by default
    pub(super) limit: Option<usize>,
    /// Longest side of images, in pixels
    pub(super) image_size: Option<u32>,
}

/// Which cells run beside those that are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum RelatedCells {
    Upstream,
    Downstream,
    Both,
}

/// `get_run_status`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetRunStatus {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Run; else your oldest open one, or the latest
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    /// Seconds to wait for its end; 0 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
    /// All its output, not only what is new to you
    #[serde(default)]
    pub(super) all: bool,
    /// Characters of output; 6000 by default
    pub(super) limit: Option<usize>,
}

/// `answer_input`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerInput {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Run that asks, if several do
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    /// The answer, one line
    #[serde(alias = "answer", alias = "value")]
    pub(super) text: String,
    /// Seconds to wait; 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `kernel`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    pub(super) action: KernelAction,
    /// For interrupt: the run to end
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    /// Even if that ends others' work
    #[serde(default)]
    pub(super) force: bool,
}

/// What is done to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum KernelAction {
    Status,
    Interrupt,
    Restart,
    Shutdown,
}

/// `variables`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Variables {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// One variable, in detail
    pub(super) name: Option<String>,
}

/// `history`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    /// The .ipynb file
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    pub(super) action: HistoryAction,
    /// For versions and restore
    #[serde(alias = "cell_id")]
    pub(super) cell: Option<CellName>,
    /// For restore: version of the cell; for diff: of the notebook
    pub(super) revision: Option<String>,
    /// For undo: which edit, if not your last one
    pub(super) op: Option<String>,
    /// Overwrite what others changed
    #[serde(default)]
    pub(super) force: bool,
    /// For log and versions: entries at most; 20 by default
    pub(super) limit: Option<usize>,
}

/// What is done with a notebook's history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum HistoryAction {
    Log,
    Versions,
    Diff,
    Undo,
    Restore,
}

/// The types of a cell.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
#[allow(dead_code, reason = "it is only the schema of a cell type")]
enum CellKind {
    Code,
    Markdown,
    Raw,
}

/// The name of one cell.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "an id or an index is expected")]
pub(super) enum CellName {
    /// An index.
    Index(i64),
    /// An id or a prefix of it, or `In[12]`.
    Text(String),
}

impl CellName {
    /// Returns the selector. A string is never an index: an id may consist of digits.
    pub(super) fn selector(&self) -> CellSelector {
        match self {
            Self::Index(index) => CellSelector::Index(*index),
            Self::Text(text) => match text.parse() {
                Ok(CellSelector::Index(_)) | Err(_) => CellSelector::Id(text.clone()),
                Ok(selector) => selector,
            },
        }
    }
}

/// The names of one or several cells.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "an id or an index is expected, or a list of these"
)]
pub(super) enum Cells {
    One(CellName),
    Several(Vec<CellName>),
}

impl Cells {
    pub(super) fn selectors(&self) -> Vec<CellSelector> {
        match self {
            Self::One(cell) => vec![cell.selector()],
            Self::Several(cells) => cells.iter().map(CellName::selector).collect(),
        }
    }
}

impl JsonSchema for CellName {
    fn schema_name() -> Cow<'static, str> {
        "CellName".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": ["string", "integer"]})
    }
}

impl JsonSchema for Cells {
    fn schema_name() -> Cow<'static, str> {
        "Cells".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": ["string", "integer", "array"]})
    }
}

/// Reads a text: a string, or a list of lines as a notebook file has it. Lines of a list that lack newlines
/// are separate lines all the same.
fn text<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a text or a list of lines is expected")]
    enum Text {
        Whole(String),
        Lines(Vec<String>),
    }
    Ok(match Text::deserialize(deserializer)? {
        Text::Whole(text) => text,
        Text::Lines(lines) => {
            let mut text = String::new();
            let last = lines.len().saturating_sub(1);
            for (at, line) in lines.iter().enumerate() {
                text.push_str(line);
                if at < last && !line.ends_with('\n') {
                    text.push('\n');
                }
            }
            text
        }
    })
}

fn some_text<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    text(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_string_is_never_an_index() {
        let cell = |value| {
            serde_json::from_value::<CellName>(value)
                .unwrap()
                .selector()
        };
        assert_eq!(cell(json!(3)), CellSelector::Index(3));
        assert_eq!(cell(json!(-1)), CellSelector::Index(-1));
        assert_eq!(cell(json!("3")), CellSelector::Id("3".to_owned()));
        assert_eq!(cell(json!("-1")), CellSelector::Id("-1".to_owned()));
        assert_eq!(cell(json!("1234")), CellSelector::Id("1234".to_owned()));
        assert_eq!(cell(json!("3f2c")), CellSelector::Id("3f2c".to_owned()));
        assert_eq!(cell(json!("In[3]")), CellSelector::Count(3));
        assert!(matches!(cell(json!("2..5")), CellSelector::Range { .. }));
    }

    #[test]
    fn lines_of_a_list_are_lines() {
        let source = |value| {
            let arguments = json!({"path": "a.ipynb", "content": value});
            serde_json::from_value::<CreateCell>(arguments)
                .unwrap()
                .source
        };
        assert_eq!(source(json!("a\nb")), "a\nb");
        assert_eq!(source(json!(["a\n", "b"])), "a\nb");
        assert_eq!(source(json!(["a", "b"])), "a\nb");
        assert_eq!(source(json!(["a", "", "b\n"])), "a\n\nb\n");
        assert_eq!(source(json!([])), "");
    }

    #[test]
    fn what_is_wanted_of_an_argument_is_said_in_words() {
        let error = |value| serde_json::from_value::<UpdateCell>(value).unwrap_err();
        for (value, expected) in [
            (json!({"cell": 1.5}), "an id or an index is expected"),
            (json!({"cell": null}), "an id or an index is expected"),
            (
                json!({"source": 5}),
                "a text or a list of lines is expected",
            ),
        ] {
            assert_eq!(error(value).to_string(), expected);
        }
    }

    #[test]
    fn an_unknown_argument_is_named() {
        let arguments = json!({"notebook": "a.ipynb", "cell": 1, "evrything": true});
        let error = serde_json::from_value::<ReadCell>(arguments).unwrap_err();
        assert!(error.to_string().contains("`evrything`"), "{error}");
    }
}
