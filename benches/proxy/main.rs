//! The cost of the proxy: the same work directly on a kernel, through `nb-proxy`, and through others,
//! alternately.
//!
//! `cargo bench --bench proxy` prints one table; `benches/README.md` says how to read it. Words on the
//! command line choose rows, `--columns` chooses columns:
//! `cargo bench --bench proxy -- trip --columns=direct,nb-proxy`.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

mod byte_pump;
mod client;
mod crowd;
mod fake_kernel;
#[path = "../../tests/it/made.rs"]
mod made;
mod process;
#[path = "../../tests/it/python.rs"]
mod python;
mod rows;
mod table;
mod way;
mod world;
mod zeromq_proxy;

use way::Way;

fn main() {
    let args: Vec<_> = std::env::args()
        .skip(1)
        .filter(|arg| arg != "--bench")
        .collect();
    let words: Vec<_> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["--fake-kernel", file] => run(fake_kernel::serve(file.as_ref())),
        ["--byte-pump", front, kernel] => run(byte_pump::pump(front.as_ref(), kernel.as_ref())),
        ["--zeromq-proxy", front, kernel] => {
            run(zeromq_proxy::serve(front.as_ref(), kernel.as_ref()));
        }
        ["--list", ..] => {} // asked by test runners
        _ => {
            let (columns, words): (Vec<_>, Vec<_>) = args
                .into_iter()
                .partition(|arg| arg.starts_with("--columns="));
            let wanted = |way: &Way| {
                let names = columns
                    .iter()
                    .flat_map(|arg| arg["--columns=".len()..].split(','));
                columns.is_empty() || names.into_iter().any(|name| way.name().contains(name))
            };
            let columns = Way::ALL.into_iter().filter(wanted).collect();
            // A thousand clients need more sockets than most shells allow.
            let most = rustix::process::Resource::Nofile;
            let mut limit = rustix::process::getrlimit(most);
            limit.current = limit.maximum;
            rustix::process::setrlimit(most, limit).expect("raise the limit of descriptors");
            run(rows::run(&words, columns));
        }
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work);
}
