//! Notebooks whose kernels run on servers.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use super::Server;
use super::cutter::{Cutter, Loss};
use crate::nb::{Output, nb, output_of, until};
use crate::python;
use crate::world::{World, succeed};

/// Makes a world whose notebook `t.ipynb` has a kernel on the server.
fn opened(server: &Server) -> World {
    let world = World::new();
    server.add_to(&world, "gpu");
    open(&world).ended(0);
    world
}

fn open(world: &World) -> Output {
    nb(world, ["open", "t.ipynb", "--server", "gpu", "--json"])
}

fn exec(world: &World, code: &str) -> Output {
    nb(world, ["run", "-n", "t.ipynb", "--timeout", "100", code])
}

/// Begins a cell in the notebook, in the background; returns its job.
fn begin(world: &World, code: &str) -> String {
    nb(world, ["insert", "t.ipynb", code]).ended(0);
    let began = nb(world, ["exec", "t.ipynb", "-1", "-d", "--json"]).ended(0);
    began.json()["job"].as_str().expect("a job").to_owned()
}

fn status(world: &World) -> Value {
    let answer = nb(world, ["status", "--json"]).ended(0).json();
    answer["sessions"][0].clone()
}

/// Returns the text of the last cell in the notebook's file.
fn text(world: &World) -> String {
    let text = std::fs::read(world.project().join("t.ipynb")).expect("read the notebook");
    let notebook: Value = serde_json::from_slice(&text).expect("JSON");
    let cells = notebook["cells"].as_array().expect("cells");
    let outputs = cells.last().expect("a cell")["outputs"].clone();
    let mut text = String::new();
    for output in outputs.as_array().expect("outputs") {
        match &output["text"] {
            Value::Array(lines) => text.extend(lines.iter().filter_map(Value::as_str)),
            Value::String(line) => text += line,
            _ => text += output["evalue"].as_str().unwrap_or_default(),
        }
    }
    text
}

/// Code that prints numbers, until [`enough`].
fn counter(world: &World, seconds: f64) -> String {
    let path = world.project().join("enough");
    let _ = std::fs::remove_file(&path);
    format!(
        "import os, time\nn = 0\nwhile not os.path.exists({path:?}):\n    print(n, flush=True)\n    \
         n += 1\n    time.sleep({seconds})"
    )
}

/// Ends the counter; returns how many numbers it has printed.
fn enough(world: &World, job: &str) -> usize {
    std::fs::write(world.project().join("enough"), "").expect("write a file");
    nb(world, ["wait", job, "--timeout", "100"]).ended(0);
    let output = exec(world, "n").ended(0);
    output.stdout.trim().parse().expect("a number")
}

/// Waits until the cell has printed more.
fn prints_more(world: &World) {
    let before = text(world).len();
    until("some lines", || {
        (text(world).len() > before + 10).then_some(())
    });
}

fn counted(lines: usize) -> String {
    (0..lines).map(|number| format!("{number}\n")).collect()
}

/// Checks that each number is there once and in order, or that a gap is reported once; returns whether there is a gap.
#[track_caller]
fn reports_gap(text: &str, lines: usize) -> bool {
    if text == counted(lines) {
        return false;
    }
    assert_eq!(text.matches("[nb] ").count(), 1, "{text}");
    assert!(
        text.contains("of the kernel are missing") || text.contains("of the kernel is missing")
    );
    let numbers = text.lines().filter_map(|it| it.parse::<usize>().ok());
    let numbers: Vec<_> = numbers.collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{text}");
    true
}

/// A front end that moves a widget.
const WIDGET: &str = r#"
import sys
from jupyter_client import BlockingKernelClient

client = BlockingKernelClient(connection_file=sys.argv[1])
client.load_connection_file()
client.start_channels()
client.wait_for_ready(timeout=60)
content = {"comm_id": sys.argv[2], "data": {"value": 7}}
client.shell_channel.send(client.session.msg("comm_msg", content))
client.kernel_info(reply=True, timeout=60)
"#;

/// Uses a kernel on a server as people and agents do.
fn is_used(server: &Server) {
    let world = opened(server);
    let remote = status(&world)["remote"].clone();
    assert_eq!(remote["server"], "gpu");
    assert_eq!(remote["state"], "connected");
    exec(&world, "print('hello'); x = 41")
        .ended(0)
        .with("hello");
    exec(&world, "x + 1").ended(0).with("42");
    exec(&world, "1 / 0").ended(3).with("ZeroDivisionError");

    let asked = exec(&world, "name = input('name? ')\nprint('hi', name)").ended(7);
    asked.with("name? ");
    nb(&world, ["reply", "Ada"]).ended(0).with("hi Ada");

    let plot = "from IPython.display import Image, display\n\
        import base64\n\
        data = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=='\n\
        display(Image(data=base64.b64decode(data)))";
    nb(&world, ["insert", "t.ipynb", plot]).ended(0);
    nb(&world, ["exec", "t.ipynb", "-1"]).ended(0);
    let file = std::fs::read_to_string(world.project().join("t.ipynb")).expect("read it");
    assert!(file.contains("image/png"), "{file}");

    let job = begin(
        &world,
        "import time\nprint('begun')\nwhile True: time.sleep(0.05)",
    );
    until("its output", || {
        text(&world).contains("begun").then_some(())
    });
    nb(&world, ["interrupt", &job]).ended(0);
    nb(&world, ["wait", &job, "--timeout", "60"]).ended(130);
    exec(&world, "x + 1").ended(0).with("42");

    let comm = "from comm import create_comm\n\
        received = []\n\
        comm = create_comm(target_name='widget', data={'value': 1})\n\
        comm.on_msg(lambda message: received.append(message['content']['data']))\n\
        print(comm.comm_id)";
    let output = exec(&world, comm).ended(0);
    let file = status(&world)["connection_file"].clone();
    let mut front_end = world.command(python::with_servers());
    front_end.args([
        "-c",
        WIDGET,
        file.as_str().expect("a path"),
        output.stdout.trim(),
    ]);
    succeed(&mut front_end);
    exec(&world, "received").ended(0).with("{'value': 7}");

    let restarted = nb(&world, ["restart"]).ended(0).with("generation 2");
    assert!(!restarted.stdout.contains("pid"), "{restarted:?}");
    exec(&world, "'x' in globals()").ended(0).with("False");

    // What it leaves is found again.
    exec(&world, "left = 7").ended(0);
    nb(&world, ["shutdown", "--detach"])
        .ended(0)
        .with("let go of its kernel")
        .with("goes on running");
    open(&world).ended(0);
    exec(&world, "left").ended(0).with("7");

    // Another notebook attaches to the kernel of this one.
    let id = status(&world)["remote"]["kernel_id"].clone();
    let id = id.as_str().expect("an id");
    let other = ["open", "other.ipynb", "--server", "gpu", "--kernel-id", id];
    nb(&world, other)
        .ended(0)
        .with("kernel attached, which another program started");
    nb(&world, ["run", "-n", "other.ipynb", "left + 1"])
        .ended(0)
        .with("8");
    nb(&world, ["shutdown", "other.ipynb"])
        .ended(0)
        .with("let go of its kernel")
        .with("goes on running");
    exec(&world, "left").ended(0).with("7");

    let died = exec(
        &world,
        "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
    );
    died.ended(6).with("ended");
    nb(&world, ["status"]).ended(0).with("died");
    assert_eq!(status(&world)["remote"]["state"], "disconnected");
    open(&world).ended(0);
    exec(&world, "'left' in globals()").ended(0).with("False");
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    let none = nb(&world, ["kernels", "--server", "gpu", "--json"]).ended(0);
    let kernels = none.json()["running"].clone();
    assert!(kernels.is_null() || kernels == json!([]), "{kernels}");
}

#[test]
fn a_kernel_on_a_jupyter_server_is_used() {
    is_used(&Server::jupyter());
}

#[test]
fn a_kernel_on_a_server_without_a_token_is_used() {
    let (server, world) = (Server::open(), World::new());
    nb(&world, ["server", "add", "gpu", &server.url()]).ended(0);
    open(&world).ended(0);
    exec(&world, "6 * 7").ended(0).with("42");
    nb(&world, ["restart"]).ended(0);
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
}

#[test]
fn a_kernel_on_a_kernel_gateway_is_used() {
    is_used(&Server::kernel_gateway());
}

#[test]
fn a_kernel_on_an_enterprise_gateway_is_used() {
    is_used(&Server::enterprise_gateway());
}

#[test]
fn a_kernel_on_a_hub_is_used() {
    if let Some(hub) = Server::hub() {
        is_used(&hub);
    }
}

/// Makes a world whose notebook has a kernel on the server, with a proxy in between that loses connections.
fn opened_behind(server: &Server) -> (World, Cutter) {
    opened_in(World::new(), server)
}

fn opened_in(world: World, server: &Server) -> (World, Cutter) {
    let cutter = Cutter::new(server.port());
    let mut command = world.nb();
    command.args(["server", "add", "gpu", &cutter.url(), "--token-file"]);
    succeed(command.arg(server.token_file()));
    open(&world).ended(0);
    (world, cutter)
}

/// `NB_TEST_CUTS` is how often the connection is lost: 200 takes part in no CI run.
#[test]
fn each_line_arrives_once_although_the_connection_is_lost_again_and_again() {
    let cuts = std::env::var("NB_TEST_CUTS").ok();
    let cuts: usize = cuts.and_then(|it| it.parse().ok()).unwrap_or(6);
    let server = Server::jupyter();
    let (world, cutter) = opened_behind(&server);
    let mut gaps = 0;
    let mut done = 0;
    while done < cuts {
        let job = begin(&world, &counter(&world, 0.02));
        for _ in 0..3.min(cuts - done) {
            cutter.wait_for_a_websocket();
            prints_more(&world);
            done += 1;
            match done % 3 {
                0 => cutter.cut(Loss::Close),
                1 => cutter.cut(Loss::Reset),
                _ => {
                    cutter.lose(Loss::Reset);
                    until("reconnecting", || {
                        (status(&world)["remote"]["state"] == "reconnecting").then_some(())
                    });
                    cutter.come_back();
                }
            }
        }
        // What is sent at the moment of a loss is lost, and so the cell must not end then.
        cutter.wait_for_a_websocket();
        prints_more(&world);
        let lines = enough(&world, &job);
        gaps += usize::from(reports_gap(&text(&world), lines));
    }
    eprintln!("{done} losses, {gaps} cells with a gap that is reported");
}

/// `NB_TEST_AWAY` is for how many seconds: 60 takes part in no CI run.
#[test]
fn what_is_sent_without_a_connection_waits_for_it() {
    let away = std::env::var("NB_TEST_AWAY").ok();
    let away: u64 = away.and_then(|it| it.parse().ok()).unwrap_or(1);
    let server = Server::jupyter();
    let (world, cutter) = opened_behind(&server);
    cutter.delay(Duration::from_millis(30));
    exec(&world, "x = 41").ended(0);
    let job = begin(&world, &counter(&world, 0.02));
    prints_more(&world);
    cutter.lose(Loss::Close);
    let since = Instant::now();
    until("reconnecting", || {
        (status(&world)["remote"]["state"] == "reconnecting").then_some(())
    });
    nb(
        &world,
        ["run", "-n", "t.ipynb", "--timeout", "3", "x += 1; x"],
    )
    .ended(4)
    .with("behind the connection to gpu, lost");
    // That the connection stays away is what is tested.
    std::thread::sleep(Duration::from_secs(away).saturating_sub(since.elapsed()));
    cutter.come_back();
    let lines = enough(&world, &job);
    reports_gap(&text(&world), lines);
    exec(&world, "x").ended(0).with("42");
}

/// Makes a world whose idle kernel has lost its connection, and remembers `x = 41`.
fn opened_and_lost(server: &Server) -> (World, Cutter) {
    let (world, cutter) = opened_behind(server);
    exec(&world, "x = 41").ended(0);
    cutter.lose(Loss::Close);
    until("reconnecting", || {
        (status(&world)["remote"]["state"] == "reconnecting").then_some(())
    });
    (world, cutter)
}

#[test]
fn an_interrupt_that_does_not_reach_the_server_is_no_interrupt() {
    let server = Server::jupyter();
    let (world, _cutter) = opened_and_lost(&server);
    nb(&world, ["interrupt", "t.ipynb", "--force"])
        .ended(1)
        .with("the kernel was not interrupted: server gpu: the connection to 127.0.0.1");
    let log = nb(&world, ["log", "t.ipynb", "--json"]).ended(0).stdout;
    assert!(!log.contains("interrupted"), "{log}");
}

#[test]
fn a_kernel_whose_connection_is_lost_is_not_taken_for_busy() {
    let server = Server::jupyter();
    let (world, cutter) = opened_and_lost(&server);
    let lost = "the connection to gpu is lost since";
    nb(&world, ["shutdown", "t.ipynb"])
        .ended(5)
        .with(lost)
        .with("nb shutdown --force t.ipynb")
        .with("nb shutdown --detach t.ipynb");
    nb(&world, ["shutdown", "--idle", "0s"]).ended(0).with(lost);
    nb(&world, ["vars", "t.ipynb"]).ended(4).with(lost);
    assert_eq!(status(&world)["state"], "disconnected");
    nb(&world, ["restart", "t.ipynb"])
        .ended(6)
        .with("the connection to 127.0.0.1");
    cutter.come_back();
    exec(&world, "x").ended(0).with("41");
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
}

#[test]
fn opening_a_notebook_again_makes_its_connection_at_once_or_says_why_there_is_none() {
    let server = Server::jupyter();
    let (world, cutter) = opened_and_lost(&server);
    open(&world)
        .ended(0)
        .with("the connection to gpu is lost since")
        .with("what you run waits for it");
    cutter.come_back();
    let opened = open(&world).ended(0);
    assert!(!opened.stdout.contains("is lost since"), "{opened:?}");
    assert_eq!(status(&world)["remote"]["state"], "connected");
    exec(&world, "x").ended(0).with("41");
}

#[test]
fn a_server_that_got_another_url_is_found_there_by_its_kernels() {
    let server = Server::jupyter();
    let (world, _cutter) = opened_and_lost(&server);
    let mut command = world.nb();
    command.args(["server", "add", "gpu", &server.url(), "--replace"]);
    succeed(command.arg("--token-file").arg(server.token_file()));
    open(&world).ended(0);
    assert_eq!(status(&world)["remote"]["state"], "connected");
    exec(&world, "x").ended(0).with("41");
}

#[test]
fn code_that_is_too_long_for_the_server_is_not_run_and_the_reason_is_told() {
    let server = Server::jupyter();
    let world = opened(&server);
    exec(&world, "x = 41").ended(0);
    let code = format!("x = 0  # {}", "x".repeat(11 << 20));
    std::fs::write(world.project().join("long.py"), code).expect("write the code");
    let mut command = world.command(std::path::Path::new("sh"));
    let run = "exec \"$0\" run -n t.ipynb --timeout 100 - < long.py";
    command.args(["-c", run, env!("CARGO_BIN_EXE_nb")]);
    output_of(&mut command)
        .ended(3)
        .with("gpu takes no message of 11 MiB");
    exec(&world, "x").ended(0).with("41");
}

#[test]
fn doctor_checks_the_server_of_a_notebooks_kernel_and_not_this_machines_python() {
    let server = Server::jupyter();
    let (world, cutter) = opened_behind(&server);
    let check = |about: &str| {
        let checks = nb(&world, ["doctor", "t.ipynb", "--json"]).json()["checks"].clone();
        let checks = checks.as_array().expect("checks");
        let found = checks.iter().find(|it| it["about"] == about);
        found.map(|it| (it["verdict"].clone(), it["text"].to_string()))
    };
    let (verdict, text) = check("server").expect("a check");
    assert_eq!(verdict, "good", "{text}");
    assert!(text.contains(&cutter.url()), "{text}");
    assert_eq!(check("connection").expect("a check").0, "good");
    assert_eq!(check("kernel"), None);
    cutter.lose(Loss::Close);
    let (verdict, text) = check("server").expect("a check");
    assert_eq!(verdict, "bad");
    assert!(text.contains("the connection to 127.0.0.1"), "{text}");
}

#[test]
fn opening_waits_no_longer_for_a_silent_server_than_it_was_told_to() {
    let (server, world) = (Server::jupyter(), World::new());
    let cutter = Cutter::new(server.port());
    let mut command = world.nb();
    command.args(["server", "add", "gpu", &cutter.url(), "--token-file"]);
    succeed(command.arg(server.token_file()));
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    cutter.delay(Duration::from_secs(60));
    let start = Instant::now();
    for notebook in ["t.ipynb", "new.ipynb"] {
        let words = ["open", notebook, "--server", "gpu", "--timeout", "1"];
        nb(&world, words)
            .ended(1)
            .with("no answer from 127.0.0.1 within 1 s");
    }
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn a_connection_that_is_silent_is_given_up_and_made_again() {
    let server = Server::jupyter();
    let world = World::new();
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    let settings = world.project().join(".nb/config.toml");
    std::fs::write(settings, "ping_interval = 2").expect("write the settings");
    let (world, cutter) = opened_in(world, &server);
    let job = begin(&world, &counter(&world, 0.1));
    prints_more(&world);
    cutter.cut(Loss::Stall);
    cutter.wait_for_a_websocket();
    let lines = enough(&world, &job);
    let text = text(&world);
    assert!(!text.contains("ConnectionLost"), "{text}");
    assert!(reports_gap(&text, lines), "what was on its way is lost");
}

#[test]
fn a_cell_outlives_the_process_that_holds_its_connection() {
    let server = Server::jupyter();
    let world = opened(&server);
    let job = begin(&world, &counter(&world, 0.02));
    for _ in 0..2 {
        prints_more(&world);
        kill_the_bridge(&world);
        exec_is_queued(&world);
    }
    let lines = enough(&world, &job);
    reports_gap(&text(&world), lines);
}

fn kill_the_bridge(world: &World) {
    let pid = status(world)["kernel_pid"].as_u64();
    let pid = pid.and_then(|pid| rustix::process::Pid::from_raw(pid.try_into().ok()?));
    let pid = pid.expect("the pid of the process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("kill it");
}

#[test]
fn a_question_outlives_the_process_that_holds_the_connection() {
    let server = Server::jupyter();
    let world = opened(&server);
    let asks = "one = input('one? ')\ntwo = input('two? ')\nprint(one, two)";
    let job = begin(&world, asks);
    nb(&world, ["wait", &job, "--timeout", "60"])
        .ended(7)
        .with("one? ");
    kill_the_bridge(&world);
    nb(&world, ["reply", &job, "1", "--timeout", "60"])
        .ended(7)
        .with("two? ");
    kill_the_bridge(&world);
    nb(&world, ["reply", &job, "2", "--timeout", "60"])
        .ended(0)
        .with("1 2");
    assert_eq!(text(&world), "1 2\n");
}

#[test]
fn an_answer_that_meets_a_connection_that_has_just_ended_is_sent_over_the_next() {
    let server = Server::jupyter();
    let world = opened(&server);
    let asks = "print(*[input(f'{it}? ') for it in range(6)])";
    let job = begin(&world, asks);
    nb(&world, ["wait", &job, "--timeout", "60"])
        .ended(7)
        .with("0? ");
    let record = world.project().join(".nb/jobs").join(&job);
    for number in 0..6 {
        let recorder = recorder(&world);
        // It sees the answer and the end of the connection at the same moment.
        signal(recorder, Signal::STOP);
        kill_the_bridge(&world);
        let words = ["reply", &job, &number.to_string(), "--timeout", "60"];
        let mut command = world.nb();
        command
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let reply = command.spawn();
        let reply = reply.expect("start nb reply");
        until("a request to the recorder", || {
            let requests = std::fs::read_dir(record.join("requests")).ok()?;
            requests.flatten().next()
        });
        signal(recorder, Signal::CONT);
        let output = reply.wait_with_output().expect("wait for nb reply");
        let wanted = if number < 5 { 7 } else { 0 };
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(wanted), "{number}: {stdout}");
    }
    assert!(text(&world).ends_with("0 1 2 3 4 5\n"), "{}", text(&world));
}

/// Returns the process that records the world's job.
fn recorder(world: &World) -> Pid {
    let is_recorder = |words: &String| words.contains("Record");
    let mut processes = world.processes().into_iter();
    let found = processes.find(|(_, words)| is_recorder(words));
    let pid = found.and_then(|(pid, _)| Pid::from_raw(pid));
    pid.unwrap_or_else(|| panic!("no recorder: {:#?}", world.processes()))
}

fn signal(process: Pid, signal: Signal) {
    rustix::process::kill_process(process, signal).expect("send a signal");
}

/// Any command brings the connection back.
fn exec_is_queued(world: &World) {
    nb(world, ["run", "-n", "t.ipynb", "-d", "'next'"]).ended(0);
    assert_eq!(status(world)["remote"]["state"], "connected");
}

#[test]
fn a_server_that_restarted_is_reported_and_the_notebook_is_opened_anew() {
    let mut server = Server::jupyter();
    let world = opened(&server);
    nb(
        &world,
        [
            "insert",
            "t.ipynb",
            "y = 6 * 7
print(y)",
        ],
    )
    .ended(0);
    nb(&world, ["exec", "t.ipynb", "-1"]).ended(0);
    // A server that stops interrupts its kernels first. A cell that ends by that ends before its kernel.
    let deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n";
    let job = begin(&world, &format!("{deaf}{}", counter(&world, 0.05)));
    until("some lines", || text(&world).contains("5\n").then_some(()));
    server.restart();
    let back = Instant::now();
    until("that the kernel is gone", || {
        (status(&world)["state"] == "died").then_some(())
    });
    let took = back.elapsed();
    eprintln!("reported {took:?} after the server's return");
    assert!(took.as_secs() < 5, "{took:?}");
    nb(&world, ["wait", &job, "--timeout", "60"]).ended(6);
    assert!(
        text(&world).contains("0\n1\n2\n3\n4\n5\n"),
        "{}",
        text(&world)
    );
    open(&world).ended(0);
    exec(&world, "y").ended(3).with("NameError");
    nb(&world, ["exec", "t.ipynb", "--replay"])
        .ended(0)
        .with("was running when it ended, and is left out");
    exec(&world, "y").ended(0).with("42");
}

#[test]
fn a_kernel_that_its_server_ended_is_reported() {
    let server = Server::jupyter();
    let world = opened(&server);
    let job = begin(&world, &counter(&world, 0.05));
    until("some lines", || text(&world).contains("5\n").then_some(()));
    let id = status(&world)["remote"]["kernel_id"].clone();
    let id = id.as_str().expect("an id");
    server.end_kernel(id);
    // The server interrupts the cell first, whose end may arrive before that of the kernel.
    let output = nb(&world, ["wait", &job, "--timeout", "60"]);
    let is_interrupted = output.code == Some(130) && output.stderr.contains("KeyboardInterrupt");
    assert!(
        is_interrupted || matches!(output.code, Some(1 | 6)),
        "{output:?}"
    );
    until("that it ended", || {
        (status(&world)["state"] == "died").then_some(())
    });
    assert!(text(&world).starts_with("0\n1\n2\n3\n4\n5\n"));
    let attach = ["open", "other.ipynb", "--server", "gpu", "--kernel-id", id];
    nb(&world, attach).ended(6).with("nb kernels --server gpu");
    assert!(!world.project().join("other.ipynb").exists());
    open(&world).ended(0);
    exec(&world, "6 * 7").ended(0).with("42");
}

#[test]
fn a_kernel_above_the_limit_is_refused() {
    let (server, world) = (Server::jupyter(), World::new());
    let url = format!("{}?token={}", server.url(), server.token());
    nb(&world, ["server", "add", "gpu", &url, "--max-kernels", "1"]).ended(0);
    open(&world).ended(0);
    let other = ["open", "other.ipynb", "--server", "gpu"];
    nb(&world, other).ended(5).with("t.ipynb");
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    nb(&world, other).ended(0);
    // A kernel that was left there counts when it is taken up again, and one that runs there.
    nb(&world, ["shutdown", "other.ipynb", "--detach"]).ended(0);
    open(&world).ended(0);
    nb(&world, other).ended(5).with("t.ipynb");
    let id = status(&world)["remote"]["kernel_id"].clone();
    let id = id.as_str().expect("an id");
    let third = ["open", "third.ipynb", "--server", "gpu", "--kernel-id", id];
    nb(&world, third).ended(5).with("t.ipynb");
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    nb(&world, other).ended(0);
    // On this machine it is another kernel.
    let here = ["open", "other.ipynb", "--own"];
    nb(&world, here).ended(5).with("nb shutdown");
}

#[test]
fn a_kernel_on_a_server_is_not_started_without_the_sandbox_that_was_asked_for() {
    let (server, world) = (Server::jupyter(), World::new());
    server.add_to(&world, "gpu");
    nb(&world, ["open", "t.ipynb", "--server", "gpu", "--sandbox"])
        .ended(2)
        .with("--sandbox");
    open(&world).ended(0);
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    for option in [
        &["--sandbox"][..],
        &["--memory", "1G"],
        &["--python", "/usr/bin/python3"],
        &["--transport", "tcp"],
        &["--install"],
    ] {
        let words = ["open", "t.ipynb"].iter().chain(option);
        nb(&world, words)
            .ended(5)
            .with(&format!("{} is for kernels of this machine", option[0]))
            .with("add --own");
    }
    open(&world).ended(0);
    exec(&world, "6 * 7").ended(0).with("42");
    // Nor is it verified on this machine without a word.
    nb(&world, ["verify", "t.ipynb"])
        .ended(5)
        .with("runs on gpu, where nb starts no second one")
        .with("--python PATH");
}

#[test]
fn a_token_that_expired_is_renewed_under_a_running_cell() {
    let server = Server::jupyter();
    let (world, cutter) = (World::new(), Cutter::new(server.port()));
    let file = world.project().join("token");
    std::fs::write(&file, "sesame-first").expect("write the token");
    cutter.take_token("sesame-first", server.token());
    let command = format!("cat {}", file.display());
    let add = [
        "server",
        "add",
        "gpu",
        &cutter.url(),
        "--token-command",
        &command,
    ];
    nb(&world, add).ended(0);
    open(&world).ended(0);
    // Nothing is on its way while the connection is lost, and the rest is printed while there is none.
    let gate = world.project().join("gate");
    let code = format!(
        "import os, time\nfor n in range(300):\n    print(n, flush=True)\n    \
         while n == 99 and not os.path.exists({gate:?}): time.sleep(0.01)"
    );
    let job = begin(&world, &code);
    until("some lines", || text(&world).contains("99\n").then_some(()));
    cutter.take_token("sesame-second", server.token());
    cutter.cut(Loss::Close);
    until("that the old token is tried", || {
        (cutter.refused() > 0).then_some(())
    });
    std::fs::write(&gate, "").expect("write a file");
    std::fs::write(&file, "sesame-second").expect("write the token");
    nb(&world, ["wait", &job, "--timeout", "100"]).ended(0);
    assert_eq!(text(&world), counted(300));
    for entry in ["proxy.log", "state.json"] {
        let text = std::fs::read_to_string(world.project().join(".nb").join(entry));
        assert!(!text.unwrap_or_default().contains("sesame"), "{entry}");
    }
}

#[test]
fn what_a_server_drops_is_reported() {
    let server = Server::jupyter();
    let world = opened(&server);
    // A server passes at most 1 MB a second on, unless a setting changes it.
    let job = begin(&world, "for n in range(30_000):\n    print('x' * 1000)");
    nb(&world, ["wait", &job, "--timeout", "100"]).ended(0);
    let text = text(&world);
    let lines = text.lines().filter(|it| it.starts_with("xxx")).count();
    let tail: String = text
        .lines()
        .filter(|line| !line.starts_with("xxx"))
        .collect();
    assert!(
        lines == 30_000 || tail.contains("rate exceeded"),
        "{lines}: {tail}"
    );
    eprintln!("{lines} of 30000 lines: {tail}");
}

/// Front ends that are not changed, on the kernelspec of `nb-proxy`.
#[test]
fn front_ends_share_a_kernel_on_a_server() {
    let server = Server::jupyter();
    let world = opened(&server);
    succeed(world.nb().arg("serve"));
    exec(&world, "from_agent = 5").ended(0);
    succeed(
        world
            .script("three_clients.py", "nb-shared")
            .args(["--count", "100"]),
    );
    succeed(&mut world.script("notebook.py", "nb-shared"));
    succeed(&mut world.script("interrupts.py", "nb-shared"));
    let suite = succeed(&mut world.script("kernel_suite.py", "nb-shared"));
    for outcome in [": \"failed\"", ": \"error\""] {
        assert!(!suite.contains(outcome), "{suite}");
    }
}

#[test]
fn nb_starts_and_restarts_the_kernel_of_a_front_end_on_a_server() {
    let server = Server::jupyter();
    let world = opened(&server);
    succeed(&mut world.script("on_server.py", "nb-shared"));
    succeed(world.nb().arg("serve"));
    exec(&world, "x").ended(0).with("6");
}

#[test]
fn files_that_cells_name_and_the_server_does_not_have_are_reported() {
    let (server, world) = (Server::jupyter(), World::new());
    server.add_to(&world, "gpu");
    let data = world.project().join("data");
    std::fs::create_dir(&data).expect("make a folder");
    std::fs::write(data.join("x.csv"), "1,2\n").expect("write a file");
    nb(&world, ["open", "t.ipynb", "--no-kernel"]).ended(0);
    let code = "print(open('data/x.csv').read(), 'not.csv')";
    nb(&world, ["insert", "t.ipynb", code]).ended(0);
    let notes = open(&world).ended(0).json()["notes"].to_string();
    let note =
        "cells name a file that gpu does not have: data/x.csv; to copy: nb cp data/x.csv gpu:data/";
    assert!(notes.contains(note), "{notes}");
    nb(&world, ["exec", "t.ipynb", "-1"]).ended(3);
    nb(&world, ["cp", "data/x.csv", "gpu:data/"]).ended(0);
    nb(&world, ["exec", "t.ipynb", "-1"]).ended(0).with("1,2");
    nb(&world, ["shutdown", "t.ipynb"]).ended(0);
    let notes = open(&world).ended(0).json()["notes"].to_string();
    assert!(!notes.contains("nb cp"), "{notes}");
}

#[test]
fn the_connection_of_a_deleted_notebook_is_ended_and_its_kernel_goes_on() {
    let server = Server::jupyter();
    let world = opened(&server);
    exec(&world, "left = 7").ended(0);
    let id = status(&world)["remote"]["kernel_id"].clone();
    let id = id.as_str().expect("an id");
    let message = "the connection to gpu of";
    let gc = |words: &[&str]| {
        let output = nb(&world, words).ended(0);
        output.stdout.contains(message) || output.stderr.contains(message)
    };
    assert!(!gc(&["gc"]));
    std::fs::remove_file(world.project().join("t.ipynb")).expect("delete the notebook");
    assert!(gc(&["gc", "--dry-run"]));
    assert!(gc(&["gc"]));
    assert!(!gc(&["gc"]));
    let other = ["open", "other.ipynb", "--server", "gpu", "--kernel-id", id];
    nb(&world, other).ended(0);
    nb(&world, ["run", "-n", "other.ipynb", "left"])
        .ended(0)
        .with("7");
}

#[test]
fn the_connection_of_a_deleted_project_is_ended_and_its_kernel_goes_on() {
    let (server, world) = (Server::jupyter(), World::new());
    server.add_to(&world, "gpu");
    let [project, other] = ["p", "other"].map(|name| world.project().join(name));
    for folder in [&project, &other] {
        std::fs::create_dir(folder).expect("make a folder");
    }
    let open = ["open", "t.ipynb", "--server", "gpu", "--json"];
    let opened = output_of(world.nb().args(open).current_dir(&project));
    let opened = opened.ended(0).json();
    output_of(world.nb().args(["run", "left = 7"]).current_dir(&project)).ended(0);
    let status = output_of(world.nb().args(["status", "--json"]).current_dir(&project));
    let id = status.ended(0).json()["sessions"][0]["remote"]["kernel_id"].clone();
    let id = id.as_str().expect("an id");
    output_of(
        world
            .nb()
            .args(["packages", "add", "six"])
            .current_dir(&project),
    )
    .ended(5)
    .with("it runs on the server gpu");
    let bridge = opened["kernel_pid"].as_u64().expect("the bridge's process");
    let stat = std::fs::read_to_string(format!("/proc/{bridge}/stat")).expect("it runs");
    let supervisor = stat
        .rsplit(") ")
        .next()
        .and_then(|rest| rest.split(' ').nth(1));
    let supervisor: u64 = supervisor
        .and_then(|it| it.parse().ok())
        .expect("its parent");
    std::fs::remove_dir_all(&project).expect("delete the project");
    let gc = |words: &[&str]| output_of(world.nb().args(words).current_dir(&other)).ended(0);
    for words in [&["gc", "--all", "--dry-run"][..], &["gc", "--all"]] {
        gc(words)
            .with("the connection to gpu of")
            .with("whose project is gone")
            .with(&format!("--server gpu --kernel-id {id}"));
    }
    let runs = |pid| std::path::Path::new(&format!("/proc/{pid}")).exists();
    until("bridge and supervisor have ended", || {
        (!runs(bridge) && !runs(supervisor)).then_some(())
    });
    let again = ["open", "t.ipynb", "--server", "gpu", "--kernel-id", id];
    output_of(world.nb().args(again).current_dir(&other)).ended(0);
    output_of(world.nb().args(["run", "left"]).current_dir(&other))
        .ended(0)
        .with("7");
    output_of(world.nb().args(["shutdown", "--force"]).current_dir(&other)).ended(0);
}
