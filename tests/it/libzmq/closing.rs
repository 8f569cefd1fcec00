//! Messages that are queued when a socket closes.

use super::*;

fn in_a_minute() -> Instant {
    Instant::now() + TIMEOUT
}

#[test]
fn closing_writes_what_is_queued() {
    let count = |name: &str| json!({"do": "count", "name": name, "until": hex::encode("end")});
    run(async {
        let mut zmq = Libzmq::start().await;
        for len in [1000, 5000] {
            let (router, mut events) = router(SocketLimits::default());
            zmq.connect("dealer", "DEALER", router.local_endpoint(), json!({}))
                .await;
            let (peer, _) = events.joined().await;
            for message in counting(10_000, len) {
                router.send(&peer, message).expect("there is room");
            }
            assert_eq!(router.close(in_a_minute()).await, 0);
            assert_eq!(zmq.ask(count("dealer")).await, 10_000);

            let (publisher, mut events) = publisher(SocketLimits::default());
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
        let (router, mut events) = router(SocketLimits::default());
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
        let (router, mut events) = router(SocketLimits::default());
        let _half = raw(router.local_endpoint(), &greeting("DEALER")[..30]).await;
        let _stopped = stalled(router.local_endpoint(), "DEALER", "").await;
        events.joined().await;
        let begin = Instant::now();
        assert_eq!(router.close(in_a_minute()).await, 0);
        // Closing does not wait even as long as a handshake may take.
        assert!(begin.elapsed() < SocketLimits::default().handshake);
    });
}
