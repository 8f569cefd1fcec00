//! Websockets that a server opens and then misuses.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::scripted::read_request;
use crate::nb::nb;
use crate::world::{World, succeed};

const SPECS: &str = r#"{"default": "python3", "kernelspecs": {"python3": {"name": "python3",
    "spec": {"display_name": "Python 3", "language": "python", "argv": []}}}}"#;
const KERNEL: &str = r#"{"id": "k1", "name": "python3", "execution_state": "idle"}"#;

/// A server whose only kernel's websocket sends the same bytes whenever it is opened.
struct BadServer {
    address: SocketAddr,
    ends: Arc<AtomicBool>,
}

impl BadServer {
    fn sending(bytes: &[u8], closes: bool) -> BadServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let address = listener.local_addr().expect("the port");
        let ends = Arc::new(AtomicBool::new(false));
        let (is_over, bytes) = (ends.clone(), bytes.to_owned());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let bytes = bytes.clone();
                // A client may connect and send no request.
                std::thread::spawn(move || {
                    let open = answer(stream, &bytes).filter(|_| !closes);
                    // It stays open until the peer closes it.
                    let _ = open.map(|mut open| std::io::copy(&mut open, &mut std::io::sink()));
                });
            }
        });
        BadServer { address, ends }
    }

    fn add_to(&self, world: &World) {
        let url = format!("http://{}/", self.address);
        succeed(world.nb().args(["server", "add", "bad", &url]));
    }
}

impl Drop for BadServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
    }
}

/// Answers a request; returns the connection if it is a websocket now.
fn answer(mut stream: TcpStream, bytes: &[u8]) -> Option<TcpStream> {
    let head = read_request(&stream);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let is_post = head.starts_with("POST");
    let body = match path.split('?').next().unwrap_or_default() {
        "/api" => r#"{"version": "2.21.1"}"#.to_owned(),
        "/api/kernelspecs" => SPECS.to_owned(),
        "/api/sessions" if is_post => {
            format!(r#"{{"id": "s1", "path": "t.ipynb", "kernel": {KERNEL}}}"#)
        }
        "/api/sessions" => "[]".to_owned(),
        "/api/kernels" => format!("[{KERNEL}]"),
        "/api/kernels/k1/channels" => {
            let head = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                 Sec-WebSocket-Protocol: v1.kernel.websocket.jupyter.org\r\n\r\n";
            let _ = stream.write_all(head.as_bytes());
            let _ = stream.write_all(bytes);
            return Some(stream);
        }
        _ => KERNEL.to_owned(),
    };
    let head = match (head.starts_with("DELETE"), is_post) {
        (true, _) => "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n".to_owned(),
        (_, posted) => format!(
            "HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            if posted { "201 Created" } else { "200 OK" },
            body.len()
        ),
    };
    let _ = stream.write_all(head.as_bytes());
    None
}

/// Opens a notebook on such a server: `nb` prints `message` at the end of its time, and leaves nothing behind.
fn is_refused(bytes: &[u8], closes: bool, message: &str) {
    let server = BadServer::sending(bytes, closes);
    let world = World::new();
    server.add_to(&world);
    // The command ends with its time alone; on a busy machine the message needs more of it.
    let open = |seconds: u32| {
        let seconds = seconds.to_string();
        let open = ["open", "t.ipynb", "--server", "bad", "--timeout", &seconds];
        let output = nb(&world, open);
        assert_ne!(output.code, Some(0), "{output:?}");
        output
    };
    let tries = [2, 8, 32].into_iter().map(open);
    let output = { tries }.find(|output| output.stderr.contains(message));
    let output = output.expect("the message");
    assert!(output.stderr.lines().count() < 8, "{output:?}");
    let text = std::fs::read_to_string(world.project().join("t.ipynb")).expect("read it");
    assert!(text.contains("python3"), "{text}");
}

#[test]
fn a_websocket_that_sends_nothing() {
    is_refused(b"", false, "connected");
}

#[test]
fn a_websocket_that_sends_what_is_no_message() {
    // Text where bytes are due, bytes without an offset, and one offset that points behind the end.
    is_refused(
        b"\x81\x02{}\x82\x01x\x82\x10\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\0\0\0\0",
        false,
        "reconnecting: 3 frames in a row were no messages (",
    );
}

#[test]
fn a_websocket_that_ends_in_a_frame() {
    is_refused(b"\x82\x7e\x03\xe8half", true, "reconnecting: ");
}

#[test]
fn a_websocket_with_a_frame_that_is_too_long() {
    is_refused(
        b"\x82\x7f\x00\x00\x7f\xff\xff\xff\xff\xffmuch",
        false,
        "reconnecting: ",
    );
}
