//! A kernel that does nothing, fast, so that only the way to it is measured.

use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;
use nb::socket::{EndpointHandler, EndpointLimits, KernelEndpoint, SocketLimits};
use nb::wire::{Channel, NewHeader, Verified};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::client::Flood;

/// Serves the connection file until the process is killed.
///
/// It answers every request on shell and control with busy, its reply and idle; a `comm_msg` it also sends
/// back on iopub. It echoes heartbeats, and stdin is silent. Its iopub has no limit, so that messages can
/// only be lost on the way.
pub async fn serve(file: &Path) {
    let info = super::process::read(file);
    let unbounded = SocketLimits {
        outbox_bytes: usize::MAX,
        max_peers: usize::MAX,
        ..SocketLimits::default()
    };
    let limits = EndpointLimits {
        router: unbounded,
        iopub: unbounded,
        spill: None,
    };
    let (sender, mut requests) = unbounded_channel();
    let endpoint = KernelEndpoint::bind(&info, limits, Rc::new(Requests(sender)));
    let kernel = Kernel {
        endpoint: endpoint.expect("bind"),
        count: Cell::new(0),
    };
    while let Some(request) = requests.recv().await {
        kernel.answer(request).await;
    }
}

/// A request of a client.
struct Request {
    channel: Channel,
    client: Bytes,
    message: Verified,
}

/// The handler of clients' messages.
struct Requests(UnboundedSender<Request>);

impl EndpointHandler for Requests {
    fn message(&self, channel: Channel, client: &Bytes, message: Verified) {
        let client = client.clone();
        let _ = self.0.send(Request {
            channel,
            client,
            message,
        });
    }
}

/// After this many messages of a flood, other tasks run.
const TURN: usize = 64;

struct Kernel {
    endpoint: KernelEndpoint,
    count: Cell<u64>,
}

impl Kernel {
    async fn answer(&self, request: Request) {
        let Request {
            channel,
            client,
            message: request,
        } = request;
        let parent = request.header_bytes().clone();
        let msg_type = request.header().expect("a readable header").msg_type;
        self.status(&parent, "busy");
        match &*msg_type {
            "flood_request" => {
                let flood: Flood = serde_json::from_slice(request.content()).unwrap_or_default();
                self.flood(&parent, &flood).await;
            }
            "comm_msg" => {
                let buffers = request.buffers().to_vec();
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
            let reply = reply.with_identities(request.identities().to_vec());
            let _ = self.endpoint.send(channel, &client, reply);
        }
        self.status(&parent, "idle");
    }

    async fn flood(&self, parent: &Bytes, flood: &Flood) {
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

    fn status(&self, parent: &Bytes, state: &str) {
        let content = serde_json::json!({ "execution_state": state });
        self.publish("status", parent, &content, None);
    }

    fn publish(
        &self,
        msg_type: &str,
        parent: &Bytes,
        content: &impl Serialize,
        buffers: impl IntoIterator<Item = Bytes>,
    ) {
        let topic = Bytes::from(format!("kernel.fake.{msg_type}"));
        let message = self.say(msg_type, parent, content);
        let message = message.with_identities(vec![topic]).with_buffers(buffers);
        self.endpoint.publish(message);
    }

    fn say(&self, msg_type: &str, parent: &Bytes, content: &impl Serialize) -> Verified {
        self.count.update(|count| count + 1);
        let id = format!("fake_{}", self.count.get());
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
