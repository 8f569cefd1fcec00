//! Common parts of the socket tests: handlers that pass all events to the test.

use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nb::socket::{
    DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, PeerId, PeerInfo, Publisher,
    Router, ServerHandler, SocketLimits, SpillTo,
};
use nb::wire::Endpoint;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Nothing here takes long; an event that has not come by then will not come.
pub const TIMEOUT: Duration = Duration::from_secs(60);

pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

pub async fn soon<T>(event: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TIMEOUT, future)
        .await
        .unwrap_or_else(|_| panic!("{event} did not happen"))
}

/// An event that a handler received.
#[derive(Debug)]
pub enum Event {
    Joined(PeerId, PeerInfo),
    Message(PeerId, Message),
    DisconnectReason(PeerId, String),
    Refused(String),
    Up,
    Received(Message),
    Oversized(Message, u64),
    Down(String, Vec<Message>),
    NotReached,
}

/// A handler that passes all events to the test.
pub struct Forwarder(UnboundedSender<Event>);

impl Forwarder {
    pub fn new() -> (Rc<Self>, Events) {
        let (sender, receiver) = unbounded_channel();
        (Rc::new(Self(sender)), Events(receiver))
    }

    fn forward(&self, event: Event) {
        let _ = self.0.send(event);
    }
}

impl ServerHandler for Forwarder {
    fn joined(&self, peer: &PeerId, info: &PeerInfo) {
        self.forward(Event::Joined(peer.clone(), info.clone()));
    }

    fn message(&self, peer: &PeerId, message: Message) {
        self.forward(Event::Message(peer.clone(), message));
    }

    fn left(&self, peer: &PeerId, why: &DisconnectReason) {
        self.forward(Event::DisconnectReason(peer.clone(), why.to_string()));
    }

    fn refused(&self, why: &DisconnectReason) {
        self.forward(Event::Refused(why.to_string()));
    }
}

impl DialHandler for Forwarder {
    fn up(&self) {
        self.forward(Event::Up);
    }

    fn message(&self, message: Message) {
        self.forward(Event::Received(message));
    }

    fn oversized(&self, begun: Message, bytes: u64) {
        self.forward(Event::Oversized(begun, bytes));
    }

    fn down(&self, why: &DisconnectReason, unsent: Vec<Message>) {
        self.forward(Event::Down(why.to_string(), unsent));
    }

    fn refused(&self, _: &std::io::Error) {
        self.forward(Event::NotReached);
    }
}

pub struct Events(UnboundedReceiver<Event>);

impl Events {
    pub async fn next(&mut self) -> Event {
        let event = soon("the next event", self.0.recv()).await;
        event.expect("the handler lives")
    }

    /// Checks that there is no further event.
    pub fn none(&mut self) {
        if let Ok(event) = self.0.try_recv() {
            panic!("{event:?} came unasked");
        }
    }

    pub async fn joined(&mut self) -> (PeerId, PeerInfo) {
        match self.next().await {
            Event::Joined(peer, info) => (peer, info),
            other => panic!("{other:?} instead of a peer"),
        }
    }

    pub async fn message(&mut self) -> (PeerId, Message) {
        match self.next().await {
            Event::Message(peer, message) => (peer, message),
            other => panic!("{other:?} instead of a message"),
        }
    }

    pub async fn left(&mut self) -> (PeerId, String) {
        match self.next().await {
            Event::DisconnectReason(peer, why) => (peer, why),
            other => panic!("{other:?} instead of a farewell"),
        }
    }

    pub async fn refused(&mut self) -> String {
        match self.next().await {
            Event::Refused(why) => why,
            other => panic!("{other:?} instead of a refusal"),
        }
    }

    /// Waits for the connection; dials that fail before it are ignored.
    pub async fn up(&mut self) {
        loop {
            match self.next().await {
                Event::Up => return,
                Event::NotReached => {}
                other => panic!("{other:?} instead of a connection"),
            }
        }
    }

    pub async fn received(&mut self) -> Message {
        match self.next().await {
            Event::Received(message) => message,
            other => panic!("{other:?} instead of a message"),
        }
    }

    pub fn received_already(&mut self) -> Option<Message> {
        match self.0.try_recv() {
            Ok(Event::Received(message)) => Some(message),
            Ok(other) => panic!("{other:?} instead of a message"),
            Err(_) => None,
        }
    }

    /// Waits for the end of the connection; the last message before it may be lost, others may not.
    pub async fn down_after(&mut self, wanted: &[&[u8]]) {
        let mut received = Vec::new();
        loop {
            match self.next().await {
                Event::Received(message) => received.extend(message),
                Event::Down(..) => break,
                other => panic!("{other:?} instead of a lost connection"),
            }
        }
        assert!(received.len() <= wanted.len(), "{received:?}");
        assert!(received.iter().zip(wanted).all(|(a, b)| a == b));
    }

    pub async fn down(&mut self) -> (String, Vec<Message>) {
        match self.next().await {
            Event::Down(why, unsent) => (why, unsent),
            other => panic!("{other:?} instead of a lost connection"),
        }
    }
}

pub fn message(frames: &[&[u8]]) -> Message {
    frames
        .iter()
        .map(|frame| Bytes::copy_from_slice(frame))
        .collect()
}

pub fn any_port() -> Endpoint {
    Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"))
}

pub fn router(limits: SocketLimits) -> (Router, Events) {
    let (forwarder, events) = Forwarder::new();
    let router = Router::bind(&any_port(), limits, forwarder).expect("bind");
    (router, events)
}

pub fn publisher(limits: SocketLimits) -> (Publisher, Events) {
    let (forwarder, events) = Forwarder::new();
    let publisher = Publisher::bind(&any_port(), limits, None, forwarder).expect("bind");
    (publisher, events)
}

/// Makes a publisher whose subscribers' queues have 1 MiB in memory and continue in files of at most
/// `bytes` bytes.
pub fn spilling_publisher(bytes: u64) -> (Publisher, Events) {
    let (forwarder, events) = Forwarder::new();
    let limits = SocketLimits {
        outbox_bytes: 1 << 20,
        ..SocketLimits::default()
    };
    let folder = std::env::temp_dir();
    let spill = Some(SpillTo { folder, bytes });
    let publisher = Publisher::bind(&any_port(), limits, spill, forwarder).expect("bind");
    (publisher, events)
}

pub fn dialer(endpoint: Endpoint, socket_type: DialRole, topics: &[&str]) -> (Dialer, Events) {
    let (forwarder, events) = Forwarder::new();
    let as_ = DialAs {
        socket_type,
        identity: Bytes::from_static(b"dialer"),
        subscribe: topics
            .iter()
            .map(|topic| Bytes::copy_from_slice(topic.as_bytes()))
            .collect(),
    };
    let dialer = Dialer::connect(endpoint, as_, SocketLimits::default(), forwarder);
    (dialer, events)
}
