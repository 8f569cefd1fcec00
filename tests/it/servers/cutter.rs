//! A TCP proxy in front of a server, which loses connections as networks do.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// How a connection is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// Both connections are closed.
    Close,
    /// Both connections are reset: what was on its way is lost.
    Reset,
    /// No connection ends, and nothing arrives any more.
    Stall,
}

/// A proxy. On drop it takes no more connections.
pub struct Cutter {
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// How many requests were refused, since they had the old token.
    refused: AtomicUsize,
}

#[derive(Default)]
struct State {
    /// Whether connections are refused.
    is_down: bool,
    has_ended: bool,
    /// Both sockets of each connection.
    open: Vec<Connection>,
    /// What clients have to send as the token, and the server's own token.
    tokens: Option<(String, String)>,
    /// How long each piece is held back.
    delay: Duration,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    stalls: Arc<Mutex<bool>>,
}

impl Cutter {
    /// Starts a proxy in front of a port of this machine.
    pub fn new(server: u16) -> Cutter {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let port = listener.local_addr().expect("the port").port();
        let shared = Arc::new(Shared::default());
        let for_thread = shared.clone();
        std::thread::spawn(move || accept(&listener, server, &for_thread));
        Cutter { port, shared }
    }

    /// Returns the base URL.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Loses all connections, and refuses others until [`Cutter::come_back`].
    pub fn lose(&self, how: Loss) {
        let mut state = self.shared.state.lock().expect("the lock");
        state.is_down = true;
        lose(&mut state, how);
    }

    /// Loses all connections; others may be made at once.
    pub fn cut(&self, how: Loss) {
        lose(&mut self.shared.state.lock().expect("the lock"), how);
    }

    /// Takes connections again.
    pub fn come_back(&self) {
        self.shared.state.lock().expect("the lock").is_down = false;
    }

    /// Holds each piece back for that long.
    pub fn delay(&self, delay: Duration) {
        self.shared.state.lock().expect("the lock").delay = delay;
    }

    /// Lets clients use another token than the server's; any other is refused with 403.
    pub fn take_token(&self, clients: &str, servers: &str) {
        let tokens = (clients.to_owned(), servers.to_owned());
        self.shared.state.lock().expect("the lock").tokens = Some(tokens);
    }

    /// Returns how many requests were refused, since they had another token.
    pub fn refused(&self) -> usize {
        self.shared.refused.load(Ordering::SeqCst)
    }

    /// Waits until a connection is there that may be lost.
    pub fn wait_for_a_websocket(&self) {
        let state = self.shared.state.lock().expect("the lock");
        let limit = Duration::from_secs(90);
        let waiting = self
            .shared
            .changed
            .wait_timeout_while(state, limit, |state| {
                state.open.retain(|connection| {
                    !*connection.stalls.lock().expect("the lock")
                        && connection.client.peer_addr().is_ok()
                });
                state.open.is_empty()
            });
        assert!(!waiting.expect("the lock").1.timed_out(), "nobody connects");
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.shared.state.lock().expect("the lock").has_ended = true;
        self.cut(Loss::Close);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn lose(state: &mut State, how: Loss) {
    for connection in state.open.drain(..) {
        let Connection {
            client,
            server,
            stalls,
        } = connection;
        if how == Loss::Reset {
            for socket in [&client, &server] {
                let linger = Some(Duration::ZERO);
                let _ = rustix::net::sockopt::set_socket_linger(socket, linger);
            }
        }
        if how == Loss::Stall {
            // Its threads read on and pass nothing.
            *stalls.lock().expect("the lock") = true;
            continue;
        }
        let _ = client.shutdown(Shutdown::Both);
        let _ = server.shutdown(Shutdown::Both);
    }
}

fn accept(listener: &TcpListener, server: u16, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        let shared = shared.clone();
        if shared.state.lock().expect("the lock").has_ended {
            return;
        }
        std::thread::spawn(move || drop(serve(client, server, &shared)));
    }
}

/// Passes one connection on.
fn serve(mut client: TcpStream, server: u16, shared: &Shared) -> std::io::Result<()> {
    let mut head = Vec::new();
    let mut piece = [0; 4096];
    while !head.windows(4).any(|window| window == b"\r\n\r\n") {
        let length = client.read(&mut piece)?;
        if length == 0 {
            return Ok(());
        }
        head.extend_from_slice(&piece[..length]);
    }
    let mut text = String::from_utf8_lossy(&head).into_owned();
    let is_websocket = text.to_ascii_lowercase().contains("upgrade: websocket");
    let mut state = shared.state.lock().expect("the lock");
    if state.is_down {
        return Ok(());
    }
    if let Some((clients, servers)) = &state.tokens {
        if !text.contains(clients) {
            shared.refused.fetch_add(1, Ordering::SeqCst);
            let answer = "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            return client.write_all(answer.as_bytes());
        }
        text = text.replace(clients, servers);
    }
    let mut upstream = TcpStream::connect(("127.0.0.1", server))?;
    upstream.write_all(text.as_bytes())?;
    let stalls = Arc::new(Mutex::new(false));
    if is_websocket {
        state.open.push(Connection {
            client: client.try_clone()?,
            server: upstream.try_clone()?,
            stalls: stalls.clone(),
        });
        shared.changed.notify_all();
    }
    drop(state);
    let (client_too, upstream_too) = (client.try_clone()?, upstream.try_clone()?);
    std::thread::scope(|scope| {
        scope.spawn(|| pass(client_too, upstream_too, shared, &stalls));
        pass(upstream, client, shared, &stalls);
    });
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, shared: &Shared, stalls: &Mutex<bool>) {
    let mut piece = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut piece) {
        let delay = shared.state.lock().expect("the lock").delay;
        if !delay.is_zero() {
            // A slow network is what is tested.
            std::thread::sleep(delay);
        }
        if !*stalls.lock().expect("the lock") && to.write_all(&piece[..length]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
