//! Kernels on a Jupyter server: started, restarted and ended by its REST interface.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;

use super::action_event::journal;
use super::all_kernels;
use super::all_kernels::still_runs;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::reconnect;
use super::start::{LockedSession, replace};
use crate::kernel::process::connection::{self, KernelFiles};
use crate::notebook::NamedKernel;
use crate::project::event::EventKind;
use crate::project::{
    Backend, Confinement, InterruptMode, KernelSettings, RealSpec, RemoteKernel, Session, Status,
};
use crate::server::gateway::{kernel_variables, system_user};
use crate::server::models::{KernelModel, KernelspecModel, KernelspecsModel};
use crate::server::{ServerClient, ServerErrorKind, ServerKind, registry};
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

/// Returns the kernelspec of the kernel that a new notebook is to get.
///
/// # Errors
/// The server cannot be reached, or has no such kernel.
pub async fn spec_of_new(
    client: &ServerClient,
    requested: &WantedServer,
    spec_name: Option<&str>,
    timeout: Duration,
) -> Result<RealSpec, OpenError> {
    let spec = async {
        let Some(id) = &requested.kernel_id else {
            let chosen = choose(client, &NamedKernel::default(), spec_name).await?;
            return Ok(chosen.unwrap_or_else(|| RealSpec::named("python3")));
        };
        let model = wanted_kernel(client, id).await?;
        Ok(describe_spec(client, &model.name).await)
    };
    within(timeout, client, spec).await
}

/// Waits for answers of a server for as long as the caller wants to wait for the kernel. Requests that start something
/// are not broken off: what they have started would be forgotten.
async fn within<T>(
    timeout: Duration,
    client: &ServerClient,
    answers: impl Future<Output = Result<T, OpenError>>,
) -> Result<T, OpenError> {
    match tokio::time::timeout(timeout, answers).await {
        Ok(answers) => answers,
        Err(_) => {
            let at = client.base().host_str().unwrap_or_default().to_owned();
            let after = timeout;
            let kind = ServerErrorKind::Timeout { at, after };
            Err(kind.of(&client.record().name).into())
        }
    }
}

/// Returns a kernel that runs on the server.
async fn wanted_kernel(client: &ServerClient, id: &str) -> Result<KernelModel, OpenError> {
    let model = client.kernel(id).await?;
    model.ok_or_else(|| OpenError::NoServerKernel {
        server: client.record().name.clone(),
        id: id.to_owned(),
    })
}

/// Returns a client of a server that the user has named, and makes sure that the server runs. `progress` gets what a hub
/// says meanwhile.
pub async fn client(
    name: &str,
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<ServerClient, OpenError> {
    let client = ServerClient::open(registry::server(name)?).await?;
    client.ensure_running(progress).await?;
    Ok(client)
}

/// Connects a session whose lock is held to a kernel on a server: the wanted one, the session's last one if it still runs
/// there, or a new one.
pub(super) async fn start(
    locked: &LockedSession<'_>,
    before: Option<Session>,
    requested: &WantedServer,
    (spec_name, named): (Option<&str>, &NamedKernel),
    timeout: Duration,
) -> Result<Session, OpenError> {
    let client = client(&requested.name, &mut |_| {}).await?;
    let notebook = locked.project.notebook(locked.key);
    let before = before.unwrap_or_else(|| Session::local(notebook.clone()));
    let last_remote = before.as_remote().filter(|it| it.server == requested.name);
    let answers = async {
        let spec = match &requested.spec {
            Some(spec) => Some(spec.clone()),
            None => choose(&client, named, spec_name).await?,
        };
        let running = match (&requested.kernel_id, last_remote) {
            (Some(id), _) => {
                let model = wanted_kernel(&client, id).await?;
                let last = last_remote.filter(|last| last.owned && last.kernel_id == *id);
                let session = last.and_then(|last| last.server_session.clone());
                let backend = Backend::remote(&requested.name, id, session, last.is_some());
                Some((model, backend))
            }
            (None, Some(last)) if last.owned => {
                // It was left running, or the server has started its process anew.
                let model = client.kernel(&last.kernel_id).await?;
                model.map(|model| (model, Backend::Remote(last.clone())))
            }
            (None, Some(last)) => {
                let model = wanted_kernel(&client, &last.kernel_id).await?;
                Some((model, Backend::Remote(last.clone())))
            }
            (None, None) => None,
        };
        Ok((spec, running))
    };
    let (spec, running) = within(timeout, &client, answers).await?;
    check_limit(&client, &notebook)?;
    let (model, remote) = match running {
        Some(running) => running,
        None => start_new(locked, &client, spec.as_ref().map(|spec| &*spec.name)).await?,
    };
    let spec = describe_spec(&client, &model.name).await;
    let files = KernelFiles::fresh(locked.project).map_err(|source| OpenError::Lock {
        dir: locked.project.dir().to_owned(),
        source,
    })?;
    let is_same = before
        .ended
        .as_ref()
        .is_some_and(|it| it.reason == LEFT_RUNNING)
        && last_remote.is_some_and(|last_remote| last_remote.kernel_id == model.id);
    let had_kernel = before.process().is_some() || before.is_attached() || last_remote.is_some();
    let old_file = before.connection_file.clone();
    KernelFiles::of(&old_file).remove(&locked.variables);
    let session = Session {
        notebook,
        connection_file: files.connection_file().to_owned(),
        backend: remote,
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

/// Starts a kernel on the server, and returns it with its backend.
async fn start_new(
    locked: &LockedSession<'_>,
    client: &ServerClient,
    spec: Option<&str>,
) -> Result<(KernelModel, Backend), OpenError> {
    let server = &client.record().name;
    if client.record().kind == ServerKind::Gateway {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let model = client
            .start_kernel(spec, &kernel_variables(variables, system_user))
            .await?;
        let backend = Backend::remote(server, &model.id, None, true);
        return Ok((model, backend));
    }
    let server_sessions = client.sessions().await?;
    let stem = locked.key.strip_suffix(".ipynb").unwrap_or(locked.key);
    // Whoever opens a notebook of this name on the server joins its kernel. But a session of this name that is there
    // already is somebody else's.
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.ipynb"),
        _ => format!("{stem}-{number}.ipynb"),
    });
    let mut free = names.filter(|name| server_sessions.iter().all(|session| session.path != *name));
    let path = free.next().unwrap_or_else(|| locked.key.to_owned());
    let name = path.rsplit('/').next().unwrap_or(&path);
    let session = client.create_session(&path, name, spec).await?;
    let id = session.id.clone();
    let model = session.kernel.ok_or_else(|| OpenError::NoServerKernel {
        server: server.clone(),
        id: id.clone(),
    })?;
    let backend = Backend::remote(server, &model.id, Some(id), true);
    Ok((model, backend))
}

/// Fails if this user's other notebooks have as many kernels on the server as its record allows.
fn check_limit(client: &ServerClient, notebook: &Path) -> Result<(), OpenError> {
    let record = client.record();
    let Some(most) = record.max_kernels else {
        return Ok(());
    };
    let mut open = all_kernels::on_server(&record.name);
    open.retain(|it| it.notebook != notebook);
    if (open.len() as u64) < u64::from(most) {
        return Ok(());
    }
    let server = record.name.clone();
    Err(OpenError::ServerLimit { server, most, open })
}

/// Chooses the kernelspec of a new kernel: the one that is asked for, else the one that the notebook names if the server
/// has it, else one of the notebook's language; `None` for the server's default.
async fn choose(
    client: &ServerClient,
    named: &NamedKernel,
    spec_name: Option<&str>,
) -> Result<Option<RealSpec>, OpenError> {
    let KernelspecsModel {
        default,
        kernelspecs,
    } = client.kernelspecs().await?;
    let language = |name: &String| kernelspecs.get(name).map(|it| it.spec.language.as_str());
    let is_default = |language: &str| {
        let default = default.as_ref().and_then(|name| kernelspecs.get(name));
        default.is_some_and(|it| it.spec.language.eq_ignore_ascii_case(language))
    };
    let of_language = named.language.as_ref().filter(|it| !is_default(it));
    let of_language = of_language.and_then(|language_name| {
        let mut names = kernelspecs.keys();
        names.find(|it| language(it).is_some_and(|it| it.eq_ignore_ascii_case(language_name)))
    });
    let is_offered = |name: &&String| kernelspecs.contains_key(*name);
    let of_notebook = named.kernelspec.as_ref().filter(is_offered);
    let name = match spec_name {
        Some(spec_name) => Some(spec_name.to_owned()),
        None => of_notebook.or(of_language).or(default.as_ref()).cloned(),
    };
    Ok(name.map(|name| of_server(&name, kernelspecs.get(&name))))
}

/// Returns a kernelspec of the server, as far as the server describes it.
async fn describe_spec(client: &ServerClient, name: &str) -> RealSpec {
    let specs = client.kernelspecs().await.ok();
    of_server(name, specs.as_ref().and_then(|it| it.kernelspecs.get(name)))
}

fn of_server(name: &str, model: Option<&KernelspecModel>) -> RealSpec {
    let mut spec = RealSpec::named(name);
    // The server interrupts it as its kernelspec there says.
    spec.interrupt_mode = InterruptMode::Message;
    if let Some(model) = model {
        spec.display_name.clone_from(&model.spec.display_name);
        spec.language.clone_from(&model.spec.language);
    }
    spec
}

/// The reason in the record of a session whose kernel was left running on its server.
pub(super) const LEFT_RUNNING: &str = "left running on its server";

/// Restarts the kernel of a session whose lock is held.
pub(super) async fn restart(
    locked: &LockedSession<'_>,
    session: Session,
    remote: RemoteKernel,
    by: &str,
    timeout: Duration,
) -> Result<Session, OpenError> {
    let client = client(&remote.server, &mut |_| {}).await?;
    locked.record(|session| {
        session.status = Status::Restarting;
        session.ended = Some(session.ends_now("restarted", Some(by)));
    })?;
    end_bridge(locked, &session).await;
    if let Err(error) = client.restart(&remote.kernel_id).await {
        // The kernel goes on as before, as far as is known.
        locked.record(|it| {
            it.status = Status::Live;
            it.ended.clone_from(&session.ended);
        })?;
        let _ = reconnect::reconnect_held(locked, session).await;
        return Err(error.into());
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
    locked: &LockedSession<'_>,
    session: &Session,
    remote: &RemoteKernel,
    keeps_kernel: bool,
) -> Vec<String> {
    end_bridge(locked, session).await;
    let RemoteKernel {
        server, kernel_id, ..
    } = remote;
    if keeps_kernel || !remote.owned {
        return vec![format!(
            "its kernel goes on running on {server} ({kernel_id})"
        )];
    }
    let deletion = async {
        let client = ServerClient::open(registry::server(server)?).await?;
        if let Some(session) = &remote.server_session {
            // Its kernel ends with it.
            client.delete_session(session).await?;
        }
        client.delete_kernel(kernel_id).await
    };
    match deletion.await {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!(
            "its kernel {kernel_id} may go on running there, since it could not be ended: {error}"
        )],
    }
}

/// Ends the bridge of a session, and with it the connection to the server.
async fn end_bridge(locked: &LockedSession<'_>, session: &Session) {
    if let Liveness::Own(process) = liveness(session).await {
        let _ = process.signal_group(crate::kernel::process::Signal::TERM);
        locked.end(&process, ENDS).await;
    }
}
