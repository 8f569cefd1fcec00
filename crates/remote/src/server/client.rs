//! A server's REST interface, over one HTTP client.
//!
//! Every request has a deadline, and every answer a limit. Redirections are not followed, since a token goes
//! to no other host. A token that is refused is renewed once, if it has a source, and the request repeated.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use reqwest::header::{
    ACCEPT, CONNECTION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Method, Response, StatusCode, Url};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::credential::{self, StoredSecrets};
use super::error::{ServerError, ServerErrorKind};
use super::gateway::{checks_certificates, client_certificate};
use super::headers::CredentialHeaders;
use super::models::{FailureModel, KernelModel, KernelspecsModel, ServerVersion, SessionModel};
use super::proxy::is_loopback;
use super::record::{CredentialSource, ServerKind, ServerRecord};
use crate::kernel::variables::ProcessVariables;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the start or restart of a kernel may take: a cluster has to find room.
const START_TIMEOUT: Duration = Duration::from_secs(180);

/// The largest answer, in bytes.
const ANSWER_BYTES_MAX: u64 = 16 << 20;

/// The largest answer to a request that failed, in bytes.
const FAILURE_BYTES_MAX: u64 = 64 << 10;

/// A client of one server, with its credential.
pub struct ServerClient {
    record: ServerRecord,
    /// The base of the Jupyter server; for a hub that of its user's server.
    base: Url,
    http: reqwest::Client,
    credential: Mutex<Arc<CredentialHeaders>>,
    /// Held while the credential is renewed.
    renewal: tokio::sync::Mutex<()>,
}

/// A request that can be repeated.
pub(super) struct ServerRequest {
    method: Method,
    url: Url,
    body: Option<Vec<u8>>,
    pub(super) headers: HeaderMap,
    deadline: Duration,
    /// The largest answer, in bytes.
    limit: u64,
}

impl ServerRequest {
    pub(super) fn within(mut self, deadline: Duration) -> Self {
        self.deadline = deadline;
        self
    }

    pub(super) fn json(mut self, body: &Value) -> Self {
        self.body = Some(body.to_string().into_bytes());
        self
    }
}

/// A connection that a server has made a websocket.
pub struct UpgradedConnection {
    /// The bytes of the connection.
    pub stream: reqwest::Upgraded,
    /// The subprotocol that the server has chosen.
    pub protocol: Option<String>,
    /// The headers of the answer.
    pub headers: HeaderMap,
}

impl ServerClient {
    /// Makes a client: reads the credential, connects to nothing.
    ///
    /// # Errors
    /// The record's URL, its file of certificates or its credential cannot be used.
    pub async fn open(record: ServerRecord) -> Result<Self, ServerError> {
        match credential::load(&record).await {
            Ok(credential) => Self::of(record, credential),
            Err(kind) => Err(kind.of(&record.name)),
        }
    }

    /// Makes a client of a server whose secrets are not stored yet.
    ///
    /// # Errors
    /// Those of [`ServerClient::open`].
    pub async fn open_with(
        record: ServerRecord,
        secrets: &StoredSecrets,
    ) -> Result<Self, ServerError> {
        match credential::load_with(&record, secrets).await {
            Ok(credential) => Self::of(record, credential),
            Err(kind) => Err(kind.of(&record.name)),
        }
    }

    fn of(record: ServerRecord, credential: CredentialHeaders) -> Result<Self, ServerError> {
        let (base, http) = Self::make_http(&record).map_err(|kind| kind.of(&record.name))?;
        Ok(Self {
            record,
            base,
            http,
            credential: Mutex::new(Arc::new(credential)),
            renewal: tokio::sync::Mutex::new(()),
        })
    }

    fn make_http(record: &ServerRecord) -> Result<(Url, reqwest::Client), ServerErrorKind> {
        // Without sockets the runtime cannot wait for one, and the HTTP client would panic.
        if let Err(error) = std::os::unix::net::UnixStream::pair() {
            let text = format!("this process may not use the network ({error})");
            return Err(ServerErrorKind::Setup(text));
        }
        let url =
            Url::parse(&record.url).map_err(|error| ServerErrorKind::Url(error.to_string()))?;
        let base = match &record.kind {
            ServerKind::Hub { user } => {
                let user = escaped(user);
                let joined = url.join(&format!("user/{user}/"));
                joined.map_err(|error| ServerErrorKind::Url(error.to_string()))?
            }
            _ => url,
        };
        let http = http_client(record, &base)?;
        Ok((base, http))
    }

    /// Returns the record that the client was made of.
    pub fn record(&self) -> &ServerRecord {
        &self.record
    }

    /// Returns the base URL of the Jupyter server; for a hub that of its user's server.
    pub fn base(&self) -> &Url {
        &self.base
    }

    /// Asks for the server's version.
    ///
    /// # Errors
    /// The request fails, the answer is none of a Jupyter server, or the server is too old.
    pub async fn version(&self) -> Result<ServerVersion, ServerError> {
        let version = self.json(self.get("api")).await;
        let version: ServerVersion = version.map_err(|error: ServerError| match error.kind {
            ServerErrorKind::NotFound { subject: path } => {
                self.error(ServerErrorKind::NoServer { path })
            }
            kind => self.error(kind),
        })?;
        let major = version.version.split('.').next();
        match major.and_then(|number| number.parse::<u32>().ok()) {
            Some(0) => Err(self.error(ServerErrorKind::TooOld {
                version: version.version,
            })),
            _ => Ok(version),
        }
    }

    /// Returns by how much the server's clock is ahead of this machine's, in seconds.
    ///
    /// # Errors
    /// The request fails.
    pub async fn clock_difference(&self, now: jiff::Timestamp) -> Result<Option<i64>, ServerError> {
        let response = self.success(&self.get("api")).await?;
        let date = response.headers().get(DATE);
        let date = date.and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        Ok(date.map(|date| date.timestamp().as_second() - now.as_second()))
    }

    /// Lists the server's kernelspecs.
    ///
    /// # Errors
    /// The request fails.
    pub async fn kernelspecs(&self) -> Result<KernelspecsModel, ServerError> {
        self.json(self.get("api/kernelspecs")).await
    }

    /// Lists the kernels that the server runs.
    ///
    /// # Errors
    /// The request fails.
    pub async fn kernels(&self) -> Result<Vec<KernelModel>, ServerError> {
        self.json(self.get("api/kernels")).await
    }

    /// Returns a kernel; `None` if the server does not run it.
    ///
    /// # Errors
    /// The request fails.
    pub async fn kernel(&self, id: &str) -> Result<Option<KernelModel>, ServerError> {
        let answer = self.json(self.get(&format!("api/kernels/{}", escaped(id))));
        match answer.await {
            Ok(kernel) => Ok(Some(kernel)),
            Err(error) if matches!(error.kind, ServerErrorKind::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Starts a kernel; without a name that of the server's default kernelspec. Only gateways heed the
    /// variables.
    ///
    /// # Errors
    /// The request fails.
    pub async fn start_kernel(
        &self,
        spec: Option<&str>,
        env: &BTreeMap<String, String>,
    ) -> Result<KernelModel, ServerError> {
        let mut body = json!({});
        if let Some(spec) = spec {
            body["name"] = spec.into();
        }
        if !env.is_empty() {
            body["env"] = json!(env);
        }
        let request = self.post("api/kernels").json(&body).within(START_TIMEOUT);
        let started = self.json(request).await;
        started.map_err(|error: ServerError| match error.kind {
            ServerErrorKind::Unauthorized {
                status: 403,
                message,
                ..
            } => {
                let user = env.get("KERNEL_USERNAME").cloned();
                let user = user.unwrap_or_else(|| "a user without a name".to_owned());
                self.error(ServerErrorKind::UserRefused { user, message })
            }
            kind => self.error(kind),
        })
    }

    /// Makes a session with a kernel of its own; if there is a session of this path, returns that one.
    ///
    /// # Errors
    /// The request fails.
    pub async fn create_session(
        &self,
        path: &str,
        name: &str,
        spec: Option<&str>,
    ) -> Result<SessionModel, ServerError> {
        let body = json!({
            "path": path,
            "name": name,
            "type": "notebook",
            "kernel": { "name": spec },
        });
        let request = self.post("api/sessions").json(&body).within(START_TIMEOUT);
        self.json(request).await
    }

    /// Lists the server's sessions.
    ///
    /// # Errors
    /// The request fails.
    pub async fn sessions(&self) -> Result<Vec<SessionModel>, ServerError> {
        self.json(self.get("api/sessions")).await
    }

    /// Ends a session and its kernel; one that is not there has ended.
    ///
    /// # Errors
    /// The request fails.
    pub async fn delete_session(&self, id: &str) -> Result<(), ServerError> {
        self.delete(&format!("api/sessions/{}", escaped(id))).await
    }

    /// Ends a kernel; one that is not there has ended.
    ///
    /// # Errors
    /// The request fails.
    pub async fn delete_kernel(&self, id: &str) -> Result<(), ServerError> {
        self.delete(&format!("api/kernels/{}", escaped(id))).await
    }

    /// Interrupts a kernel.
    ///
    /// # Errors
    /// The request fails.
    pub async fn interrupt(&self, id: &str) -> Result<(), ServerError> {
        let path = format!("api/kernels/{}/interrupt", escaped(id));
        let request = self.post(&path).json(&json!({}));
        self.success(&request).await.map(drop)
    }

    /// Restarts a kernel, which keeps its id; returns when the server says that it was restarted.
    ///
    /// # Errors
    /// The request fails.
    pub async fn restart(&self, id: &str) -> Result<(), ServerError> {
        let path = format!("api/kernels/{}/restart", escaped(id));
        let request = self.post(&path).json(&json!({})).within(START_TIMEOUT);
        self.success(&request).await.map(drop)
    }

    /// Returns whether the server offers files: a gateway does not.
    ///
    /// # Errors
    /// The request fails.
    pub async fn has_contents(&self) -> Result<bool, ServerError> {
        let request = self.get("api/contents?content=0&type=directory");
        match self.success(&request).await {
            Ok(_) => Ok(true),
            Err(error) if matches!(error.kind, ServerErrorKind::NotFound { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a websocket of a new connection. The caller gives the headers of its handshake: key and wanted
    /// subprotocols; it checks the answer's.
    ///
    /// # Errors
    /// The request fails, or the server makes no websocket of it.
    pub async fn upgrade(
        &self,
        path_and_query: &str,
        headers: HeaderMap,
    ) -> Result<UpgradedConnection, ServerError> {
        let mut request = self.get(path_and_query);
        request.headers = headers;
        let mut set = |name, value| {
            request
                .headers
                .insert(name, HeaderValue::from_static(value))
        };
        set(CONNECTION, "Upgrade");
        set(UPGRADE, "websocket");
        set(SEC_WEBSOCKET_VERSION, "13");
        let response = self.success(&request).await?;
        if response.status() != StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.error(ServerErrorKind::NoWebsocket {
                path: request.url.path().to_owned(),
                status: response.status().as_u16(),
            }));
        }
        let headers = response.headers().clone();
        let protocol = headers.get(SEC_WEBSOCKET_PROTOCOL);
        let protocol = protocol.and_then(|it| it.to_str().ok()).map(str::to_owned);
        let upgraded = async {
            response.upgrade().await.map_err(|error| {
                ServerErrorKind::of_transport(&error, &request.url, request.deadline)
            })
        };
        let stream = within_deadline(&request, upgraded).await;
        let stream = stream.map_err(|kind| self.error(kind))?;
        Ok(UpgradedConnection {
            stream,
            protocol,
            headers,
        })
    }

    pub(super) fn get(&self, path: &str) -> ServerRequest {
        self.request(Method::GET, path)
    }

    pub(super) fn post(&self, path: &str) -> ServerRequest {
        self.request(Method::POST, path)
    }

    async fn delete(&self, path: &str) -> Result<(), ServerError> {
        let request = self.request(Method::DELETE, path).within(START_TIMEOUT);
        match self.success(&request).await {
            Err(error) if !matches!(error.kind, ServerErrorKind::NotFound { .. }) => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns a request for a path below the server's base.
    pub(super) fn request(&self, method: Method, path: &str) -> ServerRequest {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let mut url = self.base.clone();
        url.set_path(&format!("{}{path}", self.base.path()));
        url.set_query(Some(query).filter(|query| !query.is_empty()));
        self.request_of(method, url)
    }

    pub(super) fn request_of(&self, method: Method, url: Url) -> ServerRequest {
        ServerRequest {
            method,
            url,
            body: None,
            headers: HeaderMap::new(),
            deadline: ANSWER_TIMEOUT,
            limit: ANSWER_BYTES_MAX,
        }
    }

    pub(super) fn error(&self, kind: ServerErrorKind) -> ServerError {
        kind.of(&self.record.name)
    }

    /// Sends a request and reads the JSON of its answer.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        request: ServerRequest,
    ) -> Result<T, ServerError> {
        let response = self.success(&request).await?;
        let is_html = is_html(&response);
        let body = within_deadline(&request, body(response, &request, request.limit)).await;
        let body = body.map_err(|kind| self.error(kind))?;
        serde_json::from_slice(&body).map_err(|error| {
            let path = request.url.path().to_owned();
            let reason = format!("something else than the JSON that is due ({error})");
            self.error(match is_html {
                true => ServerErrorKind::LoginPage { path },
                false => ServerErrorKind::NotJson { path, reason },
            })
        })
    }

    /// Sends a request; anything but success, and a switch of protocols, is an error. The body is unread.
    pub(super) async fn success(&self, request: &ServerRequest) -> Result<Response, ServerError> {
        let answer = self.answer(request).await;
        answer.map_err(|kind| self.error(kind))
    }

    async fn answer(&self, request: &ServerRequest) -> Result<Response, ServerErrorKind> {
        let used = self.current();
        let response = self.send(request, &used).await?;
        if is_refused(&response)
            && let Some(newer) = self.renewed_credential(&used).await?
        {
            let response = self.send(request, &newer).await?;
            return self.check_answer(request, response, &newer).await;
        }
        self.check_answer(request, response, &used).await
    }

    async fn send(
        &self,
        request: &ServerRequest,
        credential: &CredentialHeaders,
    ) -> Result<Response, ServerErrorKind> {
        let builder = self
            .http
            .request(request.method.clone(), request.url.clone())
            .header(ACCEPT, "application/json")
            .headers(credential.map().clone())
            .headers(request.headers.clone());
        let builder = match &request.body {
            Some(body) => builder
                .header(CONTENT_TYPE, "application/json")
                .body(body.clone()),
            None => builder,
        };
        within_deadline(request, async {
            let response = builder.send().await;
            response.map_err(|error| {
                ServerErrorKind::of_transport(&error, &request.url, CONNECT_TIMEOUT)
            })
        })
        .await
    }

    fn current(&self) -> Arc<CredentialHeaders> {
        let current = self.credential.lock();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a credential that is newer than a refused one; `None` if there is none.
    async fn renewed_credential(
        &self,
        refused: &CredentialHeaders,
    ) -> Result<Option<Arc<CredentialHeaders>>, ServerErrorKind> {
        let _only = self.renewal.lock().await;
        let current = self.current();
        if *current != *refused {
            // Another request has renewed it meanwhile.
            return Ok(Some(current));
        }
        let Some(newer) = credential::renewed(&self.record, refused).await? else {
            return Ok(None);
        };
        let newer = Arc::new(newer);
        let current = self.credential.lock();
        *current.unwrap_or_else(PoisonError::into_inner) = newer.clone();
        Ok(Some(newer))
    }

    /// Returns the answer if it is a success.
    async fn check_answer(
        &self,
        request: &ServerRequest,
        response: Response,
        used: &CredentialHeaders,
    ) -> Result<Response, ServerErrorKind> {
        let status = response.status();
        let path = request.url.path().to_owned();
        if status.is_success() || status == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        let user = match &self.record.kind {
            ServerKind::Hub { user } if request.url.path().starts_with(self.base.path()) => {
                Some(user.clone())
            }
            _ => None,
        };
        if status.is_redirection() {
            let to = location(&response).unwrap_or_default();
            return Err(match user {
                // The hub answers for a server that does not run.
                Some(user) if to.contains("/hub/user/") => ServerErrorKind::NotRunning { user },
                _ if is_login(&to) => ServerErrorKind::LoginPage { path },
                _ => ServerErrorKind::Redirected {
                    to: without_secrets(&to, used),
                },
            });
        }
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|it| it.to_str().ok()?.parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        // The server's message is optional: a failure to read it is ignored.
        let message = within_deadline(request, body(response, request, FAILURE_BYTES_MAX)).await;
        let message = used.redact(failure_message(&message.unwrap_or_default()));
        let number = status.as_u16();
        Err(match (number, user) {
            (424, Some(user)) => ServerErrorKind::NotRunning { user },
            (503, Some(user)) => ServerErrorKind::Spawning { user },
            (401 | 403, _) => ServerErrorKind::Unauthorized {
                status: number,
                has_sent_one: used.has_secret(),
                message,
            },
            (404, _) => ServerErrorKind::NotFound { subject: path },
            (407, _) => ServerErrorKind::ProxyPassword,
            (409, _) => ServerErrorKind::Conflict { message },
            (429, _) => ServerErrorKind::TooManyRequests { retry_after },
            (500.., _) => ServerErrorKind::Internal {
                status: number,
                message,
            },
            _ => ServerErrorKind::Refusal {
                status: number,
                message,
            },
        })
    }
}

/// Returns a part of a path with everything escaped that could be more than a part.
pub(super) fn escaped(part: &str) -> String {
    const ESCAPED: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC
        .remove(b'-')
        .remove(b'_')
        .remove(b'.')
        .remove(b'~');
    match part {
        // The URL's parser would take these as the folder itself, also where they are escaped.
        "." | ".." => String::new(),
        part => utf8_percent_encode(part, ESCAPED).to_string(),
    }
}

/// Runs a part of a request within the request's deadline.
async fn within_deadline<T>(
    request: &ServerRequest,
    work: impl Future<Output = Result<T, ServerErrorKind>>,
) -> Result<T, ServerErrorKind> {
    match tokio::time::timeout(request.deadline, work).await {
        Ok(result) => result,
        Err(_) => {
            let host = request.url.host_str().unwrap_or_default();
            let port = request.url.port_or_known_default().unwrap_or_default();
            Err(ServerErrorKind::Timeout {
                at: format!("{host}:{port}"),
                after: request.deadline,
            })
        }
    }
}

async fn body(
    mut response: Response,
    request: &ServerRequest,
    limit: u64,
) -> Result<Vec<u8>, ServerErrorKind> {
    let mut body = Vec::new();
    loop {
        let part = response.chunk().await;
        let part = part.map_err(|error| {
            ServerErrorKind::of_transport(&error, &request.url, request.deadline)
        })?;
        let Some(part) = part else { return Ok(body) };
        if (body.len() + part.len()) as u64 > limit {
            let path = request.url.path().to_owned();
            return Err(ServerErrorKind::TooLarge { path, limit });
        }
        body.extend_from_slice(&part);
    }
}

fn is_html(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/html"))
}

/// Returns whether another token could change the answer.
fn is_refused(response: &Response) -> bool {
    match response.status().as_u16() {
        401 | 403 => true,
        300..=399 => location(response).is_some_and(|to| is_login(&to)),
        _ => false,
    }
}

/// Returns the URL to which an answer redirects the client, without the query.
fn location(response: &Response) -> Option<String> {
    let to = response.headers().get(LOCATION)?.to_str().ok()?;
    let to = response.url().join(to).ok()?;
    let path = to.path();
    Some(format!("{}{path}", to.origin().ascii_serialization()))
}

/// Returns a URL without the parts of its path that may be a secret: each one that is long, and all of them if a header
/// has one.
fn without_secrets(url: &str, used: &CredentialHeaders) -> String {
    /// A token of Jupyter has 48 characters.
    const LONGEST_SHOWN: usize = 24;
    let decoded = percent_decode_str(url).decode_utf8_lossy().into_owned();
    if used.redact(decoded.clone()) != decoded {
        let origin = url.split('/').take(3);
        return origin.chain(["…"]).collect::<Vec<_>>().join("/");
    }
    let parts = url.split('/').enumerate();
    let parts = parts.map(|(at, part)| match at > 2 && part.len() > LONGEST_SHOWN {
        true => "…",
        false => part,
    });
    parts.collect::<Vec<_>>().join("/")
}

fn is_login(url: &str) -> bool {
    let mut words = url.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| matches!(word, "login" | "signin" | "oauth2" | "authorize" | "sso"))
}

/// Returns a server's message about a failure, as a short line without control characters.
fn failure_message(body: &[u8]) -> String {
    let failure: FailureModel = serde_json::from_slice(body).unwrap_or_default();
    let reason = failure.reason.filter(|reason| !reason.is_empty());
    let message = failure.message.filter(|message| !message.is_empty());
    let message = message.or(reason).unwrap_or_default();
    let line = message
        .split(char::is_control)
        .map(str::trim)
        .find(|it| !it.is_empty());
    line.unwrap_or_default().chars().take(300).collect()
}

/// Returns the settings that all clients have; nothing is sent by it.
pub fn http_builder(base: &Url) -> reqwest::ClientBuilder {
    static PROVIDER: Once = Once::new();
    // One that is there already is as good.
    PROVIDER.call_once(|| drop(rustls::crypto::ring::default_provider().install_default()));
    let builder = reqwest::Client::builder()
        .user_agent(concat!("nb/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .referer(false)
        .http1_only()
        .connect_timeout(CONNECT_TIMEOUT)
        // A connection that idles may have ended, and what is sent on it may or may not have arrived.
        .pool_max_idle_per_host(0)
        .tcp_keepalive(Duration::from_secs(60));
    // A tunnel ends on this machine, where a proxy elsewhere does not reach it.
    match base.host_str().is_some_and(is_loopback) {
        true => builder.no_proxy(),
        false => builder,
    }
}

fn http_client(record: &ServerRecord, base: &Url) -> Result<reqwest::Client, ServerErrorKind> {
    let setup = |text: String| ServerErrorKind::Setup(text);
    let mut builder = http_builder(base);
    if base.scheme() == "http" {
        // No certificates are read where none is checked.
        builder = builder.tls_certs_only([]);
    } else if let Some(file) = &record.ca_file {
        let path = file.display();
        let text = std::fs::read(file);
        let text = text.map_err(|error| setup(format!("{path} cannot be read: {error}")))?;
        let certificates = reqwest::Certificate::from_pem_bundle(&text).unwrap_or_default();
        if certificates.is_empty() {
            return Err(setup(format!("{path} has no certificate in PEM form")));
        }
        builder = builder.tls_certs_merge(certificates);
    }
    if record.credential == CredentialSource::Variables {
        if !checks_certificates(&ProcessVariables) {
            builder = builder.tls_danger_accept_invalid_certs(true);
        }
        if let Some((certificate, key)) = client_certificate(&ProcessVariables) {
            let both = [certificate, key].map(std::fs::read);
            let both: Result<Vec<_>, _> = both.into_iter().collect();
            let identity = both.map_err(|error| error.to_string()).and_then(|both| {
                reqwest::Identity::from_pem(&both.join(&b'\n')).map_err(|error| error.to_string())
            });
            let identity =
                identity.map_err(|error| setup(format!("JUPYTER_GATEWAY_CLIENT_CERT: {error}")))?;
            builder = builder.identity(identity);
        }
    }
    builder.build().map_err(|error| {
        use std::error::Error;
        let cause = error.source().map(ToString::to_string).unwrap_or_default();
        setup(format!("the HTTP client cannot be made: {cause}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::secret::Secret;

    #[test]
    fn an_id_is_one_part_of_a_path() {
        assert_eq!(escaped("a-1/../b?c#d"), "a-1%2F..%2Fb%3Fc%23d");
        assert_eq!(escaped(".."), "");
    }

    #[test]
    fn a_login_page_is_known_by_its_address() {
        assert!(is_login("https://h.org/hub/login"));
        assert!(is_login("https://sso.h.org/auth"));
        assert!(!is_login("https://h.org/user/ann/api"));
    }

    #[test]
    fn a_token_in_a_redirects_path_is_not_shown() {
        let mut used = CredentialHeaders::default();
        used.add_token(&Secret::new("sesame-7")).unwrap();
        let long = "https://h.org/tree/0123456789abcdef0123456789abcdef/lab";
        for (url, shown) in [
            ("https://h.org/user/ann/lab", "https://h.org/user/ann/lab"),
            ("https://h.org/t/sesame-7/lab", "https://h.org/…"),
            ("https://h.org/t/%73esame%2D7/lab", "https://h.org/…"),
            (long, "https://h.org/tree/…/lab"),
        ] {
            assert_eq!(without_secrets(url, &used), shown);
        }
    }

    #[test]
    fn a_failure_message_is_a_short_line() {
        let body = br#"{"message": "\u001b[31m\nno room", "reason": null}"#;
        assert_eq!(failure_message(body), "[31m");
        assert_eq!(failure_message(b"<html>"), "");
        let long = format!(r#"{{"reason": "{}"}}"#, "x".repeat(1000));
        assert_eq!(failure_message(long.as_bytes()).len(), 300);
    }
}
