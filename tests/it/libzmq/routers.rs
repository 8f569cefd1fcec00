//! Our ROUTER and its peers.

use super::*;

#[test]
fn dealers_with_and_without_an_identity_talk_with_a_router() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
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
        assert_eq!(unsent.reason, UnsentReason::NoSuchPeer);
        assert_eq!(unsent.message, message(&[b"late"]));
    });
}

#[test]
fn frames_of_50_megabytes_pass_both_ways() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
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
        let (router, mut events) = router(SocketLimits::default());
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
        // The old connection's end is not reported; the next events are the new one's message and end.
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
        let (router, mut events) = router(SocketLimits::default());
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
fn a_router_says_when_a_peer_is_full() {
    run(async {
        let (router, mut events) = router(SocketLimits {
            outbox_bytes: 1 << 20,
            ..SocketLimits::default()
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
        assert_eq!(unsent.reason, UnsentReason::Full);
        assert_eq!(unsent.message, [part]);
        assert!((900_000..1 << 20).contains(&router.queued_bytes(&peer)));
        router.disconnect(&peer, "it does not read its replies");
        let (left, why) = events.left().await;
        assert_eq!(left, peer);
        assert_eq!(why, "it was disconnected: it does not read its replies");
        is_closed(stream).await;
    });
}

#[test]
fn a_paused_peer_has_to_wait_and_others_do_not() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
        let mut paused_stream = stalled(router.local_endpoint(), "DEALER", "").await;
        let (paused, _) = events.joined().await;
        router.set_paused(&paused, true);
        let mut zmq = Libzmq::start().await;
        zmq.connect("other", "DEALER", router.local_endpoint(), json!({}))
            .await;
        let (other, _) = events.joined().await;

        // More than the system buffers.
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
        router.set_paused(&paused, false);
        for _ in 0..100 {
            let (from, came) = events.message().await;
            assert_eq!((from, came[0].len()), (paused.clone(), 1_000_000));
        }
        soon("the last write", writing).await.expect("it ends");
    });
}

#[test]
fn what_is_queued_is_handed_over_with_the_identity() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
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
        // The first message is the one that the old connection had not received completely.
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
fn what_a_peer_sent_before_it_broke_off_is_received() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
        let stream = stalled(router.local_endpoint(), "DEALER", "").await;
        let (peer, _) = events.joined().await;
        // Because of unread bytes, closing resets the connection.
        router
            .send(&peer, message(&[b"unread"]))
            .expect("it is there");
        let stream = stream.into_std().expect("leave the runtime");
        stream.set_nonblocking(false).expect("set it blocking");
        soon("the message", async {
            let mut bytes = [0; 200];
            loop {
                let length = stream.peek(&mut bytes).expect("peek");
                if bytes[..length].ends_with(b"unread") {
                    break;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        // All of this happens before the router runs again.
        let last_words = b"\x00\x04last".repeat(1000);
        (&stream).write_all(&last_words).expect("write");
        drop(stream);
        router
            .send(&peer, message(&[b"too late"]))
            .expect("it is not yet known");
        for _ in 0..1000 {
            assert_eq!(events.message().await.1, message(&[b"last"]));
        }
        assert_eq!(events.left().await.0, peer);
    });
}
