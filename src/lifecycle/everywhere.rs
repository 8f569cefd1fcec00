//! Every kernel of a project, or of all the user's projects, asked side by side.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::status::{self, SessionStatus};
use crate::kernel::process::Process;
use crate::project::registry::{self, Known, KnownKernel};
use crate::project::{Project, StateError};

/// How many kernels are asked at once: a busy one answers late, an idle one costs it some work.
const AT_ONCE: usize = 8;

/// The kernels of all the user's projects.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Each notebook that has a session, with its project.
    pub found: Vec<(Project, SessionStatus)>,
    /// Kernels of projects that were deleted.
    pub left: Vec<Left>,
    /// Projects whose memory is unusable, and why.
    pub unreadable: Vec<(PathBuf, StateError)>,
}

/// A kernel that runs while its project is gone: nobody can reach it any more.
#[derive(Clone, Debug)]
pub struct Left {
    /// The folder of its project, as it was.
    pub root: PathBuf,
    /// What is known of it.
    pub kernel: KnownKernel,
    /// Its process, which is that very one.
    pub process: Process,
}

/// Returns the status of every session of a project; those that share a kernel have the same.
///
/// # Errors
/// Where `state.json` cannot be used.
pub async fn of_project(project: &Project) -> Result<Vec<SessionStatus>, StateError> {
    let statuses = side_by_side(questions(project)?).await;
    let statuses = statuses.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(with_sharers(project, statuses))
}

/// As [`of_project`], without a word to any kernel.
///
/// # Errors
/// Where `state.json` cannot be used.
pub async fn glance(project: &Project) -> Result<Vec<SessionStatus>, StateError> {
    let mut statuses = Vec::new();
    let state = project.state()?;
    for (key, session) in state.all() {
        if state.shared_with(&key).is_none() {
            statuses.push(status::glance(project, &key, session).await?);
        }
    }
    Ok(with_sharers(project, statuses))
}

/// Returns what all the user's projects have. Projects that are gone with their kernels are
/// forgotten.
pub async fn everywhere() -> Kernels {
    let mut kernels = Kernels::default();
    let mut all = Vec::new();
    let mut projects = Vec::new();
    for known in registry::known() {
        let Some(project) = known.project() else {
            let left = left_of(&known);
            if left.is_empty() {
                registry::forget(&known);
            }
            kernels.left.extend(left);
            continue;
        };
        match questions(&project) {
            Ok(questions) => {
                projects.extend(std::iter::repeat_n(project, questions.len()));
                all.extend(questions);
            }
            Err(error) => kernels.unreadable.push((known.root, error)),
        }
    }
    for (project, status) in projects.into_iter().zip(side_by_side(all).await) {
        match status {
            Ok(status) => kernels.found.push((project, status)),
            Err(error) => kernels.unreadable.push((project.root().to_owned(), error)),
        }
    }
    // A project that was moved has its kernel still.
    let found = &kernels.found;
    kernels.left.retain(|left| {
        let same = |(_, status): &(_, SessionStatus)| {
            Process::recorded(&status.session).as_ref() == Some(&left.process)
        };
        !found.iter().any(same)
    });
    kernels
}

type Question = std::pin::Pin<Box<dyn Future<Output = Result<SessionStatus, StateError>>>>;

/// One question for each kernel of a project.
fn questions(project: &Project) -> Result<Vec<Question>, StateError> {
    let state = project.state()?;
    let sessions = state.all().into_iter();
    let owners = sessions.filter(|(key, _)| state.shared_with(key).is_none());
    Ok(owners
        .map(|(key, session)| {
            let project = project.clone();
            let question = async move { status::status(&project, &key, session).await };
            Box::pin(question) as Question
        })
        .collect())
}

/// Adds the notebooks that use another's kernel, each after its owner.
fn with_sharers(project: &Project, owners: Vec<SessionStatus>) -> Vec<SessionStatus> {
    let state = project.state().unwrap_or_default();
    let mut all = Vec::new();
    for owner in owners {
        let sharers: Vec<_> = owner
            .shared_by
            .iter()
            .filter_map(|key| {
                Some(SessionStatus {
                    key: key.clone(),
                    session: state.session(key)?,
                    kernel_of: Some(owner.key.clone()),
                    ..owner.clone()
                })
            })
            .collect();
        all.push(owner);
        all.extend(sharers);
    }
    all
}

fn left_of(known: &Known) -> Vec<Left> {
    let kernels = known.kernels.values();
    kernels
        .filter_map(|kernel| {
            let process = Process {
                pid: kernel.pid,
                start_time: kernel.start_time,
                boot_id: kernel.boot_id.clone(),
            };
            process.is_alive().then(|| Left {
                root: known.root.clone(),
                kernel: kernel.clone(),
                process,
            })
        })
        .collect()
}

/// Does the jobs side by side, some at a time; returns what came of them, in their order.
pub(super) async fn side_by_side<T: 'static>(
    jobs: impl IntoIterator<Item = impl Future<Output = T> + 'static>,
) -> Vec<T> {
    let room = Rc::new(Semaphore::new(AT_ONCE));
    let local = LocalSet::new();
    let tasks: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let room = room.clone();
            local.spawn_local(async move {
                let _place = room.acquire().await;
                job.await
            })
        })
        .collect();
    let done = async {
        let mut done = Vec::new();
        for task in tasks {
            match task.await {
                Ok(it) => done.push(it),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            }
        }
        done
    };
    local.run_until(done).await
}
