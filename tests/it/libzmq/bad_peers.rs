//! Peers that misbehave, and more peers than allowed.

use super::*;

#[test]
fn bad_peers_are_refused_with_a_reason_and_others_are_not_disturbed() {
    run(async {
        let (router, mut events) = router(SocketLimits {
            handshake: Duration::from_millis(300),
            ..SocketLimits::default()
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
            let (left, why) = events.left().await;
            assert_eq!(left, peer);
            assert!(why.contains(wanted), "{why:?} instead of {wanted:?}");
            is_closed(stream).await;
        }
        router
            .send(&good, message(&[b"all is well"]))
            .expect("it is there");
        assert_eq!(zmq.recv("good").await, hex(&[b"all is well"]));
    });
}

#[test]
fn messages_that_peers_without_the_key_have_begun_are_bounded_together() {
    const LONGEST: usize = 1 << 20;
    run(async {
        let limits = SocketLimits {
            max_unauthenticated_message: LONGEST,
            max_unauthenticated_bytes: 2 * LONGEST,
            ..SocketLimits::default()
        };
        let (router, mut events) = router(limits);
        let begun = |name, length: usize, sent: usize| {
            let header = [&[2][..], &(length as u64).to_be_bytes()].concat();
            [greeting_of("DEALER", name), header, vec![0; sent]].concat()
        };
        let at = router.local_endpoint();
        let mut streams = Vec::new();
        for name in ["a", "b"] {
            streams.push(raw(at, &begun(name, LONGEST, LONGEST - 1)).await);
            events.joined().await;
        }
        // The newcomer has sent less than the others.
        let mut short = raw(at, &begun("c", LONGEST / 2, LONGEST / 2 - 1)).await;
        events.joined().await;
        let (left, why) = events.left().await;
        assert!(why.contains("took more than 2097152 bytes"), "{why}");
        assert!(["a", "b"].contains(&left.to_string().as_str()), "{left}");
        short.write_all(&[0]).await.expect("write");
        let (peer, came) = events.message().await;
        assert_eq!(
            (peer.to_string().as_str(), came[0].len()),
            ("c", LONGEST / 2)
        );

        let (publisher, mut events) = publisher(limits);
        let header = [&[2][..], &(LONGEST as u64 + 1).to_be_bytes()].concat();
        let subscriber = [greeting("SUB"), header].concat();
        let _subscriber = raw(publisher.local_endpoint(), &subscriber).await;
        events.joined().await;
        let (_, why) = events.left().await;
        assert!(why.contains("1048577 bytes"), "{why}");
    });
}

#[test]
fn a_peer_without_the_key_completes_a_message_in_time() {
    run(async {
        let (router, mut events) = router(SocketLimits {
            unauthenticated_message: Duration::from_millis(1),
            ..SocketLimits::default()
        });
        let at = router.local_endpoint();
        let _silent = raw(at, &greeting_of("DEALER", "silent")).await;
        let (silent, _) = events.joined().await;
        let mut known = raw(at, &greeting_of("DEALER", "known")).await;
        let (peer, _) = events.joined().await;
        router.authenticate(&peer);
        known.write_all(b"\x00\x02a").await.expect("write");
        let _slow = raw(
            at,
            &[&greeting_of("DEALER", "slow"), &b"\x00\x02a"[..]].concat(),
        )
        .await;
        let (slow, _) = events.joined().await;
        let (left, why) = events.left().await;
        assert_eq!(left, slow);
        assert!(why.contains("within 1ms"), "{why}");
        known.write_all(b"b").await.expect("write");
        assert_eq!(events.message().await, (peer, message(&[b"ab"])));
        router
            .send(&silent, message(&[b"here"]))
            .expect("it is there");
    });
}

#[test]
fn pings_of_libzmq_are_answered() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
        let mut zmq = Libzmq::start().await;
        let beat = json!({"HEARTBEAT_IVL": 50, "HEARTBEAT_TIMEOUT": 200});
        zmq.connect("good", "DEALER", router.local_endpoint(), beat.clone())
            .await;
        let (good, _) = events.joined().await;
        let at = bind(&mut zmq, "beating", "ROUTER", &any_port(), beat.clone()).await;
        let (dialer, mut dialed) = dialer(at, DialRole::Dealer, &[]);
        dialed.up().await;

        // The measure of time: libzmq drops a peer that does not answer.
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
fn there_are_at_most_as_many_peers_as_allowed() {
    run(async {
        let (router, mut events) = router(SocketLimits {
            max_peers: 2,
            ..SocketLimits::default()
        });
        let mut zmq = Libzmq::start().await;
        for name in ["a", "b"] {
            zmq.connect(name, "DEALER", router.local_endpoint(), json!({}))
                .await;
            let (peer, _) = events.joined().await;
            router.authenticate(&peer);
        }
        zmq.connect("c", "DEALER", router.local_endpoint(), json!({}))
            .await;
        assert_eq!(events.refused().await, "there are 2 peers already");
        zmq.ask(json!({"do": "send", "name": "a", "frames": hex(&[b"here"])}))
            .await;
        loop {
            match events.next().await {
                Event::Message(_, came) => break assert_eq!(came, message(&[b"here"])),
                // libzmq retries.
                Event::Refused(_) => {}
                other => panic!("{other:?}"),
            }
        }
        zmq.ask(json!({"do": "close", "name": "b"})).await;
        let mut left = false;
        loop {
            match events.next().await {
                Event::DisconnectReason(..) => left = true,
                Event::Joined(..) => break,
                Event::Refused(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(left);
    });
}

#[test]
fn a_peer_that_proves_nothing_gives_way_to_a_new_one() {
    run(async {
        let limits = SocketLimits {
            max_peers: 3,
            ..SocketLimits::default()
        };
        let (router, mut events) = router(limits);
        let at = router.local_endpoint();
        let known = raw(at, &greeting_of("DEALER", "known")).await;
        let (peer, _) = events.joined().await;
        router.authenticate(&peer);
        let mut unproven = std::collections::VecDeque::new();
        unproven.push_back(raw(at, b"").await);
        for name in ["a", "b", "c", "d"] {
            unproven.push_back(raw(at, &greeting_of("DEALER", name)).await);
            // The first has no name yet.
            while unproven.len() > 2 {
                let (why, left) = match events.next().await {
                    Event::Refused(why) => (why, None),
                    Event::DisconnectReason(peer, why) => (why, Some(peer)),
                    Event::Joined(..) => continue,
                    other => panic!("{other:?}"),
                };
                assert!(why.contains("it was the oldest"), "{why}");
                assert_ne!(left, Some(peer.clone()));
                is_closed(unproven.pop_front().expect("there is one")).await;
            }
        }
        router
            .send(&peer, message(&[b"still here"]))
            .expect("it is connected");
        drop(known);

        let (publisher, mut events) = publisher(limits);
        let at = publisher.local_endpoint();
        let subscriber = [&greeting("SUB"), &b"\x00\x01\x01"[..]].concat();
        let first = raw(at, &subscriber).await;
        events.joined().await;
        events.message().await;
        let idle = raw(at, &greeting("SUB")).await;
        events.joined().await;
        let _second = raw(at, &subscriber).await;
        events.joined().await;
        events.message().await;
        let _third = raw(at, &subscriber).await;
        is_closed(idle).await;
        while !matches!(events.next().await, Event::Message(..)) {}
        // No peer gives way now.
        is_closed(raw(at, &subscriber).await).await;
        assert_eq!(publisher.send(&message(&[b"on"])), 3);
        drop(first);
    });
}

#[test]
fn a_peer_that_sends_pings_and_reads_nothing_gets_few_answers() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let (forwarder, mut events) = Forwarder::new();
        let at = unix_endpoint(&folder);
        let router = Router::bind(&at, SocketLimits::default(), forwarder).expect("bind");
        let path = folder.path().join("socket");
        let mut peer = tokio::net::UnixStream::connect(path)
            .await
            .expect("connect");
        let greeting = greeting_of("DEALER", "pinging");
        peer.write_all(&greeting).await.expect("write");
        let (id, _) = events.joined().await;
        // The system's buffers hold some hundred kilobytes of answers.
        let pings = b"\x04\x0b\x04PING\x00\x00here".repeat(1 << 20);
        peer.write_all(&pings).await.expect("write");
        peer.write_all(b"\x00\x03end").await.expect("write");
        assert_eq!(events.message().await.1, message(&[b"end"]));
        let queued = router.queued_bytes(&id);
        assert!(queued < 256 << 10, "{queued} bytes");
    });
}

/// Runs `out_of_files` in a process whose limit it may lower.
#[test]
fn without_file_descriptors_accepting_rests_and_goes_on() {
    let status = Command::new(std::env::current_exe().expect("this program's path"))
        .args(["--exact", "libzmq::bad_peers::out_of_files", "--ignored"])
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
        let (router, mut events) = router(SocketLimits::default());
        let at = address(router.local_endpoint());
        // The clients' sockets belong to this process, too, and are made before the limit is set.
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
        // Accepting pauses instead of spinning: ten failures take some time.
        while failed < 10 {
            match events.next().await {
                Event::Joined(..) => joined += 1,
                Event::Refused(why) => {
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
                Event::Joined(..) => rest += 1,
                Event::Refused(_) | Event::DisconnectReason(..) => {}
                other => panic!("{other:?}"),
            }
        }
    });
}
