//! The arguments of the tools, as clients send them.
//!
//! An unknown argument is an error. The doc comments are the descriptions that clients read.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use crate::api::problem::{Problem, ProblemKind};
use crate::api::{PackageChange, PackagesRequest};
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
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Kernelspec, if not the notebook's own
    #[serde(alias = "kernel_name")]
    pub(super) kernel: Option<String>,
    pub(super) python: Option<PathBuf>,
    /// Notebook whose kernel it shares
    pub(super) kernel_of: Option<PathBuf>,
    /// Jupyter server
    pub(super) server: Option<String>,
}

/// `get_notebook_state`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GetNotebookState {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// List only what changed since this revision
    pub(super) since: Option<String>,
    /// From this index on
    #[serde(alias = "start")]
    pub(super) from: Option<usize>,
    /// Only errors
    #[serde(default)]
    pub(super) failed: bool,
    /// Regular expression, in the sources
    #[serde(rename = "match", alias = "pattern", alias = "query")]
    pub(super) matching: Option<String>,
    /// Only headings
    #[serde(default)]
    pub(super) outline: bool,
}

/// `read_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadCell {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    #[serde(alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Cells,
    #[serde(alias = "include_outputs")]
    pub(super) outputs: Option<bool>,
    /// 6000 by default
    pub(super) limit: Option<usize>,
    /// 1568 by default
    pub(super) image_size: Option<u32>,
}

/// `create_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateCell {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
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
    #[serde(alias = "after_cell", alias = "after_cell_id")]
    pub(super) after: Option<CellName>,
    #[serde(alias = "before_cell", alias = "before_cell_id")]
    pub(super) before: Option<CellName>,
    /// -1 is the end
    #[serde(alias = "position", alias = "cell_index")]
    pub(super) index: Option<i64>,
    #[serde(default, alias = "execute")]
    pub(super) run: bool,
    /// 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `update_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UpdateCell {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    #[serde(alias = "cell_id", alias = "cell_index")]
    pub(super) cell: CellName,
    #[serde(
        default,
        alias = "content",
        alias = "cell_source",
        alias = "new_source",
        deserialize_with = "some_text"
    )]
    pub(super) source: Option<String>,
    /// Instead of source: a part that occurs once
    #[serde(alias = "old")]
    pub(super) old_string: Option<String>,
    #[serde(alias = "new")]
    pub(super) new_string: Option<String>,
    #[serde(default)]
    pub(super) replace_all: bool,
    #[serde(rename = "type", alias = "cell_type")]
    #[schemars(with = "Option<CellKind>")]
    pub(super) cell_type: Option<CellType>,
    /// Refuse unless it has this revision
    #[serde(alias = "if_rev")]
    pub(super) expected_revision: Option<String>,
    /// Overwrite what others changed
    #[serde(default)]
    pub(super) force: bool,
    #[serde(default, alias = "execute")]
    pub(super) run: bool,
    /// 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `delete_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteCell {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    #[serde(alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Cells,
    #[serde(alias = "if_rev")]
    pub(super) expected_revision: Option<String>,
    #[serde(default)]
    pub(super) force: bool,
}

/// `apply_edits`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ApplyEdits {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// In order, each with "op": insert {after|before|at, source, type}, edit {cell, source,
    /// type, metadata}, replace {cell, old, new, all}, append {cell, source}, remove {cells}, move {cell,
    /// after|before|to}, clear {cells}, split {cell, line}, join {cells}
    #[serde(alias = "edits")]
    pub(super) operations: Vec<serde_json::Map<String, Value>>,
    #[serde(default)]
    pub(super) force: bool,
}

/// `run_cell`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunCell {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    #[serde(default, alias = "cells", alias = "cell_id", alias = "cell_index")]
    pub(super) cell: Option<Cells>,
    #[serde(default)]
    pub(super) all: bool,
    /// Only cells out of date, of these or of all
    #[serde(default)]
    pub(super) stale: bool,
    /// Also stale cells that these need, or all that need these
    pub(super) with: Option<RelatedCells>,
    /// Instead of cells; not put into the notebook
    #[serde(default, deserialize_with = "some_text")]
    pub(super) code: Option<String>,
    /// All in a fresh kernel: is the output the same?
    #[serde(default)]
    pub(super) verify: bool,
    /// 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
    /// false: return its run_id at once
    pub(super) wait: Option<bool>,
    /// 6000 by default
    pub(super) limit: Option<usize>,
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
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Else your oldest open one, or the latest
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    /// 0 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
    /// Also what you have seen
    #[serde(default)]
    pub(super) all: bool,
    /// 6000 by default
    pub(super) limit: Option<usize>,
}

/// `answer_input`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AnswerInput {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// Run that asks, if several do
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    #[serde(alias = "answer", alias = "value")]
    pub(super) text: String,
    /// The number of the question, in a call that was repeated with its answer
    #[schemars(skip)]
    pub(super) number: Option<u64>,
    /// 45 by default
    #[serde(alias = "timeout")]
    pub(super) timeout_s: Option<f64>,
}

/// `kernel`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Kernel {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    pub(super) action: KernelAction,
    /// For interrupt: the run to end
    #[serde(alias = "job")]
    pub(super) run_id: Option<String>,
    /// Even if that ends others' work
    #[serde(default)]
    pub(super) force: bool,
    #[serde(default)]
    pub(super) add: Vec<String>,
    #[serde(default)]
    pub(super) remove: Vec<String>,
}

impl Kernel {
    /// Returns the change of packages.
    pub(super) fn packages(&self) -> Result<PackagesRequest, Problem> {
        let (change, names) = match (self.add.is_empty(), self.remove.is_empty()) {
            (true, true) => (None, &self.add),
            (false, true) => (Some(PackageChange::Add), &self.add),
            (true, false) => (Some(PackageChange::Remove), &self.remove),
            (false, false) => {
                let text = "one call adds packages or removes some";
                return Err(Problem::new(ProblemKind::Usage, text));
            }
        };
        Ok(PackagesRequest {
            change,
            names: names.clone(),
        })
    }
}

// What is done to a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub(super) enum KernelAction {
    Status,
    Interrupt,
    Restart,
    Shutdown,
    Packages,
}

/// `variables`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Variables {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    /// One of them
    pub(super) name: Option<String>,
}

/// `history`
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    #[serde(alias = "path", alias = "notebook_path", alias = "file_path")]
    pub(super) notebook: PathBuf,
    pub(super) action: HistoryAction,
    /// For versions and restore
    #[serde(alias = "cell_id")]
    pub(super) cell: Option<CellName>,
    /// For restore: version of the cell; for diff: of the notebook
    pub(super) revision: Option<String>,
    /// For undo: not your last edit
    pub(super) op: Option<String>,
    #[serde(default)]
    pub(super) force: bool,
    /// Entries; 20 by default
    pub(super) limit: Option<usize>,
}

// What is done with a notebook's history.
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

// The types of a cell.
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
            // Some models write a list in a string. No id begins in this way.
            Self::One(CellName::Text(text)) if text.starts_with('[') => {
                let list: Option<Vec<CellName>> = serde_json::from_str(text).ok();
                let list = list.unwrap_or_else(|| vec![CellName::Text(text.clone())]);
                list.iter().map(CellName::selector).collect()
            }
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
        schemars::json_schema!({"anyOf": [{"type": "string"}, {"type": "integer"}]})
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
        let list = serde_json::json!({"type": "array", "items": {}});
        schemars::json_schema!({"anyOf": [{"type": "string"}, {"type": "integer"}, list]})
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
