//! Editors that speak with `nb live` on a comm.

use super::*;

fn comm(msg_type: &str, content: &Value) -> Verified {
    message(msg_type, "1", "s", "{}".into(), content)
}

#[test]
fn messages_of_an_editor_do_not_reach_the_kernel_and_get_no_status() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    for (msg_type, content) in [
        (
            "comm_open",
            json!({ "comm_id": "nb.live-1", "target_name": "nb.live", "data": {} }),
        ),
        (
            "comm_msg",
            json!({ "comm_id": "nb.live-1", "data": { "type": "open" } }),
        ),
        ("comm_close", json!({ "comm_id": "nb.live-1", "data": {} })),
    ] {
        bridge.client_message(now, Channel::Shell, &client, comm(msg_type, &content));
    }
    assert_eq!(
        actions(&mut bridge),
        [
            "editor nb.live-1 Opened",
            r#"editor nb.live-1 Data(Object {"type": String("open")})"#,
            "editor nb.live-1 Closed",
        ]
    );
    bridge.editor_message(now, "nb.live-1", &json!({ "type": "reopen" }));
    bridge.editor_closed(now, "nb.live-1", "it has ended");
    assert_eq!(actions(&mut bridge), ["iopub comm_msg", "iopub comm_close"]);
}

#[test]
fn a_comm_of_another_target_is_the_kernels() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let content = json!({ "comm_id": "1", "target_name": "jupyter.widget", "data": {} });
    bridge.client_message(now, Channel::Shell, &client, comm("comm_open", &content));
    assert_eq!(actions(&mut bridge), ["kernel c shell comm_open"]);
}

/// A cell, also one in a sandbox, could change notebooks in another's name.
#[test]
fn what_the_kernel_sends_on_an_editors_comm_is_dropped() {
    let (mut bridge, _, now) = linked(Interrupt::Message);
    for content in [
        json!({ "comm_id": "nb.live-1", "data": {} }),
        json!({ "comm_id": "1", "target_name": "nb.live", "data": {} }),
    ] {
        for msg_type in ["comm_open", "comm_msg", "comm_close"] {
            bridge.iopub_message(now, comm(msg_type, &content));
            assert!(actions(&mut bridge).is_empty(), "{msg_type} {content}");
        }
    }
    let widget = json!({ "comm_id": "1", "target_name": "jupyter.widget", "data": "nb.live" });
    bridge.iopub_message(now, comm("comm_open", &widget));
    assert_eq!(actions(&mut bridge), ["iopub comm_open"]);
}
