//! Kernels on Jupyter servers as kernels of this machine.
//!
//! For each of them a process, the bridge, binds the five sockets of a connection file, and holds the only websocket to
//! the kernel. Clients need not know that the kernel runs elsewhere. `nb` starts the bridge like a kernel: it belongs to no
//! shell, and has a supervisor.
//!
//! | file | content |
//! |---|---|
//! | `requests`, `numbers` | the requests under way, and what happens to them when the connection is lost. Pure |
//! | `backoff`, `recent` | pauses between attempts to connect; messages for clients that join late. Pure |
//! | `bridge`, `clients` | passes messages between the sockets and the websocket |
//! | `connection` | keeps the websocket open |
//! | [`kernels`] | finds, starts, restarts and ends kernels on servers |
//! | [`named_files`] | the files that a notebook's cells name and that the server does not have |

mod backoff;
mod bridge;
mod clients;
mod connection;
pub mod kernels;
mod log;
pub mod named_files;
mod numbers;
mod recent;
mod requests;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};

use self::bridge::Bridge;
use self::connection::Reporter;
use self::log::log;
use crate::kernel::process::connection as connection_file_of;
use crate::project::{Config, Project, RemoteKernel, Status};
use crate::server::ServerClient;
use crate::server::registry;
use crate::task::causes::with_causes;

/// The exit status when the kernel has ended.
const KERNEL_ENDED: u8 = 3;

/// How long clients may take to read what is left for them when the process ends.
const FLUSH: Duration = Duration::from_secs(2);

/// Runs the bridge of a session until its kernel ends or SIGTERM arrives. Its stderr is the kernel's log.
pub fn run(state_file: &Path, key: &str, connection_file: &Path) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build_local(tokio::runtime::LocalOptions::default());
    let result = match runtime {
        Ok(runtime) => runtime.block_on(serve(state_file, key, connection_file)),
        Err(error) => Err(error.to_string()),
    };
    result.unwrap_or_else(|error| {
        log(&error);
        ExitCode::FAILURE
    })
}

async fn serve(state_file: &Path, key: &str, connection_file: &Path) -> Result<ExitCode, String> {
    let (remote, is_first, config) = remote_of(state_file, key)?;
    let connection =
        connection_file_of::read(connection_file).map_err(|error| with_causes(&error))?;
    let record = registry::server(&remote.server).map_err(|error| error.to_string())?;
    let client = ServerClient::open(record).await;
    let client = client.map_err(|error| error.to_string())?;
    let session = &remote.websocket_session;
    // Before the sockets are there, so that no signal ends the process.
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| error.to_string())?;
    let mut retry = signal(SignalKind::user_defined1()).map_err(|error| error.to_string())?;
    // An interrupt of the process group is not an interrupt of the kernel.
    let _interrupt = signal(SignalKind::interrupt()).map_err(|error| error.to_string())?;
    let bridge = Bridge::bind(
        client,
        &remote.kernel_id,
        session,
        connection_file.to_owned(),
        &connection,
        config.ping_interval(),
    );
    let bridge = bridge.map_err(|error| with_causes(&error))?;
    let retries = async {
        while retry.recv().await.is_some() {
            bridge.retry();
        }
        std::future::pending::<()>().await;
    };
    let mut reporter = Reporter::new(&bridge);
    let code = tokio::select! {
        result = connection::keep_open(&bridge, session, is_first, &mut reporter) => {
            result.map_err(|error| error.to_string())?;
            ExitCode::from(KERNEL_ENDED)
        }
        _ = terminate.recv() => ExitCode::SUCCESS,
        () = retries => ExitCode::SUCCESS,
        _ = bridge.kernel_ended() => ExitCode::from(KERNEL_ENDED),
    };
    if code == ExitCode::from(KERNEL_ENDED) {
        reporter.kernel_ended(&bridge.kernel_ended().await);
    }
    bridge.endpoint().close(Instant::now() + FLUSH).await;
    Ok(code)
}

/// Returns the kernel that a session records, whether a command waits for the first connection to it, and the settings.
fn remote_of(state_file: &Path, key: &str) -> Result<(RemoteKernel, bool, Config), String> {
    let project = Project::of_state_file(state_file).map_err(|error| with_causes(&error))?;
    let state = project.state().map_err(|error| with_causes(&error))?;
    let session = state.sessions.get(&project.current_key(key));
    let remote = session.and_then(|session| Some((session.as_remote()?, &session.status)));
    let (remote, status) = remote.ok_or_else(|| format!("{key} has no kernel on a server"))?;
    let config = project.settings().map_err(|error| with_causes(&error))?;
    Ok((remote.clone(), *status != Status::Live, config))
}
