//! Failures between `nb` and a server, by category. Each message says in a line what failed and what to do.
//!
//! No message contains a token: URLs are shown without a query, and of what a server says the client takes its
//! own secrets out.

use std::error::Error;
use std::time::Duration;

use reqwest::Url;

use super::proxy::{NamedProxy, proxy_to};

/// A failure, and the server that it concerns.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("server {server}: {kind}")]
pub struct ServerError {
    /// The name of the server.
    pub server: String,
    /// What went wrong.
    pub kind: ServerErrorKind,
}

/// The categories of failure.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ServerErrorKind {
    /// The URL is none of a server.
    #[error("the URL is not a server's: {0}")]
    Url(String),
    /// The name of a server is unknown, taken or not allowed.
    #[error("{0}")]
    Name(String),
    /// A setting of this side cannot be used: a file of certificates, the registry of servers.
    #[error("{0}")]
    Setup(String),
    /// The token cannot be had.
    #[error("no token can be had: {0}")]
    Credential(String),
    /// DNS knows no such host.
    #[error("no host has the name {host}; check the URL, and the network or VPN")]
    Dns {
        /// The host.
        host: String,
    },
    /// Nobody listens at the port.
    #[error("nothing listens at {at}; check that the server runs there, and its port or tunnel")]
    Refused {
        /// The host and the port.
        at: String,
    },
    /// The connection failed in another way.
    #[error("the connection to {at} failed: {reason}; try again, and check the network")]
    Connection {
        /// The host and the port.
        at: String,
        /// The system's message.
        reason: String,
    },
    /// The authority of the certificate is unknown.
    #[error(
        "the certificate of {host} comes from an unknown authority; name the authority's file with nb server add --ca FILE, or in SSL_CERT_FILE"
    )]
    UnknownAuthority {
        /// The host.
        host: String,
    },
    /// The certificate is not valid now.
    #[error(
        "the certificate of {host} is not valid at this machine's time ({reason}); check this machine's clock, else the server needs a new certificate"
    )]
    CertificateTime {
        /// The host.
        host: String,
        /// Whether it has expired.
        reason: &'static str,
    },
    /// The certificate says that it is an authority's, as self-signed ones often do.
    #[error(
        "the certificate of {host} says that it is an authority's (CA:TRUE), and so no server's; make one with basicConstraints=CA:FALSE, and name it with nb server add --ca FILE"
    )]
    CertificateOfAuthority {
        /// The host.
        host: String,
    },
    /// The certificate cannot be used, or TLS failed in another way.
    #[error(
        "TLS with {host} failed: {reason}; check that the URL has the certificate's name, and https only if the server has it"
    )]
    Tls {
        /// The host.
        host: String,
        /// The message of rustls.
        reason: String,
    },
    /// The proxy on the way cannot be reached.
    #[error(
        "the proxy {proxy}, which the variable {variable} names, cannot be reached: {reason}; check the variable, or name the server's host in NO_PROXY"
    )]
    ProxyDown {
        /// The host and the port of the proxy.
        proxy: String,
        /// The variable.
        variable: &'static str,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The proxy wants a password.
    #[error(
        "the proxy on the way wants a password; write it into HTTPS_PROXY (http://USER:PASSWORD@HOST:PORT), or name the server's host in NO_PROXY"
    )]
    ProxyPassword,
    /// The server sends a login page.
    #[error(
        "the server answers {path} with a login page instead of JSON; give it a token (--token-file, --token-command, --header), since nb cannot log in with a password, and check that the URL is the server's and not a portal's"
    )]
    LoginPage {
        /// The path that was asked.
        path: String,
    },
    /// The answer is not JSON of the expected kind.
    #[error(
        "the server answers {path} with {reason}; check that the URL is that of a Jupyter server"
    )]
    NotJson {
        /// The path that was asked.
        path: String,
        /// What came instead.
        reason: String,
    },
    /// The server sends the client elsewhere, which could cost the token.
    #[error("the server sends requests on to {to}; nb server add that URL if it is the server's")]
    Redirected {
        /// The URL, without its query.
        to: String,
    },
    /// 401, or 403 of a request that a token allows.
    #[error("{}", unauthorized_text(*status, message, *has_sent_one))]
    Unauthorized {
        /// The status.
        status: u16,
        /// Whether the request had a token, or another header by which the server knows the user.
        has_sent_one: bool,
        /// The server's message.
        message: String,
    },
    /// 403 of a gateway that answers other requests: it starts no kernels for this user.
    #[error("the gateway starts no kernel for {user} (403){}; name another user in the variable KERNEL_USERNAME, or give it a valid token with nb server add --replace", message_suffix(.message))]
    UserRefused {
        /// The user of the kernel.
        user: String,
        /// The gateway's message.
        message: String,
    },
    /// 404: a kernel that was culled or ended, a session that is gone, a file that is not there.
    #[error("{subject} is not there (404): it was ended, culled or never there")]
    NotFound {
        /// What was asked for.
        subject: String,
    },
    /// 404 of the path that every Jupyter server answers.
    #[error(
        "no Jupyter server answers at this path ({path}, 404); does the URL lack the server's base_url, or have a wrong one?"
    )]
    NoServer {
        /// The path that was asked.
        path: String,
    },
    /// The connection fails as one of the other scheme does.
    #[error("{problem}; is it a server of {scheme}://?")]
    OtherScheme {
        /// What failed.
        problem: String,
        /// The scheme that the server may have.
        scheme: &'static str,
    },
    /// 409.
    #[error("the server refuses: what is there is in the way (409){}", message_suffix(.message))]
    Conflict {
        /// The server's message.
        message: String,
    },
    /// 429.
    #[error("the server has too many requests (429); try again in {} s", retry_after.map_or(60, |it| it.as_secs()))]
    TooManyRequests {
        /// When the server wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// 5xx.
    #[error("the server failed ({status}){}; its own log says why", message_suffix(.message))]
    Internal {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// Any other status that is no success.
    #[error("the server refuses the request ({status}){}", message_suffix(.message))]
    Refusal {
        /// The status.
        status: u16,
        /// The server's message.
        message: String,
    },
    /// The hub still starts the user's server.
    #[error("the hub still starts the server of its user {user}; try again in a moment")]
    Spawning {
        /// The user.
        user: String,
    },
    /// The hub's user has no server that runs.
    #[error("the hub runs no server of its user {user}; nb server check starts it")]
    NotRunning {
        /// The user.
        user: String,
    },
    /// The hub could not start the user's server.
    #[error("the hub could not start the server of its user {user}: {message}")]
    SpawnFailed {
        /// The user.
        user: String,
        /// The hub's message.
        message: String,
    },
    /// The server is too old.
    #[error(
        "the server has version {version}, which is too old: nb needs Jupyter Server 1.0 or later"
    )]
    TooOld {
        /// Its version.
        version: String,
    },
    /// No answer came in time.
    #[error("no answer from {at} within {} s; check that the server is up and not stuck", after.as_secs())]
    Timeout {
        /// The host and the port.
        at: String,
        /// How long the client waited.
        after: Duration,
    },
    /// The answer is too long.
    #[error("the answer to {path} has more than {limit} bytes")]
    TooLarge {
        /// The path that was asked.
        path: String,
        /// The limit, in bytes.
        limit: u64,
    },
    /// The server, or a proxy before it, offers no websocket.
    #[error(
        "the server, or a proxy before it, makes no websocket of {path} (status {status}); the proxy has to pass Upgrade headers on"
    )]
    NoWebsocket {
        /// The path that was asked.
        path: String,
        /// The status.
        status: u16,
    },
}

impl ServerErrorKind {
    /// Returns the failure of a named server.
    pub fn of(self, server: &str) -> ServerError {
        ServerError {
            server: server.to_owned(),
            kind: self,
        }
    }

    /// Returns whether the same request may succeed later without a change by the user.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Dns { .. }
            | Self::Refused { .. }
            | Self::Connection { .. }
            | Self::ProxyDown { .. }
            | Self::TooManyRequests { .. }
            | Self::Spawning { .. }
            | Self::Timeout { .. } => true,
            Self::Internal { status, .. } => matches!(status, 500 | 502 | 503 | 504),
            _ => false,
        }
    }

    /// Returns the category of a failed transport.
    pub fn of_transport(error: &reqwest::Error, url: &Url, waited: Duration) -> Self {
        let host = url.host_str().unwrap_or_default().to_owned();
        let at = format!("{host}:{}", url.port_or_known_default().unwrap_or_default());
        if error.is_timeout() {
            return Self::Timeout { at, after: waited };
        }
        let down = |reason: &'static str| {
            let NamedProxy { at, variable } = proxy_to(url)?;
            Some(Self::ProxyDown {
                proxy: at,
                variable,
                reason,
            })
        };
        let mut next: Option<&(dyn Error + 'static)> = Some(error);
        let mut last = String::new();
        while let Some(cause) = next {
            last = cause.to_string();
            if last.starts_with("dns error") {
                return down("no host has its name").unwrap_or(Self::Dns { host });
            }
            if last.contains("proxy authorization required") {
                return Self::ProxyPassword;
            }
            if let Some(tls) = cause.downcast_ref::<rustls::Error>() {
                return Self::of_tls(tls, host);
            }
            let system = cause.downcast_ref::<std::io::Error>();
            if system.is_some_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused) {
                return down("nothing listens there").unwrap_or(Self::Refused { at });
            }
            // `source` of a system error skips the error inside it.
            next = match system.and_then(std::io::Error::get_ref) {
                Some(inside) => Some(inside),
                None => cause.source(),
            };
        }
        Self::Connection { at, reason: last }
    }

    fn of_tls(error: &rustls::Error, host: String) -> Self {
        use rustls::CertificateError::{
            Expired, ExpiredContext, NotValidYet, NotValidYetContext, Other, UnknownIssuer,
        };
        let rustls::Error::InvalidCertificate(certificate) = error else {
            let reason = error.to_string();
            return Self::Tls { host, reason };
        };
        match certificate {
            UnknownIssuer => Self::UnknownAuthority { host },
            // rustls has no category for it.
            Other(other) if other.to_string().contains("CaUsedAsEndEntity") => {
                Self::CertificateOfAuthority { host }
            }
            Expired | ExpiredContext { .. } => Self::CertificateTime {
                host,
                reason: "expired",
            },
            NotValidYet | NotValidYetContext { .. } => Self::CertificateTime {
                host,
                reason: "not valid yet",
            },
            other => Self::Tls {
                host,
                reason: other.to_string(),
            },
        }
    }
}

/// Returns the server's message as the end of a sentence.
fn message_suffix(message: &str) -> String {
    match message.is_empty() {
        true => String::new(),
        false => format!(": {message}"),
    }
}

/// Returns the message about a token that is refused or missing.
fn unauthorized_text(status: u16, message: &str, has_sent_one: bool) -> String {
    let message = message_suffix(message);
    match has_sent_one {
        true => format!(
            "the server refuses the token ({status}){message}; give it a valid one with nb server add --replace"
        ),
        false => format!(
            "the server wants a token, and has none ({status}){message}; give it one with nb server add --token-file or --token-command, and --replace if the server is added already; nb cannot log in with a password, so that a server with a password only needs a token too (IdentityProvider.token)"
        ),
    }
}
