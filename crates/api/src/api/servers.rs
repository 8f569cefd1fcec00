//! `server`: Jupyter servers elsewhere, by the names that the user gives them.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Map;
use tokio::task::JoinSet;

use super::caller::Caller;
use super::envelope::Answer;
use super::problem::{Problem, ProblemKind};
use crate::server::credential::{StoredSecrets, forget, keep, token_in};
use crate::server::models::{KernelModel, SessionModel};
use crate::server::{
    CredentialSource, Secret, SecretPlace, ServerClient, ServerError, ServerErrorKind, ServerKind,
    ServerRecord, is_server_name, parse_address, registry,
};

/// How long `servers` waits for each of them.
const PROBE: Duration = Duration::from_secs(10);

/// A server to be added.
#[derive(Clone, Debug)]
pub struct AddServerRequest {
    /// The name for it.
    pub name: String,
    /// Its URL, as it was pasted.
    pub url: String,
    /// Where its token comes from; without it from the URL, if it has one.
    pub token: RequestedToken,
    /// Headers of each request.
    pub headers: Vec<(String, Secret)>,
    /// How many kernels the user opens there at most.
    pub max_kernels: Option<u32>,
    /// A file with the certificates of authorities.
    pub ca_file: Option<PathBuf>,
    /// Whether it may take the place of a server of this name.
    pub replace: bool,
}

/// Where the token of a server that is added comes from.
#[derive(Clone, Debug)]
pub enum RequestedToken {
    /// The URL, if it has one.
    InUrl,
    /// The caller has read it.
    Given(Secret),
    /// A private file.
    File(PathBuf),
    /// A command prints it.
    Command(String),
}

/// A server, and how it is now.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ListedServer {
    /// The user's name for it.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// `jupyter`, `gateway` or `hub`.
    pub kind: &'static str,
    /// The user of a hub.
    pub user: Option<String>,
    /// Where its token comes from.
    pub token: &'static str,
    /// Where its secrets lie.
    pub secrets: &'static str,
    /// How it is.
    pub state: ServerState,
    /// Why it is not up, and the fix.
    pub problem: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// How many kernels this user runs there.
    pub kernels: Option<usize>,
    /// How many of them are idle.
    pub idle_kernels: Option<usize>,
    /// How many kernels the user opens there at most.
    pub max_kernels: Option<u32>,
    /// How long the server takes to answer a request on a new connection, in milliseconds.
    pub latency_ms: Option<f64>,
}

/// How a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ServerState {
    /// It answers.
    Up,
    /// Nothing answers.
    Down,
    /// It refuses the token, or none can be had.
    Refused,
    /// The hub's user has no server that runs.
    Stopped,
    /// The hub starts it.
    Starting,
    /// Something else is wrong.
    Failed,
}

/// A server that was added.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AddServerAnswer {
    /// The server.
    pub server: ListedServer,
    /// What is to be known of it.
    pub notes: Vec<String>,
}

impl Answer for AddServerAnswer {}

/// The user's servers.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServersAnswer {
    /// All of them.
    pub servers: Vec<ListedServer>,
}

impl Answer for ServersAnswer {}

/// A server that was checked.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerAnswer {
    /// The server.
    pub server: ListedServer,
    /// The kernelspecs that it offers.
    pub kernelspecs: Vec<RemoteKernelspec>,
    /// What is to be known of it.
    pub notes: Vec<String>,
}

impl Answer for ServerAnswer {}

/// A kernelspec of a server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoteKernelspec {
    /// Its name.
    pub name: String,
    /// The name that people see.
    pub display_name: String,
    /// Its language.
    pub language: String,
    /// Whether it is the server's default.
    pub is_default: bool,
}

/// The kernels of a server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerKernelsAnswer {
    /// The name of the server.
    pub server: String,
    /// The kernels that run there.
    pub kernels: Vec<ServerKernel>,
    /// The kernelspecs that it offers.
    pub kernelspecs: Vec<RemoteKernelspec>,
    /// What is to be known of the list.
    pub notes: Vec<String>,
}

impl Answer for ServerKernelsAnswer {}

/// A kernel that runs on a server.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ServerKernel {
    /// Its id.
    pub id: String,
    /// The name of its kernelspec.
    pub kernelspec: String,
    /// Its execution state.
    pub state: Option<String>,
    /// When it was last active.
    pub last_activity: Option<String>,
    /// How many clients are connected to it.
    pub connections: Option<u32>,
    /// The paths of its sessions.
    pub notebooks: Vec<String>,
}

/// A server that was removed.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct RemoveServerAnswer {
    /// Its name.
    pub name: String,
    /// Its URL.
    pub url: String,
}

impl Answer for RemoveServerAnswer {}

/// A hub's user whose server was stopped.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StopServerAnswer {
    /// The name of the hub.
    pub name: String,
    /// Whether the user's server ran.
    pub ran: bool,
}

impl Answer for StopServerAnswer {}

impl From<ServerError> for Problem {
    fn from(error: ServerError) -> Self {
        let kind = match error.kind {
            ServerErrorKind::Url(_) | ServerErrorKind::Name(_) => ProblemKind::Usage,
            _ => ProblemKind::Failed,
        };
        Self::new(kind, error.to_string())
    }
}

/// Adds a server, after it has answered. Its token goes into a private file.
///
/// # Errors
/// The name is taken or not allowed, the URL is none, the token cannot be had, or the server does not answer.
pub async fn add_server(
    caller: &Caller,
    request: AddServerRequest,
) -> Result<AddServerAnswer, Problem> {
    let name = request.name.clone();
    let of = |kind: ServerErrorKind| kind.of(&name);
    check_name(&request).map_err(of)?;
    let address = parse_address(&request.url).map_err(of)?;
    let (credential, token) = match request.token {
        RequestedToken::InUrl => (stored_credential(&address.token), address.token),
        RequestedToken::Given(token) => (stored_credential(&Some(token.clone())), Some(token)),
        RequestedToken::File(file) => {
            let token = token_in(&file).map_err(of)?;
            let file = std::path::absolute(&file).unwrap_or(file);
            let source = CredentialSource::Stored {
                token_file: Some(file),
            };
            (source, Some(token))
        }
        RequestedToken::Command(command) => (CredentialSource::Command { command }, None),
    };
    let ca_file = request
        .ca_file
        .map(|file| std::path::absolute(&file).unwrap_or(file));
    let secrets = StoredSecrets::new(token.as_ref(), &request.headers);
    let undiscovered = ServerRecord {
        name: name.clone(),
        url: address.base.to_string(),
        kind: ServerKind::Jupyter,
        credential,
        headers: request
            .headers
            .iter()
            .map(|(name, _)| name.clone())
            .collect(),
        secrets: SecretPlace::Nowhere,
        ca_file,
        max_kernels: request.max_kernels,
        other: Map::new(),
    };
    let client = ServerClient::open_with(undiscovered, &secrets).await?;
    let mut record = client.discover().await?;
    let stored = keep(&name, &secrets).map_err(of).and_then(|place| {
        record.secrets = place;
        registry::store(&record)
    });
    if let Err(error) = stored {
        // No secret stays behind of a server that is not there.
        let _ = forget(&record);
        return Err(error.into());
    }
    let is_plain = address.base.scheme() == "http" && !is_local(&record.url);
    let notes = is_plain && sends_secrets(&record);
    let notes = notes.then(|| {
        format!(
            "the token goes to {} unencrypted; https or an SSH tunnel would hide it",
            record.url
        )
    });
    let client = ServerClient::open(record).await?;
    let _ = caller;
    Ok(AddServerAnswer {
        server: probe_client(&client).await,
        notes: notes.into_iter().collect(),
    })
}

fn check_name(request: &AddServerRequest) -> Result<(), ServerErrorKind> {
    let name = &request.name;
    if !is_server_name(name) {
        let text = "a server's name has letters, digits, '-', '_' and '.', and begins with a letter or a digit";
        return Err(ServerErrorKind::Name(text.to_owned()));
    }
    let servers = registry::servers().map_err(|error| error.kind)?;
    if !request.replace && servers.iter().any(|it| it.name == *name) {
        let text = "the name is taken; nb server add --replace changes that server";
        return Err(ServerErrorKind::Name(text.to_owned()));
    }
    Ok(())
}

fn stored_credential(token: &Option<Secret>) -> CredentialSource {
    match token {
        Some(_) => CredentialSource::Stored { token_file: None },
        None => CredentialSource::Nothing,
    }
}

fn sends_secrets(record: &ServerRecord) -> bool {
    record.credential != CredentialSource::Nothing || !record.headers.is_empty()
}

fn is_local(url: &str) -> bool {
    ["http://localhost", "http://127.", "http://[::1]"]
        .iter()
        .any(|start| url.starts_with(start))
}

/// Lists the user's servers, and how they are.
///
/// # Errors
/// The list cannot be read.
pub async fn servers(_: &Caller) -> Result<ServersAnswer, Problem> {
    let mut probes = JoinSet::new();
    for (at, record) in registry::servers()?.into_iter().enumerate() {
        probes.spawn(async move { (at, probe_record(record).await) });
    }
    let mut found = Vec::new();
    while let Some(probe) = probes.join_next().await {
        found.push(probe.map_err(|error| Problem::failed("look at a server", &error))?);
    }
    found.sort_by_key(|(at, _)| *at);
    Ok(ServersAnswer {
        servers: found.into_iter().map(|(_, server)| server).collect(),
    })
}

async fn probe_record(record: ServerRecord) -> ListedServer {
    match ServerClient::open(record.clone()).await {
        Ok(client) => probe_client(&client).await,
        Err(error) => listed(&record, Err(error.kind)),
    }
}

/// What a look at a server shows.
struct ServerProbe {
    version: String,
    /// Nothing if the server lists no kernels.
    kernels: Option<Vec<KernelModel>>,
    latency: Duration,
}

async fn probe_client(client: &ServerClient) -> ListedServer {
    let probe = async {
        let start = Instant::now();
        let version = client.version().await?;
        let latency = start.elapsed();
        Ok::<_, ServerError>(ServerProbe {
            version: version.version,
            latency,
            kernels: listed_kernels(client).await?,
        })
    };
    let probe = match tokio::time::timeout(PROBE, probe).await {
        Ok(probe) => probe.map_err(|error| error.kind),
        Err(_) => Err(ServerErrorKind::Timeout {
            at: client.base().host_str().unwrap_or_default().to_owned(),
            after: PROBE,
        }),
    };
    listed(client.record(), probe)
}

fn listed(record: &ServerRecord, probe: Result<ServerProbe, ServerErrorKind>) -> ListedServer {
    let (probe, problem) = match probe {
        Ok(probe) => (Some(probe), None),
        Err(kind) => (None, Some(kind)),
    };
    let kernels = probe.as_ref().and_then(|probe| probe.kernels.as_ref());
    let is_idle = |kernel: &&KernelModel| kernel.execution_state.as_deref() == Some("idle");
    ListedServer {
        name: record.name.clone(),
        url: record.url.clone(),
        kind: record.kind.as_str(),
        user: match &record.kind {
            ServerKind::Hub { user } => Some(user.clone()),
            _ => None,
        },
        token: record.credential.in_words(),
        secrets: match record.secrets {
            SecretPlace::Nowhere => "nowhere",
            SecretPlace::File => "private file",
        },
        state: problem.as_ref().map_or(ServerState::Up, state),
        problem: problem.map(|kind| kind.to_string()),
        version: probe.as_ref().map(|probe| probe.version.clone()),
        kernels: kernels.map(Vec::len),
        idle_kernels: kernels.map(|kernels| kernels.iter().filter(is_idle).count()),
        max_kernels: record.max_kernels,
        latency_ms: probe.as_ref().map(|probe| milliseconds(probe.latency)),
    }
}

/// Returns the kernels of a server; `None` if it is a gateway that lists none, which is a gateway's default.
async fn listed_kernels(client: &ServerClient) -> Result<Option<Vec<KernelModel>>, ServerError> {
    match client.kernels().await {
        Ok(kernels) => Ok(Some(kernels)),
        Err(error)
            if client.record().kind == ServerKind::Gateway
                && matches!(
                    error.kind,
                    ServerErrorKind::Unauthorized { status: 403, .. }
                ) =>
        {
            // It is no matter of the token if that is good elsewhere.
            client.kernelspecs().await.map(|_| None)
        }
        Err(error) => Err(error),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e5).round() / 100.0
}

fn state(kind: &ServerErrorKind) -> ServerState {
    use ServerErrorKind::{
        Connection, Credential, Dns, LoginPage, NotRunning, ProxyDown, Refused, Spawning, Timeout,
        Unauthorized,
    };
    match kind {
        Dns { .. } | Refused { .. } | Connection { .. } | ProxyDown { .. } | Timeout { .. } => {
            ServerState::Down
        }
        Unauthorized { .. } | LoginPage { .. } | Credential(_) => ServerState::Refused,
        NotRunning { .. } => ServerState::Stopped,
        Spawning { .. } => ServerState::Starting,
        _ => ServerState::Failed,
    }
}

/// Looks at a server closely, and starts it if it is that of a hub's user.
///
/// # Errors
/// It does not answer as a server should: the message names the fix.
pub async fn check_server(caller: &Caller, name: &str) -> Result<ServerAnswer, Problem> {
    let client = running(caller, name).await?;
    let kernelspecs = specs(&client).await?;
    let difference = client.clock_difference(Timestamp::now()).await?;
    let mut notes = Vec::new();
    if let Some(seconds) = difference.filter(|seconds| seconds.abs() > 60) {
        notes.push(format!(
            "the server's clock differs from this machine's by {seconds} s: one of them is wrong, and tokens and certificates may seem expired"
        ));
    }
    if kernelspecs.is_empty() {
        notes.push("the server offers no kernelspec: nothing can be started there".to_owned());
    }
    let server = probe_client(&client).await;
    if let (Some(limit), Some(count)) = (server.max_kernels, server.kernels)
        && count >= limit as usize
    {
        notes.push(format!(
            "{count} kernels run there, and at most {limit} may: nb kernels --server {name} lists them"
        ));
    }
    Ok(ServerAnswer {
        server,
        kernelspecs,
        notes,
    })
}

/// Returns the client of a server that runs: that of a hub's user is started.
async fn running(caller: &Caller, name: &str) -> Result<ServerClient, Problem> {
    let client = ServerClient::open(registry::server(name)?).await?;
    let progress = caller.progress;
    client.ensure_running(&mut |line| progress(line)).await?;
    client.version().await?;
    Ok(client)
}

async fn specs(client: &ServerClient) -> Result<Vec<RemoteKernelspec>, Problem> {
    let found = client.kernelspecs().await?;
    let default = found.default.as_deref();
    let rows = found.kernelspecs.iter();
    let rows = rows.map(|(name, spec)| RemoteKernelspec {
        name: name.clone(),
        display_name: spec.spec.display_name.clone(),
        language: spec.spec.language.clone(),
        is_default: default == Some(name),
    });
    Ok(rows.collect())
}

/// Lists the kernels that run on a server, and what it could start. A hub's user's server is started.
///
/// # Errors
/// The server does not answer.
pub async fn server_kernels(caller: &Caller, name: &str) -> Result<ServerKernelsAnswer, Problem> {
    let client = running(caller, name).await?;
    let kernels = listed_kernels(&client).await?;
    let note = "the gateway lists no kernels: its setting list_kernels allows it";
    // Some gateways keep sessions to themselves.
    let sessions = client.sessions().await.unwrap_or_default();
    Ok(ServerKernelsAnswer {
        server: name.to_owned(),
        notes: kernels
            .is_none()
            .then(|| note.to_owned())
            .into_iter()
            .collect(),
        kernels: kernels
            .into_iter()
            .flatten()
            .map(|it| remote_kernel(it, &sessions))
            .collect(),
        kernelspecs: specs(&client).await?,
    })
}

fn remote_kernel(kernel: KernelModel, sessions: &[SessionModel]) -> ServerKernel {
    let is_of =
        |session: &&SessionModel| session.kernel.as_ref().is_some_and(|it| it.id == kernel.id);
    ServerKernel {
        notebooks: sessions
            .iter()
            .filter(is_of)
            .map(|it| it.path.clone())
            .collect(),
        id: kernel.id,
        kernelspec: kernel.name,
        state: kernel.execution_state,
        last_activity: kernel.last_activity,
        connections: kernel.connections,
    }
}

/// Forgets a server and its secrets. Its kernels run on.
///
/// # Errors
/// There is no such server, or it cannot be removed.
pub async fn remove_server(_: &Caller, name: &str) -> Result<RemoveServerAnswer, Problem> {
    let record = registry::remove(name)?;
    Ok(RemoveServerAnswer {
        name: record.name,
        url: record.url,
    })
}

/// Stops the server of a hub's user, with its kernels.
///
/// # Errors
/// The server is none of a hub, or the hub refuses.
pub async fn stop_server(_: &Caller, name: &str) -> Result<StopServerAnswer, Problem> {
    let client = ServerClient::open(registry::server(name)?).await?;
    Ok(StopServerAnswer {
        name: name.to_owned(),
        ran: client.stop_user_server().await?,
    })
}
