//! The cost of finding out which cells are out of date.

use std::process::Command;
use std::time::Duration;

use nb::graph::{EffectsCache, End, Graph, PastRun};

use crate::{median, python};

/// How many cells the notebook has.
const CELLS: usize = 1000;

/// Prints how long Python's own parser takes for the same texts, in seconds.
const AST: &str = "
import ast, json, statistics, sys, time
cells = json.load(sys.stdin)
def parse():
    start = time.perf_counter()
    for cell in cells:
        ast.parse(cell)
    return time.perf_counter() - start
print(statistics.median(parse() for _ in range(9)))
";

/// Returns the texts of a notebook whose cells import, define, call, change and show.
fn texts() -> Vec<String> {
    let text = |number: usize| match (number, number % 8) {
        (0, _) => "import math\nimport numpy as np\nimport pandas as pd\nfrom pathlib import Path"
            .to_owned(),
        (_, 0) => format!(
            "def normalise_{number}(frame, columns=('a', 'b')):\n    \"\"\"Scale the columns.\"\"\"\n    out = frame.copy()\n    for column in columns:\n        mean = out[column].mean()\n        out[column] = (out[column] - mean) / out[column].std()\n    return out"
        ),
        (_, 1) => {
            format!("data_{number} = pd.DataFrame({{'a': np.arange(100), 'b': np.ones(100)}})")
        }
        (_, 2) => format!(
            "table_{number} = normalise_{}(data_{})",
            (number / 8).max(1) * 8,
            number - 1
        ),
        (_, 3) => format!(
            "table_{0}['c'] = table_{0}['a'] * 2\ntable_{0} = table_{0}[table_{0}.c > {number}]",
            number - 1
        ),
        (_, 4) => format!(
            "totals_{number} = {{name: sum(group['a']) for name, group in table_{}.groupby('b')}}",
            number - 2
        ),
        (_, 5) => format!(
            "best = max(totals_{0}.values(), default=0)\nif best > {number}:\n    limit = best\nelse:\n    limit = {number}",
            number - 1
        ),
        (_, 6) => format!(
            "results = [limit, *[value for value in totals_{}.values()]]\nresults.append(best)",
            number - 2
        ),
        _ => format!("print(f'{{best:.2f}} of {{limit}}', len(results), math.sqrt({number}))"),
    };
    (0..CELLS).map(text).collect()
}

/// Returns a row for each measurement: what it is, ours, Python's.
pub(crate) fn rows() -> Vec<(String, Duration, Option<Duration>)> {
    let texts = texts();
    let ids: Vec<_> = (0..CELLS).map(|number| format!("cell-{number}")).collect();
    let mut edited = texts.clone();
    let middle = &mut edited[CELLS / 2 + 1];
    middle.push_str("\nextra = 1");
    let of = |texts: &'_ [String]| -> Vec<(String, String)> {
        ids.iter().cloned().zip(texts.iter().cloned()).collect()
    };
    let (before, after) = (of(&texts), of(&edited));
    let past = ids.iter().zip(&texts).map(|(id, text)| PastRun {
        cell: Some(id.clone()),
        code: Some(text.clone()),
        end: End::Whole,
    });
    let past: Vec<_> = past.collect();
    let graph = |cells: &[(String, String)], runs: &[PastRun], cache: &mut EffectsCache| {
        let cells: Vec<_> = cells.iter().map(|(id, text)| (&**id, &**text)).collect();
        Graph::of(&cells, runs, cache)
    };
    let whole = median(|| drop(graph(&before, &[], &mut EffectsCache::default())));
    let ran = median(|| drop(graph(&before, &past, &mut EffectsCache::default())));
    let mut cache = EffectsCache::default();
    drop(graph(&before, &past, &mut cache));
    let mut number = 0;
    let again = median(|| {
        // Another text each time, which the cache does not have.
        number += 1;
        let mut after = after.clone();
        after[CELLS / 2 + 1]
            .1
            .push_str(&format!("\nextra = {number}"));
        drop(graph(&after, &past, &mut cache));
    });
    let stale = graph(&after, &past, &mut cache);
    let planned = stale.plan_stale();
    assert!(
        !planned.cells.is_empty() && planned.cells.len() < 20,
        "{planned:?}"
    );
    let plan = median(|| drop(stale.plan_stale()));
    let row = |what: &str, ours, theirs| (format!("1,000 cells: {what}"), ours, theirs);
    vec![
        row("graph, nothing ran", whole, Some(parsed(&texts))),
        row("graph, all ran", ran, None),
        row("graph after one edit", again, None),
        row("plan after one edit", plan, None),
    ]
}

/// Returns how long Python's parser takes for the texts.
fn parsed(texts: &[String]) -> Duration {
    let input = tempfile::NamedTempFile::new().expect("make a file");
    std::fs::write(input.path(), serde_json::json!(texts).to_string()).expect("write it");
    let stdin = std::fs::File::open(input.path()).expect("open it");
    let done = Command::new(python::interpreter())
        .args(["-c", AST])
        .stdin(stdin)
        .output()
        .expect("run the interpreter");
    let text = String::from_utf8_lossy(&done.stdout);
    Duration::from_secs_f64(text.trim().parse().expect("a number"))
}
