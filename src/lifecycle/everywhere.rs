//! The status of all kernels of a project, or of all the user's projects, requested concurrently.

use std::path::PathBuf;
use std::rc::Rc;

use tokio::sync::Semaphore;
use tokio::task::LocalSet;

use super::liveness::{is_in_use, recorded_liveness};
use super::status::{self, SessionStatus};
use crate::kernel::process::Process;
use crate::project::registry::{self, Known, KnownKernel};
use crate::project::{Project, StateError};

/// How many kernels are asked at once: a busy one replies late, and an idle one has to do some
/// work.
const AT_ONCE: usize = 8;

/// The kernels of all the user's projects.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Each notebook that has a session, with its project.
    pub found: Vec<(Project, SessionStatus)>,
    /// Kernels of projects that were deleted, even if the project was made again.
    pub left: Vec<UnreachableKernel>,
    /// Projects whose state is not usable, and why.
    pub unreadable: Vec<(PathBuf, StateError)>,
}

/// A running kernel of which no project knows: no client can connect to it any more.
#[derive(Clone, Debug)]
pub struct UnreachableKernel {
    /// The former folder of its project.
    pub root: PathBuf,
    /// Its entry in the registry.
    pub kernel: KnownKernel,
    /// Its process, identified by its start time.
    pub process: Process,
}

/// Returns the status of all sessions of a project; those that share a kernel have the same.
///
/// # Errors
/// `state.json` cannot be used.
pub async fn of_project(project: &Project) -> Result<Vec<SessionStatus>, StateError> {
    let statuses = side_by_side(questions(project)?).await;
    let statuses = statuses.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(with_sharers(project, statuses))
}

/// Like [`of_project`], without requests to the kernels.
///
/// # Errors
/// `state.json` cannot be used.
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

/// Returns the kernels of all the user's projects. Projects that were removed and have no running
/// kernel are removed from the registry.
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
                // Its folder may have been deleted and made again.
                kernels.left.extend(left_of(&known));
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
    // A kernel of a project that was moved is not left over, and neither is one that its project knows.
    let found = &kernels.found;
    kernels.left.retain(|left| {
        let same = |(_, status): &(_, SessionStatus)| {
            Process::recorded(&status.session).as_ref() == Some(&left.process)
        };
        !found.iter().any(same)
    });
    kernels
}

/// Returns the notebooks of all the user's projects whose kernel runs on this server, with whether the kernel was idle
/// when something last happened.
pub fn on_server(server: &str) -> Vec<ServerNotebook> {
    let projects = registry::known().into_iter();
    let projects = projects.filter_map(|known| known.project());
    let mut found = Vec::new();
    for project in projects {
        for (key, session) in project.state().unwrap_or_default().all() {
            let is_there = session.as_remote().is_some_and(|it| it.server == server);
            let liveness = recorded_liveness(&session);
            if is_there && is_in_use(&session.status, &liveness) {
                let running = project.present(&key, session.generation).running;
                found.push(ServerNotebook {
                    notebook: session.notebook,
                    is_idle: running.is_none(),
                });
            }
        }
    }
    found
}

/// A notebook whose kernel runs on a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerNotebook {
    /// Its path.
    pub notebook: PathBuf,
    /// Whether no cell of it is known to run.
    pub is_idle: bool,
}

type Question = std::pin::Pin<Box<dyn Future<Output = Result<SessionStatus, StateError>>>>;

/// Returns one future for each kernel of a project, which requests its status.
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
        let sharers = owner.shared_by.iter().filter_map(|key| {
            Some(SessionStatus {
                key: key.clone(),
                session: state.session(key)?,
                kernel_of: Some(owner.key.clone()),
                ..owner.clone()
            })
        });
        all.push(owner.clone());
        all.extend(sharers);
    }
    all
}

fn left_of(known: &Known) -> Vec<UnreachableKernel> {
    let left = known.kernels.values().map(|kernel| UnreachableKernel {
        root: known.root.clone(),
        kernel: kernel.clone(),
        process: process(kernel),
    });
    left.filter(|left| left.process.is_alive()).collect()
}

fn process(kernel: &KnownKernel) -> Process {
    Process {
        pid: kernel.pid,
        start_time: kernel.start_time,
        boot_id: kernel.boot_id.clone(),
    }
}

/// Says whether a kernel in the registry runs.
pub(super) fn still_runs(kernel: &KnownKernel) -> bool {
    process(kernel).is_alive()
}

/// Runs futures concurrently, a limited number at a time; returns their results in order.
pub(super) async fn side_by_side<T: 'static>(
    jobs: impl IntoIterator<Item = impl Future<Output = T> + 'static>,
) -> Vec<T> {
    let permits = Rc::new(Semaphore::new(AT_ONCE));
    let local = LocalSet::new();
    let tasks: Vec<_> = jobs
        .into_iter()
        .map(|job| {
            let permits = permits.clone();
            local.spawn_local(async move {
                let _permit = permits.acquire().await;
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
