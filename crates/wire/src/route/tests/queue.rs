//! Tests of the execution queue.

use super::fixture::Fixture;
use super::*;

const CELL_SENT: [&str; 2] = [
    "journal Sent Some(\"1+1\")",
    "kernel c shell execute_request",
];

/// The journal entry when a client's cell begins to wait.
const CELL_QUEUED: &str = "journal Queued Some(\"1+1\")";

/// The journal entry when the agent's cell has ended.
const AGENT_CELL_ENDED: &str = "journal EndedOutside { raised: false } None";

/// Makes a bridge on whose kernel a cell from outside the front end runs.
fn with_agent_cell(clients: &[&str]) -> Fixture {
    let mut fixture = Fixture::live(FrontEnd::Other, clients);
    fixture.publish_status("agent", "a1", "busy");
    let input = json!({ "code": "1", "execution_count": 1 });
    fixture.publish(("agent", "a1", "execute_request"), "execute_input", &input);
    fixture.actions();
    fixture
}

#[test]
fn a_cell_waits_until_another_clients_cell_has_ended() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    // The proxy asks, in order to notice an `idle` that is lost.
    assert_eq!(
        fixture.actions(),
        [CELL_QUEUED, "kernel own shell kernel_info_request"]
    );
    fixture.send("c", Channel::Shell, "complete_request", "2", &json!({}));
    assert!(
        fixture.actions().is_empty(),
        "what follows the cell stays behind it"
    );
    fixture.publish_status("agent", "a1", "idle");
    assert_eq!(
        fixture.actions(),
        [
            AGENT_CELL_ENDED,
            CELL_SENT[0],
            CELL_SENT[1],
            "kernel c shell complete_request",
            "iopub idle"
        ]
    );
}

#[test]
fn a_cell_still_waits_when_a_socket_of_its_client_is_connected_again() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    fixture.actions();
    let id = ClientId::new("c".into());
    fixture.bridge.link_down(&id, Channel::Control, Vec::new());
    fixture.bridge.link_up(fixture.now, &id, Channel::Control);
    assert!(fixture.actions().is_empty());
}

#[test]
fn code_of_tools_and_cells_of_the_same_client_do_not_wait() {
    let mut fixture = with_agent_cell(&["c"]);
    let content = json!({ "code": "x", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    fixture.publish_status("agent", "a1", "idle");
    fixture.send_cell("c", "2");
    fixture.publish_status("c", "2", "busy");
    fixture.actions();
    fixture.send_cell("c", "3");
    assert_eq!(
        fixture.actions(),
        CELL_SENT,
        "the kernel queues one client's cells"
    );
}

#[test]
fn status_of_a_subshell_request_does_not_end_a_turn() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    fixture.actions();
    let parent = json!({
        "msg_id": "n1", "session": "nb", "username": "u", "msg_type": "execute_request",
        "subshell_id": "s1",
    });
    for state in ["busy", "idle"] {
        let content = json!({ "execution_state": state });
        let status = message("status", "t", "k", parent.to_string().into(), &content);
        fixture.bridge.iopub_message(fixture.now, status);
    }
    assert!(fixture.actions().is_empty(), "the agent's cell still runs");
    fixture.publish_status("agent", "a1", "idle");
    assert!(fixture.actions().contains(&CELL_SENT[1].to_owned()));
}

#[test]
fn a_clients_own_request_in_a_subshell_does_not_end_a_turn() {
    let mut fixture = with_agent_cell(&["c"]);
    let content = json!({ "code": "x", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    let parent = json!({
        "msg_id": "1", "session": "c", "username": "u", "msg_type": "execute_request",
        "subshell_id": "s1",
    });
    for state in ["busy", "idle"] {
        let content = json!({ "execution_state": state });
        let status = message("status", "t", "k", parent.to_string().into(), &content);
        fixture.bridge.iopub_message(fixture.now, status);
    }
    fixture.actions();
    fixture.send_cell("c", "2");
    assert!(fixture.actions().contains(&CELL_QUEUED.to_owned()));
}

/// A kernel answers on control while a cell runs.
#[test]
fn an_answer_on_control_does_not_show_that_the_shell_is_idle() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    let asked =
        std::iter::from_fn(|| fixture.bridge.poll_action()).find_map(|action| match action {
            Action::ToKernel {
                channel: Channel::Control,
                message,
                ..
            } => Some(message),
            _ => None,
        });
    let parent = asked.expect("the proxy asks").header_bytes().clone();
    fixture.connect("c");
    fixture.advance(200 * MS);
    let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
    let own = ClientId::new("own".into());
    fixture
        .bridge
        .kernel_message(fixture.now, &own, Channel::Control, reply);
    fixture.actions();
    fixture.send_cell("c", "1");
    assert_eq!(fixture.actions(), [CELL_QUEUED]);
}

/// Messages on two sockets overtake each other.
#[test]
fn an_answer_that_arrives_after_the_next_cells_busy_does_not_end_that_cell() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    fixture.connect("c");
    let own = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.publish_own_status(&own, "idle");
    fixture.publish_status("agent", "a1", "busy");
    fixture.reply_to_own(&own);
    fixture.advance(Duration::from_secs(2));
    fixture.send_cell("c", "1");
    assert!(fixture.actions().contains(&CELL_QUEUED.to_owned()));
}

#[test]
fn the_messages_that_wait_are_counted() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    let held = fixture.bridge.held();
    let messages = held.map(|(id, held)| (id.to_string(), held.messages));
    assert_eq!(messages.collect::<Vec<_>>(), [("c".to_owned(), 1)]);
}

#[test]
fn without_turns_cells_are_sent_at_once() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.bridge.set_policies(Policies {
        turns: false,
        ..Policies::default()
    });
    fixture.send_cell("c", "1");
    assert_eq!(fixture.actions(), CELL_SENT);
}

#[test]
fn two_windows_of_one_front_end_wait_for_each_other_oldest_first() {
    let mut fixture = with_agent_cell(&["c", "d", "e"]);
    for (client, id) in [("e", "1"), ("c", "2"), ("d", "3")] {
        fixture.send_cell(client, id);
    }
    fixture.actions();
    fixture.publish_status("agent", "a1", "idle");
    let sent: Vec<_> = fixture
        .actions()
        .into_iter()
        .filter(|action| action.starts_with("kernel"))
        .collect();
    assert_eq!(
        sent,
        [
            "kernel e shell execute_request",
            "kernel c shell execute_request",
            "kernel d shell execute_request"
        ]
    );
}

#[test]
fn a_cell_is_released_although_the_idle_before_it_was_lost() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    fixture.advance(Duration::from_secs(600));
    assert_eq!(
        fixture.actions(),
        [CELL_QUEUED, "kernel own shell kernel_info_request"],
        "the agent's cell still runs"
    );
    fixture.send_cell("c", "2");
    fixture.actions();
    let own = ClientId::new("own".into());
    let own_request = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    let parent = message(
        "kernel_info_request",
        own_request.msg_id(),
        "own",
        "{}".into(),
        &json!({}),
    );
    let parent = parent.header_bytes().clone();
    let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
    fixture
        .bridge
        .kernel_message(fixture.now, &own, Channel::Shell, reply);
    // The `idle` may be among the messages that were read and not handled yet.
    fixture.bridge.set_iopub_behind(true);
    fixture.advance(Duration::from_secs(5));
    assert!(fixture.actions().is_empty());
    fixture.bridge.set_iopub_behind(false);
    fixture.advance(Duration::from_secs(1));
    assert_eq!(fixture.actions(), [CELL_SENT, CELL_SENT].concat());
}

#[test]
fn a_cell_that_began_after_the_kernels_answer_is_not_taken_to_have_ended() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    let own = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.reply_to_own(&own);
    fixture.publish_status("agent", "a1", "idle");
    fixture.publish_status("agent", "a2", "busy");
    fixture.actions();
    fixture.send_cell("c", "2");
    fixture.advance(Duration::from_secs(5));
    assert_eq!(
        fixture.actions(),
        [CELL_QUEUED, "kernel own shell kernel_info_request"]
    );
}

#[test]
fn a_cell_waits_for_one_that_began_before_the_proxy_subscribed() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    fixture.connect("c");
    fixture.advance(Duration::from_millis(300));
    fixture.actions();
    fixture.send_cell("c", "1");
    assert_eq!(fixture.actions(), [CELL_QUEUED]);
    fixture.publish_status("agent", "a1", "idle");
    assert_eq!(
        fixture.actions(),
        [&CELL_SENT[..], &["iopub idle"]].concat()
    );
}

#[test]
fn the_first_interrupt_withdraws_waiting_cells_and_the_next_one_interrupts_the_kernel() {
    let mut fixture = with_agent_cell(&["c", "manager"]);
    fixture.send_cell("c", "1");
    fixture.send_cell("c", "2");
    fixture.actions();
    // A Jupyter server's interrupt comes from another client than the window.
    fixture.interrupt("manager", "i1");
    let failed = [
        "iopub busy",
        // The cell's earlier outputs are cleared.
        "iopub clear_output",
        "journal Ended(\"withdrawn\") None",
        "iopub error",
        "client shell execute_reply",
        "iopub idle",
    ];
    let answered = [
        "stop 2",
        "iopub busy",
        "client control interrupt_reply",
        "iopub idle",
    ];
    let all = [&failed[..], &failed, &answered].concat();
    assert_eq!(fixture.actions(), all);
    fixture.interrupt("manager", "i2");
    // No shutdown follows.
    fixture.advance(100 * MS);
    assert_eq!(
        fixture.actions(),
        ["stop 0", "kernel manager control interrupt_request"]
    );
    fixture.publish_status("agent", "a1", "idle");
    assert_eq!(
        fixture.actions(),
        [AGENT_CELL_ENDED, "iopub idle"],
        "what was taken back never runs"
    );
}

#[test]
fn an_interrupt_of_a_clients_own_cell_leaves_other_waiting_cells() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.send_cell("d", "2");
    fixture.actions();
    fixture.interrupt("c", "i");
    assert_eq!(
        fixture.actions(),
        ["stop 0", "kernel c control interrupt_request"]
    );
}

#[test]
fn a_cell_in_the_kernels_queue_is_withdrawn_too() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    // Both were sent at the same moment, and the agent's cell arrived first.
    fixture.send_cell("c", "1");
    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    fixture.interrupt("c", "i");
    let actions = fixture.actions();
    assert!(actions.contains(&"iopub error".to_owned()), "{actions:?}");
    assert!(
        !actions.iter().any(|action| action.starts_with("kernel")),
        "{actions:?}"
    );
    fixture.publish_status("agent", "a1", "idle");
    fixture.actions();
    // A request cannot be removed from a kernel's queue: the kernel is interrupted when it begins the cell.
    fixture.publish_status("c", "1", "busy");
    assert_eq!(fixture.actions(), ["kernel own control interrupt_request"]);
    let content = json!({ "name": "stdout", "text": "x" });
    fixture.publish(("c", "1", "execute_request"), "stream", &content);
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    assert!(fixture.actions().is_empty(), "its user has had the answer");
    assert_eq!(fixture.bridge.outstanding(), 0);
}

#[test]
fn an_interrupt_withdraws_nothing_but_cells() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send("c", Channel::Shell, "complete_request", "1", &json!({}));
    fixture.actions();
    fixture.interrupt("c", "i");
    fixture.advance(100 * MS);
    assert_eq!(
        fixture.actions(),
        ["stop 0", "kernel c control interrupt_request"]
    );
}

#[test]
fn a_withdrawn_cell_does_not_run_although_its_client_has_disconnected() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("agent", "a1", "busy");
    fixture.interrupt("c", "i");
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(100));
    fixture.bridge.close_idle_links();
    fixture.publish_status("agent", "a1", "idle");
    fixture.actions();
    fixture.publish_status("c", "1", "busy");
    assert_eq!(fixture.actions(), ["kernel own control interrupt_request"]);
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    fixture.advance(Duration::from_secs(31));
    assert_eq!(fixture.actions(), ["close c"]);
}

#[test]
fn a_waiting_cell_does_not_run_on_the_kernel_after_a_restart() {
    let mut fixture = with_agent_cell(&["c"]);
    fixture.send_cell("c", "1");
    fixture.actions();
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Awaited, &ending(), []);
    let actions = fixture.actions();
    let ended = "journal Ended(\"aborted\") None";
    for expected in ["iopub error", "client shell execute_reply", ended] {
        assert!(actions.contains(&expected.to_owned()), "{actions:?}");
    }
    // One that was sent since is meant for the next kernel.
    fixture.send_cell("c", "2");
    fixture.start_kernel(2);
    fixture.connect("c");
    let actions = fixture.actions();
    assert!(
        actions.ends_with(&CELL_SENT.map(str::to_owned)),
        "{actions:?}"
    );
    let is_cell = |action: &&String| *action == CELL_SENT[1];
    assert_eq!(actions.iter().filter(is_cell).count(), 1, "{actions:?}");
}

#[test]
fn no_code_that_an_ended_kernel_never_got_runs_on_the_next_one() {
    // Nothing is sent before iopub is proven.
    let mut fixture = Fixture::new(FrontEnd::Other);
    let live = Kernel::Live {
        generation: 1,
        interrupt: Interrupt::Message,
        info: None,
    };
    fixture.bridge.set_kernel(fixture.now, live, &ending(), []);
    fixture.connect("c");
    fixture.send_cell("c", "1");
    let content = json!({ "code": "x", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "2", &content);
    fixture.send("c", Channel::Shell, "complete_request", "3", &json!({}));
    fixture.actions();
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Awaited, &ending(), []);
    let failed = fixture.actions();
    let count =
        |actions: &[String], action: &str| actions.iter().filter(|it| *it == action).count();
    let reply = "client shell execute_reply";
    assert_eq!(count(&failed, reply), 2, "{failed:?}");
    fixture.start_kernel(2);
    fixture.connect("c");
    let sent = fixture.actions();
    assert_eq!(
        count(&sent, "kernel c shell execute_request"),
        0,
        "{sent:?}"
    );
    assert_eq!(
        count(&sent, "kernel c shell complete_request"),
        1,
        "{sent:?}"
    );
    // One that is in the outbox of the kernel's socket.
    fixture.send("c", Channel::Shell, "execute_request", "4", &content);
    fixture.actions();
    let id = ClientId::new("c".into());
    let unsent = message("execute_request", "4", "c", "{}".into(), &content);
    let unsent = [(id, Channel::Shell, unsent)];
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Awaited, &ending(), unsent);
    let failed = fixture.actions();
    assert_eq!(count(&failed, reply), 1, "{failed:?}");
    fixture.start_kernel(3);
    fixture.connect("c");
    let sent = fixture.actions();
    assert_eq!(
        count(&sent, "kernel c shell execute_request"),
        0,
        "{sent:?}"
    );
    assert_eq!(fixture.bridge.outstanding(), 0);
}

#[test]
fn each_step_in_the_journal_has_the_generation_of_the_kernel() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.start_kernel(7);
    fixture.connect("c");
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.reply("c", "1", "execute_request");
    let actions = std::iter::from_fn(|| fixture.bridge.poll_action());
    let generations = actions.filter_map(|action| match action {
        Action::Journal(step) => Some(step.generation),
        _ => None,
    });
    assert_eq!(generations.collect::<Vec<_>>(), [7, 7]);
}

#[test]
fn silent_code_from_outside_is_not_journalled() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    let journal = |actions: Vec<String>| -> Vec<String> {
        let lines = actions
            .into_iter()
            .filter(|action| action.starts_with("journal"));
        lines.collect()
    };
    fixture.publish_status("agent", "silent", "busy");
    fixture.publish_status("agent", "silent", "idle");
    assert!(journal(fixture.actions()).is_empty());

    fixture.publish_status("agent", "cell", "busy");
    let input = json!({ "code": "1", "execution_count": 1 });
    fixture.publish(
        ("agent", "cell", "execute_request"),
        "execute_input",
        &input,
    );
    fixture.publish_status("agent", "cell", "idle");
    let entries = journal(fixture.actions());
    assert_eq!(
        entries,
        ["journal BegunOutside Some(\"1\")", AGENT_CELL_ENDED]
    );

    let request = ("agent", "fails", "execute_request");
    fixture.publish_status("agent", "fails", "busy");
    fixture.publish(request, "execute_input", &input);
    fixture.publish(request, "error", &json!({ "ename": "E" }));
    fixture.publish_status("agent", "fails", "idle");
    let entries = journal(fixture.actions());
    assert_eq!(entries[1], "journal EndedOutside { raised: true } None");
}

#[test]
fn cells_of_a_client_that_does_not_come_back_are_handed_over() {
    let hand_over = "hand over c".to_owned();
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(9));
    // The client was disconnected for a moment.
    fixture.connect("c");
    fixture.advance(Duration::from_secs(9));
    assert!(!fixture.actions().contains(&hand_over));
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(11));
    assert!(fixture.actions().contains(&hand_over));
    // A cell that has ended is not handed over.
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(11));
    assert!(!fixture.actions().contains(&hand_over));
}

/// A recorder would record the outputs a second time.
#[test]
fn neither_waiting_cells_nor_those_of_other_clients_are_handed_over() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    fixture.send_cell("d", "1");
    fixture.publish_status("d", "1", "busy");
    fixture.send_cell("c", "2");
    fixture.actions();
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(11));
    assert!(fixture.actions().is_empty());
}

#[test]
fn a_cell_in_a_subshell_waits_neither_for_the_running_cell_nor_behind_a_waiting_one() {
    let mut fixture = with_agent_cell(&["c"]);
    let content = r#"{"code":"1+1","store_history":true}"#;
    fixture.send_raw_cell("c", "1", Some("s1"), content);
    assert_eq!(fixture.actions(), CELL_SENT);
    fixture.send_cell("c", "2");
    assert_eq!(fixture.actions()[0], CELL_QUEUED);
    fixture.send_raw_cell("c", "3", Some("s1"), content);
    assert_eq!(fixture.actions(), CELL_SENT);
    fixture.send_raw_cell("c", "4", None, content);
    assert_eq!(fixture.actions()[0], CELL_QUEUED);
}

#[test]
fn code_with_half_a_surrogate_pair_is_refused_and_not_sent() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.send_raw_cell("c", "1", None, r#"{"code":"x = '\ud83d\ude00'"}"#);
    assert!(fixture.actions().contains(&CELL_SENT[1].to_owned()));
    for (id, code) in [("2", r"\ud800"), ("3", r"a\udc00b"), ("4", r"\ud83d\ud83d")] {
        let content = format!(r#"{{"code":"{code}"}}"#);
        fixture.send_raw_cell("c", id, None, &content);
        let actions = fixture.actions();
        let expected = [
            "iopub busy",
            "iopub error",
            "client shell execute_reply",
            "iopub idle",
        ];
        assert_eq!(&actions[..4], expected, "{code}");
    }
}
