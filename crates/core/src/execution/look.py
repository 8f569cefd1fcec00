# Looks into a kernel. Runs inside it, in a namespace of its own, and imports nothing that is not there
# already. Looking at variables prints nothing and calls no code of the user's: no repr, no property,
# no len of a class that is not known to be harmless.
import ast
import base64
import json
import sys
import threading
import time
import traceback
import types


class Text:
    """What IPython shows as plain text: the answer itself."""

    def __init__(self, text):
        self.text = text

    def __repr__(self):
        return self.text


def shell_of():
    ipython = sys.modules.get("IPython")
    return ipython.get_ipython() if ipython else None


def guard():
    """Keeps a request on a subshell from touching the cell that runs meanwhile: IPython would show
    and close its unfinished figures (post_execute) and throw its payloads away."""
    shell, me = shell_of(), threading.get_ident()

    def once(owner, name, answer, first=None):
        kind = type(owner)

        def stand_in(*arguments, **named):
            if threading.get_ident() != me or (first and arguments[:1] != (first,)):
                return getattr(kind, name)(owner, *arguments, **named)
            vars(owner).pop(name, None)
            return answer

        vars(owner)[name] = stand_in

    once(shell.events, "trigger", None, "post_execute")
    once(shell.payload_manager, "read_payload", [])
    once(shell.payload_manager, "clear_payload", None)


def give_back_stdin():
    """Every request says whether the kernel may ask: the running cell's word holds again."""
    frame = sys._current_frames().get(threading.main_thread().ident)
    while frame is not None:
        if frame.f_code.co_name == "do_execute" and "allow_stdin" in frame.f_locals:
            shell_of().kernel._allow_stdin = frame.f_locals["allow_stdin"]
            return
        frame = frame.f_back


def name_of(kind, attribute="__qualname__"):
    text = type.__getattribute__(kind, attribute)
    return text if type(text) is str else "?"


def kind_named(module, *names):
    """Classes of a library, if the user's code has imported it."""
    found = sys.modules.get(module)
    kinds = (vars(found).get(name) for name in names) if found else ()
    return tuple(kind for kind in kinds if isinstance(kind, type))


def known(value, module, *names):
    kinds = kind_named(module, *names)
    return bool(kinds) and issubclass(type(value), kinds)


PLAIN = {
    ("builtins", "range"), ("builtins", "slice"), ("builtins", "ellipsis"),
    ("builtins", "NotImplementedType"), ("datetime", "date"), ("datetime", "datetime"),
    ("datetime", "time"), ("datetime", "timedelta"), ("datetime", "timezone"),
    ("decimal", "Decimal"), ("fractions", "Fraction"), ("uuid", "UUID"),
    ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"), ("pathlib", "WindowsPath"),
    ("pathlib._local", "PosixPath"), ("pathlib._local", "PurePosixPath"), ("re", "Pattern"),
    ("pandas._libs.tslibs.timestamps", "Timestamp"), ("pandas._libs.tslibs.timedeltas", "Timedelta"),
    ("pandas._libs.tslibs.nattype", "NaTType"), ("pandas", "Timestamp"), ("pandas", "Timedelta"),
}

SHAPED = {
    "cupy", "dask", "geopandas", "jax", "jaxlib", "modin", "pandas", "polars", "pyarrow", "scipy",
    "sparse", "tensorflow", "torch", "xarray",
}

DEFINITIONS = (
    types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type,
)


def is_definition(value):
    """Modules, functions and classes, and what stands for them in `from … import`."""
    kind = type(value)
    return (
        issubclass(kind, DEFINITIONS)
        or name_of(kind, "__module__") in ("typing", "__future__")
        or (name_of(kind, "__module__"), name_of(kind))
        in {("functools", "_lru_cache_wrapper"), ("numpy", "ufunc"), ("types", "GenericAlias")}
    )


def shape_of(value):
    found = getattr(value, "shape", None)
    if type(found) is tuple or (found is not None and issubclass(type(found), tuple)):
        numbers = [n for n in tuple.__iter__(found)]
        if all(type(n) is int for n in numbers):
            return numbers
    return None


def few(items, limit, depth, each, count):
    """A beginning of a container's items."""
    parts, used = [], 0
    for item in items:
        part = each(item)
        parts.append(part)
        used += len(part) + 2
        if used > limit:
            break
    return ", ".join(parts) + (", …" if count > len(parts) else "")


def preview(value, limit, depth=0):
    """A short text of a value, without code of the user's."""
    kind = type(value)
    plain = (name_of(kind, "__module__"), name_of(kind))
    within = lambda item: preview(item, max(limit // 2, 8), depth + 1)
    if value is None or kind in (bool, float, complex) or plain in PLAIN:
        return cut(repr(value), limit)
    if kind is int:
        bits = int.bit_length(value)
        return repr(value) if bits <= 4096 else "an integer of %d bits" % bits
    if issubclass(kind, (str, bytes, bytearray)):
        base = str if issubclass(kind, str) else bytes if issubclass(kind, bytes) else bytearray
        beginning = base.__getitem__(value, slice(limit))
        return base.__repr__(beginning) + ("…" if base.__len__(value) > limit else "")
    for base, ends in ((list, "[]"), (tuple, "()"), (set, "{}"), (frozenset, "{}"), (dict, "{}")):
        if issubclass(kind, base):
            count = base.__len__(value)
            if count == 0:
                return "set()" if ends == "{}" and base is not dict else ends
            if depth > 1:
                return ends[0] + "…" + ends[1]
            if base is dict:
                pair = lambda item: within(item[0]) + ": " + within(item[1])
                inside = few(dict.items(value), limit, depth, pair, count)
            else:
                inside = few(base.__iter__(value), limit, depth, within, count)
            comma = "," if base is tuple and count == 1 else ""
            return ends[0] + inside + comma + ends[1]
    if known(value, "collections", "deque"):
        deque = sys.modules["collections"].deque
        return "deque([" + few(deque.__iter__(value), limit, depth, within, deque.__len__(value)) + "])"
    if issubclass(kind, types.ModuleType):
        return "module " + cut(str(vars(value).get("__name__")), limit)
    if issubclass(kind, types.FunctionType):
        code = value.__code__
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        return cut("def %s(%s)" % (value.__name__, ", ".join(names)), limit)
    if issubclass(kind, type):
        return cut("class " + name_of(value), limit)
    if kind in (types.GeneratorType, types.CoroutineType, types.AsyncGeneratorType):
        return "<%s %s>" % (name_of(kind), value.__name__)
    if known(value, "numpy", "generic") and name_of(kind, "__module__") == "numpy":
        item = kind_named("numpy", "generic")[0].item(value)
        return preview(item, limit, depth) if type(item) is not kind else "<%s>" % name_of(kind)
    if kind in kind_named("numpy", "ndarray"):
        if value.dtype.kind not in "biufcmMSU" or depth > 1:
            return "<array %s %s>" % ("×".join(map(str, value.shape)), value.dtype)
        most = max(1, min(limit // 4, 200))
        items = [preview(item, 32, 2) for item in value.flat[:most].tolist()]
        inside = few(items, limit, depth, lambda text: text, value.size)
        return "array([" + inside + "])"
    if known(value, "enum", "Enum"):
        return name_of(kind) + "." + cut(str(object.__getattribute__(value, "_name_")), limit)
    if depth > 1 or shaped(kind) or attributes_of(value) is None:
        return "<%s>" % name_of(kind)
    held = attributes_of(value)
    pair = lambda item: str(item[0]) + "=" + within(item[1])
    return name_of(kind) + "(" + few(list(held.items()), limit, depth, pair, len(held)) + ")"


def attributes_of(value):
    """The attributes that an object of the user's own classes holds, unless it computes them."""
    kind = type(value)
    module = sys.modules.get(name_of(kind, "__module__"))
    if name_of(kind, "__module__") != "__main__" and not is_users(module):
        return None
    for base in kind.__mro__:
        found = vars(base).get("__dict__")
        if found is not None and type(found) is not types.GetSetDescriptorType:
            return None
    try:
        held = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return dict(held) if type(held) is dict else None


def is_users(module):
    """Says whether a module is the user's: a file outside of the installed packages."""
    file = vars(module).get("__file__") if type(module) is types.ModuleType else None
    return type(file) is str and "site-packages" not in file and not file.startswith(sys.base_prefix)


def shaped(kind):
    return name_of(kind, "__module__").partition(".")[0] in SHAPED


def cut(text, limit):
    return text if len(text) <= limit else text[:limit] + "…"


def count_of(value):
    kind = type(value)
    kinds = (str, bytes, bytearray, list, tuple, set, frozenset, dict, range)
    for base in kinds + kind_named("collections", "deque"):
        if issubclass(kind, base):
            return base.__len__(value)
    return None


def describe(name, value, limit, whole):
    kind = type(value)
    told = {"name": name, "type": name_of(kind), "module": name_of(kind, "__module__")}
    try:
        told["len"] = count_of(value)
        if kind in kind_named("numpy", "ndarray", "memmap"):
            told["shape"], told["dtype"] = list(value.shape), str(value.dtype)
            told["size"] = int(value.nbytes)
        elif shaped(kind):
            libraries(told, value, whole)
        elif issubclass(kind, (str, bytes, bytearray, int, float, complex, list, tuple, set,
                               frozenset, dict)):
            builtin = next(base for base in kind.__mro__ if name_of(base, "__module__") == "builtins")
            told["size"] = builtin.__sizeof__(value)
        if "value" in told:
            pass
        elif "columns" in told:
            names = ", ".join(column["name"] for column in told["columns"])
            told["value"] = None if whole else cut(names, limit)
        else:
            told["value"] = cut(preview(value, limit), 2 * limit)
    except Exception as error:
        told["value"] = "<not readable: %s>" % name_of(type(error))
    return told


def libraries(told, value, whole):
    """Arrays and tables by their shape and types; nothing lazy is computed."""
    kind = type(value)
    if name_of(kind).startswith("Lazy"):
        return
    told["shape"] = shape_of(value)
    dtype = getattr(value, "dtype", None)
    if dtype is not None:
        told["dtype"] = cut(str(dtype), 80)
    module = name_of(kind, "__module__").partition(".")[0]
    most = 200 if whole else 12
    if module in ("pandas", "geopandas") and known(value, "pandas", "DataFrame"):
        frame = sys.modules["pandas"].DataFrame
        names, kinds = list(value.columns[:most]), list(value.dtypes.iloc[:most])
        told["columns"] = [
            {"name": preview(name, 40).strip("'"), "dtype": str(kind)} for name, kind in zip(names, kinds)
        ]
        if whole and kind in kind_named("pandas", "DataFrame"):
            told["value"] = beginning(value.iloc[:5, :12])
        if len(value.columns) <= 1000:
            told["size"] = int(frame.memory_usage(value, index=True).sum())
    elif module == "pandas":
        told["size"] = int(getattr(value, "nbytes", 0)) or None
        if kind in kind_named("pandas", "Series") and is_pandas(value.array):
            items = [preview(item, 32, 2) for item in list(value.array[:200 if whole else 20])]
            told["value"] = few(items, 2000 if whole else 60, 0, lambda text: text, len(value))
    elif module == "polars" and name_of(kind) == "DataFrame":
        told["columns"] = [
            {"name": name, "dtype": str(kind)} for name, kind in zip(value.columns[:most], value.dtypes)
        ]
        told["size"] = int(value.estimated_size())
    elif module == "torch" and known(value, "torch", "Tensor"):
        told["size"] = int(value.element_size() * value.nelement())
        told["value"] = "on " + str(value.device)
    elif type(getattr(value, "nbytes", None)) is int and module not in ("dask", "xarray"):
        told["size"] = value.nbytes


def is_pandas(array):
    return name_of(type(array), "__module__").startswith("pandas.")


def beginning(frame):
    """A table's first rows; its own text would call the cells' repr."""
    columns = []
    for at, name in enumerate(frame.columns):
        array = frame.iloc[:, at].array
        cells = list(array) if is_pandas(array) else ["…"] * len(frame)
        texts = [preview(name, 40).strip("'")] + [preview(cell, 24, 2) for cell in cells]
        wide = max(map(len, texts))
        columns.append([text.rjust(wide) for text in texts])
    return "\n".join("  ".join(line) for line in zip(*columns))


def peek(asked):
    """Runs code of the user's, and gives its last expression's value in all its forms."""
    asked = json.loads(asked)
    if asked["running"]:
        give_back_stdin()
    shell, name = shell_of(), "<nb run --peek>"
    space = shell.user_ns if shell else vars(sys.modules["__main__"])
    try:
        tree = ast.parse(shell.transform_cell(asked["code"]) if shell else asked["code"], name)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec"), space)
        value = eval(compile(ast.Expression(last.value), name, "eval"), space) if last else None
        if value is None:
            return Text("{}")
        if shell is None:
            return Text(json.dumps({"data": {"text/plain": repr(value)}}))
        data, metadata = shell.display_formatter.format(value)
        if not data:
            return Text("{}")
        return Text(json.dumps({"data": told(data), "metadata": metadata}, default=repr))
    except BaseException as error:
        kind, trace = type(error), error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != name:
            trace = trace.tb_next
        lines = traceback.format_exception(kind, error, trace)
        raised = {"ename": kind.__name__, "evalue": str(error), "traceback": "".join(lines).splitlines()}
        return Text(json.dumps({"error": raised}))


def stop(subshell):
    """Raises KeyboardInterrupt in the code that a subshell runs, and says whether it is over within a
    second: a subshell that is deleted before would hold up every other request."""
    import ctypes

    give_back_stdin()
    found = [it.ident for it in threading.enumerate() if it.name == "subshell-" + subshell]

    def runs():
        frame = sys._current_frames().get(found[0])
        while frame is not None and frame.f_code.co_filename != "<nb run --peek>":
            frame = frame.f_back
        return frame is not None

    until, raised = time.monotonic() + 1, False
    while found and runs():
        if not raised:
            kind = ctypes.py_object(KeyboardInterrupt)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(found[0]), kind)
            raised = True
        if time.monotonic() > until:
            return Text("false")
        time.sleep(0.01)
    return Text("true")


def told(data):
    """Images are bytes for IPython, and base64 in messages."""
    code = lambda it: base64.b64encode(it).decode("ascii") if isinstance(it, bytes) else it
    return {kind: code(it) for kind, it in data.items()}


def look(asked):
    asked = json.loads(asked)
    if asked["running"]:
        give_back_stdin()
    shell = shell_of()
    space = dict(shell.user_ns if shell else vars(sys.modules["__main__"]))
    hidden = dict(shell.user_ns_hidden) if shell else {}
    name, limit = asked["name"], asked["limit"]
    if name is not None:
        if name not in space:
            near = [it for it in space if type(it) is str and it.lower() == name.lower()]
            return Text(json.dumps({"variables": [], "more": 0, "near": near}))
        return Text(json.dumps({"variables": [describe(name, space[name], limit, True)], "more": 0}))
    nothing = object()
    names = [
        it
        for it, value in space.items()
        if type(it) is str
        and (
            asked["all"]
            or not (it.startswith("_") or hidden.get(it, nothing) is value or is_definition(value))
        )
    ]
    names.sort(key=lambda it: (it.lower(), it))
    shown, until = names[: asked["most"]], time.monotonic() + 2
    variables = []
    for it in shown:
        if time.monotonic() > until:
            break
        variables.append(describe(it, space[it], limit, False))
    return Text(json.dumps({"variables": variables, "more": len(names) - len(variables)}))


def refresh(packages):
    """Makes imports look for new files. Returns the imported modules that belong to changed packages, or whose file is gone."""
    import importlib.metadata
    import os

    importlib.invalidate_caches()
    file_of = lambda it: object.__getattribute__(it, "__dict__").get("__file__")
    modules = {
        name: it for name, it in list(sys.modules.items()) if "." not in name and isinstance(it, types.ModuleType)
    }
    stay = {name for name, it in modules.items() if type(file_of(it)) is str and not os.path.exists(file_of(it))}
    for package in json.loads(packages):
        try:
            files = importlib.metadata.files(package) or ()
        except importlib.metadata.PackageNotFoundError:
            continue
        stay.update({file.parts[0].split(".")[0] for file in files} & modules.keys())
    return Text(json.dumps(sorted(stay)))
