//! How a request becomes a websocket.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc6455>.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// What the key of a request is hashed with.
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The response to a request that asks for no websocket.
pub(super) const NO_WEBSOCKET: (StatusCode, &str) =
    (StatusCode::UPGRADE_REQUIRED, "a websocket is meant\n");

/// The server's end of a websocket.
pub(super) type WebSocket = WebSocketStream<TokioIo<Upgraded>>;

/// A request that asks for a websocket.
pub(super) struct Handshake {
    accept: HeaderValue,
    upgrade: OnUpgrade,
}

impl Handshake {
    /// Takes the connection of a request; `None` if the request asks for no websocket.
    pub(super) fn take(request: &mut Request) -> Option<Self> {
        let accept = accept_value(request.headers())?;
        let upgrade = request.extensions_mut().remove::<OnUpgrade>()?;
        Some(Self { accept, upgrade })
    }

    /// Returns the response, with the subprotocol that is spoken, and the websocket that follows it; `None` if the
    /// connection ends before.
    pub(super) fn accept(
        self,
        subprotocol: Option<&'static str>,
        config: WebSocketConfig,
    ) -> (
        Response,
        impl Future<Output = Option<WebSocket>> + Send + 'static,
    ) {
        let headers = [
            (header::CONNECTION, HeaderValue::from_static("Upgrade")),
            (header::UPGRADE, HeaderValue::from_static("websocket")),
            (header::SEC_WEBSOCKET_ACCEPT, self.accept),
        ];
        let mut response = (StatusCode::SWITCHING_PROTOCOLS, headers).into_response();
        if let Some(name) = subprotocol {
            let name = HeaderValue::from_static(name);
            let headers = response.headers_mut();
            headers.insert(header::SEC_WEBSOCKET_PROTOCOL, name);
        }
        let upgrade = self.upgrade;
        let connected = async move {
            let io = TokioIo::new(upgrade.await.ok()?);
            Some(WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await)
        };
        (response, connected)
    }
}

/// Returns the answer to the key of a request for a websocket; `None` if it is none.
fn accept_value(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let mut words = value.into_iter().flat_map(|value| value.split(','));
        words.any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.as_bytes();
    let is_key = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    let is_websocket = has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let accept = STANDARD.encode(Sha1::new().chain_update(key).chain_update(MAGIC).finalize());
    HeaderValue::from_str(&accept)
        .ok()
        .filter(|_| is_key && is_websocket)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the protocol's section 1.3.
    #[test]
    fn a_key_is_answered_as_the_protocol_says() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            (header::CONNECTION, "keep-alive, Upgrade"),
            (header::UPGRADE, "websocket"),
            (header::SEC_WEBSOCKET_VERSION, "13"),
            (header::SEC_WEBSOCKET_KEY, "dGhlIHNhbXBsZSBub25jZQ=="),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        let accept = accept_value(&headers);
        assert_eq!(accept.unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for name in headers.keys().cloned().collect::<Vec<_>>() {
            let mut without = headers.clone();
            without.remove(&name);
            assert_eq!(accept_value(&without), None, "{name}");
        }
    }
}
