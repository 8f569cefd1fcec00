//! Results for programs: what `nb run --json` and `nb exec --json` say of what code printed, showed and raised,
//! and when it ran.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::exec::notebook;
use super::{Output, nb, open};
use crate::python;
use crate::world::World;

fn world() -> World {
    let world = World::new();
    open(&world, "a.ipynb");
    world
}

fn run(world: &World, code: &str) -> Output {
    nb(world, ["run", "--json", "--limit", "0", code])
}

/// Checks the fields of code that an error ended.
fn is_error(result: &Value, ename: &str, category: &str) {
    assert_eq!(result["error"]["ename"], ename, "{result:#}");
    assert_eq!(result["category"], category, "{result:#}");
    let traceback = result["error"]["traceback"].as_array().expect("lines");
    let text: Vec<_> = traceback.iter().filter_map(Value::as_str).collect();
    assert!(text.join("\n").contains(ename), "{result:#}");
    assert!(!text.join("\n").contains('\u{1b}'), "{result:#}");
}

#[test]
fn an_error_has_its_name_and_its_category() {
    let world = world();
    let mine = "class Mine(FileNotFoundError): pass\n";
    for (code, ename, category) in [
        ("x = = 1", "SyntaxError", "syntax"),
        ("  x = 1\n y = 2", "IndentationError", "syntax"),
        ("import no_such_module", "ModuleNotFoundError", "import"),
        ("from os import no_such_name", "ImportError", "import"),
        ("raise MemoryError('no more')", "MemoryError", "memory"),
        ("open('no/such/file')", "FileNotFoundError", "io"),
        (
            "import socket; socket.create_connection(('127.0.0.1', 1))",
            "ConnectionRefusedError",
            "io",
        ),
        (
            "import asyncio; await asyncio.wait_for(asyncio.sleep(9), 0.01)",
            "TimeoutError",
            "timeout",
        ),
        (
            "import subprocess; subprocess.run(['sleep', '9'], timeout=0.01)",
            "TimeoutExpired",
            "timeout",
        ),
        ("1 / 0", "ZeroDivisionError", "runtime"),
        // A kernel sends the class's name alone; the text of a system's error has its number.
        (&format!("{mine}raise Mine('mine')"), "Mine", "runtime"),
        (
            &format!("{mine}raise Mine(2, 'No such file')"),
            "Mine",
            "io",
        ),
    ] {
        let result = run(&world, code).ended(3).json();
        assert_eq!(result["status"], "error", "{result:#}");
        is_error(&result, ename, category);
    }
    // IPython says this on stderr, and sends no error.
    let result = run(&world, "%no_such_magic").ended(3).json();
    assert_eq!(
        (&result["category"], &result["error"]),
        (&json!("syntax"), &Value::Null)
    );
    let stderr = result["stderr"].as_str().expect("a text");
    assert!(stderr.contains("UsageError"), "{result:#}");
    // A question beside a running cell has the same fields.
    let words = [
        "run",
        "--peek",
        "--json",
        "print('a'); open('no/such/file')",
    ];
    let result = nb(&world, words).ended(3).json();
    is_error(&result, "FileNotFoundError", "io");
    assert_eq!(result["stdout"], "a\n");
    let listed = nb(&world, ["jobs", "--json"]).ended(0).json();
    let last = listed["jobs"].as_array().and_then(|jobs| jobs.last());
    let last = last.expect("a job");
    assert_eq!(last["cells"][0]["category"], "syntax", "{last:#}");
}

#[test]
fn outputs_stand_in_the_field_of_their_kind() {
    let world = world();
    let png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGNgYGD4DwABBAEAfbLI3wAAAABJRU5ErkJggg==";
    let code = format!(
        "import base64, sys\nfrom IPython.display import Image, display\n\
        for i in range(3):\n    print('out', i, flush=True)\n    print('err', i, file=sys.stderr, flush=True)\n\
        display(Image(base64.b64decode('{png}')))\n6 * 7"
    );
    let result = run(&world, &code).ended(0).json();
    assert_eq!(result["stdout"], "out 0\nout 1\nout 2\n", "{result:#}");
    assert_eq!(result["stderr"], "err 0\nerr 1\nerr 2\n", "{result:#}");
    let [image, value] = result["display_data"]
        .as_array()
        .expect("displays")
        .as_slice()
    else {
        panic!("{result:#}");
    };
    assert_eq!(image["output_type"], "display_data");
    assert_eq!(
        image["data"]["image/png"].as_str().expect("base64").trim(),
        png
    );
    assert_eq!(value["output_type"], "execute_result");
    assert_eq!(value["data"]["text/plain"], "42");
    assert_eq!(value["execution_count"], result["execution_count"]);
    assert_eq!(
        (&result["status"], &result["error"]),
        (&json!("ok"), &Value::Null)
    );
    assert_eq!(result["category"], Value::Null);
    for key in ["outputs", "took_ms", "text"] {
        assert!(result.get(key).is_none(), "{key} in {result:#}");
    }

    let result = run(&world, "x = 1").ended(0).json();
    let fields = ["stdout", "stderr", "display_data", "error", "category"];
    let fields = fields.map(|name| result[name].clone());
    assert_eq!(
        fields,
        [json!(""), json!(""), json!([]), Value::Null, Value::Null]
    );
    let timing = &result["timing"];
    let at = |name: &str| -> Timestamp {
        let text = timing[name].as_str().expect("a time");
        text.parse().expect("a time")
    };
    let passed = at("completed").duration_since(at("started")).as_millis();
    assert_eq!(
        timing["duration_ms"].as_i64().map(i128::from),
        Some(passed),
        "{timing}"
    );

    // An error that code only shows does not end it.
    let shows = "try: 1 / 0\nexcept ZeroDivisionError: get_ipython().showtraceback()\nprint('on')";
    let result = run(&world, shows).ended(0).json();
    assert_eq!(
        (&result["stdout"], &result["error"]),
        (&json!("on\n"), &Value::Null)
    );
    assert_eq!(
        result["display_data"][0]["ename"], "ZeroDivisionError",
        "{result:#}"
    );
}

#[test]
fn each_cell_has_its_own_result() {
    let world = notebook(&["print('a')", "open('no/such/file')", "print('never')"]);
    let words = ["exec", "a.ipynb", "--all", "--json"];
    let answer = nb(&world, words).ended(3).json();
    let cells = answer["cells"].as_array().expect("cells");
    let statuses: Vec<_> = cells.iter().map(|cell| cell["status"].clone()).collect();
    assert_eq!(statuses, ["ok", "error", "not_run"]);
    assert_eq!(
        (&cells[0]["stdout"], &cells[0]["category"]),
        (&json!("a\n"), &Value::Null)
    );
    is_error(&cells[1], "FileNotFoundError", "io");
    // As texts they do not compare: zeros at the end of a second's fraction are left out.
    let moment = |cell: usize, field: &str| -> jiff::Timestamp {
        let moment = cells[cell]["timing"][field].as_str().expect("a time");
        moment.parse().expect("RFC 3339")
    };
    assert!(moment(0, "completed") <= moment(1, "started"));
    assert_eq!(
        (&cells[2]["timing"], &cells[2]["error"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(cells[2]["category"], Value::Null);
    let output = nb(&world, ["exec", "a.ipynb", "1", "--events"]).ended(3);
    let event = output
        .stdout
        .lines()
        .find(|line| line.contains(r#""event":"cell""#));
    let event: Value = serde_json::from_str(event.expect("the cell's end")).expect("JSON");
    assert_eq!(event["category"], "io", "{event:#}");
    assert!(event["timing"]["duration_ms"].is_number(), "{event:#}");
}

#[test]
fn a_time_limit_is_a_timeout_and_an_interrupt_is_none() {
    let world = world();
    let endless = "while True: pass";
    let words = ["run", "--json", "--max-time", "0.5", endless];
    let result = nb(&world, words).ended(130).json();
    assert_eq!(result["status"], "interrupted", "{result:#}");
    is_error(&result, "KeyboardInterrupt", "timeout");
    let took = result["timing"]["duration_ms"].as_u64();
    assert!(took.is_some_and(|took| took >= 500), "{result:#}");
    // The limit of an earlier cell says nothing about a later one.
    let result = run(&world, "1 / 0").ended(3).json();
    is_error(&result, "ZeroDivisionError", "runtime");

    let begun = nb(
        &world,
        [
            "run",
            "-d",
            "--json",
            "print('runs', flush=True)\nwhile True: pass",
        ],
    );
    let job = begun.ended(0).json()["job"]
        .as_str()
        .expect("a job")
        .to_owned();
    let running = nb(&world, ["wait", &job, "--json", "--until", "runs"])
        .ended(0)
        .json();
    assert!(running["timing"]["started"].is_string(), "{running:#}");
    assert_eq!(running["timing"]["duration_ms"], Value::Null, "{running:#}");
    nb(&world, ["interrupt", &job]).ended(0);
    let result = nb(&world, ["wait", &job, "--json"]).ended(130).json();
    assert_eq!(result["status"], "interrupted", "{result:#}");
    is_error(&result, "KeyboardInterrupt", "runtime");

    // Whoever interrupts: the kernel's answer is the same.
    let result = run(&world, "raise KeyboardInterrupt").ended(130).json();
    assert_eq!(result["status"], "interrupted", "{result:#}");
    is_error(&result, "KeyboardInterrupt", "runtime");
}

#[test]
fn code_that_asks_is_no_error() {
    let world = world();
    let code = "print('first')\nname = input('name? ')\nprint('hello', name)";
    let asked = run(&world, code).ended(7).json();
    assert_eq!(
        (&asked["state"], &asked["stdout"]),
        (&json!("waiting_input"), &json!("first\n"))
    );
    assert_eq!(asked["prompt"]["prompt"], "name? ");
    let none = ["status", "category", "error"].map(|name| asked[name].clone());
    assert_eq!(none, [Value::Null, Value::Null, Value::Null]);
    let job = asked["job"].as_str().expect("a job");
    nb(&world, ["reply", job, "Ada"]).ended(0);
    let result = nb(&world, ["wait", job, "--all", "--json"]).ended(0).json();
    assert_eq!(result["status"], "ok");
    assert_eq!(result["stdout"], "first\nhello Ada\n", "{result:#}");
}

#[test]
fn the_death_of_a_kernel_has_its_cause_as_category() {
    let world = World::new();
    let python = python::interpreter().to_string_lossy();
    let words = ["open", "a.ipynb", "--memory", "1.5G", "--python", &python];
    let opens = || nb(&world, words).ended(0);
    opens();
    // Without a control group the limit is one of address space: the program hears of it.
    let result = run(&world, "x = bytearray(2_000_000_000)").json();
    let category = match result["status"].as_str() {
        Some("kernel_died") => "KernelDied",
        _ => "MemoryError",
    };
    is_error(&result, category, "memory");
    // A library in C++ ends the kernel when it gets no memory. What it says goes past ipykernel, which captures
    // the usual descriptor. It ends once what was printed has left the kernel.
    let aborts = "import ctypes, os, sys\nos.dup2(sys.stderr._original_stdstream_copy, 2)\n\
        new = ctypes.CDLL('libstdc++.so.6')._Znwm\nnew.argtypes = [ctypes.c_size_t]\n\
        print('before', flush=True)\n\
        import glob, time\n\
        def is_recorded(): return any('before\\\\n' in open(log).read() for log in glob.glob('.nb/jobs/*/events.jsonl'))\n\
        while not is_recorded(): time.sleep(0.01)\n\
        new(2_000_000_000)";
    let kills = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)";
    let crashes = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)";
    for (code, category) in [
        (aborts, "memory"),
        (kills, "unknown"),
        (crashes, "runtime"),
        ("import os; os._exit(3)", "runtime"),
    ] {
        opens();
        let result = run(&world, code).ended(6).json();
        assert_eq!(result["status"], "kernel_died", "{result:#}");
        is_error(&result, "KernelDied", category);
        if code == aborts {
            assert_eq!(result["stdout"], "before\n", "{result:#}");
            assert!(result["timing"]["completed"].is_string(), "{result:#}");
        }
    }
    let result = run(&world, "1").json();
    assert_eq!(result["error"]["kind"], "no-kernel", "{result:#}");
}

#[test]
fn the_source_that_load_offers_is_not_dropped_without_a_word() {
    let world = world();
    std::fs::write(world.project().join("part.py"), "x = 'loaded'").expect("write it");
    nb(&world, ["run", "%load part.py"])
        .ended(0)
        .with("the code offers a source for a cell (2 lines, \"# %load part.py");
}
