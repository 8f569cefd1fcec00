//! `notebooks`: the notebooks of a folder, and the kernels there.

use std::path::{Path, PathBuf};

use serde::Serialize;

use super::caller::{Caller, blocking};
use super::envelope::Answer;
use super::problem::Problem;
use super::status::{KernelStatus, status};
use crate::editing::gather::gather;

/// What is listed of a folder.
#[derive(Clone, Copy, Debug)]
pub struct NotebooksRequest {
    /// How many notebooks are listed at most.
    pub most: usize,
    /// Whether the kernels are listed too.
    pub kernels: bool,
}

/// The notebooks of a folder.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct NotebooksAnswer {
    /// Their paths below the folder, by name.
    pub notebooks: Vec<PathBuf>,
    /// How many more there are.
    pub more: usize,
    /// The kernels of the folder's project.
    pub kernels: Vec<KernelStatus>,
}

impl Answer for NotebooksAnswer {}

/// Lists the notebooks below the caller's working directory; links are not followed.
///
/// # Errors
/// The folder or the project's state cannot be read.
pub async fn notebooks(
    caller: &Caller,
    request: NotebooksRequest,
) -> Result<NotebooksAnswer, Problem> {
    let kernels = match caller.project {
        Some(_) if request.kernels => status(caller).await?.sessions,
        _ => Vec::new(),
    };
    let found = blocking(caller, |caller| {
        let found = gather(std::slice::from_ref(&caller.working_dir));
        found.map_err(|error| Problem::failed("list the notebooks", &error))
    });
    let paths = found.await?.notebooks.into_iter().map(|found| {
        let below = found
            .path
            .strip_prefix(&caller.working_dir)
            .map(Path::to_owned);
        below.unwrap_or(found.path)
    });
    let mut notebooks: Vec<_> = paths.collect();
    let more = notebooks.len().saturating_sub(request.most);
    notebooks.truncate(request.most);
    Ok(NotebooksAnswer {
        notebooks,
        more,
        kernels,
    })
}
