//! Our own sockets with each other: handlers that act on the socket that calls them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

use bytes::Bytes;
use nb::socket::{DialRole, Fault, Left, Limits, Message, PeerId, PeerInfo, Router, ServerHandler};

use crate::socket_events::{any_port, dialer, message, run};

/// Does what the first frame of each message says, to the router that it came from.
#[derive(Default)]
struct Obedient {
    router: RefCell<Option<Router>>,
    left: Cell<usize>,
    told: RefCell<Vec<Message>>,
}

impl ServerHandler for Obedient {
    fn joined(&self, peer: &PeerId, _: &PeerInfo) {
        let router = self.router.borrow();
        let router = router.as_ref().expect("it is bound");
        router
            .send(peer, message(&[b"welcome"]))
            .expect("it is there");
    }

    fn message(&self, peer: &PeerId, message: Message) {
        self.told.borrow_mut().push(message.clone());
        if message[0] == "drop" {
            return drop(self.router.take());
        }
        let router = self.router.borrow();
        let router = router.as_ref().expect("it is bound");
        match &*message[0] {
            b"echo" => router.send(peer, message).expect("it is there"),
            b"leave" => router.disconnect(peer, "it asked for it"),
            b"pause" => {
                router.pause(peer);
                router.send(peer, message).expect("it is there");
            }
            other => panic!("{other:?}"),
        }
    }

    fn left(&self, peer: &PeerId, why: &Left) {
        assert_eq!(why.fault(), Fault::Us);
        let router = self.router.borrow();
        let router = router.as_ref().expect("it is bound");
        router.send(peer, Vec::new()).expect_err("it is gone");
        self.left.set(self.left.get() + 1);
    }
}

fn obedient() -> Rc<Obedient> {
    let obedient = Rc::new(Obedient::default());
    let router = Router::bind(&any_port(), Limits::default(), obedient.clone()).expect("bind");
    obedient.router.replace(Some(router));
    obedient
}

fn endpoint(obedient: &Obedient) -> nb::wire::Endpoint {
    let router = obedient.router.borrow();
    let router = router.as_ref().expect("it is bound");
    router.local_endpoint().clone()
}

#[test]
fn a_handler_may_call_the_socket_that_calls_it() {
    run(async {
        let obedient = obedient();
        let (dialer, mut events) = dialer(endpoint(&obedient), DialRole::Dealer, &[]);
        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        // All of them are in one read: what follows `leave` is not delivered any more.
        for word in [&b"echo"[..], b"leave", b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        events.down_after(&[b"echo"]).await;
        assert_eq!(obedient.left.get(), 1);
        assert_eq!(obedient.told.borrow().len(), 2);

        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        for word in [&b"pause"[..], b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        assert_eq!(events.received().await, message(&[b"pause"]));
        // What came with it waits.
        assert_eq!(obedient.told.borrow().len(), 3);
        if let Some(router) = &*obedient.router.borrow() {
            router.resume(&PeerId::announced(Bytes::from_static(b"dialer")));
        }
        assert_eq!(events.received().await, message(&[b"echo"]));

        for word in [&b"drop"[..], b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        events.down().await;
        assert_eq!(obedient.told.borrow().len(), 5);
        assert_eq!(obedient.left.get(), 1, "the owner need not be told");
    });
}

#[test]
fn a_handler_that_panics_loses_one_connection() {
    run(async {
        let obedient = obedient();
        let (dialer, mut events) = dialer(endpoint(&obedient), DialRole::Dealer, &[]);
        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        dialer.send(message(&[b"boom"])).expect("there is room");
        events.down().await;
        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        assert_eq!(obedient.left.get(), 1);
        dialer.send(message(&[b"echo"])).expect("there is room");
        assert_eq!(events.received().await, message(&[b"echo"]));
    });
}

#[test]
fn nothing_keeps_a_dropped_sockets_handler_alive() {
    run(async {
        let obedient = obedient();
        let (dialer, mut events) = dialer(endpoint(&obedient), DialRole::Dealer, &[]);
        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        let weak: Weak<Obedient> = Rc::downgrade(&obedient);
        drop(obedient.router.take());
        drop(obedient);
        events.down().await;
        assert!(weak.upgrade().is_none());
        drop(dialer);
    });
}
