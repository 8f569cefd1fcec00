//! The cost of reading and editing notebooks, compared with Python's nbformat on the same files.
//!
//! `cargo bench --bench notebook` prints two tables. In the first, both sides read the file from the page
//! cache, and neither the start of Python nor a sync is counted; the rows about the graph have the time of
//! Python's own parser beside them. With `-- --analysis` only these are printed. In the second, whole programs
//! alternate:
//! `nb` (with its sync, its lock and its history), Python with nbformat, and nb-cli if `NB_CLI` names its
//! program.

#![allow(
    unreachable_pub,
    dead_code,
    reason = "a bench has no outside, and shares the tests' Python"
)]

mod analysis;
#[path = "../../tests/it/made.rs"]
mod made;
#[path = "../programs.rs"]
mod programs;
#[path = "../../tests/it/python.rs"]
mod python;
mod whole;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use nb::notebook::{Document, merge};
use serde_json::json;

const RUNS: usize = 9;

/// Prints the medians of nbformat's times for the same work, in seconds.
const NBFORMAT: &str = "
import statistics, sys, time, nbformat
path, out, runs = sys.argv[1], sys.argv[2], int(sys.argv[3])
def median(work):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)
def edit():
    notebook = nbformat.read(path, 4)
    notebook.cells[len(notebook.cells) // 2].source += '\\n# edited'
    nbformat.write(notebook, out)
print(median(lambda: nbformat.read(path, 4)), median(edit))
";

fn main() {
    if std::env::args().any(|arg| arg == "--list") {
        return; // asked by test runners
    }
    let folder = tempfile::tempdir().expect("make a folder");
    println!(
        "{:<32}{:>6}{:>12}{:>12}{:>8}",
        "", "MB", "nb", "nbformat", "ratio"
    );
    for (name, ours, theirs) in analysis::rows() {
        let ratio = theirs.map(|theirs| ours.as_secs_f64() / theirs.as_secs_f64());
        let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
        let theirs = theirs.map_or("–".into(), |theirs| format!("{theirs:.2?}"));
        println!(
            "{name:<32}{:>6}{:>12}{theirs:>12}{ratio:>8}",
            "",
            format!("{ours:.2?}")
        );
    }
    if std::env::args().any(|arg| arg == "--analysis") {
        return;
    }
    let image = "iVBORw0KGgoAAAANSUhEUgAAAoAAAAHg".repeat(15_000);
    let (small, large) = (notebook(1000, ""), notebook(100, &image));
    for (name, text) in [("1,000 cells", &small), ("100 cells with images", &large)] {
        let path = folder.path().join("in.ipynb");
        std::fs::write(&path, text).expect("write a notebook");
        let [read, edit] = nbformat(&path, &folder.path().join("out.ipynb"));
        let megabytes = text.len() as f64 / 1e6;
        let row = |what: &str, ours: Duration, theirs: Option<Duration>| {
            let name = format!("{name}: {what}");
            let theirs_text = theirs.map_or("–".into(), |theirs| format!("{theirs:.2?}"));
            let ratio = theirs.map(|theirs| ours.as_secs_f64() / theirs.as_secs_f64());
            let ratio = ratio.map_or("–".into(), |ratio| format!("{ratio:.3}"));
            println!(
                "{name:<32}{megabytes:>6.1}{:>12}{theirs_text:>12}{ratio:>8}",
                format!("{ours:.2?}")
            );
        };
        row("read", median(|| drop(open(&path))), Some(read));
        let out = folder.path().join("out.ipynb");
        let whole = median(|| {
            let document = edited(&open(&path), "\n# edited");
            std::fs::write(&out, document.to_bytes()).expect("write a notebook");
        });
        row("read, edit, write", whole, Some(edit));
        let base = open(&path);
        let revised = || {
            std::hint::black_box(base.revision());
        };
        row("revision", median(revised), None);
        let listed = || {
            for cell in base.cells() {
                std::hint::black_box((cell.first_line(60), cell.outputs_line(60)));
            }
        };
        row("list of cells", median(listed), None);
        let (file, writer) = (edited(&base, "\n# human"), {
            let mut writer = base.clone();
            writer.remove(0).expect("there are cells");
            writer
        });
        row(
            "merge",
            median(|| drop(merge(&base, &file, &writer, &|_| false))),
            None,
        );
    }
    println!();
    let rows = whole::rows(folder.path(), &small, &large);
    println!("\n{}", json!(rows));
}

fn edited(document: &Document, more: &str) -> Document {
    let mut document = document.clone();
    let at = document.cells().len() / 2;
    let source = format!("{}{more}", document.cells()[at].source());
    document
        .set_source(at, &source)
        .expect("a cell in the middle");
    document
}

fn open(path: &Path) -> Document {
    let text = std::fs::read(path).expect("read a notebook");
    Document::parse(text).expect("a notebook")
}

/// Returns a notebook as Jupyter writes it; each cell has the image, if there is one.
fn notebook(cells: usize, image: &str) -> String {
    let cell = |number: usize| {
        let output = match image {
            "" => {
                r#"{"name": "stdout", "output_type": "stream", "text": ["a line\n", "another\n"]}"#
                    .to_owned()
            }
            image => format!(
                r#"{{"data": {{"image/png": "{image}"}}, "metadata": {{}}, "output_type": "display_data"}}"#
            ),
        };
        format!(
            "\n  {{\n   \"cell_type\": \"code\",\n   \"execution_count\": {number},\n   \"id\": \"cell-{number}\",\n   \"metadata\": {{}},\n   \"outputs\": [\n    {output}\n   ],\n   \"source\": [\n    \"import numpy as np\\n\",\n    \"x = np.arange({number})\\n\",\n    \"x.sum()\"\n   ]\n  }}"
        )
    };
    let cells: Vec<_> = (0..cells).map(cell).collect();
    format!(
        "{{\n \"cells\": [{}\n ],\n \"metadata\": {{}},\n \"nbformat\": 4,\n \"nbformat_minor\": 5\n}}\n",
        cells.join(",")
    )
}

fn median(mut work: impl FnMut()) -> Duration {
    let mut times: Vec<_> = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            work();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[RUNS / 2]
}

fn nbformat(path: &Path, out: &Path) -> [Duration; 2] {
    let done = Command::new(python::interpreter())
        .args(["-c", NBFORMAT])
        .args([path, out])
        .arg(RUNS.to_string())
        .output()
        .expect("run the interpreter");
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let text = String::from_utf8_lossy(&done.stdout);
    let mut seconds = text
        .split_whitespace()
        .map(|word| word.parse().expect("a number"));
    [(); 2].map(|()| Duration::from_secs_f64(seconds.next().expect("two numbers")))
}
