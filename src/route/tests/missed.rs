//! What a subscriber that was cut gets when it subscribes again.

use super::desk::Desk;
use super::*;

/// Returns what a new subscriber reads first: for each message its request and its text.
fn told(desk: &mut Desk) -> Vec<(String, String)> {
    let mut told = desk.bridge.subscribed(desk.now, b"");
    let welcome = told.remove(0);
    let welcome = welcome.header().expect("readable").msg_type.into_owned();
    assert_eq!(welcome, "iopub_welcome");
    let said = told.iter().map(|message| {
        let content: Value = serde_json::from_slice(message.content()).expect("JSON");
        let said = match content["text"].as_str() {
            Some(text) => format!("{}: {text}", content["name"].as_str().expect("a name")),
            None => content["execution_state"].as_str().expect("a state").into(),
        };
        let parent = message.parent().expect("readable");
        (parent.msg_id.into_owned(), said)
    });
    said.collect()
}

/// As [`told`], with only the first words of each text.
fn briefly(desk: &mut Desk) -> Vec<(String, String)> {
    let told = told(desk).into_iter();
    told.map(|(of, said)| (of, said.split(" of ").next().unwrap_or_default().to_owned()))
        .collect()
}

fn of(id: &str, said: &str) -> (String, String) {
    (id.to_owned(), said.to_owned())
}

/// Runs a cell of a client from its request to its end; returns how many messages were published.
fn runs(desk: &mut Desk, id: &str) -> u64 {
    begins(desk, id);
    desk.reply("c", id, "execute_request");
    desk.state("c", id, "idle");
    published(desk)
}

fn begins(desk: &mut Desk, id: &str) {
    desk.cell("c", id);
    desk.state("c", id, "busy");
    prints(desk, id);
}

fn prints(desk: &mut Desk, id: &str) {
    let content = json!({ "name": "stdout", "text": "x" });
    desk.tells(("c", id, "execute_request"), "stream", &content);
}

fn published(desk: &mut Desk) -> u64 {
    let told = desk.told().into_iter();
    told.filter(|told| told.starts_with("iopub")).count() as u64
}

/// Returns a desk, and how many messages were published before its client subscribed.
fn desk() -> (Desk, u64) {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    assert_eq!(runs(&mut desk, "0"), 3, "busy, the output, idle");
    let before = desk.bridge.published();
    (desk, before)
}

/// Returns the welcomes for a subscription to a topic: identity frames, content and session of each.
fn welcomed(desk: &mut Desk, topic: &str) -> Vec<(Vec<String>, String, String)> {
    let told = desk.bridge.subscribed(desk.now, topic.as_bytes());
    let welcomes = told.iter().map(|message| {
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
fn every_subscription_is_welcomed_as_the_kernel_welcomes_its_first() {
    let (mut desk, _) = desk();
    let welcome = |topics: &[&str], content: &str| {
        let topics = topics.iter().map(|topic| (*topic).to_owned()).collect();
        [(topics, content.to_owned(), "k".to_owned())]
    };
    let all = welcome(&[], r#"{"subscription":""}"#);
    assert_eq!(welcomed(&mut desk, ""), all);
    assert_eq!(welcomed(&mut desk, ""), all, "a second one, too");
    let topic = welcome(&["kernel.x"], r#"{"subscription":"kernel.x"}"#);
    assert_eq!(welcomed(&mut desk, "kernel.x"), topic);
}

#[test]
fn a_welcome_waits_until_the_kernel_has_said_which_session_it_has() {
    let mut desk = Desk::new(FrontEnd::Other);
    assert_eq!(welcomed(&mut desk, ""), []);
    assert_eq!(welcomed(&mut desk, ""), []);
    desk.is_there(1);
    // The kernel's own iopub_welcome is for the proxy; only the bridge's welcome is published.
    let told = desk.told();
    let published: Vec<_> = told
        .iter()
        .filter(|told| told.starts_with("iopub"))
        .collect();
    assert_eq!(published, ["iopub iopub_welcome"], "{told:?}");
    desk.joins("c");
    desk.state("agent", "a", "busy");
    let told = desk.told();
    let published: Vec<_> = told
        .iter()
        .filter(|told| told.starts_with("iopub"))
        .collect();
    assert_eq!(published, ["iopub busy"], "{told:?}");
}

#[test]
fn whoever_missed_nothing_is_told_nothing() {
    let (mut desk, _) = desk();
    runs(&mut desk, "1");
    assert_eq!(told(&mut desk), []);
}

#[test]
fn a_cell_whose_end_was_missed_has_it_and_says_what_is_missing() {
    let (mut desk, before) = desk();
    runs(&mut desk, "1");
    desk.bridge.subscriber_cut(desk.now, before + 2);
    runs(&mut desk, "2");
    let text = "stderr: [nb] 5 messages of the kernel are missing here: this window did not read for \
        so long that its output buffer was full. The kernel has gone on; to see the whole \
        output of a cell, run it again.\n";
    let expected = [
        of("1", text),
        of("1", "idle"),
        of("2", text),
        of("2", "idle"),
    ];
    assert_eq!(told(&mut desk), expected);
    let log = std::iter::from_fn(|| desk.bridge.poll_action()).collect::<Vec<_>>();
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
fn a_cell_that_runs_on_says_so_and_the_kernel_is_busy() {
    let (mut desk, before) = desk();
    begins(&mut desk, "1");
    desk.told();
    desk.bridge.subscriber_cut(desk.now, before + 2);
    prints(&mut desk, "1");
    desk.told();
    let notice = of("1", "stderr: [nb] 2 messages");
    assert_eq!(briefly(&mut desk), [notice, of("1", "busy")]);
    desk.state("c", "1", "idle");
    assert_eq!(published(&mut desk), 1, "everybody hears its end");
}

#[test]
fn without_a_cell_it_is_told_once_and_what_else_ended_has_its_end() {
    let (mut desk, before) = desk();
    desk.ask("c", Channel::Shell, "complete_request", "1", &json!({}));
    for state in ["busy", "idle"] {
        let content = json!({ "execution_state": state });
        desk.tells(("c", "1", "complete_request"), "status", &content);
    }
    desk.told();
    desk.bridge.subscriber_cut(desk.now, before + 2);
    let notice = of("", "stderr: [nb] 1 message");
    assert_eq!(briefly(&mut desk), [of("1", "idle"), notice]);
}

#[test]
fn what_the_bridge_itself_ended_is_among_it() {
    let (mut desk, before) = desk();
    begins(&mut desk, "1");
    desk.told();
    desk.bridge.subscriber_cut(desk.now, before + 1);
    desk.bridge
        .kernel_is(desk.now, Kernel::Ended(ending()), &ending(), []);
    desk.told();
    let notice = of("1", "stderr: [nb] 4 messages");
    assert_eq!(briefly(&mut desk), [notice, of("1", "idle")]);
}

#[test]
fn those_that_were_cut_together_are_told_together_and_nobody_long_after() {
    let (mut desk, before) = desk();
    runs(&mut desk, "1");
    desk.bridge.subscriber_cut(desk.now, before + 1);
    desk.bridge.subscriber_cut(desk.now, before + 3);
    assert_eq!(briefly(&mut desk).len(), 2);
    desk.wait(Duration::from_secs(59));
    assert_eq!(briefly(&mut desk).len(), 2, "another of the same process");
    desk.wait(Duration::from_secs(1));
    assert_eq!(briefly(&mut desk), []);
    // Messages that were reported once are not reported again.
    let before = desk.bridge.published();
    runs(&mut desk, "2");
    desk.bridge.subscriber_cut(desk.now, before + 3);
    let notice = of("2", "stderr: [nb] 1 message");
    assert_eq!(briefly(&mut desk), [notice, of("2", "idle")]);
}

#[test]
fn one_that_stays_away_for_an_hour_is_not_waited_for() {
    let (mut desk, before) = desk();
    runs(&mut desk, "1");
    desk.bridge.subscriber_cut(desk.now, before + 1);
    desk.wait(Duration::from_secs(3600));
    assert_eq!(told(&mut desk), []);
}
