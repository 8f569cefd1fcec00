//! Makes a notebook for the kernel that it will get.

use std::path::Path;

use super::attach;
use super::liveness::sandboxed;
use super::open::{OpenOptions, neighbour};
use super::open_error::OpenError;
use super::sandbox::{confinement_of_new, policy};
use super::share;
use super::start::refuse_in_a_sandbox;
use super::target::recorded;
use crate::editing::{notebook_file, transaction};
use crate::kernel::confine::container;
use crate::kernel::environment::probe::ProbePolicy;
use crate::kernel::spec::selection::{self, KernelRequest};
use crate::kernel::variables::ProcessVariables;
use crate::notebook;
use crate::project::{Confinement, Project, Session};

/// Makes a new notebook that names the kernel it will get; an existing one is not changed. Returns whether it
/// was made.
///
/// An empty file is an error. If no kernel is to be started now, none needs to be installed.
pub fn create_notebook(
    notebook: &Path,
    options: &OpenOptions,
    starts: bool,
) -> Result<bool, OpenError> {
    if notebook.exists() || notebook.is_symlink() {
        notebook_file::refuse_no_notebook(notebook)?;
        return Ok(false);
    }
    let cannot = |source| OpenError::Notebook {
        action: "create",
        path: notebook.to_owned(),
        source,
    };
    let folder = notebook
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    let canonical = folder.canonicalize().map_err(cannot)?;
    let session = match &options.kernel_of {
        Some(other) => share::owner(notebook, other)?.1,
        None => recorded_session(notebook),
    };
    if starts {
        let owner = session.as_ref().filter(|_| options.kernel_of.is_some());
        match owner.filter(|owner| sandboxed(owner.transport).is_some()) {
            Some(owner) => return Err(OpenError::out_of_reach(owner)),
            None => refuse_in_a_sandbox()?,
        }
    }
    let neighbour = match Project::find(notebook) {
        Some(project) => neighbour(&project, &project.key(notebook))?,
        None => None,
    };
    let request = KernelRequest {
        kernel: options.kernel.as_deref(),
        python: options.python.as_deref(),
        recorded: session
            .as_ref()
            .and_then(|session| session.kernelspec.as_ref()),
        neighbour: neighbour.as_ref(),
        policy: match starts {
            true => policy(&confinement_of_new(
                options.confinement.as_ref(),
                session.as_ref(),
            )),
            // When a notebook is only made, no interpreter from its folder is run.
            false => ProbePolicy::ToolsOnly,
        },
        ..KernelRequest::default()
    };
    if let (Some(running), Some(project)) = (&options.attach, Project::find(notebook)) {
        attach::check(&project, notebook, running)?;
    }
    let on_server = options.server.as_ref().and_then(|it| it.spec.clone());
    let choice = match (on_server, &options.attach, &options.confinement) {
        (Some(spec), ..) => Ok(spec),
        (None, Some(running), _) => Ok(running.spec.clone()),
        (None, None, Some(Confinement::Container(container))) => Ok(container::spec(container)),
        (None, None, _) => {
            selection::select(request, &canonical, &ProcessVariables).map(|choice| choice.spec)
        }
    };
    let (name, display, language) = match choice {
        // A kernel that another program started may have no kernelspec that is known here.
        Ok(spec) if spec.name.is_empty() => (
            spec.language.to_lowercase(),
            spec.display_name,
            spec.language,
        ),
        Ok(spec) => (spec.name, spec.display_name, spec.language),
        // Every Jupyter resolves this name to the Python in use.
        Err(_) if !starts || session.is_some() => (
            "python3".to_owned(),
            "Python 3 (ipykernel)".to_owned(),
            "python".to_owned(),
        ),
        Err(error) => return Err(error.into()),
    };
    Project::check_possible(notebook)?;
    let text = notebook::new_notebook(&name, &display, &language);
    transaction::create(notebook, &text).map_err(cannot)
}

/// Returns the recorded session of a notebook, whose file may be missing while its kernel runs.
fn recorded_session(notebook: &Path) -> Option<Session> {
    let project = Project::find(notebook)?;
    recorded(&project.state().ok()?, &project, &project.key(notebook))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::editing::notebook_file::NotebookFileError;

    #[test]
    fn a_link_that_leads_nowhere_is_no_new_notebook() {
        let temp = tempfile::tempdir().unwrap();
        let link = temp.path().join("l.ipynb");
        std::os::unix::fs::symlink("none.ipynb", &link).unwrap();
        let error = create_notebook(&link, &OpenOptions::default(), false).unwrap_err();
        assert!(
            matches!(
                error,
                OpenError::NotebookFile(NotebookFileError::Dangling { .. })
            ),
            "{error}"
        );
        assert!(!temp.path().join("none.ipynb").exists());
    }
}
