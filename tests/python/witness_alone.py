"""What the witness says of cells, under this Python, without IPython. The argument is its text's file.

Each case has cells, and what the last one is to be said of: the kinds of its writes, and names that it must have read.
"""

import os
import sys
import tempfile

WITNESS = {"__name__": "nb_witness"}
with open(sys.argv[1]) as file:
    exec(compile(file.read(), "nb_witness", "exec"), WITNESS)
# However slow this machine is, all is looked at.
WITNESS["SECONDS"] = 60

CASES = {
    "a method under another name": (["a = []", "f = a.append", "f(1)"], {"a": "changed", "f": "changed"}, "f"),
    "a method of a class": (["a = []", "list.append(a, 1)"], {"a": "changed"}, "a"),
    "a method by its name": (["a = []", "getattr(a, 'append')(1)"], {"a": "changed"}, "a"),
    "a lambda in a function": (["a = []\ndef f(l):\n    (lambda x: x.append(1))(l)", "f(a)"], {"a": "changed"}, "f"),
    "reduce": (
        ["a = []", "from functools import reduce\nreduce(lambda b, x: b.append(x) or b, [1], a)"],
        {"a": "changed", "reduce": "bound"}, "a",
    ),
    "an element of a list": (
        ["a = [[1], [2]]", "b = next(it for it in a)", "b.append(3)"], {"a": "changed", "b": "changed"}, "b",
    ),
    "another name": (["a = []", "b = a", "b.append(1)"], {"a": "changed", "b": "changed"}, "b"),
    "a copy": (["a = [1]", "b = list(a)", "b.append(1)"], {"b": "changed"}, "b"),
    "a reader": (["a = [1]", "a.count(1)"], {}, "a"),
    "an equal object": (["a = [1]", "a = [1]"], {"a": "bound"}, ""),
    "the same object": (["a = 1", "a = 1"], {"a": "bound"}, ""),
    "the same object in a branch": (["a = 1", "if a:\n    a = 1"], {"a": "changed"}, "a"),
    "an update in place": (["a = []", "a += [1]"], {"a": "changed"}, "a"),
    "an update of a number": (["a = 5000", "a += 1"], {"a": "bound"}, "a"),
    "a deleted name": (["a = 1", "del a"], {"a": "gone"}, "a"),
    "a global of a function": (["a = 1\ndef f():\n    global a\n    a = 7000", "f()"], {"a": "bound"}, "f"),
    "a name of a function": (["n = 1\ndef f():\n    return n", "f()"], {}, "n"),
    "a name of a called function": (["n = 1\ndef g(): return n\ndef f(): return g()", "f()"], {}, "n"),
    "a function that is only defined": (["n = 1", "def f():\n    return n"], {"f": "bound"}, ""),
    "a closure's state": (
        ["def make():\n    n = 0\n    def add():\n        nonlocal n\n        n += 1\n    return add\nf = make()", "f()"],
        {"f": "changed"}, "f",
    ),
    "a default that is kept": (["def f(l=[]):\n    l.append(1)", "f()"], {"f": "changed"}, "f"),
    "a generator": (["i = (x for x in [1, 2])", "next(i)"], {"i": "changed"}, "i"),
    "an iterator": (["i = iter([1, 2])", "next(i)"], {"i": "changed"}, "i"),
    "an iterator of a function": (["i = map(str, [1, 2])", "next(i)"], {"i": "changed"}, "i"),
    "a view": (["d = {}\nv = d.keys()", "d[1] = 2"], {"d": "changed", "v": "changed"}, "d"),
    "a view of bytes": (["b = bytearray(b'ab')\nv = memoryview(b)", "v[0] = 0"], {"b": "changed", "v": "changed"}, "v"),
    "an attribute": (["class A: pass\na = A()", "a.x = 1"], {"a": "changed"}, "a"),
    "an attribute of a class": (["class A:\n    x = 1\na = A()", "A.x = 2"], {"A": "changed", "a": "changed"}, "A"),
    "a slot": (["class A:\n    __slots__ = ('x',)\na = A()", "a.x = 1"], {"a": "changed"}, "a"),
    "a counter in a method": (
        ["class A:\n    n = 0\n    def add(self):\n        self.n += 1\na = A()", "a.add()"], {"a": "changed"}, "a",
    ),
    "a registry": (
        ["known = {}\ndef on(f):\n    known[f.__name__] = f\n    return f", "@on\ndef g(): pass"],
        {"g": "bound", "known": "changed"}, "on",
    ),
    "a list of functions": (["a = []\nh = [a.append]", "for f in h:\n    f(1)"],
                            {"a": "changed", "h": "changed", "f": "bound"}, "h"),
    "cached results": (
        ["from functools import lru_cache\n@lru_cache()\ndef f(x): return x", "f(1)"], {"f": "changed"}, "f",
    ),
    "code in a text": (["n = 1", "exec('n = 5000')"], {"n": "bound"}, ""),
    "an expression in a text": (["n = 1", "m = eval('n') + 6000"], {"m": "bound"}, "n"),
    "the globals": (["n = 1", "globals()['n'] = 5000"], {"n": "bound"}, ""),
    "a number beside its like": (["n = [1]", "n[0] = True"], {"n": "changed"}, "n"),
    "minus one and minus two": (["n = [-1]", "n[0] = -2"], {"n": "changed"}, "n"),
    "a dictionary that holds itself": (["d = {}\nd[1] = d", "d[2] = 3"], {"d": "changed"}, "d"),
    "an error half way": (["a = []", "a.append(1)\n1 / 0"], {"a": "changed"}, "a"),
    "a branch that was not taken": (["n = 5000", "if not n:\n    n = 1"], {"n": "changed"}, "n"),
    "the other branch at the end": (
        ["n = 1\nk = 7000", "if n:\n    m = 7001\nelse:\n    k = 1"], {"m": "bound", "k": "changed"}, "n",
    ),
    "a loop's variable": (["for i in [5000]:\n    j = i"], {"i": "bound", "j": "bound"}, ""),
    "a star": (["from math import *", "from math import *"], {"pi": "changed"}, ""),
    "special methods that raise": (
        ["class A:\n    def __getattribute__(self, name): 1 / 0\n    def __eq__(self, other): 1 / 0\n"
         "    __hash__ = __len__ = __iter__ = __repr__ = __bool__ = __eq__\na = A()", "b = a"],
        {"b": "bound"}, "a",
    ),
    "a class of classes that raises": (
        ["class M(type):\n    def __getattribute__(self, name): 1 / 0\nclass A(metaclass=M): pass\na = A()", "b = a"],
        {"b": "bound"}, "a",
    ),
}


class Shell:
    """As much of IPython as the witness uses."""

    def __init__(self):
        self.user_ns = {"__name__": "__main__", "__builtins__": __builtins__}
        self.events, self.ast_transformers = self, []
        self.hooks = {}
        self.said = []

    def register(self, event, hook):
        self.hooks[event] = hook

    def run(self, cell):
        self.hooks["pre_run_cell"](None)
        self.raw_cell, self.info, self.success = cell, self, True
        try:
            RUN(compile(cell, "<cell>", "exec"), self.user_ns)
        except Exception:
            self.success = False
        self.hooks["post_run_cell"](self)
        return self.said.pop()


RUN = {}
exec(compile("def run(code, space):\n    exec(code, space)", "IPython", "exec"), RUN)
RUN = RUN["run"]


def facts(cells):
    shell = Shell()
    witness = WITNESS["start"](shell, shell.said.append)
    for cell in cells:
        said = shell.run(cell)
    # An audit hook stays as long as its process.
    witness.thread = None
    return said


def main():
    os.chdir(tempfile.mkdtemp())
    wrong = []
    for name, (cells, writes, read) in CASES.items():
        said = facts(cells)
        kinds = {it: write[0] for it, write in said.get("writes", {}).items()}
        if "*" in cells[-1]:
            kinds = {it: kind for it, kind in kinds.items() if it == "pi"}
        if kinds != writes or (read and read not in said["reads"]) or (not read and set(writes) & set(said["reads"]) - {"pi"}):
            wrong.append(f"{name}: {said}")
    files = facts(["open('a', 'w').close()", "with open('a') as f: x = f.read()\nopen('b', 'a').close()"])
    kinds = {it.rsplit(os.sep)[-1]: write[0] for it, write in files["writes"].items() if it.startswith("file:")}
    if kinds != {"b": "changed"} or not any(it.endswith(os.sep + "a") for it in files["reads"]):
        wrong.append(f"files: {files}")
    # A look at all of them would cost the kernel 160 MB.
    many = facts(["globals().update({f'v{at}': at for at in range(100_000)})"])
    if "too many" not in many.get("failed", ""):
        wrong.append(f"many variables: {len(many['writes'])} writes")
    print(f"{len(CASES) + 2} cases, {len(wrong)} wrong", *wrong, sep="\n")
    sys.exit(bool(wrong))


main()
