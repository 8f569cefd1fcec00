//! Our XPUB and its subscribers.

use super::*;

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
