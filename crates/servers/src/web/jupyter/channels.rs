//! The request for the websocket of a kernel.
//!
//! Source: "WebSocket kernel wire protocols" in the documentation of Jupyter Server.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::connections::Client;
use super::rest::{Refusal, of_kernel};
use crate::server::websocket::{Framing, SUBPROTOCOL};
use crate::web::handshake::{Handshake, NO_WEBSOCKET};
use crate::web::reply::field;
use crate::web::server::WebServer;

/// The longest message of a client, in bytes.
const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// `GET /api/kernels/{id}/channels`
pub(super) async fn connect(
    State(server): State<Arc<WebServer>>,
    Path(id): Path<String>,
    mut request: Request,
) -> Response {
    let Some(handshake) = Handshake::take(&mut request) else {
        return NO_WEBSOCKET.into_response();
    };
    let arrival = server.front_ends.arrival();
    let notebook = match of_kernel(&server, &id).await {
        Ok(live) => live.notebook,
        Err(refusal) => return refusal.into_response(),
    };
    let Some(permit) = server.front_ends.permit() else {
        let refusal = Refusal::failed("too many front ends are connected".to_owned());
        return (StatusCode::SERVICE_UNAVAILABLE, refusal).into_response();
    };
    let session = field(request.uri().query(), "session_id").filter(|id| !id.is_empty());
    let subprotocol = offers(request.headers(), SUBPROTOCOL).then_some(SUBPROTOCOL);
    let framing = match subprotocol {
        Some(_) => Framing::V1,
        None => Framing::Json,
    };
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let (response, connected) = handshake.accept(subprotocol, limits);
    let client = Client {
        framing,
        notebook,
        session,
        arrival,
        permit,
    };
    server.front_ends.connect(connected, client);
    response
}

/// Returns whether a client speaks a subprotocol.
fn offers(headers: &HeaderMap, name: &str) -> bool {
    let subprotocols = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let subprotocols = subprotocols.filter_map(|value| value.to_str().ok());
    let mut subprotocols = subprotocols.flat_map(|value| value.split(','));
    subprotocols.any(|it| it.trim() == name)
}
