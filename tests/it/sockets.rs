//! Our own sockets with each other, and handlers that act on the socket that calls them.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use bytes::Bytes;
use nb::socket::{
    DeliveryProgress, DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, PeerId,
    PeerInfo, Responsible, Router, ServerHandler, SocketLimits, SpillTo,
};
use tokio::sync::Notify;

use crate::socket_events::{Forwarder, any_port, dialer, message, publisher, router, run, soon};

/// A handler that does what the first frame of each message says to the router that it came from.
#[derive(Default)]
struct Obedient {
    router: RefCell<Option<Router>>,
    left: Cell<usize>,
    received: RefCell<Vec<Message>>,
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
        self.received.borrow_mut().push(message.clone());
        if message[0] == "drop" {
            return drop(self.router.take());
        }
        let router = self.router.borrow();
        let router = router.as_ref().expect("it is bound");
        match &*message[0] {
            b"echo" => router.send(peer, message).expect("it is there"),
            b"leave" => router.disconnect(peer, "it asked for it"),
            b"pause" => {
                router.set_paused(peer, true);
                router.send(peer, message).expect("it is there");
            }
            other => panic!("{other:?}"),
        }
    }

    fn left(&self, peer: &PeerId, why: &DisconnectReason) {
        assert_eq!(why.responsible(), Responsible::ThisProcess);
        let router = self.router.borrow();
        let router = router.as_ref().expect("it is bound");
        router.send(peer, Vec::new()).expect_err("it is gone");
        self.left.set(self.left.get() + 1);
    }
}

fn obedient() -> Rc<Obedient> {
    let obedient = Rc::new(Obedient::default());
    let router =
        Router::bind(&any_port(), SocketLimits::default(), obedient.clone()).expect("bind");
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
        // One read brings all of them; what follows `leave` is no longer delivered.
        for word in [&b"echo"[..], b"leave", b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        events.down_after(&[b"echo"]).await;
        assert_eq!(obedient.left.get(), 1);
        assert_eq!(obedient.received.borrow().len(), 2);

        events.up().await;
        assert_eq!(events.received().await, message(&[b"welcome"]));
        for word in [&b"pause"[..], b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        assert_eq!(events.received().await, message(&[b"pause"]));
        // The message that came with it waits.
        assert_eq!(obedient.received.borrow().len(), 3);
        if let Some(router) = &*obedient.router.borrow() {
            router.set_paused(&PeerId::announced(Bytes::from_static(b"dialer")), false);
        }
        assert_eq!(events.received().await, message(&[b"echo"]));

        for word in [&b"drop"[..], b"echo"] {
            dialer.send(message(&[word])).expect("there is room");
        }
        events.down().await;
        assert_eq!(obedient.received.borrow().len(), 5);
        assert_eq!(obedient.left.get(), 1, "the owner needs no event");
    });
}

#[test]
fn a_peer_that_announces_a_reserved_identity_counts_as_one_without() {
    run(async {
        let (router, mut peers) = router(SocketLimits::default());
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::from_static(&[0; 9]),
            subscribe: Vec::new(),
        };
        let endpoint = router.local_endpoint().clone();
        let (forwarder, mut events) = Forwarder::new();
        let _dialer = Dialer::connect(endpoint, as_, SocketLimits::default(), forwarder);
        events.up().await;
        let (peer, info) = peers.joined().await;
        assert_eq!(info.identity, [0; 9][..]);
        assert!(!peer.is_announced());
        assert_ne!(peer.bytes(), &info.identity);
        router
            .send(&peer, message(&[b"welcome"]))
            .expect("it is there");
        assert_eq!(events.received().await, message(&[b"welcome"]));
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

/// A handler that takes time for each message, and records how much was read before it.
#[derive(Default)]
struct Worker {
    dialer: RefCell<Option<Dialer>>,
    got: Cell<u8>,
    most: Cell<usize>,
    /// The number of messages after which the dialer is paused, if it is.
    pauses_after: Option<u8>,
    /// How much may wait on disk.
    spill: Option<SpillTo>,
    done: Notify,
}

const LARGE: usize = 100_000;
const MANY: u8 = 200;

impl DialHandler for Worker {
    fn up(&self) {}

    fn message(&self, message: Message) {
        assert_eq!(message[1][0], self.got.get(), "in order");
        self.got.set(self.got.get() + 1);
        let ahead = self.dialer.borrow().as_ref().map_or(0, Dialer::ahead_bytes);
        self.most.set(self.most.get().max(ahead));
        // The time that the work takes.
        std::thread::sleep(Duration::from_millis(1));
        if self.pauses_after == Some(self.got.get())
            && let Some(dialer) = &*self.dialer.borrow()
        {
            dialer.set_paused(true);
        }
        if self.got.get() == MANY {
            self.done.notify_one();
        }
    }

    fn down(&self, why: &DisconnectReason, _: Vec<Message>) {
        panic!("{why}");
    }

    fn refused(&self, error: &std::io::Error) {
        panic!("{error}");
    }
}

/// Returns how many bytes were read ahead of delivery at most, while another thread sends many large
/// messages at once.
fn most_read_ahead(read_ahead_bytes: usize) -> usize {
    let worker = Rc::new(Worker::default());
    works(&worker, read_ahead_bytes, async {});
    worker.most.get()
}

/// Lets a worker receive many large messages that another thread sends at once, and runs `meanwhile`.
fn works(worker: &Rc<Worker>, read_ahead_bytes: usize, meanwhile: impl Future<Output = ()>) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let publishing = std::thread::spawn(move || {
        run(async {
            let limits = SocketLimits::default();
            let (publisher, mut events) = publisher(limits);
            sender
                .send(publisher.local_endpoint().clone())
                .expect("it waits");
            events.joined().await;
            events.message().await;
            for number in 0..MANY {
                publisher.send(&message(&[b"topic", &vec![number; LARGE]]));
            }
            events.left().await;
        });
    });
    let endpoint = receiver.recv().expect("it is bound");
    run(async {
        let as_ = DialAs {
            socket_type: DialRole::Sub,
            identity: Bytes::new(),
            subscribe: vec![Bytes::new()],
        };
        let limits = SocketLimits {
            read_ahead_bytes,
            ..SocketLimits::default()
        };
        let spill = worker.spill.clone();
        let dialer = Dialer::connect_spilling(endpoint, as_, limits, spill, worker.clone());
        worker.dialer.replace(Some(dialer));
        meanwhile.await;
        soon("the last message", worker.done.notified()).await;
        worker.dialer.take();
    });
    publishing.join().expect("it ends");
}

#[test]
fn a_paused_dialer_reads_ahead_and_delivers_nothing() {
    let first = 10;
    let worker = Rc::new(Worker {
        pauses_after: Some(first),
        ..Worker::default()
    });
    let dialer = || worker.dialer.borrow();
    let ahead = || dialer().as_ref().map_or(0, Dialer::ahead_bytes);
    works(&worker, 64 << 20, async {
        let all_read = async {
            let rest = usize::from(MANY - first) * LARGE;
            while worker.got.get() < first || ahead() < rest {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon("the rest is read", all_read).await;
        assert_eq!(worker.got.get(), first);
        if let Some(dialer) = &*dialer() {
            dialer.set_paused(false);
        }
    });
}

/// Lets a dialer read everything while it is paused, of which 1 MiB may be in memory. Its peer is gone then.
fn reads_ahead_onto_disk(spill_bytes: u64) {
    let first = 10;
    let worker = Rc::new(Worker {
        pauses_after: Some(first),
        spill: Some(SpillTo {
            folder: std::env::temp_dir(),
            bytes: spill_bytes,
        }),
        ..Worker::default()
    });
    let dialer = || worker.dialer.borrow();
    // The decoder may hold a part of a message, and a read buffer.
    let rest = usize::from(MANY - first - 2) * LARGE;
    let least = rest.min(usize::try_from(spill_bytes).expect("it fits"));
    works(&worker, 1 << 20, async {
        let all_read = async {
            let ahead = || dialer().as_ref().map_or(0, Dialer::ahead_bytes);
            while worker.got.get() < first || ahead() < least {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon("the rest is read", all_read).await;
        assert_eq!(worker.got.get(), first);
        if let Some(dialer) = &*dialer() {
            dialer.set_paused(false);
        }
    });
}

#[test]
fn what_is_too_much_for_memory_waits_on_disk_and_is_delivered_in_order() {
    reads_ahead_onto_disk(1 << 30);
}

#[test]
fn a_dialer_reads_no_further_ahead_than_memory_and_disk_allow() {
    reads_ahead_onto_disk(3 << 20);
}

#[test]
fn a_dialer_reads_all_that_has_come_before_it_delivers() {
    let most = most_read_ahead(64 << 20);
    assert!(most > 10 * LARGE * usize::from(MANY) / 20, "{most}");
}

#[test]
fn a_dialer_reads_no_further_ahead_than_it_may() {
    let most = most_read_ahead(1 << 20);
    assert!(most > (1 << 19) && most < (1 << 20) + 2 * LARGE, "{most}");
    assert_eq!(most_read_ahead(0), 0);
}

/// A handler that panics when it is connected first.
struct Startled {
    forwarder: Rc<Forwarder>,
    startled: Cell<bool>,
}

impl DialHandler for Startled {
    fn up(&self) {
        assert!(self.startled.replace(true), "a test's panic");
        DialHandler::up(&*self.forwarder);
    }

    fn message(&self, message: Message) {
        DialHandler::message(&*self.forwarder, message);
    }

    fn down(&self, why: &DisconnectReason, unsent: Vec<Message>) {
        self.forwarder.down(why, unsent);
    }

    fn refused(&self, error: &std::io::Error) {
        DialHandler::refused(&*self.forwarder, error);
    }
}

#[test]
fn a_dialer_dials_on_where_a_handler_panics() {
    run(async {
        let (router, mut peers) = router(SocketLimits::default());
        let (forwarder, mut events) = Forwarder::new();
        let startled = Rc::new(Startled {
            forwarder,
            startled: Cell::new(false),
        });
        let as_ = DialAs {
            socket_type: DialRole::Dealer,
            identity: Bytes::from_static(b"dialer"),
            subscribe: Vec::new(),
        };
        let endpoint = router.local_endpoint().clone();
        let dialer = Dialer::connect(endpoint, as_, SocketLimits::default(), startled);
        dialer.send(message(&[b"early"])).expect("there is room");
        let (_, unsent) = events.down().await;
        assert_eq!(unsent, [message(&[b"early"])]);
        events.up().await;
        dialer.send(message(&[b"late"])).expect("there is room");
        loop {
            if let crate::socket_events::Event::Message(_, got) = peers.next().await {
                assert_eq!(got[0], "late");
                break;
            }
        }
    });
}

#[test]
fn it_is_known_whether_a_subscriber_has_read_a_message() {
    run(async {
        let (publisher, mut peers) = publisher(SocketLimits::default());
        let endpoint = publisher.local_endpoint().clone();
        let (dialer, mut events) = dialer(endpoint, DialRole::Sub, &[""]);
        peers.joined().await;
        peers.message().await;
        assert_eq!(
            publisher.delivery_progress(1),
            DeliveryProgress::NoReader,
            "it was sent nothing before"
        );
        publisher.send(&message(&[b"first"]));
        publisher.send(&message(&[b"second"]));
        assert_eq!(publisher.sent(), 2);
        assert_eq!(publisher.delivery_progress(2), DeliveryProgress::Waits);
        events.up().await;
        events.received().await;
        events.received().await;
        // The system confirms received bytes a moment later.
        let read = async {
            while publisher.delivery_progress(2) != DeliveryProgress::Read {
                tokio::task::yield_now().await;
            }
        };
        soon("the second is read", read).await;
        drop(dialer);
        peers.left().await;
        assert_eq!(publisher.delivery_progress(2), DeliveryProgress::NoReader);
    });
}
