"""Runs texts on a real kernel, many notebooks in one: each line of stdin is a list of lists of texts.

The answer is a line for each: of every list, whether each text ran to its end, and then the variables with their
values, so that two kernels can be compared. Files in the working directory count as variables, `file:NAME`.
"""

import atexit
import json
import shutil
import sys
import tempfile

from jupyter_client.manager import KernelManager

IN_KERNEL = '''
import functools, json, os, shutil, sys, tempfile, types
from IPython import get_ipython
from IPython.utils.io import capture_output

shell = get_ipython()
own = set(shell.user_ns)
folder = tempfile.mkdtemp()


def canonical(value, depth=0):
    """Returns what a value is, without where it is."""
    if depth > 6:
        return "..."
    name = type(value).__name__
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [name, *(canonical(element, depth + 1) for element in value)]
    if isinstance(value, dict):
        return [name, *([repr(key), canonical(element, depth + 1)] for key, element in value.items())]
    if isinstance(value, (set, frozenset)):
        return [name, *sorted(map(repr, value))]
    if isinstance(value, types.ModuleType):
        return [name, value.__name__]
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        code = value.__code__
        constants = [constant for constant in code.co_consts if not isinstance(constant, types.CodeType)]
        inner = [constant.co_code.hex() for constant in code.co_consts if isinstance(constant, types.CodeType)]
        return [name, code.co_code.hex(), inner, repr(constants), repr(code.co_names),
                canonical(value.__defaults__, depth + 1), canonical(cells, depth + 1)]
    if isinstance(value, type):
        parts = {k: v for k, v in vars(value).items() if not k.startswith("__")}
        return [name, value.__name__, canonical(parts, depth + 1)]
    if isinstance(value, (types.MethodType, types.BuiltinMethodType)):
        return [name, value.__name__, canonical(value.__self__, depth + 1)]
    if isinstance(value, functools.partial):
        return [name, canonical(value.func, depth + 1), canonical(value.args, depth + 1)]
    if isinstance(value, (type({}.keys()), type({}.items()), bytearray, memoryview)):
        return [name, canonical(list(value), depth + 1)]
    if isinstance(value, types.GeneratorType):
        # What is left of it may read other variables, which are compared themselves.
        frame = value.gi_frame
        return [name, frame and [frame.f_lasti, canonical(frame.f_locals, depth + 1)]]
    if isinstance(value, map):
        return [name, canonical(value.__reduce__()[1], depth + 1)]
    if hasattr(value, "__next__"):
        return [name, rest(value, depth)]
    if hasattr(value, "__dict__"):
        return [name, canonical(vars(value), depth + 1), canonical(vars(type(value)).get("v"), depth + 1)]
    return repr(value)


def rest(iterator, depth):
    found = []
    try:
        for element in iterator:
            found.append(canonical(element, depth + 1))
    except Exception as error:
        found.append(repr(error))
    return found


def forget():
    """Makes the kernel as it was, in an empty folder."""
    for name in set(shell.user_ns) - own:
        del shell.user_ns[name]
    os.chdir(folder)
    shutil.rmtree("files", ignore_errors=True)
    os.mkdir("files")
    os.chdir("files")


def look():
    """Returns the variables and the files with their values."""
    hidden = shell.user_ns_hidden
    names = [n for n in shell.user_ns if n not in own and n not in hidden and not n.startswith("_")]
    # Iterators are used up by a look: last.
    is_iterator = lambda n: hasattr(shell.user_ns[n], "__next__")
    values = {n: canonical(shell.user_ns[n]) for n in sorted(names, key=is_iterator)}
    for file in os.listdir("."):
        with open(file) as text:
            values["file:" + file] = text.read()
    return values


def play(texts):
    forget()
    ended = []
    with capture_output():
        for text in texts:
            result = shell.run_cell(text, store_history=False, silent=True)
            ended.append(bool(result.success))
    return {"ended": ended, "values": look()}


player = types.ModuleType("player")
player.play_all = lambda scripts: json.dumps([play(texts) for texts in scripts])
player.look_all = lambda: json.dumps(look())
player.forget = forget
sys.modules["player"] = player
'''


def kernel_on_sockets():
    """Starts a kernel on Unix sockets: another process can take TCP ports before the kernel binds them."""
    folder = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/k")
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=60)
    return manager, client


def main():
    manager, client = kernel_on_sockets()
    try:
        run(client, "exec(" + repr(IN_KERNEL) + ", {})")
        for line in sys.stdin:
            code = f"import player\nplayer.play_all({json.loads(line)!r})"
            print(run(client, code), flush=True)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def run(client, code):
    """Runs code and returns what its last line gives."""
    given = []

    def hear(message):
        if message["msg_type"] == "execute_result":
            given.append(message["content"]["data"]["text/plain"])

    reply = client.execute_interactive(code, output_hook=hear, timeout=60, store_history=False)
    if reply["content"]["status"] != "ok":
        sys.exit(reply["content"].get("evalue"))
    # The repr of a text.
    return eval(given[0]) if given else ""


if __name__ == "__main__":
    main()
