//! Ports for servers, kernels and scripts that get their ports as arguments.
//!
//! They lie between 10,000 and 32,000: the system gives ports from 32,768 on to outgoing connections, and one of these could
//! take a port before its server binds it.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

/// The ports that tests get one by one.
const SINGLE: std::ops::Range<u16> = 10_000..14_000;

/// The first port of the first block, and how many blocks of how many ports there are.
const FIRST_BLOCK: u16 = 14_000;
const BLOCKS: u16 = 180;
const BLOCK: u16 = 100;

/// Returns a port that is free now, and that no other test of this process gets.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let port = SINGLE.start + turn(&NEXT, SINGLE.end - SINGLE.start);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Returns the ports among which a script looks for free ones: `FIRST-END`. No script that was started shortly before or
/// after gets the same, so that none takes a port between another's look and its bind.
pub fn block() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = FIRST_BLOCK + turn(&NEXT, BLOCKS) * BLOCK;
    format!("{first}-{}", first + BLOCK)
}

/// Returns the next number below `count`, in turns. Runs that begin together have neighbouring ids: they begin far from each
/// other.
fn turn(next: &AtomicU16, count: u16) -> u16 {
    let first = std::process::id().wrapping_mul(7919) % u32::from(count);
    let number = first + u32::from(next.fetch_add(1, Ordering::Relaxed));
    u16::try_from(number % u32::from(count)).expect("below the count")
}
