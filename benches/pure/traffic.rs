//! Messages in the form in which ipykernel and its clients send them, and their way through the proxy
//! without its sockets.

use std::io::IoSlice;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::route::{Action, Bridge, ClientId, Ending, FrontEnd, Interrupt, Kernel, Now, Settings};
use crate::wire::{Channel, NewHeader, SigningKey, Unverified, Verified};
use crate::zmtp::{Batch, Connection, ConnectionEvent, Encoder, FrameLimits, Message, Role};

const KERNEL_SESSION: &str = "6c1f2a84-6d0f3f0f6ad0c1d5b0d1c9a1";
const CLIENT_SESSION: &str = "f3a4c0de-4f1e2a3b4c5d6e7f8091a2b3";
const DATE: &str = "2026-01-02T03:04:05.678901Z";

/// The keys of the kernel's connection file and of the front end's.
pub struct Keys {
    pub kernel: SigningKey,
    pub front: SigningKey,
}

impl Keys {
    /// Returns keys in the form of those in connection files.
    pub fn signing() -> Self {
        Self {
            kernel: SigningKey::new(b"a0436f6c-1916498b8eb9e81ab9368e84"),
            front: SigningKey::new(b"7b1c9f02-5a3d4c6e9f8a1b2c3d4e5f60"),
        }
    }

    /// Returns empty keys, which sign nothing: everything but the hashing is left.
    pub fn empty() -> Self {
        Self {
            kernel: SigningKey::new(b""),
            front: SigningKey::new(b""),
        }
    }
}

fn header(session: &str, number: usize, msg_type: &str, username: &str) -> (String, Value) {
    let msg_id = format!("{session}_4242_{number}");
    let header = json!({
        "msg_id": msg_id, "msg_type": msg_type, "username": username, "session": session,
        "date": DATE, "version": "5.3",
    });
    (msg_id, header)
}

fn made(session: &str, number: usize, msg_type: &str, parent: Bytes, content: &Value) -> Verified {
    let (msg_id, _) = header(session, number, msg_type, "user");
    let header = NewHeader {
        msg_id: &msg_id,
        session,
        username: "user",
        date: DATE,
        msg_type,
    };
    Verified::new(&header, parent, content)
}

/// Returns the header of all of a client's requests here, which is the parent header of their answers.
fn request_header() -> Bytes {
    let (_, header) = header(CLIENT_SESSION, 1, "execute_request", "user");
    header.to_string().into()
}

/// Returns a message of the kernel on iopub, under ipykernel's topic.
pub fn published(number: usize, msg_type: &str, content: &Value) -> Verified {
    let topic = Bytes::from(format!("kernel.{KERNEL_SESSION}.{msg_type}"));
    made(KERNEL_SESSION, number, msg_type, request_header(), content).with_identities(vec![topic])
}

/// Returns an output of a hundred bytes.
pub fn output(number: usize) -> Verified {
    let text = format!("{number:0>99}\n");
    published(number, "stream", &json!({ "name": "stdout", "text": text }))
}

/// Returns messages as bytes of the wire.
pub fn on_the_wire(messages: impl IntoIterator<Item = Message>) -> Bytes {
    let mut batch = Batch::default();
    messages
        .into_iter()
        .for_each(|message| batch.push(&message));
    let slices = batch.io_slices(usize::MAX);
    slices.iter().flat_map(|slice| slice.to_vec()).collect()
}

/// Returns a connection to a publisher whose handshake is complete.
pub fn subscribed() -> Connection {
    let new = |role| Connection::new(role, Bytes::new(), FrameLimits::default());
    let (mut ours, mut publisher) = (new(Role::Sub), new(Role::Xpub));
    loop {
        tell(&mut ours, &mut publisher);
        if let Some(ConnectionEvent::Ready(_)) = tell(&mut publisher, &mut ours) {
            return ours;
        }
    }
}

/// Passes what one end sends to the other; returns the event that this causes.
fn tell(from: &mut Connection, to: &mut Connection) -> Option<ConnectionEvent> {
    let said = from.poll_transmit().unwrap_or_default();
    let taken = to.handle_bytes(&said);
    assert_eq!(taken, said.len(), "a handshake is short");
    to.poll_event().expect("both keep to the protocol")
}

/// Passes bytes to a connection as reads do, and each of its messages to `take`.
pub fn receive(connection: &mut Connection, bytes: &[u8], mut take: impl FnMut(Message)) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let taken = connection.handle_bytes(rest);
        rest = rest.split_at(taken).1;
        while let Some(event) = connection
            .poll_event()
            .expect("frames of our own are right")
        {
            if let ConnectionEvent::Message(message) = event {
                take(message);
            }
        }
    }
}

/// Verifies a message of the kernel as the proxy does.
pub fn checked(frames: Message, key: &SigningKey) -> Verified {
    let message = Unverified::parse(frames).expect("it is whole");
    let mut message = key.verify(message).expect("it is rightly signed");
    assert!(message.read_headers());
    message
}

/// A bridge with a live kernel and one linked client.
pub struct Linked {
    pub bridge: Bridge,
    pub client: ClientId,
    pub now: Now,
}

impl Linked {
    pub fn new() -> Self {
        let now = Now {
            instant: Instant::now(),
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        let settings = Settings {
            id: "nb-proxy-0123456789abcdef0123456789abcdef".into(),
            held_bytes: 64 << 20,
            undelivered_bytes: 64 << 20,
            front_end: FrontEnd::Other,
        };
        let live = Kernel::Live {
            generation: 1,
            interrupt: Interrupt::Message,
            info: None,
        };
        let none = Ending {
            name: "none",
            text: String::new(),
        };
        let client = ClientId::new(Bytes::from_static(CLIENT_SESSION.as_bytes()));
        let mut bridge = Bridge::new(settings, now);
        bridge.set_kernel(now, live, &none, []);
        for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
            bridge.client_joined(channel, &client);
            bridge.link_up(now, &client, channel);
        }
        let welcome = json!({ "subscription": "" });
        bridge.iopub_message(now, published(0, "iopub_welcome", &welcome));
        while bridge.poll_action().is_some() {}
        Self {
            bridge,
            client,
            now,
        }
    }

    /// Passes a message of the kernel's iopub to those that it is for.
    pub fn output(&mut self, message: Verified, mut publish: impl FnMut(Verified)) {
        self.bridge.iopub_message(self.now, message);
        while let Some(action) = self.bridge.poll_action() {
            if let Action::Publish(message) = action {
                publish(message);
            }
        }
    }
}

impl Default for Linked {
    fn default() -> Self {
        Self::new()
    }
}

/// One cell: its request, the kernel's iopub messages, and its reply.
pub struct Cell {
    request: Verified,
    begins: Vec<Verified>,
    reply: Verified,
    ends: Verified,
}

impl Cell {
    pub fn new() -> Self {
        let state =
            |number, state| published(number, "status", &json!({ "execution_state": state }));
        let code = "for i in range(3):\n    print(i)";
        let ask = json!({
            "code": code, "silent": false, "store_history": true, "user_expressions": {},
            "allow_stdin": true, "stop_on_error": true,
        });
        let answer = json!({
            "status": "ok", "execution_count": 1, "user_expressions": {}, "payload": [],
        });
        let input = json!({ "code": code, "execution_count": 1 });
        Self {
            request: made(CLIENT_SESSION, 1, "execute_request", "{}".into(), &ask),
            begins: vec![
                state(1, "busy"),
                published(2, "execute_input", &input),
                output(3),
            ],
            reply: made(
                KERNEL_SESSION,
                4,
                "execute_reply",
                request_header(),
                &answer,
            ),
            ends: state(5, "idle"),
        }
    }

    /// Runs the cell; returns how many actions that caused.
    pub fn run(&self, linked: &mut Linked) -> usize {
        let Linked {
            bridge,
            client,
            now,
        } = linked;
        let mut done = 0;
        let mut drain = |bridge: &mut Bridge| {
            done += std::iter::from_fn(|| bridge.poll_action()).count();
        };
        bridge.client_message(*now, Channel::Shell, client, self.request.clone());
        drain(bridge);
        for message in &self.begins {
            bridge.iopub_message(*now, message.clone());
            drain(bridge);
        }
        bridge.kernel_message(*now, client, Channel::Shell, self.reply.clone());
        drain(bridge);
        bridge.iopub_message(*now, self.ends.clone());
        drain(bridge);
        done
    }
}

impl Default for Cell {
    fn default() -> Self {
        Self::new()
    }
}

/// All steps of a small iopub message between two sockets.
pub struct Way {
    connection: Connection,
    linked: Linked,
    keys: Keys,
    subscribers: Subscribers,
}

impl Way {
    pub fn new(keys: Keys, subscribers: usize) -> Self {
        Self {
            connection: subscribed(),
            linked: Linked::new(),
            keys,
            subscribers: Subscribers::new(subscribers),
        }
    }

    /// Handles the bytes that were read, and writes the results; returns how many bytes were written.
    pub fn pass(&mut self, bytes: &[u8]) -> usize {
        let Self {
            connection,
            linked,
            keys,
            subscribers,
        } = self;
        receive(connection, bytes, |frames| {
            let message = checked(frames, &keys.kernel);
            linked.output(message, |message| {
                subscribers.publish(&message.into_frames(&keys.front));
            });
        });
        subscribers.written()
    }
}

/// The queues of subscribers that receive everything.
pub struct Subscribers {
    encoder: Encoder,
    batches: Vec<Batch>,
}

impl Subscribers {
    pub fn new(many: usize) -> Self {
        Self {
            encoder: Encoder::default(),
            batches: std::iter::repeat_with(Batch::default).take(many).collect(),
        }
    }

    /// Queues a message for each subscriber as the publisher does.
    pub fn publish(&mut self, message: &Message) {
        let encoded = self.encoder.encode(message);
        for batch in &mut self.batches {
            match &encoded {
                // Each queue shares the encoded bytes.
                Some(bytes) => batch.push_raw(&bytes.clone()),
                None => batch.push(message),
            }
        }
    }

    /// Removes everything that is queued; returns how many bytes that was.
    pub fn written(&mut self) -> usize {
        self.batches.iter_mut().map(written).sum()
    }
}

/// Removes everything that is queued, as a system that accepts all bytes; returns how many bytes that was.
pub fn written(batch: &mut Batch) -> usize {
    let mut sum = 0;
    while !batch.is_empty() {
        let mut slices = [IoSlice::new(&[]); 8];
        let count = batch.put_slices(&mut slices);
        let taken = slices.iter().take(count).map(|slice| slice.len()).sum();
        batch.advance(taken);
        sum += taken;
    }
    sum
}
