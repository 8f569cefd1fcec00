//! The steps of a chaos test, drawn from a seed.

use super::super::world::Rng;

/// One step. It chooses its subject among what exists when it runs, so that a sequence stays valid when some
/// of its steps are removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// `count` pending events happen, in an order that a number chooses.
    RunEvents {
        count: u64,
        order: u64,
    },
    /// Time passes, timer by timer.
    Advance {
        ms: u64,
    },
    /// The machine wakes up: all timers of this period are due at once.
    WakeUp {
        ms: u64,
    },
    /// A connection is made; it replaces one with the same identity.
    Connect {
        connection: usize,
    },
    /// A connection ends; it may have been replaced long ago.
    Disconnect {
        connection: usize,
    },
    /// One of a client's connections ends, the others stay.
    DisconnectOne {
        connection: usize,
        choice: u64,
    },
    Send {
        connection: usize,
        kind: RequestKind,
    },
    /// Many requests in a row, until the client's connection is not read any more.
    Flood {
        connection: usize,
        count: u64,
    },
    /// A person answers the oldest prompt.
    AnswerPrompt {
        connection: usize,
    },
    /// A client outside this front end runs a cell.
    AgentCell,
    /// SIGSTOP and SIGCONT.
    FreezeKernel,
    ThawKernel,
    EndKernel {
        choice: u64,
    },
    StartKernel,
    /// A socket to the kernel is lost, with what was not written to it.
    DropLink {
        choice: u64,
    },
    /// The kernel does not read: the socket is full.
    FillLink {
        choice: u64,
    },
    DropIopub,
    /// The kernel's own iopub queue was full: it has dropped the `idle` of a request.
    DropIdle {
        choice: u64,
    },
    /// The kernel does not listen on stdin.
    StdinAbsent {
        choice: u64,
    },
    /// SIGINT to the proxy.
    Interrupt,
    /// No descriptors are left.
    CloseIdleLinks,
    /// The slow subscriber reads what waits for it.
    SlowRead,
    /// The slow subscriber, if it was cut, subscribes again.
    SlowResubscribe,
}

/// The kinds of messages that a client sends.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestKind {
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

/// The number of connections: two with the same identity, two with others, one anonymous.
pub(super) const CONNECTIONS: usize = 5;

/// Draws the steps of one world.
pub(super) fn draw(rng: &mut Rng) -> Vec<Step> {
    let count = 15 + rng.below(40);
    (0..count).map(|_| draw_step(rng)).collect()
}

fn draw_step(rng: &mut Rng) -> Step {
    let connection = rng.below(CONNECTIONS as u64) as usize;
    let choice = rng.next();
    match rng.below(71) {
        0..18 => Step::RunEvents {
            count: 1 + rng.below(24),
            order: choice,
        },
        18..22 => Step::Advance {
            ms: [1, 40, 250, 1_200][rng.below(4) as usize],
        },
        22 => Step::Advance {
            ms: [3_000, 11_000, 31_000, 61_000][rng.below(4) as usize],
        },
        23 => Step::WakeUp {
            ms: [500, 40_000, 8 * 3_600_000][rng.below(3) as usize],
        },
        24..28 => Step::Connect { connection },
        28..30 => Step::Disconnect { connection },
        30 => Step::DisconnectOne { connection, choice },
        31..49 => Step::Send {
            connection,
            kind: request_kind(rng),
        },
        49 => Step::Flood {
            connection,
            count: 2 + rng.below(30),
        },
        50 => Step::AnswerPrompt { connection },
        51..53 => Step::AgentCell,
        53 => Step::FreezeKernel,
        54 => Step::ThawKernel,
        55 => Step::EndKernel { choice },
        56..58 => Step::StartKernel,
        58 | 59 => Step::DropLink { choice },
        60 => Step::FillLink { choice },
        61 => Step::DropIopub,
        62 => Step::StdinAbsent { choice },
        63 => Step::Interrupt,
        64 => Step::SlowRead,
        65..67 => Step::CloseIdleLinks,
        67..69 => Step::DropIdle { choice },
        _ => Step::SlowResubscribe,
    }
}

fn request_kind(rng: &mut Rng) -> RequestKind {
    match rng.below(21) {
        0..8 => RequestKind::Cell,
        8..10 => RequestKind::Input,
        10 => RequestKind::Silent,
        11..13 => RequestKind::Complete,
        13 => RequestKind::Info,
        14 => RequestKind::InfoOnControl,
        15 => RequestKind::Interrupt,
        16 => RequestKind::Comm,
        17 => RequestKind::Setup,
        18 => RequestKind::Probe,
        19 => RequestKind::Shutdown,
        _ => RequestKind::Nonsense,
    }
}
