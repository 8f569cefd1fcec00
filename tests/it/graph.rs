//! The analysis of what depends on what, beside the truth: Restart & Run All on a real ipykernel.
//!
//! Random notebooks get random edits and runs. After the planned cells have run, each variable has the value of
//! Restart & Run All, or the plan had named it as doubtful. `NB_GRAPH=10000 cargo test --test it graph` runs
//! that many, as `scripts/slow graph` does. With `NB_GRAPH_INDIRECT=1` half of the statements have effects that no text
//! shows: there the test fails, and says how many are wrong.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nb::graph::{EffectsCache, End, Graph, PastRun};
use nb::notebook::{CellType, Document};
use serde::Deserialize;
use serde_json::Value;

use crate::notebooks::{jupyters_own, notebooks};
use crate::python;
use crate::random_notebooks::{Kinds, Notebook, Random, notebook};

/// How many notebooks are run by default.
const NOTEBOOKS: u64 = 120;

/// How many go to the kernel at once.
const BATCH: usize = 50;

#[derive(Debug, Deserialize)]
struct Played {
    ended: Vec<bool>,
    values: BTreeMap<String, Value>,
}

/// A kernel that runs lists of texts.
struct Kernel {
    script: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Kernel {
    fn start() -> Self {
        let mut script = Command::new(python::interpreter())
            .arg(python::script("graph.py"))
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

    fn play(&mut self, scripts: &[Vec<&str>]) -> Vec<Played> {
        let mut line = serde_json::to_string(scripts).expect("write the scripts");
        line.push('\n');
        self.input
            .write_all(line.as_bytes())
            .expect("send the scripts");
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

#[derive(Debug, Default)]
struct Count {
    notebooks: usize,
    /// Restart & Run All failed.
    failed: usize,
    variables: usize,
    doubtful: usize,
    /// Notebooks of which nothing was doubtful.
    certain: usize,
    ran: usize,
    cells: usize,
    /// Of the notebooks whose least number of cells was looked for: that number, and what was run.
    least: (usize, usize, usize),
}

#[test]
fn after_the_stale_cells_have_run_variables_are_those_of_restart_and_run_all() {
    let wanted = std::env::var("NB_GRAPH")
        .ok()
        .and_then(|it| it.parse().ok());
    let wanted: u64 = wanted.unwrap_or(NOTEBOOKS);
    let first: u64 = std::env::var("NB_GRAPH_SEED")
        .ok()
        .and_then(|it| it.parse().ok())
        .unwrap_or(1);
    let kinds = match std::env::var_os("NB_GRAPH_INDIRECT") {
        Some(_) => Kinds::Indirect,
        None => Kinds::Plain,
    };
    let mut kernel = Kernel::start();
    let mut count = Count::default();
    let seeds: Vec<u64> = (first..first + wanted).collect();
    let mut wrong = Vec::new();
    for seeds in seeds.chunks(BATCH) {
        let notebooks: Vec<_> = seeds
            .iter()
            .map(|seed| notebook(&mut Random::of_seed(*seed), kinds))
            .collect();
        let histories: Vec<Vec<&str>> = notebooks
            .iter()
            .map(|notebook| {
                notebook
                    .runs
                    .iter()
                    .map(|(_, text)| text.as_str())
                    .collect()
            })
            .collect();
        let before = kernel.play(&histories);
        let mut scripts = Vec::new();
        let mut plans = Vec::new();
        for ((notebook, history), played) in notebooks.iter().zip(&histories).zip(&before) {
            let runs = notebook.runs.iter().zip(&played.ended);
            let runs: Vec<_> = runs
                .map(|((cell, text), ended)| PastRun {
                    cell: cell.clone(),
                    code: Some(text.clone()),
                    end: match ended {
                        true => End::Whole,
                        false => End::Failed,
                    },
                })
                .collect();
            let cells = notebook.cells.iter();
            let cells: Vec<_> = cells
                .map(|(id, text)| (id.as_str(), text.as_str()))
                .collect();
            let graph = Graph::of(&cells, &runs, &mut EffectsCache::default());
            let plan = graph.plan_stale();
            let texts = |places: &mut dyn Iterator<Item = usize>| -> Vec<&str> {
                places.map(|at| notebook.cells[at].1.as_str()).collect()
            };
            let mut script = history.clone();
            script.extend(texts(&mut plan.cells.iter().map(|cell| cell.cell)));
            scripts.push(script);
            scripts.push(texts(&mut (0..notebook.cells.len())));
            plans.push(plan);
        }
        let played = kernel.play(&scripts);
        for (at, pair) in played.chunks(2).enumerate() {
            let [after, truth] = pair else { unreachable!() };
            let (notebook, plan) = (&notebooks[at], &plans[at]);
            count.notebooks += 1;
            if truth.ended.contains(&false) {
                count.failed += 1;
                continue;
            }
            count.cells += notebook.cells.len();
            count.ran += plan.cells.len();
            let doubtful: BTreeSet<_> = plan.doubtful.keys().map(|name| name.as_str()).collect();
            let names: BTreeSet<_> = after.values.keys().chain(truth.values.keys()).collect();
            count.variables += names.len();
            if plan.is_any_doubtful {
                count.doubtful += names.len();
                continue;
            }
            count.doubtful += names
                .iter()
                .filter(|name| doubtful.contains(name.as_str()))
                .count();
            count.certain += usize::from(doubtful.is_empty());
            let differ = |name: &&&String| {
                !doubtful.contains(name.as_str())
                    && after.values.get(**name) != truth.values.get(**name)
            };
            let bad: Vec<_> = names.iter().filter(differ).collect();
            if !bad.is_empty() {
                let mut report = format!("seed {}\n", seeds[at]);
                for (id, text) in notebook.cells.iter().skip(1) {
                    report += &format!("--- {id}\n{text}\n");
                }
                report += "=== runs\n";
                let runs = notebook.runs.iter().zip(&before[at].ended);
                for ((id, text), ended) in runs.skip(1) {
                    report += &format!("--- {id:?} {ended}\n{text}\n");
                }
                report += &format!("=== plan {plan:?}\n");
                for name in bad {
                    report += &format!(
                        "{name}: {:?}, not {:?}\n",
                        after.values.get(*name),
                        truth.values.get(*name)
                    );
                }
                wrong.push(report);
            } else if seeds[at] % 25 == 0 && notebook.cells.len() <= 7 {
                let least = least(&mut kernel, notebook, &histories[at], &doubtful, truth);
                count.least.0 += 1;
                count.least.1 += least;
                count.least.2 += plan.cells.len();
            }
        }
    }
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
    // It has looked at something, and has not called everything doubtful.
    // A comparison of nothing would hold, too.
    let kinds = [count.failed, count.doubtful, count.certain, count.least.0];
    assert!(kinds.iter().all(|reached| *reached > 0), "{count:?}");
    assert!(count.failed * 2 < count.notebooks, "{count:?}");
    assert!(count.doubtful * 2 < count.variables, "{count:?}");
    assert!(count.ran < count.cells, "{count:?}");
}

/// Notebooks with effects that stand elsewhere than in the cell that has them; one cell gets another text.
const INDIRECT: &[(&[&str], usize, &str)] = &[
    (
        &[
            "data = range(3)",
            "for epoch in data:\n    loss = epoch",
            "r = loss",
        ],
        0,
        "data = range(2)",
    ),
    (
        &[
            "c = 1",
            "if c:\n    v = 1",
            "try:\n    r = v\nexcept NameError:\n    r = 0",
            "s = r",
        ],
        0,
        "c = 0",
    ),
    (
        &[
            "c = '1'",
            "try:\n    v = int(c)\nexcept ValueError:\n    pass",
            "r = v",
        ],
        0,
        "c = '2'",
    ),
    (
        &["d = [1, 2]", "[(q := k) for k in d]", "r = q"],
        0,
        "d = [3]",
    ),
    (
        &[
            "known = {}",
            REGISTER,
            "@on\ndef it(): return 1",
            "r = known['it']()",
        ],
        2,
        "@on\ndef it(): return 2",
    ),
    (
        &[
            "known = {}",
            REGISTER,
            "@on\nclass it:\n    v = 1",
            "r = known['it'].v",
        ],
        2,
        "@on\nclass it:\n    v = 2",
    ),
    (
        &[
            "def on(f):\n    v = k\n    return lambda: v",
            "k = 1",
            "@on\ndef g(): pass",
            "r = g()",
        ],
        1,
        "k = 2",
    ),
    (&["k = 1", CACHED, "r = f(1)"], 0, "k = 2"),
    (&[CACHED, "k = 1", "r = f(1)"], 1, "k = 2"),
    (
        &["log = []", LOGS, "p = P()", "q = p[1]", "r = list(log)"],
        3,
        "q = p[1] + p[2]",
    ),
    (
        &["log = []", LOGS, "p = P()", "q = f'{p}'", "r = list(log)"],
        3,
        "q = f'{p} {p}'",
    ),
    (
        &["log = []", LOGS, "p = P()", "q = p.count", "r = p.v"],
        3,
        "q = p.count + p.count",
    ),
    (
        &[
            "import copy\na = [[1]]",
            "b = copy.copy(a)",
            "b[0].append(1)",
            "r = len(a[0])",
        ],
        2,
        "b[0].append(2)",
    ),
    (
        &[
            "a = {'k': [1]}",
            "b = a.copy()",
            "b['k'].append(1)",
            "r = len(a['k'])",
        ],
        2,
        "b['k'].append(2)",
    ),
];

const REGISTER: &str = "def on(it):\n    known[it.__name__] = it\n    return it";
const CACHED: &str = "from functools import lru_cache\n@lru_cache\ndef f(x): return x + k";
const LOGS: &str = "class P:\n    v = 0\n\
    \x20   def __getitem__(self, at):\n        log.append(at)\n        return at\n\
    \x20   def __str__(self):\n        log.append('str')\n        return 'P'\n\
    \x20   @property\n    def count(self):\n        self.v += 1\n        return self.v";

#[test]
fn effects_that_stand_elsewhere_are_followed_and_nothing_stays_stale() {
    let ids: Vec<String> = (0..9).map(|at| at.to_string()).collect();
    let mut kernel = Kernel::start();
    let mut scripts = Vec::new();
    let mut plans = Vec::new();
    for (texts, edited, text) in INDIRECT {
        let run = |(id, code): &(&str, &str)| PastRun {
            cell: Some((*id).to_owned()),
            code: Some((*code).to_owned()),
            end: End::Whole,
        };
        let ids = ids.iter().map(String::as_str);
        let mut cells: Vec<_> = ids.zip(texts.iter().copied()).collect();
        let mut runs: Vec<_> = cells.iter().map(run).collect();
        let mut script = texts.to_vec();
        cells[*edited].1 = text;
        let plan = Graph::of(&cells, &runs, &mut EffectsCache::default()).plan_stale();
        let planned = plan.cells.iter().map(|it| &cells[it.cell]);
        runs.extend(planned.clone().map(run));
        script.extend(planned.map(|(_, code)| *code));
        let after = Graph::of(&cells, &runs, &mut EffectsCache::default()).plan_stale();
        assert_eq!(after.cells, [], "{texts:?}");
        scripts.push(script);
        scripts.push(cells.iter().map(|(_, code)| *code).collect());
        plans.push(plan);
    }
    let played = kernel.play(&scripts);
    for ((pair, plan), (texts, ..)) in played.chunks(2).zip(&plans).zip(INDIRECT) {
        let [after, truth] = pair else { unreachable!() };
        assert!(!truth.ended.contains(&false), "{texts:?}: {truth:?}");
        // The class has objects whose text shows where they are.
        for (name, value) in truth.values.iter().filter(|(name, _)| *name != "P") {
            let is_named = plan.doubtful.keys().any(|doubtful| doubtful == name);
            let is_right = after.values.get(name) == Some(value);
            assert!(is_named || is_right, "{name} of {texts:?}: {after:?}");
        }
    }
}

/// Finds by trial how few cells have to run.
fn least(
    kernel: &mut Kernel,
    notebook: &Notebook,
    history: &[&str],
    doubtful: &BTreeSet<&str>,
    truth: &Played,
) -> usize {
    let count = notebook.cells.len();
    let mut subsets: Vec<usize> = (0..1 << count).collect();
    subsets.sort_by_key(|subset| subset.count_ones());
    for subsets in subsets.chunks(64) {
        let scripts: Vec<Vec<&str>> = subsets
            .iter()
            .map(|subset| {
                let chosen = (0..count).filter(|at| subset >> at & 1 == 1);
                let chosen = chosen.map(|at| notebook.cells[at].1.as_str());
                history.iter().copied().chain(chosen).collect()
            })
            .collect();
        let played = kernel.play(&scripts);
        for (subset, played) in subsets.iter().zip(&played) {
            let mut names = played.values.keys().chain(truth.values.keys());
            let is_same = |name: &String| {
                doubtful.contains(name.as_str())
                    || played.values.get(name) == truth.values.get(name)
            };
            if names.all(is_same) {
                return subset.count_ones() as usize;
            }
        }
    }
    count
}

/// Returns whether Python's own parser takes each text.
fn python_takes(texts: &[String]) -> Vec<bool> {
    let mut python = Command::new(python::interpreter())
        .arg(python::script("parses.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("start Python");
    let mut stdin = python.stdin.take().expect("it has a stdin");
    let input = serde_json::to_vec(texts).expect("JSON");
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(&input).expect("write to Python"));
        let out = python.wait_with_output().expect("Python ends");
        assert!(out.status.success());
        serde_json::from_slice(&out.stdout).expect("JSON")
    })
}

#[test]
fn of_real_notebooks_every_cell_that_python_takes_is_understood() {
    let (mut analysed, mut cells, mut unknown, mut reads) = (0, 0, 0, 0);
    let mut texts: Vec<String> = Vec::new();
    let mut problems = Vec::new();
    for (name, text) in notebooks(&jupyters_own()) {
        let Ok(document) = Document::parse(text) else {
            continue;
        };
        let language = ["language_info", "kernelspec"].iter().find_map(|part| {
            let field = if *part == "kernelspec" {
                "language"
            } else {
                "name"
            };
            document.metadata_string(&[part, field])
        });
        if language.is_some_and(|language| !language.to_lowercase().contains("python")) {
            continue;
        }
        let code = document.cells().iter();
        let code = code.filter(|cell| cell.cell_type() == CellType::Code);
        let code: Vec<_> = code
            .map(|cell| (cell.id().to_owned(), cell.source().into_owned()))
            .collect();
        let pairs: Vec<_> = code.iter().map(|(id, text)| (&**id, &**text)).collect();
        let graph = Graph::of(&pairs, &[], &mut EffectsCache::default());
        assert!(graph.plan_stale().cells.len() <= pairs.len());
        analysed += 1;
        cells += pairs.len();
        for (cell, (_, text)) in graph.cells().iter().zip(&code) {
            unknown += usize::from(!cell.unknown.is_empty());
            reads += usize::from(!cell.reads.is_empty());
            texts.push(text.clone());
            problems.push((name.clone(), cell.problem.clone()));
        }
    }
    let takes = python_takes(&texts);
    let wrong = texts.iter().zip(&problems).zip(&takes);
    let wrong = wrong.filter(|((_, (_, problem)), takes)| **takes && problem.is_some());
    let wrong: Vec<_> = wrong.collect();
    let refused = takes.iter().filter(|takes| !**takes).count();
    println!(
        "{analysed} notebooks, {cells} cells: {reads} read from others, {unknown} with something unknown, {refused} that Python refuses"
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(analysed >= 60 && refused > 0, "{analysed} {refused}");
}
