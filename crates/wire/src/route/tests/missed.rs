//! What a subscriber that was cut gets when it subscribes again.

use super::fixture::Fixture;
use super::*;

/// Returns what a new subscriber reads first: for each message its request and its text.
fn first_messages(fixture: &mut Fixture) -> Vec<(String, String)> {
    let mut messages = fixture.bridge.subscribed(fixture.now, b"");
    let welcome = messages.remove(0);
    let welcome = welcome.header().expect("readable").msg_type.into_owned();
    assert_eq!(welcome, "iopub_welcome");
    let texts = messages.iter().map(|message| {
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        let text = match content["text"].as_str() {
            Some(text) => format!("{}: {text}", content["name"].as_str().expect("a name")),
            None => content["execution_state"].as_str().expect("a state").into(),
        };
        let parent = message.parent().expect("readable");
        (parent.msg_id.into_owned(), text)
    });
    texts.collect()
}

/// As [`first_messages`], with only the first words of each text.
fn abbreviated(fixture: &mut Fixture) -> Vec<(String, String)> {
    let messages = first_messages(fixture).into_iter();
    messages
        .map(|(request, text)| {
            (
                request,
                text.split(" of ").next().unwrap_or_default().to_owned(),
            )
        })
        .collect()
}

fn pair(id: &str, text: &str) -> (String, String) {
    (id.to_owned(), text.to_owned())
}

/// Runs a cell of a client from its request to its end; returns how many messages were published.
fn run_cell(fixture: &mut Fixture, id: &str) -> u64 {
    begin_cell(fixture, id);
    fixture.reply("c", id, "execute_request");
    fixture.publish_status("c", id, "idle");
    published(fixture)
}

fn begin_cell(fixture: &mut Fixture, id: &str) {
    fixture.send_cell("c", id);
    fixture.publish_status("c", id, "busy");
    print(fixture, id);
}

fn print(fixture: &mut Fixture, id: &str) {
    let content = json!({ "name": "stdout", "text": "x" });
    fixture.publish(("c", id, "execute_request"), "stream", &content);
}

fn published(fixture: &mut Fixture) -> u64 {
    let actions = fixture.actions().into_iter();
    actions.filter(|action| action.starts_with("iopub")).count() as u64
}

/// Makes a bridge with a client; returns also how many messages were published before its client subscribed.
fn fixture() -> (Fixture, u64) {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    assert_eq!(run_cell(&mut fixture, "0"), 3, "busy, the output, idle");
    let before = fixture.bridge.published();
    (fixture, before)
}

/// Returns the welcomes for a subscription to a topic: identity frames, content and session of each.
fn welcomes(fixture: &mut Fixture, topic: &str) -> Vec<(Vec<String>, String, String)> {
    let messages = fixture.bridge.subscribed(fixture.now, topic.as_bytes());
    let welcomes = messages.iter().map(|message| {
        let header = message.header().expect("readable");
        assert_eq!(header.msg_type, "iopub_welcome");
        assert_eq!(&**message.parent_bytes(), b"{}");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let topics = message.identities().iter().map(|frame| text(frame));
        (
            topics.collect(),
            text(message.content()),
            header.session.clone().into_owned(),
        )
    });
    welcomes.collect()
}

#[test]
fn every_subscription_gets_an_iopub_welcome() {
    let (mut fixture, _) = fixture();
    let welcome = |topics: &[&str], content: &str| {
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        [(topics, content.to_owned(), "k".to_owned())]
    };
    let all = welcome(&[], r#"{"subscription":""}"#);
    assert_eq!(welcomes(&mut fixture, ""), all);
    assert_eq!(welcomes(&mut fixture, ""), all, "a second one, too");
    let topic = welcome(&["kernel.x"], r#"{"subscription":"kernel.x"}"#);
    assert_eq!(welcomes(&mut fixture, "kernel.x"), topic);
}

#[test]
fn an_iopub_welcome_waits_until_the_kernels_session_is_known() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    assert_eq!(welcomes(&mut fixture, ""), []);
    assert_eq!(welcomes(&mut fixture, ""), []);
    fixture.start_busy_kernel(1);
    // The kernel's own iopub_welcome is for the proxy; only the bridge's welcome is published.
    let actions = fixture.actions();
    let published: Vec<_> = actions
        .iter()
        .filter(|action| action.starts_with("iopub"))
        .collect();
    assert_eq!(published, ["iopub iopub_welcome"], "{actions:?}");
    fixture.connect("c");
    fixture.publish_status("agent", "a", "busy");
    let actions = fixture.actions();
    let published: Vec<_> = actions
        .iter()
        .filter(|action| action.starts_with("iopub"))
        .collect();
    assert_eq!(published, ["iopub busy"], "{actions:?}");
}

#[test]
fn a_subscriber_that_missed_nothing_gets_no_notice() {
    let (mut fixture, _) = fixture();
    run_cell(&mut fixture, "1");
    assert_eq!(first_messages(&mut fixture), []);
}

#[test]
fn a_missed_idle_is_repeated_after_a_notice() {
    let (mut fixture, before) = fixture();
    run_cell(&mut fixture, "1");
    fixture.bridge.subscriber_cut(fixture.now, before + 2);
    run_cell(&mut fixture, "2");
    let text = "stderr: [nb] 5 messages of the kernel are missing here: this window did not read for \
        so long that its output buffer was full. The kernel has gone on; to see the whole \
        output of a cell, run it again.\n";
    let expected = [
        pair("1", text),
        pair("1", "idle"),
        pair("2", text),
        pair("2", "idle"),
    ];
    assert_eq!(first_messages(&mut fixture), expected);
    let log = std::iter::from_fn(|| fixture.bridge.poll_action()).collect::<Vec<_>>();
    assert!(
        matches!(
            &log[..],
            [Action::Log(Note::MissedReported {
                messages: 5,
                cells: 2
            })]
        ),
        "{log:?}"
    );
}

#[test]
fn a_cell_that_still_runs_gets_a_notice_and_busy() {
    let (mut fixture, before) = fixture();
    begin_cell(&mut fixture, "1");
    fixture.actions();
    fixture.bridge.subscriber_cut(fixture.now, before + 2);
    print(&mut fixture, "1");
    fixture.actions();
    let notice = pair("1", "stderr: [nb] 2 messages");
    assert_eq!(abbreviated(&mut fixture), [notice, pair("1", "busy")]);
    fixture.publish_status("c", "1", "idle");
    assert_eq!(published(&mut fixture), 1, "everybody hears its end");
}

#[test]
fn without_a_cell_the_notice_has_no_parent_and_other_requests_get_idle() {
    let (mut fixture, before) = fixture();
    fixture.send("c", Channel::Shell, "complete_request", "1", &json!({}));
    for state in ["busy", "idle"] {
        let content = json!({ "execution_state": state });
        fixture.publish(("c", "1", "complete_request"), "status", &content);
    }
    fixture.actions();
    fixture.bridge.subscriber_cut(fixture.now, before + 2);
    let notice = pair("", "stderr: [nb] 1 message");
    assert_eq!(abbreviated(&mut fixture), [pair("1", "idle"), notice]);
}

#[test]
fn a_synthetic_idle_can_be_missed_too() {
    let (mut fixture, before) = fixture();
    begin_cell(&mut fixture, "1");
    fixture.actions();
    fixture.bridge.subscriber_cut(fixture.now, before + 1);
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Ended(ending()), &ending(), []);
    fixture.actions();
    let notice = pair("1", "stderr: [nb] 4 messages");
    assert_eq!(abbreviated(&mut fixture), [notice, pair("1", "idle")]);
}

#[test]
fn the_notice_of_missed_messages_is_given_for_a_minute() {
    let (mut fixture, before) = fixture();
    run_cell(&mut fixture, "1");
    fixture.bridge.subscriber_cut(fixture.now, before + 1);
    fixture.bridge.subscriber_cut(fixture.now, before + 3);
    assert_eq!(abbreviated(&mut fixture).len(), 2);
    fixture.advance(Duration::from_secs(59));
    assert_eq!(
        abbreviated(&mut fixture).len(),
        2,
        "another of the same process"
    );
    fixture.advance(Duration::from_secs(1));
    assert_eq!(abbreviated(&mut fixture), []);
    // Messages that were reported once are not reported again.
    let before = fixture.bridge.published();
    run_cell(&mut fixture, "2");
    fixture.bridge.subscriber_cut(fixture.now, before + 3);
    let notice = pair("2", "stderr: [nb] 1 message");
    assert_eq!(abbreviated(&mut fixture), [notice, pair("2", "idle")]);
}

#[test]
fn a_cut_subscriber_gets_no_notice_after_an_hour() {
    let (mut fixture, before) = fixture();
    run_cell(&mut fixture, "1");
    fixture.bridge.subscriber_cut(fixture.now, before + 1);
    fixture.advance(Duration::from_secs(3600));
    assert_eq!(first_messages(&mut fixture), []);
}
