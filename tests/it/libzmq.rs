//! `socket` against libzmq, through pyzmq in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use nb::socket::{
    DialAs, DialHandler, DialRole, Dialer, Left, Limits, Message, PeerId, PeerInfo, Publisher,
    Router, ServerHandler, WhyUnsent,
};
use nb::wire::Endpoint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::python;

/// Nothing here takes long; what has not come by then will not.
const PATIENCE: Duration = Duration::from_secs(60);

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("build a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_| panic!("{what} did not happen"))
}

/// A process with libzmq sockets that does what it is told, one thing after the other.
struct Libzmq {
    child: Child,
    stdin: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl Libzmq {
    async fn start() -> Self {
        let mut child = Command::new(python::interpreter())
            .arg(python::script("zmq_peer.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start python");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (lines, answers) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut peer = Self {
            child,
            stdin,
            answers,
        };
        peer.answer().await;
        peer
    }

    /// Starts a command without waiting for its end.
    fn tell(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").expect("write to python");
    }

    /// Returns the answer to the oldest command that has none yet.
    async fn answer(&mut self) -> Value {
        let line = soon("an answer from python", self.answers.recv()).await;
        let mut answer: Value =
            serde_json::from_str(&line.expect("python lives")).expect("python answers JSON");
        assert_eq!(answer.get("error"), None);
        answer["ok"].take()
    }

    async fn ask(&mut self, command: Value) -> Value {
        self.tell(&command);
        self.answer().await
    }

    async fn recv(&mut self, name: &str) -> Value {
        self.ask(json!({"do": "recv", "name": name})).await
    }

    async fn connect(&mut self, name: &str, kind: &str, endpoint: &Endpoint, options: Value) {
        self.ask(json!({
            "do": "open_socket", "name": name, "type": kind, "options": options,
            "connect": endpoint.to_string(),
        }))
        .await;
    }
}

impl Drop for Libzmq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a handler was told.
#[derive(Debug)]
enum Told {
    Joined(PeerId, PeerInfo),
    Message(PeerId, Message),
    Left(PeerId, String),
    Refused(String),
    Up,
    Received(Message),
    Down(String, Vec<Message>),
    NotReached,
}

/// Passes everything on to the test.
struct Teller(UnboundedSender<Told>);

impl Teller {
    fn new() -> (Rc<Self>, Events) {
        let (sender, receiver) = unbounded_channel();
        (Rc::new(Self(sender)), Events(receiver))
    }

    fn tell(&self, told: Told) {
        let _ = self.0.send(told);
    }
}

impl ServerHandler for Teller {
    fn joined(&self, peer: &PeerId, info: &PeerInfo) {
        self.tell(Told::Joined(peer.clone(), info.clone()));
    }

    fn message(&self, peer: &PeerId, message: Message) {
        self.tell(Told::Message(peer.clone(), message));
    }

    fn left(&self, peer: &PeerId, why: &Left) {
        self.tell(Told::Left(peer.clone(), why.to_string()));
    }

    fn refused(&self, why: &Left) {
        self.tell(Told::Refused(why.to_string()));
    }
}

impl DialHandler for Teller {
    fn up(&self) {
        self.tell(Told::Up);
    }

    fn message(&self, message: Message) {
        self.tell(Told::Received(message));
    }

    fn down(&self, why: &Left, unsent: Vec<Message>) {
        self.tell(Told::Down(why.to_string(), unsent));
    }

    fn refused(&self, _: &std::io::Error) {
        self.tell(Told::NotReached);
    }
}

struct Events(UnboundedReceiver<Told>);

impl Events {
    async fn next(&mut self) -> Told {
        let told = soon("the next event", self.0.recv()).await;
        told.expect("the handler lives")
    }

    async fn joined(&mut self) -> (PeerId, PeerInfo) {
        match self.next().await {
            Told::Joined(peer, info) => (peer, info),
            other => panic!("{other:?} instead of a peer"),
        }
    }

    async fn message(&mut self) -> (PeerId, Message) {
        match self.next().await {
            Told::Message(peer, message) => (peer, message),
            other => panic!("{other:?} instead of a message"),
        }
    }

    async fn left(&mut self) -> (PeerId, String) {
        match self.next().await {
            Told::Left(peer, why) => (peer, why),
            other => panic!("{other:?} instead of a farewell"),
        }
    }

    async fn refused(&mut self) -> String {
        match self.next().await {
            Told::Refused(why) => why,
            other => panic!("{other:?} instead of a refusal"),
        }
    }

    /// Waits for the connection; dials that fail before it do not count.
    async fn up(&mut self) {
        loop {
            match self.next().await {
                Told::Up => return,
                Told::NotReached => {}
                other => panic!("{other:?} instead of a connection"),
            }
        }
    }

    async fn received(&mut self) -> Message {
        match self.next().await {
            Told::Received(message) => message,
            other => panic!("{other:?} instead of a message"),
        }
    }

    async fn down(&mut self) -> (String, Vec<Message>) {
        match self.next().await {
            Told::Down(why, unsent) => (why, unsent),
            other => panic!("{other:?} instead of a lost connection"),
        }
    }
}

fn message(frames: &[&[u8]]) -> Message {
    frames
        .iter()
        .map(|frame| Bytes::copy_from_slice(frame))
        .collect()
}

fn hex(frames: &[&[u8]]) -> Value {
    frames.iter().map(hex::encode).collect()
}

/// Returns a long frame as python answers it.
fn digest(frame: &[u8]) -> Value {
    json!([frame.len(), hex::encode(Sha256::digest(frame))])
}

fn any_port() -> Endpoint {
    Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"))
}

fn router(limits: Limits) -> (Router, Events) {
    let (teller, events) = Teller::new();
    let router = Router::bind(&any_port(), limits, teller).expect("bind");
    (router, events)
}

fn publisher(limits: Limits) -> (Publisher, Events) {
    let (teller, events) = Teller::new();
    let publisher = Publisher::bind(&any_port(), limits, teller).expect("bind");
    (publisher, events)
}

fn dialer(endpoint: Endpoint, socket_type: DialRole, topics: &[&str]) -> (Dialer, Events) {
    let (teller, events) = Teller::new();
    let as_ = DialAs {
        socket_type,
        identity: Bytes::from_static(b"dialer"),
        subscribe: topics
            .iter()
            .map(|topic| Bytes::copy_from_slice(topic.as_bytes()))
            .collect(),
    };
    let dialer = Dialer::connect(endpoint, as_, Limits::default(), teller);
    (dialer, events)
}

#[test]
fn dealers_with_and_without_an_identity_talk_with_a_router() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut zmq = Libzmq::start().await;
        let named = json!({"ROUTING_ID": hex::encode("anna")});
        zmq.connect("anna", "DEALER", router.local_endpoint(), named)
            .await;
        let (anna, info) = events.joined().await;
        assert_eq!(anna, PeerId::announced(Bytes::from_static(b"anna")));
        assert_eq!(
            (&*info.identity, &*info.socket_type),
            (&b"anna"[..], "DEALER")
        );
        zmq.connect("nobody", "DEALER", router.local_endpoint(), json!({}))
            .await;
        let (nobody, info) = events.joined().await;
        assert!(!nobody.is_announced() && info.identity.is_empty());

        for (name, peer) in [("anna", &anna), ("nobody", &nobody)] {
            let frames: &[&[u8]] = &[b"", b"hello", &[0xff; 300], b""];
            zmq.ask(json!({"do": "send", "name": name, "frames": hex(frames)}))
                .await;
            let (from, came) = events.message().await;
            assert_eq!((&from, &came), (peer, &message(frames)));
            router.send(peer, came).expect("there is room");
            assert_eq!(zmq.recv(name).await, hex(frames));
        }
        zmq.ask(json!({"do": "close", "name": "anna"})).await;
        assert_eq!(events.left().await.0, anna);
        let unsent = router.send(&anna, message(&[b"late"])).unwrap_err();
        assert_eq!(unsent.why, WhyUnsent::NoSuchPeer);
        assert_eq!(unsent.message, message(&[b"late"]));
    });
}

#[test]
fn frames_of_50_megabytes_pass_both_ways() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut zmq = Libzmq::start().await;
        zmq.connect("big", "DEALER", router.local_endpoint(), json!({}))
            .await;
        let (peer, _) = events.joined().await;
        zmq.tell(&json!({
            "do": "send", "name": "big", "frames": ["00", [50_000_000, 7], "01", [70_000, 8]],
        }));
        let (_, came) = events.message().await;
        zmq.answer().await;
        assert_eq!(came[1], vec![7; 50_000_000]);
        assert_eq!(came[3], vec![8; 70_000]);
        let wanted = json!(["00", digest(&came[1]), "01", digest(&came[3])]);
        router.send(&peer, came).expect("an empty outbox takes it");
        assert_eq!(zmq.recv("big").await, wanted);
    });
}

#[test]
fn an_identity_that_connects_again_takes_over() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut zmq = Libzmq::start().await;
        let named = json!({"ROUTING_ID": hex::encode("anna")});
        zmq.connect("old", "DEALER", router.local_endpoint(), named.clone())
            .await;
        let (anna, first) = events.joined().await;
        zmq.connect("new", "DEALER", router.local_endpoint(), named)
            .await;
        let (again, second) = events.joined().await;
        assert_eq!(anna, again);
        assert_ne!(first.connection, second.connection);
        router
            .send(&anna, message(&[b"to the new one"]))
            .expect("it is there");
        assert_eq!(zmq.recv("new").await, hex(&[b"to the new one"]));
        // The old one's end is silent; the next that is heard is the new one's message and end.
        zmq.ask(json!({"do": "close", "name": "old"})).await;
        zmq.ask(json!({"do": "send", "name": "new", "frames": hex(&[b"still here"])}))
            .await;
        assert_eq!(events.message().await.1, message(&[b"still here"]));
        zmq.ask(json!({"do": "close", "name": "new"})).await;
        assert_eq!(events.left().await.0, anna);
    });
}

#[test]
fn req_asks_a_router() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut zmq = Libzmq::start().await;
        zmq.connect("req", "REQ", router.local_endpoint(), json!({}))
            .await;
        let (peer, info) = events.joined().await;
        assert_eq!(info.socket_type, "REQ");
        for _ in 0..3 {
            zmq.ask(json!({"do": "send", "name": "req", "frames": hex(&[b"ping"])}))
                .await;
            let (_, came) = events.message().await;
            assert_eq!(came, message(&[b"", b"ping"]));
            router.send(&peer, came).expect("there is room");
            assert_eq!(zmq.recv("req").await, hex(&[b"ping"]));
        }
    });
}

#[test]
fn subscribers_get_what_they_asked_for() {
    run(async {
        let (publisher, mut events) = publisher(Limits::default());
        let mut zmq = Libzmq::start().await;
        let topics = [&b"stream"[..], b"status"];
        zmq.connect("sub", "SUB", publisher.local_endpoint(), json!({}))
            .await;
        let (sub, info) = events.joined().await;
        assert_eq!(info.socket_type, "SUB");
        for topic in topics {
            zmq.ask(json!({
                "do": "option", "name": "sub", "option": "SUBSCRIBE", "value": hex::encode(topic),
            }))
            .await;
            let (from, came) = events.message().await;
            assert_eq!(
                (from, came),
                (sub.clone(), vec![[b"\x01", topic].concat().into()])
            );
        }
        zmq.connect(
            "all",
            "SUB",
            publisher.local_endpoint(),
            json!({"SUBSCRIBE": ""}),
        )
        .await;
        let (all, _) = events.joined().await;
        assert_eq!(events.message().await, (all.clone(), message(&[b"\x01"])));
        assert_eq!(publisher.subscriber_count(), 2);

        assert_eq!(publisher.send(&message(&[b"stream.1", b"a"])), 2);
        assert_eq!(publisher.send(&message(&[b"other", b"b"])), 1);
        assert_eq!(zmq.recv("sub").await, hex(&[b"stream.1", b"a"]));
        assert_eq!(zmq.recv("all").await, hex(&[b"stream.1", b"a"]));
        assert_eq!(zmq.recv("all").await, hex(&[b"other", b"b"]));

        zmq.ask(json!({
            "do": "option", "name": "sub", "option": "UNSUBSCRIBE", "value": hex::encode("stream"),
        }))
        .await;
        assert_eq!(
            events.message().await,
            (sub.clone(), message(&[b"\x00stream"]))
        );
        assert_eq!(publisher.send(&message(&[b"stream.2", b"c"])), 1);
        assert_eq!(publisher.send(&message(&[b"status", b"d"])), 2);
        assert_eq!(zmq.recv("sub").await, hex(&[b"status", b"d"]));

        zmq.ask(json!({"do": "close", "name": "all"})).await;
        assert_eq!(events.left().await.0, all);
        assert_eq!(publisher.subscriber_count(), 1);
    });
}

async fn bind(zmq: &mut Libzmq, name: &str, kind: &str, endpoint: &Endpoint) -> Endpoint {
    let bound = zmq
        .ask(json!({
            "do": "open_socket", "name": name, "type": kind, "bind": endpoint.to_string(),
        }))
        .await;
    let bound = bound.as_str().expect("an endpoint");
    match bound.strip_prefix("tcp://") {
        Some(address) => Endpoint::Tcp(address.parse().expect("an address")),
        None => Endpoint::Unix(bound.trim_start_matches("ipc://").into()),
    }
}

fn unix_endpoint(folder: &tempfile::TempDir) -> Endpoint {
    Endpoint::Unix(folder.path().join("socket"))
}

#[test]
fn a_dialer_talks_with_a_router_of_libzmq() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let mut zmq = Libzmq::start().await;
        for at in [any_port(), unix_endpoint(&folder)] {
            let at = bind(&mut zmq, "router", "ROUTER", &at).await;
            let (dialer, mut events) = dialer(at, DialRole::Dealer, &[]);
            // Queued while it is not connected.
            dialer
                .send(message(&[b"", b"first"]))
                .expect("there is room");
            events.up().await;
            assert_eq!(zmq.recv("router").await, hex(&[b"dialer", b"", b"first"]));
            zmq.ask(json!({
                "do": "send", "name": "router", "frames": hex(&[b"dialer", b"back"]),
            }))
            .await;
            assert_eq!(events.received().await, message(&[b"back"]));
            zmq.ask(json!({"do": "close", "name": "router"})).await;
            assert_eq!(events.down().await.1, Vec::<Message>::new());
        }
    });
}

#[test]
fn a_dialer_subscribes_again_when_the_peer_is_back() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let mut zmq = Libzmq::start().await;
        for at in [any_port(), unix_endpoint(&folder)] {
            let at = bind(&mut zmq, "pub", "XPUB", &at).await;
            let (_dialer, mut events) = dialer(at.clone(), DialRole::Sub, &["a", "b"]);
            events.up().await;
            for round in 0..3 {
                assert_eq!(zmq.recv("pub").await, hex(&[b"\x01a"]), "round {round}");
                assert_eq!(zmq.recv("pub").await, hex(&[b"\x01b"]));
                for frames in [[&b"c"[..], b"no"], [b"b", b"yes"]] {
                    zmq.ask(json!({"do": "send", "name": "pub", "frames": hex(&frames)}))
                        .await;
                }
                assert_eq!(events.received().await, message(&[b"b", b"yes"]));
                zmq.ask(json!({"do": "close", "name": "pub"})).await;
                events.down().await;
                assert_eq!(bind(&mut zmq, "pub", "XPUB", &at).await, at);
                events.up().await;
            }
            zmq.ask(json!({"do": "close", "name": "pub"})).await;
        }
    });
}

fn address(endpoint: &Endpoint) -> std::net::SocketAddr {
    match endpoint {
        Endpoint::Tcp(address) => *address,
        Endpoint::Unix(path) => panic!("{} is no address", path.display()),
    }
}

/// Our own greeting as a peer would send it, and a READY.
fn greeting(socket_type: &str) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    let body = [
        b"\x05READY\x0bSocket-Type\x00\x00\x00",
        &[u8::try_from(socket_type.len()).expect("a short name")][..],
        socket_type.as_bytes(),
    ]
    .concat();
    bytes.extend([4, u8::try_from(body.len()).expect("a short command")]);
    bytes.extend(body);
    bytes
}

async fn raw(endpoint: &Endpoint, bytes: &[u8]) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address(endpoint))
        .await
        .expect("connect");
    stream.write_all(bytes).await.expect("write");
    stream
}

async fn is_closed(mut stream: tokio::net::TcpStream) {
    let mut rest = Vec::new();
    // It may be reset, too.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
}

#[test]
fn bad_peers_are_refused_with_a_reason_and_others_are_not_disturbed() {
    run(async {
        let (router, mut events) = router(Limits {
            handshake: Duration::from_millis(300),
            ..Limits::default()
        });
        let mut zmq = Libzmq::start().await;
        let at = router.local_endpoint();
        zmq.connect("good", "DEALER", at, json!({})).await;
        let (good, _) = events.joined().await;

        let mut old = greeting("DEALER");
        old[10] = 1;
        let mut plain = greeting("DEALER");
        plain[12..17].copy_from_slice(b"PLAIN");
        for (bytes, wanted) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "does not speak ZMTP"),
            (&old, "speaks ZMTP 2.0"),
            (&plain, "\"PLAIN\""),
            (&greeting("SUB"), "cannot talk with our ROUTER"),
            (&greeting("DEALER")[..30], "within 300ms"),
            (b"", "within 300ms"),
        ] {
            let stream = raw(at, bytes).await;
            let why = events.refused().await;
            assert!(why.contains(wanted), "{why:?} instead of {wanted:?}");
            is_closed(stream).await;
        }

        let endless = [&[2][..], &(1_u64 << 46).to_be_bytes()].concat();
        for (bytes, wanted) in [
            (&endless[..], "70368744177664 bytes"),
            (b"\xf0\x00", "reserved flags"),
            (b"\x04\x01\x09", "malformed"),
            (&[0xff; 100], "reserved flags"),
        ] {
            let stream = raw(at, &[&greeting("DEALER"), bytes].concat()).await;
            let (peer, _) = events.joined().await;
            let (gone, why) = events.left().await;
            assert_eq!(gone, peer);
            assert!(why.contains(wanted), "{why:?} instead of {wanted:?}");
            is_closed(stream).await;
        }
        router
            .send(&good, message(&[b"all is well"]))
            .expect("it is there");
        assert_eq!(zmq.recv("good").await, hex(&[b"all is well"]));
    });
}
