//! Clients that connect while the kernel is busy or not known yet.

use super::desk::Desk;
use super::*;

const INFO: [&str; 3] = ["iopub busy", "client shell kernel_info_reply", "iopub idle"];

fn ask_info(desk: &mut Desk, id: &str) {
    desk.ask("c", Channel::Shell, "kernel_info_request", id, &json!({}));
}

/// `jupyter console` sends `exit` as a cell; IPython would end the kernel of everybody.
#[test]
fn who_leaves_a_console_ends_no_kernel() {
    let cell = |front_end, code: &str, allow_stdin: bool| {
        let mut desk = Desk::live(front_end, &["c"]);
        let content = json!({ "code": code, "store_history": true, "allow_stdin": allow_stdin });
        desk.ask("c", Channel::Shell, "execute_request", "1", &content);
        desk.told()
    };
    let console = FrontEnd::Other;
    let answer = ["iopub busy", "client shell execute_reply", "iopub idle"];
    for code in ["exit", "quit()\n"] {
        assert_eq!(cell(console, code, true), answer);
    }
    for (front_end, code, allow_stdin) in [
        (console, "exit(1)", true),
        (console, "exit", false),
        (FrontEnd::Jupyter, "exit", true),
    ] {
        let passed = "kernel c shell execute_request".to_owned();
        let told = cell(front_end, code, allow_stdin);
        assert!(told.contains(&passed), "{code}: {told:?}");
    }
}

#[test]
fn a_busy_kernel_keeps_nobody_from_connecting() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.state("agent", "a1", "busy");
    desk.told();
    ask_info(&mut desk, "1");
    assert_eq!(desk.told(), ["kernel c shell kernel_info_request"]);
    desk.wait(199 * MS);
    assert!(desk.told().is_empty(), "the kernel itself goes first");
    desk.wait(MS);
    assert_eq!(desk.told(), INFO);
    // The client may show the kernel as idle now: it gets the true status later.
    desk.wait(Duration::from_secs(3));
    assert_eq!(desk.told(), ["iopub busy"]);
    // The kernel's late answer is not passed on.
    let parent = ("c", "1", "kernel_info_request");
    desk.tells(parent, "status", &json!({ "execution_state": "busy" }));
    desk.reply("c", "1", "kernel_info_request");
    desk.tells(parent, "status", &json!({ "execution_state": "idle" }));
    assert!(desk.told().is_empty());
    assert_eq!(desk.bridge.outstanding(), 0);
}

#[test]
fn what_the_kernel_answers_beside_a_cell_does_not_make_it_look_idle() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    desk.state("agent", "a1", "busy");
    // JupyterLab's debugger asks each kernel of a notebook that is opened.
    desk.ask("c", Channel::Control, "debug_request", "1", &json!({}));
    let parent = ("c", "1", "debug_request");
    desk.tells(parent, "status", &json!({ "execution_state": "busy" }));
    desk.tells(parent, "status", &json!({ "execution_state": "idle" }));
    desk.told();
    desk.wait(Duration::from_secs(3));
    assert_eq!(desk.told(), ["iopub busy"]);
    desk.wait(Duration::from_secs(60));
    assert!(desk.told().is_empty());
    // The next cell's own `busy` comes after such an `idle`.
    desk.tells(parent, "status", &json!({ "execution_state": "idle" }));
    desk.state("agent", "a1", "idle");
    desk.state("agent", "a2", "busy");
    desk.told();
    desk.wait(Duration::from_secs(60));
    assert!(desk.told().is_empty());
}

#[test]
fn a_cell_that_begins_after_an_answer_of_the_proxy_is_busy_once() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    ask_info(&mut desk, "1");
    // The kernel does not answer in time, so the proxy does.
    desk.wait(Duration::from_secs(1));
    desk.ask("c", Channel::Shell, "execute_request", "2", &json!({}));
    desk.state("c", "2", "busy");
    assert!(desk.told().contains(&"iopub busy".to_owned()));
    desk.wait(Duration::from_secs(60));
    assert!(!desk.told().contains(&"iopub busy".to_owned()));
}

#[test]
fn a_kernel_that_answers_in_time_is_heard() {
    let mut desk = Desk::live(FrontEnd::Other, &["c"]);
    ask_info(&mut desk, "1");
    desk.reply("c", "1", "kernel_info_request");
    let parent = ("c", "1", "kernel_info_request");
    desk.tells(parent, "status", &json!({ "execution_state": "idle" }));
    desk.wait(Duration::from_secs(1));
    assert_eq!(
        desk.told(),
        [
            "kernel c shell kernel_info_request",
            "client shell kernel_info_reply",
            "iopub idle"
        ]
    );
}

#[test]
fn a_kernel_whose_iopub_is_not_proven_yet_keeps_nobody_either() {
    // This kernel answers kernel_info only while its shell is idle, so nothing arrives on iopub while a cell
    // runs.
    let mut desk = Desk::new(FrontEnd::Other);
    desk.is_there(1);
    desk.bridge.iopub_down();
    desk.joins("c");
    desk.told();
    ask_info(&mut desk, "1");
    assert!(desk.told().is_empty());
    desk.wait(200 * MS);
    assert_eq!(
        desk.told()
            .iter()
            .filter(|told| INFO.contains(&told.as_str()))
            .count(),
        3
    );
}

#[test]
fn a_kernel_that_is_restarted_keeps_nobody_from_connecting() {
    let mut desk = Desk::new(FrontEnd::Jupyter);
    let info = json!({ "status": "ok", "language_info": {} }).to_string();
    desk.bridge.set_info(Some(info.into()));
    desk.joins("c");
    ask_info(&mut desk, "1");
    desk.wait(200 * MS);
    assert_eq!(desk.told(), INFO);
    desk.cell("c", "2");
    desk.wait(Duration::from_secs(2));
    assert!(desk.told().is_empty(), "a cell needs the kernel");
}

#[test]
fn while_a_kernel_is_started_everybody_waits_for_it() {
    let mut desk = Desk::new(FrontEnd::Other);
    desk.joins("c");
    ask_info(&mut desk, "1");
    desk.wait(Duration::from_secs(2));
    assert!(desk.told().is_empty());
    desk.lives(1);
    desk.joins("c");
    assert!(
        desk.told()
            .contains(&"kernel c shell kernel_info_request".to_owned())
    );
}

/// Returns a bridge for VS Code before anything names the notebook.
fn unnamed() -> Desk {
    let mut desk = Desk::new(FrontEnd::VsCode);
    desk.bridge
        .kernel_is(desk.now, Kernel::Unresolved { info: None }, &ending(), []);
    desk.joins("c");
    desk.told();
    desk
}

#[test]
fn what_names_no_notebook_is_answered_and_decides_nothing() {
    let mut desk = unnamed();
    ask_info(&mut desk, "1");
    assert_eq!(desk.told(), INFO);
    desk.wait(Duration::from_secs(5));
    assert!(desk.told().is_empty());
}

#[test]
fn a_cell_names_its_notebook() {
    let mut desk = unnamed();
    let header = NewHeader {
        msg_id: "1",
        session: "c",
        username: "u",
        date: "2026-01-01T00:00:00Z",
        msg_type: "execute_request",
    };
    let content = json!({ "code": "1+1", "store_history": true });
    let metadata = json!({ "cellId": "vscode-notebook-cell:/p/my%20b.ipynb#W0sZmlsZQ%3D%3D" });
    let cell = Verified::new(&header, "{}".into(), &content).with_metadata(&metadata);
    let client = ClientId::new("c".into());
    desk.bridge
        .client_message(desk.now, Channel::Shell, &client, cell);
    assert_eq!(desk.told(), ["bind Some(\"/p/my b.ipynb\")"]);
    desk.lives(1);
    desk.joins("c");
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn what_needs_a_kernel_and_names_none_takes_the_default_after_a_while() {
    let mut desk = unnamed();
    let content = json!({ "code": "warm_up()", "store_history": false });
    desk.ask("c", Channel::Shell, "execute_request", "1", &content);
    assert!(desk.told().is_empty());
    desk.wait(Duration::from_secs(2));
    assert_eq!(desk.told(), ["bind None"]);
    desk.wait(Duration::from_secs(5));
    assert!(desk.told().is_empty(), "it is asked for once");
}

#[test]
fn the_first_session_is_told_once() {
    let mut desk = unnamed();
    ask_info(&mut desk, "1");
    let heard = |desk: &mut Desk| {
        std::iter::from_fn(|| desk.bridge.poll_action())
            .filter_map(|action| match action {
                Action::SessionSeen { session } => Some(session),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(heard(&mut desk), ["c"]);
    ask_info(&mut desk, "2");
    assert!(heard(&mut desk).is_empty());
}

#[test]
fn what_came_before_the_kernel_was_known_to_be_unnamed_is_looked_at_again() {
    let mut desk = Desk::new(FrontEnd::VsCode);
    desk.joins("c");
    ask_info(&mut desk, "1");
    desk.ask(
        "c",
        Channel::Control,
        "kernel_info_request",
        "2",
        &json!({}),
    );
    let code = "__vsc_ipynb_file__ = \"/p/b.ipynb\"";
    let content = json!({ "code": code, "store_history": false });
    desk.ask("c", Channel::Shell, "execute_request", "3", &content);
    desk.cell("c", "4");
    let told = desk.told();
    assert_eq!(
        told,
        ["iopub busy", "client shell execute_reply", "iopub idle"]
    );
    desk.bridge
        .kernel_is(desk.now, Kernel::Unresolved { info: None }, &ending(), []);
    let told = desk.told();
    for reply in [
        "client shell kernel_info_reply",
        "client control kernel_info_reply",
        "bind Some(\"/p/b.ipynb\")",
    ] {
        assert!(told.contains(&reply.to_owned()), "{reply} in {told:?}");
    }
    assert_eq!(desk.bridge.outstanding(), 1, "the cell waits");
}

/// Makes a text of this test count as VS Code's probe for ipywidgets.
fn knows_probe(desk: &mut Desk) -> Value {
    let code = format!("{} = 'the version'", super::super::startup::PROBES);
    desk.bridge.set_policies(Policies {
        startup_known: vec![super::super::startup::fingerprint(&code)],
        ..Policies::default()
    });
    json!({ "code": code, "store_history": false })
}

/// Returns the text that is printed for the clients, and the other actions.
fn printed(desk: &mut Desk) -> (Option<String>, Vec<String>) {
    let mut text = None;
    let mut others = VecDeque::new();
    while let Some(action) = desk.bridge.poll_action() {
        if let Action::Publish(message) = &action
            && message
                .header()
                .is_ok_and(|header| header.msg_type == "stream")
        {
            let content: Value = serde_json::from_slice(message.content()).unwrap();
            text = content["text"].as_str().map(str::to_owned);
        }
        others.push_back(action);
    }
    *desk.bridge.actions() = others;
    (text, desk.told())
}

#[test]
fn the_probe_for_widgets_is_the_kernels_when_it_is_idle_and_remembered_when_it_is_busy() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    let probe = knows_probe(&mut desk);
    desk.ask("c", Channel::Shell, "execute_request", "1", &probe);
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    let text = super::super::startup::widget_probe_stdout("8.1.7");
    let stream = json!({ "name": "stdout", "text": text });
    desk.tells(("c", "1", "execute_request"), "stream", &stream);
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    assert_eq!(printed(&mut desk).0.as_ref(), Some(&text));

    desk.state("agent", "a1", "busy");
    desk.told();
    desk.ask("c", Channel::Shell, "execute_request", "2", &probe);
    let (told, actions) = printed(&mut desk);
    assert_eq!(told, Some(text));
    assert!(
        actions.contains(&"client shell execute_reply".to_owned()),
        "{actions:?}"
    );
    assert_eq!(desk.bridge.outstanding(), 0);
}

#[test]
fn a_probe_that_was_answered_before_the_kernel_was_known_is_asked_for_the_next_time() {
    let mut desk = unnamed();
    let probe = knows_probe(&mut desk);
    desk.ask("c", Channel::Shell, "execute_request", "1", &probe);
    let (told, actions) = printed(&mut desk);
    let default = super::super::startup::widget_probe_stdout("8.");
    assert_eq!(told, Some(default), "nothing is known yet");
    assert!(
        actions.contains(&"client shell execute_reply".to_owned()),
        "{actions:?}"
    );
    desk.lives(1);
    desk.joins("c");
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    let text = super::super::startup::widget_probe_stdout("8.1.7");
    let stream = json!({ "name": "stdout", "text": text });
    desk.tells(("c", "1", "execute_request"), "stream", &stream);
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    let told = desk.told();
    let passed = told
        .iter()
        .any(|told| told.starts_with("client") || told.starts_with("iopub"));
    assert!(!passed, "its asker has its answer: {told:?}");
    assert!(told.contains(&"widgets 8.1.7".to_owned()), "{told:?}");

    desk.state("agent", "a1", "busy");
    desk.told();
    desk.ask("c", Channel::Shell, "execute_request", "2", &probe);
    assert_eq!(printed(&mut desk).0, Some(text));
}

#[test]
fn the_probe_for_widgets_is_never_answered_without_a_version() {
    let probe = |desk: &mut Desk, id: &str| {
        let probe = knows_probe(desk);
        desk.ask("c", Channel::Shell, "execute_request", id, &probe);
    };
    let answered = |desk: &mut Desk, version: &str, when: &str| {
        let (told, actions) = printed(desk);
        let text = super::super::startup::widget_probe_stdout(version);
        assert_eq!(told, Some(text), "{when}");
        let replies = actions.iter().filter(|told| told.contains("execute_reply"));
        assert_eq!(replies.count(), 1, "{when}: {actions:?}");
        assert_eq!(desk.bridge.outstanding(), 0, "{when}");
    };
    let mut desk = unnamed();
    probe(&mut desk, "1");
    answered(&mut desk, "8.", "no notebook is named");

    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    desk.state("agent", "a1", "busy");
    desk.told();
    probe(&mut desk, "1");
    answered(&mut desk, "8.", "the kernel is busy");

    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    probe(&mut desk, "1");
    desk.bridge
        .kernel_is(desk.now, Kernel::Died(ending()), &ending(), []);
    answered(&mut desk, "8.", "the kernel dies while it has it");
    probe(&mut desk, "2");
    answered(&mut desk, "8.", "the kernel has died");

    // The version of the session's last kernel is likelier to fit than the default.
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    desk.bridge.set_widgets(Some("7.8.5".into()));
    desk.lives(2);
    desk.bridge.set_widgets(None);
    desk.joins("c");
    desk.state("agent", "a1", "busy");
    desk.told();
    probe(&mut desk, "1");
    answered(&mut desk, "7.8.5", "another kernel is there");
}

#[test]
fn the_cell_that_names_another_notebook_than_was_assumed_runs_on_that_ones_kernel() {
    let mut desk = unnamed();
    let content = json!({ "code": "warm_up()", "store_history": false });
    desk.ask("c", Channel::Shell, "execute_request", "1", &content);
    desk.wait(Duration::from_secs(2));
    desk.lives(1);
    desk.joins("c");
    desk.reply("c", "1", "execute_request");
    desk.state("c", "1", "idle");
    desk.told();
    let cell = message(
        "execute_request",
        "2",
        "c",
        "{}".into(),
        &json!({ "code": "1+1" }),
    )
    .with_metadata(&json!({ "cellId": "vscode-notebook-cell:/p/b.ipynb#W0sZmlsZQ%3D%3D" }));
    let client = ClientId::new("c".into());
    desk.bridge
        .client_message(desk.now, Channel::Shell, &client, cell);
    // The caller gets the name first and leaves the assumed kernel, before it sends anything.
    let bind = desk.bridge.poll_action();
    assert!(matches!(
        bind,
        Some(Action::ResolveNotebook { notebook: Some(_) })
    ));
    desk.bridge
        .kernel_is(desk.now, Kernel::Awaited, &ending(), []);
    let told = desk.told();
    assert!(
        !told.iter().any(|told| told.contains("execute_re")),
        "{told:?}"
    );
    desk.lives(2);
    desk.joins("c");
    assert!(
        desk.told()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

fn knows_block(desk: &mut Desk) -> Value {
    let code = format!(
        "{} = 1\n{}",
        super::super::startup::INJECTS,
        super::super::startup::JEDI_OFF
    );
    desk.bridge.set_policies(Policies {
        startup_known: vec![super::super::startup::fingerprint(&code)],
        ..Policies::default()
    });
    json!({ "code": code, "store_history": false })
}

#[test]
fn each_life_of_the_kernel_is_told_to_turn_jedi_off_and_nobody_hears_of_it() {
    let mut desk = Desk::live(FrontEnd::VsCode, &["c"]);
    let block = knows_block(&mut desk);
    desk.ask("c", Channel::Shell, "execute_request", "1", &block);
    let told = desk.told();
    let to_kernel = |told: &[String]| {
        let sent = told.iter().filter(|told| told.starts_with("kernel c"));
        sent.cloned().collect::<Vec<_>>()
    };
    assert_eq!(to_kernel(&told), ["kernel c shell execute_request"]);
    let answered = told.contains(&"client shell execute_reply".to_owned());
    assert!(
        answered && !told.iter().any(|told| told.starts_with("journal")),
        "{told:?}"
    );
    assert_eq!(desk.bridge.outstanding(), 0, "nobody waits for it");

    desk.lives(2);
    desk.joins("c");
    assert_eq!(to_kernel(&desk.told()), ["kernel c shell execute_request"]);
}
