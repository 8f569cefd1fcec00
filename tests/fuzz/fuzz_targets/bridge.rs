//! Whatever signed messages clients and a kernel send, in whatever order: no panic, no end of work.

#![no_main]

use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use nb::route::{Bridge, ClientId, Ending, FrontEnd, Interrupt, Kernel, Now, Settings};
use nb::wire::{Channel, DELIMITER, SigningKey, Unverified, Verified};

#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Client(u8, u8, Message<'a>),
    Kernel(u8, u8, Message<'a>),
    Iopub(Message<'a>),
    Joins(u8, u8),
    Leaves(u8, u8),
    LinkUp(u8, u8),
    LinkDown(u8, u8),
    Subscribed,
    Lost,
    Lives(u8),
    Died,
    Awaited,
    Unnamed,
    Oversized(&'a [u8]),
    Interrupt,
    Passes(u16),
}

#[derive(Arbitrary, Debug)]
struct Message<'a> {
    msg_type: u8,
    id: u8,
    parent: u8,
    /// Instead of the header that these make.
    header: Option<&'a [u8]>,
    metadata: Option<&'a [u8]>,
    content: &'a [u8],
}

const TYPES: [&str; 17] = [
    "execute_request",
    "execute_reply",
    "execute_input",
    "kernel_info_request",
    "kernel_info_reply",
    "complete_request",
    "interrupt_request",
    "shutdown_request",
    "shutdown_reply",
    "input_request",
    "input_reply",
    "comm_open",
    "comm_msg",
    "comm_close",
    "status",
    "stream",
    "error",
];

impl Message<'_> {
    fn verified(&self) -> Verified {
        let name = TYPES[usize::from(self.msg_type) % TYPES.len()];
        let header = |kind: &str, id: u8| {
            format!(
                r#"{{"msg_id":"{id}","msg_type":"{kind}","session":"s{}"}}"#,
                id % 4
            )
        };
        let content = match self.content {
            [b'b'] => br#"{"execution_state":"busy"}"#,
            [b'i'] => br#"{"execution_state":"idle"}"#,
            [b'c'] => &br#"{"code":"1"}"#[..],
            other => other,
        };
        let made = header(name, self.id);
        let parent = header("execute_request", self.parent);
        let frames = [
            DELIMITER,
            b"",
            self.header.unwrap_or(made.as_bytes()),
            parent.as_bytes(),
            self.metadata.unwrap_or(b"{}"),
            content,
        ];
        let frames = frames.map(Bytes::copy_from_slice).to_vec();
        let message = Unverified::parse(frames).expect("whole");
        SigningKey::new(b"").verify(message).expect("no key")
    }
}

fn client(which: u8) -> ClientId {
    let names: [&[u8]; 4] = [b"a", b"b", b"\0c", b""];
    ClientId::new(Bytes::from_static(names[usize::from(which) % 4]))
}

fn channel(which: u8) -> Channel {
    [Channel::Shell, Channel::Control, Channel::Stdin][usize::from(which) % 3]
}

fuzz_target!(|input: (u8, Vec<Step<'_>>)| {
    let (front_end, steps) = input;
    let mut now = Now {
        instant: Instant::now(),
        date: Default::default(),
    };
    let settings = Settings {
        id: "own".into(),
        held_bytes: 1000,
        undelivered_bytes: 1000,
        front_end: [FrontEnd::VsCode, FrontEnd::Jupyter, FrontEnd::Other]
            [usize::from(front_end) % 3],
    };
    let ending = Ending {
        name: "KernelDied",
        text: "it died".into(),
    };
    let mut bridge = Bridge::new(settings, now);
    for step in steps {
        let change = match &step {
            Step::Lives(life) => Some(Kernel::Live {
                generation: u64::from(*life),
                interrupt: if life % 2 == 0 {
                    Interrupt::Message
                } else {
                    Interrupt::Signal
                },
                info: None,
            }),
            Step::Died => Some(Kernel::Died(ending.clone())),
            Step::Awaited => Some(Kernel::Awaited),
            Step::Unnamed => Some(Kernel::Unresolved { info: None }),
            _ => None,
        };
        if let Some(kernel) = change {
            bridge.set_kernel(now, kernel, &ending, []);
        }
        match step {
            Step::Client(id, on, message) => {
                bridge.client_message(now, channel(on), &client(id), message.verified());
            }
            Step::Kernel(id, on, message) => {
                bridge.kernel_message(now, &client(id), channel(on), message.verified());
            }
            Step::Iopub(message) => bridge.iopub_message(now, message.verified()),
            Step::Joins(id, on) => bridge.client_joined(channel(on), &client(id)),
            Step::Leaves(id, on) => bridge.client_left(now, channel(on), &client(id)),
            Step::LinkUp(id, on) => bridge.link_up(now, &client(id), channel(on)),
            Step::LinkDown(id, on) => bridge.link_down(&client(id), channel(on), Vec::new()),
            Step::Subscribed => bridge.iopub_up(now),
            Step::Lost => bridge.iopub_down(),
            Step::Oversized(parent) => bridge.oversized(now, Channel::Shell, parent, 1),
            Step::Interrupt => bridge.interrupt(now),
            Step::Passes(ms) => {
                now.instant += Duration::from_millis(u64::from(ms));
                bridge.handle_timeout(now);
            }
            _ => {}
        }
        let mut actions = 0;
        while bridge.poll_action().is_some() {
            actions += 1;
            assert!(actions < 10_000, "it never ends");
        }
        assert!(
            bridge
                .poll_timeout()
                .is_none_or(|due| due >= now.instant)
        );
    }
});
