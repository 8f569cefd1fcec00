//! The cost of the bridge to a kernel on a Jupyter server, compared with a client that speaks to the server itself.
//!
//! `cargo bench --bench remote` starts a Jupyter server with two kernels. One client holds a websocket to the first
//! kernel; the other connects to the sockets that the bridge of an open notebook presents for the second. They take
//! turns. The program prints a table, and then the same as JSON.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

#[path = "../../tests/it/made.rs"]
mod made;
#[path = "../../tests/it/ports.rs"]
mod ports;
#[path = "../../tests/it/python.rs"]
mod python;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use nb::client::{Client, Execute, ExecutionEvent};
use nb::server::channels::{self, KernelReceiver, KernelSender, Received};
use nb::server::{ServerClient, ServerRecord};
use nb::wire::{Channel, ConnectionInfo, NewHeader, Verified};
use serde_json::{Value, json};

/// How often each client sends the short requests.
const QUICK: usize = 300;

/// How often each client asks for the many outputs.
const SLOW: usize = 9;

/// How many outputs a cell has: a kernel's own queue holds 1,000.
const OUTPUTS: usize = 500;

/// How many such cells run after each other.
const CELLS: usize = 20;

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return; // asked by test runners
    }
    let root = tempfile::tempdir().expect("make a folder");
    let server = Server::start(root.path());
    let connection = server.open_notebook(root.path());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("make a runtime");
    let rows = runtime.block_on(async {
        let mut bare = Bare::open(&server.url).await;
        let mut bridged = Client::connect(&connection, "bench")
            .await
            .expect("connect");
        compare(&mut bare, &mut bridged).await
    });
    println!(
        "\n{:<36}{:>12}{:>12}{:>8}",
        "", "websocket", "bridge", "ratio"
    );
    for (title, [bare, bridged]) in &rows {
        let ratio = bridged.as_secs_f64() / bare.as_secs_f64();
        println!(
            "{title:<36}{:>9.2} ms{:>9.2} ms{ratio:>8.2}",
            bare.as_secs_f64() * 1e3,
            bridged.as_secs_f64() * 1e3
        );
    }
    let rows = rows.iter().map(|(title, [bare, bridged])| {
        json!({ "row": title, "websocket_ms": bare.as_secs_f64() * 1e3, "bridge_ms": bridged.as_secs_f64() * 1e3 })
    });
    println!("{}", Value::from_iter(rows));
}

/// Returns the median times of both clients.
async fn compare(bare: &mut Bare, bridged: &mut Client) -> Vec<(String, [Duration; 2])> {
    let mut rows = Vec::new();
    let mut times = Times::default();
    for _ in 0..QUICK {
        let began = Instant::now();
        bare.request("kernel_info_request", &json!({})).await;
        times.0[0].push(began.elapsed());
        let began = Instant::now();
        let answer = bridged.kernel_info(Channel::Shell, Duration::from_secs(60));
        answer.await.expect("an answer");
        times.0[1].push(began.elapsed());
    }
    rows.push(("kernel_info, request to reply".to_owned(), times.medians()));
    let mut times = Times::default();
    for _ in 0..QUICK {
        times.0[0].push(bare.cell("1", 1).await);
        times.0[1].push(cell(bridged, "1", 1).await);
    }
    rows.push((
        "cell `1`, request to reply and idle".to_owned(),
        times.medians(),
    ));
    let code =
        format!("for _ in range({OUTPUTS}): display({{'text/plain': 'x' * 1000}}, raw=True)");
    let mut times = Times::default();
    for _ in 0..SLOW {
        let mut took = [Duration::ZERO; 2];
        for _ in 0..CELLS {
            took[0] += bare.cell(&code, OUTPUTS).await;
            took[1] += cell(bridged, &code, OUTPUTS).await;
        }
        times.0[0].push(took[0]);
        times.0[1].push(took[1]);
    }
    rows.push((
        format!("{} outputs of 1 kB", OUTPUTS * CELLS),
        times.medians(),
    ));
    rows
}

#[derive(Default)]
struct Times([Vec<Duration>; 2]);

impl Times {
    fn medians(mut self) -> [Duration; 2] {
        self.0.each_mut().map(|times| {
            times.sort_unstable();
            times[times.len() / 2]
        })
    }
}

/// Runs a cell over the bridge; returns how long it took. All outputs must arrive.
async fn cell(client: &mut Client, code: &str, outputs: usize) -> Duration {
    let began = Instant::now();
    let mut count = 0;
    let request = Execute::new(code);
    let done = client.execute(&request, |event| {
        count += usize::from(matches!(event, ExecutionEvent::Iopub(_)));
        None
    });
    done.await.expect("the kernel is there");
    assert_eq!(count, outputs, "outputs over the bridge");
    began.elapsed()
}

/// A client with a websocket of its own.
struct Bare {
    sender: KernelSender,
    receiver: KernelReceiver,
    count: u64,
}

impl Bare {
    async fn open(url: &str) -> Bare {
        let record = json!({
            "name": "bench", "url": url, "kind": { "is": "jupyter" },
            "credential": { "from": "nothing" },
        });
        let record: ServerRecord = serde_json::from_value(record).expect("a record");
        let client = ServerClient::open(record).await.expect("reach the server");
        let kernel = client.start_kernel(None, &BTreeMap::new()).await;
        let kernel = kernel.expect("start a kernel").id;
        let (sender, receiver) = channels::open(&client, &kernel, "bench")
            .await
            .expect("open the websocket");
        let count = 0;
        Bare {
            sender,
            receiver,
            count,
        }
    }

    async fn send(&mut self, msg_type: &str, content: &Value) -> String {
        self.count += 1;
        let id = format!("bench_{}", self.count);
        let header = NewHeader {
            msg_id: &id,
            session: "bench",
            username: "bench",
            date: "2026-01-01T00:00:00Z",
            msg_type,
        };
        let message = Verified::new(&header, Bytes::from_static(b"{}"), content);
        let sent = self.sender.send(Channel::Shell, &message).await;
        assert_eq!(sent, Ok(true));
        id
    }

    async fn next(&mut self) -> (Channel, Verified) {
        loop {
            match self.receiver.next().await {
                Received::Message(channel, message) => return (channel, message),
                Received::SignOfLife => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends a request and waits for its reply.
    async fn request(&mut self, msg_type: &str, content: &Value) {
        let id = self.send(msg_type, content).await;
        loop {
            let (channel, message) = self.next().await;
            if channel == Channel::Shell && message.parent().expect("a parent").msg_id == id {
                return;
            }
        }
    }

    /// Runs a cell; returns how long it took. All outputs must arrive.
    async fn cell(&mut self, code: &str, outputs: usize) -> Duration {
        let began = Instant::now();
        let content = json!({
            "code": code, "silent": false, "store_history": true, "user_expressions": {},
            "allow_stdin": false, "stop_on_error": true,
        });
        let id = self.send("execute_request", &content).await;
        let (mut count, mut is_idle, mut has_reply) = (0, false, false);
        while !is_idle || !has_reply {
            let (channel, message) = self.next().await;
            if message.parent().expect("a parent").msg_id != id {
                continue;
            }
            match &*message.header().expect("a header").msg_type {
                "status" => is_idle = message.execution_state().as_deref() == Some("idle"),
                "execute_input" => {}
                _ if channel == Channel::Iopub => count += 1,
                _ => has_reply = true,
            }
        }
        assert_eq!(count, outputs, "outputs over the websocket");
        began.elapsed()
    }
}

/// A Jupyter server of the bench.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(root: &Path) -> Server {
        let python = python::with_servers();
        let port = ports::free_port();
        let mut command = Command::new(python);
        // Without the limits with which it drops outputs.
        command
            .args(["-m", "jupyter_server", "--allow-root", "--no-browser"])
            .args(["--ServerApp.ip=127.0.0.1", "--IdentityProvider.token="])
            .args(["--ServerApp.password=", "--ServerApp.port_retries=0"])
            .arg(format!("--ServerApp.port={port}"))
            .arg("--ZMQChannelsWebsocketConnection.limit_rate=False")
            .env("HOME", root)
            .current_dir(root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let process = command.spawn().expect("start the server");
        let end = Instant::now() + Duration::from_secs(60);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < end, "the server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        let url = format!("http://127.0.0.1:{port}/");
        Server { process, url }
    }

    /// Opens a notebook on the server, and returns how its bridge is reached.
    fn open_notebook(&self, root: &Path) -> ConnectionInfo {
        let nb = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_nb"));
            command.args(words).current_dir(root).env("HOME", root);
            let output = command.output().expect("run nb");
            let (out, err) = (&output.stdout, String::from_utf8_lossy(&output.stderr));
            let out = String::from_utf8_lossy(out);
            assert!(output.status.success(), "{words:?}: {out}{err}");
            out.into_owned()
        };
        nb(&["server", "add", "gpu", &self.url]);
        let opened = nb(&["open", "a.ipynb", "--server", "gpu", "--json"]);
        let opened: Value = serde_json::from_str(&opened).expect("JSON");
        let file = opened["connection_file"].as_str().expect("a path");
        let file = std::fs::read(file).expect("read the connection file");
        ConnectionInfo::parse(&file).expect("it is whole")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let pid = i32::try_from(self.process.id()).expect("a pid");
        let pid = rustix::process::Pid::from_raw(pid).expect("not 0");
        // It ends its kernels; the bridge ends with its own.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
