//! The way of a message through the proxy, with the sockets at both ends.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::sync::mpsc;

use bytes::Bytes;
use nb::socket::{
    DialAs, DialHandler, DialRole, Dialer, DisconnectReason, Message, PeerId, PeerInfo, Publisher,
    ServerHandler, SocketLimits,
};
use nb::wire::Endpoint;
use tokio::sync::Notify;
use tokio::task::LocalSet;

use crate::traffic::{Keys, Linked, checked, output};

/// A handler that calls a function for each received message.
struct Takes<F>(F);

impl<F: Fn(Message) + 'static> DialHandler for Takes<F> {
    fn up(&self) {}

    fn message(&self, message: Message) {
        self.0(message);
    }

    fn down(&self, _: &DisconnectReason, _: Vec<Message>) {}

    fn refused(&self, error: &io::Error) {
        panic!("nobody listens: {error}");
    }
}

/// A handler that reports each subscription.
struct Subscriptions(Rc<Notify>);

impl ServerHandler for Subscriptions {
    fn joined(&self, _: &PeerId, _: &PeerInfo) {}

    fn message(&self, _: &PeerId, _: Message) {
        self.0.notify_one();
    }

    fn left(&self, _: &PeerId, _: &DisconnectReason) {}
}

fn publisher() -> (Publisher, Rc<Notify>) {
    let subscribed = Rc::new(Notify::new());
    let any = Endpoint::Tcp("127.0.0.1:0".parse().expect("an address"));
    let handler = Rc::new(Subscriptions(Rc::clone(&subscribed)));
    let publisher = Publisher::bind(&any, SocketLimits::default(), None, handler);
    (publisher.expect("bind"), subscribed)
}

fn subscriber(endpoint: &Endpoint, take: impl Fn(Message) + 'static) -> Dialer {
    let sub = DialAs {
        socket_type: DialRole::Sub,
        identity: Bytes::new(),
        subscribe: vec![Bytes::new()],
    };
    Dialer::connect(
        endpoint.clone(),
        sub,
        SocketLimits::default(),
        Rc::new(Takes(take)),
    )
}

fn run<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), test)
}

/// Runs a kernel and a client: each output is sent when the one before has arrived.
fn both_ends(found: &mpsc::Sender<Endpoint>, proxy: &mpsc::Receiver<Endpoint>, outputs: usize) {
    run(async {
        let (kernel, subscribed) = publisher();
        found
            .send(kernel.local_endpoint().clone())
            .expect("it waits");
        subscribed.notified().await;
        let proxy = proxy.recv().expect("it serves");
        let came = Rc::new(Notify::new());
        let client = {
            let came = Rc::clone(&came);
            subscriber(&proxy, move |_| came.notify_one())
        };
        let keys = Keys::signing();
        let mut sent = 0;
        // Nothing arrives before the client has subscribed.
        while sent < outputs {
            kernel.send(&output(sent).into_frames(&keys.kernel));
            let wait = std::time::Duration::from_millis(if sent == 0 { 50 } else { 60_000 });
            match tokio::time::timeout(wait, came.notified()).await {
                Ok(()) => sent += 1,
                Err(_) => assert_eq!(sent, 0, "an output was lost"),
            }
        }
        drop(client);
    });
}

/// Returns how many allocations the proxy's thread makes while `outputs` messages pass, after as many
/// before.
pub fn asked(outputs: usize) -> u64 {
    let (to_us, kernel) = mpsc::channel();
    let (to_them, proxy) = mpsc::channel();
    let ends = std::thread::spawn(move || both_ends(&to_us, &proxy, 2 * outputs + 1));
    let kernel = kernel.recv().expect("it listens");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let runtime = runtime.expect("a runtime");
    let local = LocalSet::new();
    let passed = Rc::new(Cell::new(0));
    let reached = Rc::new(Notify::new());
    let sockets = local.block_on(&runtime, async {
        let (front, subscribed) = publisher();
        let endpoint = front.local_endpoint().clone();
        let (keys, linked) = (Keys::signing(), Cell::new(None));
        linked.set(Some(Linked::new()));
        let (passed, reached) = (Rc::clone(&passed), Rc::clone(&reached));
        let front = Rc::new(front);
        let publisher = Rc::clone(&front);
        let back = subscriber(&kernel, move |frames| {
            let mut bridge = linked.take().expect("one message at a time");
            let message = checked(frames, &keys.kernel);
            bridge.output(message, |message| {
                publisher.send(&message.into_frames(&keys.front));
            });
            linked.set(Some(bridge));
            passed.set(passed.get() + 1);
            if passed.get() % outputs == 0 {
                reached.notify_one();
            }
        });
        to_them.send(endpoint).expect("they wait");
        subscribed.notified().await;
        (front, back)
    });
    local.block_on(&runtime, reached.notified());
    let counted = allocation_counter::measure(|| local.block_on(&runtime, reached.notified()));
    // Let the last output leave.
    local.block_on(&runtime, async {
        while !ends.is_finished() {
            tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        }
    });
    ends.join().expect("all came");
    drop(sockets);
    counted.count_total
}
