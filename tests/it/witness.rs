//! What the kernel says of each execution, and the runs that follow from it, beside the truth: Restart & Run All.
//!
//! Random notebooks get random edits and runs on a real ipykernel, which says what each run did. The planned cells run
//! one by one. Then each variable and each file is as after Restart & Run All, or was named. `NB_WITNESS=10000 cargo test
//! --test it witness` runs that many, from the seed `NB_GRAPH_SEED` on.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use nb::kernel::witness::WITNESS;
use nb::witness::{ExecutionFacts, Uncertainty, WitnessStep, WitnessedKernel};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::python;
use crate::random_notebooks::{Kinds, Notebook, Random, notebook};

/// How many notebooks are run by default.
const NOTEBOOKS: u64 = 200;

#[derive(Debug, Deserialize)]
struct Answer {
    runs: Vec<Ran>,
    values: Option<BTreeMap<String, Value>>,
    truth: Option<Played>,
}

#[derive(Debug, Deserialize)]
struct Ran {
    ended: bool,
    facts: Option<Value>,
    output: String,
}

#[derive(Debug, Deserialize)]
struct Played {
    ended: Vec<bool>,
    values: BTreeMap<String, Value>,
}

/// Returns a file with the text of the witness.
fn witness() -> PathBuf {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let file = || {
        let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("witness-{}.py", std::process::id()));
        std::fs::write(&file, WITNESS).expect("write the witness");
        file
    };
    FILE.get_or_init(file).clone()
}

/// A kernel with the witness.
struct Kernel {
    script: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Kernel {
    /// Starts a kernel whose witness does not see these things.
    fn without(off: &[&str]) -> Self {
        Self::start(python::interpreter(), off)
    }

    fn start(interpreter: &Path, off: &[&str]) -> Self {
        let mut script = Command::new(interpreter)
            .arg(python::script("witness.py"))
            .arg(witness())
            .args(off)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the script");
        let input = script.stdin.take().expect("its input");
        let output = BufReader::new(script.stdout.take().expect("its output"));
        Self {
            script,
            input,
            output,
        }
    }

    fn ask(&mut self, changes: &Value) -> Answer {
        let mut request =
            json!({"forget": false, "unbind": [], "run": [], "look": false, "play": null});
        let all = changes.as_object().expect("fields").iter();
        all.for_each(|(field, value)| request[field] = value.clone());
        writeln!(self.input, "{request}").expect("send a request");
        let mut answer = String::new();
        self.output.read_line(&mut answer).expect("read the answer");
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{error}: {answer}"))
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

/// What became of the notebooks.
#[derive(Debug, Default)]
struct Count {
    notebooks: usize,
    /// Restart & Run All failed.
    failed: usize,
    unsettled: usize,
    variables: usize,
    uncertain: usize,
    /// Variables that are left from code which is no longer there.
    left: usize,
    cells: usize,
    runs: usize,
    /// Runs without facts.
    unseen: usize,
    microseconds: u64,
    looks: u64,
}

/// Notes a run, and says whether it ended well.
fn note(
    state: &mut WitnessedKernel,
    cell: Option<&str>,
    text: &str,
    ran: &Ran,
    count: &mut Count,
) -> bool {
    let facts = ran.facts.clone();
    if let Some(cost) = facts.as_ref().and_then(|facts| facts["cost"].as_u64()) {
        count.microseconds += cost;
        count.looks += 1;
    }
    let facts = facts.and_then(|facts| serde_json::from_value::<ExecutionFacts>(facts).ok());
    let facts = facts.filter(ExecutionFacts::is_bounded);
    count.unseen += usize::from(facts.is_none());
    state.ran(cell, text, facts.as_ref());
    ran.ended
}

/// How a notebook was brought up to date.
#[derive(Debug, Default)]
struct UpToDate {
    /// What is uncertain; none if it does not settle.
    uncertainty: Option<Uncertainty>,
    steps: Vec<WitnessStep>,
    /// The last output of each cell, by its id.
    outputs: BTreeMap<String, String>,
}

/// Brings a notebook up to date.
fn bring_up_to_date(kernel: &mut Kernel, notebook: &Notebook, count: &mut Count) -> UpToDate {
    let mut up_to_date = UpToDate::default();
    let mut state = WitnessedKernel::default();
    let texts: Vec<_> = notebook.runs.iter().map(|(_, text)| text).collect();
    let answer = kernel.ask(&json!({"forget": true, "run": texts}));
    for ((cell, text), ran) in notebook.runs.iter().zip(&answer.runs) {
        note(&mut state, cell.as_deref(), text, ran, count);
        let output = cell.iter().map(|cell| (cell.clone(), ran.output.clone()));
        up_to_date.outputs.extend(output);
    }
    let cells = notebook.cells.iter();
    let cells: Vec<_> = cells
        .map(|(id, text)| (id.as_str(), text.as_str()))
        .collect();
    let mut runs = 0;
    let mut failed = None;
    while runs < 5 * cells.len() + 5 {
        let step = state.next(&cells);
        up_to_date.steps.push(step.clone());
        match step {
            WitnessStep::Run(place) if failed == Some(place) => break,
            WitnessStep::Run(place) => {
                let (id, text) = cells[place];
                let answer = kernel.ask(&json!({"run": [text]}));
                let ended = note(&mut state, Some(id), text, &answer.runs[0], count);
                let output = answer.runs[0].output.clone();
                up_to_date.outputs.insert(id.to_owned(), output);
                failed = (!ended).then_some(place);
                runs += 1;
            }
            WitnessStep::Unbind(names) => {
                kernel.ask(&json!({"unbind": names}));
                state.unbound(&names);
                failed = None;
            }
            WitnessStep::Done(uncertainty) => {
                count.runs += runs;
                up_to_date.uncertainty = Some(uncertainty);
                break;
            }
        }
    }
    up_to_date
}

/// Runs notebooks. Returns a report of each that is wrong without a word.
fn wrong_without_a_word(
    kernel: &mut Kernel,
    seeds: std::ops::Range<u64>,
    count: &mut Count,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for seed in seeds {
        let notebook = notebook(&mut Random::of_seed(seed), Kinds::Indirect);
        let UpToDate {
            uncertainty, steps, ..
        } = bring_up_to_date(kernel, &notebook, count);
        let texts: Vec<_> = notebook.cells.iter().map(|(_, text)| text).collect();
        let answer = kernel.ask(&json!({"look": true, "play": texts}));
        let (values, truth) = (
            answer.values.expect("values"),
            answer.truth.expect("the truth"),
        );
        count.notebooks += 1;
        if truth.ended.contains(&false) {
            count.failed += 1;
            continue;
        }
        count.cells += notebook.cells.len();
        let Some(doubts) = uncertainty else {
            count.unsettled += 1;
            wrong.push(report(seed, &notebook, &steps) + "it does not settle\n");
            continue;
        };
        let file = |name: &str| match name.starts_with("file:") {
            true => name.rsplit('/').next().map(|name| format!("file:{name}")),
            false => Some(name.to_owned()),
        };
        let named: BTreeSet<_> = doubts
            .resources
            .iter()
            .filter_map(|name| file(name))
            .collect();
        let left: BTreeSet<_> = doubts.left.iter().filter_map(|name| file(name)).collect();
        let names: BTreeSet<_> = values.keys().chain(truth.values.keys()).collect();
        count.variables += names.len();
        count.uncertain += names
            .iter()
            .filter(|name| doubts.is_any || named.contains(**name))
            .count();
        count.left += names.iter().filter(|name| left.contains(**name)).count();
        let differ = |name: &&&String| {
            let is_named = doubts.is_any || named.contains(**name) || left.contains(**name);
            !is_named && values.get(**name) != truth.values.get(**name)
        };
        let bad: Vec<_> = names.iter().filter(differ).collect();
        if !bad.is_empty() {
            let mut report = report(seed, &notebook, &steps);
            for name in bad {
                let (is, should) = (values.get(*name), truth.values.get(*name));
                report += &format!("{name}: {is:?}, not {should:?}\n");
            }
            wrong.push(report);
        }
    }
    wrong
}

fn report(seed: u64, notebook: &Notebook, steps: &[WitnessStep]) -> String {
    let mut report = format!("seed {seed}\n");
    for (id, text) in notebook.cells.iter().skip(1) {
        report += &format!("--- {id}\n{text}\n");
    }
    report += "=== runs\n";
    for (id, text) in notebook.runs.iter().skip(1) {
        report += &format!("--- {id:?}\n{text}\n");
    }
    report + &format!("=== steps {steps:?}\n")
}

/// Cells, the place of the one that gets another text, and that text.
type Case = (&'static str, &'static [&'static str], usize, &'static str);

/// Effects that no text shows, as people have reported them of tools that read texts.
const CASES: &[Case] = &[
    (
        "a method under another name",
        &["a = [0]", "f = a.append", "f(1)", "print(a)"],
        2,
        "f(2)",
    ),
    (
        "a method that is passed on",
        &["a = []", "list(map(a.append, [1, 2]))", "print(a)"],
        1,
        "list(map(a.append, [3]))",
    ),
    (
        "a method of a class",
        &["a = [0]", "list.append(a, 1)", "print(a)"],
        1,
        "list.append(a, 2)",
    ),
    (
        "a method by its name",
        &["a = [0]", "getattr(a, 'append')(1)", "print(a)"],
        1,
        "getattr(a, 'append')(2)",
    ),
    (
        "a lambda in a function",
        &[
            "a = []",
            "def f(l, v):\n    g = lambda x: x.append(v)\n    g(l)",
            "f(a, 1)",
            "print(a)",
        ],
        2,
        "f(a, 2)",
    ),
    (
        "reduce",
        &[
            "from functools import reduce\nb = [0]",
            "reduce(lambda acc, x: acc.append(x) or acc, [1, 2], b)",
            "print(b)",
        ],
        1,
        "reduce(lambda acc, x: acc.append(x) or acc, [3], b)",
    ),
    (
        "an element under another name",
        &[
            "rows = [[2], [1]]",
            "m = next(r for r in rows if r[0] == 2)",
            "m.append(0)",
            "print(rows)",
        ],
        2,
        "m.append(5)",
    ),
    (
        "a file that the last line shows",
        &[
            "import json",
            "json.dump({'a': 1}, open('z.json', 'w'))",
            "json.load(open('z.json'))",
        ],
        1,
        "json.dump({'a': 2}, open('z.json', 'w'))",
    ),
    (
        "a module of one's own",
        &[
            "with open('zmod.py', 'w') as f:\n    print('V = 1', file=f)",
            "import importlib, zmod\nimportlib.reload(zmod)",
            "print(zmod.V)",
        ],
        0,
        "with open('zmod.py', 'w') as f:\n    print('V = 22', file=f)",
    ),
    (
        "the environment",
        &[
            "v = '1'",
            "%env QQ=$v",
            "import os\nprint(os.environ['QQ'])",
        ],
        0,
        "v = '2'",
    ),
    (
        "a registry",
        &[
            "known = {}",
            "def on(f):\n    known[f.__name__] = f\n    return f",
            "@on\ndef g():\n    return 1",
            "print(known['g']())",
        ],
        2,
        "@on\ndef g():\n    return 2",
    ),
    (
        "a property that counts",
        &[
            "class P:\n    n = 0\n    @property\n    def v(self):\n        self.n += 1\n        return self.n\np = P()",
            "p.v",
            "print(p.n)",
        ],
        1,
        "p.v + p.v",
    ),
    (
        "a default that is kept",
        &[
            "def f(x, l=[]):\n    l.append(x)\n    return l",
            "f(1)",
            "print(f(2))",
        ],
        1,
        "f(7)",
    ),
    (
        "a text that is run",
        &["n = 1", "exec('n = 5')", "print(n)"],
        1,
        "exec('n = 6')",
    ),
    (
        "the globals",
        &["n = 1", "globals()['n'] = 5", "print(n)"],
        1,
        "globals()['n'] = 6",
    ),
    (
        "a partial function",
        &[
            "from functools import partial\na = []",
            "f = partial(a.append, 1)",
            "f()",
            "print(a)",
        ],
        1,
        "f = partial(a.append, 2)",
    ),
    (
        "a view",
        &[
            "b = bytearray(b'abc')",
            "v = memoryview(b)",
            "v[0] = 1",
            "print(b)",
        ],
        2,
        "v[0] = 2",
    ),
    (
        "seeded random numbers",
        &[
            "import random\nrandom.seed(1)",
            "a = random.random()",
            "print(a, random.random())",
        ],
        0,
        "import random\nrandom.seed(2)",
    ),
    (
        "an exception that changes",
        &[
            "a = []",
            "try:\n    a.append(1)\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
            "print(a)",
        ],
        1,
        "try:\n    a.append(2)\n    1 / 0\nexcept ZeroDivisionError:\n    pass",
    ),
    (
        "a decorated class",
        &[
            "made = []",
            "def keep(c):\n    made.append(c.__name__)\n    return c",
            "@keep\nclass A: pass",
            "print(made)",
        ],
        2,
        "@keep\nclass B: pass",
    ),
    (
        "subclasses that are noted",
        &[
            "class Base:\n    known = []\n    def __init_subclass__(cls):\n        Base.known.append(cls.__name__)",
            "class A(Base): pass",
            "print(Base.known)",
        ],
        1,
        "class B(Base): pass",
    ),
    (
        "a context that restores",
        &[
            "import contextlib\nlog = []\n@contextlib.contextmanager\ndef noted(x):\n    log.append(x)\n    yield\n    log.append(-x)",
            "with noted(1):\n    pass",
            "print(log)",
        ],
        1,
        "with noted(2):\n    pass",
    ),
    (
        "a timed statement",
        &["n = 1", "%time n = n + 1", "print(n)"],
        0,
        "n = 5",
    ),
    (
        "a weak reference's callback",
        &[
            "import weakref\nlog = []\nclass A: pass\na = A()",
            "r = weakref.ref(a, lambda _: log.append(1))",
            "del a",
            "print(log)",
        ],
        1,
        "r = weakref.ref(a, lambda _: log.append(2))",
    ),
    (
        "a thread",
        &[
            "import threading\na = []",
            "t = threading.Thread(target=a.append, args=(1,))\nt.start()\nt.join()",
            "print(a)",
        ],
        1,
        "t = threading.Thread(target=a.append, args=(2,))\nt.start()\nt.join()",
    ),
];

/// Those that need libraries.
const OF_LIBRARIES: &[Case] = &[
    (
        "a plot",
        &[
            "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()",
            "ax.plot([1]);",
            "print(len(ax.lines))",
        ],
        1,
        "ax.plot([1]); ax.plot([2]);",
    ),
    (
        "a plot by pandas",
        &[
            "import matplotlib.pyplot as plt\nfig, ax = plt.subplots()",
            "import pandas as pd\npd.Series([1, 2]).plot(ax=ax);",
            "print(len(ax.lines))",
        ],
        1,
        "import pandas as pd\npd.Series([1, 2]).plot(ax=ax); pd.Series([1, 2]).plot(ax=ax);",
    ),
    (
        "np.place",
        &[
            "import numpy as np\na = np.arange(4)",
            "np.place(a, a > 1, [9])",
            "print(a)",
        ],
        1,
        "np.place(a, a > 2, [8])",
    ),
    (
        "a view of an array",
        &[
            "import numpy as np\na = np.arange(4)",
            "v = a[1:]",
            "v[0] = 7",
            "print(a)",
        ],
        2,
        "v[0] = 8",
    ),
    (
        "a query",
        &[
            "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})",
            "t = 1",
            "q = 'a > @t'",
            "len(df.query(q))",
        ],
        1,
        "t = 2",
    ),
    (
        "a column",
        &[
            "import pandas as pd\ndf = pd.DataFrame({'a': [1, 2, 3]})",
            "df['b'] = df.a * 2",
            "print(df.b.sum())",
        ],
        1,
        "df['b'] = df.a * 3",
    ),
    (
        "a pop",
        &[
            "import pandas as pd\ndf = pd.DataFrame({'a': [1], 'b': [2]})",
            "df.pop('b')",
            "print(list(df))",
        ],
        1,
        "df.pop('a')",
    ),
    (
        "an option that is set",
        &[
            "import pandas as pd\ndf = pd.DataFrame({'a': [1.23456]})",
            "pd.set_option('display.precision', 2)",
            "df",
        ],
        1,
        "pd.set_option('display.precision', 4)",
    ),
    (
        "numpy's random numbers",
        &[
            "import numpy as np\nnp.random.seed(1)",
            "a = np.random.rand()",
            "print(a)",
        ],
        0,
        "import numpy as np\nnp.random.seed(2)",
    ),
    (
        "a generator of numpy",
        &[
            "import numpy as np\nr = np.random.default_rng(1)",
            "a = r.random()",
            "print(r.random())",
        ],
        1,
        "a = r.random() + r.random()",
    ),
];

/// Returns the cases that are wrong without a word.
fn wrong_cases(kernel: &mut Kernel, cases: &[Case]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, texts, edited, text) in cases {
        let cells = texts.iter().enumerate();
        let mut cells: Vec<_> = cells
            .map(|(id, text)| (id.to_string(), (*text).to_owned()))
            .collect();
        let runs = cells
            .iter()
            .map(|(id, text)| (Some(id.clone()), text.clone()))
            .collect();
        cells[*edited].1 = (*text).to_owned();
        let notebook = Notebook { cells, runs };
        let up_to_date = bring_up_to_date(kernel, &notebook, &mut Count::default());
        let texts: Vec<_> = notebook.cells.iter().map(|(_, text)| text).collect();
        let truth = kernel.ask(&json!({"forget": true, "run": texts}));
        let named = up_to_date.uncertainty.clone().unwrap_or_default();
        for (place, ran) in truth.runs.iter().enumerate() {
            let is = up_to_date.outputs.get(&place.to_string());
            let is_right =
                is.is_some_and(|is| without_addresses(is) == without_addresses(&ran.output));
            if !is_right && !named.cells.contains_key(&place) && !named.is_any {
                wrong.push(format!(
                    "{name}: {is:?}, not {:?}: {:?}",
                    ran.output, up_to_date.steps
                ));
            }
        }
        if up_to_date.uncertainty.is_none() {
            wrong.push(format!(
                "{name}: it does not settle: {:?}",
                up_to_date.steps
            ));
        }
        let ran = up_to_date
            .steps
            .iter()
            .filter(|step| matches!(step, WitnessStep::Run(_)));
        println!(
            "{name}: {} of {} ran, named {:?}",
            ran.count(),
            texts.len(),
            named.cells
        );
    }
    wrong
}

/// Returns an output without what is another each time: addresses, and how long something took.
fn without_addresses(output: &str) -> String {
    let lines = output.lines();
    let lines =
        lines.filter(|line| !line.starts_with("CPU times") && !line.starts_with("Wall time"));
    let words = lines.flat_map(str::split_whitespace);
    words.filter(|word| !word.contains("0x")).collect()
}

#[test]
fn effects_that_no_text_shows_are_seen() {
    let wrong = wrong_cases(&mut Kernel::without(&[]), CASES);
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn effects_in_libraries_are_seen() {
    let wrong = wrong_cases(
        &mut Kernel::start(python::with_libraries(), &[]),
        OF_LIBRARIES,
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_comparison_finds_faults_if_the_kernel_does_not_say_all() {
    // The first of the notebooks in which it finds one.
    for (off, first) in [("fingerprints", 12), ("functions", 40), ("sharing", 275)] {
        let mut kernel = Kernel::without(&[off]);
        let mut count = Count::default();
        let mut seeds = first..first + 500;
        let found = seeds.find(|seed| {
            !wrong_without_a_word(&mut kernel, *seed..seed + 1, &mut count).is_empty()
        });
        println!("without {off}: notebook {found:?}");
        assert!(found.is_some(), "without {off}");
    }
}

#[test]
fn the_witness_says_what_cells_did_under_each_python() {
    let mut pythons = vec![python::interpreter().to_owned()];
    // Other versions, where they are.
    for version in ["3.9", "3.10", "3.12", "3.13", "3.14"] {
        let name = format!("python{version}");
        let found = Command::new(&name)
            .args(["-c", "import sys; print(sys.executable)"])
            .output();
        let found = found.ok().filter(|output| output.status.success());
        pythons.extend(found.map(|_| name.into()));
    }
    let versions = Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".pyenv/versions");
    for folder in std::fs::read_dir(versions).into_iter().flatten().flatten() {
        let name = folder.file_name().to_string_lossy().into_owned();
        let minor = name
            .strip_prefix("3.")
            .and_then(|it| it.split('.').next()?.parse().ok());
        if minor.is_some_and(|minor: u32| minor >= 9) {
            pythons.push(folder.path().join("bin/python"));
        }
    }
    for interpreter in pythons {
        let mut script = Command::new(&interpreter);
        let output = script
            .arg(python::script("witness_alone.py"))
            .arg(witness())
            .output();
        let output = output.expect("start Python");
        let said = String::from_utf8_lossy(&output.stdout);
        println!("{}: {said}", interpreter.display());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{}: {said}{errors}",
            interpreter.display()
        );
    }
}

#[test]
fn after_the_planned_runs_all_is_as_after_restart_and_run_all() {
    let number = |name: &str| std::env::var(name).ok().and_then(|it| it.parse().ok());
    let first = number("NB_GRAPH_SEED").unwrap_or(1);
    let wanted = number("NB_WITNESS").unwrap_or(NOTEBOOKS);
    let mut count = Count::default();
    let mut kernel = Kernel::without(&[]);
    let wrong = wrong_without_a_word(&mut kernel, first..first + wanted, &mut count);
    println!("{count:?}");
    for report in wrong.iter().take(6) {
        println!("{report}");
    }
    assert!(
        wrong.is_empty(),
        "{} notebooks of {}",
        wrong.len(),
        count.notebooks
    );
    // It has looked at something, and has not run or named everything.
    assert!(count.failed * 2 < count.notebooks, "{count:?}");
    assert!(count.runs < count.cells, "{count:?}");
    assert!(count.uncertain * 20 < count.variables, "{count:?}");
}
