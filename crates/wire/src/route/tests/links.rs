//! Tests for the sockets of disconnected clients when descriptors are scarce.

use super::fixture::Fixture;
use super::*;

/// Returns the bridge's actions when no descriptors are left.
fn close_idle_links(fixture: &mut Fixture) -> Vec<String> {
    fixture.actions();
    fixture.bridge.close_idle_links();
    fixture.actions()
}

#[test]
fn idle_links_of_disconnected_clients_are_closed_until_they_reconnect() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["here", "went", "waits"]);
    fixture.send_cell("waits", "1");
    fixture.disconnect("went");
    fixture.disconnect("waits");
    assert_eq!(close_idle_links(&mut fixture), ["close went"]);
    assert!(close_idle_links(&mut fixture).is_empty(), "that was all");
    fixture.reply("waits", "1", "execute_request");
    fixture.publish_status("waits", "1", "idle");
    assert_eq!(close_idle_links(&mut fixture), ["close waits"]);
    // The reply is stored all the same, and a client that returns is served as before.
    let id = ClientId::new("waits".into());
    fixture.bridge.client_joined(Channel::Shell, &id);
    assert_eq!(
        fixture.actions(),
        [
            "client shell execute_reply",
            "open waits stdin",
            "open waits shell"
        ]
    );
    fixture.send_cell("waits", "2");
    assert!(
        fixture.actions().is_empty(),
        "its sockets are not connected yet"
    );
    for channel in [Channel::Stdin, Channel::Shell] {
        fixture.bridge.link_up(fixture.now, &id, channel);
    }
    let actions = fixture.actions();
    assert!(
        actions.contains(&"kernel waits shell execute_request".to_owned()),
        "{actions:?}"
    );
}

#[test]
fn a_late_reply_after_the_links_were_closed_does_not_reach_the_client_again() {
    for forgotten in [false, true] {
        let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
        fixture.publish_status("agent", "a1", "busy");
        fixture.send("c", Channel::Shell, "kernel_info_request", "1", &json!({}));
        fixture.advance(200 * MS);
        let answered = fixture.actions();
        assert!(
            answered.contains(&"client shell kernel_info_reply".to_owned()),
            "{answered:?}"
        );
        fixture.disconnect("c");
        if forgotten {
            fixture.advance(Duration::from_secs(31));
        } else {
            assert_eq!(close_idle_links(&mut fixture), ["close c"]);
        }
        fixture.connect("c");
        fixture.actions();
        let parent = ("c", "1", "kernel_info_request");
        fixture.publish(parent, "status", &json!({ "execution_state": "busy" }));
        fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
        fixture.reply("c", "1", "kernel_info_request");
        assert!(fixture.actions().is_empty(), "forgotten: {forgotten}");
        assert_eq!(fixture.bridge.outstanding(), 0);
    }
}

#[test]
fn a_client_is_known_from_its_first_connection_until_it_is_forgotten() {
    let mut fixture = Fixture::live(FrontEnd::Other, &[]);
    let id = ClientId::new("c".into());
    assert!(!fixture.bridge.knows(&id));
    fixture.connect("c");
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(29));
    assert!(fixture.bridge.knows(&id), "it may come back");
    fixture.advance(Duration::from_secs(1));
    assert!(!fixture.bridge.knows(&id));
}

#[test]
fn a_client_is_forgotten_although_another_clients_cell_runs() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c", "d"]);
    fixture.send_cell("d", "1");
    fixture.actions();
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(30));
    assert_eq!(fixture.actions(), ["close c"]);
}

/// On control a reply is the whole answer for the client; the `idle` may follow it.
#[test]
fn a_request_whose_idle_follows_after_the_links_were_closed_is_not_counted_for_ever() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.send("c", Channel::Control, "debug_request", "1", &json!({}));
    fixture.reply("c", "1", "debug_request");
    fixture.disconnect("c");
    assert_eq!(close_idle_links(&mut fixture), ["close c"]);
    let parent = ("c", "1", "debug_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
    assert_eq!(fixture.bridge.outstanding(), 0);
}

/// Nobody waits for the `idle`, which is lost with the kernel.
#[test]
fn an_anonymous_client_that_has_its_reply_on_control_is_forgotten_before_the_idle() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["\0c"]);
    fixture.send("\0c", Channel::Control, "debug_request", "1", &json!({}));
    let parent = ("\0c", "1", "debug_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "busy" }));
    fixture.reply("\0c", "1", "debug_request");
    fixture.actions();
    fixture.disconnect("\0c");
    fixture.advance(Duration::ZERO);
    assert_eq!(fixture.actions(), ["close 0x0063"]);
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Awaited, &ending(), []);
    assert_eq!(fixture.actions(), ["close own"]);
    assert_eq!(fixture.bridge.outstanding(), 0);
}
