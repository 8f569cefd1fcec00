//! The websocket over which a page receives what happens, and says what is typed there.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use futures_util::{SinkExt, StreamExt};
use tokio::sync::broadcast::error::RecvError;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::feed::{FeedStart, alive, live_ended, reload};
use super::handshake::{Handshake, NO_WEBSOCKET, WebSocket};
use super::page_editor::{self, PageEditor};
use super::reply::field;
use super::server::WebServer;

/// The longest message from a page, in bytes. With a longer one the connection ends.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How often the server sends a page a ping, which the page has to answer.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// How long a page may be silent, and take no message.
const SILENCE_MAX: Duration = Duration::from_secs(90);

/// Connects a page: `?run=RUN&after=NUMBER` is what it has received last.
pub(super) async fn connect(
    State(server): State<Arc<WebServer>>,
    mut request: Request,
) -> Response {
    let Some(handshake) = Handshake::take(&mut request) else {
        return NO_WEBSOCKET.into_response();
    };
    let Ok(permit) = server.pages.clone().try_acquire_owned() else {
        let text = "too many pages are open\n";
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let query = request.uri().query();
    let number = field(query, "after").and_then(|number| number.parse().ok());
    let run = field(query, "run");
    let after = run.as_deref().zip(number);
    let feed = server.feed.begin(after);
    let config = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let (response, connected) = handshake.accept(None, config);
    tokio::spawn(async move {
        if let Some(stream) = connected.await {
            serve(stream, feed, &server).await;
        }
        drop(permit);
    });
    response
}

/// Passes messages until the page closes, is silent, or does not take them in time.
async fn serve(stream: WebSocket, feed: FeedStart, server: &WebServer) {
    let (mut to_page, mut from_page) = stream.split();
    let FeedStart { first, mut next } = feed;
    let mut pings = tokio::time::interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let mut last_received = Instant::now();
    let mut waiting = first.into_iter();
    let mut editor: Option<PageEditor> = None;
    loop {
        let message = match waiting.next() {
            Some(text) => Message::Text(text),
            None => tokio::select! {
                received = next.recv() => match received {
                    Ok(text) => Message::Text(text),
                    Err(RecvError::Lagged(_)) => Message::Text(reload()),
                    Err(RecvError::Closed) => return,
                },
                line = page_editor::next_line(&mut editor) => {
                    Message::Text(line.unwrap_or_else(|| {
                        editor = None;
                        live_ended()
                    }))
                },
                received = from_page.next() => match received {
                    Some(Ok(message)) if !message.is_close() => {
                        last_received = Instant::now();
                        match message {
                            Message::Text(text)
                                if !page_editor::take(&mut editor, &text, server).await =>
                            {
                                Message::Text(live_ended())
                            }
                            _ => continue,
                        }
                    }
                    _ => {
                        // The page waits for the answer to its close frame.
                        let _ = timeout(SILENCE_MAX, to_page.flush()).await;
                        return;
                    }
                },
                _ = pings.tick() => match last_received.elapsed() < SILENCE_MAX {
                    true => {
                        // Scripts see no pings.
                        waiting = vec![alive()].into_iter();
                        Message::Ping(Default::default())
                    }
                    false => return,
                },
            },
        };
        match timeout(SILENCE_MAX, to_page.send(message)).await {
            Ok(Ok(())) => {}
            _ => return,
        }
    }
}
