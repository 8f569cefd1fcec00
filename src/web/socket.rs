//! The websocket over which a page receives what happens.
//!
//! Source: <https://www.rfc-editor.org/rfc/rfc6455>.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use sha1::{Digest, Sha1};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use super::feed::{FeedStart, reload};
use super::server::WebServer;

/// What the key of a request is hashed with.
const MAGIC: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The longest message from a page, in bytes. Pages send none.
const LONGEST: usize = 4096;

/// How often a page is asked whether it is still there.
const PING: Duration = Duration::from_secs(30);

/// How long a page may be silent, and take no message.
const SILENCE: Duration = Duration::from_secs(90);

/// Connects a page: `?run=RUN&after=NUMBER` is what it has received last.
pub(super) async fn connect(
    State(server): State<Arc<WebServer>>,
    mut request: Request,
) -> Response {
    let Some(accept) = accepted(request.headers()) else {
        let text = "a websocket is meant\n";
        return (StatusCode::UPGRADE_REQUIRED, text).into_response();
    };
    let Ok(place) = server.pages.clone().try_acquire_owned() else {
        let text = "too many pages are open\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let Some(upgrade) = request.extensions_mut().remove::<OnUpgrade>() else {
        return StatusCode::UPGRADE_REQUIRED.into_response();
    };
    let query = request.uri().query().unwrap_or_default();
    let field = |name: &str| {
        let mut fields = query.split('&').filter_map(|field| field.split_once('='));
        fields
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
    };
    let after = field("run").zip(field("after").and_then(|number| number.parse().ok()));
    let feed = server.feed.begin(after);
    tokio::spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let config = WebSocketConfig::default()
                .max_message_size(Some(LONGEST))
                .max_frame_size(Some(LONGEST));
            let io = TokioIo::new(upgraded);
            let stream = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
            serve(stream, feed).await;
        }
        drop(place);
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("Upgrade")),
        (header::UPGRADE, HeaderValue::from_static("websocket")),
        (header::SEC_WEBSOCKET_ACCEPT, accept),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
}

/// Returns the answer to the key of a request for a websocket; `None` if it is none.
fn accepted(headers: &HeaderMap) -> Option<HeaderValue> {
    let has = |name, word: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        let mut words = value.into_iter().flat_map(|value| value.split(','));
        words.any(|it| it.trim().eq_ignore_ascii_case(word))
    };
    let key = headers.get(header::SEC_WEBSOCKET_KEY)?.as_bytes();
    let is_key = STANDARD.decode(key).is_ok_and(|key| key.len() == 16);
    let is_one = has(header::CONNECTION, "upgrade")
        && has(header::UPGRADE, "websocket")
        && has(header::SEC_WEBSOCKET_VERSION, "13");
    let accept = STANDARD.encode(Sha1::new().chain_update(key).chain_update(MAGIC).finalize());
    HeaderValue::from_str(&accept)
        .ok()
        .filter(|_| is_key && is_one)
}

/// Sends messages until the page closes, is silent, or does not take them in time.
async fn serve<S>(stream: WebSocketStream<S>, feed: FeedStart)
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    let (mut to_page, mut from_page) = stream.split();
    let FeedStart { first, mut next } = feed;
    let mut pings = tokio::time::interval_at(Instant::now() + PING, PING);
    let mut heard = Instant::now();
    let mut waiting = first.into_iter();
    loop {
        let message = match waiting.next() {
            Some(text) => Message::Text(text),
            None => tokio::select! {
                received = next.recv() => match received {
                    Ok(text) => Message::Text(text),
                    Err(RecvError::Lagged(_)) => Message::Text(reload()),
                    Err(RecvError::Closed) => return,
                },
                received = from_page.next() => match received {
                    Some(Ok(message)) if !message.is_close() => {
                        heard = Instant::now();
                        continue;
                    }
                    _ => return,
                },
                _ = pings.tick() => match heard.elapsed() < SILENCE {
                    true => Message::Ping(Default::default()),
                    false => return,
                },
            },
        };
        match timeout(SILENCE, to_page.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
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
        let accept = accepted(&headers);
        assert_eq!(accept.unwrap(), "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        for name in headers.keys().cloned().collect::<Vec<_>>() {
            let mut without = headers.clone();
            without.remove(&name);
            assert_eq!(accepted(&without), None, "{name}");
        }
    }
}
