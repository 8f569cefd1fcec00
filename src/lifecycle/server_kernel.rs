//! Kernels on a Jupyter server: started, restarted and ended by its REST interface.

use std::time::Duration;

use jiff::Timestamp;

use super::action_event::journal;
use super::everywhere;
use super::everywhere::still_runs;
use super::liveness::{Liveness, liveness};
use super::open_error::OpenError;
use super::reconnect;
use super::start::{Held, replace};
use crate::kernel::process::connection::{self, KernelFiles};
use crate::notebook::NamedKernel;
use crate::project::event::EventKind;
use crate::project::{Backend, InterruptMode, RealSpec, RemoteKernel, Session, Status};
use crate::server::gateway::kernel_variables;
use crate::server::models::{KernelModel, KernelspecModel, KernelspecsModel};
use crate::server::{ServerClient, ServerKind, registry};
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
    wanted: &WantedServer,
    asked: Option<&str>,
) -> Result<RealSpec, OpenError> {
    let Some(id) = &wanted.kernel_id else {
        let chosen = choose(client, &NamedKernel::default(), asked).await?;
        return Ok(chosen.unwrap_or_else(|| RealSpec::named("python3")));
    };
    let model = client.kernel(id).await?;
    let model = model.ok_or_else(|| OpenError::NoServerKernel {
        server: wanted.name.clone(),
        id: id.clone(),
    })?;
    Ok(described(client, &model.name).await)
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
    held: &Held<'_>,
    before: Option<Session>,
    wanted: &WantedServer,
    (asked, named): (Option<&str>, &NamedKernel),
    patience: Duration,
) -> Result<Session, OpenError> {
    let client = client(&wanted.name, &mut |_| {}).await?;
    let notebook = held.project.notebook(held.key);
    let spec = match &wanted.spec {
        Some(spec) => Some(spec.clone()),
        None => choose(&client, named, asked).await?,
    };
    let spec = spec.as_ref().map(|spec| &*spec.name);
    let before = before.unwrap_or_else(|| Session::local(notebook.clone()));
    let last = before.as_remote().filter(|it| it.server == wanted.name);
    let (model, remote) = match (&wanted.kernel_id, last) {
        (Some(id), _) => {
            let model = client
                .kernel(id)
                .await?
                .ok_or_else(|| OpenError::NoServerKernel {
                    server: wanted.name.clone(),
                    id: id.clone(),
                })?;
            let owned = last.is_some_and(|last| last.owned && last.kernel_id == *id);
            let session = last.and_then(|last| last.server_session.clone());
            let session = session.filter(|_| owned);
            (model, Backend::remote(&wanted.name, id, session, owned))
        }
        (None, Some(last)) => match client.kernel(&last.kernel_id).await? {
            // It was left running, or the server has started its process anew.
            Some(model) => (model, Backend::Remote(last.clone())),
            None if !last.owned => {
                return Err(OpenError::NoServerKernel {
                    server: wanted.name.clone(),
                    id: last.kernel_id.clone(),
                });
            }
            None => new(held, &client, spec).await?,
        },
        (None, None) => new(held, &client, spec).await?,
    };
    let spec = described(&client, &model.name).await;
    let files = KernelFiles::fresh(held.project).map_err(|source| OpenError::Lock {
        dir: held.project.dir().to_owned(),
        source,
    })?;
    let is_same = before.ended.as_ref().is_some_and(|it| it.reason == LEFT)
        && last.is_some_and(|last| last.kernel_id == model.id);
    let had_one = before.process().is_some() || before.is_attached() || last.is_some();
    let old_file = before.connection_file.clone();
    KernelFiles::of(&old_file).remove(&held.variables);
    let session = Session {
        notebook,
        connection_file: files.connection_file().to_owned(),
        backend: remote,
        status: Status::Starting,
        generation: before.generation + u64::from(had_one && !is_same),
        kernelspec: Some(spec.clone()),
        transport: Transport::Ipc,
        started_at: match is_same {
            true => before.started_at,
            false => Some(Timestamp::now()),
        },
        ..before
    };
    held.update(|state| replace(state, held.key, session, Some(&old_file)))?;
    held.create(&files, false, Transport::Ipc, &spec)?;
    held.run_bridge(&files, patience).await
}

/// Starts a kernel on the server, and returns it with its backend.
async fn new(
    held: &Held<'_>,
    client: &ServerClient,
    spec: Option<&str>,
) -> Result<(KernelModel, Backend), OpenError> {
    check_limit(client).await?;
    let server = &client.record().name;
    if client.record().kind == ServerKind::Gateway {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let model = client
            .start_kernel(spec, &kernel_variables(variables))
            .await?;
        let backend = Backend::remote(server, &model.id, None, true);
        return Ok((model, backend));
    }
    let taken = client.sessions().await?;
    let stem = held.key.strip_suffix(".ipynb").unwrap_or(held.key);
    // Whoever opens a notebook of this name on the server joins its kernel. But a session of this name that is there
    // already is somebody else's.
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.ipynb"),
        _ => format!("{stem}-{number}.ipynb"),
    });
    let mut free = names.filter(|name| taken.iter().all(|session| session.path != *name));
    let path = free.next().unwrap_or_else(|| held.key.to_owned());
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

/// Fails if this user has as many kernels on the server as its record allows.
async fn check_limit(client: &ServerClient) -> Result<(), OpenError> {
    let record = client.record();
    let Some(most) = record.max_kernels else {
        return Ok(());
    };
    let open = everywhere::on_server(&record.name);
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
    asked: Option<&str>,
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
    let of_language = of_language.and_then(|wanted| {
        let mut names = kernelspecs.keys();
        names.find(|it| language(it).is_some_and(|it| it.eq_ignore_ascii_case(wanted)))
    });
    let is_there = |name: &&String| kernelspecs.contains_key(*name);
    let of_notebook = named.kernelspec.as_ref().filter(is_there);
    let name = match asked {
        Some(asked) => Some(asked.to_owned()),
        None => of_notebook.or(of_language).or(default.as_ref()).cloned(),
    };
    Ok(name.map(|name| of_server(&name, kernelspecs.get(&name))))
}

/// Returns a kernelspec of the server, as far as the server describes it.
async fn described(client: &ServerClient, name: &str) -> RealSpec {
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
pub(super) const LEFT: &str = "left running on its server";

/// Restarts the kernel of a session whose lock is held.
pub(super) async fn restart(
    held: &Held<'_>,
    session: Session,
    remote: RemoteKernel,
    by: &str,
    patience: Duration,
) -> Result<Session, OpenError> {
    let client = client(&remote.server, &mut |_| {}).await?;
    held.record(|session| {
        session.status = Status::Restarting;
        session.ended = Some(session.ends_now("restarted", Some(by)));
    })?;
    end_bridge(held, &session).await;
    if let Err(error) = client.restart(&remote.kernel_id).await {
        // The kernel goes on as before, as far as is known.
        held.record(|it| {
            it.status = Status::Live;
            it.ended.clone_from(&session.ended);
        })?;
        let _ = reconnect::reconnect_held(held, session).await;
        return Err(error.into());
    }
    held.record(|session| {
        session.generation += 1;
        session.started_at = Some(Timestamp::now());
        if let Some(remote) = session.as_remote_mut() {
            // What the old kernel said is not for the new one's clients.
            remote.websocket_session = uuid::Uuid::new_v4().to_string();
        }
    })?;
    let files = KernelFiles::of(&session.connection_file);
    match connection::read(files.connection_file()) {
        Ok(_) => files.remove_sockets(&held.variables),
        Err(_) => {
            let spec = session.kernelspec.unwrap_or_else(|| RealSpec::named(""));
            files.remove(&held.variables);
            held.create(&files, false, Transport::Ipc, &spec)?;
        }
    }
    let session = held.run_bridge(&files, patience).await?;
    journal(held.project, held.key, &session, EventKind::Restarted, by);
    held.project.remember(held.key, &session, still_runs);
    Ok(session)
}

/// Ends the bridge of a session, and the kernel on the server unless it is left running. Returns what the user should
/// know.
pub(super) async fn end(
    held: &Held<'_>,
    session: &Session,
    remote: &RemoteKernel,
    leaves: bool,
) -> Vec<String> {
    end_bridge(held, session).await;
    let RemoteKernel {
        server, kernel_id, ..
    } = remote;
    if leaves || !remote.owned {
        return vec![format!(
            "its kernel goes on running on {server} ({kernel_id})"
        )];
    }
    let ended = async {
        let client = ServerClient::open(registry::server(server)?).await?;
        if let Some(session) = &remote.server_session {
            // Its kernel ends with it.
            client.delete_session(session).await?;
        }
        client.delete_kernel(kernel_id).await
    };
    match ended.await {
        Ok(()) => Vec::new(),
        Err(error) => vec![format!(
            "its kernel {kernel_id} may go on running there, since it could not be ended: {error}"
        )],
    }
}

/// Ends the bridge of a session, and with it the connection to the server.
async fn end_bridge(held: &Held<'_>, session: &Session) {
    if let Liveness::Own(process) = liveness(session).await {
        let _ = process.signal_group(crate::kernel::process::Signal::TERM);
        held.end(&process, ENDS).await;
    }
}
