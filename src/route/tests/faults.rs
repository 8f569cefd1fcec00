//! Regression tests for faults at unfavourable moments.

use super::desk::Desk;
use super::*;

const ALL: [Channel; 3] = [Channel::Shell, Channel::Stdin, Channel::Control];

fn id(client: &str) -> ClientId {
    ClientId::new(client.to_owned().into())
}

fn leaves(desk: &mut Desk, client: &str) {
    for channel in ALL {
        desk.bridge.client_left(desk.now, channel, &id(client));
    }
}

/// The kernel prompts a client, for one of its cells.
fn prompts(desk: &mut Desk, client: &str, cell: &str) {
    let parent = message("execute_request", cell, client, "{}".into(), &json!({}));
    let parent = parent.header_bytes().clone();
    let prompt = message("input_request", "p", "k", parent, &json!({}));
    desk.bridge
        .kernel_message(desk.now, &id(client), Channel::Stdin, prompt);
}

fn answers(desk: &mut Desk, client: &str) {
    let content = json!({ "value": "yes" });
    desk.ask(client, Channel::Stdin, "input_reply", "i", &content);
}

/// Returns the actions that send something of a client to the kernel.
fn to_kernel(desk: &mut Desk) -> Vec<String> {
    let told = desk.told().into_iter();
    told.filter(|told| told.starts_with("kernel c")).collect()
}

#[test]
fn a_client_that_reconnects_while_it_is_not_read_is_not_read_on_the_new_connection() {
    let mut desk = Desk::new(FrontEnd::Other);
    desk.joins("c");
    let content = json!({ "code": "x".repeat(60_000) });
    for number in ["1", "2"] {
        desk.ask("c", Channel::Shell, "complete_request", number, &content);
    }
    assert_eq!(desk.told(), ["pause"]);
    desk.bridge.client_joined(Channel::Shell, &id("c"));
    assert_eq!(desk.told(), ["pause"]);
}

#[test]
fn what_comes_back_from_a_full_socket_is_not_overtaken_by_what_follows() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    for number in ["1", "2", "3"] {
        desk.cell("c", number);
    }
    // The first message does not fit; the caller reports that before it takes the next action.
    let first = std::iter::from_fn(|| desk.bridge.poll_action()).find_map(|action| match action {
        Action::ToKernel { message, .. } => Some(message),
        _ => None,
    });
    let first = vec![first.expect("the first was sent")];
    desk.bridge.link_down(&id("c"), Channel::Shell, first);
    assert_eq!(to_kernel(&mut desk), [""; 0]);
    desk.bridge.link_up(desk.now, &id("c"), Channel::Shell);
    let order: Vec<_> = std::iter::from_fn(|| desk.bridge.poll_action())
        .filter_map(|action| match action {
            Action::ToKernel { message, .. } => Some(message.header().unwrap().msg_id.into_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(order, ["1", "2", "3"]);
}

#[test]
fn a_question_to_one_that_is_gone_is_answered_once_stdin_is_back() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    prompts(&mut desk, "c", "1");
    leaves(&mut desk, "c");
    desk.bridge.link_down(&id("c"), Channel::Stdin, Vec::new());
    desk.wait(Duration::from_secs(31));
    desk.told();
    desk.bridge.link_up(desk.now, &id("c"), Channel::Stdin);
    desk.wait(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut desk), ["kernel c stdin input_reply"]);
}

#[test]
fn the_late_reply_of_a_cell_does_not_take_the_next_ones_question_away() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    desk.cell("c", "2");
    prompts(&mut desk, "c", "2");
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    leaves(&mut desk, "c");
    desk.told();
    desk.wait(Duration::from_secs(31));
    assert_eq!(to_kernel(&mut desk), ["kernel c stdin input_reply"]);
}

#[test]
fn an_answer_given_while_stdin_is_lost_arrives_when_it_is_back_and_at_no_other_kernel() {
    for same in [true, false] {
        let mut desk = Desk::live(FrontEnd::Other, &["c"]);
        desk.cell("c", "1");
        prompts(&mut desk, "c", "1");
        desk.bridge.link_down(&id("c"), Channel::Stdin, Vec::new());
        desk.told();
        answers(&mut desk, "c");
        assert_eq!(to_kernel(&mut desk), [""; 0]);
        if !same {
            desk.lives(2);
        }
        desk.joins("c");
        let arrived = to_kernel(&mut desk);
        assert_eq!(
            arrived == ["kernel c stdin input_reply"],
            same,
            "{arrived:?}"
        );
    }
}

#[test]
fn a_question_of_the_proxys_own_that_is_lost_with_its_socket_is_asked_again() {
    let mut desk = Desk::new(FrontEnd::Other);
    desk.is_there(1);
    desk.joins("c");
    desk.told();
    let own = id("own");
    desk.bridge.link_down(&own, Channel::Shell, Vec::new());
    // The kernel's silence on the lost socket is no sign that something runs.
    desk.wait(Duration::from_secs(1));
    desk.cell("c", "1");
    assert_eq!(to_kernel(&mut desk), ["kernel c shell execute_request"]);
    desk.bridge.link_up(desk.now, &own, Channel::Shell);
    let told = desk.told();
    assert!(
        told.contains(&"kernel own shell kernel_info_request".to_owned()),
        "{told:?}"
    );
}

#[test]
fn an_idle_that_was_told_while_iopub_was_lost_is_told_again() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    desk.state("c", "1", "busy");
    desk.bridge.iopub_down();
    desk.reply("c", "1", "execute_request");
    desk.told();
    desk.bridge.iopub_up(desk.now);
    let question = std::iter::from_fn(|| desk.bridge.poll_action())
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
    assert_eq!(desk.bridge.outstanding(), 1);
    let own = ("own", &*question, "kernel_info_request");
    desk.tells(own, "status", &json!({ "execution_state": "idle" }));
    assert_eq!(desk.bridge.outstanding(), 0);
    assert_eq!(desk.told(), ["iopub idle"; 2]);
}

#[test]
fn the_interrupt_of_a_server_that_hangs_up_at_once_is_carried_out() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["\0c"]);
    desk.stop("\0c", "1");
    leaves(&mut desk, "\0c");
    desk.wait(Duration::from_secs(1));
    let told = desk.told();
    let sent = told.iter().any(|told| told.ends_with("interrupt_request"));
    assert!(sent, "{told:?}");
}

#[test]
fn what_one_that_left_still_has_to_say_finds_its_way_to_the_next_kernel() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["c"]);
    desk.stop("c", "1");
    leaves(&mut desk, "c");
    desk.lives(2);
    desk.told();
    desk.wait(Duration::from_secs(1));
    assert!(desk.told().contains(&"open c control".to_owned()));
    desk.bridge.link_up(desk.now, &id("c"), Channel::Control);
    assert_eq!(to_kernel(&mut desk), ["kernel c control interrupt_request"]);
}
