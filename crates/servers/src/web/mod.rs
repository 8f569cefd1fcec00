//! A page that shows notebooks as they are now, and its interfaces: REST for reads and changes, a websocket for what
//! happens.
//!
//! `jupyter` is the part of a Jupyter Server's interface by which VS Code and JupyterLab use the same kernels.
//!
//! `access` decides who is served. A request's work is done on one thread of its own, because the futures of `api` stay
//! on the thread that made them. `feed` numbers what `follow` hears, and `socket` sends it to the pages. The page itself
//! is embedded: its sources are in `page/`, and `page/build.mjs` makes the files in `page/built/`.

mod access;
mod browser;
mod callers;
mod cells;
mod chat;
mod feed;
mod files;
mod follow;
mod handshake;
mod jupyter;
mod kernel;
mod notebook_request;
#[cfg(test)]
mod openapi;
mod page_editor;
mod reply;
mod server;
mod socket;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use percent_encoding::utf8_percent_encode;
use tokio::signal::unix::{SignalKind, signal};
use zeroize::Zeroizing;

use self::access::Access;
pub use self::browser::open_in_browser;
use self::callers::Callers;
pub use self::chat::AssistantChoice;
use self::server::WebServer;
use crate::api::problem::Problem;
use crate::api::root::Root;
use crate::http;
use crate::project::{TokenOf, server_token};

/// How many connections there may be at a time, without websockets.
const CONNECTIONS_MAX: usize = 256;

/// The name under which a person at the page acts.
const PERSON_NAME: &str = "human (browser)";

/// How the server is started.
#[derive(Clone, Debug)]
pub struct WebOptions {
    /// The folder whose notebooks are served.
    pub root: PathBuf,
    /// The notebook that the printed address shows; `None` is the list of notebooks.
    pub notebook: Option<PathBuf>,
    /// The name to act under; `None` is a person.
    pub name: Option<String>,
    /// The address to listen at.
    pub host: IpAddr,
    /// The port; 0 is a free one.
    pub port: u16,
    /// Whether the address has the token of an earlier start.
    pub keeps_token: bool,
    /// Which assistant answers.
    pub assistant: AssistantChoice,
    /// Receives a line for each thing that a request waits for.
    pub progress: fn(&str),
}

/// The addresses of the page, each with a token.
pub struct PageAddress {
    /// The address for the user.
    pub url: Zeroizing<String>,
    /// An address that can be opened once: the arguments of programs are seen by every user of the machine.
    pub once: Zeroizing<String>,
}

/// Serves the page until a signal ends the process (SIGINT, SIGTERM, SIGHUP). `listens` gets its addresses.
///
/// # Errors
/// The root is not a folder, the notebook is not below it, the port is not free, the kept token cannot be read, or the named
/// assistant cannot be used.
pub async fn serve(
    options: WebOptions,
    listens: impl FnOnce(&PageAddress) -> io::Result<()>,
) -> Result<(), Problem> {
    let root = Root::of(&options.root)?;
    let fragment = match &options.notebook {
        Some(notebook) => fragment(&root, notebook)?,
        None => String::new(),
    };
    options.assistant.check().await?;
    let stored_token = options.keeps_token.then(|| server_token(TokenOf::Web));
    let stored_token = stored_token.transpose();
    let stored_token = stored_token.map_err(|error| Problem::failed("read the token", &error))?;
    let address = SocketAddr::from((options.host, options.port));
    let (listener, address) = http::listen(address, "--port PORT").await?;
    let signals = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    let signals =
        signals.map(|kind| signal(kind).map_err(|it| Problem::failed("wait for signals", &it)));
    let [interrupt, terminate, hangup] = signals;
    let (mut interrupt, mut terminate, mut hangup) = (interrupt?, terminate?, hangup?);
    let stored_token = stored_token.map(|(_, token)| token);
    let (access, tokens) = Access::new(address.ip(), address.port(), stored_token);
    let name = options.name.unwrap_or_else(|| PERSON_NAME.to_owned());
    let server = WebServer::new(
        Callers::new(root, name, options.progress),
        options.assistant,
    );
    let [url, once] = tokens.map(|token| {
        let token = utf8_percent_encode(&token, http::ESCAPED);
        Zeroizing::new(format!("http://{address}/?token={token}{fragment}"))
    });
    let result = listens(&PageAddress { url, once });
    result.map_err(|error| Problem::failed("print the address", &error))?;
    let server = Arc::new(server);
    let router = router(Arc::new(access), server.clone());
    tokio::select! {
        () = http::serve(listener, router, CONNECTIONS_MAX) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    server.front_ends.close().await;
    Ok(())
}

/// Returns the part of an address that names a notebook.
fn fragment(root: &Root, notebook: &Path) -> Result<String, Problem> {
    let folder = std::env::current_dir();
    let folder = folder.map_err(|error| Problem::failed("tell the working directory", &error))?;
    let real = root.notebook(&folder.join(notebook))?;
    let relative = real.strip_prefix(root.folder()).unwrap_or(&real);
    let relative = relative.to_string_lossy();
    Ok(format!(
        "#{}",
        utf8_percent_encode(&relative, http::ESCAPED)
    ))
}

fn router(access: Arc<Access>, server: Arc<WebServer>) -> Router {
    Router::new()
        .route("/", get(files::index))
        .route("/{file}", get(files::file))
        .route("/api/openapi.json", get(files::openapi))
        .route("/api/ws", get(socket::connect))
        .merge(kernel::routes())
        .merge(cells::routes())
        .merge(chat::routes::routes())
        .merge(jupyter::routes())
        // `guard` has a limit of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(access, access::guard))
        .with_state(server)
}
