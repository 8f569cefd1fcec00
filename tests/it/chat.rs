//! The kernel of a chat: with a scripted agent that does right and wrong, and with agents that others wrote.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::nb::until;
use crate::python;
use crate::world::{World, finish, succeed};

/// A world in which the kernelspec of chats is installed.
fn world() -> World {
    let world = World::new();
    succeed(world.nb().args(["serve", "--chat"]));
    world
}

/// The cell that starts the scripted agent.
fn start(arguments: &str) -> String {
    let python = python::interpreter().display();
    let script = python::script("chat_agent.py");
    format!("!start-agent {python} -u {} {arguments}", script.display())
}

fn cell(code: &str) -> Value {
    json!({ "code": code })
}

fn answered(code: &str, answers: &[&str]) -> Value {
    json!({ "code": code, "answers": answers })
}

/// Runs cells through jupyter_client; returns what came of each.
fn run(world: &World, cells: &[Value]) -> Vec<Value> {
    run_with(world, cells, &[])
}

/// Runs cells with variables of the environment.
fn run_with(world: &World, cells: &[Value], variables: &[(&str, &str)]) -> Vec<Value> {
    let mut script = world.command(python::interpreter());
    script.arg("-u").arg(python::script("chat.py"));
    // A cell can be longer than an argument.
    let file = world.project().join("../cells.json");
    std::fs::write(&file, Value::from(cells).to_string()).expect("write the cells");
    script.arg(file).envs(variables.iter().copied());
    let out = succeed(&mut script);
    serde_json::from_str(&out).expect("the script prints JSON")
}

/// Returns the text that a front end shows in the end.
fn text(result: &Value) -> String {
    let displays = result["displays"].as_object().expect("displays");
    let texts = displays
        .values()
        .map(|data| data["text/plain"].as_str().expect("a text"));
    texts.collect::<Vec<_>>().join("")
}

#[track_caller]
fn is_ok(result: &Value) {
    assert_eq!(result["status"], "ok", "{result:#}");
}

/// Asserts that a cell has failed, and returns its error as one text.
#[track_caller]
fn error(result: &Value) -> String {
    assert_eq!(result["status"], "error", "{result:#}");
    let lines = result["error"].as_array().expect("an error").iter();
    lines
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn without_an_agent_a_chat_says_how_to_start_one() {
    let results = run(
        &world(),
        &[
            cell("hello"),
            cell("%agent start /does/not/exist"),
            cell("%agent start gemini-that-nobody-has --acp"),
            cell("!ls"),
            cell("%agent list"),
            json!({ "complete": "%agent st" }),
        ],
    );
    assert!(
        error(&results[0]).contains("%agent start NAME|COMMAND"),
        "{}",
        results[0]
    );
    assert!(error(&results[1]).contains("cannot start /does/not/exist: No such file"));
    assert!(error(&results[2]).contains("cannot start gemini-that-nobody-has"));
    assert!(error(&results[3]).contains("%agent help"));
    assert!(
        results[4]["printed"]
            .as_str()
            .is_some_and(|it| it.contains("codex-acp"))
    );
    assert_eq!(results[5], json!(["start", "stop"]));
}

/// A web server with one file. Counts the requests.
struct OneFile {
    address: std::net::SocketAddr,
    requests: Arc<AtomicUsize>,
}

impl OneFile {
    fn serve(file: String, requests: usize) -> Self {
        use std::io::{BufRead, BufReader, Write};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
        let address = listener.local_addr().expect("an address");
        let counter = Arc::new(AtomicUsize::new(0));
        let counted = counter.clone();
        std::thread::spawn(move || {
            for connection in listener.incoming().take(requests) {
                let connection = connection.expect("a connection");
                counted.fetch_add(1, Ordering::SeqCst);
                let lines = BufReader::new(&connection).lines();
                let _ = lines
                    .take_while(|line| line.as_ref().is_ok_and(|line| !line.is_empty()))
                    .count();
                let _ = write!(
                    &connection,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{file}",
                    file.len()
                );
            }
        });
        Self {
            address,
            requests: counter,
        }
    }
}

#[test]
fn an_agent_of_the_registry_is_downloaded_only_after_a_yes() {
    use std::os::unix::fs::PermissionsExt;
    let world = world();
    let packages = json!({ "version": "1.0.0", "agents": [
        { "id": "ann-agent", "name": "Ann", "version": "1.2.3", "description": "d",
          "distribution": { "npx": { "package": "@ann/agent@1.2.3", "args": ["--acp"], "env": { "ANN": "1" } } } },
        { "id": "bob-agent", "name": "Bob", "version": "2.0.0", "description": "d",
          "distribution": { "binary": {
              "linux-x86_64": { "archive": "https://bob.example/a.tgz", "cmd": "./bob", "args": ["acp"] },
              "linux-aarch64": { "archive": "https://bob.example/a.tgz", "cmd": "./bob", "args": ["acp"] } } } },
        { "id": "damaged" },
    ] });
    // It is served once: later the network is gone.
    let server = OneFile::serve(packages.to_string(), 1);
    let folder = world.project().join("../programs");
    std::fs::create_dir(&folder).expect("make a folder");
    let npx = folder.join("npx");
    let (called, python) = (folder.join("called"), python::interpreter().display());
    let script = python::script("chat_agent.py");
    let text = format!(
        "#!/bin/sh\necho \"$ANN $*\" >> {}\nexec {python} -u {} good\n",
        called.display(),
        script.display()
    );
    std::fs::write(&npx, text).expect("write a program");
    std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755))
        .expect("make it a program");
    let address = format!("http://{}/registry.json", server.address);
    let path = format!(
        "{}:{}",
        folder.display(),
        std::env::var("PATH").expect("a PATH")
    );
    let variables = [("NB_AGENT_REGISTRY", &*address), ("PATH", &*path)];
    let results = run_with(
        &world,
        &[
            cell("%agent registry"),
            cell("%agent registry update"),
            cell("%agent start ann-agent"),
            answered("%agent start ann-agent", &[""]),
            answered("%agent start bob-agent", &["y"]),
            json!({ "complete": "%agent start ann" }),
        ],
        &variables,
    );
    assert!(
        error(&results[0]).contains("%agent registry update"),
        "{}",
        results[0]
    );
    is_ok(&results[1]);
    let listed = results[1]["printed"].as_str().expect("text");
    assert!(
        listed.contains("ann-agent  Ann 1.2.3: env 'ANN=1' npx -y @ann/agent@1.2.3 --acp\n"),
        "{listed}"
    );
    assert!(
        listed.contains("not for this machine, or damaged: 1"),
        "{listed}"
    );
    assert!(
        error(&results[2]).contains("nobody can be asked here, so nothing was downloaded"),
        "{}",
        results[2]
    );
    assert!(
        error(&results[3]).contains("nothing was downloaded"),
        "{}",
        results[3]
    );
    let question = results[3]["questions"][0].as_str().expect("a question");
    assert!(
        question.contains("\n  env 'ANN=1' npx -y @ann/agent@1.2.3 --acp\n"),
        "{question}"
    );
    assert!(
        error(&results[4]).contains("unpack https://bob.example/a.tgz, then ./bob acp"),
        "{}",
        results[4]
    );
    assert_eq!(
        results[4]["questions"],
        json!([]),
        "an archive is not downloaded"
    );
    assert_eq!(results[5], json!(["ann-agent"]));
    assert!(!called.exists(), "it was run without a yes");
    assert_eq!(server.requests.load(Ordering::SeqCst), 1);

    let results = run_with(
        &world,
        &[
            cell("%agent registry update"),
            cell("%agent registry"),
            answered("%agent start ann-agent\nsay hello", &["y"]),
        ],
        &variables,
    );
    assert!(
        error(&results[0]).contains("nothing listens at"),
        "{}",
        results[0]
    );
    assert_eq!(results[1]["printed"], listed, "the copy is still there");
    is_ok(&results[2]);
    let calls = std::fs::read_to_string(&called).expect("it was run");
    assert_eq!(calls, "1 -y @ann/agent@1.2.3 --acp\n");

    let copy = world
        .project()
        .join("../home/.local/share/nb/agent-registry.json");
    std::fs::write(&copy, "{\"agents\": 3}").expect("damage the copy");
    let results = run_with(
        &world,
        &[cell("%agent list"), cell("%agent start ann-agent")],
        &variables,
    );
    let printed = results[0]["printed"].as_str().expect("text");
    assert!(
        printed.contains("agent-registry.json is damaged"),
        "{printed}"
    );
    assert!(
        error(&results[1]).contains("cannot start ann-agent"),
        "{}",
        results[1]
    );
}

#[test]
fn two_front_ends_on_one_chat_take_turns() {
    let both = json!({ "both": ["say one\nflood 300\nsay two", "permission allow_once reject_once"], "answers": ["a"] });
    let results = run(&world(), &[cell(&start("good")), both]);
    let [first, second] = [&results[1][0], &results[1][1]];
    for result in [first, second] {
        assert_eq!(result["status"], "ok", "{results:#?}");
    }
    // They are sent over two connections, so either may arrive first.
    let turns = |first: u8, second: u8| {
        let of = |cell: u8| [(cell, "busy"), (cell, "idle")];
        json!([of(first), of(second)].concat())
    };
    assert!(
        first["order"] == turns(0, 1) || first["order"] == turns(1, 0),
        "one after the other: {first}"
    );
    for field in ["order", "seen"] {
        assert_eq!(first[field], second[field], "both see the same");
    }
    assert!(
        first["seen"][0]
            .as_str()
            .is_some_and(|it| it.contains("one") && it.contains("two")),
        "{first}"
    );
    assert_eq!(
        first["questions"],
        json!([]),
        "the one is asked whose cell it is"
    );
    assert_eq!(second["questions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn ten_thousand_updates_are_few_displays_and_lose_nothing() {
    let flood = cell("flood 10000");
    let results = run(&world(), &[cell(&start("good")), flood.clone(), flood]);
    is_ok(&results[1]);
    let shown = text(&results[1]);
    let words: Vec<_> = shown.split_whitespace().collect();
    let wanted: Vec<_> = (0..10_000).map(|number| format!("w{number}")).collect();
    assert_eq!(words, wanted);
    let times: Vec<f64> = serde_json::from_value(results[1]["times"].clone()).unwrap();
    for second in times.windows(12) {
        // Eleven pauses of a tenth of a second, as far as a busy machine shows them.
        assert!(second[11] - second[0] > 0.8, "{times:?}");
    }
    let most = |at: usize| results[at]["megabytes"][0].as_u64().expect("a size");
    let [first, second] = [1, 2].map(|at| most(at).saturating_sub(most(0)));
    assert!(first < 16 && second < 16, "{first} MiB, {second} MiB more");
}

#[test]
fn a_permission_is_what_the_person_answers_and_at_least_nothing() {
    let all = "permission allow_always allow_once reject_once reject_always";
    let write = "may-write a.py allow_always allow_once reject_once reject_always";
    let results = run(
        &world(),
        &[
            cell(&start("good")),
            answered(all, &["b"]),
            answered(all, &[""]),
            answered(all, &["what?", "d"]),
            // Nobody can be asked here.
            cell(all),
            answered("permission allow_always", &[""]),
            cell("permission"),
            // From now on; the agent is told that it may this time.
            answered(write, &["a"]),
            answered(write, &[]),
            cell("%agent permissions"),
            cell("%agent permissions revoke 2"),
            cell("%agent permissions revoke 1"),
            answered(write, &[""]),
        ],
    );
    let outcome = |at: usize| {
        let shown = text(&results[at]);
        let line = shown.lines().find_map(|line| line.strip_prefix("outcome "));
        let outcome: Value = serde_json::from_str(line.expect("an outcome")).unwrap();
        outcome["optionId"]
            .as_str()
            .unwrap_or("cancelled")
            .to_owned()
    };
    let question = results[1]["questions"][0].as_str().unwrap();
    assert!(
        question.contains("\n  b  allow once (this time)\n"),
        "{question}"
    );
    assert!(question.ends_with("Enter for [c]: "), "{question}");
    assert_eq!(outcome(1), "o-allow_once");
    assert_eq!(outcome(2), "o-reject_once");
    assert_eq!(outcome(3), "o-reject_always");
    assert_eq!(results[3]["questions"].as_array().map(Vec::len), Some(2));
    assert_eq!(outcome(4), "o-reject_once");
    assert!(text(&results[4]).contains("nobody can be asked here"));
    assert_eq!(
        (outcome(5), outcome(6)),
        ("cancelled".to_owned(), "cancelled".to_owned())
    );
    assert_eq!(outcome(7), "o-allow_once");
    assert_eq!(outcome(8), "o-allow_once");
    assert_eq!(results[8]["questions"], json!([]));
    assert!(text(&results[8]).contains("allowed as before: Change a file"));
    assert_eq!(
        results[9]["printed"],
        "1  chat-agent: Change a file (edit) in a.py\n"
    );
    assert!(error(&results[10]).contains("there is no permission 2"));
    assert_eq!(
        results[11]["printed"],
        "taken back: chat-agent: Change a file\n"
    );
    assert_eq!(outcome(12), "o-reject_once");
}

#[test]
fn from_now_on_holds_for_the_file_that_was_asked_for() {
    let ask = |file: &str| format!("may-write {file} allow_always allow_once reject_once");
    let unnamed = "permission allow_always allow_once reject_once";
    let results = run(
        &world(),
        &[
            cell(&start("good")),
            answered(&ask("a.py"), &["a"]),
            answered(&ask("a.py"), &[]),
            answered(&ask("/home/ada/.bashrc"), &[""]),
            // It says neither what it writes nor where.
            answered(unnamed, &["a"]),
            answered(unnamed, &[""]),
        ],
    );
    for (at, expected) in [
        (1, "o-allow_once"),
        (2, "o-allow_once"),
        (3, "o-reject_once"),
        (4, "o-allow_once"),
        (5, "o-reject_once"),
    ] {
        assert!(
            text(&results[at]).contains(expected),
            "{at}: {:#}",
            results[at]
        );
    }
    assert!(
        text(&results[4]).contains("allowed this time only"),
        "{:#}",
        results[4]
    );
}

/// Also what has left the command's session by a second fork. A kernel of `nb` stays.
#[test]
fn what_a_command_leaves_in_the_background_ends_with_its_turn() {
    let world = world();
    let file = |name: &str, text: &str| std::fs::write(world.project().join(name), text).unwrap();
    file(
        "leave.py",
        "import os, subprocess\n\
         pids = [subprocess.Popen(['sleep', '4001']).pid]\n\
         if os.fork() == 0:\n    \
             os.setsid()\n    \
             reader, writer = os.pipe()\n    \
             if (pid := os.fork()) == 0:\n        \
                 os.closerange(0, 3)\n        \
                 os.execve('/bin/sleep', ['sleep', '4001'], {})\n    \
             open('forked', 'w').write(str(pid))\n    \
             os._exit(0)\n\
         os.wait()\n\
         open('pids', 'w').write(f'{pids[0]} {open(\"forked\").read()}')\n",
    );
    file(
        "gone.py",
        "import os, time\n\
         end = time.monotonic() + 20\n\
         pids = open('pids').read().split()\n\
         assert len(pids) == 2\n\
         while any(os.path.exists(f'/proc/{pid}') for pid in pids):\n    \
             assert time.monotonic() < end, 'they run'\n    \
             time.sleep(0.01)\n",
    );
    let python = python::interpreter().display();
    let open = "\"$NB_TEST_BINARY\" open t.ipynb --python \"$NB_TEST_PYTHON\" && \"$NB_TEST_BINARY\" run \"x = 4711\"";
    let results = run(
        &world,
        &[
            cell(&start("good")),
            cell(&format!("terminal {python} leave.py\nterminal {open}")),
            cell(&format!("terminal {python} gone.py")),
        ],
    );
    for result in &results[1..] {
        let shown = text(result);
        assert!(
            shown.contains(r#""exitCode": 0"#) && !shown.contains(r#""exitCode": 1"#),
            "{shown}"
        );
    }
    let vars = succeed(world.nb().args(["vars", "t.ipynb"]));
    assert!(vars.contains("4711"), "{vars}");
}

#[test]
fn an_interrupt_ends_the_turn_and_the_text_before_it_stays() {
    let interrupt = |code: &str, at: &str| json!({ "code": code, "interrupt": at, "answers": [] });
    let results = run(
        &world(),
        &[
            cell(&start("good")),
            interrupt("say before\nwait", "waiting"),
            interrupt("permission allow_once reject_once\nsay after", "Enter for"),
            cell("say again"),
            interrupt("ignore-cancel", "ignoring"),
            cell("say it is there again"),
        ],
    );
    assert!(error(&results[1]).starts_with("KeyboardInterrupt"));
    assert!(
        text(&results[1]).starts_with("beforewaiting"),
        "{}",
        results[1]
    );
    assert!(error(&results[2]).starts_with("KeyboardInterrupt"));
    assert!(
        text(&results[2]).contains(r#""outcome": "cancelled""#),
        "{}",
        results[2]
    );
    is_ok(&results[3]);
    assert!(error(&results[4]).contains("did not stop within 5 s"));
    is_ok(&results[5]);
    assert!(text(&results[5]).contains("it is there again"));
}

#[test]
fn files_and_commands_are_those_of_the_workspace() {
    let world = world();
    std::fs::write(world.project().join("a.txt"), "text of a").unwrap();
    std::fs::write(world.project().join("../secret.txt"), "secret").unwrap();
    std::os::unix::fs::symlink("../secret.txt", world.project().join("link.txt")).unwrap();
    let results = run(
        &world,
        &[
            cell(&start("good")),
            cell(
                "read a.txt\nread missing.txt\nread link.txt\nread ../secret.txt\nread .nb/state.json",
            ),
            cell("write new/b.txt made\nwrite ../out.txt no\nwrite link.txt no"),
            cell("terminal printf '%2000s' x; exit 3"),
            json!({ "code": "terminal printf 'half done'; sleep 100", "interrupt": "half done" }),
            cell("terminal /does/not/exist"),
            cell("hang-terminal sleep 1000"),
            cell("method fs/delete_everything\nas"),
        ],
    );
    let read = text(&results[1]);
    assert!(read.contains(r#"read {"content": "text of a"}"#), "{read}");
    assert!(read.contains("-32002"), "{read}");
    assert_eq!(
        read.matches("is outside the workspace").count(),
        2,
        "{read}"
    );
    assert!(
        read.contains("is nb's own") && !read.contains("secret\""),
        "{read}"
    );
    let wrote = text(&results[2]);
    assert!(wrote.starts_with("wrote null"), "{wrote}");
    assert_eq!(
        wrote.matches("is outside the workspace").count(),
        2,
        "{wrote}"
    );
    let made = std::fs::read_to_string(world.project().join("new/b.txt"));
    assert_eq!(made.unwrap(), "made");
    assert!(!world.project().join("../out.txt").exists());
    assert!(text(&results[3]).contains(r#"terminal [{"exitCode": 3, "signal": null}, 1000]"#));
    assert!(text(&results[3]).contains("▸ a command") || text(&results[3]).contains("– a command"));
    // Its output was seen while it ran, or the cell would not have been interrupted.
    let stopped = error(&results[4]);
    assert!(stopped.starts_with("KeyboardInterrupt"), "{stopped}");
    assert!(!stopped.contains("did not stop"), "{stopped}");
    assert!(text(&results[5]).contains("no terminal"), "{}", results[5]);
    is_ok(&results[6]);
    assert!(
        text(&results[7]).contains("method -32601"),
        "{}",
        results[7]
    );
    assert!(text(&results[7]).contains("as chat-agent"));
    // The world's end asserts that `sleep 1000` has ended with its turn.
}

#[test]
fn an_agent_that_goes_wrong_ends_its_cell_and_no_more() {
    let results = run(
        &world(),
        &[
            cell(&start("exits")),
            cell(&start("prints")),
            cell(&start("later")),
            cell(&start("twice")),
            cell("say one"),
            cell("say two"),
            cell("garbage\nsay after garbage"),
            cell("say half\ndie 7"),
            cell("say it is back"),
            cell("huge 40"),
            cell("say it is back again"),
            cell(&"x".repeat(1 << 20)),
        ],
    );
    let message = error(&results[0]);
    assert!(
        message.contains("exit code 1") && message.contains("wrong arguments"),
        "{message}"
    );
    let message = error(&results[1]);
    assert!(
        message.contains("exit code 3") && message.contains("Welcome to the agent!"),
        "{message}"
    );
    assert!(error(&results[2]).contains("version 99"), "{}", results[2]);
    for (at, wanted) in [(4, "one"), (5, "two"), (6, "after garbage")] {
        is_ok(&results[at]);
        assert_eq!(text(&results[at]), wanted);
    }
    let message = error(&results[7]);
    assert!(
        message.contains("exit code 7") && message.contains("the last words"),
        "{message}"
    );
    assert_eq!(text(&results[7]), "half");
    is_ok(&results[8]);
    let back = text(&results[8]);
    assert!(
        back.contains("does not know what was said before") && back.contains("it is back"),
        "{back}"
    );
    assert!(
        error(&results[9]).contains("a message of more than 32 MiB"),
        "{}",
        results[9]
    );
    is_ok(&results[10]);
    is_ok(&results[11]);
}

#[test]
fn a_conversation_goes_on_after_its_kernel() {
    let world = world();
    let sessions = world.project().join("sessions.txt");
    let start = start(&format!("good {}", sessions.display()));
    let restarted = |code: &str, how: &str| json!({ "code": code, "restart": how });
    let results = run(
        &world,
        &[
            cell(&start),
            cell("say one"),
            restarted("say two", "gently"),
            restarted("say three", "now"),
            json!({ "code": "say begun\nwait", "kill": "waiting", "victim": "chat-kernel" }),
            cell("say four"),
            json!({ "code": "wait", "kill": "waiting", "victim": "chat_agent.py" }),
            cell("say five"),
            cell("%agent sessions"),
            cell("%agent new"),
            cell("say six"),
            cell("%agent sessions"),
            cell("%agent resume 1"),
            cell("%agent mode code"),
            cell("%agent model Large"),
            cell("%agent config"),
            cell("%agent mode dance"),
        ],
    );
    for at in [2, 3, 5, 7] {
        is_ok(&results[at]);
        let shown = text(&results[at]);
        assert!(shown.contains("the session of before"), "{shown}");
        assert!(!shown.contains("an answer of before"), "{shown}");
    }
    let lost = text(&results[5]);
    assert!(
        lost.contains("the kernel ended while chat-agent answered “say begun wait”"),
        "{lost}"
    );
    assert!(
        error(&results[6]).contains("ended by signal 9"),
        "{}",
        results[6]
    );
    assert_eq!(
        std::fs::read_to_string(&sessions).unwrap().lines().count(),
        2
    );
    let listed = results[11]["printed"].as_str().unwrap();
    assert!(
        listed.contains("  1  chat-agent") && listed.contains("* 2  chat-agent"),
        "{listed}"
    );
    assert!(
        results[12]["printed"]
            .as_str()
            .unwrap()
            .contains("the session of before")
    );
    let settings = results[15]["printed"].as_str().unwrap();
    assert!(
        settings.contains("mode = code of") && settings.contains("model = large of"),
        "{settings}"
    );
    assert!(error(&results[16]).contains("its modes: ask, code"));
}

#[test]
fn a_login_and_an_agent_that_only_chats() {
    let results = run(
        &world(),
        &[
            cell(&start("login")),
            cell("%agent login browser"),
            cell("say in"),
            cell(&start("chat-only")),
            cell("hello"),
            cell("%agent stop"),
            cell("hello"),
        ],
    );
    assert!(error(&results[0]).contains("%agent login browser  Log in with a browser"));
    is_ok(&results[1]);
    assert!(text(&results[2]).contains("in"));
    assert_eq!(text(&results[4]), "you said hello");
    assert!(error(&results[6]).contains("no agent is started"));
}

#[test]
fn an_agents_text_of_a_notebook_is_an_edit_like_others() {
    let world = world();
    world.open("t.ipynb");
    succeed(world.nb().args([
        "insert",
        "t.ipynb",
        "--source",
        "first = 1",
        "--id",
        "cell0001",
    ]));
    let results = run(
        &world,
        &[
            cell(&start("good")),
            cell("replace t.ipynb first second"),
            cell("write t.ipynb {}"),
            cell("%agent on t.ipynb"),
            cell("images"),
            cell("%agent on nothing.ipynb"),
            cell("%agent mcp list"),
        ],
    );
    let replaced = text(&results[1]);
    assert!(replaced.contains("replaced null"), "{replaced}");
    let link = "[t.ipynb cell0001](t.ipynb#cell-id=cell0001)";
    assert!(replaced.contains(link), "{replaced}");
    let log = succeed(world.nb().args(["log", "t.ipynb"]));
    let done = log.lines().last().expect("a line");
    assert!(
        done.ends_with("chat-agent did that for a chat cell [2]: “replace t.ipynb first second”"),
        "{log}"
    );
    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("second = 1"), "{shown}");
    // Its last edit, not the person's.
    succeed(world.nb().args(["undo", "t.ipynb", "--as", "chat-agent"]));
    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("first = 1"), "{shown}");
    assert!(
        text(&results[2]).contains("is not a notebook"),
        "{}",
        results[2]
    );
    assert_eq!(results[3]["printed"], "the agents work on t.ipynb\n");
    assert!(
        text(&results[4]).contains(r#"["text", "resource_link"]"#),
        "{}",
        results[4]
    );
    assert!(error(&results[5]).contains("no notebook that exists"));
    assert!(
        results[6]["printed"]
            .as_str()
            .unwrap()
            .contains("mcp --root"),
        "{}",
        results[6]
    );
}

#[test]
fn an_agent_that_never_started_is_not_said_to_start_again() {
    let world = world();
    let results = run(&world, &[cell("!start-agent false"), cell("hello")]);
    let not_started = error(&results[0]);
    assert!(
        not_started.contains("%agent start NAME|COMMAND starts another one")
            && !not_started.contains("starts it again"),
        "{not_started}"
    );
    assert!(error(&results[1]).contains("no agent is started"));
}

/// It has a process group of its own, which a signal to `nb chat` does not reach.
#[test]
fn a_silent_agent_is_told_of_and_ends_with_the_command() {
    let world = World::new();
    let mut command = world.nb();
    command.args(["chat", "--agent", "sleep 1000", "hello"]);
    command.stdin(Stdio::null()).stderr(Stdio::piped());
    let mut chat = command.spawn().expect("start nb chat");
    let mut told = String::new();
    let stderr = chat.stderr.as_mut().expect("it has a stderr");
    BufReader::new(stderr)
        .read_line(&mut told)
        .expect("read a line");
    assert!(told.contains("sleep has not answered yet"), "{told}");
    let pid = rustix::process::Pid::from_child(&chat);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("send SIGTERM");
    assert_eq!(chat.wait().expect("it ends").code(), Some(143));
    let mut left = world.processes().into_iter();
    assert!(left.all(|(_, words)| !words.contains("sleep 1000")));
}

#[test]
fn a_message_from_the_shell() {
    let world = world();
    let sessions = world.project().join("sessions.txt");
    let agent = start(&format!("good {}", sessions.display()));
    let agent = agent.strip_prefix("!start-agent ").unwrap();
    let stdout = succeed(world.nb().args(["chat", "--agent", agent, "say hello\nas"]));
    assert_eq!(stdout, "helloas chat-agent\n");
    let (status, out, err) =
        finish(
            world
                .nb()
                .args(["chat", "--continue", "permission allow_once reject_once"]),
        );
    assert!(status.success(), "{err}");
    assert!(
        out.contains("o-reject_once") && err.contains("the session of before"),
        "{out}{err}"
    );
    assert!(err.contains("nobody can be asked here"), "{err}");
    let (status, _, err) = finish(world.nb().args(["chat", "die 4"]));
    assert_eq!(status.code(), Some(1), "{err}");
    assert!(
        err.contains("exit code 4") && err.contains("the last words"),
        "{err}"
    );
    let (status, _, err) = finish(world.nb().args(["chat", "--agent", "codex", "hello"]));
    assert_eq!(status.code(), Some(2), "{err}");
    assert!(err.contains("codex-acp"), "{err}");
}

#[test]
fn the_public_kernel_suite_passes() {
    let world = world();
    let agent = start("good");
    let mut script = world.command(python::interpreter());
    script.arg("-u").arg(python::script("chat_suite.py"));
    script.arg(agent.strip_prefix("!start-agent ").unwrap());
    let results: Value = serde_json::from_str(&succeed(&mut script)).unwrap();
    assert_eq!(results["failed"], json!([]), "{results:#}");
    let passed = results["passed"].as_array().map(Vec::len);
    assert!(passed >= Some(7), "{results:#}");
}

/// The agent of the library's own examples, which repeats what it gets.
#[test]
fn the_echo_agent_of_the_python_library_and_nbconvert() {
    let world = world();
    let (python, agent) = python::with_acp();
    let start = format!("!start-agent {} {}", python.display(), agent.display());
    let results = run(
        &world,
        &[
            cell(&start),
            cell("hello **world**"),
            cell("zwei\nZeilen ä"),
        ],
    );
    assert_eq!(text(&results[1]), "hello **world**");
    assert_eq!(text(&results[2]), "zwei\nZeilen ä");

    let code = |source: &str| json!({ "cell_type": "code", "source": source, "metadata": {}, "outputs": [], "execution_count": null });
    let notebook = json!({
        "cells": [code(&start), code("hello **notebook**")],
        "metadata": { "kernelspec": { "name": "nb-chat", "display_name": "Agent Client Protocol" } },
        "nbformat": 4,
        "nbformat_minor": 4,
    });
    std::fs::write(world.project().join("chat.ipynb"), notebook.to_string()).unwrap();
    let mut convert = world.command(python);
    convert.args([
        "-m",
        "nbconvert",
        "--execute",
        "--to",
        "notebook",
        "--output",
        "done.ipynb",
    ]);
    succeed(convert.arg("chat.ipynb"));
    let done = std::fs::read(world.project().join("done.ipynb")).unwrap();
    let done: Value = serde_json::from_slice(&done).unwrap();
    let data = &done["cells"][1]["outputs"][0]["data"];
    assert_eq!(
        data["text/markdown"],
        json!(["hello **notebook**"]),
        "{done:#}"
    );
    assert_eq!(data["text/plain"], json!(["hello **notebook**"]));
}

/// The example agent of the TypeScript library: a turn with tool calls and a permission, and its interrupt.
#[test]
fn the_example_agent_of_the_typescript_library() {
    let Some(modules) = crate::node::acp_modules() else {
        return;
    };
    let agent = modules.join("@agentclientprotocol/sdk/dist/examples/agent.js");
    let start = format!("!start-agent node {}", agent.display());
    let results = run(
        &world(),
        &[
            cell(&start),
            answered("go", &["a"]),
            answered("go", &[""]),
            json!({ "code": "go", "interrupt": "Reading project files" }),
            cell("go"),
        ],
    );
    let allowed = text(&results[1]);
    assert!(
        allowed.contains("✓ Reading project files · read · /project/README.md"),
        "{allowed}"
    );
    assert!(
        allowed.contains("✓ Modifying critical configuration file · edit"),
        "{allowed}"
    );
    assert!(
        allowed.contains("you answered: Allow this change"),
        "{allowed}"
    );
    assert!(
        allowed.ends_with("The changes have been applied."),
        "{allowed}"
    );
    let refused = text(&results[2]);
    assert!(
        refused.contains("– Modifying critical configuration file"),
        "{refused}"
    );
    assert!(
        refused.ends_with("I'll skip the configuration update."),
        "{refused}"
    );
    assert!(
        error(&results[3]).starts_with("KeyboardInterrupt"),
        "{}",
        results[3]
    );
    assert!(text(&results[4]).contains("nobody can be asked here"));
}

/// A turn of gemini's model that calls a tool.
pub fn gemini_calls(name: &str, args: &Value) -> Value {
    json!({ "functionCall": { "name": name, "args": args } })
}

/// A turn of gemini's model that consists of text.
pub fn gemini_text(text: &str) -> Value {
    json!({ "text": text })
}

/// Returns the cell that starts gemini-cli with recorded answers of its model; `None` without npm.
pub fn gemini(world: &World, answers: Vec<Value>) -> Option<String> {
    let modules = crate::node::acp_modules()?;
    let settings = json!({
        "security": { "auth": { "selectedType": "gemini-api-key" } },
        "general": { "disableAutoUpdate": true },
        "privacy": { "usageStatisticsEnabled": false },
    });
    let home = world.project().join("../home/.gemini");
    std::fs::create_dir_all(&home).unwrap();
    std::fs::write(home.join("settings.json"), settings.to_string()).unwrap();
    let lines = answers.into_iter().map(|part| {
        let content = json!({ "parts": [part], "role": "model" });
        let candidate = json!({ "content": content, "finishReason": "STOP", "index": 0 });
        let response = json!([{ "candidates": [candidate] }]);
        json!({ "method": "generateContentStream", "response": response }).to_string()
    });
    let recorded = world.project().join("../answers.jsonl");
    std::fs::write(&recorded, lines.collect::<Vec<_>>().join("\n")).unwrap();
    let program = modules.join("@google/gemini-cli/bundle/gemini.js");
    Some(format!(
        "!start-agent env GEMINI_API_KEY=x GEMINI_CLI_TRUST_WORKSPACE=true node {} --acp \
         --fake-responses-non-strict {}",
        program.display(),
        recorded.display()
    ))
}

/// gemini-cli with recorded answers of its model: it writes a file through its client, works on another notebook
/// with the tools of `nb mcp`, and takes its session up again.
#[test]
fn gemini_works_on_a_notebook_with_nbs_tools() {
    let world = world();
    world.open("t.ipynb");
    succeed(world.nb().args([
        "insert", "t.ipynb", "--source", "x = 20", "--id", "cell0001",
    ]));
    let file = world.project().join("made.txt");
    let cell_of = |more: &Value| {
        let mut arguments = json!({ "notebook": "t.ipynb", "cell": "cell0001" });
        let (all, more) = (
            arguments.as_object_mut().unwrap(),
            more.as_object().unwrap(),
        );
        all.extend(more.clone());
        arguments
    };
    let answers = vec![
        gemini_calls(
            "write_file",
            &json!({ "file_path": file, "content": "made by gemini\n" }),
        ),
        gemini_text("The file is there."),
        gemini_calls("mcp_nb_read_cell", &cell_of(&json!({}))),
        gemini_calls(
            "mcp_nb_update_cell",
            &cell_of(&json!({ "source": "x = 21\nx * 2" })),
        ),
        gemini_calls("mcp_nb_run_cell", &cell_of(&json!({}))),
        gemini_text("The cell gives 42."),
        gemini_text("I remember."),
    ];
    let Some(agent) = gemini(&world, answers) else {
        return;
    };
    let yes = ["a"; 8];
    let results = run(
        &world,
        &[
            cell(&agent),
            answered("Write a file", &yes),
            answered("Correct the notebook", &yes),
            json!({ "code": "%agent mode plan", "restart": "gently" }),
        ],
    );
    for result in &results {
        is_ok(result);
    }
    assert!(
        results[0]["printed"]
            .as_str()
            .unwrap()
            .starts_with("gemini (Gemini CLI 0.61.0)")
    );
    assert_eq!(
        std::fs::read_to_string(file).unwrap(),
        "made by gemini\n",
        "{}",
        results[1]
    );
    assert!(
        text(&results[2]).contains("The cell gives 42."),
        "{:#}",
        results[2]
    );
    let shown = succeed(world.nb().args(["cell", "t.ipynb", "cell0001"]));
    assert!(shown.contains("x = 21") && shown.contains("42"), "{shown}");
    let log = succeed(world.nb().args(["log", "t.ipynb"]));
    assert!(log.contains("gemini"), "{log}");
}

/// `NB_TEST_KILLS` is how often something is killed: 100 takes part in no CI run.
#[test]
fn whatever_is_killed_at_any_moment_the_conversation_goes_on() {
    let kills = std::env::var("NB_TEST_KILLS").ok();
    let kills: u32 = kills.and_then(|it| it.parse().ok()).unwrap_or(6);
    let world = world();
    let sessions = world.project().join("sessions.txt");
    let front_end = |cells: &[Value]| {
        let mut script = world.command(python::interpreter());
        let file = world.project().join("../cells.json");
        std::fs::write(&file, Value::from(cells).to_string()).expect("write the cells");
        script.arg("-u").arg(python::script("chat.py")).arg(file);
        script.env("JPY_SESSION_NAME", "chat.ipynb");
        script
    };
    let start = start(&format!("good {}", sessions.display()));
    succeed(&mut front_end(&[cell(&start), cell("say hello")]));
    let mut lost = 0;
    for kill in 0..kills {
        let victim = ["chat_agent.py", "chat-kernel", "chat.py"][kill as usize % 3];
        let long = "say begun\nflood 2000\nterminal sleep 0.3\nwrite a.txt text\nflood 2000";
        let mut killed = front_end(&[cell(long)])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("start the front end");
        // Any moment: from before the kernel is there until after the turn.
        std::thread::sleep(Duration::from_millis(u64::from(kill) * 618 % 2600));
        kill_all(&world, victim);
        // Its kernel notices that the front end is gone.
        let _ = killed.kill();
        let _ = killed.wait();
        until("that nothing is left", || {
            let left = world.processes().into_iter();
            let mut left = left.filter(|(_, words)| words.contains("chat"));
            left.next().is_none().then_some(())
        });
        let next = format!("say still {kill}");
        let out = succeed(&mut front_end(&[cell(&next)]));
        let results: Vec<Value> = serde_json::from_str(&out).expect("JSON");
        is_ok(&results[0]);
        let shown = text(&results[0]);
        assert!(shown.contains("the session of before"), "{victim}: {shown}");
        assert!(
            shown.contains(&format!("still {kill}")),
            "{victim}: {shown}"
        );
        lost += u32::from(shown.contains("the kernel ended while chat-agent answered"));
    }
    eprintln!("{kills} kills, {lost} turns that were reported as lost");
    let begun = std::fs::read_to_string(&sessions).expect("read the sessions");
    assert_eq!(begun.lines().count(), 1, "it is one conversation");
}

fn kill_all(world: &World, victim: &str) {
    for (pid, words) in world.processes() {
        if words.contains(victim)
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}
