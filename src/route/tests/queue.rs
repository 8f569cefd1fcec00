//! Tests of the execution queue.

use super::desk::Desk;
use super::*;

const RUNS: [&str; 2] = [
    "journal Asked Some(\"1+1\")",
    "kernel c shell execute_request",
];

/// The journal entry when the agent's cell has ended.
const OVER: &str = "journal Over { raised: false } None";

/// Makes a desk on which a cell from outside the front end runs.
fn behind_an_agent(clients: &[&str]) -> Desk {
    let mut desk = Desk::live(FrontEnd::Other, clients);
    desk.state("agent", "a1", "busy");
    let input = json!({ "code": "1", "execution_count": 1 });
    desk.tells(("agent", "a1", "execute_request"), "execute_input", &input);
    desk.told();
    desk
}

#[test]
fn a_cell_waits_for_anothers_and_goes_when_that_has_ended() {
    let mut desk = behind_an_agent(&["c"]);
    desk.cell("c", "1");
    // The proxy asks, in order to notice an `idle` that is lost.
    assert_eq!(desk.told(), ["kernel own shell kernel_info_request"]);
    desk.ask("c", Channel::Shell, "complete_request", "2", &json!({}));
    assert!(
        desk.told().is_empty(),
        "what follows the cell stays behind it"
    );
    desk.state("agent", "a1", "idle");
    assert_eq!(
        desk.told(),
        [
            OVER,
            RUNS[0],
            RUNS[1],
            "kernel c shell complete_request",
            "iopub idle"
        ]
    );
}

#[test]
fn tools_code_and_ones_own_cells_do_not_wait() {
    let mut desk = behind_an_agent(&["c"]);
    let content = json!({ "code": "x", "store_history": false });
    desk.ask("c", Channel::Shell, "execute_request", "1", &content);
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    desk.state("agent", "a1", "idle");
    desk.cell("c", "2");
    desk.state("c", "2", "busy");
    desk.told();
    desk.cell("c", "3");
    assert_eq!(desk.told(), RUNS, "the kernel queues one client's cells");
}

#[test]
fn a_look_on_a_subshell_ends_nobodys_turn() {
    let mut desk = behind_an_agent(&["c"]);
    desk.cell("c", "1");
    desk.told();
    let parent = json!({
        "msg_id": "n1", "session": "nb", "username": "u", "msg_type": "execute_request",
        "subshell_id": "s1",
    });
    for state in ["busy", "idle"] {
        let content = json!({ "execution_state": state });
        let told = message("status", "t", "k", parent.to_string().into(), &content);
        desk.bridge.iopub_message(desk.now, told);
    }
    assert!(desk.told().is_empty(), "the agent's cell still runs");
    desk.state("agent", "a1", "idle");
    assert!(desk.told().contains(&RUNS[1].to_owned()));
}

#[test]
fn without_turns_everything_passes_at_once() {
    let mut desk = behind_an_agent(&["c"]);
    desk.bridge.set_policies(Policies {
        turns: false,
        ..Policies::default()
    });
    desk.cell("c", "1");
    assert_eq!(desk.told(), RUNS);
}

#[test]
fn two_windows_of_one_front_end_wait_for_each_other_oldest_first() {
    let mut desk = behind_an_agent(&["c", "d", "e"]);
    for (client, id) in [("e", "1"), ("c", "2"), ("d", "3")] {
        desk.cell(client, id);
    }
    desk.told();
    desk.state("agent", "a1", "idle");
    let sent: Vec<_> = desk
        .told()
        .into_iter()
        .filter(|told| told.starts_with("kernel"))
        .collect();
    assert_eq!(
        sent,
        [
            "kernel e shell execute_request",
            "kernel c shell execute_request",
            "kernel d shell execute_request"
        ]
    );
}

#[test]
fn a_cell_is_released_although_the_idle_before_it_was_lost() {
    let mut desk = behind_an_agent(&["c"]);
    desk.cell("c", "1");
    desk.wait(Duration::from_secs(600));
    assert_eq!(
        desk.told(),
        ["kernel own shell kernel_info_request"],
        "the agent's cell still runs"
    );
    desk.cell("c", "2");
    desk.told();
    let own = ClientId::new("own".into());
    let asked = desk.bridge.asked_on_shell().cloned().expect("it was asked");
    let parent = message(
        "kernel_info_request",
        asked.msg_id(),
        "own",
        "{}".into(),
        &json!({}),
    );
    let parent = parent.header_bytes().clone();
    let reply = message("kernel_info_reply", "r", "k", parent, &json!({}));
    desk.bridge
        .kernel_message(desk.now, &own, Channel::Shell, reply);
    // The `idle` may be among the messages that were read and not handled yet.
    desk.bridge.set_iopub_behind(true);
    desk.wait(Duration::from_secs(5));
    assert!(desk.told().is_empty());
    desk.bridge.set_iopub_behind(false);
    desk.wait(Duration::from_secs(1));
    assert_eq!(desk.told(), [RUNS, RUNS].concat());
}

#[test]
fn what_began_before_the_proxy_listened_is_waited_for() {
    let mut desk = Desk::new(FrontEnd::Other);
    desk.is_there(1);
    desk.joins("c");
    desk.wait(Duration::from_millis(300));
    desk.told();
    desk.cell("c", "1");
    assert!(desk.told().is_empty());
    desk.state("agent", "a1", "idle");
    assert_eq!(desk.told(), [&RUNS[..], &["iopub idle"]].concat());
}

#[test]
fn stop_takes_back_a_waiting_cell_and_only_the_next_one_interrupts() {
    let mut desk = behind_an_agent(&["c", "manager"]);
    desk.cell("c", "1");
    desk.cell("c", "2");
    desk.told();
    // A Jupyter server's interrupt comes from another client than the window.
    desk.stop("manager", "i1");
    let failed = [
        "iopub busy",
        // The cell's earlier outputs are cleared.
        "iopub clear_output",
        "iopub error",
        "client shell execute_reply",
        "iopub idle",
    ];
    let answered = [
        "stop 2",
        "iopub busy",
        "client control interrupt_reply",
        "iopub idle",
    ];
    let all = [&failed[..], &failed, &answered].concat();
    assert_eq!(desk.told(), all);
    desk.stop("manager", "i2");
    // No shutdown follows.
    desk.wait(100 * MS);
    assert_eq!(
        desk.told(),
        ["stop 0", "kernel manager control interrupt_request"]
    );
    desk.state("agent", "a1", "idle");
    assert_eq!(
        desk.told(),
        [OVER, "iopub idle"],
        "what was taken back never runs"
    );
}

#[test]
fn stop_over_ones_own_cell_interrupts_it_at_once() {
    let mut desk = Desk::live(FrontEnd::Other, &["c", "d"]);
    desk.cell("c", "1");
    desk.state("c", "1", "busy");
    desk.cell("d", "2");
    desk.told();
    desk.stop("c", "i");
    assert_eq!(
        desk.told(),
        ["stop 0", "kernel c control interrupt_request"]
    );
}

#[test]
fn a_cell_in_the_kernels_queue_is_taken_back_too() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    // Both were sent at the same moment, and the agent's cell arrived first.
    desk.cell("c", "1");
    desk.state("agent", "a1", "busy");
    desk.told();
    desk.stop("c", "i");
    let told = desk.told();
    assert!(told.contains(&"iopub error".to_owned()), "{told:?}");
    assert!(
        !told.iter().any(|told| told.starts_with("kernel")),
        "{told:?}"
    );
    desk.state("agent", "a1", "idle");
    desk.told();
    // A request cannot be removed from a kernel's queue: the kernel is interrupted when it begins the cell.
    desk.state("c", "1", "busy");
    assert_eq!(desk.told(), ["kernel own control interrupt_request"]);
    let content = json!({ "name": "stdout", "text": "x" });
    desk.tells(("c", "1", "execute_request"), "stream", &content);
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    assert!(desk.told().is_empty(), "its user has had the answer");
    assert_eq!(desk.bridge.outstanding(), 0);
}

#[test]
fn a_cell_that_was_taken_back_does_not_run_although_its_client_has_gone() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    desk.state("agent", "a1", "busy");
    desk.stop("c", "i");
    for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
        let id = ClientId::new("c".into());
        desk.bridge.client_left(desk.now, channel, &id);
    }
    desk.wait(Duration::from_secs(100));
    desk.bridge.close_idle_links();
    desk.state("agent", "a1", "idle");
    desk.told();
    desk.state("c", "1", "busy");
    assert_eq!(desk.told(), ["kernel own control interrupt_request"]);
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    desk.wait(Duration::from_secs(31));
    assert_eq!(desk.told(), ["close c"]);
}

#[test]
fn a_cell_that_waits_outlives_a_restart() {
    let mut desk = behind_an_agent(&["c"]);
    desk.cell("c", "1");
    desk.bridge
        .kernel_is(desk.now, Kernel::Awaited, &ending(), []);
    desk.told();
    desk.lives(2);
    desk.joins("c");
    let told = desk.told();
    assert!(told.ends_with(&RUNS.map(str::to_owned)), "{told:?}");
}

#[test]
fn what_others_run_in_silence_is_nobodys_work() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    let journal = |told: Vec<String>| -> Vec<String> {
        let lines = told.into_iter().filter(|told| told.starts_with("journal"));
        lines.collect()
    };
    desk.state("agent", "silent", "busy");
    desk.state("agent", "silent", "idle");
    assert!(journal(desk.told()).is_empty());

    desk.state("agent", "cell", "busy");
    let input = json!({ "code": "1", "execution_count": 1 });
    desk.tells(
        ("agent", "cell", "execute_request"),
        "execute_input",
        &input,
    );
    desk.state("agent", "cell", "idle");
    let told = journal(desk.told());
    assert_eq!(told, ["journal Seen Some(\"1\")", OVER]);

    let request = ("agent", "fails", "execute_request");
    desk.state("agent", "fails", "busy");
    desk.tells(request, "execute_input", &input);
    desk.tells(request, "error", &json!({ "ename": "E" }));
    desk.state("agent", "fails", "idle");
    let told = journal(desk.told());
    assert_eq!(told[1], "journal Over { raised: true } None");
}

#[test]
fn cells_of_a_client_that_does_not_come_back_are_handed_over() {
    let leaves = |desk: &mut Desk| {
        let id = ClientId::new("c".into());
        for channel in [Channel::Shell, Channel::Stdin, Channel::Control] {
            desk.bridge.client_left(desk.now, channel, &id);
        }
    };
    let hand_over = "hand over c".to_owned();
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    desk.state("c", "1", "busy");
    leaves(&mut desk);
    desk.wait(Duration::from_secs(9));
    // The client was disconnected for a moment.
    desk.joins("c");
    desk.wait(Duration::from_secs(9));
    assert!(!desk.told().contains(&hand_over));
    leaves(&mut desk);
    desk.wait(Duration::from_secs(11));
    assert!(desk.told().contains(&hand_over));
    // A cell that has ended is not handed over.
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.cell("c", "1");
    desk.state("c", "1", "busy");
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    leaves(&mut desk);
    desk.wait(Duration::from_secs(11));
    assert!(!desk.told().contains(&hand_over));
}
