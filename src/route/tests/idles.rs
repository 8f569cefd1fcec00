//! Tests for `idle`s that the kernel's own iopub queue has dropped.

use super::desk::Desk;
use super::*;

const CELL: &str = "execute_request";

/// The kernel publishes a message for a request of a session, with a message number as ipykernel's.
fn says(
    desk: &mut Desk,
    number: u64,
    (session, id): (&str, &str),
    msg_type: &str,
    content: &Value,
) {
    let parent = message(CELL, id, session, "{}".into(), &json!({}));
    let id = format!("k_7_{number}");
    let said = message(msg_type, &id, "k", parent.header_bytes().clone(), content);
    desk.bridge.iopub_message(desk.now, said);
}

fn state(desk: &mut Desk, number: u64, of: (&str, &str), state: &str) {
    says(
        desk,
        number,
        of,
        "status",
        &json!({ "execution_state": state }),
    );
}

/// Returns the published messages, with the text of streams.
fn published(desk: &mut Desk) -> Vec<String> {
    let mut published = Vec::new();
    while let Some(action) = desk.bridge.poll_action() {
        let Action::Publish(message) = action else {
            continue;
        };
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        let said = ["execution_state", "text"].map(|field| content[field].as_str());
        let said = said.into_iter().flatten().next().unwrap_or_default();
        let parent = message.parent().expect("readable");
        published.push(format!("{} {said}", parent.msg_id));
    }
    published
}

/// A cell that prints; its reply has arrived, but neither its last prints nor its `idle`.
fn flood(desk: &mut Desk, id: &str) {
    flood_from(desk, 10, id);
}

/// The same with the number of its first message.
fn flood_from(desk: &mut Desk, first: u64, id: &str) {
    desk.cell("c", id);
    state(desk, first, ("c", id), "busy");
    let text = json!({ "name": "stdout", "text": "x" });
    says(desk, first + 1, ("c", id), "stream", &text);
    desk.reply("c", id, CELL);
    published(desk);
}

#[test]
fn the_next_cells_begin_proves_that_the_end_before_it_was_lost() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    flood(&mut desk, "1");
    // 12 to 24 are prints, 25 is the reply, 26 the `idle`.
    state(&mut desk, 27, ("agent", "a"), "busy");
    let text = "[nb] 14 messages of the kernel are missing here: its own queue was full, and it dropped \
        them. The end of this cell was among them. To see its whole output, run it again.\n";
    let expected = [format!("1 {text}"), "1 idle".into(), "a busy".into()];
    assert_eq!(published(&mut desk), expected);
    assert_eq!(desk.bridge.outstanding(), 0);
    // The agent's cell goes on: later cells wait for it.
    desk.cell("c", "2");
    assert!(
        desk.told()
            .iter()
            .all(|told| !told.contains("execute_request"))
    );
    state(&mut desk, 29, ("agent", "a"), "idle");
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn a_cell_whose_end_arrives_says_what_was_dropped_before() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    flood(&mut desk, "1");
    let text = json!({ "name": "stdout", "text": "x" });
    says(&mut desk, 31, ("c", "1"), "stream", &text);
    says(&mut desk, 42, ("c", "1"), "stream", &text);
    says(&mut desk, 143, ("c", "1"), "stream", &text);
    // 144 is the reply.
    state(&mut desk, 145, ("c", "1"), "idle");
    let said = "[nb] 100 messages of the kernel are missing above: its own queue was full, and it dropped \
        them. Fewer, larger prints lose nothing.\n";
    let prints = ["1 x".to_owned(), "1 x".to_owned(), "1 x".to_owned()];
    let expected = [&prints[..], &[format!("1 {said}"), "1 idle".to_owned()]].concat();
    assert_eq!(published(&mut desk), expected, "a gap of 10 is no loss");

    // What is missing between two cells is of neither.
    flood_from(&mut desk, 300, "2");
    state(&mut desk, 303, ("c", "2"), "idle");
    assert_eq!(published(&mut desk), ["2 idle"]);
}

#[test]
fn where_nobody_runs_anything_else_the_proxys_own_question_proves_it() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    flood(&mut desk, "1");
    desk.wait(999 * MS);
    assert!(desk.told().is_empty(), "it may be on its way");
    desk.wait(MS);
    assert_eq!(desk.told(), ["kernel own shell kernel_info_request"]);
    let own = desk.bridge.asked_on_shell().cloned().expect("it was asked");
    desk.own_reply(&own);
    assert!(published(&mut desk).is_empty(), "iopub may be behind");
    desk.own_state(&own, "busy");
    desk.own_state(&own, "idle");
    let actions = &*desk.bridge.actions();
    let lost = actions
        .iter()
        .position(|it| matches!(it, Action::IdleLost { msg_id } if msg_id == "1"));
    let next = lost.and_then(|at| actions.get(at + 1));
    assert!(matches!(next, Some(Action::Publish(_))), "{actions:?}");
    assert_eq!(published(&mut desk)[1..2], ["1 idle"]);
    assert_eq!(desk.bridge.outstanding(), 0);
    desk.wait(Duration::from_secs(60));
    assert!(desk.told().is_empty(), "nothing is asked any more");
}

#[test]
fn an_idle_is_overdue_a_second_after_its_own_reply() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    for request in ["1", "2"] {
        desk.cell("c", request);
        desk.state("c", request, "busy");
        desk.reply("c", request, "execute_request");
        desk.wait(999 * MS);
        if request == "1" {
            desk.state("c", request, "idle");
        }
    }
    // The reply of the second cell came 999 ms ago.
    desk.told();
    desk.wait(MS);
    assert_eq!(desk.told(), ["kernel own shell kernel_info_request"]);
}

#[test]
fn a_question_whose_own_end_is_lost_is_asked_again() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    flood(&mut desk, "1");
    desk.wait(Duration::from_secs(1));
    let first = desk.bridge.asked_on_shell().cloned().expect("it was asked");
    desk.own_reply(&first);
    desk.wait(Duration::from_secs(1));
    let second = desk
        .bridge
        .asked_on_shell()
        .cloned()
        .expect("it was asked again");
    assert_ne!(first, second);
    published(&mut desk);
    desk.own_reply(&second);
    desk.own_state(&second, "idle");
    assert!(published(&mut desk).contains(&"1 idle".to_owned()));
}

#[test]
fn an_end_that_is_only_late_is_told_once() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    flood(&mut desk, "1");
    desk.wait(Duration::from_secs(1));
    let own = desk.bridge.asked_on_shell().cloned().expect("it was asked");
    desk.own_reply(&own);
    state(&mut desk, 13, ("c", "1"), "idle");
    desk.own_state(&own, "idle");
    let told = published(&mut desk);
    assert_eq!(
        told.iter().filter(|told| *told == "1 idle").count(),
        1,
        "{told:?}"
    );
    assert!(!told.iter().any(|told| told.contains("[nb]")), "{told:?}");
}

#[test]
fn a_reply_that_is_ahead_of_iopub_ends_nothing() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    // The kernel has run the agent's cell first, and this one after it.
    desk.cell("c", "1");
    desk.reply("c", "1", CELL);
    published(&mut desk);
    state(&mut desk, 10, ("agent", "a"), "busy");
    state(&mut desk, 12, ("agent", "a"), "idle");
    state(&mut desk, 13, ("c", "1"), "busy");
    state(&mut desk, 15, ("c", "1"), "idle");
    let expected = ["a busy", "a idle", "1 busy", "1 idle"];
    assert_eq!(published(&mut desk), expected);
    assert_eq!(desk.bridge.outstanding(), 0);
}

#[test]
fn what_a_subshell_runs_does_not_end_what_the_main_shell_has() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    flood(&mut desk, "1");
    let header = br#"{"msg_id":"s","msg_type":"execute_request","session":"x","subshell_id":"1"}"#;
    let busy = json!({ "execution_state": "busy" });
    let busy = message("status", "k_7_13", "k", header[..].into(), &busy);
    desk.bridge.iopub_message(desk.now, busy);
    assert!(!published(&mut desk).contains(&"1 idle".to_owned()));
}

#[test]
fn what_was_lost_with_the_connection_is_told_in_the_cell() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    flood(&mut desk, "1");
    desk.bridge.iopub_down();
    desk.bridge.iopub_up(desk.now);
    // The proxy's own question comes first; it has no outputs to which a notice could belong.
    let parent = message("kernel_info_request", "own", "nb", "{}".into(), &json!({}));
    let content = json!({ "execution_state": "busy" });
    let parent = parent.header_bytes().clone();
    let busy = message("status", "k_7_14", "k", parent, &content);
    desk.bridge.iopub_message(desk.now, busy);
    let text = json!({ "name": "stdout", "text": "x" });
    says(&mut desk, 15, ("c", "1"), "stream", &text);
    let text =
        "[nb] the connection to the kernel was lost: 2 messages of the kernel are missing here\n";
    let expected = ["own busy".to_owned(), format!("1 {text}"), "1 x".into()];
    assert_eq!(published(&mut desk), expected);
}

#[test]
fn a_question_that_was_asked_before_the_connection_was_lost_is_not_missing() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    flood(&mut desk, "1");
    let parent = message(CELL, "1", "c", "{}".into(), &json!({}));
    let parent = parent.header_bytes().clone();
    let prompt = json!({ "prompt": "name?", "password": false });
    let asked = message("input_request", "k_7_12", "k", parent, &prompt);
    let client = ClientId::new("c".to_owned().into());
    desk.bridge
        .kernel_message(desk.now, &client, Channel::Stdin, asked);
    desk.bridge.iopub_down();
    desk.bridge.iopub_up(desk.now);
    let text = json!({ "name": "stdout", "text": "x" });
    says(&mut desk, 13, ("c", "1"), "stream", &text);
    assert_eq!(published(&mut desk), ["1 x"]);
}
