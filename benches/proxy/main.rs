//! What the proxy costs: the same work straight on a kernel and through `nb-proxy`, in turns.
//!
//! `cargo bench` prints one table; `benches/README.md` tells how to read it. Filters on the
//! command line choose rows: `cargo bench -- launch`.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

mod byte_pump;
mod client;
mod fake_kernel;
#[path = "../../tests/it/made.rs"]
mod made;
mod process;
#[path = "../../tests/it/python.rs"]
mod python;
mod rows;
mod table;

fn main() {
    let mut args = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .peekable();
    if args.peek().map(String::as_str) == Some("--fake-kernel") {
        let file = args.nth(1).expect("--fake-kernel FILE");
        return runtime().block_on(fake_kernel::serve(file.as_ref()));
    }
    if args.peek().map(String::as_str) == Some("--byte-pump") {
        let files: Vec<_> = args.skip(1).collect();
        let [front, kernel] = &files[..] else {
            panic!("--byte-pump FRONT KERNEL")
        };
        return runtime().block_on(byte_pump::pump(front.as_ref(), kernel.as_ref()));
    }
    if args.peek().map(String::as_str) == Some("--list") {
        return; // asked by test runners
    }
    let filters: Vec<_> = args.collect();
    runtime().block_on(rows::run(&filters));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
}
