//! The websocket of one kernel: its messages, verified by the credential with which it was opened.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use reqwest::header::{HeaderMap, HeaderValue, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WebSocketError, Message};

use super::client::{ServerClient, escaped};
use super::error::{ServerError, ServerErrorKind};
use super::websocket::{Framing, SUBPROTOCOL};
use crate::wire::{Channel, Verified};

/// The longest message, in bytes; the same as on a kernel's own sockets.
const MESSAGE_BYTES_MAX: usize = 1 << 30;

/// How long the server may take to take its part in closing.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

type Stream = WebSocketStream<reqwest::Upgraded>;

/// The half of a kernel's websocket that sends.
pub struct KernelSender {
    stream: SplitSink<Stream, Message>,
    framing: Framing,
}

/// The half of a kernel's websocket that receives.
pub struct KernelReceiver {
    stream: SplitStream<Stream>,
    framing: Framing,
}

/// What arrived over a kernel's websocket.
#[derive(Debug)]
pub enum Received {
    /// A message of the kernel, or of the server in its name.
    Message(Channel, Verified),
    /// The answer to a ping, or any other frame that shows that the server is there.
    SignOfLife,
    /// A frame that is no message; the text says why. It is dropped.
    Malformed(String),
    /// The connection has ended; the text says how.
    Closed(String),
    /// The server has closed the connection, since a message was too long for it.
    TooLong,
}

/// Opens the websocket of a kernel. The server keeps for `session` what the kernel says while no websocket is open, and
/// sends it first.
///
/// # Errors
/// The request fails, or the server answers with a subprotocol that was not offered.
pub async fn open(
    client: &ServerClient,
    kernel: &str,
    session: &str,
) -> Result<(KernelSender, KernelReceiver), ServerError> {
    let mut headers = HeaderMap::new();
    let key = BASE64_STANDARD.encode(uuid::Uuid::new_v4().as_bytes());
    let key = HeaderValue::from_str(&key).expect("base64 is ASCII");
    headers.insert(SEC_WEBSOCKET_KEY, key);
    headers.insert(
        SEC_WEBSOCKET_PROTOCOL,
        HeaderValue::from_static(SUBPROTOCOL),
    );
    let (kernel, session) = (escaped(kernel), escaped(session));
    let path = format!("api/kernels/{kernel}/channels?session_id={session}");
    let upgraded = client.upgrade(&path, headers).await?;
    let framing = Framing::negotiated(upgraded.protocol.as_deref());
    let framing = framing.ok_or_else(|| {
        client.error(ServerErrorKind::NotJson {
            path,
            reason: "a subprotocol of websockets that was not offered".to_owned(),
        })
    })?;
    let limits = WebSocketConfig::default()
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX))
        // Each message is flushed at once.
        .write_buffer_size(0);
    let stream =
        WebSocketStream::from_raw_socket(upgraded.stream, Role::Client, Some(limits)).await;
    let (sink, stream) = stream.split();
    let sender = KernelSender {
        stream: sink,
        framing,
    };
    Ok((sender, KernelReceiver { stream, framing }))
}

impl KernelSender {
    /// Sends a message; returns whether it could be written into this framing.
    ///
    /// # Errors
    /// The connection has ended; the text says how.
    pub async fn send(&mut self, channel: Channel, message: &Verified) -> Result<bool, String> {
        let Ok(payload) = self.framing.write(channel, message) else {
            return Ok(false);
        };
        let result = self.stream.send(payload).await;
        result.map(|()| true).map_err(|error| end_reason(&error))
    }

    /// Sends a ping, which the server answers.
    ///
    /// # Errors
    /// The connection has ended; the text says how.
    pub async fn ping(&mut self) -> Result<(), String> {
        let result = self.stream.send(Message::Ping(Bytes::new())).await;
        result.map_err(|error| end_reason(&error))
    }

    /// Sends a pong, which asks for no answer.
    ///
    /// # Errors
    /// The connection has ended; the text says how.
    pub async fn pong(&mut self) -> Result<(), String> {
        let result = self.stream.send(Message::Pong(Bytes::new())).await;
        result.map_err(|error| end_reason(&error))
    }

    /// Closes the websocket once all messages are written, or after a second.
    pub async fn close(mut self) {
        let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.stream.close()).await;
    }
}

impl KernelReceiver {
    /// Waits for the next frame. The future may be dropped.
    pub async fn next(&mut self) -> Received {
        let received = match self.stream.next().await {
            None => return Received::Closed("the connection ended".to_owned()),
            Some(Err(error)) => return Received::Closed(end_reason(&error)),
            Some(Ok(Message::Close(Some(close)))) if close.code == CloseCode::Size => {
                return Received::TooLong;
            }
            Some(Ok(Message::Close(close))) => {
                let reason = close.map_or_else(String::new, |close| {
                    let reason = close.reason.replace(char::is_control, " ");
                    format!(" ({} {reason})", u16::from(close.code))
                });
                return Received::Closed(format!("the server closed it{reason}"));
            }
            Some(Ok(received)) => received,
        };
        match self.framing.read(received) {
            Ok(Some((channel, message))) => Received::Message(channel, message),
            Ok(None) => Received::SignOfLife,
            Err(reason) => Received::Malformed(reason.to_string()),
        }
    }
}

fn end_reason(error: &WebSocketError) -> String {
    match error {
        WebSocketError::ConnectionClosed | WebSocketError::AlreadyClosed => {
            "the connection ended".to_owned()
        }
        error => error.to_string(),
    }
}
