//! Addresses that are in use, stale, and free again.

use super::*;

#[test]
fn unix_sockets_are_served_replaced_when_stale_and_removed() {
    run(async {
        let folder = tempfile::tempdir().expect("make a folder");
        let at = unix_endpoint(&folder);
        let path = folder.path().join("socket");
        let bind = || {
            let (forwarder, events) = Forwarder::new();
            Router::bind(&at, SocketLimits::default(), forwarder).map(|router| (router, events))
        };
        // A stale socket file, on which nobody listens.
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        assert!(path.exists());
        let (router, mut events) = bind().expect("a stale file is replaced");
        let error = bind().err().expect("it is alive").to_string();
        assert!(error.contains("cannot listen on ipc://"), "{error}");
        // The failed bind has connected to it, to see whether it is alive.
        events.refused().await;

        let mut zmq = Libzmq::start().await;
        zmq.connect("dealer", "DEALER", &at, json!({})).await;
        let (peer, _) = events.joined().await;
        router.send(&peer, message(&[b"hi"])).expect("it is there");
        assert_eq!(zmq.recv("dealer").await, hex(&[b"hi"]));
        drop(router);
        assert!(!path.exists());
        // The address is free immediately.
        let (router, _events) = bind().expect("the address is free");
        // Dropping must not remove a successor's file.
        std::fs::remove_file(&path).expect("remove the file");
        let successor = std::os::unix::net::UnixListener::bind(&path).expect("bind");
        drop(router);
        assert!(path.exists());
        drop(successor);
        // A file that is not a socket is left alone.
        std::fs::remove_file(&path).expect("remove the file");
        std::fs::write(&path, "mine").expect("write a file");
        assert!(bind().is_err());
        assert_eq!(std::fs::read(&path).expect("read it"), b"mine");
    });
}

#[test]
fn a_port_in_use_is_an_error_at_once_and_free_again_after_drop() {
    run(async {
        let (first, _events) = publisher(SocketLimits::default());
        let at = first.local_endpoint().clone();
        let (forwarder, _events) = Forwarder::new();
        let again = Publisher::bind(&at, SocketLimits::default(), None, forwarder.clone());
        let error = again.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot listen on {at}: "))
        );
        drop(first);
        Publisher::bind(&at, SocketLimits::default(), None, forwarder).expect("the port is free");
    });
}
