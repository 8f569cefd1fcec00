//! The cost of the pure parts: instructions, which do not depend on what else runs, and time.
//!
//! Each count is compared with `counts.txt`; `benches/README.md` says more.

mod cases;
mod guard;

use std::process::ExitCode;
use std::time::Instant;

use cases::{CASES, Case};
use guard::Guard;

const HELP: &str = "\
Counts the instructions of the pure parts and holds them against counts.txt.

    --write    write the counts down instead";

fn main() -> ExitCode {
    // cargo adds `--bench`.
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let args: Vec<String> = args.collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match &*args {
        [] => table(false),
        ["--write"] => table(true),
        [guard::RUN, name, rounds] => {
            let case = CASES.iter().find(|case| case.name == *name);
            let rounds: usize = rounds.parse().expect("a number of rounds");
            let mut round = case.expect("a case of ours").prepared();
            (0..rounds).for_each(|_| round());
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{HELP}");
            ExitCode::from(2)
        }
    }
}

fn table(write: bool) -> ExitCode {
    let mut guard = Guard::begin();
    println!(
        "{:<32} {:>12} {:>12} {:>8} {:>12}",
        "one message", "instructions", "written down", "", "time"
    );
    for case in CASES {
        let nanos = nanos(case);
        let count = guard.count(case);
        let shown = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), grouped);
        let change = count
            .change()
            .map_or_else(String::new, |change| format!("{:+.1} %", change * 100.0));
        println!(
            "{:<32} {:>12} {:>12} {change:>8} {:>9} ns",
            case.name,
            shown(count.now),
            shown(count.known),
            grouped(nanos)
        );
    }
    guard.end(write)
}

/// Returns the time for one message, in nanoseconds: that of the fastest try, which was disturbed least.
fn nanos(case: &Case) -> u64 {
    let mut round = case.prepared();
    let tries = (0..50).map(|_| {
        let since = Instant::now();
        let mut messages = 0;
        while since.elapsed().as_micros() < 2_000 {
            round();
            messages += case.messages();
        }
        since.elapsed().as_nanos() / messages as u128
    });
    tries
        .min()
        .and_then(|nanos| u64::try_from(nanos).ok())
        .unwrap_or_default()
}

/// Formats a number with its thousands separated.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let (first, rest) = digits.split_at((digits.len() - 1) % 3 + 1);
    let rest = rest.as_bytes().chunks(3);
    rest.fold(first.to_owned(), |text, three| {
        format!("{text},{}", String::from_utf8_lossy(three))
    })
}
