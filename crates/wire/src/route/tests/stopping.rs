//! Tests for interrupts beside shutdowns, and for the restart of a kernel that died.

use super::fixture::Fixture;
use super::*;

#[test]
fn a_servers_interrupt_before_a_restart_does_not_reach_the_kernel() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.interrupt("c", "i");
    assert!(fixture.actions().is_empty());
    let content = json!({ "restart": true });
    fixture.send("c", Channel::Control, "shutdown_request", "s", &content);
    let interrupt = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    let shutdown = ["iopub busy", "client control shutdown_reply", "iopub idle"];
    assert_eq!(
        fixture.actions(),
        [&interrupt[..], &shutdown, &["restart"]].concat()
    );
    fixture.advance(Duration::from_secs(1));
    assert!(fixture.actions().is_empty());
}

#[test]
fn a_servers_interrupt_is_sent_after_100_ms_and_later_control_messages_after_it() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.interrupt("c", "i");
    fixture.send("c", Channel::Control, "debug_request", "d", &json!({}));
    assert!(fixture.actions().is_empty());
    fixture.advance(100 * MS);
    assert_eq!(
        fixture.actions(),
        [
            "stop 0",
            "kernel c control interrupt_request",
            "kernel c control debug_request"
        ]
    );
}

/// The person has pressed Stop while their own cell ran, and it has ended since.
#[test]
fn an_interrupt_whose_cell_has_ended_hits_no_other_cell() {
    let answer = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    for next in ["agent", "c", "nothing"] {
        let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
        fixture.send_cell("c", "1");
        fixture.publish_status("c", "1", "busy");
        fixture.interrupt("c", "i");
        fixture.reply("c", "1", "execute_request");
        fixture.publish_status("c", "1", "idle");
        match next {
            "agent" => fixture.publish_status("agent", "a", "busy"),
            "c" => {
                fixture.send_cell("c", "2");
                fixture.publish_status("c", "2", "busy");
            }
            _ => {}
        }
        fixture.actions();
        fixture.advance(100 * MS);
        assert_eq!(fixture.actions(), answer, "{next}");
    }
}

#[test]
fn an_interrupt_stops_the_cells_that_were_sent_before_it() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.send_cell("c", "1");
    fixture.send_cell("c", "2");
    fixture.publish_status("c", "1", "busy");
    fixture.interrupt("c", "i");
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    let between = [false, true];
    for has_begun in between {
        if has_begun {
            fixture.interrupt("c", "j");
            fixture.publish_status("c", "2", "busy");
        }
        fixture.actions();
        fixture.advance(100 * MS);
        assert_eq!(
            fixture.actions(),
            ["stop 0", "kernel c control interrupt_request"],
            "the second cell has begun: {has_begun}"
        );
    }
}

#[test]
fn a_held_interrupt_that_withdraws_a_cell_is_journalled_although_another_cell_runs_by_then() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.publish_status("agent", "a", "busy");
    fixture.send_cell("c", "1");
    fixture.interrupt("c", "i");
    fixture.publish_status("agent", "b", "busy");
    fixture.actions();
    fixture.advance(100 * MS);
    let actions = fixture.actions();
    assert!(actions.contains(&"stop 1".to_owned()), "{actions:?}");
    assert!(actions.contains(&"iopub error".to_owned()), "{actions:?}");
}

/// What a client sends behind an interrupt takes memory.
#[test]
fn an_interrupt_is_carried_out_at_once_when_1000_messages_wait_behind_it() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.interrupt("c", "i");
    for number in 0..1100 {
        let id = format!("d{number}");
        fixture.send("c", Channel::Control, "debug_request", &id, &json!({}));
    }
    let actions = fixture.actions();
    assert_eq!(
        actions[..2],
        ["stop 0", "kernel c control interrupt_request"]
    );
    assert_eq!(actions.len(), 2 + 1100);
}

#[test]
fn an_interrupt_withdraws_no_cell_that_was_sent_after_it() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.publish_status("agent", "a", "busy");
    fixture.interrupt("c", "i");
    fixture.send_cell("c", "1");
    fixture.actions();
    fixture.advance(100 * MS);
    let expected = ["stop 0", "kernel c control interrupt_request"];
    assert_eq!(fixture.actions(), expected);
}

/// `jupyter_client` interrupts a kernel that it found dead, and the message waits for the next proxy: it must not
/// end whatever runs there.
#[test]
fn a_servers_interrupt_from_before_the_proxys_start_is_not_carried_out() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    let before = jiff::Timestamp::UNIX_EPOCH - Duration::from_secs(1);
    let header = NewHeader {
        msg_id: "i",
        session: "c",
        username: "u",
        date: &before.to_string(),
        msg_type: "interrupt_request",
    };
    let interrupt = Verified::new(&header, "{}".into(), &json!({}));
    let client = ClientId::new("c".into());
    fixture
        .bridge
        .client_message(fixture.now, Channel::Control, &client, interrupt);
    fixture.advance(Duration::from_secs(1));
    let answer = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    assert_eq!(fixture.actions(), answer);
}

#[test]
fn vs_codes_interrupt_is_not_held() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture.interrupt("c", "i");
    assert_eq!(
        fixture.actions(),
        ["stop 0", "kernel c control interrupt_request"]
    );
}

#[test]
fn the_shutdown_of_a_batch_client_does_not_interrupt_another_clients_cell() {
    for shutdown_on in [Channel::Control, Channel::Shell] {
        let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
        for runs in [false, true] {
            if runs {
                fixture.publish_status("agent", "a", "busy");
                fixture.actions();
            }
            fixture.interrupt("c", "i");
            assert!(fixture.actions().is_empty(), "something runs: {runs}");
            fixture.send("c", shutdown_on, "shutdown_request", "s", &json!({}));
            let actions = fixture.actions();
            assert!(
                actions.contains(&"client control interrupt_reply".to_owned()),
                "{actions:?}"
            );
            assert!(
                !actions.iter().any(|action| action.starts_with("kernel c")),
                "{actions:?}"
            );
            fixture.advance(Duration::from_secs(1));
            assert!(fixture.actions().is_empty(), "something runs: {runs}");
        }
    }
}

#[test]
fn a_clients_own_running_cell_is_interrupted_at_once() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut fixture = Fixture::live(front_end, &["c"]);
        fixture.send_cell("c", "1");
        fixture.publish_status("c", "1", "busy");
        fixture.actions();
        fixture.interrupt("c", "i");
        let expected = ["stop 0", "kernel c control interrupt_request"];
        assert_eq!(fixture.actions(), expected, "{front_end:?}");
        fixture.send("c", Channel::Control, "shutdown_request", "s", &json!({}));
        assert_eq!(fixture.actions().last().map(String::as_str), Some("leave"));
    }
}

#[test]
fn a_manager_interrupts_its_clients_cell_at_once() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "manager"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.actions();
    let manager = ClientId::new("manager".into());
    for (session, passes) in [("c", true), ("m", false)] {
        let interrupt = message(
            "interrupt_request",
            session,
            session,
            "{}".into(),
            &json!({}),
        );
        fixture
            .bridge
            .client_message(fixture.now, Channel::Control, &manager, interrupt);
        let actions = fixture.actions();
        let passed = actions.contains(&"kernel manager control interrupt_request".to_owned());
        assert_eq!(passed, passes, "{session}: {actions:?}");
    }
}

#[test]
fn an_interrupt_of_another_clients_cell_is_held_for_100_ms() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut fixture = Fixture::live(front_end, &["c"]);
        fixture.publish_status("agent", "a", "busy");
        fixture.actions();
        fixture.interrupt("c", "i");
        assert!(fixture.actions().is_empty(), "{front_end:?}");
        fixture.advance(100 * MS);
        let expected = ["stop 0", "kernel c control interrupt_request"];
        assert_eq!(fixture.actions(), expected, "{front_end:?}");
    }
}

#[test]
fn a_clients_own_waiting_cell_is_withdrawn_at_once() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut fixture = Fixture::live(front_end, &["c"]);
        fixture.publish_status("agent", "a", "busy");
        fixture.send_cell("c", "1");
        fixture.actions();
        fixture.interrupt("c", "i");
        let actions = fixture.actions();
        assert!(
            actions.contains(&"stop 1".to_owned()),
            "{front_end:?}: {actions:?}"
        );
        assert!(
            actions.contains(&"iopub error".to_owned()),
            "{front_end:?}: {actions:?}"
        );
    }
}

#[test]
fn the_proxy_of_a_batch_client_exits_with_the_kernel() {
    let ends = [
        Kernel::Died(ending()),
        Kernel::Ended(ending()),
        Kernel::Awaited,
    ];
    for after in ends {
        let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
        fixture.send_batch_cell("c", "1");
        fixture.publish_status("c", "1", "busy");
        fixture.send_batch_cell("c", "2");
        fixture.actions();
        fixture
            .bridge
            .set_kernel(fixture.now, after.clone(), &ending(), []);
        let actions = fixture.actions();
        // The notebook shows the reason; no reply lets the front end go on with the next cell.
        assert_eq!(
            actions.iter().filter(|it| *it == "iopub error").count(),
            2,
            "{actions:?}"
        );
        assert!(
            !actions
                .iter()
                .any(|it| it.contains("reply") || it.contains("idle")),
            "{actions:?}"
        );
        assert_eq!(actions.last().map(String::as_str), Some("exit KernelDied"));
        // Another kernel has none of the variables.
        fixture.send_batch_cell("c", "3");
        fixture.bridge.set_kernel(
            fixture.now,
            Kernel::Live {
                generation: 2,
                interrupt: Interrupt::Message,
                info: None,
            },
            &ending(),
            [],
        );
        fixture.advance(Duration::from_secs(60));
        assert!(fixture.actions().is_empty(), "{after:?}");
    }
}

#[test]
fn only_a_batch_clients_cells_under_way_get_the_error_of_the_kernels_end() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_batch_cell("c", "ended");
    fixture.reply("c", "ended", "execute_request");
    fixture.send_batch_cell("c", "runs");
    fixture.send(
        "c",
        Channel::Shell,
        "complete_request",
        "no cell",
        &json!({}),
    );
    fixture.actions();
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Died(ending()), &ending(), []);
    assert_eq!(fixture.published_under("error"), ["runs"]);
}

#[test]
fn a_client_that_is_no_batch_client_gets_an_error_reply_when_the_kernel_ends() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode, FrontEnd::Jupyter] {
        let mut fixture = Fixture::live(front_end, &["c"]);
        fixture.send_batch_cell("c", "1");
        if front_end == FrontEnd::Other {
            fixture.send_cell("c", "2");
        }
        fixture
            .bridge
            .set_kernel(fixture.now, Kernel::Ended(ending()), &ending(), []);
        let actions = fixture.actions();
        assert!(
            actions.contains(&"client shell execute_reply".to_owned()),
            "{actions:?}"
        );
        assert!(
            !actions.iter().any(|action| action.starts_with("exit")),
            "{actions:?}"
        );
        fixture.send_cell("c", "3");
        assert!(
            fixture
                .actions()
                .contains(&"client shell execute_reply".to_owned())
        );
    }
}

#[test]
fn a_restart_is_not_carried_out_if_the_policy_forbids_it() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.bridge.set_policies(Policies {
        restart: false,
        ..Policies::default()
    });
    let content = json!({ "restart": true });
    fixture.send("c", Channel::Control, "shutdown_request", "s", &content);
    assert_eq!(fixture.actions().last().map(String::as_str), Some("leave"));
}

#[test]
fn the_next_cell_starts_a_new_kernel_after_a_death_and_its_outputs_begin_with_a_notice() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Died(ending()), &ending(), []);
    fixture.actions();
    fixture.send("c", Channel::Shell, "complete_request", "1", &json!({}));
    let content = json!({ "code": "x", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "2", &content);
    let actions = fixture.actions();
    assert!(
        actions.contains(&"client shell complete_reply".to_owned()),
        "{actions:?}"
    );
    assert!(
        actions.contains(&"client shell execute_reply".to_owned()),
        "{actions:?}"
    );
    // A client that connects now gets its answer.
    fixture.send("c", Channel::Shell, "kernel_info_request", "3", &json!({}));
    assert_eq!(
        fixture.actions(),
        ["iopub busy", "client shell kernel_info_reply", "iopub idle"]
    );

    fixture.send_cell("c", "4");
    assert_eq!(fixture.actions(), ["revive c"]);
    fixture.send_cell("c", "5");
    assert!(fixture.actions().is_empty(), "it waits like the first");
    fixture.bridge.set_notice("the variables are gone".into());
    fixture.start_kernel(2);
    fixture.connect("c");
    let actions: Vec<_> = fixture
        .actions()
        .into_iter()
        .filter(|action| action.contains("stream") || action.contains("execute"))
        .collect();
    assert_eq!(
        actions,
        [
            "iopub stream",
            "kernel c shell execute_request",
            "kernel c shell execute_request"
        ]
    );
}

#[test]
fn an_interrupt_withdraws_a_cell_that_waits_for_a_kernel() {
    let mut fixture = Fixture::new(FrontEnd::VsCode);
    fixture.connect("c");
    fixture.send_cell("c", "1");
    fixture.interrupt("c", "i");
    let actions = fixture.actions();
    assert!(actions.contains(&"iopub error".to_owned()), "{actions:?}");
    assert!(
        actions.contains(&"client control interrupt_reply".to_owned()),
        "{actions:?}"
    );
    assert!(actions.contains(&"stop 1".to_owned()), "{actions:?}");
    // There is nothing left to stop.
    fixture.interrupt("c", "j");
    let answer = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    assert_eq!(fixture.actions(), answer);
    fixture.start_kernel(1);
    fixture.connect("c");
    assert!(
        !fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn an_interrupt_of_a_kernel_that_has_ended_is_answered_with_an_error() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Ended(ending()), &ending(), []);
    fixture.actions();
    fixture.interrupt("c", "i");
    let reply =
        std::iter::from_fn(|| fixture.bridge.poll_action()).find_map(|action| match action {
            Action::ToClient { message, .. } => Some(message),
            _ => None,
        });
    let reply = reply.expect("the client gets a reply");
    let content: Value = serde_json::from_slice(reply.content()).expect("JSON");
    assert_eq!(content["status"], "error");
}

#[test]
fn a_cell_starts_no_kernel_after_a_shutdown() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Ended(ending()), &ending(), []);
    fixture.actions();
    fixture.send_cell("c", "1");
    assert_eq!(
        fixture.actions(),
        [
            "iopub busy",
            "iopub error",
            "client shell execute_reply",
            "iopub idle"
        ]
    );
}

#[test]
fn a_client_does_not_close_the_comm_of_another_client() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let comm = json!({ "comm_id": "w", "target_name": "jupyter.widget" });
    fixture.publish(("agent", "a1", "execute_request"), "comm_open", &comm);
    fixture.actions();
    fixture.send("c", Channel::Shell, "comm_close", "1", &comm);
    assert!(fixture.actions().is_empty());
    fixture.send_cell("c", "2");
    let own = json!({ "comm_id": "v", "target_name": "jupyter.widget" });
    fixture.publish(("c", "2", "execute_request"), "comm_open", &own);
    fixture.actions();
    fixture.send("c", Channel::Shell, "comm_close", "3", &own);
    assert_eq!(fixture.actions(), ["kernel c shell comm_close"]);
}

/// JupyterLab and VS Code answer a `comm_open` of a target that they do not know with `comm_close`.
#[test]
fn a_client_cannot_close_the_comm_that_another_client_has_opened() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    let comm = json!({ "comm_id": "1", "target_name": "t" });
    fixture.send("c", Channel::Shell, "comm_open", "1", &comm);
    assert_eq!(fixture.actions(), ["kernel c shell comm_open"]);
    fixture.send("d", Channel::Shell, "comm_close", "2", &comm);
    assert!(fixture.actions().is_empty());
    fixture.send("c", Channel::Shell, "comm_close", "3", &comm);
    assert_eq!(fixture.actions(), ["kernel c shell comm_close"]);
}

/// Sends a cell, interrupts it if wanted, and ends it with an error; returns how the journal has its end.
fn end_in_journal(ename: &str, interrupts: bool) -> String {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    if interrupts {
        fixture.interrupt("c", "i");
    }
    let parent = message("execute_request", "1", "c", "{}".into(), &json!({}));
    let content = json!({ "status": "error", "ename": ename, "evalue": "", "traceback": [] });
    let parent = parent.header_bytes().clone();
    let reply = message("execute_reply", "r", "k", parent, &content);
    let client = ClientId::new("c".into());
    fixture
        .bridge
        .kernel_message(fixture.now, &client, Channel::Shell, reply);
    let ended = fixture.actions().into_iter();
    let mut ended = ended.filter(|action| action.starts_with("journal Ended"));
    ended.next().expect("the journal has its end")
}

#[test]
fn a_cell_that_an_interrupt_has_ended_is_recorded_as_interrupted() {
    for (ename, interrupts, status) in [
        ("KeyboardInterrupt", false, "interrupted"),
        // IPython ends an interrupted `await` so.
        ("CancelledError", true, "interrupted"),
        ("CancelledError", false, "error"),
        ("ValueError", true, "error"),
    ] {
        let end = end_in_journal(ename, interrupts);
        assert_eq!(end, format!("journal Ended({status:?}) None"), "{ename}");
    }
}
