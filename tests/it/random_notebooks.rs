//! Random notebooks with random edits and runs, the same for the same seed.

use std::collections::BTreeMap;

/// Small random numbers, the same for the same seed.
pub struct Random(u64);

impl Random {
    /// Returns the random numbers of a seed.
    pub fn of_seed(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % end
    }

    fn of<'a>(&mut self, all: &[&'a str]) -> &'a str {
        all[self.below(all.len())]
    }
}

/// Statements, with a name's kind in place of the name: N a number, L a list of numbers, M a list of lists, D a
/// dictionary, F a function of a number, G one that F may call, O an object, I an iterator.
const STATEMENTS: &[&str] = &[
    "N = 7",
    "N = N + 3",
    "N = N * N % 97",
    "N = len(L)",
    "N = sum(L)",
    "N += N",
    "N -= 1",
    "N, N = N, N",
    "N = F(N)",
    "N = G(2)",
    "F(N)",
    "N = [F(i) for i in L][-1] if L else 0",
    "for i in range(3):\n    N += i",
    "for i in L[:2]:\n    N = i",
    "for x in L:\n    if x % 2:\n        N = x\n        break",
    "if N % 2:\n    N = 5",
    "if N > 3:\n    N = 1\nelse:\n    N = 2",
    "while N > 10:\n    N -= 7",
    "N = D.get('k', 0)",
    "N = (N := N % 5) + 1",
    "try:\n    N = L[7]\nexcept IndexError:\n    N = -1",
    "try:\n    N = 1 // (N % 2)\nexcept ZeroDivisionError as e:\n    L = [4]",
    "match N % 3:\n    case 0:\n        N = 10\n    case k:\n        N = k",
    "N = max(L, default=0)",
    "print(N, L)",
    "assert N is not None",
    "L = [N, N]",
    "L = [1, 2, 3]",
    "L = L",
    "L = list(L)",
    "L = L[:]",
    "L = [i * 2 for i in L]",
    "L = [i + N for i in range(3)]",
    "L = sorted(L, key=F)",
    "L = list(map(F, L))",
    "L = L + [N]",
    "L.append(N)",
    "L += [N]",
    "L[:1] = [N]",
    "L.sort()",
    "L = (lambda a: a)(L)",
    "L = L if N % 2 else L",
    "L = [y for x in M for y in x]",
    "M = [L, L]",
    "M = [[1], [2, 3]]",
    "M[0].append(N)",
    "for row in M:\n    row.append(N)",
    "L = M[0]",
    "M.append([N])",
    "D = {'k': N}",
    "D = dict(a=N, k=2)",
    "D['k'] = N",
    "D.update(a=N)",
    "D = D",
    "D['l'] = L",
    "N = D.setdefault('z', N)",
    "D = {k: v for k, v in D.items() if k != 'z'}",
    "def F(x):\n    return x + N",
    "def F(x):\n    return x * 2",
    "def F(x):\n    if len(L) < 40:\n        L.append(x)\n    return x",
    "def F(x, y=N):\n    return x + y",
    "def F(x):\n    return G(x) + 1",
    "def F(x):\n    N = x\n    return N + 1",
    "def F(x):\n    global N\n    N = x\n    return x",
    "def F(x):\n    if x > 3:\n        return N\n    return 0",
    "def F(x):\n    return sum(i for i in range(x % 5) if i != N)",
    "F = lambda x: x + N",
    "F = G",
    "def G(x):\n    return x - 1",
    "def G(x, seen=[]):\n    seen.append(x)\n    return len(seen)",
    "def G(x):\n    return x + N",
    "def make():\n    c = 0\n    def inc(x):\n        nonlocal c\n        c += x\n        return c\n    return inc\nG = make()",
    "def make(n):\n    return lambda x: x + n + N\nG = make(N)",
    "class A:\n    v = N\n    def get(self):\n        return self.v + N\n    def add(self, x):\n        self.v = self.v + x\n        return self.v\nO = A()",
    "class B:\n    v = [1]\n    def get(self):\n        return len(self.v)\n    def add(self, x):\n        self.v.append(x)\n        return x\nO = B()",
    "O = A()",
    "N = O.get()",
    "O.add(N)",
    "O.v = N",
    "O = O",
    "A.v = N",
    "I = iter(L)",
    "N = next(I, 0)",
    "I = (x + N for x in L)",
    "N = sum(I)",
    "import math\nN = math.floor(N / 2)",
    "from math import floor as fl\nN = fl(N / 3)",
    "del N",
    "%time N = N + 1",
    "N = len([N for N in L])",
];

/// Statements whose effects no analysis can know.
const UNKNOWABLE: &[&str] = &[
    "exec('N = 5')",
    "globals()['N'] = 3",
    "import random\nN = random.randint(0, 9)",
    "from math import *",
    "N = eval('N + 1')",
];

/// Statements with effects that their text does not show. Further kinds: C a function of a number that may be a method
/// or a closure, V a view, B bytes that can change, R a dictionary of functions, H a list of functions, P a file.
const INDIRECT: &[&str] = &[
    "C = L.append",
    "C = O.add",
    "C = F",
    "C = lambda x, held=L: held.append(x)",
    "C = lambda x: L.append(x + N)",
    "C = (lambda held: lambda x: held.append(x))(L)",
    "from functools import partial\nC = partial(list.append, L)",
    "from functools import partial\nC = partial(F)",
    "def make_adder(held):\n    def add(x):\n        held.append(x)\n        return x\n    return add\nC = make_adder(L)",
    "def make_counter():\n    count = N\n    def add(x):\n        nonlocal count\n        count += x\n        return count\n    return add\nC = make_counter()",
    "C(N)",
    "C(2)",
    "N = C(N) or 1",
    "list(map(C, [N]))",
    "for x in [1, 2]:\n    C(x)",
    "list.append(L, N)",
    "dict.update(D, a=N)",
    "type(O).add(O, N)",
    "getattr(L, 'append')(N)",
    "from functools import reduce\nN = len(reduce(lambda held, x: held.append(x) or held, [N], L))",
    "(lambda held: held.append(N))(L)",
    "def change(held, value):\n    def inner():\n        held.append(value)\n    inner()\nchange(L, N)",
    "def make_class(start):\n    class Inner:\n        total = start\n        def add(self, x):\n            Inner.total += x\n            return Inner.total\n        def get(self):\n            return Inner.total\n    return Inner\nO = make_class(N)()",
    "class Holder:\n    def __init__(self, held):\n        self.held = held\n    def add(self, x):\n        self.held.append(x)\n        return x\n    def get(self):\n        return len(self.held)\nO = Holder(L)",
    "def numbers(held):\n    for x in held:\n        yield x + N\nI = numbers(L)",
    "def taking(held):\n    while held:\n        yield held.pop()\nI = taking(L)",
    "I = map(F, L)",
    "I = (held.append(N) or N for held in [L])",
    "N = next(I, 1)",
    "list(I)",
    "V = D.keys()",
    "V = D.items()",
    "V = memoryview(B)",
    "V = memoryview(B)[1:]",
    "N = len(V)",
    "if isinstance(V, memoryview):\n    V[0] = N % 100",
    "B = bytearray([1, 2, 3, 4])",
    "B[0] = N % 200",
    "N = sum(B)",
    "L = list(B)",
    "M = [L, *M[:1]]",
    "L = D.setdefault('l', L)",
    "O.kept = L",
    "L = getattr(O, 'kept', L)",
    "row = next(r for r in M)\nrow.append(N)",
    "next(r for r in [*M, L]).append(N)",
    "for held in (L, L):\n    held.append(N)",
    "with open('P', 'w') as out:\n    out.write(str(N))",
    "with open('P', 'a') as out:\n    out.write(str(N))",
    "with open('P') as file:\n    N = len(file.read())",
    "with open('P') as file:\n    L = [len(line) for line in file]",
    "from pathlib import Path\nPath('P').write_text(str(L))",
    "from pathlib import Path\nN = len(Path('P').read_text())",
    "import json\njson.dump(N, open('P', 'w'))",
    "on(F)",
    "@on\ndef hook(x):\n    return x + N",
    "@on\ndef hook(x):\n    L.append(x)\n    return len(L)",
    "@on\nclass hook:\n    def __init__(self, x):\n        L.append(x)",
    "N = len([R[k](N) for k in R])",
    "N = len(R)",
    "R['f'] = F",
    "if 'hook' in R:\n    R['hook'](N)",
    "H.append(F)",
    "H.append(L.append)",
    "H.append(lambda x: x + N)",
    "for f in H:\n    f(N)",
    "N = len([f(1) for f in H])",
    "H.clear()",
    "L.clear()",
    "del L[:1]",
    "D.pop('k', None)",
    "R.pop('hook', None)",
    "del N\nN = 4",
    "exec('L.append(1)')",
    "eval('L.append(N)')",
    "globals()['L'].append(N)",
];

/// The statements that a notebook is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kinds {
    /// Those whose text shows what they do, for the most part.
    Plain,
    /// Half of them have effects that their text does not show, and more cells are removed and moved.
    Indirect,
}

/// What the first cell gives a value, too, for [`INDIRECT`].
const FIRST_INDIRECT: &str = "\nc1 = l1.append\nc2 = f1\nv1 = d1.keys()\nb1 = bytearray([1, 2, 3])\nr1 = {}\nh1 = [f1]\n\
    def on(f):\n    r1[f.__name__] = f\n    return f\n\
    for name in ('one.txt', 'two.txt'):\n    with open(name, 'w') as out:\n        out.write('1')";

/// A cell that gives all names a value.
const FIRST: &str = "n1, n2, n3, n4 = 1, 2, 3, 4\nl1 = [1, 2]\nl2 = [3]\nl3 = [5]\nm1 = [[1], [2]]\nm2 = [[3]]\nd1 = {'k': 1}\nd2 = {}\n\
    def f1(x):\n    return x + 1\ndef f2(x):\n    return x * 3\ndef g1(x):\n    return x\n\
    class A:\n    v = 1\n    def get(self):\n        return self.v\n    def add(self, x):\n        self.v += x\n\
    o1 = A()\no2 = A()\ni1 = iter([1, 2, 3])";

fn statement(random: &mut Random, kinds: Kinds) -> String {
    let template = match random.below(60) {
        0 => random.of(UNKNOWABLE),
        1.. if kinds == Kinds::Indirect && random.below(2) == 0 => random.of(INDIRECT),
        _ => random.of(STATEMENTS),
    };
    let mut text = String::new();
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let mut before = None;
    // A function's template means the same name wherever it is repeated after `def` or `global`.
    let mut chosen: BTreeMap<char, &str> = BTreeMap::new();
    let is_bound = ["global", "while", "len(L) <", "N = x\n    return N"]
        .iter()
        .any(|word| template.contains(word));
    let mut letters = template.chars().peekable();
    while let Some(letter) = letters.next() {
        let names: &[&str] = match letter {
            'N' => &["n1", "n2", "n3", "n4"],
            'L' => &["l1", "l2", "l3"],
            'M' => &["m1", "m2"],
            'D' => &["d1", "d2"],
            'F' => &["f1", "f2"],
            'G' => &["g1"],
            'O' => &["o1", "o2"],
            'I' => &["i1"],
            'C' if kinds == Kinds::Indirect => &["c1", "c2"],
            'V' if kinds == Kinds::Indirect => &["v1"],
            'B' if kinds == Kinds::Indirect => &["b1"],
            'R' if kinds == Kinds::Indirect => &["r1"],
            'H' if kinds == Kinds::Indirect => &["h1"],
            'P' if kinds == Kinds::Indirect => &["one.txt", "two.txt"],
            _ => &[],
        };
        if names.is_empty() || is_word(before) || is_word(letters.peek().copied()) {
            text.push(letter);
        } else {
            let name = random.of(names);
            let name = match is_bound {
                true => chosen.entry(letter).or_insert(name),
                false => name,
            };
            text.push_str(name);
        }
        before = Some(letter);
    }
    text
}

fn cell(random: &mut Random, kinds: Kinds) -> String {
    let count = 1 + random.below(3);
    let statements: Vec<_> = (0..count).map(|_| statement(random, kinds)).collect();
    statements.join("\n")
}

/// A notebook with what was done to it.
pub struct Notebook {
    /// The cells as they are in the end, with their ids.
    pub cells: Vec<(String, String)>,
    /// The cells that were run, by id, with their text then.
    pub runs: Vec<(Option<String>, String)>,
}

/// Makes a notebook.
pub fn notebook(random: &mut Random, kinds: Kinds) -> Notebook {
    let mut first = FIRST.to_owned();
    if kinds == Kinds::Indirect {
        first += FIRST_INDIRECT;
    }
    let mut cells = vec![("c0".to_owned(), first)];
    let count = 2 + random.below(7);
    cells.extend((1..=count).map(|at| (format!("c{at}"), cell(random, kinds))));
    let mut runs: Vec<_> = cells
        .iter()
        .map(|(id, text)| (Some(id.clone()), text.clone()))
        .collect();
    if random.below(6) == 0 {
        runs.truncate(1 + random.below(runs.len()));
    }
    for at in 0..=random.below(5) {
        // The first cell stays: the others would only fail.
        let place = 1 + random.below(cells.len() - 1);
        let removes_and_moves = kinds == Kinds::Indirect && random.below(4) == 0;
        match random.below(12) {
            at if removes_and_moves && at < 6 && cells.len() > 3 => drop(cells.remove(place)),
            _ if removes_and_moves => {
                let moved = cells.remove(place);
                cells.insert(1 + random.below(cells.len()), moved);
            }
            0..4 => runs.push((Some(cells[place].0.clone()), cells[place].1.clone())),
            4..8 => cells[place].1 = cell(random, kinds),
            8 => cells.insert(place, (format!("new{at}"), cell(random, kinds))),
            9 if cells.len() > 3 => {
                cells.remove(place);
            }
            10 => {
                let other = 1 + random.below(cells.len() - 1);
                cells.swap(place, other);
            }
            _ => runs.push((None, statement(random, kinds))),
        }
    }
    Notebook { cells, runs }
}
