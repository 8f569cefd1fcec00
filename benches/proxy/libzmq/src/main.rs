//! The smallest proxy on libzmq: one thread and two sockets for each channel. Every message is verified
//! with one key and signed with the other.
//!
//! `libzmq-proxy FRONT KERNEL` serves the connection file FRONT with the kernel of KERNEL until it is killed.

use hmac::{Hmac, KeyInit, Mac};
use serde_json::Value;
use sha2::Sha256;
use zmq::{Context, SocketType};

const DELIMITER: &[u8] = b"<IDS|MSG>";

/// At most so many messages are read from one socket before the other is read.
const TURN: usize = 64;

struct Side {
    info: Value,
    keyed: Hmac<Sha256>,
}

impl Side {
    fn read(path: &str) -> Self {
        let text = std::fs::read(path).expect("read the connection file");
        let info: Value = serde_json::from_slice(&text).expect("JSON");
        let key = info["key"].as_str().expect("a key").as_bytes();
        let keyed = Hmac::new_from_slice(key).expect("any length will do");
        Self { info, keyed }
    }

    fn address(&self, channel: &str) -> String {
        let (ip, port) = (&self.info["ip"], &self.info[format!("{channel}_port")]);
        let ip = ip.as_str().expect("an address");
        if self.info["transport"] == "ipc" {
            format!("ipc://{ip}-{port}")
        } else {
            format!("tcp://{ip}:{port}")
        }
    }

    fn mac(&self, parts: &[Vec<u8>]) -> Hmac<Sha256> {
        let mut mac = self.keyed.clone();
        parts.iter().for_each(|part| mac.update(part));
        mac
    }
}

fn resigned(mut frames: Vec<Vec<u8>>, from: &Side, to: &Side) -> Option<Vec<Vec<u8>>> {
    let at = frames.iter().position(|frame| frame == DELIMITER)?;
    let signed = frames.get(at + 2..at + 6)?;
    let claimed = hex::decode(&frames[at + 1]).ok()?;
    from.mac(signed).verify_slice(&claimed).ok()?;
    let signature = hex::encode(to.mac(signed).finalize().into_bytes());
    frames[at + 1] = signature.into_bytes();
    Some(frames)
}

fn run(context: &Context, channel: &str, front: &Side, kernel: &Side) {
    let kinds = match channel {
        "iopub" => (SocketType::PUB, SocketType::SUB),
        _ => (SocketType::ROUTER, SocketType::DEALER),
    };
    let clients = context.socket(kinds.0).expect("a socket");
    let own = context.socket(kinds.1).expect("a socket");
    for socket in [&clients, &own] {
        // By default libzmq drops messages silently.
        socket.set_sndhwm(0).expect("no mark");
        socket.set_rcvhwm(0).expect("no mark");
    }
    if channel == "iopub" {
        own.set_subscribe(b"").expect("subscribe");
    } else {
        // A kernel sends stdin requests only to identities that it knows from shell.
        own.set_identity(b"proxy").expect("an identity");
    }
    clients.bind(&front.address(channel)).expect("bind");
    own.connect(&kernel.address(channel)).expect("connect");
    let pass = |from: &zmq::Socket, to: &zmq::Socket, verify: &Side, sign: &Side| {
        for _ in 0..TURN {
            let Ok(frames) = from.recv_multipart(zmq::DONTWAIT) else {
                return;
            };
            let frames = match channel {
                "hb" => Some(frames),
                _ => resigned(frames, verify, sign),
            };
            if let Some(frames) = frames {
                let _ = to.send_multipart(frames, 0);
            }
        }
    };
    loop {
        // A PUB socket has nothing to read.
        let watched = if channel == "iopub" { 1 } else { 2 };
        let mut items = [
            own.as_poll_item(zmq::POLLIN),
            clients.as_poll_item(zmq::POLLIN),
        ];
        zmq::poll(&mut items[..watched], -1).expect("poll");
        if items[0].is_readable() {
            pass(&own, &clients, kernel, front);
        }
        if watched == 2 && items[1].is_readable() {
            pass(&clients, &own, front, kernel);
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let mut side = || Side::read(&args.next().expect("libzmq-proxy FRONT KERNEL"));
    let (front, kernel) = (side(), side());
    let context = Context::new();
    std::thread::scope(|scope| {
        for channel in ["shell", "control", "stdin", "hb", "iopub"] {
            scope.spawn(|| run(&context, channel, &front, &kernel));
        }
    });
}
