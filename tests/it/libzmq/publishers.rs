//! Our XPUB and its subscribers.

use super::*;

#[test]
fn subscribers_get_what_they_asked_for() {
    run(async {
        let (publisher, mut events) = publisher(SocketLimits::default());
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

#[test]
fn a_subscriber_that_stalls_is_cut_alone_at_its_budget() {
    run(async {
        let (publisher, mut events) = publisher(SocketLimits {
            outbox_bytes: 4 << 20,
            ..SocketLimits::default()
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
        let (left, why) = events.left().await;
        assert_eq!(left, idle);
        assert!(why.contains("does not read"), "{why}");
        // Some of the sent messages had already been given to the system.
        let unread = why.split(' ').find_map(|word| word.parse::<usize>().ok());
        let unread = unread.expect("it says how many messages");
        assert!((2..=sent / part.len() + 1).contains(&unread), "{why}");
        assert_eq!(publisher.send(&vec![part]), 1);
        assert_eq!(zmq.recv("quick").await, wanted);
        is_closed(stalled_writer).await;
    });
}

/// A subscriber that does not read, and the contents of its unread messages.
struct Behind {
    stream: tokio::net::TcpStream,
    sent: Vec<Bytes>,
}

/// Sends to a subscriber that does not read, until its memory is used up and `more` after that.
async fn behind(publisher: &Publisher, events: &mut Events, more: usize) -> Behind {
    let mut stream = stalled(publisher.local_endpoint(), "SUB", "").await;
    events.joined().await;
    stream
        .write_all(b"\x00\x01\x01")
        .await
        .expect("subscribe to all");
    events.message().await;
    // A PING with TTL 0 and context "here": its answer comes between whole messages.
    stream
        .write_all(b"\x04\x0b\x04PING\x00\x00here")
        .await
        .expect("ask for a sign of life");
    let mut sent = Vec::new();
    for number in 0..more {
        let len = if number % 2 == 0 { 100_000 } else { 20 };
        let mut content = format!("{number} ").into_bytes();
        content.resize(len, b'.');
        sent.push(Bytes::from(content));
        assert_eq!(publisher.send(&vec![sent[number].clone()]), 1, "{number}");
        tokio::task::yield_now().await;
    }
    Behind { stream, sent }
}

impl Behind {
    /// Reads the next frame; returns whether it is a command, and its body.
    async fn frame(&mut self) -> (bool, Vec<u8>) {
        let flags = self.stream.read_u8().await.expect("flags");
        let len = match flags & 2 {
            0 => u64::from(self.stream.read_u8().await.expect("a short length")),
            _ => self.stream.read_u64().await.expect("a long length"),
        };
        let mut body = vec![0; usize::try_from(len).expect("a length")];
        self.stream.read_exact(&mut body).await.expect("a body");
        (flags & 4 != 0, body)
    }
}

#[test]
fn what_a_stalled_subscriber_has_not_read_waits_on_disk_and_comes_in_order() {
    run(async {
        let (publisher, mut events) = spilling_publisher(64 << 20);
        let mut behind = behind(&publisher, &mut events, 600).await;
        let mut greeting = [0; 64];
        soon("the greeting", behind.stream.read_exact(&mut greeting))
            .await
            .expect("a greeting");
        let (mut got, mut commands) = (Vec::new(), Vec::new());
        while got.len() < behind.sent.len() {
            match soon("a frame", behind.frame()).await {
                (true, command) => commands.push(command),
                (false, body) => got.push(Bytes::from(body)),
            }
        }
        assert!(got == behind.sent, "lost, doubled or out of order");
        assert_eq!(commands.len(), 2, "READY and one PONG");
        assert_eq!(commands[1], b"\x04PONGhere");
        // From here on it is like any other subscriber.
        assert_eq!(publisher.send(&message(&[b"on"])), 1);
        assert_eq!(behind.frame().await, (false, b"on".to_vec()));
    });
}

#[test]
fn what_all_subscribers_have_not_read_has_a_bound_too() {
    run(async {
        // One subscriber may have 8 MiB on disk, all together four times as much.
        let (publisher, mut events) = spilling_publisher(8 << 20);
        let mut subscribers = Vec::new();
        for _ in 0..8 {
            subscribers.push(behind(&publisher, &mut events, 0).await);
        }
        let part = Bytes::from(vec![5; 100_000]);
        let mut most = 0;
        while publisher.send(&vec![part.clone()]) == 8 {
            tokio::task::yield_now().await;
            let backlogs = publisher.backlogs();
            most = backlogs.iter().map(|it| it.spilled_bytes).sum();
            assert!(most < 40 << 20, "it has no bound");
        }
        assert!(most > 24 << 20, "cut after {most} bytes");
        let (_, why) = events.left().await;
        assert!(why.contains("does not read"), "{why}");
    });
}

#[test]
fn what_is_on_disk_has_a_bound_too() {
    run(async {
        let (publisher, mut events) = spilling_publisher(8 << 20);
        let behind = behind(&publisher, &mut events, 10).await;
        let part = Bytes::from(vec![5; 100_000]);
        let mut sent = 0;
        while publisher.send(&vec![part.clone()]) == 1 {
            tokio::task::yield_now().await;
            sent += part.len();
            assert!(sent < 1 << 30, "it is never cut");
        }
        assert!(sent > 8 << 20, "cut after {sent} bytes");
        let (_, why) = events.left().await;
        assert!(why.contains("does not read"), "{why}");
        is_closed(behind.stream).await;
    });
}
