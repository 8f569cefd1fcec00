//! Kernels on a Jupyter server: what becomes of their sessions when they are started, restarted and ended.
//!
//! What is done on the server itself is behind [`ServerKernels`], which a program passes: `nb` that of `nb-remote`, and
//! `nb-proxy`, which needs no client of servers, [`NoServers`].

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::action_event::journal;
use super::all_kernels::still_runs;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::reconnect;
use super::start::{LockedSession, replace};
use crate::kernel::process::Signal;
use crate::kernel::process::connection::{self, KernelFiles};
use crate::notebook::NamedKernel;
use crate::project::event::EventKind;
use crate::project::{
    Backend, Confinement, KernelSettings, RealSpec, RemoteKernel, Session, Status,
};
use crate::wire::Transport;

/// How long a bridge may take to end.
const ENDS: Duration = Duration::from_secs(3);

/// A kernel on a server that a notebook is to get.
#[derive(Clone, Debug, PartialEq)]
pub struct WantedServer {
    /// The name of the server.
    pub name: String,
    /// A kernel that runs there, by its id; `None` to start one.
    pub kernel_id: Option<String>,
    /// The kernelspec, if it is known already.
    pub spec: Option<RealSpec>,
}

/// A session that is to get a kernel on a server.
#[derive(Clone, Copy, Debug)]
pub struct ServerKernelRequest<'a> {
    /// The notebook.
    pub notebook: &'a Path,
    /// The notebook's path in its project.
    pub key: &'a str,
    /// The kernel that is wanted.
    pub wanted: &'a WantedServer,
    /// The session's last kernel on this server.
    pub last: Option<&'a RemoteKernel>,
    /// The kernelspec that the user asks for.
    pub spec_name: Option<&'a str>,
    /// The kernel that the notebook names.
    pub named: &'a NamedKernel,
    /// How long the server may take to answer.
    pub timeout: Duration,
}

/// A kernel that runs on a server.
#[derive(Clone, Debug)]
pub struct KernelOnServer {
    /// The kernel.
    pub kernel: RemoteKernel,
    /// Its kernelspec, as far as the server describes it.
    pub spec: RealSpec,
}

/// What is done with kernels on a Jupyter server.
pub trait ServerKernels: Sync {
    /// A client of one server.
    type Client: Send + Sync;

    /// Returns a client of a server, and makes sure that the server runs.
    fn client(&self, server: &str) -> impl Future<Output = Result<Self::Client, OpenError>> + Send;

    /// Returns the wanted kernel, the session's last one if it still runs, or a new one.
    fn find_or_start(
        &self,
        request: ServerKernelRequest<'_>,
    ) -> impl Future<Output = Result<KernelOnServer, OpenError>> + Send;

    /// Restarts a kernel.
    fn restart(
        &self,
        client: &Self::Client,
        kernel: &RemoteKernel,
    ) -> impl Future<Output = Result<(), OpenError>> + Send;

    /// Ends a kernel.
    fn end(&self, kernel: &RemoteKernel) -> impl Future<Output = Result<(), OpenError>> + Send;
}

/// No client of servers: each call fails.
#[derive(Clone, Copy, Debug)]
pub struct NoServers;

impl ServerKernels for NoServers {
    type Client = ();

    async fn client(&self, server: &str) -> Result<(), OpenError> {
        Err(OpenError::no_servers(server))
    }

    async fn find_or_start(
        &self,
        request: ServerKernelRequest<'_>,
    ) -> Result<KernelOnServer, OpenError> {
        Err(OpenError::no_servers(&request.wanted.name))
    }

    async fn restart(&self, (): &(), kernel: &RemoteKernel) -> Result<(), OpenError> {
        Err(OpenError::no_servers(&kernel.server))
    }

    async fn end(&self, kernel: &RemoteKernel) -> Result<(), OpenError> {
        Err(OpenError::no_servers(&kernel.server))
    }
}

/// Connects a session whose lock is held to a kernel on a server: the wanted one, the session's last one if it still runs
/// there, or a new one.
pub(super) async fn start(
    servers: &impl ServerKernels,
    locked: &LockedSession<'_>,
    before: Option<Session>,
    wanted: &WantedServer,
    (spec_name, named): (Option<&str>, &NamedKernel),
    timeout: Duration,
) -> Result<Session, OpenError> {
    let notebook = locked.project.notebook(locked.key);
    let before = before.unwrap_or_else(|| Session::local(notebook.clone()));
    let last = before.as_remote().filter(|it| it.server == wanted.name);
    let request = ServerKernelRequest {
        notebook: &notebook,
        key: locked.key,
        wanted,
        last,
        spec_name,
        named,
        timeout,
    };
    let KernelOnServer { kernel, spec } = servers.find_or_start(request).await?;
    let files = KernelFiles::fresh(locked.project).map_err(|source| OpenError::Lock {
        dir: locked.project.dir().to_owned(),
        source,
    })?;
    let is_same = before
        .ended
        .as_ref()
        .is_some_and(|it| it.reason == LEFT_RUNNING)
        && last.is_some_and(|last| last.kernel_id == kernel.kernel_id);
    let had_kernel = before.process().is_some() || before.is_attached() || last.is_some();
    let old_file = before.connection_file.clone();
    KernelFiles::of(&old_file).remove(&locked.variables);
    let session = Session {
        notebook,
        connection_file: files.connection_file().to_owned(),
        backend: Backend::Remote(kernel),
        status: Status::Starting,
        generation: before.generation + u64::from(had_kernel && !is_same),
        kernelspec: Some(spec.clone()),
        transport: Transport::Ipc,
        started_at: match is_same {
            true => before.started_at,
            false => Some(Timestamp::now()),
        },
        settings: KernelSettings {
            // Nothing on this machine keeps a kernel there within bounds.
            confinement: Confinement::None,
            ..before.settings
        },
        ..before
    };
    locked.update(|state| replace(state, locked.key, session, Some(&old_file)))?;
    locked.create(&files, false, Transport::Ipc, &spec)?;
    locked.run_bridge(&files, timeout).await
}

/// The reason in the record of a session whose kernel was left running on its server.
pub(super) const LEFT_RUNNING: &str = "left running on its server";

/// Restarts the kernel of a session whose lock is held.
pub(super) async fn restart(
    servers: &impl ServerKernels,
    locked: &LockedSession<'_>,
    session: Session,
    kernel: RemoteKernel,
    by: &str,
    timeout: Duration,
) -> Result<Session, OpenError> {
    let client = servers.client(&kernel.server).await?;
    locked.record(|session| {
        session.status = Status::Restarting;
        session.ended = Some(session.ends_now("restarted", Some(by)));
    })?;
    end_bridge(locked, &session).await;
    if let Err(error) = servers.restart(&client, &kernel).await {
        // The kernel goes on as before, as far as is known.
        locked.record(|it| {
            it.status = Status::Live;
            it.ended.clone_from(&session.ended);
        })?;
        let _ = reconnect::reconnect_held(locked, session).await;
        return Err(error);
    }
    locked.record(|session| {
        session.generation += 1;
        session.started_at = Some(Timestamp::now());
        if let Some(remote) = session.as_remote_mut() {
            // The old kernel's messages are not for the new one's clients.
            remote.websocket_session = uuid::Uuid::new_v4().to_string();
        }
    })?;
    let files = KernelFiles::of(&session.connection_file);
    match connection::read(files.connection_file()) {
        Ok(_) => files.remove_sockets(&locked.variables),
        Err(_) => {
            let spec = session.kernelspec.unwrap_or_else(|| RealSpec::named(""));
            files.remove(&locked.variables);
            locked.create(&files, false, Transport::Ipc, &spec)?;
        }
    }
    let session = locked.run_bridge(&files, timeout).await?;
    journal(
        locked.project,
        locked.key,
        &session,
        EventKind::Restarted,
        by,
    );
    locked.project.remember(locked.key, &session, still_runs);
    Ok(session)
}

/// Ends the bridge of a session, and the kernel on the server unless it is left running. Returns what the user should
/// know.
pub(super) async fn end(
    servers: &impl ServerKernels,
    locked: &LockedSession<'_>,
    session: &Session,
    kernel: &RemoteKernel,
    keeps_kernel: bool,
) -> Vec<String> {
    end_bridge(locked, session).await;
    let RemoteKernel {
        server, kernel_id, ..
    } = kernel;
    if keeps_kernel || !kernel.owned {
        return vec![format!(
            "its kernel goes on running on {server} ({kernel_id})"
        )];
    }
    match servers.end(kernel).await {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!(
            "its kernel {kernel_id} may go on running there, since it could not be ended: {error}"
        )],
    }
}

/// Ends the bridge of a session, and with it the connection to the server.
async fn end_bridge(locked: &LockedSession<'_>, session: &Session) {
    if let Liveness::Own(process) = liveness(session).await {
        let _ = process.signal_group(Signal::TERM);
        locked.end(&process, ENDS).await;
    }
}
