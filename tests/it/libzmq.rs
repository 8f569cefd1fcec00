//! `socket` against libzmq, through pyzmq in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::socket::{DialAs, DialRole, Dialer, Limits, Message, PeerId, Publisher, Router, WhyUnsent};
use nb::wire::Endpoint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::python;
use crate::socket_events::{Teller, Told, any_port, dialer, message, publisher, router, run, soon};

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

fn hex(frames: &[&[u8]]) -> Value {
    frames.iter().map(hex::encode).collect()
}

/// Returns a long frame as python answers it.
fn digest(frame: &[u8]) -> Value {
    json!([frame.len(), hex::encode(Sha256::digest(frame))])
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

async fn bind(
    zmq: &mut Libzmq,
    name: &str,
    kind: &str,
    endpoint: &Endpoint,
    options: Value,
) -> Endpoint {
    let bound = zmq
        .ask(json!({
            "do": "open_socket", "name": name, "type": kind, "options": options,
            "bind": endpoint.to_string(),
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
            let at = bind(&mut zmq, "router", "ROUTER", &at, json!({})).await;
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
            let at = bind(&mut zmq, "pub", "XPUB", &at, json!({})).await;
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
                assert_eq!(bind(&mut zmq, "pub", "XPUB", &at, json!({})).await, at);
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
    greeting_of(socket_type, "")
}

fn greeting_of(socket_type: &str, identity: &str) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type), ("Identity", identity)] {
        for (width, text) in [(1, name), (4, value)] {
            body.resize(body.len() + width - 1, 0);
            body.push(u8::try_from(text.len()).expect("a short text"));
            body.extend_from_slice(text.as_bytes());
        }
    }
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

/// A peer that says who it is and then never reads.
async fn stalled(endpoint: &Endpoint, socket_type: &str, identity: &str) -> tokio::net::TcpStream {
    raw(endpoint, &greeting_of(socket_type, identity)).await
}

#[test]
fn pings_of_libzmq_are_answered() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut zmq = Libzmq::start().await;
        let beat = json!({"HEARTBEAT_IVL": 50, "HEARTBEAT_TIMEOUT": 200});
        zmq.connect("good", "DEALER", router.local_endpoint(), beat.clone())
            .await;
        let (good, _) = events.joined().await;
        let at = bind(&mut zmq, "beating", "ROUTER", &any_port(), beat.clone()).await;
        let (dialer, mut dialed) = dialer(at, DialRole::Dealer, &[]);
        dialed.up().await;

        // The measure of time: a peer that does not answer is dropped by libzmq meanwhile.
        let mute = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bind");
        let mute_at = Endpoint::Tcp(mute.local_addr().expect("it is bound"));
        for _ in 0..2 {
            zmq.connect("mute", "DEALER", &mute_at, beat.clone()).await;
            let (mut stream, _) = soon("a connection", mute.accept()).await.expect("accept");
            stream
                .write_all(&greeting("ROUTER"))
                .await
                .expect("write the greeting");
            is_closed(stream).await;
            zmq.ask(json!({"do": "close", "name": "mute"})).await;
        }

        router
            .send(&good, message(&[b"still"]))
            .expect("it is there");
        assert_eq!(zmq.recv("good").await, hex(&[b"still"]));
        dialer.send(message(&[b"still"])).expect("there is room");
        assert_eq!(zmq.recv("beating").await, hex(&[b"dialer", b"still"]));
        events.none();
        dialed.none();
    });
}

#[test]
fn a_subscriber_that_stalls_is_cut_alone_at_its_budget() {
    run(async {
        let (publisher, mut events) = publisher(Limits {
            outbox_bytes: 4 << 20,
            ..Limits::default()
        });
        let mut zmq = Libzmq::start().await;
        let stalled = stalled(publisher.local_endpoint(), "SUB", "").await;
        let (idle, _) = events.joined().await;
        let mut stalled_writer = stalled;
        stalled_writer
            .write_all(b"\x00\x01\x01")
            .await
            .expect("subscribe");
        events.message().await;
        let all = json!({"SUBSCRIBE": ""});
        zmq.connect("quick", "SUB", publisher.local_endpoint(), all)
            .await;
        let (quick, _) = events.joined().await;
        assert_eq!(events.message().await.0, quick);
        let part = Bytes::from(vec![5; 100_000]);
        let wanted = json!([digest(&part)]);
        let mut sent = 0;
        while publisher.send(&vec![part.clone()]) == 2 {
            assert_eq!(zmq.recv("quick").await, wanted);
            sent += part.len();
            assert!(sent < 1 << 30, "it is never cut");
        }
        assert_eq!(zmq.recv("quick").await, wanted);
        let (gone, why) = events.left().await;
        assert_eq!(gone, idle);
        assert!(why.contains("does not read"), "{why}");
        assert_eq!(publisher.send(&vec![part]), 1);
        assert_eq!(zmq.recv("quick").await, wanted);
        is_closed(stalled_writer).await;
    });
}

#[test]
fn a_router_says_when_a_peer_is_full() {
    run(async {
        let (router, mut events) = router(Limits {
            outbox_bytes: 1 << 20,
            ..Limits::default()
        });
        let stream = stalled(router.local_endpoint(), "DEALER", "").await;
        let (peer, _) = events.joined().await;
        let part = Bytes::from(vec![5; 100_000]);
        let unsent = loop {
            match router.send(&peer, vec![part.clone()]) {
                Ok(()) => tokio::task::yield_now().await,
                Err(unsent) => break unsent,
            }
        };
        assert_eq!(unsent.why, WhyUnsent::Full);
        assert_eq!(unsent.message, [part]);
        assert!((900_000..1 << 20).contains(&router.queued_bytes(&peer)));
        router.disconnect(&peer, "it does not read its replies");
        let (gone, why) = events.left().await;
        assert_eq!(gone, peer);
        assert_eq!(why, "it was disconnected: it does not read its replies");
        is_closed(stream).await;
    });
}

/// Messages that `count` in the Python script can check, and the one that ends them.
fn counting(times: usize, len: usize) -> impl Iterator<Item = Message> {
    (0..times)
        .map(move |number| {
            let mut content = format!("{number} ").into_bytes();
            content.resize(len, b'.');
            vec![content.into()]
        })
        .chain([message(&[b"end"])])
}

fn in_a_minute() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

#[test]
fn closing_writes_what_is_queued() {
    let count = |name: &str| json!({"do": "count", "name": name, "until": hex::encode("end")});
    run(async {
        let mut zmq = Libzmq::start().await;
        for len in [1000, 5000] {
            let (router, mut events) = router(Limits::default());
            zmq.connect("dealer", "DEALER", router.local_endpoint(), json!({}))
                .await;
            let (peer, _) = events.joined().await;
            for message in counting(10_000, len) {
                router.send(&peer, message).expect("there is room");
            }
            assert_eq!(router.close(in_a_minute()).await, 0);
            assert_eq!(zmq.ask(count("dealer")).await, 10_000);

            let (publisher, mut events) = publisher(Limits::default());
            let all = json!({"SUBSCRIBE": ""});
            zmq.connect("sub", "SUB", publisher.local_endpoint(), all)
                .await;
            events.joined().await;
            events.message().await;
            for message in counting(10_000, len) {
                assert_eq!(publisher.send(&message), 1);
            }
            assert_eq!(publisher.close(in_a_minute()).await, 0);
            assert_eq!(zmq.ask(count("sub")).await, 10_000);

            let at = bind(&mut zmq, "router", "ROUTER", &any_port(), json!({})).await;
            let (dialer, mut events) = dialer(at, DialRole::Dealer, &[]);
            events.up().await;
            for message in counting(10_000, len) {
                dialer.send(message).expect("there is room");
            }
            assert_eq!(dialer.close(in_a_minute()).await, Vec::<Message>::new());
            assert_eq!(zmq.ask(count("router")).await, 10_000);
            for name in ["dealer", "sub", "router"] {
                zmq.ask(json!({"do": "close", "name": name})).await;
            }
        }
    });
}

#[test]
fn closing_keeps_its_deadline_and_says_what_is_left() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut streams = Vec::new();
        for _ in 0..2 {
            streams.push(stalled(router.local_endpoint(), "DEALER", "").await);
        }
        let (full, _) = events.joined().await;
        events.joined().await;
        router
            .send(&full, vec![vec![0; 50_000_000].into()])
            .expect("an empty outbox takes it");
        let begin = Instant::now();
        let deadline = begin + Duration::from_millis(400);
        assert_eq!(router.close(deadline).await, 1);
        assert!(Instant::now() >= deadline);

        let at = Endpoint::Tcp("127.0.0.1:9".parse().expect("an address"));
        let (dialer, _events) = dialer(at, DialRole::Dealer, &[]);
        dialer.send(message(&[b"never"])).expect("there is room");
        let unsent = dialer.close(in_a_minute()).await;
        assert_eq!(unsent, [message(&[b"never"])]);
    });
}

#[test]
fn closing_without_anything_queued_is_quick_even_when_a_peer_is_stopped() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let _half = raw(router.local_endpoint(), &greeting("DEALER")[..30]).await;
        let _stopped = stalled(router.local_endpoint(), "DEALER", "").await;
        events.joined().await;
        let begin = Instant::now();
        assert_eq!(router.close(in_a_minute()).await, 0);
        // Not even for as long as a handshake may take.
        assert!(begin.elapsed() < Limits::default().handshake);
    });
}

#[test]
fn a_paused_peer_has_to_wait_and_others_do_not() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let mut paused_stream = stalled(router.local_endpoint(), "DEALER", "").await;
        let (paused, _) = events.joined().await;
        router.pause(&paused);
        let mut zmq = Libzmq::start().await;
        zmq.connect("other", "DEALER", router.local_endpoint(), json!({}))
            .await;
        let (other, _) = events.joined().await;

        // More than what the system buffers.
        let writing = tokio::task::spawn_local(async move {
            let part = [&b"\x02\0\0\0\0\0\x0f\x42\x40"[..], &[1; 1_000_000]].concat();
            for _ in 0..100 {
                paused_stream.write_all(&part).await.expect("write");
            }
            paused_stream
        });
        for _ in 0..20 {
            zmq.ask(json!({"do": "send", "name": "other", "frames": hex(&[b"hi"])}))
                .await;
            let (from, came) = events.message().await;
            assert_eq!(from, other);
            router.send(&other, came).expect("there is room");
            assert_eq!(zmq.recv("other").await, hex(&[b"hi"]));
        }
        assert!(!writing.is_finished());
        router.resume(&paused);
        for _ in 0..100 {
            let (from, came) = events.message().await;
            assert_eq!((from, came[0].len()), (paused.clone(), 1_000_000));
        }
        soon("the last write", writing).await.expect("it ends");
    });
}

#[test]
fn there_are_at_most_as_many_peers_as_allowed() {
    run(async {
        let (router, mut events) = router(Limits {
            max_peers: 2,
            ..Limits::default()
        });
        let mut zmq = Libzmq::start().await;
        for name in ["a", "b"] {
            zmq.connect(name, "DEALER", router.local_endpoint(), json!({}))
                .await;
            events.joined().await;
        }
        zmq.connect("c", "DEALER", router.local_endpoint(), json!({}))
            .await;
        assert_eq!(events.refused().await, "there are 2 peers already");
        zmq.ask(json!({"do": "send", "name": "a", "frames": hex(&[b"here"])}))
            .await;
        loop {
            match events.next().await {
                Told::Message(_, came) => break assert_eq!(came, message(&[b"here"])),
                // It tries again.
                Told::Refused(_) => {}
                other => panic!("{other:?}"),
            }
        }
        zmq.ask(json!({"do": "close", "name": "b"})).await;
        let mut left = false;
        loop {
            match events.next().await {
                Told::Left(..) => left = true,
                Told::Joined(..) => break,
                Told::Refused(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(left);
    });
}

#[test]
fn what_is_queued_is_handed_over_with_the_identity() {
    run(async {
        let (router, mut events) = router(Limits::default());
        let _old = stalled(router.local_endpoint(), "DEALER", "anna").await;
        let (anna, _) = events.joined().await;
        let times = 300;
        for message in counting(times, 100_000) {
            router.send(&anna, message).expect("there is room");
            tokio::task::yield_now().await;
        }
        let mut zmq = Libzmq::start().await;
        let named = json!({"ROUTING_ID": hex::encode("anna")});
        zmq.connect("new", "DEALER", router.local_endpoint(), named)
            .await;
        assert_eq!(events.joined().await.0, anna);
        // The first is the one that the old connection had not got wholly.
        let first = zmq.ask(json!({"do": "first_number", "name": "new"})).await;
        let first = first.as_u64().expect("a number");
        assert!(first > 0 && first < times as u64, "{first}");
        let count = json!({
            "do": "count", "name": "new", "until": hex::encode("end"), "first": first + 1,
        });
        assert_eq!(zmq.ask(count).await, times);
        events.none();
    });
}

#[test]
fn a_lost_connection_gives_back_what_was_not_written_and_nothing_is_sent_twice() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bind");
        let at = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
        let (dialer, mut events) = dialer(at.clone(), DialRole::Dealer, &[]);
        let (mut stream, _) = soon("a dial", listener.accept()).await.expect("accept");
        stream
            .write_all(&greeting("ROUTER"))
            .await
            .expect("write the greeting");
        events.up().await;
        let times = 300;
        let messages: Vec<_> = counting(times, 100_000).collect();
        for message in &messages {
            dialer.send(message.clone()).expect("there is room");
            tokio::task::yield_now().await;
        }
        drop((stream, listener));
        let (_, unsent) = events.down().await;
        assert!(!unsent.is_empty() && unsent.len() < messages.len());
        assert!(messages.ends_with(&unsent));

        dialer.send(message(&[b"new"])).expect("there is room");
        let mut zmq = Libzmq::start().await;
        bind(&mut zmq, "router", "ROUTER", &at, json!({})).await;
        events.up().await;
        assert_eq!(zmq.recv("router").await, hex(&[b"dialer", b"new"]));
    });
}

#[test]
fn what_waits_for_a_connection_can_be_taken_back() {
    run(async {
        let at = Endpoint::Tcp("127.0.0.1:9".parse().expect("an address"));
        let (teller, _events) = Teller::new();
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::new(),
            subscribe: Vec::new(),
        };
        let limits = Limits {
            outbox_bytes: 1000,
            ..Limits::default()
        };
        let dialer = Dialer::connect(at, as_, limits, teller);
        let part = message(&[&[0; 300]]);
        dialer.send(part.clone()).expect("there is room");
        dialer.send(part.clone()).expect("there is room");
        assert_eq!(dialer.send(part.clone()).unwrap_err().0, part);
        assert_eq!(dialer.take_unsent(), [part.clone(), part.clone()]);
        dialer.send(part).expect("there is room again");
    });
}

#[test]
fn an_oversized_message_is_thrown_away_and_the_connection_stays() {
    run(async {
        let mut zmq = Libzmq::start().await;
        let at = bind(&mut zmq, "pub", "XPUB", &any_port(), json!({})).await;
        let (teller, mut events) = Teller::new();
        let as_ = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let limits = Limits {
            max_message: 1000,
            ..Limits::default()
        };
        let _dialer = Dialer::connect(at, as_, limits, teller);
        events.up().await;
        zmq.recv("pub").await;
        for frames in [
            json!(["aa", [30_000, 7], "bb", [20_000, 8]]),
            json!(["cc"]),
            // Beyond what is worth reading.
            json!([[100_000, 9]]),
        ] {
            zmq.ask(json!({"do": "send", "name": "pub", "frames": frames}))
                .await;
        }
        match events.next().await {
            Told::Oversized(begun, bytes) => {
                assert_eq!((begun, bytes), (message(&[b"\xaa"]), 50_002));
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(events.received().await, message(&[b"\xcc"]));
        let (why, _) = events.down().await;
        assert!(why.contains("a frame of 100000 bytes"), "{why}");
    });
}

#[test]
fn a_peer_that_never_greets_is_dialled_again() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bind");
        let at = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
        let (teller, mut events) = Teller::new();
        let as_ = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let limits = Limits {
            handshake: Duration::from_millis(50),
            ..Limits::default()
        };
        let _dialer = Dialer::connect(at, as_, limits, teller);
        let (_mute, _) = soon("a dial", listener.accept()).await.expect("accept");
        assert!(matches!(events.next().await, Told::NotReached));
        let (mut stream, _) = soon("a dial", listener.accept()).await.expect("accept");
        stream
            .write_all(&greeting("PUB"))
            .await
            .expect("write the greeting");
        events.up().await;
    });
}

#[test]
fn a_heartbeat_of_libzmq_answers_a_req_of_ours() {
    run(async {
        let mut zmq = Libzmq::start().await;
        for kind in ["REP", "ROUTER"] {
            let at = bind(&mut zmq, "hb", kind, &any_port(), json!({})).await;
            let (dialer, mut events) = dialer(at, DialRole::Req, &[]);
            events.up().await;
            zmq.tell(&json!({"do": "echo", "name": "hb", "times": 3}));
            for _ in 0..3 {
                dialer
                    .send(message(&[b"", b"ping"]))
                    .expect("there is room");
                assert_eq!(events.received().await, message(&[b"", b"ping"]));
            }
            zmq.answer().await;
            zmq.ask(json!({"do": "close", "name": "hb"})).await;
        }
    });
}

#[test]
fn unix_sockets_are_served_replaced_when_stale_and_removed() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let at = unix_endpoint(&folder);
        let path = folder.path().join("socket");
        let bind = || {
            let (teller, events) = Teller::new();
            Router::bind(&at, Limits::default(), teller).map(|router| (router, events))
        };
        // One that nobody listens on any more.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        assert!(path.exists());
        let (router, mut events) = bind().expect("a stale file is replaced");
        let error = bind().err().expect("it is alive").to_string();
        assert!(error.contains("cannot listen on ipc://"), "{error}");
        // It was asked whether it is alive.
        events.refused().await;

        let mut zmq = Libzmq::start().await;
        zmq.connect("dealer", "DEALER", &at, json!({})).await;
        let (peer, _) = events.joined().await;
        router.send(&peer, message(&[b"hi"])).expect("it is there");
        assert_eq!(zmq.recv("dealer").await, hex(&[b"hi"]));
        drop(router);
        assert!(!path.exists());
        // The address is free at once.
        let (router, _events) = bind().expect("the address is free");
        // A successor's file is not ours to remove.
        std::fs::remove_file(&path).expect("remove the file");
        let successor = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        drop(router);
        assert!(path.exists());
        drop(successor);
        // And what is no socket is left alone.
        std::fs::remove_file(&path).expect("remove the file");
        std::fs::write(&path, "mine").expect("write a file");
        assert!(bind().is_err());
        assert_eq!(std::fs::read(&path).expect("read it"), b"mine");
    });
}

#[test]
fn a_port_in_use_is_an_error_at_once_and_free_again_after_drop() {
    run(async {
        let (first, _events) = publisher(Limits::default());
        let at = first.local_endpoint().clone();
        let (teller, _events) = Teller::new();
        let again = Publisher::bind(&at, Limits::default(), teller.clone());
        let error = again.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot listen on {at}: "))
        );
        drop(first);
        Publisher::bind(&at, Limits::default(), teller).expect("the port is free");
    });
}

/// Runs `out_of_files` in a process whose limit it may lower.
#[test]
fn without_file_descriptors_accepting_rests_and_goes_on() {
    let status = Command::new(std::env::current_exe().expect("this program's path"))
        .args(["--exact", "libzmq::out_of_files", "--ignored"])
        .stdout(Stdio::null())
        .status()
        .expect("start this program");
    assert!(status.success());
}

#[test]
#[ignore = "run by without_file_descriptors_accepting_rests_and_goes_on"]
fn out_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    run(async {
        let (router, mut events) = router(Limits::default());
        let at = address(router.local_endpoint());
        // The clients' ends belong to this process, too: they are there before the limit is.
        let mut clients: Vec<_> = (0..20)
            .map(|_| tokio::net::TcpSocket::new_v4().expect("make a socket"))
            .collect();
        let limit = Rlimit {
            current: Some(clients.len() as u64 + 20),
            ..getrlimit(Resource::Nofile)
        };
        setrlimit(Resource::Nofile, limit).expect("lower the limit");
        let mut streams = Vec::new();
        let begin = Instant::now();
        for socket in clients.drain(..) {
            let mut stream = socket.connect(at).await.expect("the system accepts");
            let greeting = greeting("DEALER");
            stream.write_all(&greeting).await.expect("write");
            streams.push(stream);
        }
        let mut joined = 0;
        let mut failed = 0;
        // It rests instead of spinning: ten failures take their time.
        while failed < 10 {
            match events.next().await {
                Told::Joined(..) => joined += 1,
                Told::Refused(why) => {
                    assert!(why.contains("cannot accept a connection"), "{why}");
                    failed += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(begin.elapsed() > Duration::from_millis(300));
        assert!((1..20).contains(&joined), "{joined}");
        let waiting = streams.split_off(joined);
        drop(streams);
        let mut rest = 0;
        while rest < waiting.len() {
            match events.next().await {
                Told::Joined(..) => rest += 1,
                Told::Refused(_) | Told::Left(..) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}
