//! The planner with a kernel of its own, whose cells are lines like `x = y z`, `x += y` and `del x`.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    ExecutionFacts, FactKind, FactWrite, RunCause, Uncertainty, WitnessStep, WitnessedKernel,
};

/// A kernel whose values are texts.
#[derive(Default)]
struct Kernel {
    values: BTreeMap<String, String>,
    witnessed: WitnessedKernel,
}

impl Kernel {
    /// Runs a text and returns what it did.
    fn run(&mut self, text: &str) -> ExecutionFacts {
        let mut facts = ExecutionFacts {
            ok: true,
            ..ExecutionFacts::default()
        };
        let mut bound = BTreeSet::new();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (name, kind, read) = match words.as_slice() {
                ["del", name] => (*name, FactKind::Gone, &words[1..]),
                [name, "+=", ..] => (*name, FactKind::Changed, &words[2..]),
                [name, "=", ..] => (*name, FactKind::Bound, &words[2..]),
                _ => panic!("{line}"),
            };
            let value = |name: &&str| {
                self.values
                    .get(*name)
                    .cloned()
                    .unwrap_or_else(|| (*name).into())
            };
            let given: String = read.iter().map(value).collect();
            let own = (kind != FactKind::Bound).then_some(&name);
            for name in read.iter().chain(own) {
                if !bound.contains(name) {
                    facts.reads.insert((*name).to_owned());
                }
            }
            match kind {
                FactKind::Bound => drop(self.values.insert(name.to_owned(), given)),
                FactKind::Changed => self
                    .values
                    .entry(name.to_owned())
                    .or_default()
                    .push_str(&given),
                FactKind::Gone => drop(self.values.remove(name)),
            }
            let kind = match kind {
                FactKind::Changed if bound.contains(name) => FactKind::Bound,
                kind => kind,
            };
            if kind != FactKind::Changed {
                bound.insert(name);
            }
            let was_gone = facts
                .writes
                .get(name)
                .is_some_and(|write| write.0 == FactKind::Gone);
            let kind = if was_gone { FactKind::Bound } else { kind };
            let print = self.values.get(name).cloned();
            facts
                .writes
                .insert(name.to_owned(), FactWrite(kind, print, true, true));
        }
        facts
    }

    fn play(&mut self, cell: Option<&str>, text: &str) {
        let facts = self.run(text);
        self.witnessed.ran(cell, text, Some(&facts));
    }

    /// Runs what is planned. Returns the places of the cells that ran, and what is not certain.
    fn bring_up_to_date(&mut self, cells: &[(&str, &str)]) -> (Vec<usize>, Uncertainty) {
        let mut ran = Vec::new();
        loop {
            assert!(
                ran.len() <= 5 * cells.len() + 5,
                "it does not settle: {cells:?}, {ran:?}"
            );
            match self.witnessed.next(cells) {
                WitnessStep::Run(place) => {
                    self.play(Some(cells[place].0), cells[place].1);
                    ran.push(place);
                }
                WitnessStep::Unbind(names) => {
                    self.values.retain(|name, _| !names.contains(name));
                    self.witnessed.unbound(&names);
                }
                WitnessStep::Done(uncertainty) => return (ran, uncertainty),
            }
        }
    }
}

/// Returns what runs after these cells have run in order and one got another text.
fn after_edit(cells: &[&str], edited: usize, text: &str) -> Vec<usize> {
    let ids = ["a", "b", "c", "d", "e", "f"];
    let mut cells: Vec<_> = ids.into_iter().zip(cells.iter().copied()).collect();
    let mut kernel = Kernel::default();
    assert_eq!(
        kernel.bring_up_to_date(&cells).0,
        (0..cells.len()).collect::<Vec<_>>()
    );
    assert_eq!(kernel.bring_up_to_date(&cells).0, [0; 0]);
    cells[edited].1 = text;
    let ran = kernel.bring_up_to_date(&cells).0;
    let mut truth = Kernel::default();
    truth.bring_up_to_date(&cells);
    assert_eq!(kernel.values, truth.values);
    ran
}

#[test]
fn only_an_edited_cell_and_what_reads_from_it_run_again() {
    assert_eq!(
        after_edit(&["x = 1", "y = 2", "z = x", "w = y"], 0, "x = 3"),
        [0, 2]
    );
}

#[test]
fn an_equal_result_ends_the_wave() {
    assert_eq!(
        after_edit(&["x = 1", "y = x", "z = y"], 0, "x = 1\nn = 2"),
        [0]
    );
}

#[test]
fn what_a_cell_changed_is_made_anew_before_it_is_changed_again() {
    assert_eq!(
        after_edit(&["x = 1", "x += 2", "y = x"], 1, "x += 3"),
        [0, 1, 2]
    );
    // If the beginning is there, only the rest runs.
    let cells = [("a", "x = 1"), ("b", "x += 2"), ("c", "y = x")];
    let mut kernel = Kernel::default();
    kernel.bring_up_to_date(&cells);
    kernel.play(Some("a"), "x = 1");
    assert_eq!(kernel.bring_up_to_date(&cells).0, [1]);
}

#[test]
fn cells_that_overwrite_each_other_run_in_order() {
    // The third cell needs the first one again, which overwrites what the second one gave.
    let cells = ["o = 1\nn = 1\nl = 1", "o = 2\nl = 2", "n += 1\nl = 3"];
    assert_eq!(after_edit(&cells, 2, "n += 2\nl = 3"), [0, 1, 2]);
}

#[test]
fn names_of_a_deleted_cell_are_named_and_are_gone_before_a_cell_that_reads_them_runs() {
    let mut kernel = Kernel::default();
    kernel.bring_up_to_date(&[("a", "x = 1"), ("b", "y = 2"), ("c", "z = y x")]);
    let (ran, uncertainty) = kernel.bring_up_to_date(&[("a", "x = 1"), ("b", "y = 2")]);
    assert_eq!(
        (ran, uncertainty.left),
        (vec![], BTreeSet::from(["z".to_owned()]))
    );
    kernel.bring_up_to_date(&[("b", "y = 2"), ("c", "z = y x")]);
    assert_eq!(kernel.values["z"], "2x");
    assert!(!kernel.values.contains_key("x"));
}

#[test]
fn code_outside_of_the_cells_and_moved_cells_are_seen() {
    let cells = [("a", "x = 1"), ("b", "x += 2"), ("c", "y = x")];
    let mut kernel = Kernel::default();
    kernel.bring_up_to_date(&cells);
    kernel.play(None, "x = 7");
    assert_eq!(kernel.bring_up_to_date(&cells).0, [0, 1]);
    kernel.play(None, "z = 7");
    assert_eq!(
        kernel.bring_up_to_date(&cells),
        (
            vec![],
            Uncertainty {
                left: BTreeSet::from(["z".to_owned()]),
                ..Uncertainty::default()
            }
        )
    );
    let moved = [cells[0], cells[2], cells[1]];
    assert_eq!(kernel.bring_up_to_date(&moved).0, [0, 1, 2]);
    assert_eq!(
        (kernel.values["y"].as_str(), kernel.values["x"].as_str()),
        ("1", "12")
    );
}

#[test]
fn a_cell_that_failed_and_one_without_facts_run_again() {
    let cells = [("a", "x = 1"), ("b", "y = x")];
    let mut kernel = Kernel::default();
    kernel.bring_up_to_date(&cells);
    let failed = ExecutionFacts {
        ok: false,
        ..ExecutionFacts::default()
    };
    kernel.witnessed.ran(Some("b"), "y = x", Some(&failed));
    assert_eq!(kernel.bring_up_to_date(&cells).0, [1]);
    kernel.witnessed.ran(Some("b"), "y = x", None);
    let (ran, uncertainty) = kernel.bring_up_to_date(&cells);
    assert_eq!((ran, uncertainty.is_any), (vec![0, 1], true));
}

#[test]
fn what_time_gave_is_uncertain_and_a_file_is_named_and_stays() {
    let mut kernel = WitnessedKernel::default();
    let write = |kind| FactWrite(kind, Some("1".to_owned()), true, true);
    let file = "file:/data.csv".to_owned();
    let mut facts = ExecutionFacts {
        ok: true,
        ..ExecutionFacts::default()
    };
    facts.writes.insert("t".to_owned(), write(FactKind::Bound));
    facts.uncertain.insert("time".to_owned());
    kernel.ran(Some("a"), "t", Some(&facts));
    facts.uncertain.clear();
    facts.writes = BTreeMap::from([("u".to_owned(), write(FactKind::Bound))]);
    facts.reads.insert("t".to_owned());
    kernel.ran(Some("b"), "u", Some(&facts));
    facts.writes = BTreeMap::from([(
        file.clone(),
        FactWrite(FactKind::Changed, None, false, false),
    )]);
    facts.reads = BTreeSet::from([file.clone()]);
    kernel.ran(Some("c"), "f", Some(&facts));
    kernel.ran(Some("c"), "f", Some(&facts));
    let WitnessStep::Done(uncertainty) = kernel.next(&[("a", "t"), ("b", "u"), ("c", "f")]) else {
        panic!("nothing is to run");
    };
    assert_eq!(
        uncertainty.resources,
        BTreeSet::from(["t".to_owned(), "u".to_owned(), file])
    );
}

#[test]
fn facts_are_of_a_size_that_is_believed() {
    let mut facts = ExecutionFacts::default();
    facts.reads.insert("x".repeat(4096));
    assert!(facts.is_bounded());
    facts.reads.insert("x".repeat(4097));
    assert!(!facts.is_bounded());
    facts.reads = (0..100_001).map(|at| at.to_string()).collect();
    assert!(!facts.is_bounded());
}

/// Small random numbers, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn cell(&mut self) -> String {
        let names = ["x", "y", "z", "w"];
        let lines: Vec<_> = (0..=self.below(3))
            .map(|_| {
                let (one, two, three) = (self.below(4), self.below(4), self.below(4));
                let (one, two, three) = (names[one], names[two], names[three]);
                match self.below(8) {
                    0 => format!("del {one}"),
                    1 | 2 => format!("{one} += {two}"),
                    3 => format!("{one} = {}", self.below(3)),
                    _ => format!("{one} = {two} {three}"),
                }
            })
            .collect();
        lines.join("\n")
    }
}

#[test]
fn random_notebooks_settle_and_have_what_restart_and_run_all_gives() {
    for seed in 0..1000 {
        let mut random = Random(seed);
        let mut cells: Vec<_> = (0..2 + random.below(5))
            .map(|id| (id.to_string(), random.cell()))
            .collect();
        let mut kernel = Kernel::default();
        for _ in 0..random.below(12) {
            let place = random.below(cells.len());
            match random.below(6) {
                0..3 => kernel.play(Some(&cells[place].0), &cells[place].1),
                3 => cells[place].1 = random.cell(),
                4 => kernel.play(None, &random.cell()),
                _ => {
                    let moved = cells.remove(place);
                    cells.insert(random.below(cells.len() + 1), moved);
                }
            }
        }
        let cells: Vec<_> = cells
            .iter()
            .map(|(id, text)| (id.as_str(), text.as_str()))
            .collect();
        let (_, uncertainty) = kernel.bring_up_to_date(&cells);
        let mut truth = Kernel::default();
        cells.iter().for_each(|(_, text)| drop(truth.run(text)));
        kernel
            .values
            .retain(|name, _| !uncertainty.left.contains(name));
        assert_eq!(kernel.values, truth.values, "seed {seed}: {cells:?}");
    }
}

#[test]
fn cells_that_are_named_run_with_what_they_need_again_and_no_others() {
    let cells = [
        ("a", "x = 1"),
        ("b", "x += 2"),
        ("c", "y = x"),
        ("d", "z = 5"),
    ];
    let mut kernel = Kernel::default();
    kernel.bring_up_to_date(&cells);
    let edited = [cells[0], ("b", "x += 3"), cells[2], ("d", "z = 6")];
    let of = |places: &[usize]| places.iter().copied().collect::<BTreeSet<_>>();
    let next = |kernel: &Kernel, places| kernel.witnessed.next_of(&edited, Some(&of(places)));
    // What the edited cell did before counts.
    assert!(matches!(next(&kernel, &[2]), WitnessStep::Done(_)));
    assert_eq!(next(&kernel, &[1]), WitnessStep::Run(0));
    let planned = kernel.witnessed.planned(&edited, Some(&of(&[1, 2])));
    let planned: Vec<_> = planned.iter().map(|(place, _)| *place).collect();
    assert_eq!(planned, [0, 1, 2]);
    for (id, text) in &edited[..2] {
        kernel.play(Some(id), text);
    }
    assert_eq!(next(&kernel, &[2]), WitnessStep::Run(2));
    // The last one stays out of date.
    kernel.play(Some("c"), "y = x");
    assert!(matches!(next(&kernel, &[0, 1, 2]), WitnessStep::Done(_)));
    let all = kernel.witnessed.planned(&edited, None);
    assert_eq!(all, [(3, RunCause::Edited)]);
}

#[test]
fn variables_that_were_deleted_between_two_runs_have_no_value() {
    let mut kernel = Kernel::default();
    kernel.play(Some("a"), "x = 1");
    let facts = ExecutionFacts {
        ok: true,
        unbound: BTreeSet::from(["x".to_owned()]),
        ..ExecutionFacts::default()
    };
    kernel.witnessed.ran(Some("a"), "", Some(&facts));
    let WitnessStep::Done(uncertainty) = kernel.witnessed.next(&[("a", "")]) else {
        panic!("its text is the one that ran");
    };
    assert_eq!(uncertainty, Uncertainty::default());
}
