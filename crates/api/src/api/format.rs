//! `fmt`: rewrites notebooks in Jupyter's own style.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::EditPolicy;
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::edit::Editor;
use crate::editing::format::{self, Differences};
use crate::editing::gather::gather;
use crate::editing::notebook_file::NotebookFile;
use crate::hint::Hint;

/// Which notebooks are checked, and whether they are written.
#[derive(Clone, Debug, Default)]
pub struct FormatRequest {
    /// The notebooks; a folder stands for all notebooks below it. If empty, the notebook that the caller
    /// means.
    pub paths: Vec<PathBuf>,
    /// Whether the notebooks that differ are rewritten.
    pub write: bool,
    /// Whether to write at once even while a front end's own cell runs in a notebook.
    pub now: bool,
    /// Whether to write a notebook although JupyterLab may have it open with jupyter-collaboration.
    pub force: bool,
}

/// How notebooks differ from Jupyter's own style.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FormatAnswer {
    /// The notebooks.
    pub notebooks: Vec<FormattedNotebook>,
    /// How many differ, or did.
    pub differing: usize,
    /// How many could not be read or written.
    pub failed: usize,
    /// Whether those that differed were written.
    pub written: bool,
    /// What could not be looked into, and why.
    pub faults: Vec<String>,
}

impl Answer for FormatAnswer {}

/// What came of one notebook.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum FormattedNotebook {
    /// It was read, and written where that was wished.
    Done {
        /// Its name.
        notebook: String,
        /// How it differs, or did.
        #[serde(flatten)]
        differences: Differences,
        /// What its writer should know.
        notes: Vec<Hint>,
    },
    /// It could not be read or written.
    Failed {
        /// Why.
        error: Problem,
        /// Its name.
        notebook: String,
    },
}

/// Rewrites notebooks in Jupyter's own style, or finds those that differ. A notebook that fails does not
/// stop the others.
///
/// # Errors
/// The notebooks cannot be found.
pub async fn format(caller: &Caller, request: FormatRequest) -> Result<FormatAnswer, Problem> {
    let policy = EditPolicy {
        now: request.now,
        force: request.force,
    };
    let editor = caller.editor(policy);
    let own = match request.paths.is_empty() {
        true => Some(caller.notebook_file().await?),
        false => None,
    };
    blocking(caller, move |caller| {
        let format_one = |name: String, file: Result<NotebookFile, Problem>| {
            format_one(name, file, request.write, &editor)
        };
        let mut faults = Vec::new();
        let notebooks: Vec<_> = if let Some(file) = own {
            vec![format_one(file.key.clone(), Ok(file))]
        } else {
            let gathered = gather(&request.paths)
                .map_err(|error| Problem::failed("find the notebooks", &error))?;
            faults = gathered.faults;
            if let [only] = gathered.notebooks.as_slice() {
                let file = NotebookFile::of(&only.path)?;
                caller.set_target_notebook(&file.project, &file.key);
            }
            let of = |path: &Path| NotebookFile::of(path).map_err(Problem::from);
            let paths = gathered.notebooks.into_iter().map(|found| found.path);
            paths
                .map(|path| format_one(path.display().to_string(), of(&path)))
                .collect()
        };
        let differs =
            |it: &&FormattedNotebook| matches!(it, FormattedNotebook::Done { differences, .. } if differences.differs);
        let failed = |it: &&FormattedNotebook| matches!(it, FormattedNotebook::Failed { .. });
        Ok(FormatAnswer {
            differing: notebooks.iter().filter(differs).count(),
            failed: notebooks.iter().filter(failed).count(),
            notebooks,
            written: request.write,
            faults,
        })
    })
    .await
}

fn format_one(
    notebook: String,
    file: Result<NotebookFile, Problem>,
    write: bool,
    editor: &Editor,
) -> FormattedNotebook {
    let result = file.and_then(|file| {
        if !write {
            return Ok((format::check(&file)?, Vec::new()));
        }
        let (differences, outcome) = format::write(&file, editor)?;
        Ok((differences, outcome.notes))
    });
    match result {
        Ok((differences, notes)) => FormattedNotebook::Done {
            notebook,
            differences,
            notes,
        },
        Err(error) => FormattedNotebook::Failed { error, notebook },
    }
}
