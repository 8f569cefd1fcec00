//! Lists the kernels of this machine, and the one that a notebook would get.

use std::io;
use std::path::{Path, PathBuf};

use super::open::{neighbour, read_named};
use super::open_error::OpenError;
use super::target::recorded;
use crate::kernel::environment::probe::ProbePolicy;
use crate::kernel::spec;
use crate::kernel::spec::allow_list::SpecAllowList;
use crate::kernel::spec::candidates::{self, KernelCandidate};
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::spec::prefix::prefix_in_use;
use crate::kernel::spec::selection::{self, ChosenKernel, KernelRequest, SelectionError};
use crate::kernel::variables::{NoHome, Variables};
use crate::project::{Project, Session};

/// The kernels of this machine from the point of view of a notebook.
#[derive(Debug)]
pub struct Available {
    /// The kernels that could be started, and those that cannot with the reasons; nearest first.
    pub candidates: Vec<KernelCandidate>,
    /// The kernel that `nb open` would start.
    pub chosen: Result<ChosenKernel, SelectionError>,
    /// The folders that were searched for kernelspecs, in Jupyter's order.
    pub searched: Vec<PathBuf>,
    /// A message about kernelspecs that Jupyter's configuration hides.
    pub hidden: Option<String>,
    /// The kernelspecs that could not be read.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl Available {
    /// Returns the index of the candidate that would be started.
    pub fn chosen_offer(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref().ok()?;
        let mut specs = self.candidates.iter().map(|it| it.spec.as_ref().ok());
        specs.position(|spec| spec == Some(&chosen.spec))
    }
}

/// Finds all kernels for a notebook, which need not exist yet. Runs the interpreters of the system
/// and of the user's own tools, but none from the notebook's folder.
pub fn available(notebook: &Path, variables: &dyn Variables) -> Result<Available, OpenError> {
    let absolute = std::path::absolute(notebook).unwrap_or_else(|_| notebook.to_owned());
    let folder = absolute.parent().unwrap_or(Path::new("/"));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let named = read_named(&absolute)?;
    let mut session = None;
    let mut neighbour_spec = None;
    if let Some(project) = Project::find(&absolute) {
        let key = project.key(&absolute);
        session = recorded(&project.state()?, &project, &key).filter(Session::is_owned);
        neighbour_spec = neighbour(&project, &key)?;
    }
    let recorded = session.as_ref().and_then(|it| it.kernelspec.as_ref());
    let request = KernelRequest {
        recorded,
        named: named.kernelspec.as_deref(),
        language: named.language.as_deref(),
        neighbour: neighbour_spec.as_ref(),
        policy: ProbePolicy::ToolsOnly,
        ..KernelRequest::default()
    };
    let chosen = selection::select(request, &folder, variables);
    let paths = JupyterPaths::new(variables).map_err(|NoHome| SelectionError::NoHome(NoHome))?;
    let prefix = prefix_in_use(&folder, variables);
    let searched = paths.spec_folders(prefix.as_ref());
    let unreadable = searched.iter().filter_map(|folder| {
        let error = std::fs::read_dir(folder).err()?;
        let is_there = !matches!(error.kind(), io::ErrorKind::NotFound);
        is_there.then(|| (folder.clone(), error))
    });
    let allow_list = SpecAllowList::read(&paths, prefix.as_ref());
    Ok(Available {
        hidden: allow_list.note(&spec::kernels(&searched)),
        candidates: candidates::all(&folder, &paths, variables),
        chosen,
        unreadable: unreadable.collect(),
        searched,
    })
}
