//! Interrupts beside shutdowns, and what a kernel that died is brought back by.

use super::desk::Desk;
use super::*;

#[test]
fn a_servers_interrupt_that_belongs_to_a_restart_goes_no_further() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["c"]);
    desk.stop("c", "i");
    assert!(desk.told().is_empty());
    let content = json!({ "restart": true });
    desk.ask("c", Channel::Control, "shutdown_request", "s", &content);
    let interrupt = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    let shutdown = ["iopub busy", "client control shutdown_reply", "iopub idle"];
    assert_eq!(
        desk.told(),
        [&interrupt[..], &shutdown, &["restart"]].concat()
    );
    desk.wait(Duration::from_secs(1));
    assert!(desk.told().is_empty());
}

#[test]
fn a_servers_interrupt_goes_on_after_a_moment_and_what_followed_it_stays_behind() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["c"]);
    desk.stop("c", "i");
    desk.ask("c", Channel::Control, "debug_request", "d", &json!({}));
    assert!(desk.told().is_empty());
    desk.wait(100 * MS);
    assert_eq!(
        desk.told(),
        [
            "stop 0",
            "kernel c control interrupt_request",
            "kernel c control debug_request"
        ]
    );
}

#[test]
fn vs_codes_interrupt_is_not_held() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    desk.stop("c", "i");
    assert_eq!(
        desk.told(),
        ["stop 0", "kernel c control interrupt_request"]
    );
}

#[test]
fn a_restart_is_not_carried_out_where_the_user_does_not_want_it() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["c"]);
    desk.bridge.set_policies(Policies {
        restart: false,
        ..Policies::default()
    });
    let content = json!({ "restart": true });
    desk.ask("c", Channel::Control, "shutdown_request", "s", &content);
    assert_eq!(desk.told().last().map(String::as_str), Some("leave"));
}

#[test]
fn the_next_cell_brings_back_a_kernel_that_died_and_says_what_is_gone() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    desk.bridge
        .kernel_is(desk.now, Kernel::Died(ending()), &ending(), []);
    desk.told();
    desk.ask("c", Channel::Shell, "complete_request", "1", &json!({}));
    let content = json!({ "code": "x", "store_history": false });
    desk.ask("c", Channel::Shell, "execute_request", "2", &content);
    let told = desk.told();
    assert!(
        told.contains(&"client shell complete_reply".to_owned()),
        "{told:?}"
    );
    assert!(
        told.contains(&"client shell execute_reply".to_owned()),
        "{told:?}"
    );
    // Whoever connects anew is let in.
    desk.ask("c", Channel::Shell, "kernel_info_request", "3", &json!({}));
    assert_eq!(
        desk.told(),
        ["iopub busy", "client shell kernel_info_reply", "iopub idle"]
    );

    desk.cell("c", "4");
    assert_eq!(desk.told(), ["revive c"]);
    desk.cell("c", "5");
    assert!(desk.told().is_empty(), "it waits like the first");
    desk.bridge.set_notice("the variables are gone".into());
    desk.lives(2);
    desk.joins("c");
    let told: Vec<_> = desk
        .told()
        .into_iter()
        .filter(|told| told.contains("stream") || told.contains("execute"))
        .collect();
    assert_eq!(
        told,
        [
            "iopub stream",
            "kernel c shell execute_request",
            "kernel c shell execute_request"
        ]
    );
}

#[test]
fn stop_ends_a_cell_that_waits_for_a_kernel() {
    let mut desk = Desk::new(FrontEnd::VsCode);
    desk.joins("c");
    desk.cell("c", "1");
    desk.stop("c", "i");
    let told = desk.told();
    assert!(told.contains(&"iopub error".to_owned()), "{told:?}");
    assert!(
        told.contains(&"client control interrupt_reply".to_owned()),
        "{told:?}"
    );
    desk.lives(1);
    desk.joins("c");
    assert!(
        !desk
            .told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn nothing_brings_back_a_kernel_that_was_shut_down() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    desk.bridge
        .kernel_is(desk.now, Kernel::Ended(ending()), &ending(), []);
    desk.told();
    desk.cell("c", "1");
    assert_eq!(
        desk.told(),
        [
            "iopub busy",
            "iopub error",
            "client shell execute_reply",
            "iopub idle"
        ]
    );
}

#[test]
fn a_comm_that_another_opened_is_not_closed() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    let comm = json!({ "comm_id": "w", "target_name": "jupyter.widget" });
    desk.tells(("agent", "a1", "execute_request"), "comm_open", &comm);
    desk.told();
    desk.ask("c", Channel::Shell, "comm_close", "1", &comm);
    assert!(desk.told().is_empty());
    desk.cell("c", "2");
    let own = json!({ "comm_id": "v", "target_name": "jupyter.widget" });
    desk.tells(("c", "2", "execute_request"), "comm_open", &own);
    desk.told();
    desk.ask("c", Channel::Shell, "comm_close", "3", &own);
    assert_eq!(desk.told(), ["kernel c shell comm_close"]);
}
