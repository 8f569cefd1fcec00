//! The lower bounds for running cells: this program as a bare client, and a kernel alone.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use nb::wire::{Channel, Endpoint};
use serde_json::Value;
use tokio::net::UnixStream;

use crate::client::Client;
use crate::process;

/// Runs all cells of a notebook on the notebook's open kernel, and writes nothing.
pub fn run(project: &str, notebook: &str) {
    let project = Path::new(project);
    let state = read(&project.join(".nb/state.json"));
    let file = state["sessions"][notebook]["connection_file"].as_str();
    let info = process::read(&project.join(".nb").join(file.expect("the kernel is open")));
    let notebook = read(&project.join(notebook));
    crate::runtime().block_on(async {
        let mut client = Client::connect_within(&info, Duration::from_millis(2)).await;
        for cell in notebook["cells"].as_array().expect("cells") {
            client.execute(&source(cell)).await;
        }
    });
}

/// Starts a kernel as `nb` does, with this interpreter and on Unix sockets, waits until it answers, and
/// ends it.
pub fn start(python: &str) {
    let folder = tempfile::tempdir().expect("make a folder");
    let file = folder.path().join("kernel.json");
    let info = process::on_unix(&folder.path().join("k"));
    std::fs::write(&file, info.to_json().as_bytes()).expect("write the connection file");
    let Endpoint::Unix(shell) = info.endpoint(Channel::Shell) else {
        unreachable!("it is on Unix sockets");
    };
    let mut kernel = Command::new(python)
        .args(["-m", "ipykernel_launcher", "-f"])
        .arg(&file)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start a kernel");
    crate::runtime().block_on(async {
        while UnixStream::connect(&shell).await.is_err() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Client::first_reply(&info).await;
    });
    kernel.kill().expect("end the kernel");
    kernel.wait().expect("wait for the kernel");
}

fn source(cell: &Value) -> String {
    match &cell["source"] {
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        text => text.as_str().unwrap_or_default().to_owned(),
    }
}

fn read(path: &Path) -> Value {
    let text = std::fs::read(path).expect("read a file");
    serde_json::from_slice(&text).expect("JSON")
}
