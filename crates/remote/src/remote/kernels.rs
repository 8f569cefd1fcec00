//! Kernels on a Jupyter server: found, started, restarted and ended by its REST interface.

use std::path::Path;
use std::time::Duration;

use crate::lifecycle::all_kernels;
use crate::lifecycle::open_error::OpenError;
use crate::lifecycle::server_kernel::{
    KernelOnServer, ServerKernelRequest, ServerKernels, WantedServer,
};
use crate::notebook::NamedKernel;
use crate::project::{InterruptMode, RealSpec, RemoteKernel};
use crate::server::gateway::{kernel_variables, system_user};
use crate::server::models::{KernelModel, KernelspecModel, KernelspecsModel};
use crate::server::{ServerClient, ServerError, ServerErrorKind, ServerKind, registry};

/// The user's Jupyter servers.
#[derive(Clone, Copy, Debug)]
pub struct UserServers;

impl ServerKernels for UserServers {
    type Client = ServerClient;

    async fn client(&self, server: &str) -> Result<ServerClient, OpenError> {
        client(server, &mut |_| {}).await
    }

    async fn find_or_start(
        &self,
        request: ServerKernelRequest<'_>,
    ) -> Result<KernelOnServer, OpenError> {
        let wanted = request.wanted;
        let client = self.client(&wanted.name).await?;
        let answers = async {
            let spec = match &wanted.spec {
                Some(spec) => Some(spec.clone()),
                None => choose(&client, request.named, request.spec_name).await?,
            };
            Ok((spec, running(&client, wanted, request.last).await?))
        };
        let (spec, running) = within(request.timeout, &client, answers).await?;
        check_limit(&client, request.notebook)?;
        let (model, kernel) = match running {
            Some(running) => running,
            None => start_new(request.key, &client, spec.as_ref().map(|spec| &*spec.name)).await?,
        };
        let spec = describe_spec(&client, &model.name).await;
        Ok(KernelOnServer { kernel, spec })
    }

    async fn restart(&self, client: &ServerClient, kernel: &RemoteKernel) -> Result<(), OpenError> {
        Ok(client.restart(&kernel.kernel_id).await?)
    }

    async fn end(&self, kernel: &RemoteKernel) -> Result<(), OpenError> {
        let client = ServerClient::open(registry::server(&kernel.server)?).await?;
        if let Some(session) = &kernel.server_session {
            // Its kernel ends with it.
            client.delete_session(session).await?;
        }
        Ok(client.delete_kernel(&kernel.kernel_id).await?)
    }
}

impl From<ServerError> for OpenError {
    fn from(error: ServerError) -> Self {
        Self::Server(Box::new(error))
    }
}

/// Returns the wanted kernel, or the session's last one on this server, if it runs there; `None` for a new one.
async fn running(
    client: &ServerClient,
    wanted: &WantedServer,
    last: Option<&RemoteKernel>,
) -> Result<Option<(KernelModel, RemoteKernel)>, OpenError> {
    Ok(match (&wanted.kernel_id, last) {
        (Some(id), _) => {
            let model = wanted_kernel(client, id).await?;
            let last = last.filter(|last| last.owned && last.kernel_id == *id);
            let session = last.and_then(|last| last.server_session.clone());
            let kernel = RemoteKernel::new(&wanted.name, id, session, last.is_some());
            Some((model, kernel))
        }
        (None, Some(last)) if last.owned => {
            // It was left running, or the server has started its process anew.
            let model = client.kernel(&last.kernel_id).await?;
            model.map(|model| (model, last.clone()))
        }
        (None, Some(last)) => {
            let model = wanted_kernel(client, &last.kernel_id).await?;
            Some((model, last.clone()))
        }
        (None, None) => None,
    })
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

/// Starts a kernel on the server, and returns it with its backend.
async fn start_new(
    key: &str,
    client: &ServerClient,
    spec: Option<&str>,
) -> Result<(KernelModel, RemoteKernel), OpenError> {
    let server = &client.record().name;
    if client.record().kind == ServerKind::Gateway {
        let variables = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        let model = client
            .start_kernel(spec, &kernel_variables(variables, system_user))
            .await?;
        let kernel = RemoteKernel::new(server, &model.id, None, true);
        return Ok((model, kernel));
    }
    let server_sessions = client.sessions().await?;
    let stem = key.strip_suffix(".ipynb").unwrap_or(key);
    // Whoever opens a notebook of this name on the server joins its kernel. But a session of this name that is there
    // already is somebody else's.
    let names = (1..).map(|number| match number {
        1 => format!("{stem}.ipynb"),
        _ => format!("{stem}-{number}.ipynb"),
    });
    let mut free = names.filter(|name| server_sessions.iter().all(|session| session.path != *name));
    let path = free.next().unwrap_or_else(|| key.to_owned());
    let name = path.rsplit('/').next().unwrap_or(&path);
    let session = client.create_session(&path, name, spec).await?;
    let id = session.id.clone();
    let model = session.kernel.ok_or_else(|| OpenError::NoServerKernel {
        server: server.clone(),
        id: id.clone(),
    })?;
    let kernel = RemoteKernel::new(server, &model.id, Some(id), true);
    Ok((model, kernel))
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
