//! The analysis of a notebook's code: any text is read, and a cache changes no answer.

#![no_main]

use libfuzzer_sys::fuzz_target;
use nb::graph::{EffectsCache, End, Graph, PastRun};

/// The number of a cell, its code at the time, and how its run ended.
type Run = (u8, Option<String>, u8);

fuzz_target!(|input: (Vec<String>, Vec<Run>)| {
    let (texts, runs) = input;
    let ids: Vec<_> = (0..texts.len()).map(|at| at.to_string()).collect();
    let cells = ids.iter().zip(&texts);
    let cells: Vec<_> = cells.map(|(id, text)| (&**id, &**text)).collect();
    let runs = runs.into_iter().map(|(cell, code, end)| PastRun {
        code: code.or_else(|| texts.get(usize::from(cell)).cloned()),
        cell: ids.get(usize::from(cell)).cloned(),
        end: [End::Whole, End::Failed, End::Unknown][usize::from(end % 3)],
    });
    let runs: Vec<_> = runs.collect();
    let mut cache = EffectsCache::default();
    let half = runs.get(..runs.len() / 2).unwrap_or_default();
    drop(Graph::of(&cells, half, &mut cache));
    let plan = Graph::of(&cells, &runs, &mut cache).plan_stale();
    assert!(plan.cells.len() <= cells.len());
    assert_eq!(
        plan,
        Graph::of(&cells, &runs, &mut EffectsCache::default()).plan_stale()
    );
});
