"""Says what each execution of an IPython kernel really read, bound and changed.

It runs in the kernel: hooks before and after each execution, and an audit hook for files and compiled code. After an
execution it looks at the variables that the code mentions, those that their functions name, and those that share
objects with what changed. It compares their fingerprints with those of the look before. It keeps numbers and texts
only, never an object of the user's. It calls no method that a user's class defines.

`start(shell, say)` begins; `say` is called with one dictionary for each execution:

- `run`: its number, from 1
- `unbound`: the variables that were deleted before it by `unbind`
- `ok`: whether it ran to its end
- `reads`: the variables and files that it read or may have read; `all`: perhaps any variable
- `writes`: for each variable or file that it wrote, `[kind, fingerprint, atom, alone]`. The kind is "bound" (it does
  not depend on the earlier value), "changed" or "gone". There is no fingerprint if not all of the value could be seen.
  An atom holds no object that can change; of one that is alone, no other variable holds a part.
- `perhaps`: the variables that its text stores in a branch or a loop
- `reach`: the variables that the functions in a variable name
- `uncertain`: why a run after a restart may give other values

The kernel runs look.py and this file as one text.
"""

VERSION = 1
# The time for a look: the larger one of these seconds and of this part of the execution.
SECONDS, PART = 0.005, 0.02
# Beyond so many variables, only those are looked at that the text mentions.
MOST_NAMES = 20_000
HIDDEN = re.compile(r"_+|_i+|_\d+|_i\d+|_oh|_dh|_ih|In|Out|exit|quit|get_ipython|__\w+__|_exit_code")
EARLIER_RESULTS = re.compile(r"_+|_i+|_\d+|_i\d+|_oh|_ih|In|Out")
ANY_NAME = {"globals", "vars", "user_ns", "__main__", "get_objects", "get_referrers"}
OUTSIDE = {
    "time_ns", "perf_counter", "monotonic", "utcnow", "now", "today", "urandom", "uuid1", "uuid4", "token_hex",
    "token_bytes", "SystemRandom", "default_rng", "urlopen", "input",
}
RANDOM = {"rand", "randn", "random", "randint", "choice", "shuffle", "sample", "uniform", "normal", "permutation", "seed"}
READS_FOLDER = {"open", "getcwd", "chdir", "Path", "listdir", "read_csv", "system", "getoutput"}
OF_FILES = {"os.remove", "os.rename", "os.truncate", "shutil.move", "shutil.copyfile"}
OF_PROGRAMS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty"}
OF_THE_NETWORK = {"socket.connect", "socket.getaddrinfo", "urllib.Request"}
HEARD = {"exec", "compile", "open", *OF_FILES, *OF_PROGRAMS, *OF_THE_NETWORK}
JUMPS = {*dis.hasjrel, *dis.hasjabs}


class Mentions:
    """The variables that code which ran at the outer level reads and stores, in order."""

    def __init__(self):
        self.reads, self.used, self.sure, self.perhaps = set(), set(), set(), set()
        self.bodies = []

    def add(self, code):
        steps = list(dis.get_instructions(code))
        opcodes = {step.offset: step.opname for step in steps}
        following = dict(zip(opcodes, list(opcodes)[1:]))
        jumps = [(step.offset, step.argval) for step in steps if step.opcode in JUMPS and step.opname != "SETUP_WITH"]
        # A branch may end with a return of its own: what follows happens only in another one.
        jumps += [(step.offset, len(code.co_code)) for step in steps if step.opname in ("RETURN_VALUE", "RETURN_CONST")]
        for entry in getattr(dis, "_parse_exception_table", lambda code: ())(code):
            # What a `with` statement hides is rare, and has a name.
            is_with = opcodes.get(following.get(entry.target)) == "WITH_EXCEPT_START"
            if not is_with or "suppress" in code.co_names:
                jumps.append((entry.start, entry.target))
        stored = {}
        function, is_class = None, False
        for step in steps:
            name, at = step.argval, step.offset
            if step.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
                self.used.add(name)
                # A store comes before each way to this place, if nothing jumps in between.
                before = stored.get(name, [])
                is_own = any(
                    not any(store < to <= at and not store < source < at for source, to in jumps) for store in before
                )
                if name not in self.sure and not is_own:
                    self.reads.add(name)
            elif step.opname in ("STORE_NAME", "STORE_GLOBAL", "DELETE_NAME"):
                stored.setdefault(name, []).append(at)
                if step.opname == "DELETE_NAME":
                    self.reads |= {name} - self.sure
                    self.used.add(name)
                    self.sure.discard(name)
                    self.perhaps.add(name)
                elif any(source < at < to for source, to in jumps):
                    self.perhaps.add(name)
                else:
                    self.sure.add(name)
            elif step.opname == "IMPORT_NAME":
                module = name
            elif step.opname == "IMPORT_STAR" or step.opname == "CALL_INTRINSIC_1" and step.arg == 2:
                space = vars(sys.modules.get(module, builtins))
                self.perhaps.update(space.get("__all__") or [it for it in space if not it.startswith("_")])
            # A function that is only given a name is not called by that.
            if step.opname == "LOAD_CONST" and isinstance(name, types.CodeType):
                function = name
                if is_class:
                    own = Code.of(name)
                    inner = [it for it in name.co_consts if isinstance(it, types.CodeType)]
                    of_methods = set().union(*(Code.of(it).loads for it in inner))
                    self.call(own.loads - of_methods | own.stores, own.stores)
                    self.bodies.append((name.co_name, of_methods - self.sure))
                    function = None
                is_class = False
            elif step.opname == "LOAD_BUILD_CLASS":
                is_class = True
            elif function is not None and step.opname not in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE", "LOAD_CONST"):
                found = Code.of(function)
                if step.opname == "STORE_NAME":
                    self.bodies.append((name, (found.loads | found.stores) - self.sure))
                else:
                    self.call(found.loads | found.stores, found.stores)
                function = None

    def call(self, names, stores):
        self.used |= names
        self.reads |= names - self.sure
        self.perhaps |= stores

    def end(self):
        """Adds what the functions name that were used."""
        bodies = self.bodies
        while True:
            called = [it for it in bodies if it[0] in self.used]
            if not called:
                return
            bodies = [it for it in bodies if it not in called]
            for _, names in called:
                self.call(names, set())


class Record:
    """What is known of a variable since it was last looked at."""

    __slots__ = ("print", "parts", "reach", "stores", "words", "files", "partial")

    def __init__(self, look):
        self.print, self.partial = None if look.opaque else look.digest.hexdigest(), look.partial
        self.parts = frozenset(look.parts)
        self.reach, self.stores = frozenset(look.names), frozenset(look.stores)
        self.words, self.files = frozenset(look.words), frozenset(look.files)


NOTHING = types.SimpleNamespace(
    print=None, parts=frozenset(), reach=frozenset(), stores=frozenset(), words=frozenset(), files=frozenset(),
    partial=False,
)


class Hook:
    """Keeps an interrupt until a hook has ended.

    IPython takes an interrupt in a hook for a fault of the hook: it prints it, and runs the cell.
    """

    def __init__(self):
        self.is_interrupted, self.deadline, self.handler = False, math.inf, None

    def is_over(self):
        """Says whether the time for a look is over. An interrupt ends it."""
        return self.is_interrupted or time.thread_time() > self.deadline

    def keep(self, *_):
        self.is_interrupted = True

    def __enter__(self):
        # Signals reach the main thread only.
        if threading.current_thread() is threading.main_thread():
            handler = signal.getsignal(signal.SIGINT)
            if callable(handler):
                self.handler = handler
                signal.signal(signal.SIGINT, self.keep)
        return self

    def __exit__(self, *_):
        if self.handler is not None:
            signal.signal(signal.SIGINT, self.handler)


class Interrupt:
    """Raises in the cell that is about to begin what came before it. It is the last transformer of the shell."""

    @staticmethod
    def visit(tree):
        tree.body[:0] = ast.parse("raise KeyboardInterrupt").body
        return tree


class Witness:
    def __init__(self, shell, say):
        self.shell, self.say = shell, say
        self.space = shell.user_ns
        # The names that the shell gives itself.
        self.shells = {name: address(value) for name, value in shell.user_ns.items()}
        self.depth = self.run = 0
        self.thread = None
        self.unbound = set()
        self.forget()

    def forget(self):
        # What is known of each variable, which of them hold a part, and which were not seen wholly.
        self.records, self.holders, self.partial, self.late = {}, {}, set(), set()
        self.before, self.codes, self.files, self.outside, self.queried = {}, [], [], set(), set()

        # What cells have set outside of the variables.
        self.were_set, self.is_seeded = set(), False

    def unbind(self, names):
        """Deletes variables between two executions."""
        for name in names:
            self.space.pop(name, None)
            self.keep(name, None)
            self.unbound.add(name)

    def ids(self):
        """Returns which object each name has: numbers only."""
        return dict(zip(self.space, map(address, self.space.values())))

    def is_hidden(self, name):
        """Says whether a name is the shell's own."""
        return type(name) is not str or HIDDEN.fullmatch(name) or self.shells.get(name, 0) == address(self.space.get(name))

    def hear(self, event, arguments):
        if event == "exec":
            code = arguments[0]
            if isinstance(code, types.CodeType) and len(self.codes) < 1000:
                caller = sys._getframe(2).f_code.co_filename
                if not caller.startswith("<frozen importlib"):
                    is_own = "IPython" in caller or sys._getframe(2).f_globals is self.space
                    self.codes.append((code, is_own))
        elif event == "compile":
            # The variables of a query of pandas, whose text may be a value.
            source = arguments[0]
            source = source.encode() if type(source) is str else source
            if type(source) is bytes:
                found = re.findall(rb"__pd_eval_local_(\w+)", source[:10_000])
                self.queried.update(name.decode() for name in found)
        elif event == "open":
            self.file(*arguments)
        elif event in OF_FILES:
            for path in arguments[:2]:
                self.file(path, "gone" if event == "os.remove" else "a", 0)
        elif event in OF_PROGRAMS:
            self.outside.add("a program")
        elif event in OF_THE_NETWORK:
            self.outside.add("the network")

    def file(self, path, mode, flags):
        # A path of a class of the user's own is not asked for its text.
        if type(path) is not str and not Look.named(type(path))[0].startswith("pathlib") or len(self.files) > 1000:
            return
        path = os.path.abspath(path)
        if path.startswith((sys.prefix, sys.base_prefix, "/proc/", "/dev/", "/sys/")):
            return
        if isinstance(mode, str):
            kind = "gone" if mode == "gone" else "changed" if set(mode) & set("a+") else "bound" if set(mode) & set("wx") else "read"
        else:
            kind = "new" if flags & os.O_EXCL else "changed" if flags & (os.O_WRONLY | os.O_RDWR) else "read"
        if kind == "read" and path.endswith((".pyc", ".so")):
            return
        self.files.append((path, kind))

    def begins(self, info=None):
        self.depth += 1
        if self.depth > 1:
            return
        self.run += 1
        with Hook() as hook:
            try:
                self.started = time.perf_counter()
                self.codes, self.files, self.outside, self.queried = [], [], set(), set()
                self.many = len(self.space) > MOST_NAMES
                self.before = {} if self.many else self.ids()
                self.random = self.random_states()
                self.set_before = self.settings()
                self.thread = threading.get_ident()
            except Exception:
                self.before = None
        if hook.is_interrupted:
            self.shell.ast_transformers.append(Interrupt)

    def ends(self, result):
        # An empty text has an end only.
        if self.depth != 1:
            self.depth = max(0, self.depth - 1)
            return
        self.depth = 0
        self.thread = None
        # The cell has ended: an interrupt has nothing else to end than the look.
        with Hook() as hook:
            if Interrupt in self.shell.ast_transformers:
                self.shell.ast_transformers.remove(Interrupt)
            try:
                # The time of this thread: another process may have the processor meanwhile.
                now = time.thread_time()
                hook.deadline = now + max(SECONDS, PART * (time.perf_counter() - self.started))
                facts = self.facts(result, hook)
                facts["cost"] = round(1e6 * (time.thread_time() - now))
            except Exception as error:
                # Without facts, any variable may be another.
                facts = {"version": VERSION, "failed": repr(error)[:200]}
            facts["run"], facts["unbound"] = self.run, sorted(self.unbound)
            self.unbound.clear()
            try:
                self.say(facts)
            except Exception:
                pass

    @staticmethod
    def random_states():
        """Returns the states of the random numbers of Python and of numpy; None without the module."""
        plain, of_numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
        states = [plain and hash(plain.getstate()), None]
        if of_numpy:
            kind, keys, *rest = of_numpy.get_state()
            states[1] = hash((keys.tobytes(), *rest))
        return states

    @staticmethod
    def settings():
        """Returns what is outside of the variables, without what has too many parts."""
        pandas, numpy = sys.modules.get("pandas._config.config"), sys.modules.get("numpy")
        state = {"env:" + name: value for name, value in os.environ.items()}
        state["state:cwd"], state["state:path"] = os.getcwd(), repr(sys.path)
        if pandas:
            state["display:pandas"] = repr(Look.space_of(pandas).get("_global_config"))
        if numpy:
            state["display:numpy"] = repr(numpy.get_printoptions())
        return state

    def look(self, name, hook):
        value = self.space[name]
        look = Look(self.space, hook)
        try:
            if type(value) not in ATOMS and hook.is_over():
                self.late.add(name)
                raise OutOfTime
            look.walk(value)
        except (OutOfTime, RecursionError):
            look.opaque = look.partial = True
        return Record(look)

    def keep(self, name, record):
        """Keeps what is known of a variable now."""
        for part in self.records.pop(name, NOTHING).parts:
            holders = self.holders.get(part, set())
            holders.discard(name)
            if not holders:
                self.holders.pop(part, None)
        self.partial.discard(name)
        if record is not None:
            self.records[name] = record
            if record.partial:
                self.partial.add(name)
            for part in record.parts:
                self.holders.setdefault(part, set()).add(name)

    def are_alone(self, parts, names):
        """Says whether no variable but these holds one of these parts."""
        return all(self.holders.get(part, set()) <= names for part in parts)

    def facts(self, result, hook):
        cell = result.info.raw_cell
        text, words, texts = Mentions(), set(), []
        for code, is_own in self.codes:
            found = Code.of(code)
            texts += found.texts
            if is_own:
                words |= found.words
                text.add(code)
            else:
                text.call(found.loads, set())
            if "get_ipython" in found.words:
                # The words of a magic's line.
                text.call(set(re.findall(r"[^\W\d]\w*", " ".join(found.texts))), set())
        text.call(self.queried, set())
        text.end()
        reads, used, perhaps = text.reads, text.used, set(text.perhaps)
        words |= used
        is_any = bool(words & ANY_NAME) or "get_ipython" in cell
        if is_any:
            perhaps |= set(re.findall(r"[^\W\d]\w*", " ".join(texts)))
        old, space = {}, self.space
        if len(space) > MOST_NAMES and (is_any or not self.many):
            raise OverflowError("too many variables to look at")
        other = set()
        if not self.many:
            changed = set(self.ids().items()).difference(self.before.items())
            other = {name for name, _ in changed if not self.is_hidden(name)}
        # What to look at: what is mentioned, what its functions name, what is another object.
        wanted = list(used | text.sure | text.perhaps | other | (self.records.keys() - space.keys()))
        if is_any:
            wanted += [it for it in space if not self.is_hidden(it)]
        new, reached = {}, set()
        writes = {}

        def visit(wanted):
            while wanted:
                name = wanted.pop()
                if name in new or self.is_hidden(name) and name in space:
                    continue
                record = new[name] = self.look(name, hook) if name in space else None
                if name in self.records:
                    old[name] = self.records[name]
                earlier, record = old.get(name, NOTHING), record or NOTHING
                if name in used or name in reached:
                    further = record.reach | earlier.reach
                    reached.update(further)
                    perhaps.update(record.stores | earlier.stores)
                    words.update(record.words | earlier.words)
                    wanted.extend(further)

        visit(wanted)
        seen = set()
        while True:
            moved = set()
            for name, record in new.items():
                earlier = old.get(name, NOTHING)
                record = record or NOTHING
                if record.print != earlier.print or record.print is None or name in other:
                    moved |= earlier.parts | record.parts
            sharing = {it for part in moved - seen for it in self.holders.get(part, ())} - set(new)
            if not sharing:
                break
            seen |= moved
            visit(list(sharing))
        reads |= reached
        is_ok = bool(result.success)
        files = {}
        for name, record in new.items():
            earlier = old.get(name)
            if record is None:
                if earlier is not None or name in self.before:
                    writes[name] = ["gone", None, True, True]
                    reads.add(name)
                continue
            is_same = earlier is not None and record.print is not None and record.print == earlier.print
            if name in other or is_ok and name in text.sure and name not in reads:
                writes[name] = ["bound", record.print, not record.parts, True]
            elif not is_same or name in perhaps or name in text.sure:
                writes[name] = ["changed", record.print, not record.parts, True]
                reads.add(name)
        # What was not seen wholly may hold what has changed.
        for name in self.partial.difference(new) if moved else ():
            writes[name] = ["changed", None, False, False]
            reads.add(name)
        for name, record in new.items():
            self.keep(name, record)
            if record is not None and (name in used or name in reached):
                files.update({os.path.abspath(file): "changed" for file in record.files})
        self.of_groups(writes, old, hook)
        # What there was no time for before.
        while self.late and not hook.is_over():
            name = self.late.pop()
            if name in self.partial and name in space:
                self.keep(name, self.look(name, hook))
        uncertain = set(self.outside)
        self.of_files(files, reads, writes)
        self.of_settings(words, reads, writes, uncertain)
        uncertain |= {"an earlier result" for it in used if EARLIER_RESULTS.fullmatch(it)}
        uncertain |= words & OUTSIDE
        if "time" in words and any(space.get("time") is it for it in (time, time.time)):
            uncertain.add("time")
        reach = {it: sorted(self.records[it].reach) for it in writes if it in self.records and self.records[it].reach}
        return {
            "version": VERSION, "ok": is_ok, "all": is_any, "reads": sorted(it for it in reads if not HIDDEN.fullmatch(it)), "writes": writes,
            "perhaps": sorted(text.perhaps), "reach": reach, "uncertain": sorted(uncertain),
        }

    def of_groups(self, writes, old, hook):
        """Notes which values share parts, with those that were bound together and with others."""
        bound = {it: self.records[it] for it, write in writes.items() if write[0] == "bound" and not write[2]}
        groups = []
        for name, record in sorted(bound.items()):
            parts, names = set(record.parts), [name]
            for group in [it for it in groups if not parts.isdisjoint(it[0])]:
                groups.remove(group)
                parts |= group[0]
                names += group[1]
            groups.append((parts, names))
        for _, names in groups:
            if len(names) > 1 and all(bound[it].print for it in names):
                look = Look(self.space, hook)
                try:
                    for name in sorted(names):
                        look.walk(self.space[name])
                        look.say("next")
                except (OutOfTime, RecursionError):
                    look.opaque = True
                for name in names:
                    writes[name][1] = None if look.opaque else look.digest.hexdigest()
        for name, write in writes.items():
            if write[0] != "gone":
                parts = old.get(name, NOTHING).parts ^ self.records[name].parts
                write[3] = self.are_alone(parts, bound.keys() if write[0] == "bound" else {name})

    def of_files(self, files, reads, writes):
        for path, kind in self.files:
            earlier = files.get(path)
            if kind == "read":
                if earlier is None:
                    files[path] = "read"
            elif kind == "gone" and earlier == "new":
                # A file for a moment.
                del files[path]
            elif kind in ("bound", "new") and earlier is None:
                files[path] = kind
            elif earlier not in ("bound", "new") or kind == "gone":
                files[path] = kind
        for path, kind in files.items():
            kind = "bound" if kind == "new" else kind
            if kind != "bound":
                reads.add("file:" + path)
            if kind != "read":
                writes["file:" + path] = [kind, None, False, False]

    def of_settings(self, words, reads, writes, uncertain):
        states = zip(self.random, self.random_states())
        # In the cell that imports a module, the words tell.
        if any(now != before and (before is not None or words & RANDOM) for before, now in states):
            self.is_seeded |= "seed" in words
            if not self.is_seeded:
                uncertain.add("random numbers without a seed")
            kind = "bound" if "seed" in words else "changed"
            writes["state:random"] = [kind, None, False, False]
            if kind == "changed":
                reads.add("state:random")
        before, after = self.set_before, self.settings()
        for name in {it for it, _ in set(before.items()) ^ set(after.items())}:
            if name.startswith("display:") and name not in before:
                # Its module was imported.
                continue
            writes[name] = ["bound" if name in after else "gone", None, False, False]
            self.were_set.add(name)
        marks = {"cwd": READS_FOLDER, "env": {"environ", "getenv", "env", "system", "getoutput"}, "path": {"path"}}
        for name in self.were_set - writes.keys():
            kind, _, part = name.partition(":")
            kind = part if kind == "state" else kind
            # How values are shown concerns each cell.
            if kind == "display" or words & marks.get(kind, set()):
                reads.add(name)


def start(shell, say):
    """Begins to watch a shell. Returns the witness."""
    witness = Witness(shell, say)

    # Python calls it for each `id`, too. More than a look into a set would be felt: `copy.deepcopy` took five times as long.
    def audit(event, arguments, heard=HEARD):
        if event in heard and witness.thread == threading.get_ident():
            try:
                witness.hear(event, arguments)
            except Exception:
                pass

    sys.addaudithook(audit)
    shell.events.register("pre_run_cell", witness.begins)
    shell.events.register("post_run_cell", witness.ends)
    return witness


def start_in_kernel(shell):
    """Begins to watch the shell of an ipykernel: the facts are messages on iopub."""
    kernel = shell.kernel

    def say(facts):
        kernel.session.send(
            kernel.iopub_socket, "nb_facts", facts, parent=kernel.get_parent(), ident=kernel._topic("nb_facts")
        )

    return start(shell, say)


def begin():
    """Puts the witness into this kernel, unless it has one. The user's code has no name for it."""
    if __name__ not in sys.modules:
        from IPython import get_ipython

        module = types.ModuleType(__name__)
        module.witness = start_in_kernel(get_ipython())
        sys.modules[__name__] = module
