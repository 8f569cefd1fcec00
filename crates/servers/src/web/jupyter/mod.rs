//! The part of a Jupyter Server's interface that VS Code and JupyterLab need to use live kernels by URL.
//!
//! A kernel here is the shared kernel of a notebook below the root, and a session is the notebook with its kernel. Each
//! websocket is a front end like any other: it has an `nb-proxy` of its own, so that the rules of turns, of the journal,
//! of interrupts and of restarts are the same. A front end ends no kernel.
//!
//! | file | content |
//! |---|---|
//! | `models` | kernels, kernelspecs and sessions, as Jupyter describes them |
//! | `notebook_path` | which notebook a request means |
//! | `rest` | the requests |
//! | `channels` | the request for a websocket |
//! | `connections` | the websockets, and which front end each one has |
//! | `front_end` | one `nb-proxy` and the sockets to it |

mod channels;
pub(super) mod connections;
mod front_end;
mod models;
mod notebook_path;
mod rest;

use std::sync::Arc;

use axum::Router;
use axum::routing::{get, post};

use super::server::WebServer;

/// Returns whether a path belongs to Jupyter's interface.
pub(super) fn serves(path: &str) -> bool {
    let Some(below) = path.strip_prefix("/api") else {
        return false;
    };
    let first = below.trim_start_matches('/').split('/').next();
    matches!(
        first,
        Some("" | "status" | "kernels" | "kernelspecs" | "sessions")
    ) && (below.is_empty() || below.starts_with('/'))
}

/// Returns the routes.
pub(super) fn routes() -> Router<Arc<WebServer>> {
    Router::new()
        .route("/api", get(rest::version))
        .route("/api/", get(rest::version))
        .route("/api/status", get(rest::status))
        .route("/api/kernelspecs", get(rest::kernelspecs))
        .route("/api/kernelspecs/{name}", get(rest::kernelspec))
        .route("/api/kernels", get(rest::kernels).post(rest::start_kernel))
        .route(
            "/api/kernels/{id}",
            get(rest::kernel).delete(rest::leave_kernel),
        )
        .route("/api/kernels/{id}/interrupt", post(rest::interrupt))
        .route("/api/kernels/{id}/restart", post(rest::restart))
        .route("/api/kernels/{id}/channels", get(channels::connect))
        .route(
            "/api/sessions",
            get(rest::sessions).post(rest::start_session),
        )
        .route(
            "/api/sessions/{id}",
            get(rest::session)
                .patch(rest::change_session)
                .delete(rest::leave_session),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_paths_of_jupyters_interface_match() {
        for path in [
            "/api",
            "/api/",
            "/api/status",
            "/api/kernels",
            "/api/kernels/1/channels",
            "/api/kernelspecs",
            "/api/sessions/1",
        ] {
            assert!(serves(path), "{path}");
        }
        for path in [
            "/",
            "/apikernels",
            "/api/ws",
            "/api/notebooks",
            "/api/notebooks/kernels",
            "/api/openapi.json",
            "/kernels",
            "/api/kernelsx",
        ] {
            assert!(!serves(path), "{path}");
        }
    }
}
