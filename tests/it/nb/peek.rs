//! Code beside a running cell, which leaves no trace.

use std::process::Stdio;
use std::time::Duration;

use nb::client::{Client, Execute, ExecutionEvent};
use nb::kernel::process::connection;
use nb::wire::Channel;
use rustix::process::{Pid, Signal, kill_process};

use super::{Output, nb, open, path, until};
use crate::client::run as block_on;
use crate::world::World;

fn peek(world: &World, code: &str) -> Output {
    nb(world, ["run", "--peek", code])
}

#[test]
fn a_running_cell_is_not_disturbed() {
    let world = World::new();
    let opened = open(&world, "a.ipynb");
    let events = "seen = []\n\
        get_ipython().events.register('post_execute', lambda: seen.append(1))";
    nb(&world, ["run", events]).ended(0);
    let code = "import os\nseen.clear(); step = 7\n\
        get_ipython().payload_manager.write_payload(dict(source='set_next_input', text='x'))\n\
        open('in', 'w').close()\n\
        while not os.path.exists('go'): pass\n\
        print(seen, len(get_ipython().payload_manager._payload), get_ipython().kernel._allow_stdin)";
    let mut request = Execute::new(code);
    // As in nbclient's requests.
    request.allow_stdin = false;
    let info = connection::read(&path(&opened["connection_file"])).expect("a connection file");
    let cell = std::thread::spawn(move || {
        block_on(async move {
            let mut client = Client::connect(&info, "tests").await.expect("it is up");
            let mut printed = String::new();
            let done = client.execute(&request, |event| {
                if let ExecutionEvent::Iopub(message) = event {
                    printed.push_str(&String::from_utf8_lossy(&message.content));
                }
                None
            });
            done.await.expect("it is there");
            printed
        })
    });
    until("the cell runs", || {
        world.project().join("in").exists().then_some(())
    });
    let output = peek(&world, "print('from here')\nstep += 1\nstep, seen").ended(0);
    assert_eq!(output.stdout, "from here\n(8, [])\n");
    let raised = peek(&world, "def f(): return 1 / 0\nf()").ended(3);
    let lines: Vec<_> = raised.stderr.lines().collect();
    assert_eq!(lines[0], "Traceback (most recent call last):");
    assert!(
        lines[1].contains("<nb run --peek>"),
        "nothing of the look's own: {raised:?}"
    );
    peek(&world, "print(").ended(3).with("SyntaxError");
    peek(&world, "input('? ')")
        .ended(3)
        .with("StdinNotImplementedError");
    peek(
        &world,
        "from IPython.display import HTML, display; display('shown'); HTML('<b>')",
    )
    .ended(0)
    .with("'shown'\n<IPython.core.display.HTML object>\n");
    let answer = nb(&world, ["run", "--peek", "--json", "step"])
        .ended(0)
        .json();
    assert_eq!(answer["display_data"][0]["data"]["text/plain"], "8");
    assert_eq!(
        (&answer["beside"], &answer["status"]),
        (&true.into(), &"ok".into())
    );
    nb(
        &world,
        [
            "run",
            "--peek",
            "--timeout",
            "0.5",
            "import time; time.sleep(3)",
        ],
    )
    .ended(4)
    .with("goes on beside the cell");
    std::fs::write(world.project().join("go"), "").expect("let it go on");
    let printed = cell.join().expect("it does not panic");
    assert!(printed.contains(r#""[] 1 False\n""#), "{printed}");
}

#[test]
fn an_idle_kernel_just_runs_it() {
    let world = World::new();
    open(&world, "a.ipynb");
    nb(&world, ["run", "x = 1\n'mine'"]).ended(0);
    let trace = "(_, get_ipython().execution_count, In[-1])";
    assert_eq!(peek(&world, "x += 1; x").ended(0).stdout, "2\n");
    peek(&world, "!echo from a shell")
        .ended(0)
        .with("from a shell");
    peek(&world, "x = None; x").ended(0);
    peek(&world, "input()").ended(3).with("EOFError");
    let output = nb(&world, ["run", trace]).ended(0);
    assert_eq!(output.stdout, format!("('mine', 3, '{trace}')\n"));
    nb(&world, ["run", "--peek", "-d", "1"]).ended(2);
}

#[test]
fn a_kernel_without_subshells_says_whose_cell_it_runs() {
    let world = World::new();
    open(&world, "a.ipynb");
    let state = world.project().join(".nb/state.json");
    let text = std::fs::read_to_string(&state).expect("read the state");
    let text = text.replace("kernel subshells", "none");
    std::fs::write(&state, text).expect("write the state");
    let code = "open('in', 'w').close()\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)";
    nb(&world, ["run", "-d", "--as", "ada", code]).ended(0);
    until("the code runs", || {
        world.project().join("in").exists().then_some(())
    });
    peek(&world, "1")
        .ended(4)
        .with("busy: ada's code ")
        .with(" for 0:0");
    std::fs::write(world.project().join("go"), "").expect("let it go on");
    nb(&world, ["wait"]).ended(0);
    peek(&world, "1").ended(0).with("1");
}

/// Returns the subshells of a kernel.
fn subshells(opened: &serde_json::Value) -> serde_json::Value {
    let info = connection::read(&path(&opened["connection_file"])).expect("a connection file");
    block_on(async move {
        let mut client = Client::connect(&info, "tests").await.expect("it is up");
        let asked = serde_json::json!({});
        let answer = client.request(
            Channel::Control,
            "list_subshell_request",
            &asked,
            Duration::from_secs(10),
        );
        let answer = answer.await.expect("it answers");
        let content: serde_json::Value =
            serde_json::from_slice(answer.content()).expect("it is JSON");
        content["subshell_id"].clone()
    })
}

#[test]
fn a_look_that_is_interrupted_leaves_nothing_in_the_kernel() {
    let world = World::new();
    let opened = open(&world, "a.ipynb");
    // The code sleeps in its loop: two threads of a kernel that only compute hardly let a third one
    // interrupt them.
    let endless = "import time\nopen('looks', 'w').close()\nwhile True: time.sleep(0.01)";
    let interrupted = || {
        let mut command = world.nb();
        command.args(["run", "--peek", "--timeout", "0", endless]);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null());
        let look = command.stderr(Stdio::piped()).spawn().expect("run nb");
        let looks = world.project().join("looks");
        until("the look", || looks.exists().then_some(()));
        std::fs::remove_file(looks).expect("it is there");
        let pid = i32::try_from(look.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.expect("a pid"), Signal::INT).expect("interrupt it");
        let output = look.wait_with_output().expect("it ends");
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(stderr.contains("interrupted"), "{stderr}");
    };
    // On an idle kernel, and beside a running cell.
    interrupted();
    nb(&world, ["run", "6 * 7"]).ended(0).with("42");
    let code = "open('in', 'w').close()\nimport os, time\nwhile not os.path.exists('go'): time.sleep(0.01)";
    nb(&world, ["run", "-d", code]).ended(0);
    until("the code runs", || {
        world.project().join("in").exists().then_some(())
    });
    interrupted();
    assert_eq!(subshells(&opened), serde_json::json!([]));
    peek(&world, "6 * 7").ended(0).with("42");
    std::fs::write(world.project().join("go"), "").expect("let it go on");
    nb(&world, ["wait"]).ended(0);
}
