//! `socket` against libzmq, through pyzmq in a separate process.

mod bad_peers;
mod binding;
mod closing;
mod dialers;
mod publishers;
mod routers;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::socket::{
    DialAs, DialRole, Dialer, Message, PeerId, Publisher, Router, SocketLimits, UnsentReason,
};
use nb::wire::Endpoint;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::python;
use crate::socket_events::{
    Event, Events, Forwarder, TIMEOUT, any_port, dialer, message, publisher, router, run, soon,
    spilling_publisher,
};

/// A process with libzmq sockets that executes commands one after the other.
struct Libzmq {
    child: Child,
    stdin: ChildStdin,
    answers: UnboundedReceiver<String>,
}

impl Libzmq {
    async fn start() -> Self {
        let mut child = Command::new(python::interpreter())
            .arg(python::script("zmq_peer.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start python");
        let stdin = child.stdin.take().expect("stdin is piped");
        let stdout = child.stdout.take().expect("stdout is piped");
        let (lines, answers) = unbounded_channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines.send(line).is_err() {
                    break;
                }
            }
        });
        let mut peer = Self {
            child,
            stdin,
            answers,
        };
        peer.answer().await;
        peer
    }

    /// Sends a command without waiting for its answer.
    fn tell(&mut self, command: &Value) {
        writeln!(self.stdin, "{command}").expect("write to python");
    }

    /// Returns the answer to the oldest command without one.
    async fn answer(&mut self) -> Value {
        let line = soon("an answer from python", self.answers.recv()).await;
        let mut answer: Value =
            serde_json::from_str(&line.expect("python lives")).expect("python answers JSON");
        assert_eq!(answer.get("error"), None);
        answer["ok"].take()
    }

    async fn ask(&mut self, command: Value) -> Value {
        self.tell(&command);
        self.answer().await
    }

    async fn recv(&mut self, name: &str) -> Value {
        self.ask(json!({"do": "recv", "name": name})).await
    }

    async fn connect(&mut self, name: &str, kind: &str, endpoint: &Endpoint, options: Value) {
        self.ask(json!({
            "do": "open_socket", "name": name, "type": kind, "options": options,
            "connect": endpoint.to_string(),
        }))
        .await;
    }
}

impl Drop for Libzmq {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hex(frames: &[&[u8]]) -> Value {
    frames.iter().map(hex::encode).collect()
}

/// Returns a long frame in the form in which Python answers it.
fn digest(frame: &[u8]) -> Value {
    json!([frame.len(), hex::encode(Sha256::digest(frame))])
}

async fn bind(
    zmq: &mut Libzmq,
    name: &str,
    kind: &str,
    endpoint: &Endpoint,
    options: Value,
) -> Endpoint {
    let bound = zmq
        .ask(json!({
            "do": "open_socket", "name": name, "type": kind, "options": options,
            "bind": endpoint.to_string(),
        }))
        .await;
    let bound = bound.as_str().expect("an endpoint");
    match bound.strip_prefix("tcp://") {
        Some(address) => Endpoint::Tcp(address.parse().expect("an address")),
        None => Endpoint::Unix(bound.trim_start_matches("ipc://").into()),
    }
}

fn unix_endpoint(folder: &tempfile::TempDir) -> Endpoint {
    Endpoint::Unix(folder.path().join("socket"))
}

fn address(endpoint: &Endpoint) -> std::net::SocketAddr {
    match endpoint {
        Endpoint::Tcp(address) => *address,
        Endpoint::Unix(path) => panic!("{} is no address", path.display()),
    }
}

/// Returns a peer's greeting and READY, in our own encoding.
fn greeting(socket_type: &str) -> Vec<u8> {
    greeting_of(socket_type, "")
}

fn greeting_of(socket_type: &str, identity: &str) -> Vec<u8> {
    let mut bytes = vec![0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0];
    bytes.extend_from_slice(b"NULL");
    bytes.resize(64, 0);
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type), ("Identity", identity)] {
        for (width, text) in [(1, name), (4, value)] {
            body.resize(body.len() + width - 1, 0);
            body.push(u8::try_from(text.len()).expect("a short text"));
            body.extend_from_slice(text.as_bytes());
        }
    }
    bytes.extend([4, u8::try_from(body.len()).expect("a short command")]);
    bytes.extend(body);
    bytes
}

async fn raw(endpoint: &Endpoint, bytes: &[u8]) -> tokio::net::TcpStream {
    let mut stream = tokio::net::TcpStream::connect(address(endpoint))
        .await
        .expect("connect");
    stream.write_all(bytes).await.expect("write");
    stream
}

async fn is_closed(mut stream: tokio::net::TcpStream) {
    let mut rest = Vec::new();
    // The connection may also be reset.
    let _ = soon("the end", stream.read_to_end(&mut rest)).await;
}

/// Connects a peer that sends its greeting and then never reads.
async fn stalled(endpoint: &Endpoint, socket_type: &str, identity: &str) -> tokio::net::TcpStream {
    raw(endpoint, &greeting_of(socket_type, identity)).await
}

/// Returns messages that `count` in the Python script can check, and the one that ends them.
fn counting(times: usize, len: usize) -> impl Iterator<Item = Message> {
    (0..times)
        .map(move |number| {
            let mut content = format!("{number} ").into_bytes();
            content.resize(len, b'.');
            vec![content.into()]
        })
        .chain([message(&[b"end"])])
}
