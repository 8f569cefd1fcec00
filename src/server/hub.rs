//! A JupyterHub: it starts and stops the Jupyter Server of its user.

use std::time::{Duration, Instant};

use reqwest::{Method, Response, Url};

use super::client::{ServerClient, ServerRequest, escaped};
use super::error::{ServerError, ServerErrorKind};
use super::models::{HubProgressModel, HubUserModel};
use super::record::ServerKind;

/// How long a user's server may take to start or to stop.
const SPAWN: Duration = Duration::from_secs(600);

/// The pause between two looks at a server that starts or stops.
const PAUSE: Duration = Duration::from_millis(500);

/// The largest line of a hub's progress, in bytes.
const MOST_OF_LINE: usize = 64 << 10;

/// The state of a user's server.
enum UserServer {
    Absent,
    Pending,
    Ready,
}

impl ServerClient {
    /// Starts the server of the hub's user if it does not run, and waits until it answers. `progress` is told
    /// what the hub says meanwhile. Does nothing for other kinds of server.
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
        let deadline = Instant::now() + SPAWN;
        let mut was_asked = false;
        loop {
            match self.user_server(user).await? {
                UserServer::Ready => break,
                UserServer::Pending => {
                    was_asked = true;
                    self.follow_start(user, progress, deadline).await?;
                }
                UserServer::Absent if was_asked => {
                    return Err(self.error(ServerErrorKind::SpawnFailed {
                        user: user.clone(),
                        said: "it ended while it started".to_owned(),
                    }));
                }
                UserServer::Absent => {
                    progress(&format!("the hub starts the server of {user}"));
                    was_asked = true;
                    let request = self.hub(Method::POST, &server_path(user));
                    match self.success(&request).await {
                        // Somebody else has asked meanwhile.
                        Err(error) if is_refusal(&error) => {}
                        done => drop(done?),
                    }
                }
            }
            self.pause(deadline).await?;
        }
        // The hub's proxy may learn of the server a moment later.
        loop {
            match self.version().await {
                Err(error) if is_not_yet(&error.kind) => self.pause(deadline).await?,
                done => return done.map(drop),
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
        let deadline = Instant::now() + SPAWN;
        let request = self.hub(Method::DELETE, &server_path(user));
        self.success(&request).await?;
        while !matches!(self.user_server(user).await?, UserServer::Absent) {
            self.pause(deadline).await?;
        }
        Ok(true)
    }

    async fn user_server(&self, user: &str) -> Result<UserServer, ServerError> {
        let request = self.hub(Method::GET, &format!("users/{}", escaped(user)));
        let found: HubUserModel = self.json(request).await?;
        Ok(match found.servers.get("") {
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
                if line.len() > MOST_OF_LINE {
                    return Ok(());
                }
                if line.last() != Some(&b'\n') {
                    continue;
                }
                let event = event_of(&line);
                line.clear();
                let Some(event) = event else { continue };
                let said = event.message.as_deref().unwrap_or_default();
                let said: String = said.chars().filter(|c| !c.is_control()).take(200).collect();
                if event.failed {
                    let user = user.to_owned();
                    return Err(self.error(ServerErrorKind::SpawnFailed { user, said }));
                }
                let percent = event.progress.unwrap_or_default();
                progress(&format!("{percent:.0} % {said}"));
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
            Err(_) => Err(self.too_late()),
        }
    }

    async fn pause(&self, deadline: Instant) -> Result<(), ServerError> {
        if Instant::now() >= deadline {
            return Err(self.too_late());
        }
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }

    fn too_late(&self) -> ServerError {
        self.error(ServerErrorKind::Timeout {
            at: self.base().host_str().unwrap_or_default().to_owned(),
            after: SPAWN,
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

fn is_not_yet(kind: &ServerErrorKind) -> bool {
    use ServerErrorKind::{NotFound, NotRunning, Redirected};
    kind.may_pass()
        || matches!(
            kind,
            NotRunning { .. } | NotFound { .. } | Redirected { .. }
        )
}

fn event_of(line: &[u8]) -> Option<HubProgressModel> {
    serde_json::from_slice(line.strip_prefix(b"data:")?).ok()
}
