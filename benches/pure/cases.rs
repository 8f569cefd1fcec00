//! The cases that are measured, each separately.

use std::hint::black_box;

use bytes::Bytes;
use pure::traffic::{
    Cell, Keys, Linked, Subscribers, Way, checked, on_the_wire, output, receive, subscribed,
    written,
};
use pure::wire::{SigningKey, Unverified, Verified};
use pure::zmtp::{Batch, Message};

/// An operation that is repeated.
pub struct Case {
    pub name: &'static str,
    /// Makes the closure that handles one message, or one read of several; making it is not measured.
    prepare: fn() -> Box<dyn FnMut()>,
    /// How many messages the closure handles.
    each: usize,
    /// Whether one message costs as much as thousands of the others.
    is_long: bool,
}

/// The number of messages in a round; a round of a long case has one.
const ROUND: usize = 64;

impl Case {
    /// Returns a closure that does one round.
    pub fn prepared(&self) -> impl FnMut() {
        let mut once = (self.prepare)();
        let times = self.messages() / self.each;
        move || (0..times).for_each(|_| once())
    }

    /// Returns how many messages a round has.
    pub fn messages(&self) -> usize {
        if self.is_long { 1 } else { ROUND }
    }
}

/// The unavoidable work of a proxy that verifies and signs; its cost is printed beside the byte pump's.
pub const TWO_HMACS: &str = "wire: the two HMACs of 100 B";

/// The number of messages in one read.
const READ: usize = ROUND;

pub const CASES: &[Case] = &[
    Case {
        name: "zmtp: decode 100 B",
        prepare: || decode(frames(output(1)), READ),
        each: READ,
        is_long: false,
    },
    Case {
        name: "zmtp: decode 1 MB",
        prepare: || decode(vec![Bytes::from(vec![7; 1_000_000])], 1),
        each: 1,
        is_long: true,
    },
    Case {
        name: "zmtp: encode 100 B",
        prepare: || {
            let message = frames(output(1));
            let mut batch = Batch::default();
            Box::new(move || {
                (0..READ).for_each(|_| batch.push(&message));
                black_box(written(&mut batch));
            })
        },
        each: READ,
        is_long: false,
    },
    Case {
        name: TWO_HMACS,
        prepare: || {
            let keys = Keys::signing();
            let message = output(1).into_frames(&keys.kernel);
            Box::new(move || {
                let message = Unverified::parse(message.clone()).expect("it is whole");
                let message = keys.kernel.verify(message).expect("it is rightly signed");
                drop(black_box(message.into_frames(&keys.front)));
            })
        },
        each: 1,
        is_long: false,
    },
    Case {
        name: "wire: all but hashing of 100 B",
        prepare: || {
            let keys = Keys::empty();
            let message = frames(output(1));
            Box::new(move || {
                let message = checked(message.clone(), &keys.kernel);
                drop(black_box(message.into_frames(&keys.front)));
            })
        },
        each: 1,
        is_long: false,
    },
    Case {
        name: "route: an output",
        prepare: || {
            let mut linked = Linked::new();
            let message = output(1);
            Box::new(move || linked.output(message.clone(), |message| drop(black_box(message))))
        },
        each: 1,
        is_long: false,
    },
    Case {
        name: "route: a cell and its answers",
        prepare: || {
            let (mut linked, cell) = (Linked::new(), Cell::new());
            Box::new(move || _ = black_box(cell.run(&mut linked)))
        },
        each: 1,
        is_long: false,
    },
    Case {
        name: "100 B to 1 subscriber",
        prepare: || to_subscribers(1),
        each: READ,
        is_long: false,
    },
    Case {
        name: "100 B to 10 subscribers",
        prepare: || to_subscribers(10),
        each: READ,
        is_long: false,
    },
    Case {
        name: "100 B to 1,000 subscribers",
        prepare: || to_subscribers(1000),
        each: READ,
        is_long: false,
    },
    Case {
        name: "100 B all the way, signed",
        prepare: || all_the_way(Keys::signing()),
        each: READ,
        is_long: false,
    },
    Case {
        name: "100 B all the way, unsigned",
        prepare: || all_the_way(Keys::empty()),
        each: READ,
        is_long: false,
    },
];

fn frames(message: Verified) -> Message {
    message.into_frames(&SigningKey::new(b""))
}

fn decode(message: Message, many: usize) -> Box<dyn FnMut()> {
    let bytes = on_the_wire(std::iter::repeat_n(message, many));
    let mut connection = subscribed();
    Box::new(move || {
        receive(&mut connection, &bytes, |message| drop(black_box(message)));
    })
}

fn to_subscribers(many: usize) -> Box<dyn FnMut()> {
    let message = frames(output(1));
    let mut subscribers = Subscribers::new(many);
    Box::new(move || {
        (0..READ).for_each(|_| subscribers.publish(&message));
        black_box(subscribers.written());
    })
}

fn all_the_way(keys: Keys) -> Box<dyn FnMut()> {
    let messages = (0..READ).map(|number| output(number).into_frames(&keys.kernel));
    let read = on_the_wire(messages);
    let mut way = Way::new(keys, 1);
    Box::new(move || _ = black_box(way.pass(&read)))
}
