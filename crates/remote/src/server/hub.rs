//! A JupyterHub: it starts and stops the Jupyter Server of its user.

use std::time::{Duration, Instant};

use reqwest::{Method, Response, Url};

use super::client::{ServerClient, ServerRequest, escaped};
use super::error::{ServerError, ServerErrorKind};
use super::models::{HubProgressModel, HubUserModel};
use super::record::ServerKind;

/// How long a user's server may take to start or to stop.
const SPAWN_TIMEOUT: Duration = Duration::from_secs(600);

/// The pause between two checks of a server that starts or stops.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The largest line of a hub's progress, in bytes.
const LINE_BYTES_MAX: usize = 64 << 10;

/// The state of a user's server.
enum UserServer {
    Absent,
    Pending,
    Ready,
}

impl ServerClient {
    /// Starts the server of the hub's user if it does not run, and waits until it answers. `progress` gets
    /// the hub's messages meanwhile. Does nothing for other kinds of server.
    ///
    /// # Errors
    /// A request fails, or the hub cannot start it.
    pub async fn ensure_running(
        &self,
        progress: &mut (dyn FnMut(&str) + Send),
    ) -> Result<(), ServerError> {
        let ServerKind::Hub { user } = &self.record().kind else {
            return Ok(());
        };
        let deadline = Instant::now() + SPAWN_TIMEOUT;
        let mut has_requested = false;
        loop {
            match self.user_server(user).await? {
                UserServer::Ready => break,
                UserServer::Pending => {
                    has_requested = true;
                    self.follow_start(user, progress, deadline).await?;
                }
                UserServer::Absent if has_requested => {
                    return Err(self.error(ServerErrorKind::SpawnFailed {
                        user: user.clone(),
                        message: "it ended while it started".to_owned(),
                    }));
                }
                UserServer::Absent => {
                    progress(&format!("the hub starts the server of {user}"));
                    has_requested = true;
                    let request = self.hub(Method::POST, &server_path(user));
                    match self.success(&request).await {
                        // Another client has requested it meanwhile.
                        Err(error) if is_refusal(&error) => {}
                        result => drop(result?),
                    }
                }
            }
            self.pause(deadline).await?;
        }
        // The hub's proxy may know the server a moment later.
        loop {
            match self.version().await {
                Err(error) if may_be_starting(&error.kind) => self.pause(deadline).await?,
                result => return result.map(drop),
            }
        }
    }

    /// Stops the server of the hub's user, with all its kernels; returns whether one ran.
    ///
    /// # Errors
    /// The server is none of a hub, or a request fails.
    pub async fn stop_user_server(&self) -> Result<bool, ServerError> {
        let ServerKind::Hub { user } = &self.record().kind else {
            let text = "it is no hub, which alone stops its users' servers".to_owned();
            return Err(self.error(ServerErrorKind::Name(text)));
        };
        if matches!(self.user_server(user).await?, UserServer::Absent) {
            return Ok(false);
        }
        let deadline = Instant::now() + SPAWN_TIMEOUT;
        let request = self.hub(Method::DELETE, &server_path(user));
        self.success(&request).await?;
        while !matches!(self.user_server(user).await?, UserServer::Absent) {
            self.pause(deadline).await?;
        }
        Ok(true)
    }

    async fn user_server(&self, user: &str) -> Result<UserServer, ServerError> {
        let request = self.hub(Method::GET, &format!("users/{}", escaped(user)));
        let user_model: HubUserModel = self.json(request).await?;
        Ok(match user_model.servers.get("") {
            None => UserServer::Absent,
            Some(server) if server.ready && server.pending.is_none() => UserServer::Ready,
            Some(_) => UserServer::Pending,
        })
    }

    /// Follows the hub's events about a start until there are no more.
    async fn follow_start(
        &self,
        user: &str,
        progress: &mut (dyn FnMut(&str) + Send),
        deadline: Instant,
    ) -> Result<(), ServerError> {
        let request = self.hub(Method::GET, &format!("{}/progress", server_path(user)));
        let Ok(mut response) = self.success(&request).await else {
            // An older hub, or the start has just ended: the state is asked for anyway.
            return Ok(());
        };
        let mut line = Vec::new();
        while let Some(bytes) = self.next_bytes(&mut response, deadline).await? {
            for part in bytes.split_inclusive(|byte| *byte == b'\n') {
                line.extend_from_slice(part);
                if line.len() > LINE_BYTES_MAX {
                    return Ok(());
                }
                if line.last() != Some(&b'\n') {
                    continue;
                }
                let event = event_of(&line);
                line.clear();
                let Some(event) = event else { continue };
                let message = event.message.as_deref().unwrap_or_default();
                let message: String = message
                    .chars()
                    .filter(|c| !c.is_control())
                    .take(200)
                    .collect();
                if event.failed {
                    let user = user.to_owned();
                    return Err(self.error(ServerErrorKind::SpawnFailed { user, message }));
                }
                let percent = event.progress.unwrap_or_default();
                progress(&format!("{percent:.0} % {message}"));
                if event.ready {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn next_bytes(
        &self,
        response: &mut Response,
        deadline: Instant,
    ) -> Result<Option<Vec<u8>>, ServerError> {
        let chunk = tokio::time::timeout_at(deadline.into(), response.chunk());
        match chunk.await {
            Ok(Ok(bytes)) => Ok(bytes.map(|bytes| bytes.to_vec())),
            // The state is asked for anyway.
            Ok(Err(_)) => Ok(None),
            Err(_) => Err(self.timeout_error()),
        }
    }

    async fn pause(&self, deadline: Instant) -> Result<(), ServerError> {
        if Instant::now() >= deadline {
            return Err(self.timeout_error());
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        Ok(())
    }

    fn timeout_error(&self) -> ServerError {
        self.error(ServerErrorKind::Timeout {
            at: self.base().host_str().unwrap_or_default().to_owned(),
            after: SPAWN_TIMEOUT,
        })
    }

    /// Returns a request to the hub itself.
    fn hub(&self, method: Method, path: &str) -> ServerRequest {
        self.request_of(method, hub_url(&self.record().url, path, self.base()))
    }
}

/// Returns the URL of a path of the hub's interface.
fn hub_url(hub: &str, path: &str, fallback: &Url) -> Url {
    let joined = Url::parse(hub).and_then(|hub| hub.join(&format!("hub/api/{path}")));
    joined.unwrap_or_else(|_| fallback.clone())
}

fn server_path(user: &str) -> String {
    format!("users/{}/server", escaped(user))
}

fn is_refusal(error: &ServerError) -> bool {
    matches!(error.kind, ServerErrorKind::Refusal { status: 400, .. })
}

fn may_be_starting(kind: &ServerErrorKind) -> bool {
    use ServerErrorKind::{NoServer, NotRunning, Redirected};
    kind.is_transient()
        || matches!(
            kind,
            NotRunning { .. } | NoServer { .. } | Redirected { .. }
        )
}

fn event_of(line: &[u8]) -> Option<HubProgressModel> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}
