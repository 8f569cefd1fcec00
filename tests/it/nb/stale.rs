//! Which cells are out of date, and the runs that bring them up to date, on real kernels.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use super::exec::{GATE, begin, cell, notebook, text, wait_for_state};
use super::{Output, nb, output_of, until};
use crate::python;
use crate::world::{World, succeed};

/// How long a line of a watch is awaited.
const LONG: Duration = Duration::from_secs(60);

/// Cells that depend on the first one, but for the last.
const CELLS: [&str; 5] = [
    "base = 3",
    "def area(r):\n    return r + base",
    "a = area(2)",
    "print('a is', a)",
    "other = 1",
];

/// Returns the stale cells, with the reasons: `2 needs_stale`.
fn stale(world: &World) -> Vec<String> {
    let cells = nb(world, ["cells", "a.ipynb", "--stale", "--json"])
        .ended(0)
        .json();
    let cells = cells["cells"].as_array().expect("a list").iter();
    cells
        .map(|cell| {
            format!(
                "{} {}",
                cell["index"],
                cell["stale"]["why"].as_str().unwrap()
            )
        })
        .collect()
}

fn plan(world: &World, words: &[&str]) -> Vec<u64> {
    let words = ["exec", "a.ipynb", "--plan", "--json"].iter().chain(words);
    let plan = nb(world, words).ended(0).json();
    let cells = plan["plan"].as_array().expect("a list").iter();
    cells
        .map(|cell| cell["index"].as_u64().expect("an index"))
        .collect()
}

fn edit(world: &World, cell: &str, source: &str) -> Output {
    nb(world, ["edit", "a.ipynb", cell, "-s", source, "--force"]).ended(0)
}

#[test]
fn cells_with_an_error_are_listed() {
    let world = notebook(&["x = 1", "1 / 0", "y = 1"]);
    nb(&world, ["exec", "a.ipynb", "0", "1"]).ended(3);
    let failed = nb(&world, ["cells", "a.ipynb", "--failed", "--json"]);
    let failed = failed.ended(0).json();
    let cells = failed["cells"].as_array().expect("a list").iter();
    assert_eq!(cells.map(|cell| &cell["index"]).collect::<Vec<_>>(), [1]);
}

#[test]
fn an_edit_makes_what_depends_on_it_stale_and_only_that_runs_again() {
    let world = notebook(&CELLS);
    assert_eq!(stale(&world).len(), 5);
    // A kernel that has run nothing makes no outputs out of date.
    let list = nb(&world, ["cells", "a.ipynb"]).ended(0);
    assert!(!list.stdout.contains("stale"), "{list:?}");
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    assert!(stale(&world).is_empty());
    nb(&world, ["exec", "a.ipynb", "--stale"])
        .ended(0)
        .with("there is nothing to run");
    edit(&world, "0", "base = 4");
    assert_eq!(
        stale(&world),
        ["0 edited", "2 needs_stale", "3 needs_stale"]
    );
    nb(&world, ["cells", "a.ipynb"])
        .ended(0)
        .with("stale  (edited since it ran) base = 4");
    nb(&world, ["cell", "a.ipynb", "2"])
        .ended(0)
        .with("which defines base, is stale");
    assert_eq!(plan(&world, &["--stale"]), [0, 2, 3]);
    assert_eq!(plan(&world, &["3", "--with-upstream"]), [0, 2, 3]);
    assert_eq!(plan(&world, &["2", "--with-downstream"]), [2, 3]);
    assert_eq!(plan(&world, &["--stale", "0", "4"]), [0]);
    assert_eq!(text(&world, 3), "a is 5\n");
    nb(&world, ["exec", "a.ipynb", "--stale"])
        .ended(0)
        .with("a is 6");
    assert_eq!(text(&world, 3), "a is 6\n");
    assert_eq!(cell(&world, 1)["execution_count"], 2);
    assert!(stale(&world).is_empty());
    // A single cell is run; what reads from it ran before, and is up to date if the value is the same.
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    assert!(stale(&world).is_empty());
    edit(&world, "0", "base = 5");
    nb(&world, ["exec", "a.ipynb", "0"]).ended(0);
    assert_eq!(stale(&world), ["2 ran_after", "3 needs_stale"]);
    nb(&world, ["exec", "a.ipynb", "--stale", "--plan"])
        .ended(0)
        .with("ran after it: base");
    nb(&world, ["restart", "a.ipynb"]).ended(0);
    assert_eq!(stale(&world).len(), 5);
}

/// Runs code as a client on the kernel's own sockets does.
pub(super) fn run_on_the_kernels_sockets(world: &World, code: &str) {
    let state = std::fs::read(world.project().join(".nb/state.json")).expect("read the state");
    let state: Value = serde_json::from_slice(&state).expect("JSON");
    let file = state["connection_file"].as_str().expect("a path");
    let script = "import sys\nfrom jupyter_client import BlockingKernelClient\n\
        client = BlockingKernelClient(connection_file=sys.argv[1])\nclient.load_connection_file()\n\
        client.start_channels()\nclient.execute_interactive(sys.argv[2])\n";
    succeed(Command::new(python::interpreter()).args(["-c", script, file, code]));
}

#[test]
fn code_outside_the_notebook_and_runs_that_nobody_saw_count() {
    let world = notebook(&CELLS);
    // The text alone decides.
    let config = world.project().join(".nb/config.toml");
    std::fs::write(config, "reactive = false").expect("write the settings");
    nb(&world, ["restart", "a.ipynb"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["run", "base = 100"]).ended(0);
    // No cell is stale, but the name has another value than after Restart & Run All.
    assert!(stale(&world).is_empty());
    assert_eq!(plan(&world, &["--stale"]), [0, 2, 3]);
    nb(&world, ["exec", "a.ipynb", "2"]).ended(0);
    assert_eq!(plan(&world, &["--stale"]), [0, 2, 3]);
    nb(&world, ["exec", "a.ipynb", "--stale"])
        .ended(0)
        .with("a is 5");
    assert!(plan(&world, &["--stale"]).is_empty());
    run_on_the_kernels_sockets(&world, "base = 7");
    nb(&world, ["exec", "a.ipynb", "--stale", "4"]).ended(0);
    let doubts = || {
        nb(&world, ["exec", "a.ipynb", "--stale", "--json"])
            .ended(0)
            .json()
    };
    assert_eq!(doubts()["any_name_is_doubtful"], false);
    nb(&world, ["exec", "a.ipynb", "4"]).ended(0);
    assert_eq!(doubts()["any_name_is_doubtful"], true);
    nb(&world, ["exec", "a.ipynb", "--stale"])
        .ended(0)
        .with("any value may be another than after Restart & Run All");
}

#[test]
fn an_edit_ends_a_plan_and_names_the_cell() {
    let world = notebook(&[GATE, "x = 1", "y = x"]);
    let id = begin(&world, &["--stale"]);
    wait_for_state(&world, &id, "running");
    edit(&world, "1", "x = 2");
    let edited = cell(&world, 1)["id"].as_str().expect("an id").to_owned();
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    let output = nb(&world, ["wait", &id]).ended(5);
    output.with(&format!(
        "cell {edited} was edited since these cells were planned"
    ));
    assert_eq!(stale(&world), ["1 not_run", "2 not_run"]);
    // Markdown is not code.
    std::fs::remove_file(world.project().join("go")).expect("close the gate");
    nb(
        &world,
        ["insert", "a.ipynb", "--type", "markdown", "-s", "# Title"],
    )
    .ended(0);
    let id = begin(&world, &["0", "1", "2", "--with-downstream"]);
    wait_for_state(&world, &id, "running");
    edit(&world, "3", "# Another title");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    nb(&world, ["wait", &id]).ended(0);
    assert!(stale(&world).is_empty());
}

#[test]
fn a_plan_follows_an_edit_if_it_is_told_to() {
    let world = notebook(&[GATE, "x = 1", "print('x is', x)"]);
    let mut exec = world.nb();
    exec.args(["exec", "a.ipynb", "--stale", "--follow", "--json"]);
    let exec = exec.stdout(Stdio::piped()).spawn().expect("start nb");
    let running = || {
        let status = nb(&world, ["status", "a.ipynb", "--json"]).ended(0).json();
        (!status["sessions"][0]["running"].is_null()).then_some(())
    };
    until("the first cell runs", running);
    edit(&world, "1", "x = 2");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    let ended = exec.wait_with_output().expect("nb ends");
    let answer: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!(
        answer["earlier"].as_array().map(Vec::len),
        Some(1),
        "{answer}"
    );
    assert_eq!(answer["earlier"][0]["cells"][1]["status"], "edited");
    assert_eq!(text(&world, 2), "x is 2\n");
    assert!(stale(&world).is_empty());
}

#[test]
fn a_graph_has_names_and_advice_and_other_languages_are_unknown() {
    let world = notebook(&["y = x", "x = y", "x = 3", "print(x)", "def broken("]);
    let graph = nb(&world, ["graph", "a.ipynb", "--json"]).ended(0).json();
    let cells = &graph["cells"];
    assert_eq!(cells[3]["reads"][0]["name"], "x");
    assert_eq!(cells[3]["reads"][0]["from"], json!([cells[2]["id"]]));
    assert_eq!(cells[0]["undefined"], json!([{"name": "x", "line": 1}]));
    assert_eq!(cells[4]["problem"]["line"], 1);
    let output = nb(&world, ["graph", "a.ipynb"]).ended(0);
    let output = output
        .with("depend on each other")
        .with("x gets its value in");
    output.with("line 1: not understood");
    for (format, part) in [("json", "\"advice\":["), ("mermaid", "flowchart TD")] {
        let output = nb(&world, ["graph", "a.ipynb", "--format", format]).ended(0);
        output.with(part);
    }
    let mut notebook: Value =
        serde_json::from_slice(&std::fs::read(super::exec::file(&world)).unwrap()).unwrap();
    notebook["metadata"]["language_info"] = json!({"name": "R"});
    std::fs::write(world.project().join("r.ipynb"), notebook.to_string()).expect("write it");
    nb(&world, ["graph", "r.ipynb"])
        .ended(0)
        .with("code in another language may read or write any name");
    nb(&world, ["graph", "r.ipynb", "3", "--assume-order"])
        .ended(0)
        .with("reads the cells above (");
}

/// A running `nb watch --run-stale`.
pub(super) struct StaleWatch {
    process: Child,
    lines: Receiver<String>,
}

impl StaleWatch {
    pub(super) fn start(world: &World, notebook: &str) -> Self {
        let mut watch = world.nb();
        watch.args([
            "watch",
            notebook,
            "--run-stale",
            "--json",
            "--as",
            "watcher",
        ]);
        let mut process = watch
            .stdout(Stdio::piped())
            .spawn()
            .expect("start nb watch");
        let stdout = process.stdout.take().expect("it has a stdout");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(stdout).lines().map_while(Result::ok);
            lines.for_each(|line| drop(sender.send(line)));
        });
        Self { process, lines }
    }

    /// Returns the next line of its output, which is JSON.
    pub(super) fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(LONG).expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    /// Returns the next run.
    pub(super) fn next_run(&mut self) -> Value {
        loop {
            let line = self.next();
            if line["cells"].is_array() {
                return line;
            }
        }
    }

    /// Returns the next reason for which something is not run.
    pub(super) fn next_wait(&mut self) -> String {
        loop {
            if let Some(why) = self.next()["waits_for"].as_str() {
                return why.to_owned();
            }
        }
    }
}

impl Drop for StaleWatch {
    fn drop(&mut self) {
        self.process.kill().expect("end the watch");
        self.process.wait().expect("it ends");
    }
}

#[test]
fn a_watch_runs_what_an_edit_concerns_and_nothing_else() {
    let world = notebook(&CELLS);
    let never = "print('never', base)";
    let manual = "tags=[\"manual\"]";
    nb(&world, ["insert", "a.ipynb", "-s", never, "--meta", manual]).ended(0);
    nb(&world, ["exec", "a.ipynb", "0", "1", "2", "3"]).ended(0);
    let mut watch = StaleWatch::start(&world, "a.ipynb");
    // What is stale already is not run.
    let first = watch.next();
    assert_eq!(first["stale"].as_array().map(Vec::len), Some(2), "{first}");
    assert_eq!(first["to_run"], json!([]));
    edit(&world, "0", "base = 5");
    let ids = [0, 2, 3].map(|at| cell(&world, at)["id"].clone());
    let became = watch.next();
    assert_eq!(became["to_run"], json!(ids), "{became}");
    let why = became["waits_for"].as_str().expect("a reason");
    assert!(why.contains("is tagged manual"), "{became}");
    let ran = watch.next();
    assert_eq!(ran["cells"].as_array().map(Vec::len), Some(3), "{ran}");
    assert_eq!(text(&world, 3), "a is 7\n");
    assert_eq!(watch.next()["to_run"], json!([]));
    // A cell that fails is not run again until something changes.
    edit(&world, "1", "def area(r):\n    return r + missing");
    let failed = watch.next_run();
    assert_eq!(failed["cells"][1]["status"], "error", "{failed}");
    edit(&world, "1", "def area(r):\n    return r");
    let ran = watch.next_run();
    assert_eq!(ran["cells"].as_array().map(Vec::len), Some(3), "{ran}");
    assert_eq!(text(&world, 3), "a is 2\n");
    drop(watch);
    let log = nb(&world, ["log", "a.ipynb", "--json"]).ended(0);
    assert!(!log.stdout.contains("'never'"), "{log:?}");
}

#[test]
fn a_watch_waits_for_others() {
    let world = notebook(&[GATE, "x = 1", "print('x is', x)"]);
    nb(&world, ["exec", "a.ipynb", "1", "2"]).ended(0);
    let id = begin(&world, &["0", "--as", "bob"]);
    wait_for_state(&world, &id, "running");
    let mut watch = StaleWatch::start(&world, "a.ipynb");
    watch.next();
    edit(&world, "1", "x = 2");
    assert_eq!(watch.next_wait(), "a cell of bob runs");
    assert_eq!(text(&world, 2), "x is 1\n");
    std::fs::write(world.project().join("go"), "").expect("open the gate");
    watch.next_run();
    assert_eq!(text(&world, 2), "x is 2\n");
    // Without a kernel nothing runs.
    nb(&world, ["shutdown", "a.ipynb", "--force"]).ended(0);
    edit(&world, "1", "x = 3");
    assert_eq!(watch.next_wait(), "the notebook has no running kernel");
    drop(watch);
    output_of(world.nb().args(["watch", "a.ipynb", "--only", "x"])).ended(2);
}

#[test]
fn a_cell_runs_with_the_cells_that_import_after_a_restart() {
    let world = notebook(&["import math", "k = 4", "print(math.sqrt(k))"]);
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["restart", "a.ipynb"]).ended(0);
    assert_eq!(plan(&world, &["2", "--with-upstream"]), [0, 1, 2]);
    nb(&world, ["exec", "a.ipynb", "2", "--with-upstream"]).ended(0);
    assert_eq!(text(&world, 2), "2.0\n");
    edit(&world, "0", "import cmath as math");
    assert_eq!(plan(&world, &["0", "--with-downstream"]), [0, 2]);
    nb(&world, ["exec", "a.ipynb", "0", "--with-downstream"]).ended(0);
    assert_eq!(text(&world, 2), "(2+0j)\n");
}

#[test]
fn functions_that_call_others_often_are_analysed_at_once() {
    let chain = (1..33).map(|at| format!("def f{at}(x): return f{0}(x) + f{0}(x + 1)", at - 1));
    let cells = ["k = 0".to_owned(), "def f0(x): return x + k".to_owned()]
        .into_iter()
        .chain(chain);
    let cells: Vec<_> = cells.chain(["v = f1(1)".to_owned()]).collect();
    let cells: Vec<_> = cells.iter().map(String::as_str).collect();
    let world = notebook(&cells);
    let began = std::time::Instant::now();
    let graph = nb(&world, ["graph", "a.ipynb", "--json"]).ended(0).json();
    assert_eq!(
        graph["cells"][34]["reads"][2]["name"], "k",
        "{}",
        graph["cells"][34]
    );
    nb(&world, ["exec", "a.ipynb", "--all"]).ended(0);
    nb(&world, ["cells", "a.ipynb"]).ended(0);
    nb(&world, ["exec", "a.ipynb", "--stale"]).ended(0);
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}
