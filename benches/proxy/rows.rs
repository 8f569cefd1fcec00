//! The rows of the table. Both sides of a row take turns, so that a machine whose speed drifts
//! drifts for both.

use std::process::Command;
use std::time::{Duration, Instant};

use super::client::{Client, Flooder};
use super::process::{KernelKind, Started, Way, World, wait_for_port};
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
    if wanted("libzmq") {
        libzmq().await;
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
    round_trips(name, &world, trips).await;
    let sizes: &[(usize, usize)] = match kind {
        KernelKind::Fake => &[(20_000, 100), (5_000, 10_000), (50, 1_000_000)],
        KernelKind::Ipykernel | KernelKind::Libzmq => &[(20_000, 100)],
    };
    for (messages, bytes) in sizes {
        flood(name, flooder, &world, *messages, *bytes).await;
    }
}

async fn round_trips(name: &str, world: &World, trips: usize) {
    let msg_type = "kernel_info_request";
    let mut medians = [(); 3].map(|()| Vec::new());
    let mut all = [(); 3].map(|()| Vec::new());
    let mut cpu = [Duration::ZERO; 3];
    for _ in 0..TURNS {
        for (side, way) in Way::ALL.into_iter().enumerate() {
            let (between, info) = world.go(way).await;
            let mut client = Client::connect(&info).await;
            client.round_trips(msg_type, trips / 10).await;
            let before = between.as_ref().map(Started::cpu);
            let times = client.round_trips(msg_type, trips).await;
            cpu[side] +=
                between.as_ref().map(Started::cpu).unwrap_or_default() - before.unwrap_or_default();
            all[side].extend(times.iter().copied());
            medians[side].push(median(times));
        }
    }
    let each = cpu.map(|cpu| show(cpu / u32::try_from(TURNS * trips).expect("a small number")));
    let note = format!("CPU a round trip: pump {}, nb-proxy {}", each[1], each[2]);
    table::sides(
        &format!("{name}: round trip 1 KB, p50"),
        medians.map(median),
        &note,
    );
    table::sides(&format!("{name}: round trip 1 KB, p99"), all.map(p99), "");
}

/// The fake kernel's round trip, with libzmq for the kernel and for the client.
async fn libzmq() {
    let world = World::start(KernelKind::Libzmq).await;
    let (_pump, pump) = world.pump();
    let (_proxy, front, file) = world.launch();
    wait_for_port(&pump).await;
    wait_for_port(&front).await;
    let output = Command::new(super::python::interpreter())
        .arg(super::process::libzmq())
        .arg("client")
        .args([&world.kernel_file, &world.pump_file(), &file])
        .output()
        .expect("run the client");
    assert!(output.status.success(), "the client failed: {output:?}");
    let micros: [Vec<f64>; 3] =
        serde_json::from_slice(&output.stdout).expect("the client prints its times");
    let times = micros.map(|times| {
        let time = |micros: f64| Duration::from_secs_f64(micros / 1e6);
        times.into_iter().map(time).collect::<Vec<_>>()
    });
    table::sides(
        "libzmq: round trip 1 KB, p50",
        times.clone().map(median),
        "kernel and client on pyzmq",
    );
    table::sides("libzmq: round trip 1 KB, p99", times.map(p99), "");
}

async fn flood(name: &str, flooder: Flooder, world: &World, messages: usize, bytes: usize) {
    let turns = 5;
    let mut times = [(); 3].map(|()| Vec::new());
    let mut lost = [0; 3];
    let mut cpu = [Duration::ZERO; 3];
    let mut peak = 0;
    for _ in 0..turns {
        for (side, way) in Way::ALL.into_iter().enumerate() {
            let (between, info) = world.go(way).await;
            let mut client = Client::connect(&info).await;
            let before = between.as_ref().map(Started::cpu);
            let (came, took) = client.flood(flooder, messages, bytes).await;
            cpu[side] +=
                between.as_ref().map(Started::cpu).unwrap_or_default() - before.unwrap_or_default();
            lost[side] += messages - came;
            times[side].push(took);
            if way == Way::Proxy {
                peak = peak.max(between.map_or(0, |proxy| proxy.memory_kib("VmHWM")));
            }
        }
    }
    let each = cpu.map(|cpu| show(cpu / u32::try_from(turns * messages).expect("a small number")));
    let note = format!(
        "CPU a message: pump {}, nb-proxy {}; its peak {:.0} MB; lost {lost:?}",
        each[1],
        each[2],
        peak as f64 / 1024.0
    );
    table::sides(
        &format!("{name}: iopub {messages} × {bytes} B"),
        times.map(median),
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
