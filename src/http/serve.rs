//! Listens, and serves connections within limits.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::api::problem::Problem;

/// How long a connection may take for the head of a request.
const HEAD: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be accepted, as where descriptors run out.
const PAUSE: Duration = Duration::from_millis(100);

/// Listens at an address; port 0 is a free one. Returns the address with its port. `option` names the argument that
/// takes another port.
///
/// # Errors
/// The port is not free, or the address is not one of this machine.
pub async fn listen(
    address: SocketAddr,
    option: &str,
) -> Result<(TcpListener, SocketAddr), Problem> {
    let listener = TcpListener::bind(address).await.map_err(|error| {
        let problem = Problem::failed(&format!("listen at {address}"), &error);
        problem.hint(format!("{option} takes another"))
    })?;
    let address = listener.local_addr();
    let address = address.map_err(|error| Problem::failed("listen", &error))?;
    Ok((listener, address))
}

/// Serves connections for ever. While there are `most`, further ones wait until one ends; a connection that has become
/// a websocket no longer counts.
pub async fn serve(listener: TcpListener, router: Router, most: usize) {
    let places = Arc::new(Semaphore::new(most));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Answers are small or come as a whole: a delay for larger packets would only cost time.
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut builder = http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD);
            let connection = builder.serve_connection(TokioIo::new(stream), service);
            if let Err(error) = connection.with_upgrades().await {
                tracing::debug!(%error, "a connection has ended");
            }
            drop(place);
        });
    }
}
