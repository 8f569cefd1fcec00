//! Reading the kernel's variables, which leaves no trace.

use std::collections::BTreeMap;
use std::process::Stdio;

use serde_json::{Value, json};

use super::{nb, open, until};
use crate::world::World;

const SETUP: &str = r#"
import os, sys
n = 42
pi = 3.5
word = "hé\nllo"
big = list(range(10**6))
long = "x" * 10**7
huge = 10 ** 10_000
calls = []
class Boom:
    def __init__(self): self.depth = 3
    def __repr__(self): calls.append("repr"); raise RuntimeError("no")
    def __len__(self): calls.append("len"); raise RuntimeError("no")
    def __getattr__(self, name): calls.append(name); raise RuntimeError("no")
    @property
    def shape(self): calls.append("shape"); raise RuntimeError("no")
class Loud(dict):
    def items(self): calls.append("items"); raise RuntimeError("no")
boom = Boom()
booms = [boom, {"in": boom}]
loud = Loud(a=1)
own = []
own.append(own)
def gen():
    calls.append("gen"); yield 1
lazy = gen()
exec = globals = len = repr = print = None
_hidden = 1
"#;

fn world() -> World {
    let world = World::new();
    open(&world, "a.ipynb");
    world
}

fn variables(world: &World, words: &[&str]) -> BTreeMap<String, Value> {
    let words = ["vars", "--json"].iter().chain(words);
    let answer = nb(world, words).ended(0).json();
    let listed = answer["variables"].as_array().expect("a list");
    let named = listed.iter().map(|variable| {
        let name = variable["name"].as_str().expect("a name");
        (name.to_owned(), variable.clone())
    });
    named.collect()
}

#[test]
fn variables_are_shown_without_a_trace() {
    let world = world();
    nb(&world, ["vars"]).ended(0).with("no variables");
    nb(&world, ["run", SETUP]).ended(0);
    nb(&world, ["run", "n + 1"]).ended(0);
    let journal = || std::fs::read(world.project().join(".nb/journal.jsonl")).expect("a journal");
    let written = journal();

    let all = variables(&world, &[]);
    let names: Vec<_> = all.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "big", "boom", "booms", "calls", "exec", "globals", "huge", "lazy", "len", "long",
            "loud", "n", "own", "pi", "print", "repr", "word"
        ]
    );
    let field = |name: &str, key: &str| all[name][key].clone();
    assert_eq!(field("n", "value"), "42");
    assert_eq!(field("pi", "type"), "float");
    assert_eq!(field("word", "value"), "'hé\\nllo'");
    assert_eq!(
        (field("big", "len"), field("big", "type")),
        (json!(1_000_000), json!("list"))
    );
    assert!(field("big", "size").as_u64() > Some(7_000_000));
    assert!(
        field("big", "value")
            .as_str()
            .expect("text")
            .starts_with("[0, 1, 2, ")
    );
    assert_eq!(field("long", "len"), 10_000_000);
    assert!(field("long", "value").as_str().expect("text").len() < 100);
    assert_eq!(field("huge", "value"), "an integer of 33220 bits");
    assert_eq!(field("boom", "value"), "Boom(depth=3)");
    assert_eq!(field("booms", "value"), "[Boom(depth=3), {'in': <Boom>}]");
    assert_eq!(
        (field("loud", "value"), field("loud", "len")),
        (json!("{'a': 1}"), json!(1))
    );
    assert_eq!(field("own", "value"), "[[[…]]]");
    assert_eq!(field("lazy", "value"), "<generator gen>");

    let with_all = variables(&world, &["--all"]);
    for name in ["Boom", "gen", "os", "_hidden", "In"] {
        assert!(with_all.contains_key(name), "{name}");
    }
    nb(&world, ["vars", "a.ipynb", "long"])
        .ended(0)
        .with("len    10000000")
        .with("xxxx");
    nb(&world, ["vars", "WORD"]).ended(1).with("nb vars word");
    nb(&world, ["vars", "a", "b"]).ended(2);
    assert_eq!(journal(), written, "a look is no execution");
    // IPython increments the count before it runs code, so the third execution sees four.
    let trace = "(_, In[-2], get_ipython().execution_count, calls, \
                 sorted({'look', 'guard', 'preview', 'Text', 'g', 'b', 'nb'} & {*locals()}))";
    let output = nb(&world, ["run", trace]).ended(0);
    assert_eq!(output.stdout.trim(), "(43, 'n + 1', 4, [], [])");
}

#[test]
fn a_running_cell_is_looked_into_and_not_disturbed() {
    let world = world();
    let events = "get_ipython().events.register('post_execute', lambda: seen.append(1)); seen = []";
    nb(&world, ["run", events]).ended(0);
    let code = "import os\nseen.clear(); step = 7\n\
                get_ipython().payload_manager.write_payload(dict(source='set_next_input', text='x'))\n\
                open('in', 'w').close()\n\
                while not os.path.exists('go'): pass\n\
                print('seen', seen, len(get_ipython().payload_manager._payload), \
                get_ipython().kernel._allow_stdin)";
    let mut run = world.nb();
    let run = run.args(["run", code]).stdin(Stdio::null());
    let run = run.stdout(Stdio::piped()).spawn().expect("run nb");
    until("the code runs", || {
        world.project().join("in").exists().then_some(())
    });
    for _ in 0..2 {
        assert_eq!(variables(&world, &[])["step"]["value"], "7");
        assert_eq!(variables(&world, &["step"])["step"]["type"], "int");
    }
    std::fs::write(world.project().join("go"), "").expect("let it go on");
    let out = run.wait_with_output().expect("it ends").stdout;
    // The cell may still ask questions, as its request allowed.
    assert_eq!(String::from_utf8_lossy(&out), "seen [] 1 True\n");
    let threads =
        "import threading; sum('subshell' in t.name.lower() for t in threading.enumerate())";
    nb(&world, ["run", threads]).ended(0).with("0");
    assert_eq!(variables(&world, &[])["step"]["value"], "7");
}

#[test]
fn a_busy_kernel_without_subshells_says_whose_cell_it_is() {
    let world = world();
    // With a state file that records a kernel without subshells.
    let state = world.project().join(".nb/state.json");
    let text = std::fs::read_to_string(&state).expect("read the state");
    assert!(text.contains("kernel subshells"), "{text}");
    let text = text.replace("kernel subshells", "none");
    std::fs::write(&state, text).expect("write the state");
    let cell = "import os, time\nopen('in', 'w').close()\nwhile not os.path.exists('go'): time.sleep(0.01)";
    nb(&world, ["insert", "a.ipynb", "-s", cell]).ended(0);
    let exec = nb(
        &world,
        ["--as", "ada", "exec", "a.ipynb", "0", "-d", "--json"],
    )
    .ended(0);
    until("the cell runs", || {
        world.project().join("in").exists().then_some(())
    });
    let output = nb(&world, ["vars"])
        .ended(4)
        .with("busy: ada's cell ")
        .with(" for 0:0");
    assert_eq!(output.stdout, "");
    std::fs::write(world.project().join("go"), "").expect("let it go on");
    let exec = exec.json();
    nb(&world, ["wait", exec["job"].as_str().expect("a job")]).ended(0);
    nb(&world, ["vars"]).ended(0);
}

#[test]
fn another_language_is_told_what_there_is_instead() {
    let world = world();
    let path = world.project().join(".nb/state.json");
    let text = std::fs::read(&path).expect("read the state");
    let mut state: Value = serde_json::from_slice(&text).expect("JSON");
    let language = &mut state["sessions"]["a.ipynb"]["kernel_info"]["language_info"]["name"];
    assert_eq!(*language, "python");
    *language = json!("R");
    std::fs::write(&path, state.to_string()).expect("write the state");
    nb(&world, ["vars"])
        .ended(1)
        .with("this one runs R")
        .with("nb run 'ls.str()'");
}
