//! Tests for the sockets of disconnected clients when descriptors are scarce.

use super::fixture::Fixture;
use super::*;

const ALL: [Channel; 3] = [Channel::Shell, Channel::Stdin, Channel::Control];

fn disconnect(fixture: &mut Fixture, client: &str) {
    let id = ClientId::new(client.to_owned().into());
    for channel in ALL {
        fixture.bridge.client_left(fixture.now, channel, &id);
    }
}

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
    disconnect(&mut fixture, "went");
    disconnect(&mut fixture, "waits");
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
        disconnect(&mut fixture, "c");
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
