//! `fmt`: notebooks in Jupyter's own style.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::edit::EditPolicy;
use super::envelope::Answer;
use super::problem::Problem;
use crate::editing::edit::Editor;
use crate::editing::format::{self, Differences, Renamed};
use crate::editing::gather::gather;
use crate::editing::notebook_file::NotebookFile;

/// Which notebooks are looked at, and whether they are written.
#[derive(Clone, Debug, Default)]
pub struct FormatRequest {
    /// The notebooks; a folder stands for all below it. Without any, the one that the caller means.
    pub paths: Vec<PathBuf>,
    /// Write the notebooks that differ.
    pub write: bool,
    /// Do not wait while a front end's own cell runs in a notebook.
    pub now: bool,
}

/// How notebooks differ from Jupyter's own style.
#[derive(Clone, Debug, Serialize)]
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
    #[serde(skip)]
    pub faults: Vec<String>,
}

impl Answer for FormatAnswer {}

/// What came of one notebook.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum FormattedNotebook {
    /// It was read, and written where that was wished.
    Done {
        /// Its name.
        notebook: String,
        /// Whether any byte differs, or did.
        differs: bool,
        /// How many cells have no id in the file, or another cell's.
        ids_missing: usize,
        /// The kernelspec that front ends share, where the notebook names it, and the real one.
        kernelspec: Option<Renamed>,
        /// What its writer should know.
        notes: Vec<String>,
    },
    /// It could not be read or written.
    Failed {
        /// Why.
        error: Problem,
        /// Its name.
        notebook: String,
    },
}

/// Puts notebooks into Jupyter's own style, or tells which differ. One that fails keeps no other from its
/// style.
///
/// # Errors
/// The notebooks cannot be found.
pub async fn format(caller: &Caller, request: FormatRequest) -> Result<FormatAnswer, Problem> {
    let policy = EditPolicy {
        now: request.now,
        ..EditPolicy::default()
    };
    let editor = caller.editor(policy);
    let own = match request.paths.is_empty() {
        true => Some(caller.page(None).await?),
        false => None,
    };
    let caller = caller.clone();
    blocking(move || {
        let one = |name: String, page: Result<NotebookFile, Problem>| {
            one(name, page, request.write, &editor)
        };
        let mut faults = Vec::new();
        let notebooks: Vec<_> = if let Some(page) = own {
            vec![one(page.key.clone(), Ok(page))]
        } else {
            let gathered = gather(&request.paths)
                .map_err(|error| Problem::failed("find the notebooks", &error))?;
            faults = gathered.faults;
            if let [only] = gathered.notebooks.as_slice() {
                let page = NotebookFile::of(&only.path)?;
                caller.concerns(&page.project, &page.key);
            }
            let of = |path: &Path| NotebookFile::of(path).map_err(Problem::from);
            let found = gathered.notebooks.into_iter().map(|found| found.path);
            found
                .map(|path| one(path.display().to_string(), of(&path)))
                .collect()
        };
        let differs =
            |it: &&FormattedNotebook| matches!(it, FormattedNotebook::Done { differs: true, .. });
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

fn one(
    notebook: String,
    page: Result<NotebookFile, Problem>,
    write: bool,
    editor: &Editor,
) -> FormattedNotebook {
    let done = page.and_then(|page| {
        if !write {
            return Ok((format::check(&page)?, Vec::new()));
        }
        let (differences, done) = format::write(&page, editor)?;
        Ok((differences, done.notes))
    });
    match done {
        Ok((differences, notes)) => {
            let Differences {
                differs,
                ids,
                kernelspec,
            } = differences;
            FormattedNotebook::Done {
                notebook,
                differs,
                ids_missing: ids,
                kernelspec,
                notes,
            }
        }
        Err(error) => FormattedNotebook::Failed { error, notebook },
    }
}
