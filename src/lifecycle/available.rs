//! Which kernels there are, and which of them a notebook would get.

use std::io;
use std::path::{Path, PathBuf};

use super::open::{neighbour, read_named};
use super::open_error::OpenError;
use super::target::recorded;
use crate::kernel::environment::probe::Asking;
use crate::kernel::spec;
use crate::kernel::spec::allow_list::Allowed;
use crate::kernel::spec::candidates::{self, Offer};
use crate::kernel::spec::jupyter_paths::JupyterPaths;
use crate::kernel::spec::prefix::prefix_in_use;
use crate::kernel::spec::selection::{self, Choice, ChooseError, Wish};
use crate::kernel::variables::{NoHome, Variables};
use crate::project::Project;

/// The kernels of this machine as a notebook sees them.
#[derive(Debug)]
pub struct Available {
    /// All that could be started, and those that cannot with the reason; nearest first.
    pub offers: Vec<Offer>,
    /// What `nb open` would start.
    pub chosen: Result<Choice, ChooseError>,
    /// The folders that were searched for kernelspecs, in Jupyter's order.
    pub searched: Vec<PathBuf>,
    /// What is said of kernelspecs that Jupyter's configuration hides.
    pub hidden: Option<String>,
    /// Those of them that could not be read.
    pub unreadable: Vec<(PathBuf, io::Error)>,
}

impl Available {
    /// Returns which of the offers would be started.
    pub fn chosen_offer(&self) -> Option<usize> {
        let chosen = self.chosen.as_ref().ok()?;
        let is_it = |offer: &Offer| offer.spec.as_ref().is_ok_and(|spec| *spec == chosen.spec);
        self.offers.iter().position(is_it)
    }
}

/// Looks at everything, for a notebook that may not be there yet. Runs the interpreters of the
/// system and of the user's own tools, nothing of the notebook's folder.
pub fn available(notebook: &Path, variables: &dyn Variables) -> Result<Available, OpenError> {
    let whole = std::path::absolute(notebook).unwrap_or_else(|_| notebook.to_owned());
    let folder = whole.parent().unwrap_or(Path::new("/"));
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let named = read_named(&whole)?;
    let mut session = None;
    let mut near = None;
    if let Some(project) = Project::find(&whole) {
        let key = project.key(&whole);
        session = recorded(&project.state()?, &project, &key).filter(|it| it.owned);
        near = neighbour(&project, &key)?;
    }
    let before = session.as_ref().and_then(|it| it.kernelspec.as_ref());
    let wish = Wish {
        recorded: before,
        named: named.kernelspec.as_deref(),
        language: named.language.as_deref(),
        neighbour: near.as_ref(),
        asking: Asking::Own,
        ..Wish::default()
    };
    let chosen = selection::choose(wish, &folder, variables);
    let paths = JupyterPaths::new(variables).map_err(|NoHome| ChooseError::NoHome(NoHome))?;
    let prefix = prefix_in_use(&folder, variables);
    let searched = paths.spec_folders(prefix.as_ref());
    let unreadable = searched.iter().filter_map(|folder| {
        let error = std::fs::read_dir(folder).err()?;
        let is_there = !matches!(error.kind(), io::ErrorKind::NotFound);
        is_there.then(|| (folder.clone(), error))
    });
    let allowed = Allowed::read(&paths, prefix.as_ref());
    Ok(Available {
        hidden: allowed.note(&spec::kernels(&searched)),
        offers: candidates::all(&folder, &paths, variables),
        chosen,
        unreadable: unreadable.collect(),
        searched,
    })
}
