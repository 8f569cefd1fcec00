//! Checks of the server on which a notebook's kernel runs.

use std::path::Path;

use super::Check;
use crate::hint::{Verb, nb};
use crate::lifecycle::server_connection;
use crate::project::{Project, RemoteKernel, Session, Status};
use crate::server::{ServerClient, ServerError, registry};

/// Checks the server of a notebook's kernel, its token, and the connection; `None` if the kernel runs on this machine.
pub(super) async fn checks(notebook: &Path) -> Option<Vec<Check>> {
    let project = Project::find(notebook)?;
    let session = project.state().ok()?.session(&project.key(notebook))?;
    let remote = session.as_remote()?;
    let server = match server(remote).await {
        Ok(client) => client,
        Err(error) => {
            let fix = format!("nb server check {}", remote.server);
            return Some(vec![Check::bad("server", error.to_string(), fix)]);
        }
    };
    let text = format!("{} ({}) answers", remote.server, server.record().url);
    let connection = connection(&session, remote, &server).await;
    let checks = std::iter::once(Check::good("server", text)).chain(connection);
    Some(checks.collect())
}

/// Returns a client of the server, which has answered a request that needs the token.
async fn server(remote: &RemoteKernel) -> Result<ServerClient, ServerError> {
    let client = ServerClient::open(registry::server(&remote.server)?).await?;
    client.kernelspecs().await?;
    Ok(client)
}

/// Checks the connection to a kernel that was not shut down.
async fn connection(
    session: &Session,
    remote: &RemoteKernel,
    server: &ServerClient,
) -> Option<Check> {
    const ABOUT: &str = "connection";
    if session.status != Status::Live {
        return None;
    }
    let open = nb(Verb::Open).this();
    Some(match server.kernel(&remote.kernel_id).await {
        Err(error) => Check::bad(ABOUT, error.to_string(), open),
        Ok(None) => {
            let text = format!("{} does not run the kernel any more", remote.server);
            Check::bad(ABOUT, text, open)
        }
        Ok(Some(kernel)) => match server_connection::lost(session) {
            Some(lost) => Check::bad(ABOUT, lost.to_string(), open),
            None => Check::good(ABOUT, format!("{} ({})", kernel.name, kernel.id)),
        },
    })
}
