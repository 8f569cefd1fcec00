//! Tests for the sockets of disconnected clients when descriptors are scarce.

use super::desk::Desk;
use super::*;

const ALL: [Channel; 3] = [Channel::Shell, Channel::Stdin, Channel::Control];

fn leaves(desk: &mut Desk, client: &str) {
    let id = ClientId::new(client.to_owned().into());
    for channel in ALL {
        desk.bridge.client_left(desk.now, channel, &id);
    }
}

/// Returns the bridge's actions when no descriptors are left.
fn made_room(desk: &mut Desk) -> Vec<String> {
    desk.told();
    desk.bridge.close_idle_links();
    desk.told()
}

#[test]
fn the_sockets_of_those_who_went_and_are_owed_nothing_are_closed_until_they_return() {
    let mut desk = Desk::live(FrontEnd::Other, &["here", "went", "waits"]);
    desk.cell("waits", "1");
    leaves(&mut desk, "went");
    leaves(&mut desk, "waits");
    assert_eq!(made_room(&mut desk), ["close went"]);
    assert!(made_room(&mut desk).is_empty(), "that was all");
    desk.reply("waits", "1", "execute_request");
    desk.state("waits", "1", "idle");
    assert_eq!(made_room(&mut desk), ["close waits"]);
    // The reply is stored all the same, and a client that returns is served as before.
    let id = ClientId::new("waits".into());
    desk.bridge.client_joined(Channel::Shell, &id);
    assert_eq!(
        desk.told(),
        [
            "client shell execute_reply",
            "open waits stdin",
            "open waits shell"
        ]
    );
    desk.cell("waits", "2");
    assert!(desk.told().is_empty(), "its sockets are not connected yet");
    for channel in [Channel::Stdin, Channel::Shell] {
        desk.bridge.link_up(desk.now, &id, channel);
    }
    let told = desk.told();
    assert!(
        told.contains(&"kernel waits shell execute_request".to_owned()),
        "{told:?}"
    );
}

#[test]
fn the_kernels_late_reply_to_one_that_was_let_go_is_not_a_second_one_for_who_returns() {
    for forgotten in [false, true] {
        let mut desk = Desk::live(FrontEnd::Other, &["c"]);
        desk.state("agent", "a1", "busy");
        desk.ask("c", Channel::Shell, "kernel_info_request", "1", &json!({}));
        desk.wait(200 * MS);
        let answered = desk.told();
        assert!(
            answered.contains(&"client shell kernel_info_reply".to_owned()),
            "{answered:?}"
        );
        leaves(&mut desk, "c");
        if forgotten {
            desk.wait(Duration::from_secs(31));
        } else {
            assert_eq!(made_room(&mut desk), ["close c"]);
        }
        desk.joins("c");
        desk.told();
        let parent = ("c", "1", "kernel_info_request");
        desk.tells(parent, "status", &json!({ "execution_state": "busy" }));
        desk.tells(parent, "status", &json!({ "execution_state": "idle" }));
        desk.reply("c", "1", "kernel_info_request");
        assert!(desk.told().is_empty(), "forgotten: {forgotten}");
        assert_eq!(desk.bridge.outstanding(), 0);
    }
}
