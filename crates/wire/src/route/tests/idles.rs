//! Tests for `idle`s that the kernel's own iopub queue has dropped.

use super::fixture::Fixture;
use super::*;

const CELL: &str = "execute_request";

/// The kernel publishes a message for a request of a session, with a message number as ipykernel's.
fn publish(
    fixture: &mut Fixture,
    number: u64,
    (session, id): (&str, &str),
    msg_type: &str,
    content: &Value,
) {
    let parent = message(CELL, id, session, "{}".into(), &json!({}));
    let id = format!("k_7_{number}");
    let message = message(msg_type, &id, "k", parent.header_bytes().clone(), content);
    fixture.bridge.iopub_message(fixture.now, message);
}

fn publish_status(fixture: &mut Fixture, number: u64, request: (&str, &str), state: &str) {
    publish(
        fixture,
        number,
        request,
        "status",
        &json!({ "execution_state": state }),
    );
}

/// Returns the published messages, with the text of streams.
fn published(fixture: &mut Fixture) -> Vec<String> {
    let mut published = Vec::new();
    while let Some(action) = fixture.bridge.poll_action() {
        let Action::Publish(message) = action else {
            continue;
        };
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        let text = ["execution_state", "text"].map(|field| content[field].as_str());
        let text = text.into_iter().flatten().next().unwrap_or_default();
        let parent = message.parent().expect("readable");
        published.push(format!("{} {text}", parent.msg_id));
    }
    published
}

/// A cell that prints; its reply has arrived, but neither its last prints nor its `idle`.
fn flood(fixture: &mut Fixture, id: &str) {
    flood_from(fixture, 10, id);
}

/// The same with the number of its first message.
fn flood_from(fixture: &mut Fixture, first: u64, id: &str) {
    fixture.send_cell("c", id);
    publish_status(fixture, first, ("c", id), "busy");
    let text = json!({ "name": "stdout", "text": "x" });
    publish(fixture, first + 1, ("c", id), "stream", &text);
    fixture.reply("c", id, CELL);
    published(fixture);
}

#[test]
fn the_next_cells_busy_proves_that_the_idle_before_it_was_lost() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    // 12 to 24 are prints, 25 is the reply, 26 the `idle`.
    publish_status(&mut fixture, 27, ("agent", "a"), "busy");
    let text = "[nb] 14 messages of the kernel are missing here: its own queue was full, and it dropped \
        them. The end of this cell was among them. To see its whole output, run it again.\n";
    let expected = [format!("1 {text}"), "1 idle".into(), "a busy".into()];
    assert_eq!(published(&mut fixture), expected);
    assert_eq!(fixture.bridge.outstanding(), 0);
    // The agent's cell goes on: later cells wait for it.
    fixture.send_cell("c", "2");
    assert!(
        fixture
            .actions()
            .iter()
            .all(|action| !action.contains("execute_request"))
    );
    publish_status(&mut fixture, 29, ("agent", "a"), "idle");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn no_notice_counts_the_lost_idle_alone() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    // 12 is the reply, 13 the `idle`.
    publish_status(&mut fixture, 14, ("agent", "a"), "busy");
    assert_eq!(published(&mut fixture), ["1 idle", "a busy"]);
}

#[test]
fn a_notice_before_idle_counts_the_messages_that_were_dropped() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    let text = json!({ "name": "stdout", "text": "x" });
    publish(&mut fixture, 31, ("c", "1"), "stream", &text);
    publish(&mut fixture, 42, ("c", "1"), "stream", &text);
    publish(&mut fixture, 143, ("c", "1"), "stream", &text);
    // 144 is the reply.
    publish_status(&mut fixture, 145, ("c", "1"), "idle");
    let notice = "[nb] 100 messages of the kernel are missing above: its own queue was full, and it dropped \
        them. Fewer, larger prints lose nothing.\n";
    let prints = ["1 x".to_owned(), "1 x".to_owned(), "1 x".to_owned()];
    let expected = [&prints[..], &[format!("1 {notice}"), "1 idle".to_owned()]].concat();
    assert_eq!(published(&mut fixture), expected, "a gap of 10 is no loss");

    // What is missing between two cells is of neither.
    flood_from(&mut fixture, 300, "2");
    publish_status(&mut fixture, 303, ("c", "2"), "idle");
    assert_eq!(published(&mut fixture), ["2 idle"]);
}

#[test]
fn the_idle_of_the_proxys_own_request_proves_that_an_idle_was_lost() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    flood(&mut fixture, "1");
    fixture.advance(999 * MS);
    assert!(fixture.actions().is_empty(), "it may be on its way");
    fixture.advance(MS);
    assert_eq!(fixture.actions(), ["kernel own shell kernel_info_request"]);
    let own = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.reply_to_own(&own);
    assert!(published(&mut fixture).is_empty(), "iopub may be behind");
    fixture.publish_own_status(&own, "busy");
    fixture.publish_own_status(&own, "idle");
    let actions = &*fixture.bridge.actions();
    let lost = actions
        .iter()
        .position(|it| matches!(it, Action::IdleLost { msg_id } if msg_id == "1"));
    let next = lost.and_then(|at| actions.get(at + 1));
    assert!(matches!(next, Some(Action::Publish(_))), "{actions:?}");
    assert_eq!(published(&mut fixture)[1..2], ["1 idle"]);
    assert_eq!(fixture.bridge.outstanding(), 0);
    fixture.advance(Duration::from_secs(60));
    assert!(fixture.actions().is_empty(), "nothing is asked any more");
}

#[test]
fn the_idle_of_a_request_on_control_is_not_the_place_for_a_notice_about_a_cell() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    let text = json!({ "name": "stdout", "text": "x" });
    publish(&mut fixture, 112, ("c", "1"), "stream", &text);
    let parent = message("debug_request", "d", "c", "{}".into(), &json!({}));
    let content = json!({ "execution_state": "idle" });
    let parent = parent.header_bytes().clone();
    let idle = message("status", "k_7_113", "k", parent, &content);
    fixture.bridge.iopub_message(fixture.now, idle);
    assert_eq!(published(&mut fixture), ["1 x", "d idle"]);
    // 114 is the reply.
    publish_status(&mut fixture, 115, ("c", "1"), "idle");
    let published = published(&mut fixture);
    let is_notice = published[0].starts_with("1 [nb] 100 messages");
    assert!(is_notice && published[1..] == ["1 idle"], "{published:?}");
}

#[test]
fn an_idle_is_overdue_a_second_after_its_reply() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    for request in ["1", "2"] {
        fixture.send_cell("c", request);
        fixture.publish_status("c", request, "busy");
        fixture.reply("c", request, "execute_request");
        fixture.advance(999 * MS);
        if request == "1" {
            fixture.publish_status("c", request, "idle");
        }
    }
    // The reply of the second cell came 999 ms ago.
    fixture.actions();
    fixture.advance(MS);
    assert_eq!(fixture.actions(), ["kernel own shell kernel_info_request"]);
}

/// Nothing else has told the bridge the time for ten seconds.
#[test]
fn an_idle_is_overdue_a_second_after_its_reply_however_long_the_cell_ran() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send_cell("c", "1");
    fixture.publish_status("c", "1", "busy");
    fixture.advance(Duration::from_secs(10));
    fixture.reply("c", "1", "execute_request");
    fixture.actions();
    fixture.advance(999 * MS);
    assert_eq!(fixture.actions(), [""; 0]);
    fixture.advance(MS);
    assert_eq!(fixture.actions(), ["kernel own shell kernel_info_request"]);
}

#[test]
fn an_own_request_whose_idle_is_lost_is_sent_again() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    flood(&mut fixture, "1");
    fixture.advance(Duration::from_secs(1));
    let first = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.reply_to_own(&first);
    fixture.advance(Duration::from_secs(1));
    let second = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked again");
    assert_ne!(first, second);
    published(&mut fixture);
    fixture.reply_to_own(&second);
    fixture.publish_own_status(&second, "idle");
    assert!(published(&mut fixture).contains(&"1 idle".to_owned()));
}

/// The kernel sends the reply before the `idle`.
#[test]
fn the_idle_of_the_proxys_own_request_releases_a_cell_at_once_that_waits_for_a_lost_idle() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    publish_status(&mut fixture, 10, ("agent", "a"), "busy");
    fixture.send_cell("c", "1");
    fixture.actions();
    let own = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.reply_to_own(&own);
    fixture.publish_own_status(&own, "busy");
    assert_eq!(fixture.actions(), ["iopub busy"]);
    fixture.publish_own_status(&own, "idle");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn an_idle_that_is_lost_after_iopub_is_connected_again_is_replaced() {
    // The kernel drops the `idle` of the client's request, or that of the proxy's own one.
    for drops_own in [false, true] {
        let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
        let completion = ("c", "1", "complete_request");
        fixture.send("c", Channel::Shell, completion.2, "1", &json!({}));
        fixture.bridge.iopub_down();
        fixture.reply("c", "1", completion.2);
        fixture.bridge.iopub_up(fixture.now);
        let busy = json!({ "execution_state": "busy" });
        if drops_own {
            fixture.publish_status("agent", "a", "busy");
        } else {
            fixture.publish(completion, "status", &busy);
        }
        for is_first in [true, false] {
            let own = fixture.bridge.shell_request().cloned();
            let own = own.expect("it was asked");
            fixture.actions();
            fixture.reply_to_own(&own);
            if !(is_first && drops_own) {
                fixture.publish_own_status(&own, "idle");
            }
            fixture.advance(Duration::from_secs(1));
        }
        assert_eq!(fixture.published_under("status")[0], "1", "{drops_own}");
        assert_eq!(fixture.bridge.outstanding(), 0, "{drops_own}");
    }
}

#[test]
fn the_idle_of_a_comm_message_that_is_lost_together_with_the_proxys_own_is_replaced() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    let content = json!({ "comm_id": "w", "data": {} });
    fixture.send("c", Channel::Shell, "comm_msg", "1", &content);
    fixture.bridge.iopub_down();
    fixture.bridge.iopub_up(fixture.now);
    fixture.publish_status("agent", "a", "busy");
    let first = fixture.bridge.shell_request().cloned();
    let first = first.expect("it was asked");
    fixture.reply_to_own(&first);
    fixture.actions();
    fixture.advance(Duration::from_secs(1));
    let second = fixture.bridge.shell_request().cloned();
    let second = second.expect("it was asked again");
    // The kernel is busy; this request still proves the loss when it is answered.
    fixture.advance(Duration::from_secs(2));
    fixture.reply_to_own(&second);
    fixture.actions();
    fixture.publish_own_status(&second, "idle");
    assert_eq!(fixture.published_under("status")[0], "1");
    assert_eq!(fixture.bridge.outstanding(), 0);
    fixture.advance(Duration::from_secs(60));
    assert_eq!(fixture.bridge.shell_request(), None);
}

#[test]
fn a_late_idle_is_published_once() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    flood(&mut fixture, "1");
    fixture.advance(Duration::from_secs(1));
    let own = fixture
        .bridge
        .shell_request()
        .cloned()
        .expect("it was asked");
    fixture.reply_to_own(&own);
    publish_status(&mut fixture, 13, ("c", "1"), "idle");
    fixture.publish_own_status(&own, "idle");
    let texts = published(&mut fixture);
    assert_eq!(
        texts.iter().filter(|text| *text == "1 idle").count(),
        1,
        "{texts:?}"
    );
    assert!(!texts.iter().any(|text| text.contains("[nb]")), "{texts:?}");
}

#[test]
fn a_reply_that_is_ahead_of_iopub_ends_no_cell() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    // The kernel has run the agent's cell first, and this one after it.
    fixture.send_cell("c", "1");
    fixture.reply("c", "1", CELL);
    published(&mut fixture);
    publish_status(&mut fixture, 10, ("agent", "a"), "busy");
    publish_status(&mut fixture, 12, ("agent", "a"), "idle");
    publish_status(&mut fixture, 13, ("c", "1"), "busy");
    publish_status(&mut fixture, 15, ("c", "1"), "idle");
    let expected = ["a busy", "a idle", "1 busy", "1 idle"];
    assert_eq!(published(&mut fixture), expected);
    assert_eq!(fixture.bridge.outstanding(), 0);
}

#[test]
fn busy_of_a_subshell_does_not_end_a_cell_on_the_main_shell() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    flood(&mut fixture, "1");
    let header = br#"{"msg_id":"s","msg_type":"execute_request","session":"x","subshell_id":"1"}"#;
    let busy = json!({ "execution_state": "busy" });
    let busy = message("status", "k_7_13", "k", header[..].into(), &busy);
    fixture.bridge.iopub_message(fixture.now, busy);
    assert!(!published(&mut fixture).contains(&"1 idle".to_owned()));
}

#[test]
fn a_notice_in_the_cell_counts_the_messages_lost_with_the_connection() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    fixture.bridge.iopub_down();
    fixture.bridge.iopub_up(fixture.now);
    // The proxy's own question comes first; it has no outputs to which a notice could belong.
    let parent = message("kernel_info_request", "own", "nb", "{}".into(), &json!({}));
    let content = json!({ "execution_state": "busy" });
    let parent = parent.header_bytes().clone();
    let busy = message("status", "k_7_14", "k", parent, &content);
    fixture.bridge.iopub_message(fixture.now, busy);
    let text = json!({ "name": "stdout", "text": "x" });
    publish(&mut fixture, 15, ("c", "1"), "stream", &text);
    let text =
        "[nb] the connection to the kernel was lost: 2 messages of the kernel are missing here\n";
    let expected = ["own busy".to_owned(), format!("1 {text}"), "1 x".into()];
    assert_eq!(published(&mut fixture), expected);
    // It is said once.
    let text = json!({ "name": "stdout", "text": "y" });
    publish(&mut fixture, 16, ("c", "1"), "stream", &text);
    assert_eq!(published(&mut fixture), ["1 y"]);
}

#[test]
fn an_input_request_before_the_loss_of_the_connection_does_not_count_as_lost() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    flood(&mut fixture, "1");
    let parent = message(CELL, "1", "c", "{}".into(), &json!({}));
    let parent = parent.header_bytes().clone();
    let content = json!({ "prompt": "name?", "password": false });
    let prompt = message("input_request", "k_7_12", "k", parent, &content);
    let client = ClientId::new("c".to_owned().into());
    fixture
        .bridge
        .kernel_message(fixture.now, &client, Channel::Stdin, prompt);
    fixture.bridge.iopub_down();
    fixture.bridge.iopub_up(fixture.now);
    let text = json!({ "name": "stdout", "text": "x" });
    publish(&mut fixture, 13, ("c", "1"), "stream", &text);
    assert_eq!(published(&mut fixture), ["1 x"]);
}
