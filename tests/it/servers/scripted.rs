//! A server that answers each request with the same bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A server of a test: it reads a request and answers with bytes, whatever was asked.
pub struct ScriptedServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedServer {
    /// Starts a server that answers with a status line and headers, and with a body.
    pub fn answering(head: &str, body: &str) -> ScriptedServer {
        let length = body.len();
        ScriptedServer::sending(&format!(
            "HTTP/1.1 {head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        ))
    }

    /// Starts a server that sends these bytes after each request, and closes; without any it stays silent.
    pub fn sending(bytes: &str) -> ScriptedServer {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let address = listener.local_addr().expect("the port");
        let ends = Arc::new(AtomicBool::new(false));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (received, is_over, bytes) = (requests.clone(), ends.clone(), bytes.to_owned());
        let thread = std::thread::spawn(move || {
            let mut silent = Vec::new();
            for stream in listener.incoming().flatten() {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                let request = read_request(&stream);
                received.lock().expect("no panic here").push(request);
                if bytes.is_empty() {
                    silent.push(stream);
                } else {
                    // The client may have gone.
                    let _ = (&stream).write_all(bytes.as_bytes());
                }
            }
        });
        ScriptedServer {
            address,
            requests,
            ends,
            thread: Some(thread),
        }
    }

    /// Returns the URL.
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }

    /// Returns the requests so far: their lines and headers.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic there").clone()
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Reads a request with its body: a connection that is closed before would be reset.
pub fn read_request(stream: &TcpStream) -> String {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while let Ok(read) = reader.read_line(&mut head) {
        if read == 0 || head.ends_with("\r\n\r\n") {
            break;
        }
    }
    let mut lengths = head.lines().filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_length = name.eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse().ok())?
    });
    let mut body = vec![0; lengths.next().unwrap_or(0)];
    let _ = reader.read_exact(&mut body);
    head
}
