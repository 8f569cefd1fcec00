//! The server over streamable HTTP, for clients on this machine that have the user's token.
//!
//! Source: <https://modelcontextprotocol.io/specification/2025-11-25/basic/transports>.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::{StreamableHttpServerConfig, StreamableHttpService};
use tokio::sync::Semaphore;

use super::handler::Handler;
use super::session::{McpOptions, Sessions};
use crate::api::problem::Problem;
use crate::http::{ClientSecret, LONGEST_BODY, listen, serve};
use crate::project::{TokenOf, server_token};

/// How many clients may have a session at a time.
const MOST_SESSIONS: usize = 256;

/// How many connections there may be at a time: a client has several.
const MOST_CONNECTIONS: usize = 1024;

/// After how long a session ends whose client is silent.
const SILENCE: Duration = Duration::from_secs(12 * 60 * 60);

/// The pages that may send requests, which need the token too: those of programs of this machine.
const ORIGINS: [&str; 3] = ["http://localhost:*", "http://127.0.0.1:*", "http://[::1]:*"];

/// The path of the server's only resource.
const PATH: &str = "/mcp";

/// Where a server listens.
#[derive(Clone, Debug)]
pub struct Listening {
    /// Its address.
    pub url: String,
    /// The file with the token that clients send.
    pub token_file: PathBuf,
}

/// Serves any number of clients over HTTP, on a port of the loopback interface; 0 is a free one.
///
/// A request must have the user's token and a Host of this machine. The page that sends it from a browser, which names
/// it as its Origin, must be of this machine too.
///
/// # Errors
/// The root is not a folder, a tool does not exist, there is no token, or the port is not free.
pub async fn serve_http(
    options: McpOptions,
    port: u16,
    listens: impl FnOnce(&Listening) -> io::Result<()>,
) -> Result<(), Problem> {
    let sessions = Sessions::new(options)?;
    let (token_file, token) =
        server_token(TokenOf::Mcp).map_err(|error| Problem::failed("read the token", &error))?;
    let expected = ClientSecret::of(&format!("Bearer {}", token.as_str()));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let (listener, address) = listen(address, "--http PORT").await?;

    let free = Arc::new(Semaphore::new(MOST_SESSIONS));
    let begin = move || match free.clone().try_acquire_owned() {
        Ok(place) => Ok(Handler::over_http(&sessions, place)),
        Err(_) => Err(io::Error::other(format!(
            "there are {MOST_SESSIONS} sessions"
        ))),
    };
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(SILENCE);
    // Clients of versions before 2025-11-25 take the empty event that asks for a reconnection for a broken message.
    manager.session_config.sse_retry = None;
    let config = StreamableHttpServerConfig::default()
        .with_allowed_origins(ORIGINS)
        .with_sse_retry(None)
        .with_max_request_body_bytes(LONGEST_BODY);
    let service = StreamableHttpService::new(begin, Arc::new(manager), config);
    let router = axum::Router::new()
        .route_service(PATH, service)
        .layer(from_fn_with_state(Arc::new(expected), with_token));
    let listening = Listening {
        url: format!("http://{address}{PATH}"),
        token_file,
    };
    listens(&listening).map_err(|error| Problem::failed("print the address", &error))?;
    serve(listener, router, MOST_CONNECTIONS).await;
    Ok(())
}

/// Refuses a request whose header does not have the token.
async fn with_token(
    State(expected): State<Arc<ClientSecret>>,
    request: Request,
    next: Next,
) -> Response {
    let sent = request.headers().get(header::AUTHORIZATION);
    match sent.is_some_and(|sent| expected.is(sent.as_bytes())) {
        true => next.run(request).await,
        false => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            let text =
                "the token is missing or wrong; `nb mcp --http` has said which file has it\n";
            (StatusCode::UNAUTHORIZED, challenge, text).into_response()
        }
    }
}
