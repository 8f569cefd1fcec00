//! A kernel that does nothing, fast: what remains to be measured is the way to it.

use std::path::Path;

use bytes::Bytes;
use nb::wire::{Channel, ConnectionInfo, NewHeader, SigningKey, Unverified, Verified};
use serde::Deserialize;
use zeromq::{PubSocket, RouterSocket, Socket, SocketRecv, SocketSend, ZmqMessage};

/// What a `flood_request` asks for: so many iopub messages of so many bytes.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Flood {
    messages: usize,
    bytes: usize,
}

/// Serves the connection file until the process is killed.
///
/// Every request on shell and control is answered with busy, its reply and idle. Heartbeat and
/// stdin are bound and silent.
pub async fn serve(file: &Path) {
    let info = super::process::read(file);
    let bind = |channel| info.endpoint(channel).to_string();
    let mut iopub = PubSocket::new();
    iopub.bind(&bind(Channel::Iopub)).await.expect("bind iopub");
    let mut stdin = RouterSocket::new();
    stdin.bind(&bind(Channel::Stdin)).await.expect("bind stdin");
    let mut heartbeat = RouterSocket::new();
    heartbeat
        .bind(&bind(Channel::Heartbeat))
        .await
        .expect("bind the heartbeat");
    let mut control = RouterSocket::new();
    control
        .bind(&bind(Channel::Control))
        .await
        .expect("bind control");
    let mut shell = RouterSocket::new();
    shell.bind(&bind(Channel::Shell)).await.expect("bind shell");
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

struct Kernel {
    info: ConnectionInfo,
    iopub: PubSocket,
    count: u64,
}

impl Kernel {
    async fn answer(&mut self, socket: &mut RouterSocket, message: ZmqMessage) {
        let mut frames = message.into_vec();
        let peer = frames.remove(0);
        let key = self.info.key.clone();
        let Some(request) = Unverified::parse(frames)
            .ok()
            .and_then(|message| key.verify(message).ok())
        else {
            return;
        };
        let parent = request.header_bytes().clone();
        let header = request.header().expect("a readable header");
        let msg_type = header.msg_type.into_owned();
        self.publish(
            "status",
            &parent,
            &serde_json::json!({ "execution_state": "busy" }),
        )
        .await;
        if msg_type == "flood_request" {
            let flood: Flood = serde_json::from_slice(request.content()).unwrap_or_default();
            let text = "x".repeat(flood.bytes);
            for _ in 0..flood.messages {
                self.publish(
                    "stream",
                    &parent,
                    &serde_json::json!({ "name": "stdout", "text": text }),
                )
                .await;
            }
        }
        let reply_type = msg_type.replace("_request", "_reply");
        let reply = self.say(&reply_type, &parent, &serde_json::json!({ "status": "ok" }));
        let mut frames = vec![peer];
        frames.extend(reply.into_frames(&key));
        let _ = socket
            .send(ZmqMessage::try_from(frames).expect("frames"))
            .await;
        self.publish(
            "status",
            &parent,
            &serde_json::json!({ "execution_state": "idle" }),
        )
        .await;
    }

    async fn publish(&mut self, msg_type: &str, parent: &Bytes, content: &serde_json::Value) {
        let topic = Bytes::from(format!("kernel.fake.{msg_type}"));
        let message = self
            .say(msg_type, parent, content)
            .with_identities(vec![topic]);
        let key: SigningKey = self.info.key.clone();
        let frames = ZmqMessage::try_from(message.into_frames(&key)).expect("frames");
        let _ = self.iopub.send(frames).await;
    }

    fn say(&mut self, msg_type: &str, parent: &Bytes, content: &serde_json::Value) -> Verified {
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
