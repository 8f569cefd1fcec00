//! Tests for interrupts beside shutdowns, and for the restart of a kernel that died.

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

/// `jupyter_client` interrupts a kernel that it found dead, and the message waits for the next proxy: it must not
/// end whatever runs there.
#[test]
fn a_servers_interrupt_from_before_the_proxys_start_is_not_carried_out() {
    let mut desk = Desk::live(FrontEnd::Jupyter, &["c"]);
    let before = jiff::Timestamp::UNIX_EPOCH - Duration::from_secs(1);
    let header = NewHeader {
        msg_id: "i",
        session: "c",
        username: "u",
        date: &before.to_string(),
        msg_type: "interrupt_request",
    };
    let interrupt = Verified::new(&header, "{}".into(), &json!({}));
    let client = ClientId::new("c".into());
    desk.bridge
        .client_message(desk.now, Channel::Control, &client, interrupt);
    desk.wait(Duration::from_secs(1));
    let answer = ["iopub busy", "client control interrupt_reply", "iopub idle"];
    assert_eq!(desk.told(), answer);
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
fn a_batch_clients_end_leaves_anothers_cell_alone() {
    for shutdown_on in [Channel::Control, Channel::Shell] {
        let mut desk = Desk::live(FrontEnd::Other, &["c"]);
        for runs in [false, true] {
            if runs {
                desk.state("agent", "a", "busy");
                desk.told();
            }
            desk.stop("c", "i");
            assert!(desk.told().is_empty(), "something runs: {runs}");
            desk.ask("c", shutdown_on, "shutdown_request", "s", &json!({}));
            let told = desk.told();
            assert!(
                told.contains(&"client control interrupt_reply".to_owned()),
                "{told:?}"
            );
            assert!(
                !told.iter().any(|told| told.starts_with("kernel c")),
                "{told:?}"
            );
            desk.wait(Duration::from_secs(1));
            assert!(desk.told().is_empty(), "something runs: {runs}");
        }
    }
}

#[test]
fn ones_own_cell_is_interrupted_at_once() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut desk = Desk::live(front_end, &["c"]);
        desk.cell("c", "1");
        desk.state("c", "1", "busy");
        desk.told();
        desk.stop("c", "i");
        let expected = ["stop 0", "kernel c control interrupt_request"];
        assert_eq!(desk.told(), expected, "{front_end:?}");
        desk.ask("c", Channel::Control, "shutdown_request", "s", &json!({}));
        assert_eq!(desk.told().last().map(String::as_str), Some("leave"));
    }
}

#[test]
fn a_manager_interrupts_its_clients_cell_at_once() {
    let mut desk = Desk::live(FrontEnd::Other, &["c", "manager"]);
    desk.cell("c", "1");
    desk.state("c", "1", "busy");
    desk.told();
    let manager = ClientId::new("manager".into());
    for (session, passes) in [("c", true), ("m", false)] {
        let interrupt = message(
            "interrupt_request",
            session,
            session,
            "{}".into(),
            &json!({}),
        );
        desk.bridge
            .client_message(desk.now, Channel::Control, &manager, interrupt);
        let told = desk.told();
        let passed = told.contains(&"kernel manager control interrupt_request".to_owned());
        assert_eq!(passed, passes, "{session}: {told:?}");
    }
}

#[test]
fn whoever_interrupts_anothers_cell_does_so_after_a_moment() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut desk = Desk::live(front_end, &["c"]);
        desk.state("agent", "a", "busy");
        desk.told();
        desk.stop("c", "i");
        assert!(desk.told().is_empty(), "{front_end:?}");
        desk.wait(100 * MS);
        let expected = ["stop 0", "kernel c control interrupt_request"];
        assert_eq!(desk.told(), expected, "{front_end:?}");
    }
}

#[test]
fn ones_own_cell_that_waits_is_taken_back_at_once() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode] {
        let mut desk = Desk::live(front_end, &["c"]);
        desk.state("agent", "a", "busy");
        desk.cell("c", "1");
        desk.told();
        desk.stop("c", "i");
        let told = desk.told();
        assert!(
            told.contains(&"stop 1".to_owned()),
            "{front_end:?}: {told:?}"
        );
        assert!(
            told.contains(&"iopub error".to_owned()),
            "{front_end:?}: {told:?}"
        );
    }
}

#[test]
fn a_batch_client_ends_with_its_kernel() {
    let ends = [
        Kernel::Died(ending()),
        Kernel::Ended(ending()),
        Kernel::Awaited,
    ];
    for after in ends {
        let mut desk = Desk::live(FrontEnd::Other, &["c"]);
        desk.batch_cell("c", "1");
        desk.state("c", "1", "busy");
        desk.batch_cell("c", "2");
        desk.told();
        desk.bridge
            .kernel_is(desk.now, after.clone(), &ending(), []);
        let told = desk.told();
        // The notebook shows the reason; no reply lets the front end go on with the next cell.
        assert_eq!(
            told.iter().filter(|it| *it == "iopub error").count(),
            2,
            "{told:?}"
        );
        assert!(
            !told
                .iter()
                .any(|it| it.contains("reply") || it.contains("idle")),
            "{told:?}"
        );
        assert_eq!(told.last().map(String::as_str), Some("die KernelDied"));
        // Another kernel has none of the variables.
        desk.batch_cell("c", "3");
        desk.bridge.kernel_is(
            desk.now,
            Kernel::Live {
                generation: 2,
                interrupt: Interrupt::Message,
                info: None,
            },
            &ending(),
            [],
        );
        desk.wait(Duration::from_secs(60));
        assert!(desk.told().is_empty(), "{after:?}");
    }
}

#[test]
fn whoever_could_answer_a_cell_is_told_of_the_kernels_end_in_words() {
    for front_end in [FrontEnd::Other, FrontEnd::VsCode, FrontEnd::Jupyter] {
        let mut desk = Desk::live(front_end, &["c"]);
        desk.batch_cell("c", "1");
        if front_end == FrontEnd::Other {
            desk.cell("c", "2");
        }
        desk.bridge
            .kernel_is(desk.now, Kernel::Ended(ending()), &ending(), []);
        let told = desk.told();
        assert!(
            told.contains(&"client shell execute_reply".to_owned()),
            "{told:?}"
        );
        assert!(!told.iter().any(|told| told.starts_with("die")), "{told:?}");
        desk.cell("c", "3");
        assert!(
            desk.told()
                .contains(&"client shell execute_reply".to_owned())
        );
    }
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
    // A client that connects now gets its answer.
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
