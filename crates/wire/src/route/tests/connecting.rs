//! Clients that connect while the kernel is busy or not known yet.

use super::fixture::Fixture;
use super::*;

const INFO: [&str; 3] = ["iopub busy", "client shell kernel_info_reply", "iopub idle"];

fn send_info_request(fixture: &mut Fixture, id: &str) {
    fixture.send("c", Channel::Shell, "kernel_info_request", id, &json!({}));
}

/// `jupyter console` sends `exit` as a cell; IPython would end the kernel of everybody.
#[test]
fn exit_in_a_console_does_not_end_the_kernel() {
    let cell = |front_end, code: &str, allow_stdin: bool| {
        let mut fixture = Fixture::live(front_end, &["c"]);
        let content = json!({ "code": code, "store_history": true, "allow_stdin": allow_stdin });
        fixture.send("c", Channel::Shell, "execute_request", "1", &content);
        fixture.actions()
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
        let actions = cell(front_end, code, allow_stdin);
        assert!(actions.contains(&passed), "{code}: {actions:?}");
    }
}

/// The console ends when the reply says so, as IPython's does.
#[test]
fn exit_ends_the_console() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    let content = json!({ "code": "exit", "store_history": true, "allow_stdin": true });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    let mut replies = std::iter::from_fn(|| fixture.bridge.poll_action()).filter_map(|action| {
        let Action::ToClient { message, .. } = action else {
            return None;
        };
        serde_json::from_slice::<Value>(message.content()).ok()
    });
    let reply = replies.next().expect("it is answered");
    let payload = json!([{ "source": "ask_exit", "keepkernel": false }]);
    assert_eq!(
        (&reply["status"], &reply["payload"]),
        (&json!("ok"), &payload)
    );
}

#[test]
fn a_client_connects_while_the_kernel_is_busy() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    send_info_request(&mut fixture, "1");
    assert_eq!(fixture.actions(), ["kernel c shell kernel_info_request"]);
    fixture.advance(199 * MS);
    assert!(fixture.actions().is_empty(), "the kernel itself goes first");
    fixture.advance(MS);
    assert_eq!(fixture.actions(), INFO);
    // The client may show the kernel as idle now: it gets the true status later.
    fixture.advance(Duration::from_secs(3));
    assert_eq!(fixture.actions(), ["iopub busy"]);
    // The kernel's late answer is not passed on.
    let parent = ("c", "1", "kernel_info_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "busy" }));
    fixture.reply("c", "1", "kernel_info_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
    assert!(fixture.actions().is_empty());
    assert_eq!(fixture.bridge.outstanding(), 0);
}

#[test]
fn clients_see_busy_again_after_the_idle_of_another_request() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.publish_status("agent", "a1", "busy");
    // JupyterLab's debugger asks each kernel of a notebook that is opened.
    fixture.send("c", Channel::Control, "debug_request", "1", &json!({}));
    let parent = ("c", "1", "debug_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "busy" }));
    fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
    fixture.actions();
    fixture.advance(Duration::from_secs(3));
    assert_eq!(fixture.published_under("status"), ["a1"]);
    fixture.advance(Duration::from_secs(60));
    assert!(fixture.actions().is_empty());
    // The next cell's own `busy` comes after such an `idle`.
    fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
    fixture.publish_status("agent", "a1", "idle");
    fixture.publish_status("agent", "a2", "busy");
    fixture.actions();
    fixture.advance(Duration::from_secs(60));
    assert!(fixture.actions().is_empty());
}

#[test]
fn a_client_that_connects_sees_that_something_runs_whose_beginning_the_proxy_missed() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    fixture.connect("c");
    fixture.advance(200 * MS);
    fixture.actions();
    send_info_request(&mut fixture, "1");
    fixture.advance(200 * MS);
    let answered = fixture.actions();
    assert!(answered.ends_with(&INFO.map(str::to_owned)), "{answered:?}");
    fixture.advance(Duration::from_secs(3));
    assert_eq!(fixture.actions(), ["iopub busy"]);
}

#[test]
fn busy_is_repeated_3_seconds_after_the_idle_however_long_the_cell_has_run() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    fixture.advance(Duration::from_secs(10));
    let idle = json!({ "execution_state": "idle" });
    fixture.publish(("c", "d", "debug_request"), "status", &idle);
    assert_eq!(fixture.actions(), ["iopub idle"]);
    fixture.advance(2999 * MS);
    assert_eq!(fixture.actions(), [""; 0]);
    fixture.advance(MS);
    assert_eq!(fixture.actions(), ["iopub busy"]);
}

#[test]
fn busy_is_not_repeated_for_a_cell_that_begins_after_a_synthetic_idle() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    send_info_request(&mut fixture, "1");
    // The kernel does not answer in time, so the proxy does.
    fixture.advance(Duration::from_secs(1));
    fixture.send("c", Channel::Shell, "execute_request", "2", &json!({}));
    fixture.publish_status("c", "2", "busy");
    assert!(fixture.actions().contains(&"iopub busy".to_owned()));
    fixture.advance(Duration::from_secs(60));
    assert!(!fixture.actions().contains(&"iopub busy".to_owned()));
}

#[test]
fn a_kernel_info_reply_that_is_in_time_is_passed_on() {
    let mut fixture = Fixture::live(FrontEnd::Other, &["c"]);
    send_info_request(&mut fixture, "1");
    fixture.reply("c", "1", "kernel_info_request");
    let parent = ("c", "1", "kernel_info_request");
    fixture.publish(parent, "status", &json!({ "execution_state": "idle" }));
    fixture.advance(Duration::from_secs(1));
    assert_eq!(
        fixture.actions(),
        [
            "kernel c shell kernel_info_request",
            "client shell kernel_info_reply",
            "iopub idle"
        ]
    );
}

#[test]
fn a_client_connects_before_iopub_is_proven() {
    // This kernel answers kernel_info only while its shell is idle, so nothing arrives on iopub while a cell
    // runs.
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.start_busy_kernel(1);
    fixture.bridge.iopub_down();
    fixture.connect("c");
    fixture.actions();
    send_info_request(&mut fixture, "1");
    assert!(fixture.actions().is_empty());
    fixture.advance(200 * MS);
    assert_eq!(
        fixture
            .actions()
            .iter()
            .filter(|action| INFO.contains(&action.as_str()))
            .count(),
        3
    );
}

#[test]
fn a_client_connects_while_the_kernel_restarts() {
    let mut fixture = Fixture::new(FrontEnd::Jupyter);
    let info = json!({ "status": "ok", "language_info": {} }).to_string();
    fixture.bridge.set_info(Some(info.into()));
    fixture.connect("c");
    send_info_request(&mut fixture, "1");
    fixture.advance(200 * MS);
    assert_eq!(fixture.actions(), INFO);
    fixture.send_cell("c", "2");
    fixture.advance(Duration::from_secs(2));
    assert!(fixture.actions().is_empty(), "a cell needs the kernel");
}

#[test]
fn the_kernel_is_asked_ever_less_often_until_its_iopub_is_heard() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    let live = Kernel::Live {
        generation: 1,
        interrupt: Interrupt::Message,
        info: None,
    };
    fixture.bridge.set_kernel(fixture.now, live, &ending(), []);
    fixture.bridge.iopub_up(fixture.now);
    let mut asked = Vec::new();
    for ms in 0..2000 {
        let actions = fixture.actions();
        if actions.contains(&"kernel own control kernel_info_request".to_owned()) {
            asked.push(ms);
        }
        fixture.advance(MS);
    }
    assert_eq!(asked, [0, 5, 15, 35, 75, 155, 315, 635, 1135, 1635]);
}

/// Nothing was lost with the socket.
#[test]
fn the_kernel_is_not_asked_again_when_the_proxys_own_socket_is_back() {
    let mut fixture = Fixture::live(FrontEnd::Other, &[]);
    let own = ClientId::new("own".into());
    fixture.bridge.link_down(&own, Channel::Shell, Vec::new());
    fixture.bridge.link_up(fixture.now, &own, Channel::Shell);
    assert!(fixture.actions().is_empty());
}

#[test]
fn requests_wait_while_the_kernel_starts() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.connect("c");
    send_info_request(&mut fixture, "1");
    fixture.advance(Duration::from_secs(2));
    assert!(fixture.actions().is_empty());
    fixture.start_kernel(1);
    fixture.connect("c");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell kernel_info_request".to_owned())
    );
}

#[test]
fn a_request_that_waited_for_a_kernel_is_answered_although_the_kernel_is_busy_from_its_start() {
    let mut fixture = Fixture::new(FrontEnd::Other);
    fixture.connect("c");
    send_info_request(&mut fixture, "1");
    fixture.advance(Duration::from_secs(2));
    fixture.start_busy_kernel(1);
    fixture.connect("c");
    fixture.actions();
    fixture.advance(200 * MS);
    assert_eq!(fixture.actions(), INFO);
}

/// Returns a bridge for VS Code before anything names the notebook.
fn unresolved() -> Fixture {
    let mut fixture = Fixture::new(FrontEnd::VsCode);
    fixture.bridge.set_kernel(
        fixture.now,
        Kernel::Unresolved { info: None },
        &ending(),
        [],
    );
    fixture.connect("c");
    fixture.actions();
    fixture
}

#[test]
fn a_kernel_info_request_is_answered_without_a_notebook() {
    let mut fixture = unresolved();
    send_info_request(&mut fixture, "1");
    assert_eq!(fixture.actions(), INFO);
    fixture.advance(Duration::from_secs(5));
    assert!(fixture.actions().is_empty());
}

#[test]
fn a_cell_names_its_notebook() {
    let mut fixture = unresolved();
    let content = json!({ "code": "1+1", "store_history": true });
    let metadata = json!({ "cellId": "vscode-notebook-cell:/p/my%20b.ipynb#W0sZmlsZQ%3D%3D" });
    let cell = message("execute_request", "1", "c", "{}".into(), &content);
    let cell = cell.with_metadata(&metadata);
    let client = ClientId::new("c".into());
    fixture
        .bridge
        .client_message(fixture.now, Channel::Shell, &client, cell);
    assert_eq!(fixture.actions(), ["resolve Some(\"/p/my b.ipynb\")"]);
    fixture.start_kernel(1);
    fixture.connect("c");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

#[test]
fn start_up_code_that_is_not_recognised_names_its_notebook() {
    let mut fixture = unresolved();
    let code = "__vsc_ipynb_file__ = \"/p/b.ipynb\"\nof_a_later_version()";
    let content = json!({ "code": code, "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    assert_eq!(fixture.actions(), ["resolve Some(\"/p/b.ipynb\")"]);
    assert_eq!(fixture.bridge.outstanding(), 1, "the kernel runs it");
}

#[test]
fn code_that_names_no_notebook_gets_the_default_notebook_after_2_seconds() {
    let mut fixture = unresolved();
    let content = json!({ "code": "warm_up()", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    assert!(fixture.actions().is_empty());
    fixture.advance(Duration::from_secs(2));
    assert_eq!(fixture.actions(), ["resolve None"]);
    fixture.advance(Duration::from_secs(5));
    assert!(fixture.actions().is_empty(), "it is asked for once");
}

#[test]
fn the_first_session_is_reported_once() {
    let mut fixture = unresolved();
    send_info_request(&mut fixture, "1");
    let sessions = |fixture: &mut Fixture| {
        std::iter::from_fn(|| fixture.bridge.poll_action())
            .filter_map(|action| match action {
                Action::SessionSeen { session } => Some(session),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(sessions(&mut fixture), ["c"]);
    send_info_request(&mut fixture, "2");
    assert!(sessions(&mut fixture).is_empty());
}

#[test]
fn held_requests_are_handled_again_when_the_notebook_is_unresolved() {
    let mut fixture = Fixture::new(FrontEnd::VsCode);
    fixture.connect("c");
    send_info_request(&mut fixture, "1");
    fixture.send(
        "c",
        Channel::Control,
        "kernel_info_request",
        "2",
        &json!({}),
    );
    let code = "__vsc_ipynb_file__ = \"/p/b.ipynb\"";
    let content = json!({ "code": code, "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "3", &content);
    fixture.send_cell("c", "4");
    let actions = fixture.actions();
    assert_eq!(
        actions,
        ["iopub busy", "client shell execute_reply", "iopub idle"]
    );
    fixture.bridge.set_kernel(
        fixture.now,
        Kernel::Unresolved { info: None },
        &ending(),
        [],
    );
    let actions = fixture.actions();
    for reply in [
        "client shell kernel_info_reply",
        "client control kernel_info_reply",
        "resolve Some(\"/p/b.ipynb\")",
    ] {
        assert!(
            actions.contains(&reply.to_owned()),
            "{reply} in {actions:?}"
        );
    }
    assert_eq!(fixture.bridge.outstanding(), 1, "the cell waits");
}

/// Makes a text of this test count as VS Code's probe for ipywidgets.
fn add_known_probe(fixture: &mut Fixture) -> Value {
    let code = format!("{} = 'the version'", super::super::startup::WIDGETS_ALIAS);
    fixture.bridge.set_policies(Policies {
        startup_known: vec![super::super::startup::fingerprint(&code)],
        ..Policies::default()
    });
    json!({ "code": code, "store_history": false })
}

/// Returns the text that is printed for the clients, and the other actions.
fn printed(fixture: &mut Fixture) -> (Option<String>, Vec<String>) {
    let mut text = None;
    let mut others = VecDeque::new();
    while let Some(action) = fixture.bridge.poll_action() {
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
    *fixture.bridge.actions() = others;
    (text, fixture.actions())
}

#[test]
fn an_idle_kernel_answers_the_widget_probe_and_the_proxy_answers_it_while_a_cell_runs() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let probe = add_known_probe(&mut fixture);
    fixture.send("c", Channel::Shell, "execute_request", "1", &probe);
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    let text = super::super::startup::widget_probe_stdout("8.1.7");
    let stream = json!({ "name": "stdout", "text": text });
    fixture.publish(("c", "1", "execute_request"), "stream", &stream);
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    assert_eq!(printed(&mut fixture).0.as_ref(), Some(&text));

    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    fixture.send("c", Channel::Shell, "execute_request", "2", &probe);
    let (stdout, actions) = printed(&mut fixture);
    assert_eq!(stdout, Some(text));
    assert!(
        actions.contains(&"client shell execute_reply".to_owned()),
        "{actions:?}"
    );
    assert_eq!(fixture.bridge.outstanding(), 0);
}

#[test]
fn the_proxy_answers_the_widget_probe_if_a_kernel_that_seems_idle_does_not() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let probe = add_known_probe(&mut fixture);
    fixture.send("c", Channel::Shell, "execute_request", "1", &probe);
    fixture.advance(199 * MS);
    assert_eq!(printed(&mut fixture).0, None);
    fixture.advance(MS);
    let default = super::super::startup::widget_probe_stdout("8.");
    assert_eq!(printed(&mut fixture).0, Some(default));
}

/// Its window is closed while an agent's cell runs; the kernel comes to it later.
#[test]
fn a_widget_probe_whose_client_is_forgotten_shows_nothing_and_is_no_cell_from_outside() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let probe = add_known_probe(&mut fixture);
    fixture.publish_status("agent", "a1", "busy");
    fixture.send("c", Channel::Shell, "execute_request", "1", &probe);
    fixture.disconnect("c");
    fixture.advance(Duration::from_secs(31));
    fixture.publish_status("agent", "a1", "idle");
    fixture.actions();
    fixture.publish_status("c", "1", "busy");
    let parent = ("c", "1", "execute_request");
    let input = json!({ "code": probe["code"], "execution_count": 1 });
    fixture.publish(parent, "execute_input", &input);
    let stream = json!({ "name": "stdout", "text": "x" });
    fixture.publish(parent, "stream", &stream);
    fixture.publish_status("c", "1", "idle");
    let shown = fixture.actions().into_iter();
    let shown: Vec<_> = shown.filter(|it| !it.starts_with("kernel own")).collect();
    assert_eq!(shown, [""; 0]);
}

/// The journal has it from the moment when it is sent, and an execution in the journal must end.
#[test]
fn a_widget_probe_that_the_proxy_has_answered_ends_in_the_journal_with_its_kernel() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let probe = add_known_probe(&mut fixture);
    fixture.publish_status("agent", "a1", "busy");
    fixture.send("c", Channel::Shell, "execute_request", "1", &probe);
    let is_sent = |action: &String| action.starts_with("journal Sent");
    assert_eq!(fixture.actions().iter().filter(|it| is_sent(it)).count(), 1);
    let died = Kernel::Died(ending());
    fixture.bridge.set_kernel(fixture.now, died, &ending(), []);
    let ended = fixture.actions().into_iter();
    let ended: Vec<_> = ended.filter(|it| !it.starts_with("close")).collect();
    assert_eq!(ended, ["journal Ended(\"error\") None"]);
}

#[test]
fn a_widget_probe_answered_before_the_kernel_is_known_still_reaches_the_kernel() {
    let mut fixture = unresolved();
    let probe = add_known_probe(&mut fixture);
    fixture.send("c", Channel::Shell, "execute_request", "1", &probe);
    let (stdout, actions) = printed(&mut fixture);
    let default = super::super::startup::widget_probe_stdout("8.");
    assert_eq!(stdout, Some(default), "nothing is known yet");
    assert!(
        actions.contains(&"client shell execute_reply".to_owned()),
        "{actions:?}"
    );
    fixture.start_kernel(1);
    fixture.connect("c");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
    let text = super::super::startup::widget_probe_stdout("8.1.7");
    let stream = json!({ "name": "stdout", "text": text });
    fixture.publish(("c", "1", "execute_request"), "stream", &stream);
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    let actions = fixture.actions();
    let passed = actions
        .iter()
        .any(|action| action.starts_with("client") || action.starts_with("iopub"));
    assert!(!passed, "its asker has its answer: {actions:?}");
    assert!(actions.contains(&"widgets 8.1.7".to_owned()), "{actions:?}");

    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    fixture.send("c", Channel::Shell, "execute_request", "2", &probe);
    assert_eq!(printed(&mut fixture).0, Some(text));
}

#[test]
fn the_widget_probe_is_always_answered_with_a_version() {
    let probe = |fixture: &mut Fixture, id: &str| {
        let probe = add_known_probe(fixture);
        fixture.send("c", Channel::Shell, "execute_request", id, &probe);
    };
    let assert_answered = |fixture: &mut Fixture, version: &str, when: &str| {
        let (stdout, actions) = printed(fixture);
        let text = super::super::startup::widget_probe_stdout(version);
        assert_eq!(stdout, Some(text), "{when}");
        let replies = actions
            .iter()
            .filter(|action| action.contains("execute_reply"));
        assert_eq!(replies.count(), 1, "{when}: {actions:?}");
        assert_eq!(fixture.bridge.outstanding(), 0, "{when}");
    };
    let mut fixture = unresolved();
    probe(&mut fixture, "1");
    assert_answered(&mut fixture, "8.", "no notebook is named");

    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    probe(&mut fixture, "1");
    assert_answered(&mut fixture, "8.", "the kernel is busy");

    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    probe(&mut fixture, "1");
    fixture
        .bridge
        .set_kernel(fixture.now, Kernel::Died(ending()), &ending(), []);
    assert_answered(&mut fixture, "8.", "the kernel dies while it has it");
    probe(&mut fixture, "2");
    assert_answered(&mut fixture, "8.", "the kernel has died");

    // The version of the session's last kernel is likelier to fit than the default.
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    fixture.bridge.set_widgets(Some("7.8.5".into()));
    fixture.start_kernel(2);
    fixture.bridge.set_widgets(None);
    fixture.connect("c");
    fixture.publish_status("agent", "a1", "busy");
    fixture.actions();
    probe(&mut fixture, "1");
    assert_answered(&mut fixture, "7.8.5", "another kernel is there");
}

#[test]
fn a_cell_that_names_another_notebook_than_the_default_runs_on_that_notebooks_kernel() {
    let mut fixture = unresolved();
    let content = json!({ "code": "warm_up()", "store_history": false });
    fixture.send("c", Channel::Shell, "execute_request", "1", &content);
    fixture.advance(Duration::from_secs(2));
    fixture.start_kernel(1);
    fixture.connect("c");
    fixture.reply("c", "1", "execute_request");
    fixture.publish_status("c", "1", "idle");
    fixture.actions();
    let cell = message(
        "execute_request",
        "2",
        "c",
        "{}".into(),
        &json!({ "code": "1+1" }),
    )
    .with_metadata(&json!({ "cellId": "vscode-notebook-cell:/p/b.ipynb#W0sZmlsZQ%3D%3D" }));
    let client = ClientId::new("c".into());
    fixture
        .bridge
        .client_message(fixture.now, Channel::Shell, &client, cell);
    // The caller gets the name first and leaves the assumed kernel, before it sends anything.
    let action = fixture.bridge.poll_action();
    assert!(matches!(
        action,
        Some(Action::ResolveNotebook { notebook: Some(_) })
    ));
    fixture.bridge.leave_kernel(fixture.now, &ending(), []);
    let actions = fixture.actions();
    assert!(
        !actions.iter().any(|action| action.contains("execute_re")),
        "{actions:?}"
    );
    fixture.start_kernel(2);
    fixture.connect("c");
    assert!(
        fixture
            .actions()
            .contains(&"kernel c shell execute_request".to_owned())
    );
}

fn add_known_setup(fixture: &mut Fixture) -> Value {
    let code = format!(
        "{} = 1\n{}",
        super::super::startup::HELPER_FUNCTION,
        super::super::startup::JEDI_OFF
    );
    fixture.bridge.set_policies(Policies {
        startup_known: vec![super::super::startup::fingerprint(&code)],
        ..Policies::default()
    });
    json!({ "code": code, "store_history": false })
}

#[test]
fn jedi_is_turned_off_in_each_generation_of_the_kernel_without_messages_to_clients() {
    let mut fixture = Fixture::live(FrontEnd::VsCode, &["c"]);
    let setup = add_known_setup(&mut fixture);
    fixture.send("c", Channel::Shell, "execute_request", "1", &setup);
    let actions = fixture.actions();
    let to_kernel = |actions: &[String]| {
        let sent = actions
            .iter()
            .filter(|action| action.starts_with("kernel c"));
        sent.cloned().collect::<Vec<_>>()
    };
    assert_eq!(to_kernel(&actions), ["kernel c shell execute_request"]);
    let answered = actions.contains(&"client shell execute_reply".to_owned());
    assert!(
        answered && !actions.iter().any(|action| action.starts_with("journal")),
        "{actions:?}"
    );
    assert_eq!(fixture.bridge.outstanding(), 0, "nobody waits for it");

    fixture.start_kernel(2);
    fixture.connect("c");
    assert_eq!(
        to_kernel(&fixture.actions()),
        ["kernel c shell execute_request"]
    );
}

/// A window that is closed soon after it has connected.
#[test]
fn a_cell_does_not_wait_for_the_line_for_jedi_of_a_client_that_is_gone() {
    let orders: [&[&str]; 5] = [
        &["busy", "leave"],
        &["leave", "busy"],
        &["busy", "reply", "leave"],
        &["reply", "busy", "leave"],
        &["reply", "leave", "busy"],
    ];
    for order in orders {
        // It cannot come back, so that it is forgotten at once.
        let client = "\0c";
        let mut fixture = Fixture::live(FrontEnd::VsCode, &[client, "d"]);
        let setup = add_known_setup(&mut fixture);
        fixture.send(client, Channel::Shell, "execute_request", "1", &setup);
        let actions = std::iter::from_fn(|| fixture.bridge.poll_action());
        let mut sent = actions.filter_map(|action| match action {
            Action::ToKernel { message, .. } => Some(message),
            _ => None,
        });
        let line = sent.next().expect("the line for Jedi");
        let line = line.header_bytes().clone();
        for step in order {
            match *step {
                "busy" => {
                    let busy = json!({ "execution_state": "busy" });
                    let busy = message("status", "b", "k", line.clone(), &busy);
                    fixture.bridge.iopub_message(fixture.now, busy);
                }
                "reply" => {
                    let ok = json!({ "status": "ok" });
                    let reply = message("execute_reply", "r", "k", line.clone(), &ok);
                    let id = ClientId::new(client.into());
                    let (now, shell) = (fixture.now, Channel::Shell);
                    fixture.bridge.kernel_message(now, &id, shell, reply);
                }
                _ => {
                    fixture.disconnect(client);
                    fixture.advance(Duration::ZERO);
                }
            }
        }
        // The kernel drops the `idle` of the line.
        let own = fixture
            .bridge
            .shell_request()
            .cloned()
            .expect("the kernel is asked whether the line has ended");
        fixture.reply_to_own(&own);
        fixture.publish_own_status(&own, "idle");
        fixture.actions();
        fixture.send_cell("d", "2");
        let sent = "kernel d shell execute_request".to_owned();
        assert!(fixture.actions().contains(&sent), "{order:?}");
    }
}
