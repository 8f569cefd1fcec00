//! The rows of the table. Both sides of a row take turns, so that a machine whose speed drifts
//! drifts for both.

use std::time::{Duration, Instant};

use super::client::{Client, Flooder};
use super::process::{KernelKind, Started, World, wait_for_port};
use super::table::{self, median, p99, show};

/// How many turns each side of a pair takes.
const TURNS: usize = 15;

pub async fn run(filters: &[String]) {
    let wanted = |name: &str| {
        filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str()))
    };
    table::head();
    if wanted("fake") {
        kernel_rows("fake kernel", KernelKind::Fake, Flooder::Fake, 300).await;
    }
    if wanted("ipykernel") {
        kernel_rows("ipykernel", KernelKind::Ipykernel, Flooder::Ipykernel, 60).await;
    }
    if wanted("launch") {
        launch().await;
    }
}

async fn kernel_rows(name: &str, kind: KernelKind, flooder: Flooder, trips: usize) {
    let world = World::start(kind).await;
    let (proxy, front, _) = world.launch();
    wait_for_port(&front).await;
    let mut direct = Client::connect(&world.kernel).await;
    let mut through = Client::connect(&front).await;
    round_trips(name, &proxy, &mut direct, &mut through, trips).await;
    let sizes: &[(usize, usize)] = match kind {
        KernelKind::Fake => &[(20_000, 100), (5_000, 10_000), (50, 1_000_000)],
        KernelKind::Ipykernel => &[(20_000, 100)],
    };
    for (messages, bytes) in sizes {
        flood(
            name,
            flooder,
            &proxy,
            (&mut direct, &mut through),
            *messages,
            *bytes,
        )
        .await;
    }
    table::alone(
        &format!("{name}: memory afterwards"),
        &format!("{:.1} MB", proxy.memory_kib("VmRSS") as f64 / 1024.0),
        &format!("peak {:.1} MB", proxy.memory_kib("VmHWM") as f64 / 1024.0),
    );
    drop(world.process);
}

async fn round_trips(
    name: &str,
    proxy: &Started,
    direct: &mut Client,
    through: &mut Client,
    trips: usize,
) {
    let msg_type = "kernel_info_request";
    direct.round_trips(msg_type, trips).await;
    through.round_trips(msg_type, trips).await;
    let (mut straight, mut proxied, mut all) = (Vec::new(), Vec::new(), (Vec::new(), Vec::new()));
    let cpu = proxy.cpu();
    for _ in 0..TURNS {
        let times = direct.round_trips(msg_type, trips).await;
        all.0.extend(times.iter().copied());
        straight.push(median(times));
        let times = through.round_trips(msg_type, trips).await;
        all.1.extend(times.iter().copied());
        proxied.push(median(times));
    }
    let cpu = (proxy.cpu() - cpu) / u32::try_from(TURNS * trips).expect("a small number");
    let note = format!("proxy's CPU {} a round trip", show(cpu));
    table::pair(
        &format!("{name}: round trip, 1 KB, p50"),
        median(straight),
        median(proxied),
        &note,
    );
    table::pair(
        &format!("{name}: round trip, 1 KB, p99"),
        p99(all.0),
        p99(all.1),
        "",
    );
}

async fn flood(
    name: &str,
    flooder: Flooder,
    proxy: &Started,
    clients: (&mut Client, &mut Client),
    messages: usize,
    bytes: usize,
) {
    let (direct, through) = clients;
    let turns = 5;
    let (mut straight, mut proxied, mut lost) = (Vec::new(), Vec::new(), (0, 0));
    let mut cpu = Duration::ZERO;
    for _ in 0..turns {
        let (came, took) = direct.flood(flooder, messages, bytes).await;
        lost.0 += messages - came;
        straight.push(took);
        let before = proxy.cpu();
        let (came, took) = through.flood(flooder, messages, bytes).await;
        cpu += proxy.cpu() - before;
        lost.1 += messages - came;
        proxied.push(took);
    }
    let each = cpu / u32::try_from(turns * messages).expect("a small number");
    let note = format!(
        "lost {} direct, {} through; proxy's CPU {} a message",
        lost.0,
        lost.1,
        show(each)
    );
    table::pair(
        &format!("{name}: iopub, {messages} × {bytes} B"),
        median(straight),
        median(proxied),
        &note,
    );
}

/// Spawn to first `kernel_info_reply`, for a client that dials every millisecond.
async fn launch() {
    let world = World::start(KernelKind::Ipykernel).await;
    Client::connect(&world.kernel).await;
    let (mut launches, mut ends, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..50 {
        let start = Instant::now();
        let (mut proxy, front, _) = world.launch();
        wait_for_port(&front).await;
        Client::first_reply(&front).await;
        launches.push(start.elapsed());
        memory.push(Duration::from_secs(proxy.memory_kib("VmRSS")));
        ends.push(proxy.terminate());
    }
    table::alone(
        "launch to first kernel_info_reply, p50",
        &show(median(launches)),
        "50 launches, live ipykernel",
    );
    table::alone("SIGTERM to exit, p50", &show(median(ends)), "");
    let kib = median(memory).as_secs();
    table::alone(
        "idle memory",
        &format!("{:.1} MB", kib as f64 / 1024.0),
        "resident",
    );
}
