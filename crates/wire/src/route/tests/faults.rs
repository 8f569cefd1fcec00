//! Regression tests for faults at unfavourable moments.

use super::fixture::Fixture;
use super::*;

fn id(client: &str) -> ClientId {
    ClientId::new(client.to_owned().into())
}

/// The kernel prompts a client, for one of its cells.
fn prompt(fixture: &mut Fixture, client: &str, cell: &str) {
    let parent = message("execute_request", cell, client, "{}".into(), &json!({}));
    let parent = parent.header_bytes().clone();
    let prompt = message("input_request", "p", "k", parent, &json!({}));
    fixture
        .bridge
        .kernel_message(fixture.now, &id(client), Channel::Stdin, prompt);
}

fn answer_prompt(fixture: &mut Fixture, client: &str) {
    let content = json!({ "value": "yes" });
    fixture.send(client, Channel::Stdin, "input_reply", "i", &content);
}

/// Returns the actions that send something of a client to the kernel.
fn to_kernel(fixture: &mut Fixture) -> Vec<String> {
    let actions = fixture.actions().into_iter();
    actions
        .filter(|action| action.starts_with("kernel c"))
        .collect()
}

#[test]
fn a_paused_client_that_reconnects_stays_paused() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.connect("c");
    let content = json!({ "code": "x".repeat(60_000) });
    for number in ["1", "2"] {
        fixture.send("c", Channel::Shell, "complete_request", number, &content);
    }
    assert_eq!(fixture.actions(), ["pause"]);
    fixture.bridge.client_joined(Channel::Shell, &id("c"));
    assert_eq!(fixture.actions(), ["pause"]);
}

#[test]
fn messages_returned_by_a_full_socket_keep_their_order() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    for number in ["1", "2", "3"] {
        fixture.send_cell("c", number);
    }
    // The first message does not fit; the caller reports that before it takes the next action.
    let first =
        std::iter::from_fn(|| fixture.bridge.poll_action()).find_map(|action| match action {
            Action::ToKernel { message, .. } => Some(message),
            _ => None,
        });
    let first = vec![first.expect("the first was sent")];
    fixture.bridge.link_down(&id("c"), Channel::Shell, first);
    assert_eq!(to_kernel(&mut fixture), [""; 0]);
    fixture
        .bridge
        .link_up(fixture.now, &id("c"), Channel::Shell);
    let order: Vec<_> = std::iter::from_fn(|| fixture.bridge.poll_action())
        .filter_map(|action| match action {
            Action::ToKernel { message, .. } => Some(message.header().unwrap().msg_id.into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["1", "2", "3"]);
}

#[test]
fn the_prompt_of_a_disconnected_client_is_answered_once_stdin_is_back() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    prompt(&mut fixture, "c", "1");
    fixture.disconnect("c");
    fixture
        .bridge
        .link_down(&id("c"), Channel::Stdin, Vec::new());
    fixture.advance(Duration::from_secs(31));
    fixture.actions();
    fixture
        .bridge
        .link_up(fixture.now, &id("c"), Channel::Stdin);
    fixture.advance(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut fixture), ["kernel c stdin input_reply"]);
}

#[test]
fn a_late_reply_does_not_end_the_prompt_of_the_next_cell() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.send_cell("c", "2");
    prompt(&mut fixture, "c", "2");
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    fixture.disconnect("c");
    fixture.actions();
    fixture.advance(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut fixture), ["kernel c stdin input_reply"]);
}

#[test]
fn an_input_reply_waits_for_stdin_and_reaches_no_other_kernel() {
    for same in [true, false] {
        let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
        fixture.send_cell("c", "1");
        prompt(&mut fixture, "c", "1");
        fixture
            .bridge
            .link_down(&id("c"), Channel::Stdin, Vec::new());
        fixture.actions();
        answer_prompt(&mut fixture, "c");
        assert_eq!(to_kernel(&mut fixture), [""; 0]);
        if !same {
            fixture.start_kernel(2);
        }
        fixture.connect("c");
        let arrived = to_kernel(&mut fixture);
        assert_eq!(
            arrived == ["kernel c stdin input_reply"],
            same,
            "{arrived:?}"
        );
    }
}

#[test]
fn an_own_request_lost_with_its_socket_is_sent_again() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    fixture.connect("c");
    fixture.actions();
    let own = id("own");
    fixture.bridge.link_down(&own, Channel::Shell, Vec::new());
    // The socket of another client is not the proxy's.
    fixture.connect("d");
    let actions = fixture.actions();
    assert!(
        !actions.iter().any(|it| it.starts_with("kernel own")),
        "{actions:?}"
    );
    // The kernel's silence on the lost socket is no sign that something runs.
    fixture.advance(Duration::from_secs(1));
    fixture.send_cell("c", "1");
    assert_eq!(to_kernel(&mut fixture), ["kernel c shell execute_request"]);
    fixture.bridge.link_up(fixture.now, &own, Channel::Shell);
    let actions = fixture.actions();
    assert!(
        actions.contains(&"kernel own shell kernel_info_request".to_owned()),
        "{actions:?}"
    );
}

#[test]
fn an_idle_that_was_lost_with_iopub_is_published() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.bridge.iopub_down();
    fixture.reply("c", "1", "execute_request");
    fixture.actions();
    fixture.bridge.iopub_up(fixture.now);
    let own_request = std::iter::from_fn(|| fixture.bridge.poll_action())
        .filter_map(|action| match action {
            Action::ToKernel {
                channel: Channel::Shell,
                message,
                ..
            } => Some(message.header().unwrap().msg_id.into_owned()),
            _ => None,
        })
        .last()
        .expect("the proxy asks on shell");
    assert_eq!(fixture.bridge.outstanding(), 1);
    let own = ("own", &*own_request, "kernel_info_request");
    fixture.publish(own, "status", &json!({ "execution_state": "idle" }));
    assert_eq!(fixture.bridge.outstanding(), 0);
    assert_eq!(fixture.actions(), ["iopub idle"; 2]);
}

#[test]
fn the_interrupt_of_a_server_that_disconnects_at_once_is_carried_out() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["\0c"]);
    fixture.interrupt("\0c", "1");
    fixture.disconnect("\0c");
    fixture.advance(Duration::from_secs(1));
    let actions = fixture.actions();
    let sent = actions
        .iter()
        .any(|action| action.ends_with("interrupt_request"));
    assert!(sent, "{actions:?}");
}

#[test]
fn the_interrupt_of_a_disconnected_client_reaches_the_next_kernel() {
    let mut fixture = Fixture::live(FrontEnd::Jupyter, &["c"]);
    fixture.interrupt("c", "1");
    fixture.disconnect("c");
    fixture.start_kernel(2);
    fixture.actions();
    fixture.advance(Duration::from_secs(1));
    assert!(fixture.actions().contains(&"open c control".to_owned()));
    fixture
        .bridge
        .link_up(fixture.now, &id("c"), Channel::Control);
    assert_eq!(
        to_kernel(&mut fixture),
        ["kernel c control interrupt_request"]
    );
}

#[test]
fn the_loss_of_another_socket_does_not_lose_the_proxys_request_on_shell() {
    for (client, channel) in [("c", Channel::Shell), ("own", Channel::Control)] {
        let mut fixture = Fixture::new(FrontEnd::Other);
        fixture.start_busy_kernel(1);
        fixture.connect("c");
        let socket = id(client);
        fixture.bridge.link_down(&socket, channel, Vec::new());
        fixture.bridge.link_up(fixture.now, &socket, channel);
        // The kernel does not answer: something runs, and the cell waits for it.
        fixture.advance(200 * MS);
        fixture.send_cell("c", "1");
        assert_eq!(to_kernel(&mut fixture), [""; 0], "{client} {channel}");
    }
}

#[test]
fn a_prompt_ends_with_its_cell() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    prompt(&mut fixture, "c", "1");
    // The cell was interrupted.
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    fixture.actions();
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut fixture), [""; 0]);
}

#[test]
fn a_prompt_ends_with_its_kernel() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    // Code of a subshell may prompt too, and is no request of this client.
    prompt(&mut fixture, "c", "other");
    fixture.start_kernel(2);
    let links = [Channel::Shell, Channel::Stdin, Channel::Control];
    for channel in links {
        fixture.bridge.link_up(fixture.now, &id("c"), channel);
    }
    fixture.actions();
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut fixture), [""; 0]);
}

/// A prompt without an answer would block the kernel for everybody; an answer to one that a recorder has taken over
/// would end it before a person can.
#[test]
fn a_proxy_that_exits_answers_the_prompts_that_no_recorder_has() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    for client in ["c", "d"] {
        fixture.send_cell(client, "1");
        prompt(&mut fixture, client, "1");
    }
    fixture.bridge.prompt_handed_over(&id("c"));
    fixture.actions();
    fixture.bridge.end_prompts(fixture.now);
    assert_eq!(fixture.actions(), ["kernel d stdin input_reply"]);
}
