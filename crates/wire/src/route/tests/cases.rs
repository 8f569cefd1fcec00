//! One test for each rule of the bridge.

use super::fixture::Fixture;
use super::*;

#[test]
fn a_shutdown_is_answered_and_never_forwarded() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    bridge.client_message(
        now,
        Channel::Control,
        &client,
        request("shutdown_request", "1"),
    );
    assert_eq!(
        actions(&mut bridge),
        [
            "iopub busy",
            "client control shutdown_reply",
            "iopub idle",
            "restart"
        ]
    );
}

#[test]
fn an_interrupt_is_a_message_or_a_signal_as_the_kernelspec_says() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    bridge.client_message(
        now,
        Channel::Control,
        &client,
        request("interrupt_request", "1"),
    );
    // No shutdown follows.
    let now = Now {
        instant: now.instant + 100 * MS,
        ..now
    };
    bridge.handle_timeout(now);
    bridge.interrupt(now);
    assert_eq!(
        actions(&mut bridge),
        [
            "stop 0",
            "kernel c control interrupt_request",
            "stop 0",
            "kernel own control interrupt_request"
        ]
    );

    let (mut bridge, client, now) = linked(Interrupt::Signal);
    bridge.client_message(
        now,
        Channel::Control,
        &client,
        request("interrupt_request", "1"),
    );
    // No shutdown follows.
    let now = Now {
        instant: now.instant + 100 * MS,
        ..now
    };
    bridge.handle_timeout(now);
    bridge.interrupt(now);
    assert_eq!(
        actions(&mut bridge),
        [
            "stop 0",
            "SIGINT",
            "iopub busy",
            "client control interrupt_reply",
            "iopub idle",
            "stop 0",
            "SIGINT"
        ]
    );
}

#[test]
fn a_cell_whose_kernel_dies_ends_with_a_readable_error_and_the_next_one_waits() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let cell = request("execute_request", "1");
    let parent = cell.header_bytes().clone();
    bridge.client_message(now, Channel::Shell, &client, cell);
    bridge.iopub_message(
        now,
        message(
            "status",
            "b",
            "kernel",
            parent,
            &json!({ "execution_state": "busy" }),
        ),
    );
    assert_eq!(
        actions(&mut bridge),
        [
            "journal Sent Some(\"1+1\")",
            "kernel c shell execute_request",
            "iopub busy"
        ]
    );

    bridge.set_kernel(now, Kernel::Awaited, &ending(), []);
    assert_eq!(
        actions(&mut bridge),
        [
            "close own",
            "close c",
            "journal Ended(\"error\") None",
            "iopub error",
            "client shell execute_reply",
            "iopub idle"
        ]
    );
    bridge.client_message(
        now,
        Channel::Shell,
        &client,
        request("execute_request", "2"),
    );
    assert_eq!(actions(&mut bridge), Vec::<String>::new());

    let later = Now {
        instant: now.instant + Duration::from_secs(61),
        ..now
    };
    bridge.handle_timeout(later);
    assert_eq!(
        actions(&mut bridge),
        [
            "iopub busy",
            "iopub error",
            "client shell execute_reply",
            "iopub idle"
        ]
    );
    bridge.client_message(
        later,
        Channel::Shell,
        &client,
        request("complete_request", "3"),
    );
    assert_eq!(
        actions(&mut bridge),
        ["iopub busy", "client shell complete_reply", "iopub idle"]
    );
}

#[test]
fn unsent_requests_that_are_no_code_go_to_the_next_kernel_in_order() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let types = ["complete_request", "execute_request", "inspect_request"];
    let sent = types.map(|msg_type| request(msg_type, msg_type));
    for message in &sent {
        bridge.client_message(now, Channel::Shell, &client, message.clone());
    }
    actions(&mut bridge);
    let unsent = sent
        .into_iter()
        .map(|message| (client.clone(), Channel::Shell, message));
    bridge.set_kernel(now, Kernel::Awaited, &ending(), unsent);
    bridge.set_kernel(
        now,
        Kernel::Live {
            generation: 2,
            interrupt: Interrupt::Message,
            info: None,
        },
        &ending(),
        [],
    );
    actions(&mut bridge);
    bridge.link_up(now, &client, Channel::Stdin);
    bridge.link_up(now, &client, Channel::Shell);
    assert_eq!(
        actions(&mut bridge),
        Vec::<String>::new(),
        "iopub is not proven yet"
    );
    bridge.iopub_message(
        now,
        message(
            "status",
            "b",
            "new",
            "{}".into(),
            &json!({ "execution_state": "idle" }),
        ),
    );
    assert_eq!(
        actions(&mut bridge),
        [
            "iopub idle",
            "kernel c shell complete_request",
            "kernel c shell inspect_request"
        ]
    );
}

#[test]
fn restarting_dead_and_the_shutdown_broadcast_do_not_reach_the_front_end() {
    let (mut bridge, _, now) = linked(Interrupt::Message);
    for state in ["restarting", "dead"] {
        let status = message(
            "status",
            state,
            "kernel",
            "{}".into(),
            &json!({ "execution_state": state }),
        );
        bridge.iopub_message(now, status);
    }
    bridge.iopub_message(
        now,
        message(
            "shutdown_reply",
            "s",
            "kernel",
            "{}".into(),
            &json!({ "restart": false }),
        ),
    );
    assert_eq!(actions(&mut bridge), Vec::<String>::new());
}

#[test]
fn a_client_that_disconnects_during_input_does_not_block_the_kernel() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let cell = request("execute_request", "1");
    let parent = cell.header_bytes().clone();
    bridge.client_message(now, Channel::Shell, &client, cell);
    let prompt = message(
        "input_request",
        "p",
        "kernel",
        parent,
        &json!({ "prompt": "?" }),
    );
    bridge.kernel_message(now, &client, Channel::Stdin, prompt);
    for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
        bridge.client_left(now, channel, &client);
    }
    actions(&mut bridge);
    bridge.handle_timeout(Now {
        instant: now.instant + Duration::from_secs(29),
        ..now
    });
    let early = actions(&mut bridge);
    assert!(
        !early.iter().any(|action| action.contains("input_reply")),
        "it may come back within 30 s: {early:?}"
    );
    bridge.handle_timeout(Now {
        instant: now.instant + Duration::from_secs(30),
        ..now
    });
    assert_eq!(actions(&mut bridge), ["kernel c stdin input_reply"]);
}

#[test]
fn a_client_with_too_many_held_bytes_is_not_read_until_the_kernel_takes_them() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    bridge.set_kernel(now, Kernel::Awaited, &ending(), []);
    for n in 0..10 {
        bridge.client_message(
            now,
            Channel::Shell,
            &client,
            request("execute_request", &n.to_string()),
        );
    }
    assert_eq!(
        actions(&mut bridge)
            .iter()
            .filter(|action| *action == "pause")
            .count(),
        1
    );
    bridge.set_kernel(
        now,
        Kernel::Live {
            generation: 2,
            interrupt: Interrupt::Message,
            info: None,
        },
        &ending(),
        [],
    );
    bridge.link_up(now, &client, Channel::Stdin);
    bridge.link_up(now, &client, Channel::Shell);
    bridge.iopub_message(
        now,
        message(
            "status",
            "b",
            "new",
            "{}".into(),
            &json!({ "execution_state": "idle" }),
        ),
    );
    let actions = actions(&mut bridge);
    assert_eq!(
        actions.iter().filter(|action| *action == "resume").count(),
        1
    );
    assert_eq!(
        actions
            .iter()
            .filter(|action| *action == "kernel c shell execute_request")
            .count(),
        10
    );
}

#[test]
fn a_cell_from_outside_is_journalled_when_it_begins_and_a_clients_cell_is_not() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let cell = request("execute_request", "1");
    let own = cell.header_bytes().clone();
    bridge.client_message(now, Channel::Shell, &client, cell);
    actions(&mut bridge);
    let input = json!({ "code": "2+2", "execution_count": 1 });
    bridge.iopub_message(now, message("execute_input", "i", "kernel", own, &input));
    assert_eq!(actions(&mut bridge), ["iopub execute_input"]);
    let foreign = request("execute_request", "other").header_bytes().clone();
    bridge.iopub_message(
        now,
        message("execute_input", "j", "kernel", foreign, &input),
    );
    assert_eq!(
        actions(&mut bridge),
        ["journal BegunOutside Some(\"2+2\")", "iopub execute_input"]
    );
}

#[test]
fn what_a_kernel_says_of_an_execution_is_stored_and_reaches_no_front_end() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let cell = request("execute_request", "1");
    let own = cell.header_bytes().clone();
    bridge.client_message(now, Channel::Shell, &client, cell);
    actions(&mut bridge);
    let facts = json!({ "run": 1 });
    bridge.iopub_message(now, message("nb_facts", "f", "kernel", own, &facts));
    bridge.iopub_message(now, message("nb_facts", "g", "kernel", "{}".into(), &facts));
    assert_eq!(actions(&mut bridge), ["facts of 1"]);
}

#[test]
fn a_client_id_is_shortened_and_escaped_for_the_log() {
    assert_eq!(ClientId::new("a1b2-c3".into()).to_string(), "a1b2-c3");
    assert_eq!(
        ClientId::new("x".repeat(40).into()).to_string(),
        "x".repeat(12)
    );
    assert_eq!(
        ClientId::new(Bytes::from_static(b"\0\x01\n")).to_string(),
        "0x00010a"
    );
}

#[test]
fn the_client_of_an_oversized_message_gets_a_notice_or_an_error() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    let cell = request("execute_request", "1");
    let parent = cell.header_bytes().clone();
    bridge.client_message(now, Channel::Shell, &client, cell);
    actions(&mut bridge);
    bridge.oversized(now, Channel::Iopub, b"{\"msg_id\":\"unknown\"}", 1 << 40);
    assert_eq!(actions(&mut bridge), Vec::<String>::new());
    bridge.oversized(now, Channel::Iopub, &parent, 1 << 40);
    assert_eq!(actions(&mut bridge), ["iopub stream"]);
    bridge.oversized(now, Channel::Shell, &parent, 1 << 40);
    assert_eq!(
        actions(&mut bridge),
        [
            "journal Ended(\"error\") None",
            "iopub busy",
            "iopub error",
            "client shell execute_reply",
            "iopub idle"
        ]
    );
}

#[test]
fn requests_are_sent_to_a_kernel_without_stdin() {
    let (mut bridge, _, now) = linked(Interrupt::Message);
    let client = ClientId::new("late".into());
    bridge.client_joined(Channel::Shell, &client);
    bridge.link_up(now, &client, Channel::Shell);
    bridge.client_message(
        now,
        Channel::Shell,
        &client,
        request("complete_request", "1"),
    );
    assert_eq!(
        actions(&mut bridge),
        ["open late stdin", "open late shell"],
        "stdin may still come"
    );
    bridge.stdin_absent(now, &client);
    assert_eq!(actions(&mut bridge), ["kernel late shell complete_request"]);
}

#[test]
fn the_outputs_of_the_next_cell_begin_with_how_its_kernel_was_chosen() {
    let (mut bridge, client, now) = linked(Interrupt::Message);
    bridge.set_choice("the kernel of the notebook's folder".into());
    let mut send = |id| {
        let cell = request("execute_request", id);
        bridge.client_message(now, Channel::Shell, &client, cell);
        actions(&mut bridge)
    };
    let sent = [
        "journal Sent Some(\"1+1\")",
        "kernel c shell execute_request",
    ];
    assert_eq!(send("1"), [&["iopub stream"][..], &sent].concat());
    assert_eq!(send("2"), sent);
}

#[test]
fn a_cells_prompt_its_answer_and_the_status_of_its_reply_are_journalled() {
    for status in ["ok", "error", "aborted"] {
        let (mut bridge, client, now) = linked(Interrupt::Message);
        let cell = request("execute_request", "1");
        let parent = cell.header_bytes().clone();
        bridge.client_message(now, Channel::Shell, &client, cell);
        actions(&mut bridge);
        let content = json!({ "prompt": "name?" });
        let prompt = message("input_request", "p", "kernel", parent.clone(), &content);
        bridge.kernel_message(now, &client, Channel::Stdin, prompt);
        let prompted = [
            "journal Prompted(\"name?\") None",
            "client stdin input_request",
        ];
        assert_eq!(actions(&mut bridge), prompted);
        bridge.client_message(now, Channel::Stdin, &client, request("input_reply", "i"));
        let answered = ["kernel c stdin input_reply", "journal Answered None"];
        assert_eq!(actions(&mut bridge), answered);
        let content = json!({ "status": status });
        let reply = message("execute_reply", "r", "kernel", parent, &content);
        bridge.kernel_message(now, &client, Channel::Shell, reply);
        let ended = [
            &*format!("journal Ended({status:?}) None"),
            "client shell execute_reply",
        ];
        assert_eq!(actions(&mut bridge), ended);
    }
}

/// A kernel that never answers some type of request must not make the bridge's tables grow for ever.
#[test]
fn the_oldest_requests_of_a_client_with_10_000_unanswered_ones_are_forgotten() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    let send = |fixture: &mut Fixture, client: &str, id: &str| {
        fixture.send(client, Channel::Shell, "complete_request", id, &json!({}));
    };
    send(&mut fixture, "d", "first");
    for number in 0..10_000 {
        send(&mut fixture, "c", &number.to_string());
    }
    assert_eq!(fixture.bridge.outstanding(), 10_001);
    send(&mut fixture, "c", "last");
    assert_eq!(fixture.bridge.outstanding(), 9_002);
    let requests = fixture.bridge.parts().1;
    let of = |client: &'static str| {
        let client = ClientId::new(client.into());
        requests.keys(|request| request.client == client)
    };
    assert_eq!(of("d").len(), 1);
    let left = of("c");
    assert_eq!(left.len(), 9_001);
    assert_eq!(left[0].msg_id(), "1000");
}
