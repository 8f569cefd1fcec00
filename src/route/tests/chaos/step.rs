//! The steps of a chaos test, drawn from a seed.

use super::super::world::Rng;

/// One step. It chooses its subject among what exists when it runs, so that a sequence stays valid when some
/// of its steps are removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// `moves` pending events happen, in an order that a number chooses.
    Flow {
        moves: u64,
        order: u64,
    },
    /// Time passes, timer by timer.
    Pass {
        ms: u64,
    },
    /// The machine wakes up: all timers of this period are due at once.
    Wakes {
        ms: u64,
    },
    /// A connection is made; it replaces one with the same identity.
    Join {
        line: usize,
    },
    /// A connection ends; it may have been replaced long ago.
    Leave {
        line: usize,
    },
    /// One of a line's sockets ends, the others stay.
    LeaveOne {
        line: usize,
        which: u64,
    },
    Ask {
        line: usize,
        what: Ask,
    },
    /// Many requests in a row, until the client's connection is not read any more.
    Flood {
        line: usize,
        count: u64,
    },
    /// A person answers what the kernel asks.
    Answers {
        line: usize,
    },
    /// A client outside this front end runs a cell.
    Agent,
    /// SIGSTOP and SIGCONT.
    Freezes,
    Thaws,
    KernelEnds {
        how: u64,
    },
    KernelComes,
    /// A socket to the kernel is lost, with what was not written to it.
    LinkDrops {
        which: u64,
    },
    /// The kernel does not read: the socket is full.
    LinkFills {
        which: u64,
    },
    IopubDrops,
    /// The kernel's own iopub queue was full: it has dropped the `idle` of a request.
    IdleDrops {
        which: u64,
    },
    /// The kernel does not listen on stdin.
    StdinAbsent {
        which: u64,
    },
    /// SIGINT to the proxy.
    Interrupts,
    /// No descriptors are left.
    MakesRoom,
    /// The slow subscriber reads what waits for it.
    SlowReads,
    /// The slow subscriber, if it was cut, subscribes again.
    SlowReturns,
}

/// The kinds of messages that a client sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Cell,
    /// A cell that calls `input()`.
    Input,
    /// Code that a front end runs for itself.
    Silent,
    Complete,
    Info,
    InfoOnControl,
    Interrupt,
    Shutdown,
    /// A message that has no reply.
    Comm,
    /// VS Code's start-up code and its probe.
    Setup,
    Probe,
    /// A header that cannot be read.
    Nonsense,
}

/// How many connections there are: two with the same identity, two with others, one anonymous.
pub(super) const LINES: usize = 5;

/// Draws the steps of one world.
pub(super) fn steps(rng: &mut Rng) -> Vec<Step> {
    let count = 15 + rng.below(40);
    (0..count).map(|_| step(rng)).collect()
}

fn step(rng: &mut Rng) -> Step {
    let line = rng.below(LINES as u64) as usize;
    let which = rng.next();
    match rng.below(71) {
        0..18 => Step::Flow {
            moves: 1 + rng.below(24),
            order: which,
        },
        18..22 => Step::Pass {
            ms: [1, 40, 250, 1_200][rng.below(4) as usize],
        },
        22 => Step::Pass {
            ms: [3_000, 11_000, 31_000, 61_000][rng.below(4) as usize],
        },
        23 => Step::Wakes {
            ms: [500, 40_000, 8 * 3_600_000][rng.below(3) as usize],
        },
        24..28 => Step::Join { line },
        28..30 => Step::Leave { line },
        30 => Step::LeaveOne { line, which },
        31..49 => Step::Ask {
            line,
            what: ask(rng),
        },
        49 => Step::Flood {
            line,
            count: 2 + rng.below(30),
        },
        50 => Step::Answers { line },
        51..53 => Step::Agent,
        53 => Step::Freezes,
        54 => Step::Thaws,
        55 => Step::KernelEnds { how: which },
        56..58 => Step::KernelComes,
        58 | 59 => Step::LinkDrops { which },
        60 => Step::LinkFills { which },
        61 => Step::IopubDrops,
        62 => Step::StdinAbsent { which },
        63 => Step::Interrupts,
        64 => Step::SlowReads,
        65..67 => Step::MakesRoom,
        67..69 => Step::IdleDrops { which },
        _ => Step::SlowReturns,
    }
}

fn ask(rng: &mut Rng) -> Ask {
    match rng.below(21) {
        0..8 => Ask::Cell,
        8..10 => Ask::Input,
        10 => Ask::Silent,
        11..13 => Ask::Complete,
        13 => Ask::Info,
        14 => Ask::InfoOnControl,
        15 => Ask::Interrupt,
        16 => Ask::Comm,
        17 => Ask::Setup,
        18 => Ask::Probe,
        19 => Ask::Shutdown,
        _ => Ask::Nonsense,
    }
}
