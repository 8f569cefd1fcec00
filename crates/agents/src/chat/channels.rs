//! The sockets of a chat's kernel, and its messages to clients.

use std::cell::{Cell, OnceCell, RefCell};
use std::time::Instant;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::socket::KernelEndpoint;
use crate::wire::{Channel, NewHeader, Verified};

/// A request of a client.
pub(super) struct Request {
    pub(super) channel: Channel,
    pub(super) client: Bytes,
    pub(super) message: Verified,
}

/// A question that the person at a client has not answered.
struct OpenQuestion {
    client: Bytes,
    answer: oneshot::Sender<String>,
}

/// The sockets of a chat's kernel.
pub(super) struct ChatChannels {
    endpoint: OnceCell<KernelEndpoint>,
    /// The kernel's session, with which its messages' ids begin.
    session: String,
    sent: Cell<u64>,
    question: RefCell<Option<OpenQuestion>>,
    /// When the last display was sent.
    pub(super) last_display: Cell<Option<tokio::time::Instant>>,
}

impl Default for ChatChannels {
    fn default() -> Self {
        Self {
            endpoint: OnceCell::new(),
            session: uuid::Uuid::new_v4().simple().to_string(),
            sent: Cell::new(0),
            question: RefCell::default(),
            last_display: Cell::new(None),
        }
    }
}

impl ChatChannels {
    /// Takes the sockets, once they are bound.
    pub(super) fn set_endpoint(&self, endpoint: KernelEndpoint) {
        let _ = self.endpoint.set(endpoint);
    }

    /// Closes the sockets once all messages have left, or at the deadline.
    pub(super) async fn close(&self, deadline: Instant) {
        if let Some(endpoint) = self.endpoint.get() {
            endpoint.close(deadline).await;
        }
    }

    /// Forgets the question to a client that has disconnected from stdin.
    pub(super) fn client_left(&self, client: &Bytes) {
        let is_for_client = |it: &mut OpenQuestion| it.client == *client;
        drop(self.question.borrow_mut().take_if(is_for_client));
    }

    /// Asks the person at a client. Returns `None` if the client has no stdin, or disconnects.
    pub(super) async fn ask(&self, parent: &Bytes, client: &Bytes, prompt: &str) -> Option<String> {
        let (answer, reply) = oneshot::channel();
        *self.question.borrow_mut() = Some(OpenQuestion {
            client: client.clone(),
            answer,
        });
        let content = json!({ "prompt": prompt, "password": false });
        let message = self.message("input_request", parent, &content);
        let message = message.with_identities(Vec::new());
        let sent = self.endpoint.get()?.send(Channel::Stdin, client, message);
        if sent.is_err() {
            self.question.borrow_mut().take();
            return None;
        }
        reply.await.ok()
    }

    pub(super) fn take_answer(&self, request: &Request) {
        #[derive(Deserialize)]
        struct InputReply {
            value: String,
        }
        let is_for_client = |it: &mut OpenQuestion| it.client == request.client;
        let Some(question) = self.question.borrow_mut().take_if(is_for_client) else {
            return;
        };
        if let Some(reply) = request.message.read_content::<InputReply>() {
            let _ = question.answer.send(reply.value);
        }
    }

    pub(super) fn publish(&self, msg_type: &str, parent: &Bytes, content: &Value) {
        let topic = Bytes::from(format!("kernel.{}.{msg_type}", self.session));
        let message = self.message(msg_type, parent, content);
        if let Some(endpoint) = self.endpoint.get() {
            endpoint.publish(message.with_identities(vec![topic]));
        }
    }

    pub(super) fn status(&self, parent: &Bytes, state: &str) {
        self.publish("status", parent, &json!({ "execution_state": state }));
    }

    pub(super) fn reply(&self, request: &Request, msg_type: &str, content: &Value) {
        let message = self.message(msg_type, request.message.header_bytes(), content);
        let message = message.with_identities(request.message.identities().to_vec());
        if let Some(endpoint) = self.endpoint.get() {
            // A client that is gone needs no reply.
            let _ = endpoint.send(request.channel, &request.client, message);
        }
    }

    fn message(&self, msg_type: &str, parent: &Bytes, content: &Value) -> Verified {
        self.sent.set(self.sent.get() + 1);
        let id = format!("{}_{}", self.session, self.sent.get());
        // jupyter_client parses at most six decimals.
        let date = format!("{:.6}", jiff::Timestamp::now());
        let header = NewHeader {
            msg_id: &id,
            session: &self.session,
            username: "kernel",
            date: &date,
            msg_type,
        };
        Verified::new(&header, parent.clone(), content)
    }
}
