//! Tests of the bridge: its rules one by one, and all of them in a simulated world.

mod cases;
mod chaos;
mod connecting;
mod editors;
mod faults;
mod fixture;
mod idles;
mod links;
mod missed;
mod queue;
mod stopping;
mod world;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde_json::{Value, json};

use super::*;
use crate::wire::fixtures::message;
use crate::wire::{Channel, NewHeader, Verified};

const MS: Duration = Duration::from_millis(1);

fn ending() -> Ending {
    Ending {
        name: "KernelDied",
        text: "it died".into(),
    }
}

/// Makes a bridge with a live kernel and one client whose sockets are up.
fn linked(interrupt: Interrupt) -> (Bridge, ClientId, Now) {
    let now = Now {
        instant: Instant::now(),
        date: jiff::Timestamp::UNIX_EPOCH,
    };
    let settings = Settings {
        id: "own".into(),
        held_bytes: 1000,
        undelivered_bytes: 1000,
        front_end: FrontEnd::Other,
    };
    let mut bridge = Bridge::new(settings, now);
    let client = ClientId::new("c".into());
    bridge.set_kernel(
        now,
        Kernel::Live {
            generation: 1,
            interrupt,
            info: None,
        },
        &ending(),
        [],
    );
    for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
        bridge.client_joined(channel, &client);
        bridge.link_up(now, &client, channel);
    }
    let welcome = message(
        "iopub_welcome",
        "w",
        "kernel",
        "{}".into(),
        &json!({ "subscription": "" }),
    );
    bridge.iopub_message(now, welcome);
    actions(&mut bridge);
    (bridge, client, now)
}

/// Takes all actions, as short texts, without log lines.
fn actions(bridge: &mut Bridge) -> Vec<String> {
    let name = |message: &Verified| {
        let header = message.header().expect("readable");
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        match content["execution_state"].as_str() {
            Some(state) => state.to_owned(),
            None => header.msg_type.into_owned(),
        }
    };
    std::iter::from_fn(|| bridge.poll_action())
        .filter_map(|action| match action {
            Action::ToClient {
                channel, message, ..
            } => Some(format!("client {channel} {}", name(&message))),
            Action::Publish(message) => Some(format!("iopub {}", name(&message))),
            Action::ToKernel {
                client,
                channel,
                message,
            } => Some(format!("kernel {client} {channel} {}", name(&message))),
            Action::Journal(execution) => Some(format!(
                "journal {:?} {:?}",
                execution.phase, execution.code
            )),
            Action::Editor { comm, message } => Some(format!("editor {comm} {message:?}")),
            Action::SignalKernel => Some("SIGINT".into()),
            Action::Pause(_) => Some("pause".into()),
            Action::Resume(_) => Some("resume".into()),
            Action::Leave { restart } => Some(if restart { "restart" } else { "leave" }.into()),
            Action::ResolveNotebook { notebook } => Some(format!("resolve {notebook:?}")),
            Action::Revive { client } => Some(format!("revive {client}")),
            Action::JournalInterrupt { withdrawn, .. } => Some(format!("stop {}", withdrawn.len())),
            Action::WidgetsVersion { version } => Some(format!("widgets {version}")),
            Action::ExitWithKernel(ending) => Some(format!("exit {}", ending.name)),
            Action::Facts { msg_id, .. } => Some(format!("facts of {msg_id}")),
            Action::SessionSeen { .. } | Action::IdleLost { .. } => None,
            Action::HandOver { sessions } => Some(format!("hand over {}", sessions.join(" "))),
            Action::OpenLink { client, channel } => Some(format!("open {client} {channel}")),
            Action::CloseLinks(client) => Some(format!("close {client}")),
            Action::Log(_) => None,
        })
        .collect()
}

fn request(msg_type: &str, id: &str) -> Verified {
    message(
        msg_type,
        id,
        "s",
        "{}".into(),
        &json!({ "code": "1+1", "restart": true }),
    )
}
