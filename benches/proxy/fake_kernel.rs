//! A kernel that does nothing, fast: what remains to be measured is the way to it.

use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use nb::socket::{Left, Limits, Message, PeerId, PeerInfo, Publisher, ServerHandler};
use nb::wire::{Channel, ConnectionInfo, NewHeader, Unverified, Verified};
use serde::Serialize;
use serde_json::value::RawValue;
use zeromq::{RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

use super::client::Flood;

/// Serves the connection file until the process is killed.
///
/// Every request on shell and control is answered with busy, its reply and idle; a `comm_msg` with the
/// same on iopub. Heartbeat and stdin are bound and silent. Its iopub has no bound, so that what
/// is lost is lost on the way.
pub async fn serve(file: &Path) {
    let info = super::process::read(file);
    let unbounded = Limits {
        outbox_bytes: usize::MAX,
        max_peers: usize::MAX,
        ..Limits::default()
    };
    let iopub = Publisher::bind(
        &info.endpoint(Channel::Iopub),
        unbounded,
        None,
        Rc::new(Silent),
    )
    .expect("bind iopub");
    let bind = async |channel| {
        let mut socket = RouterSocket::new();
        let bound = socket.bind(&info.endpoint(channel).to_string()).await;
        bound.expect("bind");
        socket
    };
    let _stdin = bind(Channel::Stdin).await;
    let _heartbeat = bind(Channel::Heartbeat).await;
    let mut control = bind(Channel::Control).await;
    let mut shell = bind(Channel::Shell).await;
    let mut kernel = Kernel {
        info,
        iopub,
        count: 0,
    };
    loop {
        let (socket, message) = tokio::select! {
            message = shell.recv() => (&mut shell, message),
            message = control.recv() => (&mut control, message),
        };
        if let Ok(message) = message {
            kernel.answer(socket, message).await;
        }
    }
}

/// Others get their turn after this many messages of a flood.
const TURN: usize = 64;

struct Kernel {
    info: ConnectionInfo,
    iopub: Publisher,
    count: u64,
}

impl Kernel {
    async fn answer(&mut self, socket: &mut RouterSocket, message: ZmqMessage) {
        let mut frames = message.into_vec();
        let peer = frames.remove(0);
        let Some(request) = Unverified::parse(frames)
            .ok()
            .and_then(|message| self.info.key.verify(message).ok())
        else {
            return;
        };
        let parent = request.header_bytes().clone();
        let msg_type = request.header().expect("a readable header").msg_type;
        self.status(&parent, "busy");
        match &*msg_type {
            "flood_request" => {
                let flood: Flood = serde_json::from_slice(request.content()).unwrap_or_default();
                self.flood(&parent, &flood).await;
            }
            "comm_msg" => {
                let buffers = request.buffers().iter().cloned();
                let content = String::from_utf8(request.content().to_vec()).expect("JSON");
                let content = RawValue::from_string(content).expect("JSON");
                self.publish("comm_msg", &parent, &content, buffers);
            }
            _ => {}
        }
        if let Some(name) = msg_type.strip_suffix("_request") {
            let reply_type = format!("{name}_reply");
            let content = serde_json::json!({ "status": "ok" });
            let reply = self.say(&reply_type, &parent, &content);
            let mut frames = vec![peer];
            frames.extend(request.identities().iter().cloned());
            frames.extend(reply.into_frames(&self.info.key));
            let reply = ZmqMessage::try_from(frames).expect("frames");
            let _ = socket.send(reply).await;
        }
        self.status(&parent, "idle");
    }

    async fn flood(&mut self, parent: &Bytes, flood: &Flood) {
        let text = "x".repeat(flood.bytes);
        let (text, buffer) = if flood.in_buffer {
            ("", Some(Bytes::from(text.clone())))
        } else {
            (&*text, None)
        };
        let content = serde_json::json!({ "name": "stdout", "text": text });
        let content = RawValue::from_string(content.to_string()).expect("JSON");
        for number in 1..=flood.messages {
            self.publish("stream", parent, &content, buffer.clone());
            if number % TURN == 0 || flood.bytes > 64 * 1024 {
                tokio::task::yield_now().await;
            }
        }
    }

    fn status(&mut self, parent: &Bytes, state: &str) {
        let content = serde_json::json!({ "execution_state": state });
        self.publish("status", parent, &content, None);
    }

    fn publish(
        &mut self,
        msg_type: &str,
        parent: &Bytes,
        content: &impl Serialize,
        buffers: impl IntoIterator<Item = Bytes>,
    ) {
        let topic = Bytes::from(format!("kernel.fake.{msg_type}"));
        let message = self
            .say(msg_type, parent, content)
            .with_identities(vec![topic]);
        let mut frames = message.into_frames(&self.info.key);
        frames.extend(buffers);
        self.iopub.send(&frames);
    }

    fn say(&mut self, msg_type: &str, parent: &Bytes, content: &impl Serialize) -> Verified {
        self.count += 1;
        let id = format!("fake_{}", self.count);
        let header = NewHeader {
            msg_id: &id,
            session: "fake",
            username: "kernel",
            date: "2026-01-01T00:00:00Z",
            msg_type,
        };
        Verified::new(&header, parent.clone(), content)
    }
}

struct Silent;

impl ServerHandler for Silent {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {}
    fn message(&self, _: &PeerId, _: Message) {}
    fn left(&self, _: &PeerId, _: &Left) {}
}
