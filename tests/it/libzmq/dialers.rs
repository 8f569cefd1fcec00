//! Our dialling sockets, with various peers.

use super::*;

#[test]
fn a_dialer_talks_with_a_router_of_libzmq() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let mut zmq = Libzmq::start().await;
        for at in [any_port(), unix_endpoint(&folder)] {
            let at = bind(&mut zmq, "router", "ROUTER", &at, json!({})).await;
            let (dialer, mut events) = dialer(at, DialRole::Dealer, &[]);
            // This is queued while the dialer is not connected.
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
        let (forwarder, _events) = Forwarder::new();
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::new(),
            subscribe: Vec::new(),
        };
        let limits = SocketLimits {
            outbox_bytes: 1000,
            ..SocketLimits::default()
        };
        let dialer = Dialer::connect(at, as_, limits, forwarder);
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
        let (forwarder, mut events) = Forwarder::new();
        let as_ = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let limits = SocketLimits {
            max_message: 1000,
            ..SocketLimits::default()
        };
        let _dialer = Dialer::connect(at, as_, limits, forwarder);
        events.up().await;
        zmq.recv("pub").await;
        for frames in [
            json!(["aa", [30_000, 7], "bb", [20_000, 8]]),
            json!(["cc"]),
            // More than the socket reads of an oversized message.
            json!([[100_000, 9]]),
        ] {
            zmq.ask(json!({"do": "send", "name": "pub", "frames": frames}))
                .await;
        }
        match events.next().await {
            Event::Oversized(begun, bytes) => {
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
        let (forwarder, mut events) = Forwarder::new();
        let as_ = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let limits = SocketLimits {
            handshake: Duration::from_millis(50),
            ..SocketLimits::default()
        };
        let _dialer = Dialer::connect(at, as_, limits, forwarder);
        let (_mute, _) = soon("a dial", listener.accept()).await.expect("accept");
        assert!(matches!(events.next().await, Event::NotReached));
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
fn whoever_was_stopped_by_a_full_outbox_is_told_when_there_is_room() {
    run(async {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("bind");
        let at = Endpoint::Tcp(listener.local_addr().expect("it is bound"));
        let (forwarder, mut events) = Forwarder::new();
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::new(),
            subscribe: Vec::new(),
        };
        let limits = SocketLimits {
            outbox_bytes: 1 << 20,
            ..SocketLimits::default()
        };
        let dialer = Dialer::connect(at, as_, limits, forwarder);
        let (mut stream, _) = soon("a dial", listener.accept()).await.expect("accept");
        stream
            .write_all(&greeting("ROUTER"))
            .await
            .expect("write the greeting");
        events.up().await;
        let part = message(&[&[0; 100_000]]);
        while dialer.send(part.clone()).is_ok() {
            tokio::task::yield_now().await;
        }
        assert!(dialer.queued_bytes() > limits.outbox_bytes / 2);
        let reading = tokio::task::spawn_local(async move {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).await.expect("read");
        });
        soon("room", dialer.room()).await;
        assert!(dialer.queued_bytes() <= limits.outbox_bytes / 2);
        drop(dialer);
        soon("the end", reading).await.expect("it ends");
    });
}

#[test]
fn an_identity_that_dials_again_reaches_a_busy_router_that_hands_over() {
    run(async {
        let mut zmq = Libzmq::start().await;
        // As ipykernel does. Without it libzmq completes the handshake but ignores the second connection
        // until all messages of the first one have been received.
        let handover = json!({"ROUTER_HANDOVER": 1});
        let at = bind(&mut zmq, "busy", "ROUTER", &any_port(), handover).await;
        for word in [b"one", b"two"] {
            let (dialer, mut events) = dialer(at.clone(), DialRole::Dealer, &[]);
            events.up().await;
            dialer.send(message(&[word])).expect("there is room");
            let unsent = dialer.close(Instant::now() + TIMEOUT).await;
            assert_eq!(unsent, Vec::<Message>::new());
        }
        let mut received = Vec::new();
        for _ in 0..2 {
            received.push(zmq.recv("busy").await[1].take());
        }
        assert!(received.contains(&json!(hex::encode("one"))));
        assert!(received.contains(&json!(hex::encode("two"))));
    });
}
