//! Writing into the notebook what a job keeps, when somebody asks for it.

use std::collections::HashSet;
use std::path::Path;

use super::kept::Kept;
use crate::execution::follow::heard;
use crate::execution::into_notebook::{self, Leaving};
use crate::project::Project;
use crate::project::event::{EventKind, Outcome};
use crate::project::jobs::{Ask, Job, JobCell, JobFolder, NoJob};

/// What became of the outputs of one of a job's cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Salvaged {
    /// Which of the job's cells it is, from 0.
    pub at: usize,
    /// Whether they are outputs of a text that the cell has no more, and say so there.
    pub stale: bool,
    /// Why they are not in the notebook, if they are not.
    pub missed: Option<String>,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum SalvageError {
    /// The job's record cannot be read.
    #[error(transparent)]
    Job(#[from] NoJob),
    /// What it keeps cannot be read or asked for.
    #[error("cannot read what job {id} keeps")]
    Kept {
        /// The job's id.
        id: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// None of its code is a cell's.
    #[error("job {0} ran no cell of a notebook: there is nowhere to write its outputs")]
    NoCells(String),
    /// None of its cells was begun.
    #[error("job {0} has no outputs: the kernel has begun none of its cells")]
    Nothing(String),
    /// The source of its cells is not kept.
    #[error(
        "job {0} does not keep what it ran (journal.code = false): where its outputs belong is not known"
    )]
    NoCode(String),
    /// The notebook cannot be written.
    #[error("outputs of job {id} are not in the notebook: {why}")]
    Unwritable {
        /// The job's id.
        id: String,
        /// Why.
        why: String,
    },
}

/// Writes the outputs that a job keeps into its notebook, or into another file that it has become.
/// Where a recorder lives, that one does it. With `force` also beside unsaved changes of a front end,
/// and over what ran since.
///
/// # Errors
/// Nothing could be written.
pub async fn write(
    project: &Project,
    folder: &JobFolder,
    to: Option<&Path>,
    force: bool,
) -> Result<Vec<Salvaged>, SalvageError> {
    let job = folder.read()?;
    let id = job.id.clone();
    if folder.has_recorder() && to.is_none() {
        let kept = |source| SalvageError::Kept { id, source };
        folder.ask(&Ask::Write).map_err(kept)?;
        heard(folder).await;
        let job = folder.read()?;
        let cells = job.cells.iter().enumerate();
        let begun = cells.filter(|(_, cell)| cell.begun_at.is_some());
        return Ok(begun
            .map(|(at, cell)| Salvaged {
                at,
                stale: false,
                missed: cell.unwritten.clone(),
            })
            .collect());
    }
    if job.front_end.is_none() && job.cells.iter().all(|cell| cell.cell.is_none()) {
        return Err(SalvageError::NoCells(id));
    }
    let kept = Kept::read(&job, folder);
    let kept = kept.map_err(|source| SalvageError::Kept {
        id: id.clone(),
        source,
    })?;
    let all = kept.outputs.iter().enumerate();
    let all = all.filter(|(at, _)| job.cells.get(*at).is_some_and(|it| it.begun_at.is_some()));
    let mut all: Vec<Leaving> = all
        .filter_map(|(at, recorded)| recorded.leaving(&job, at))
        .collect();
    if all.is_empty() {
        return Err(SalvageError::Nothing(id));
    }
    if all.iter().any(|leaving| leaving.code.is_empty()) {
        return Err(SalvageError::NoCode(id));
    }
    if !force {
        let again = asked_again(project, &job);
        all.iter_mut()
            .for_each(|it| it.ran_since = again.contains(&it.at));
    }
    let path = to.unwrap_or(&job.path).to_owned();
    let widgets = kept.widgets;
    let put = tokio::task::spawn_blocking(move || {
        let begun: Vec<usize> = all.iter().map(|leaving| leaving.at).collect();
        into_notebook::put(&path, &all, &widgets, force).map(|put| (begun, put))
    });
    let put = put.await.unwrap_or_else(|error| Err(error.to_string()));
    let (begun, put) = put.map_err(|why| SalvageError::Unwritable { id, why })?;
    let salvaged: Vec<_> = begun
        .into_iter()
        .map(|at| Salvaged {
            at,
            stale: put.stale.contains(&at),
            missed: put.missed(at),
        })
        .collect();
    note(folder, &salvaged);
    Ok(salvaged)
}

/// Writes down in the job what is in the notebook now.
fn note(folder: &JobFolder, salvaged: &[Salvaged]) {
    // A recorder that has begun meanwhile writes the record itself.
    let (Ok(Some(_lock)), Ok(mut job)) = (folder.try_lock(), folder.read()) else {
        return;
    };
    for one in salvaged {
        if let Some(cell) = job.cells.get_mut(one.at) {
            cell.unwritten.clone_from(&one.missed);
        }
    }
    if let Err(error) = folder.write(&job) {
        tracing::warn!(%error, "the job's record could not be written");
    }
}

/// Returns those of a job's cells for which somebody has asked again since the kernel began with them,
/// as the journal tells.
pub(super) fn asked_again(project: &Project, job: &Job) -> HashSet<usize> {
    let cells = || job.cells.iter().enumerate();
    let Some(first) = cells().filter_map(|(_, cell)| cell.begun_at).min() else {
        return HashSet::new();
    };
    let own: HashSet<_> = job
        .cells
        .iter()
        .filter_map(|cell| cell.msg_id.as_deref())
        .collect();
    let mut aborted = HashSet::new();
    let mut again = HashSet::new();
    // The newest first.
    let events = project.events(&job.session);
    for event in events.take_while(|event| event.at > first) {
        let start = match event.kind {
            EventKind::Done(end) if end.status == Outcome::Aborted => {
                aborted.insert(end.msg_id);
                continue;
            }
            EventKind::Asked(start) if start.store_history => start,
            _ => continue,
        };
        if own.contains(&*start.msg_id) || aborted.contains(&start.msg_id) {
            continue;
        }
        let same = |cell: &JobCell| match (&start.cell, &cell.cell) {
            (Some(one), Some(other)) if one == other => true,
            // VS Code names a cell by an address: its text must do.
            (Some(address), _) if address.contains(':') => start.code.as_ref() == Some(&cell.code),
            _ => false,
        };
        let later = cells().filter(|(_, it)| it.begun_at.is_some_and(|begun| event.at > begun));
        again.extend(later.filter(|(_, it)| same(it)).map(|(at, _)| at));
    }
    again
}
