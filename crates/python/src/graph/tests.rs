use super::*;

fn graph(cells: &[&str]) -> Graph {
    let ids: Vec<String> = (0..cells.len()).map(|at| at.to_string()).collect();
    let cells: Vec<_> = ids
        .iter()
        .map(String::as_str)
        .zip(cells.iter().copied())
        .collect();
    Graph::of(&cells, &[], &mut EffectsCache::default())
}

fn words<'a>(names: impl IntoIterator<Item = &'a Name>) -> String {
    let names: Vec<_> = names.into_iter().map(|name| name.as_str()).collect();
    names.join(" ")
}

/// Returns what a text reads from elsewhere, and what it writes.
fn effects(text: &str) -> (String, String) {
    let graph = graph(&[text]);
    let cell = &graph.cells()[0];
    assert_eq!(cell.problem, None, "{text}");
    let reads: BTreeSet<_> = cell.reads.keys().chain(cell.undefined.keys()).collect();
    let writes: BTreeSet<_> = cell.writes.iter().chain(&cell.deletes).collect();
    (words(reads), words(writes))
}

#[test]
fn reads_and_writes_follow_pythons_scopes() {
    for (text, reads, writes) in [
        ("", "", ""),
        ("x = y", "y", "x"),
        ("x = 1\nz = x", "", "x z"),
        ("print(len(a))", "a", ""),
        ("a.b.c = d[e]", "a d e", ""),
        ("a[i] += v", "a i v", ""),
        ("x += 1", "x", ""),
        ("x: T = v", "T v", "x"),
        ("x: T", "T", ""),
        ("a, (b, *c) = d", "d", "a b c"),
        ("del x", "x", "x"),
        ("import a.b.c", "", "a"),
        ("import a.b as c", "", "c"),
        ("from a import b as c, d", "", "c d"),
        ("from . import a", "", "a"),
        // Comprehensions.
        ("[x for x in xs]", "xs", ""),
        ("[x for x in x]", "x", ""),
        ("[y for x in xs for y in x if y > k]", "k xs", ""),
        ("[[x for x in y] for y in x]", "x", ""),
        ("{k: v for k, v in d.items()}", "d", ""),
        ("any((last := x) for x in xs)", "xs", "last"),
        ("[x for x in xs]\nprint(x)", "x xs", ""),
        ("[f(x) async for x in xs]", "f xs", ""),
        ("sum(x * w for x in xs)", "w xs", ""),
        // Functions.
        (
            "def f(a, b=c, *d, e: t = g, **h) -> r: pass",
            "c g r t",
            "f",
        ),
        ("def f(): return x", "", "f"),
        ("def f(): return x\nf()", "x", "f"),
        ("x = 1\ndef f(): return x\nf()", "", "f x"),
        ("def f():\n    x = 1\n    return x\nf()", "", "f"),
        ("def f():\n    print(x)\n    x = 1\nf()", "", "f"),
        ("def f():\n    global x\n    x = y\nf()", "y", "f x"),
        ("def f():\n    global x\n    x = 1", "", "f"),
        (
            "def f():\n    def g(): return x\n    return g\nf()",
            "x",
            "f",
        ),
        (
            "def f():\n    x = 1\n    def g(): return x\n    return g()\nf()",
            "",
            "f",
        ),
        (
            "def f():\n    x = 1\n    class A:\n        y = x\n    return A\nf()",
            "",
            "f",
        ),
        ("def f(x):\n    return [x for y in z]\nf(1)", "z", "f"),
        ("def f(n): return f(n - 1) + k\nf(3)", "k", "f"),
        ("f = lambda x, y=a: x + y + b\nf(1)", "a b", "f"),
        ("lambda: x", "", ""),
        ("@d(a)\ndef f(): pass", "a d", "f"),
        ("async def f(): await g()\nawait f()", "g", "f"),
        ("def f(): yield x\nlist(f())", "x", "f"),
        ("def f[T: B](x: T) -> T: return x", "B", "f"),
        ("type A[T] = list[T] | B", "B", "A"),
        ("sorted(xs, key=lambda x: x[k])", "k xs", ""),
        ("def f(): return x\nmap(f, xs)", "x xs", "f"),
        (
            "def f():\n    try: pass\n    except E as e: print(e)\nf()",
            "E",
            "f",
        ),
        ("def f():\n    import os\n    os.x\nf()", "", "f"),
        (
            "def f():\n    for i in xs: pass\n    with c as d: pass\n    match s:\n        case [a, *b]: print(a, b)\nf()",
            "c s xs",
            "f",
        ),
        // Classes.
        ("class A(B, metaclass=M): pass", "B M", "A"),
        ("class A:\n    x = 1\n    y = x", "", "A"),
        ("class A:\n    y = x\n    x = 1", "x", "A"),
        (
            "class A:\n    x = 1\n    def f(self): return x\nA().f()",
            "x",
            "A",
        ),
        (
            "class A:\n    x = [1]\n    y = [x for _ in range(3)]",
            "x",
            "A",
        ),
        ("class A:\n    x = [1]\n    y = [i for i in x]", "", "A"),
        ("class A:\n    def f(self): return g(h)\n    z = f", "", "A"),
        ("class A:\n    def f(self): return A.x", "", "A"),
        (
            "class A:\n    @property\n    def f(self): return x\na = A()\na.f",
            "x",
            "A a",
        ),
        ("class A:\n    global x\n    x = 1", "", "A x"),
        // Branches and loops.
        ("if c:\n    x = 1\nprint(x)", "c x", "x"),
        ("if c:\n    x = 1\nelse:\n    x = 2\nprint(x)", "c", "x"),
        (
            "if c:\n    x = 1\nelif d:\n    x = 2\nprint(x)",
            "c d x",
            "x",
        ),
        ("if c:\n    x = 1\nelse:\n    raise E\nprint(x)", "E c", "x"),
        ("if c:\n    x = 1\n    print(x)", "c", "x"),
        ("for i in xs:\n    print(i)\nprint(i)", "i xs", "i"),
        ("for i in [1]:\n    break\nprint(i)", "", "i"),
        ("for i, j in xs: pass\ndel j", "j xs", "i j"),
        ("for i in xs:\n    y = i\nprint(y)", "xs y", "i y"),
        ("for i in range(3):\n    y = i\nprint(y)", "", "i y"),
        ("while t:\n    y = 1\nprint(y)", "t y", "y"),
        (
            "try:\n    import a\nexcept ImportError:\n    a = None\na.b",
            "",
            "a",
        ),
        (
            "try:\n    x = 1\nexcept E as e:\n    print(e)\nprint(x)",
            "E x",
            "e x",
        ),
        (
            "try:\n    x = 1\nfinally:\n    y = 2\nprint(x, y)",
            "",
            "x y",
        ),
        ("with a as b, c(b) as d: pass", "a c", "b d"),
        (
            "with suppress(E), c as d: pass\nprint(d)",
            "E c d suppress",
            "d",
        ),
        ("a < b < (c := d)\nprint(c)", "a b c d", "c"),
        (
            "match s:\n    case {'k': v, **r} if g(v): pass\n    case P(x=q) | T.C as q: pass",
            "P T g s",
            "q r v",
        ),
        ("x = a if b else c", "a b c", "x"),
        ("b and (x := a)\nprint(x)", "a b x", "x"),
        ("(x := a) and b\nprint(x)", "a b", "x"),
        ("assert a, b", "a b", ""),
        ("raise a from b", "a b", ""),
        ("x = y = z", "z", "x y"),
        ("f'{a!r:>{w}} {b=}'", "a b w", ""),
        ("a[b:c, d]", "a b c d", ""),
        ("f(*a, **b)", "a b f", ""),
        ("print(f\"{x['a']}\")", "x", ""),
        // Names in other scripts.
        ("größe = ｗｉｄｔｈ * 変数", "width 変数", "größe"),
        ("ℌ = 1\nprint(H)", "", "H"),
        // Magics.
        ("%%time\nx = y", "y", "x"),
        ("%%capture out\nx = y", "y", "out x"),
        ("%%timeit\nx = y", "y", ""),
        ("%time x = y", "y", "x"),
        ("%timeit -n 10 -r3 f(x)", "f x", ""),
        ("%matplotlib inline\nx = 1", "", "x"),
        ("x = %time y", "y", "x"),
        ("!ls {folder}", "folder", ""),
        ("files = !ls", "", "files"),
        ("x?", "", ""),
        ("%%bash\necho $x", "", ""),
        ("%%bash --out text\necho", "", "text"),
        ("%%html\n<b>x</b>", "", ""),
        (
            "%%sql\nselect {a}, {{b}}, :c, '12:30' from t where x::int > 1",
            "a b c",
            "",
        ),
        ("%%sql result <<\nselect 1", "", "result"),
        ("%%sql --save short\nselect 1", "", "short"),
        ("x = %sql select * from t where a = :a", "a", "x"),
        ("%time x = 1\nprint(x)", "", "x"),
        ("if c:\n    %time x = 1\nprint(x)", "c x", "x"),
        ("if c:\n    %sql x << select 1\nprint(x)", "c x", "x"),
        ("for i in xs:\n    %time x = i\nprint(x)", "x xs", "i x"),
        (
            "if c:\n    %time x = 1\nelse:\n    x = 2\nprint(x)",
            "c",
            "x",
        ),
    ] {
        assert_eq!(
            effects(text),
            (reads.to_owned(), writes.to_owned()),
            "{text}"
        );
    }
}

/// Returns what each cell depends on.
fn needs(cells: &[&str]) -> String {
    let graph = graph(cells);
    let needs = (0..cells.len()).map(|cell| {
        let needs: Vec<_> = graph.needs(cell).iter().map(usize::to_string).collect();
        needs.join(",")
    });
    needs.collect::<Vec<_>>().join(" | ")
}

#[test]
fn a_cell_depends_on_the_last_writer_above_it() {
    for (cells, wanted) in [
        (&["x = 1", "y = x", "x = 2", "z = x"][..], " | 0 |  | 2"),
        (&["y = x", "x = 1"], " | "),
        (&["x = 1", "if c: x = 2", "x"], " |  | 0,1"),
        (&["x = 1", "for x in c: pass", "x"], " |  | 0,1"),
        (&["x = 1", "for x in [2]: pass", "x"], " |  | 1"),
        (&["x = 1", "if c:\n    %time x = 2", "x"], " |  | 0,1"),
        (
            &[
                "x = 1",
                "def f():\n    global x\n    x = 2",
                "if c: f()",
                "x",
            ],
            " |  | 1 | 0,2",
        ),
        (
            &["x = 1", "def f():\n    global x\n    x = 2", "f()", "x"],
            " |  | 1 | 2",
        ),
        (&["import a as m", "if c: import b as m", "m"], " |  | 0,1"),
        (
            &["try: import a as m\nexcept ImportError: import b as m", "m"],
            " | 0",
        ),
        (&["xs = []", "xs.append(1)", "xs"], " | 0 | 1"),
        (&["xs = []", "xs[0] = 1", "xs"], " | 0 | 1"),
        (&["xs = []", "xs += [1]", "xs"], " | 0 | 1"),
        (&["xs = []", "xs.index(1)", "xs"], " | 0 | 0"),
        (&["df = f()", "df.head()", "df"], " | 0 | 0"),
        (&["df = f()", "df.dropna(inplace=True)", "df"], " | 0 | 1"),
        (&["df = f()", "df.dropna(inplace=False)", "df"], " | 0 | 0"),
        (&["a = []", "b = a", "b.append(1)", "a"], " | 0 | 0,1 | 2"),
        (&["a = 1", "b = a", "b += 1", "a"], " | 0 | 1 | 0"),
        (
            &["rows = [[]]", "for r in rows: r.append(1)", "rows"],
            " | 0 | 1",
        ),
        (
            &["def f(): return x", "x = 1", "f()", "x = 2"],
            " |  | 0,1 | ",
        ),
        (
            &["def f(a): a.append(1)", "xs = []", "f(xs)", "xs"],
            " |  | 0,1 | 2",
        ),
        (
            &["def f(a): return a[0]", "xs = []", "f(xs)", "xs"],
            " |  | 0,1 | 1",
        ),
        (
            &["xs = []", "def f(): xs.append(1)", "f()", "xs"],
            " |  | 0,1 | 2",
        ),
        (
            &["def f():\n    global x\n    x = 1", "f()", "x"],
            " | 0 | 1",
        ),
        (
            &[
                "class A:\n    def get(self): return k",
                "k = 1",
                "a = A()",
                "a.get()",
            ],
            " |  | 0,1 | 1,2",
        ),
        (
            &[
                "class A:\n    def add(self, x): self.x = x\n    def get(self): return self.x",
                "a = A()",
                "a.add(1)",
                "a.get()",
                "a",
            ],
            " | 0 | 1 | 2 | 2",
        ),
        (
            &["import numpy as np", "np.mean(1)", "np.random.shuffle(xs)"],
            " | 0 | 0",
        ),
        (
            &[
                "import matplotlib.pyplot as plt",
                "plt.rcParams['a'] = 1",
                "plt.plot()",
            ],
            " | 0 | 1",
        ),
        (
            &["it = iter([1])", "next(it)", "list(it)", "it"],
            " | 0 | 1 | 2",
        ),
        (
            &["import random", "xs = [1]", "random.shuffle(xs)", "xs"],
            " |  | 0,1 | 2",
        ),
        (&["x = 1", "del x", "x"], " | 0 | "),
        (
            &["x = 1", "%%bash -s \"$x\" --out o\necho $1", "o"],
            " | 0 | 1",
        ),
        (&["x = 1", "%%writefile {x}.txt\ny", "x"], " | 0 | 0"),
        (
            &["def g(): return x", "def f(): return g()", "x = 1", "f()"],
            " |  |  | 0,1,2",
        ),
        (
            &[
                "def make():\n    n = 0\n    def up():\n        nonlocal n\n        n += 1\n        return n\n    return up",
                "up = make()",
                "up()",
                "up()",
            ],
            " | 0 | 1 | 2",
        ),
        (
            &[
                "handlers = []",
                "def f(): return x",
                "handlers.append(f)",
                "x = 1",
                "handlers[0]()",
            ],
            " |  | 0,1 | | 2,3",
        ),
    ] {
        let wanted = wanted.replace("| |", "|  |");
        assert_eq!(needs(cells), wanted, "{cells:?}");
    }
}

#[test]
fn unknown_effects_have_their_line() {
    for (text, line) in [
        ("x = 1\nexec('x = 2')", 2),
        ("globals()['x'] = 1", 1),
        ("from os.path import *", 1),
        ("\n%run other.py", 2),
        ("%%unknown\nx", 1),
        ("%unknown x", 1),
        ("import time\n\nt = time.time()", 3),
        ("import numpy as np\nx = np.random.rand(3)", 2),
        ("open('a')", 1),
        ("_ + 1", 1),
        ("import torch\na = [1]\nb = torch.Adam(a)\nb.step()", 4),
    ] {
        let graph = graph(&[text]);
        let unknown = &graph.cells()[0].unknown;
        assert_eq!(
            unknown.iter().map(|it| it.0).collect::<Vec<_>>(),
            [line],
            "{text}: {unknown:?}"
        );
    }
    for text in [
        "x = [1]\ny = x + x\ny.append(1)",
        "import numpy as np\nx = np.zeros(3)\nx[0] = 1",
    ] {
        assert_eq!(graph(&[text]).cells()[0].unknown, [], "{text}");
    }
}

#[test]
fn broken_and_strange_cells_are_islands() {
    let deep = "(".repeat(100_000);
    let long = "x = [\n".to_owned() + &"  -1.5, [2, 3], 'a' + 'b',\n".repeat(40_000) + "]";
    let chain = "1+".repeat(50_000) + "1";
    let cells = [
        "x = 1",
        "print 'two'",
        "def f(:",
        &deep,
        &chain,
        &long,
        "\0",
        "\u{feff}x",
        "y = x",
        // The parser panics on this one.
        "[)\n,",
    ];
    let graph = graph(&cells);
    let broken: Vec<_> = graph
        .cells()
        .iter()
        .map(|cell| cell.problem.is_some())
        .collect();
    assert_eq!(
        broken,
        [
            false, true, true, true, true, false, true, false, false, true
        ]
    );
    assert_eq!(graph.needs(8), BTreeSet::from([5]));
    assert_eq!(graph.cells()[1].problem.as_ref().unwrap().line, 1);
}

/// What was followed before is not followed again, and gives the same.
#[test]
fn a_cache_changes_no_answer() {
    let texts = ["x = [1]", "y = x", "x.append(2)", "y", "x = 5", "del y"];
    let mut random = 7_u64;
    let mut below = |end: usize| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) as usize % end
    };
    let mut cache = EffectsCache::default();
    let mut runs: Vec<PastRun> = Vec::new();
    let ids = ["a", "b", "c", "d"];
    let mut sources = ["x = [1]", "y = x", "x.append(2)", "y"];
    for step in 0..400 {
        match below(12) {
            0 => sources[below(4)] = texts[below(6)],
            1 if step % 3 == 0 => runs.truncate(below(runs.len() + 1)),
            2 => runs.push(PastRun {
                cell: None,
                code: (below(3) > 0).then(|| texts[below(6)].to_owned()),
                end: End::Whole,
            }),
            _ => {
                let at = below(4);
                runs.push(PastRun {
                    cell: Some(ids[at].to_owned()),
                    code: Some(sources[at].to_owned()),
                    end: [End::Whole, End::Whole, End::Failed][below(3)],
                });
            }
        }
        let cells: Vec<_> = ids.into_iter().zip(sources).collect();
        let cached = Graph::of(&cells, &runs, &mut cache);
        let fresh = Graph::of(&cells, &runs, &mut EffectsCache::default());
        let stale = |graph: &Graph| -> Vec<_> {
            graph
                .cells()
                .iter()
                .map(|cell| cell.stale.clone())
                .collect()
        };
        assert_eq!(stale(&cached), stale(&fresh), "{step}");
        assert_eq!(cached.plan_stale(), fresh.plan_stale(), "{step}");
        if runs.len() > 40 {
            runs.clear();
        }
    }
}

/// Returns the names that are doubtful after the stale cells have run, where each cell ran, and the last one twice.
fn doubtful(cells: &[&str]) -> String {
    let ids: Vec<String> = (0..cells.len()).map(|at| at.to_string()).collect();
    let cells: Vec<_> = ids
        .iter()
        .map(String::as_str)
        .zip(cells.iter().copied())
        .collect();
    let run = |(id, code): &(&str, &str)| PastRun {
        cell: Some((*id).to_owned()),
        code: Some((*code).to_owned()),
        end: End::Whole,
    };
    let runs: Vec<_> = cells.iter().chain(cells.last()).map(run).collect();
    let graph = Graph::of(&cells, &runs, &mut EffectsCache::default());
    words(graph.plan_stale().doubtful.keys())
}

#[test]
fn the_holder_of_an_object_changes_with_it() {
    for list in ["[x]", "[x, x]", "[x, 1]", "{'a': x}", "(x,)"] {
        let text = format!("m = {list}");
        let graph = graph(&["x = [3]", &text, "x.append(1)", "m"]);
        assert_eq!(
            graph.needs(3).into_iter().collect::<Vec<_>>(),
            [2],
            "{list}"
        );
    }
    let graph = graph(&["x = [3]", "m = []\nm.append(x)", "x += [1]", "len(m)"]);
    assert_eq!(graph.needs(3).into_iter().collect::<Vec<_>>(), [2]);
    // A list of the same objects does not change with the other list.
    let graph = self::graph(&["x = [[3]]", "m = list(x)", "x.append(1)", "len(m)"]);
    assert_eq!(graph.needs(3).into_iter().collect::<Vec<_>>(), [1]);
}

#[test]
fn an_item_may_be_an_object_that_has_a_name() {
    for change in [
        "for row in m:\n    row.append(1)",
        "row = m[0]\nrow.append(1)",
        "row = m[0]\nrow[0] = 1",
        "def f(rows):\n    for row in rows:\n        row.append(1)\nf(m)",
        "m[0].append(1)",
    ] {
        let names = doubtful(&["x = [3]", "m = [x]", change]);
        assert!(names.contains('x'), "{change}: {names}");
    }
    // A copy has the same items.
    let names = doubtful(&[
        "x = [3]",
        "m = [x]",
        "c = list(m)",
        "for row in c:\n    row.append(1)",
    ]);
    assert!(names.contains('x'), "{names}");
    assert_eq!(doubtful(&["x = [3]", "m = [x]", "m.append(1)"]), "");
    // What may have changed has other names too.
    let names = doubtful(&[
        "x = [3]",
        "m = [x]",
        "y = x",
        "for row in m:\n    row.append(1)",
    ]);
    assert!(names.contains('x') && names.contains('y'), "{names}");
    // It perhaps holds it.
    for list in ["[y for y in [x]]", "[f(x)]"] {
        let text = format!("m = {list}");
        let names = doubtful(&["from a import f", "x = [3]", &text, "x.append(1)"]);
        assert!(names.contains('m'), "{list}: {names}");
    }
}

#[test]
fn a_shallow_copy_has_the_same_items() {
    for copy in ["a.copy()", "copy.copy(a)", "list(a)"] {
        let text = format!("b = {copy}");
        let names = doubtful(&["import copy", "a = [[1]]", &text, "b[0].append(1)"]);
        assert!(names.contains('a'), "{copy}: {names}");
        assert_eq!(
            doubtful(&["import copy", "a = [[1]]", &text, "b.append(1)"]),
            "",
            "{copy}"
        );
    }
    let names = doubtful(&["a = {'k': [1]}", "b = a.copy()", "b['k'].append(1)"]);
    assert!(names.contains('a'), "{names}");
    let copies = ["df = f()", "b = df.copy()", "b.loc[0, 'x'] = 1"];
    assert_eq!(doubtful(&copies), "", "pandas copies all");
}

/// Runs all cells, gives one another text, and runs what is planned: returns the graph then.
fn after_edit(cells: &[&str], edited: usize, text: &str) -> Graph {
    let ids: Vec<String> = (0..cells.len()).map(|at| at.to_string()).collect();
    let run = |(id, code): &(&str, &str)| PastRun {
        cell: Some((*id).to_owned()),
        code: Some((*code).to_owned()),
        end: End::Whole,
    };
    let ids = ids.iter().map(String::as_str);
    let mut cells: Vec<_> = ids.zip(cells.iter().copied()).collect();
    let mut runs: Vec<_> = cells.iter().map(run).collect();
    cells[edited].1 = text;
    let graph = Graph::of(&cells, &runs, &mut EffectsCache::default());
    let plan = graph.plan_stale();
    runs.extend(plan.cells.iter().map(|it| run(&cells[it.cell])));
    Graph::of(&cells, &runs, &mut EffectsCache::default())
}

#[test]
fn a_value_that_an_earlier_run_may_have_left_is_uncertain_and_not_stale() {
    for perhaps in [
        "for i in c:\n    v = i",
        "if c:\n    v = 1",
        "while c:\n    v = 1",
        "try:\n    v = int(c)\nexcept ValueError:\n    pass",
        "[(v := i) for i in c]",
    ] {
        let graph = after_edit(&["c = '1'", perhaps, "w = v", "x = w"], 0, "c = '2'");
        let stale: Vec<_> = graph.cells().iter().map(|cell| &cell.stale).collect();
        assert!(stale.iter().all(|it| it.is_none()), "{perhaps}: {stale:?}");
        let plan = graph.plan_stale();
        assert_eq!(plan.cells, [], "{perhaps}");
        let names = words(plan.doubtful.keys());
        assert!(
            ["v", "w", "x"].iter().all(|it| names.contains(it)),
            "{perhaps}: {names}"
        );
    }
    let texts = [
        "from math import *",
        "c = 1",
        "print(pi, c)",
        "%run other.py",
    ];
    let graph = after_edit(&texts, 1, "c = 2");
    assert!(graph.cells().iter().all(|cell| cell.stale.is_none()));
    // A cell above certainly writes it: running both makes it certain.
    let texts = ["c = 1", "v = 0", "if c:\n    v = 1", "w = v"];
    let plan = after_edit(&texts, 0, "c = 0").plan_stale();
    assert_eq!(
        (plan.cells, words(plan.doubtful.keys())),
        (Vec::new(), String::new())
    );
    // The earlier value is another cell's, which ran since.
    let texts = ["v = 0", "if c:\n    v = 1", "w = v"];
    let cells: Vec<_> = ["a", "b", "c"].into_iter().zip(texts).collect();
    let run = |at: usize| PastRun {
        cell: Some(cells[at].0.to_owned()),
        code: Some(cells[at].1.to_owned()),
        end: End::Whole,
    };
    let runs = [run(0), run(1), run(0), run(2)];
    let graph = Graph::of(&cells, &runs, &mut EffectsCache::default());
    assert!(graph.cells()[2].stale.is_some());
}

#[test]
fn a_decorator_is_called() {
    let register = "def on(it):\n    known[it.__name__] = it\n    return it";
    for decorated in ["@on\ndef it(): return 1", "@on\nclass it: pass"] {
        let cells = ["known = {}", register, decorated, "v = known['it']()"];
        assert_eq!(needs(&cells), " |  | 0,1 | 2", "{decorated}");
    }
    let keeps = "def on(f):\n    v = k\n    return lambda: v";
    let cells = [keeps, "k = 1", "@on\ndef g(): pass", "n = g()"];
    assert!(
        needs(&cells).starts_with(" |  | 0,1 | "),
        "{}",
        needs(&cells)
    );
    // It may call its function.
    let cells = ["from lib import on", "k = 1", "@on(2)\ndef g(): return k"];
    assert_eq!(needs(&cells), " |  | 0,1");
    // These do not.
    for decorator in ["dataclass", "dataclass(frozen=True)"] {
        let class = format!("@{decorator}\nclass A:\n    @property\n    def v(self): return k");
        let cells = ["from dataclasses import dataclass", "k = 1", &class];
        assert_eq!(needs(&cells), " |  | 0", "{decorator}");
    }
}

#[test]
fn a_function_whose_results_are_kept_depends_on_what_it_reads() {
    for decorator in [
        "lru_cache",
        "functools.lru_cache(maxsize=None)",
        "memory.cache",
    ] {
        let function = format!("@{decorator}\ndef f(x): return x + k");
        let imports = "import functools\nfrom functools import lru_cache\nfrom a import memory";
        let above = graph(&[imports, "k = 1", &function, "a = f(1)"]);
        assert!(above.needs(2).contains(&1), "{decorator}");
        assert_eq!(above.cells()[3].unknown, [], "{decorator}");
        // If the name is given its value below, the function is not made anew.
        let below = graph(&[imports, &function, "k = 1", "a = f(1)"]);
        assert_eq!(below.cells()[3].unknown.len(), 1, "{decorator}");
    }
}

#[test]
fn special_methods_and_properties_may_change_names() {
    let class = |method: &str| {
        format!("class P:\n    n = 0\n    {method}\n        log.append(1)\n        return 'x'")
    };
    for (method, used) in [
        ("def __getitem__(self, at):", "q = p[1]"),
        ("@property\n    def v(self):", "q = p.v"),
        ("def __add__(self, other):", "q = p + 1"),
        ("def __len__(self):", "q = len(p)"),
        ("def __iter__(self):", "q = [i for i in p]"),
        ("def __str__(self):", "q = f'{p}'"),
        ("def __getattr__(self, name):", "q = p.other"),
    ] {
        let graph = graph(&["log = []", &class(method), "p = P()", used, "n = len(log)"]);
        assert!(graph.cells()[3].changes.contains("log"), "{method}");
        assert!(graph.needs(4).contains(&3), "{method}");
        let other = self::graph(&[
            "log = []",
            &class(method),
            "p = P()",
            "q = isinstance(1, P)",
        ]);
        assert!(other.cells()[3].changes.is_empty(), "{method}");
    }
    let texts = [&*class("@property\n    def v(self):"), "p = P()", "q = p.n"];
    let graph = graph(&[&["log = []"], &texts[..]].concat());
    assert!(graph.cells()[3].changes.is_empty(), "another attribute");
    let counts =
        "class P:\n    @property\n    def v(self):\n        self.n += 1\n        return self.n";
    let graph = self::graph(&[counts, "p = P()", "q = p.v"]);
    assert!(graph.cells()[2].changes.contains("p"));
}

#[test]
fn a_query_reads_the_names_in_its_text() {
    for (text, wanted) in [
        ("df.query('a > @limit and b')", "0,2"),
        ("df.query(f'{col} > @limit')", "0,2,3"),
        ("df[df.x].query(expr='@limit < a')", "0,2"),
        ("df.eval('c = a * @limit')", "0,2"),
        ("pd.eval('limit + 1')", "0,1"),
        ("df.query('limit > 1')", "2"),
        ("[df.query('a > @limit') for limit in [1]]", "2"),
    ] {
        let cells = [
            "limit = 1",
            "import pandas as pd",
            "df = f()",
            "col = 'a'",
            text,
        ];
        let graph = graph(&cells);
        let needs: Vec<_> = graph.needs(4).iter().map(usize::to_string).collect();
        assert_eq!(needs.join(","), wanted, "{text}");
        assert_eq!(graph.cells()[4].unknown, [], "{text}");
    }
    let unknown = &graph(&["text = 'a > @k'", "df = f()", "df.query(text)"]);
    assert_eq!(unknown.cells()[2].unknown.len(), 1);
}

#[test]
fn an_iterator_is_as_doubtful_as_the_names_that_it_reads() {
    let names = doubtful(&[
        "n = 1",
        "i = (x + n for x in [1])",
        "import random\nn = random.random()",
    ]);
    assert!(names.contains('i'), "{names}");
}

/// Functions of which each calls others several times, so that following each call would take as many steps as there are
/// ways through them.
fn functions_that_call_others_often() -> Vec<(&'static str, Vec<String>)> {
    let lines = |lines: Vec<String>| lines.join("\n");
    let chain = |one: &str| -> Vec<String> {
        let first = one.replace("F", "0").replace("X + X + X", "k");
        let others = (1..20).map(|at| {
            let before = one.replace("X", &format!("f{}(x)", at - 1));
            before.replace("F", &at.to_string())
        });
        [first].into_iter().chain(others).collect()
    };
    let called = |cells: Vec<String>| {
        [
            vec!["k = 1".to_owned()],
            cells,
            vec!["v = f19(1)".to_owned()],
        ]
    };
    let of_cells = called(chain("def fF(x): return X + X + X")).concat();
    let lambdas = called(vec![lines(chain("fF = lambda x: X + X + X"))]).concat();
    let bind = "def fF(x):\n    global g\n    g = 1\n    del g\n    return X + X + X";
    let that_bind = called(vec![lines(chain(bind))]).concat();
    let passed = called(vec![lines(chain(
        "def fF(x): return map(lambda x: X + X + X, x)",
    ))])
    .concat();
    let ring = (0..100).map(|at| {
        let next = (at + 1) % 100;
        format!("def f{at}(x): return f{next}(x) + f{next}(x) + k")
    });
    let ring = called(vec![lines(ring.collect())]).concat();
    let all = (0..16).map(|at| {
        let calls: Vec<_> = (0..16).map(|other| format!("f{other}(x)")).collect();
        format!("def f{at}(x): return k + {}", calls.join(" + "))
    });
    let all = [
        vec!["k = 1".into()],
        vec![lines(all.collect())],
        vec!["v = f0(1)".into()],
    ]
    .concat();
    let methods = (1..33).map(|at| {
        format!(
            "    def m{at}(self): return self.m{0}() + self.m{0}()",
            at - 1
        )
    });
    let methods = lines(
        [
            vec!["class P:\n    def m0(self): return k".into()],
            methods.collect(),
        ]
        .concat(),
    );
    let methods = vec!["k = 1".into(), methods, "v = P().m32()".into()];
    // Each call has twice as many arguments that are the same object.
    let doubled = (1..40).map(|at| format!("def f{at}(x): return f{}(x + x)", at - 1));
    let doubled = lines([vec!["def f0(x): return k".into()], doubled.collect()].concat());
    let doubled = vec!["k = 1".into(), doubled, "v = f39([1])".into()];
    vec![
        ("a chain over cells", of_cells),
        ("lambdas", lambdas),
        ("functions that bind and delete a name", that_bind),
        ("functions that are passed on", passed),
        ("a ring", ring),
        ("all call all", all),
        ("methods", methods),
        ("the same object twice", doubled),
    ]
}

#[test]
fn a_function_that_many_calls_lead_to_is_followed_once() {
    for (what, cells) in functions_that_call_others_often() {
        let texts: Vec<_> = cells.iter().map(String::as_str).collect();
        let graph = graph(&texts);
        let last = &graph.cells()[cells.len() - 1];
        let is_any = last
            .unknown
            .iter()
            .any(|(_, it)| matches!(it, Unknown::AnyName(_)));
        assert!(
            is_any || graph.needs(cells.len() - 1).contains(&0),
            "{what}: {last:?}"
        );
        // What was not followed is named as unknown.
        assert_eq!(is_any, what.contains("delete"), "{what}: {last:?}");
        assert!(
            graph.namespace_work() <= 200_000,
            "{what}: {}",
            graph.namespace_work()
        );
    }
}

/// The same function is another one when what it calls is bound anew.
#[test]
fn a_function_is_followed_again_once_what_it_calls_is_another() {
    for again in [
        "def g(): return b\nv = f() + f()",
        "g = lambda: b\nv = f() + f()",
        "def g(): return b\nv = [f(), f()]",
    ] {
        let text = format!("def g(): return a\ndef f(): return g()\nv = f() + f()\n{again}");
        let graph = graph(&["a = 1", "b = 1", &text]);
        assert_eq!(graph.needs(2), BTreeSet::from([0, 1]), "{again}");
    }
    let cells = [
        "xs = []",
        "ys = []",
        "def f(x): x.append(1)",
        "f(xs); f(ys); f(ys)",
        "xs, ys",
    ];
    assert_eq!(needs(&cells), " |  |  | 0,1,2 | 3");
    // Two functions that call each other, with other arguments each time.
    let text = "def f(x, y): g(y, x)\ndef g(x, y): f(x, y); x.append(1)\nf(xs, ys)";
    let graph = graph(&["xs = []", "ys = []", text, "xs, ys"]);
    assert_eq!(graph.needs(3), BTreeSet::from([2]));
    assert!(graph.cells()[2].changes.contains("xs") && graph.cells()[2].changes.contains("ys"));
}

#[test]
fn many_cells_are_followed() {
    // `NB_CELLS=20000` follows as many cells as a notebook may have.
    let count = std::env::var("NB_CELLS").ok();
    let count = count.and_then(|it| it.parse().ok()).unwrap_or(200);
    let numbered =
        |text: &dyn Fn(usize) -> String| -> Vec<String> { (0..count).map(text).collect() };
    for (what, texts) in [
        (
            "a chain",
            numbered(&|at| format!("x{at} = x{} + 1", at.max(1) - 1)),
        ),
        ("one list", numbered(&|_| "xs.append(len(xs))".to_owned())),
        (
            "one object with many names",
            numbered(&|at| format!("x{at} = x{}\nx{at}.append(1)", at.max(1) - 1)),
        ),
        (
            "what may be one object",
            numbered(&|at| {
                let first = "def f(x): return x\nx0 = []";
                match at {
                    0 => first.to_owned(),
                    _ => format!("x{at} = f(x{})\nx{at}.append(1)", at - 1),
                }
            }),
        ),
        (
            "any name",
            numbered(&|at| {
                if at % 2 == 0 {
                    "exec(code)".into()
                } else {
                    "print(y)".into()
                }
            }),
        ),
        (
            "a name that some leave",
            numbered(&|_| "if c: x = x + 1".to_owned()),
        ),
        (
            "functions",
            numbered(&|at| {
                format!(
                    "def f{at}(x): return f{}(x) + f{0}(x)\nf{at}(1)",
                    at.max(1) - 1
                )
            }),
        ),
        (
            "loops",
            numbered(&|at| format!("for i in xs{at}:\n    print(i)")),
        ),
    ] {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let started = std::time::Instant::now();
        let graph = graph(&texts);
        let took = started.elapsed();
        let work = graph.namespace_work();
        println!("{what}: {took:?}, {work} steps");
        let most = (1_100 * count as u64).min(2_200_000);
        assert!(work <= most, "{what}: {work} steps");
        assert_eq!(graph.cells().len(), count);
        let most = graph.cells().iter().flat_map(|cell| cell.reads.values());
        let most = most.map(Vec::len).max().unwrap_or_default();
        assert!(most <= 256, "{what}: a name is from {most} cells");
    }
}

#[test]
fn a_cancelled_analysis_ends() {
    let cancel = Cancel::default();
    let mut cache = EffectsCache::default();
    let cells = [("a", "x = 1"), ("b", "y = x")];
    let graph = Graph::until(&cells, &[], &mut cache, &cancel).unwrap();
    let request = PlanRequest {
        cells: BTreeSet::from([1]),
        ..PlanRequest::default()
    };
    assert_eq!(graph.plan(&request, &cancel).unwrap().cells.len(), 1);
    cancel.cancel();
    assert_eq!(graph.plan(&request, &cancel), Err(Cancelled));
    assert!(Graph::until(&cells, &[], &mut cache, &cancel).is_err());
}

/// Returns the cells that a run of one would run, with the cells that it needs or those that need it.
fn planned(cells: &[&str], runs: &[PastRun], request: &PlanRequest) -> Vec<usize> {
    let ids: Vec<String> = (0..cells.len()).map(|at| at.to_string()).collect();
    let ids = ids.iter().map(String::as_str);
    let cells: Vec<_> = ids.zip(cells.iter().copied()).collect();
    let graph = Graph::of(&cells, runs, &mut EffectsCache::default());
    let plan = graph.plan(request, &Cancel::default()).unwrap();
    plan.cells.iter().map(|it| it.cell).collect()
}

#[test]
fn the_cells_that_import_are_needed() {
    let imports = "import numpy as np\nfrom math import pi";
    let cells = [
        imports,
        "k = 2",
        "def f(x): return np.abs(x) * pi",
        "v = f(k)",
    ];
    let upstream = |cell: usize| PlanRequest {
        cells: BTreeSet::from([cell]),
        with_upstream: true,
        ..PlanRequest::default()
    };
    // A kernel that has run nothing.
    assert_eq!(planned(&cells, &[], &upstream(3)), [0, 1, 2, 3]);
    assert_eq!(planned(&cells, &[], &upstream(1)), [1]);
    let run = |at: usize, text: &str| PastRun {
        cell: Some(at.to_string()),
        code: Some(text.to_owned()),
        end: End::Whole,
    };
    let runs: Vec<_> = (0..).zip(cells).map(|(at, text)| run(at, text)).collect();
    assert_eq!(planned(&cells, &runs, &upstream(3)), [3]);
    let downstream = PlanRequest {
        cells: BTreeSet::from([0]),
        with_downstream: true,
        ..PlanRequest::default()
    };
    let edited = [
        "import jax.numpy as np\nfrom math import pi",
        cells[1],
        cells[2],
        cells[3],
    ];
    assert_eq!(planned(&edited, &runs, &downstream), [0, 3]);
    // One more import changes none that was there.
    let longer = "import numpy as np\nfrom math import pi\nimport os";
    let longer = [longer, cells[1], cells[2], cells[3]];
    let stale = PlanRequest {
        cells: (0..4).collect(),
        only_stale: true,
        ..PlanRequest::default()
    };
    assert_eq!(planned(&longer, &runs, &stale), [0]);
    assert_eq!(planned(&edited, &runs, &stale), [0, 3]);
    // Other code has overwritten it.
    let mut overwritten = runs;
    overwritten.push(PastRun {
        cell: None,
        ..run(0, "np = None")
    });
    assert_eq!(planned(&cells, &overwritten, &upstream(3)), [0, 3]);
    assert_eq!(planned(&cells, &overwritten, &stale), [0]);
}

/// Each cell that may write any name adds one to the list of those that did: it must not copy the list.
#[test]
fn many_cells_that_may_write_any_name_are_followed() {
    let mut texts = vec!["exec(code)"; 20_000];
    texts.push("x");
    let graph = graph(&texts);
    let reads = &graph.cells()[20_000].reads;
    let from = reads.values().next().expect("it reads x");
    assert_eq!((from.last(), from.len()), (Some(&19_999), 256));
}

#[test]
fn a_name_is_defined_nowhere_only_if_no_cell_may_give_it_a_value() {
    for (cells, expected) in [
        (&["print(x, len(y))"][..], "x y"),
        (&["def f(): return x\nf()"], "x"),
        (&["def f(): return x"], ""),
        // A cell below does, which is another fault.
        (&["print(x, z)", "x = 1"], "z"),
        (&["print(x)", "for x in []: pass"], ""),
        (&["print(x)", "import x"], ""),
        (&["del x", "print(x)"], "x x"),
        (&["x = 1", "del x", "print(x)"], ""),
        // These may, wherever they are.
        (&["print(x)", "from a import *"], ""),
        (&["exec(code)", "print(x)"], ""),
        (&["print(x)", "x = = 1"], ""),
        (&["%run other.py", "print(x)"], ""),
        // These may not.
        (&["%matplotlib inline\nprint(x)", "open('f')"], "x"),
        (&["try: x\nexcept NameError: pass"], "x"),
    ] {
        let graph = graph(cells);
        let all = (0..cells.len()).flat_map(|cell| graph.defined_nowhere(cell));
        assert_eq!(words(all), expected, "{cells:?}");
    }
}
