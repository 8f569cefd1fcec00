//! `socket` against the `zeromq` crate, a third implementation of ZMTP.

use bytes::Bytes;
use nb::socket::{DialRole, Message, SocketLimits};
use nb::wire::Endpoint;
use zeromq::prelude::*;
use zeromq::util::PeerIdentity;
use zeromq::{
    DealerSocket, PubSocket, RepSocket, ReqSocket, RouterSocket, SocketOptions, SubSocket,
    XPubSocket, ZmqMessage,
};

use crate::socket_events::{any_port, dialer, message, publisher, router, run, soon};

fn zmq(frames: &[&[u8]]) -> ZmqMessage {
    message(frames).try_into().expect("it has frames")
}

async fn recv(socket: &mut impl SocketRecv) -> Message {
    let received = soon("a message", socket.recv()).await;
    received.expect("the socket lives").into_vec()
}

fn folder() -> (tempfile::TempDir, Endpoint) {
    let folder = tempfile::tempdir().expect("make a folder");
    let endpoint = Endpoint::Unix(folder.path().join("socket"));
    (folder, endpoint)
}

/// Binds a socket of the crate; returns its endpoint.
async fn bind(socket: &mut impl Socket, at: &Endpoint) -> Endpoint {
    let bound = socket.bind(&at.to_string()).await.expect("bind");
    match bound {
        zeromq::Endpoint::Tcp(host, port) => {
            Endpoint::Tcp(format!("{host}:{port}").parse().expect("an address"))
        }
        zeromq::Endpoint::Ipc(path) => Endpoint::Unix(path.expect("it has a path")),
        other => panic!("{other:?}"),
    }
}

#[test]
fn its_dealer_talks_with_our_router() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
        let mut options = SocketOptions::default();
        options.peer_identity(PeerIdentity::try_from(b"anna".to_vec()).expect("a short name"));
        let mut anna = DealerSocket::with_options(options);
        let mut nobody = DealerSocket::new();
        for (socket, identity) in [(&mut anna, &b"anna"[..]), (&mut nobody, b"")] {
            let at = router.local_endpoint().to_string();
            soon("a connection", socket.connect(&at))
                .await
                .expect("connect");
            let (peer, info) = events.joined().await;
            assert_eq!(peer.is_announced(), !info.identity.is_empty());
            if !identity.is_empty() {
                assert_eq!(info.identity, identity);
            }
            let long = vec![3; 5_000_000];
            let frames: &[&[u8]] = &[b"", b"hello", &long];
            socket.send(zmq(frames)).await.expect("send");
            let (from, came) = events.message().await;
            assert_eq!((&from, &came), (&peer, &message(frames)));
            router.send(&peer, came).expect("it is there");
            assert_eq!(recv(socket).await, message(frames));
        }
    });
}

#[test]
fn its_req_asks_our_router() {
    run(async {
        let (router, mut events) = router(SocketLimits::default());
        let mut req = ReqSocket::new();
        let at = router.local_endpoint().to_string();
        soon("a connection", req.connect(&at))
            .await
            .expect("connect");
        let (peer, info) = events.joined().await;
        assert_eq!(info.socket_type, "REQ");
        for _ in 0..3 {
            req.send(zmq(&[b"ping"])).await.expect("send");
            let (_, came) = events.message().await;
            assert_eq!(came, message(&[b"", b"ping"]));
            router.send(&peer, came).expect("it is there");
            assert_eq!(recv(&mut req).await, message(&[b"ping"]));
        }
    });
}

#[test]
fn its_sub_listens_to_our_publisher() {
    run(async {
        let (publisher, mut events) = publisher(SocketLimits::default());
        let mut sub = SubSocket::new();
        let at = publisher.local_endpoint().to_string();
        soon("a connection", sub.connect(&at))
            .await
            .expect("connect");
        events.joined().await;
        for topic in ["a", "b"] {
            sub.subscribe(topic).await.expect("subscribe");
            let subscription = [b"\x01", topic.as_bytes()].concat();
            assert_eq!(events.message().await.1, message(&[&subscription]));
        }
        sub.unsubscribe("a").await.expect("unsubscribe");
        assert_eq!(events.message().await.1, message(&[b"\x00a"]));
        assert_eq!(publisher.send(&message(&[b"a", b"no"])), 0);
        assert_eq!(publisher.send(&message(&[b"bc", b"yes"])), 1);
        assert_eq!(recv(&mut sub).await, message(&[b"bc", b"yes"]));
    });
}

#[test]
fn our_dealer_talks_with_its_router_and_rep() {
    run(async {
        let (_folder, path) = folder();
        for at in [any_port(), path] {
            let mut router = RouterSocket::new();
            let at = bind(&mut router, &at).await;
            let (dialer, mut events) = dialer(at, DialRole::Dealer, &[]);
            events.up().await;
            let long = vec![3; 5_000_000];
            let frames: &[&[u8]] = &[b"", b"hello", &long];
            dialer.send(message(frames)).expect("there is room");
            let came = recv(&mut router).await;
            assert_eq!(came[0], "dialer");
            assert_eq!(came[1..], message(frames));
            let back = ZmqMessage::try_from(came).expect("it has frames");
            router.send(back).await.expect("send");
            assert_eq!(events.received().await, message(frames));
        }
        let mut rep = RepSocket::new();
        let at = bind(&mut rep, &any_port()).await;
        let (dialer, mut events) = dialer(at, DialRole::Req, &[]);
        events.up().await;
        dialer
            .send(message(&[b"", b"ping"]))
            .expect("there is room");
        assert_eq!(recv(&mut rep).await, message(&[b"ping"]));
        rep.send(zmq(&[b"pong"])).await.expect("send");
        assert_eq!(events.received().await, message(&[b"", b"pong"]));
    });
}

#[test]
fn our_sub_listens_to_its_xpub_and_pub() {
    run(async {
        let mut xpub = XPubSocket::new();
        let at = bind(&mut xpub, &any_port()).await;
        let (_dialer, mut events) = dialer(at, DialRole::Sub, &["a"]);
        events.up().await;
        assert_eq!(recv(&mut xpub).await, message(&[b"\x01a"]));
        xpub.send(zmq(&[b"b", b"no"])).await.expect("send");
        xpub.send(zmq(&[b"ab", b"yes"])).await.expect("send");
        assert_eq!(events.received().await, message(&[b"ab", b"yes"]));

        let mut publisher = PubSocket::new();
        let at = bind(&mut publisher, &any_port()).await;
        let (_dialer, mut events) = dialer(at, DialRole::Sub, &[""]);
        events.up().await;
        // A PUB does not report when a subscription has arrived, so sending is repeated until it has.
        let received = loop {
            publisher.send(zmq(&[b"any"])).await.expect("send");
            if let Some(received) = events.received_already() {
                break received;
            }
            tokio::task::yield_now().await;
        };
        assert_eq!(received, [Bytes::from_static(b"any")]);
    });
}
