//! The rows of the table. The columns of a row are measured alternately, so that a machine whose speed
//! drifts affects all of them.

use std::process::Command;
use std::time::{Duration, Instant};

use nb::wire::Transport;

use super::client::{Client, Flood, Flooder};
use super::crowd::{Crowd, stand_still};
use super::table::{CPU, Cell, Line, PEAK, TIME, Table, median, quantile, show};
use super::way::{Way, beside};
use super::world::{KernelKind, Reached, World, wait_for_port};
use KernelKind::{Fake, Ipykernel, Libzmq};
use Transport::{Ipc, Tcp};

/// One row: the work, the kernel, and the number of turns for each column.
struct Row {
    kernel: KernelKind,
    /// The kernel's transport; the client's side is always TCP.
    transport: Transport,
    work: Work,
    turns: usize,
}

/// The work that is done in one turn.
#[derive(Clone, Copy)]
enum Work {
    /// The number of round trips of about 1 KB.
    Trips(usize),
    Flood {
        messages: usize,
        bytes: usize,
        in_buffer: bool,
    },
    /// A round trip of a comm message with a buffer of this many bytes.
    Echo(usize),
    /// The number of clients, and of the messages of 100 bytes that each is to receive.
    Crowd { clients: usize, messages: usize },
    /// A flood while another subscriber has stopped reading.
    Stopped { messages: usize, bytes: usize },
    /// The time from the launch to the first reply, the memory at rest, and the time from SIGTERM to the
    /// end.
    Life,
}

const MB: usize = 1_000_000;

fn rows() -> Vec<Row> {
    let row = |kernel, transport, turns, work| Row {
        kernel,
        transport,
        work,
        turns,
    };
    let flood = |messages, bytes| Work::Flood {
        messages,
        bytes,
        in_buffer: false,
    };
    let buffers = |messages, bytes| Work::Flood {
        messages,
        bytes,
        in_buffer: true,
    };
    vec![
        row(Fake, Tcp, 9, Work::Trips(500)),
        row(Fake, Ipc, 9, Work::Trips(500)),
        row(Libzmq, Tcp, 9, Work::Trips(300)),
        row(Libzmq, Ipc, 9, Work::Trips(300)),
        row(Ipykernel, Tcp, 9, Work::Trips(60)),
        row(Ipykernel, Ipc, 9, Work::Trips(60)),
        row(Fake, Tcp, 5, flood(200_000, 100)),
        row(Fake, Tcp, 5, flood(20_000, 10_000)),
        row(Fake, Tcp, 5, flood(50, MB)),
        row(Fake, Tcp, 5, flood(4, 50 * MB)),
        row(Fake, Tcp, 5, buffers(50, MB)),
        row(Fake, Tcp, 5, buffers(4, 50 * MB)),
        row(Fake, Tcp, 3, buffers(1, 200 * MB)),
        row(Ipykernel, Tcp, 3, flood(20_000, 100)),
        row(Fake, Tcp, 5, Work::Echo(100 * MB)),
        row(Ipykernel, Tcp, 5, Work::Echo(100 * MB)),
        row(
            Fake,
            Tcp,
            5,
            Work::Crowd {
                clients: 10,
                messages: 10_000,
            },
        ),
        row(
            Fake,
            Tcp,
            3,
            Work::Crowd {
                clients: 1_000,
                messages: 100,
            },
        ),
        row(
            Fake,
            Tcp,
            3,
            Work::Stopped {
                messages: 200_000,
                bytes: 1_000,
            },
        ),
        row(Ipykernel, Tcp, 15, Work::Life),
    ]
}

impl Row {
    fn name(&self) -> String {
        let kernel = match self.kernel {
            Fake => "fake kernel",
            Libzmq => "libzmq kernel",
            Ipykernel => "ipykernel",
        };
        let what = match self.work {
            Work::Trips(_) => {
                let to = if self.transport == Tcp { "TCP" } else { "IPC" };
                format!("round trip 1 KB, TCP to {to}")
            }
            Work::Flood {
                messages,
                bytes,
                in_buffer,
            } => {
                let place = if in_buffer { "buffers" } else { "contents" };
                format!("iopub {} × {}, {place}", grouped(messages), size(bytes))
            }
            Work::Echo(bytes) => format!("comm echo of {}", size(bytes)),
            Work::Crowd { clients, messages } => {
                let clients = grouped(clients);
                format!(
                    "{clients} clients, iopub {} × 100 B each",
                    grouped(messages)
                )
            }
            Work::Stopped { messages, bytes } => {
                let messages = grouped(messages);
                format!("one stops reading, iopub {messages} × {}", size(bytes))
            }
            Work::Life => "launch, rest, end".to_owned(),
        };
        format!("{kernel}: {what}")
    }

    fn flooder(&self) -> Flooder {
        match self.kernel {
            Ipykernel => Flooder::Ipykernel,
            Fake | Libzmq => Flooder::Fake,
        }
    }

    /// Returns the row's lines in the table.
    fn lines(&self) -> Vec<Line> {
        match self.work {
            Work::Trips(_) => vec![
                ("p50", "p50_s", |cell| median(&cell.times), show),
                ("p99", "p99_s", |cell| quantile(&cell.times, 99), show),
                CPU,
                PEAK,
            ],
            Work::Crowd { .. } => vec![
                TIME,
                (
                    "all joined after",
                    "join_s",
                    |cell| median(&cell.others),
                    show,
                ),
                CPU,
                PEAK,
            ],
            Work::Life => vec![
                (
                    "launch to first reply",
                    "launch_s",
                    |cell| median(&cell.times),
                    show,
                ),
                ("CPU of that", "cpu_s", |cell| median(&cell.cpu), show),
                (
                    "SIGTERM to exit",
                    "end_s",
                    |cell| median(&cell.others),
                    show,
                ),
                (
                    "private MB at rest",
                    "private_kib",
                    |cell| (cell.private_kib > 0).then_some(cell.private_kib as f64),
                    PEAK.3,
                ),
                (
                    "PSS MB at rest",
                    "pss_kib",
                    |cell| (cell.pss_kib > 0).then_some(cell.pss_kib as f64),
                    PEAK.3,
                ),
            ],
            _ => vec![TIME, CPU, PEAK],
        }
    }

    /// Does the work once for one column; `None` if it did not end, and then nothing is added.
    async fn turn(&self, world: &World, way: Way, cell: &mut Cell) -> Option<()> {
        if let Work::Life = self.work {
            return life(world, way, cell).await;
        }
        let reached = world.reach(way).await;
        match self.work {
            Work::Trips(count) if self.kernel == Libzmq => {
                let output = Command::new(super::python::interpreter())
                    .arg(beside("libzmq.py"))
                    .arg("client")
                    .arg(&reached.file)
                    .arg(count.to_string())
                    .output()
                    .expect("run the client");
                assert!(output.status.success(), "the client failed: {output:?}");
                let micros: Vec<f64> = serde_json::from_slice(&output.stdout).expect("its times");
                let times = micros
                    .iter()
                    .map(|micros| Duration::from_secs_f64(micros / 1e6));
                cell.times.extend(times);
            }
            Work::Trips(count) => {
                let mut client = Client::connect(&reached.info).await;
                client.round_trips(count / 10).await;
                let before = reached.cpu();
                cell.times.extend(client.round_trips(count).await);
                cell.note_cpu(&reached, before, count);
            }
            Work::Flood {
                messages,
                bytes,
                in_buffer,
            } => {
                let mut client = Client::connect(&reached.info).await;
                let flood = Flood {
                    messages,
                    bytes,
                    in_buffer,
                };
                let before = reached.cpu();
                let flooding = client.flood(self.flooder(), &flood);
                let (came, took) = tokio::time::timeout(TIMEOUT, flooding).await.ok()?;
                cell.note_cpu(&reached, before, messages);
                cell.lost += messages - came;
                cell.times.push(took);
            }
            Work::Echo(bytes) => {
                let mut client = Client::connect(&reached.info).await;
                let comm = match self.kernel {
                    Ipykernel => client.open_echo().await,
                    _ => "any".to_owned(),
                };
                let before = reached.cpu();
                cell.times.push(client.echo(&comm, bytes).await);
                cell.note_cpu(&reached, before, 1);
            }
            Work::Crowd { clients, messages } => {
                let (crowd, joined) = Crowd::join(&reached.info, clients).await?;
                let mut client = Client::connect(&reached.info).await;
                crowd.forget();
                let flood = Flood {
                    messages,
                    bytes: 100,
                    in_buffer: false,
                };
                let before = reached.cpu();
                let start = Instant::now();
                let (_, missing) = tokio::join!(
                    tokio::time::timeout(TIMEOUT, client.flood(self.flooder(), &flood)),
                    crowd.hear(messages),
                );
                cell.times.push(start.elapsed());
                cell.others.push(joined);
                cell.note_cpu(&reached, before, messages);
                cell.lost += missing;
            }
            Work::Stopped { messages, bytes } => {
                let _standing = stand_still(&reached.info).await;
                let mut client = Client::connect(&reached.info).await;
                let flood = Flood {
                    messages,
                    bytes,
                    in_buffer: false,
                };
                let before = reached.cpu();
                let flooding = client.flood(self.flooder(), &flood);
                let flooded = tokio::time::timeout(TIMEOUT, flooding).await;
                cell.peak_kib = cell.peak_kib.max(reached.peak_kib());
                let (came, took) = flooded.ok()?;
                cell.note_cpu(&reached, before, messages);
                cell.lost += messages - came;
                cell.times.push(took);
            }
            Work::Life => unreachable!("done above"),
        }
        cell.peak_kib = cell.peak_kib.max(reached.peak_kib());
        Some(())
    }
}

/// How long a turn may take before it counts as stalled.
const TIMEOUT: Duration = Duration::from_secs(60);

impl Cell {
    /// Records the processor time since `before`, divided by the number of messages.
    fn note_cpu(&mut self, reached: &Reached, before: Duration, messages: usize) {
        if reached.between.is_some() {
            let messages = u32::try_from(messages).expect("a small number");
            self.cpu.push((reached.cpu() - before) / messages);
        }
    }
}

/// Measures the time from the launch to the first `kernel_info_reply`, for a client that dials every
/// millisecond.
async fn life(world: &World, way: Way, cell: &mut Cell) -> Option<()> {
    if way == Way::Direct {
        return Some(());
    }
    let start = Instant::now();
    let mut reached = world.launch(way);
    wait_for_port(&reached.info).await;
    Client::first_reply(&reached.info).await;
    cell.times.push(start.elapsed());
    cell.note_cpu(&reached, Duration::ZERO, 1);
    let between = reached.between.as_mut()?;
    cell.private_kib = cell.private_kib.max(between.private_kib());
    cell.pss_kib = cell.pss_kib.max(between.pss_kib());
    cell.others.push(between.terminate());
    Some(())
}

/// Runs the rows whose names contain one of these words, or all rows, with these columns.
pub async fn run(words: &[String], columns: Vec<Way>) {
    let columns: Vec<_> = columns.into_iter().filter(|way| way.is_there()).collect();
    let mut table = Table::begin(columns.clone());
    for row in rows() {
        let name = row.name();
        if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
            continue;
        }
        let mut cells: Vec<Cell> = columns.iter().map(|_| Cell::default()).collect();
        let world = World::start(row.kernel, row.transport).await;
        if row.kernel == Ipykernel {
            // ipykernel takes longer for its first request.
            Client::connect(&world.reach(Way::Direct).await.info).await;
        }
        for _ in 0..row.turns {
            for (way, cell) in columns.iter().zip(&mut cells) {
                // A column that stalled once is not tried again.
                if !cell.stalled {
                    cell.stalled = row.turn(&world, *way, cell).await.is_none();
                }
            }
        }
        table.row(&name, &cells, &row.lines());
    }
    table.end();
}

fn size(bytes: usize) -> String {
    match bytes {
        1_000_000.. => format!("{} MB", bytes / MB),
        10_000.. => format!("{} KB", bytes / 1_000),
        _ => format!("{} B", grouped(bytes)),
    }
}

fn grouped(number: usize) -> String {
    match (number / 1_000, number % 1_000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{thousands},{rest:03}"),
    }
}
