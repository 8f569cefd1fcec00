//! Ports for servers and kernels that get their ports as arguments.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// How many ports are tried, from 10,000 on: the system gives those from 32,768 on to outgoing connections, and one of
/// these could take a port before its server binds it.
const COUNT: u16 = 22_000;

/// Returns a port that is free now, and that no other test of this process gets.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    // Runs that begin together have neighbouring ids: they look for ports far from each other's.
    let first = std::process::id().wrapping_mul(7919) % u32::from(COUNT);
    loop {
        let offset = first + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = 10_000 + u16::try_from(offset % u32::from(COUNT)).expect("below 32,000");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
