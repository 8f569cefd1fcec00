//! The callers of the pages' requests, and the names of notebooks in them.

use std::path::{Path, PathBuf};

use crate::api::caller::{Caller, CallerSettings};
use crate::api::problem::Problem;
use crate::api::root::Root;
use crate::project::joined::person_at;

/// The name of the front ends that come by Jupyter's interface.
pub(super) const FRONT_END: &str = "Jupyter";

/// Makes the callers of requests.
#[derive(Clone)]
pub(super) struct Callers {
    root: Root,
    /// The name under which the pages act.
    name: String,
    progress: fn(&str),
}

impl Callers {
    pub(super) fn new(root: Root, name: String, progress: fn(&str)) -> Self {
        Self {
            root,
            name,
            progress,
        }
    }

    /// Returns the name under which the pages act.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the folder whose notebooks are served.
    pub(super) fn root(&self) -> &Path {
        self.root.folder()
    }

    /// Returns the path of a notebook that a request names.
    ///
    /// # Errors
    /// It is outside of the root, or no notebook.
    pub(super) fn notebook(&self, id: &str) -> Result<PathBuf, Problem> {
        self.root.notebook(Path::new(id))
    }

    /// Returns a notebook's name in requests: its path below the root.
    pub(super) fn id_of(&self, notebook: &Path) -> Option<String> {
        let below = notebook.strip_prefix(self.root.folder()).ok()?;
        Some(below.to_str()?.to_owned())
    }

    /// Makes the caller of a request. A person reads its answer, in the browser.
    ///
    /// # Errors
    /// The project's settings cannot be read.
    pub(super) fn caller(&self, notebook: Option<PathBuf>) -> Result<Caller, Problem> {
        self.caller_of(notebook, self.name.clone())
    }

    /// Makes the caller of a request of Jupyter's interface.
    ///
    /// # Errors
    /// The project's settings cannot be read.
    pub(super) fn jupyter(&self, notebook: Option<PathBuf>) -> Result<Caller, Problem> {
        self.caller_of(notebook, person_at(FRONT_END))
    }

    fn caller_of(&self, notebook: Option<PathBuf>, name: String) -> Result<Caller, Problem> {
        Caller::of(CallerSettings {
            notebook,
            name: Some(name),
            on_terminal: true,
            working_dir: self.root.folder().to_owned(),
            command: "nb".to_owned(),
            progress: self.progress,
            gets_json: true,
            has_own_thread: false,
        })
    }
}
