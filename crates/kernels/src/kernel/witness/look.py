"""What a value of a variable is and holds, without a call of what a user's class defines.

The kernel runs this file and witness.py as one text.
"""

import ast
import builtins
import collections
import dis
import functools
import gc
import hashlib
import marshal
import math
import operator
import os
import re
import signal
import sys
import threading
import time
import types

# A container with more elements, or a buffer with more bytes, counts as not seen.
MOST_ELEMENTS, MOST_BYTES = 100_000, 8 << 20

# The number of an object while it lives. `id` would tell all audit hooks of each call.
address = object.__hash__

ATOMS = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis)}
# Objects that are what they hold.
CLEAR = {
    functools.partial, staticmethod, classmethod, property, types.MethodType, map, filter, zip, super,
    types.MappingProxyType, type({}.keys()), type({}.values()), type({}.items()), types.CellType,
    type([].__iter__), type(list.__iter__), types.SimpleNamespace, types.GenericAlias,
    type(collections.namedtuple("Pair", "one").one),
}
# Iterators that are what they hold and how much is left.
ITERATORS = {
    type(iter(it)) for it in ([], (), "", b"", bytearray(), {}, {}.values(), {}.items(), set(), range(0), range(1 << 99))
} | {type(reversed([])), type(reversed({}))}
ATTRIBUTES_OF_CLASSES = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__", "__annotations__",
    "_abc_impl", "__annotate__", "__annotate_func__", "__annotations_cache__",
}
HEAP_TYPE = 1 << 9
WORD = 8 if sys.maxsize > 1 << 32 else 4
# Of a class, whatever its own class does.
LINE, BASE, BASES, FLAGS, SIZE = (
    type.__dict__[it].__get__ for it in ("__mro__", "__base__", "__bases__", "__flags__", "__basicsize__")
)


EXTENDED, LOAD_GLOBAL = dis.EXTENDED_ARG, dis.opmap["LOAD_GLOBAL"]
LOADS = {dis.opmap.get(it) for it in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")}
STORES = {dis.opmap["STORE_GLOBAL"], dis.opmap["DELETE_GLOBAL"]}


def line_of(kind):
    """Returns a class and its bases."""
    return LINE(kind) or (kind,)


class OutOfTime(Exception):
    pass


class Code:
    """What a code object names: variables that it loads and stores, all names, and its fingerprint."""

    known = {}

    def __init__(self, code):
        self.loads, self.stores, self.words, self.texts = set(), set(), set(), []
        digest = hashlib.blake2b(digest_size=8)
        self.read(code, digest)
        self.digest = digest.digest()

    @classmethod
    def of(cls, code):
        if len(cls.known) > 4000:
            cls.known.clear()
        # Equal code objects have one entry. It has no object of the user's.
        found = cls.known.get(code)
        if found is None:
            found = cls.known[code] = cls(code)
        return found

    def read(self, code, digest):
        digest.update(repr((code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_flags)).encode())
        self.words.update(code.co_names)
        argument = 0
        for operation, low in zip(code.co_code[::2], code.co_code[1::2]):
            argument = argument << 8 | low
            if operation == EXTENDED:
                continue
            if operation in LOADS:
                at = argument >> 1 if operation == LOAD_GLOBAL and sys.version_info >= (3, 11) else argument
                self.loads.add(code.co_names[at])
            elif operation in STORES:
                self.stores.add(code.co_names[argument])
            argument = 0
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                self.read(constant, digest)
            else:
                digest.update(repr(constant).encode("utf-8", "replace"))
                if type(constant) is str and len(constant) < 10_000:
                    self.texts.append(constant)


class Look:
    """A walk over all that a value holds."""

    def __init__(self, space, hook):
        self.space, self.hook = space, hook
        self.digest = hashlib.blake2b(digest_size=8)
        self.seen, self.kept = {}, []
        self.parts, self.names, self.stores, self.words = set(), set(), set(), set()
        self.opaque = self.partial = False
        self.files = set()

    def note(self, code):
        code = Code.of(code)
        self.names |= code.loads | code.stores
        self.stores |= code.stores
        self.words |= code.words

    def say(self, *words):
        self.digest.update(repr(words).encode("utf-8", "surrogatepass"))

    def over(self, size):
        """Says whether something is too large to be seen."""
        if size > MOST_ELEMENTS:
            self.opaque = self.partial = True
        return size > MOST_ELEMENTS

    def walk(self, value):
        stack = [value]
        count = 0
        while stack:
            value = stack.pop()
            count += 1
            if count % 64 == 0 and self.hook.is_over():
                raise OutOfTime
            kind = type(value)
            if kind in ATOMS:
                if kind in (str, bytes) and len(value) > MOST_BYTES:
                    self.opaque = True
                else:
                    self.digest.update(marshal.dumps(value, 2))
                continue
            known = self.seen.get(address(value))
            if known is not None:
                self.say("again", known)
                continue
            self.seen[address(value)] = len(self.seen)
            further = self.enter(value, kind)
            if further:
                # An object that is made for this look must live as long as its number is known.
                self.kept.append(further)
                stack.extend(reversed(further))

    def enter(self, value, kind):
        """Notes one object, and returns what it holds."""
        # `in` would call the `==` of a metaclass.
        if kind is list or kind is tuple or kind is set or kind is frozenset:
            return self.collection(value, kind)
        if kind is dict:
            self.parts.add(address(value))
            self.say("dict", len(value))
            return [] if self.over(len(value)) else self.alternate(dict.items(value))
        if kind is types.FunctionType:
            return self.function(value)
        if kind is types.CodeType:
            self.note(value)
            self.digest.update(Code.of(value).digest)
            return []
        if kind is types.BuiltinMethodType:
            owner = value.__self__
            self.say("builtin", value.__name__, value.__module__)
            return [] if owner is None or type(owner) is types.ModuleType else [owner]
        if types.ModuleType in line_of(kind):
            return self.module(value)
        if kind is types.GeneratorType or kind is types.CoroutineType or kind is types.AsyncGeneratorType:
            return self.generator(value, kind)
        if kind in CLEAR:
            if kind not in (types.MethodType, super):
                self.parts.add(address(value))
            self.say(kind.__name__, getattr(value, "__name__", "") if kind is type([].__iter__) else "")
            return gc.get_referents(value)
        if kind in ITERATORS:
            self.parts.add(address(value))
            self.say(kind.__name__, operator.length_hint(value))
            return gc.get_referents(value)
        if kind is enumerate:
            self.parts.add(address(value))
            return list(value.__reduce__()[1])
        if kind is bytearray or kind is memoryview:
            self.parts.add(address(value))
            size = len(value) if kind is bytearray else value.nbytes
            self.say(kind.__name__, size)
            if size > MOST_BYTES:
                self.opaque = True
            else:
                self.digest.update(bytes(value))
            return [value.obj] if kind is memoryview else []
        if kind is range or kind is slice:
            self.say(repr(value))
            return []
        if type in line_of(kind):
            return self.type(value, kind)
        module, name = self.named(kind)
        if FLAGS(kind) & HEAP_TYPE == 0 or module not in ("__main__", "builtins"):
            further = self.of_library(value, kind, module, name)
            if further is not None:
                return further
        return self.instance(value, kind, module, name)

    @staticmethod
    def named(kind):
        module = type.__getattribute__(kind, "__module__")
        return module if type(module) is str else "", type.__getattribute__(kind, "__qualname__")

    @staticmethod
    def alternate(items):
        return [part for pair in items for part in pair]

    def collection(self, value, kind):
        if kind is list or kind is set:
            self.parts.add(address(value))
        self.say(kind.__name__, len(value))
        if self.over(len(value)):
            return []
        if ATOMS.issuperset(map(type, value)):
            if kind is set or kind is frozenset:
                self.say(sorted(marshal.dumps(element, 2) for element in value))
            else:
                self.digest.update(marshal.dumps(value, 2))
            return []
        return list(value)

    @staticmethod
    def space_of(module):
        """Returns the variables of a module."""
        return object.__getattribute__(module, "__dict__") if types.ModuleType in line_of(type(module)) else {}

    def is_own(self, module):
        """Says whether a module is the user's: its file is in the working directory."""
        file = self.space_of(module).get("__file__")
        return type(file) is str and "site-packages" not in file and file.startswith(os.getcwd() + os.sep)

    def module(self, value):
        space = self.space_of(value)
        self.say("module", str(space.get("__name__")))
        if not self.is_own(value):
            return []
        self.parts.add(address(value))
        return self.alternate([(name, part) for name, part in list(space.items()) if not name.startswith("__")])

    def function(self, value):
        code = Code.of(value.__code__)
        self.digest.update(code.digest)
        if value.__globals__ is self.space:
            self.note(value.__code__)
            self.parts.add(address(value))
        else:
            self.say(value.__module__, value.__qualname__)
        further = [value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ())]
        if value.__dict__:
            further.append(dict(value.__dict__))
        module = sys.modules.get(value.__module__) if type(value.__module__) is str else None
        if self.is_own(module):
            further.append(module)
        return further

    def generator(self, value, kind):
        self.parts.add(address(value))
        prefix = {types.GeneratorType: "gi", types.CoroutineType: "cr"}.get(kind, "ag")
        frame, code = getattr(value, prefix + "_frame"), getattr(value, prefix + "_code")
        self.digest.update(Code.of(code).digest)
        if frame is None:
            return []
        if frame.f_globals is self.space:
            self.note(code)
        self.say(frame.f_lasti)
        further = gc.get_referents(value)
        if sys.version_info < (3, 11):
            further += gc.get_referents(frame)
        not_of_it = (frame.f_globals, frame.f_builtins)
        return [it for it in further if type(it) is not types.FrameType and not any(it is no for no in not_of_it)]

    def type(self, value, kind):
        module, name = self.named(value)
        self.say("class", module, name)
        if module != "__main__" and not self.is_own(sys.modules.get(module)):
            return []
        self.parts.add(address(value))
        items = type.__getattribute__(value, "__dict__").items()
        items = [(name, part) for name, part in items if name not in ATTRIBUTES_OF_CLASSES]
        return [*self.alternate(items), *BASES(value), kind]

    def of_library(self, value, kind, module, name):
        """Returns what an object of a known library holds; None if it is not known."""
        if module == "builtins" and name in ("getset_descriptor", "member_descriptor", "ellipsis", "NotImplementedType"):
            self.say(name)
            return []
        if module in ("datetime", "decimal", "re", "uuid", "fractions") or module.startswith("pathlib"):
            self.say(module, name, repr(value))
            return []
        if kind is collections.deque:
            self.parts.add(address(value))
            self.say("deque", len(value), value.maxlen)
            return [] if self.over(len(value)) else list(value)
        if kind is collections.defaultdict or kind is collections.OrderedDict:
            self.parts.add(address(value))
            self.say(name, len(value))
            factory = [value.default_factory] if kind is collections.defaultdict else []
            return [] if self.over(len(value)) else factory + self.alternate(kind.items(value))
        if module == "random" and name == "Random":
            self.parts.add(address(value))
            return [value.getstate()]
        if module == "numpy" and name == "ndarray":
            return self.array(value)
        if module.startswith("numpy") and FLAGS(kind) & HEAP_TYPE == 0 and self.is_number(kind, name):
            self.say(name, repr(value))
            return []
        if (module + ".").startswith("pandas."):
            return self.of_pandas(value, kind, name)
        return None

    @staticmethod
    def is_number(kind, name):
        return name.endswith("DType") or name == "ufunc" or any(Look.named(base)[1] == "generic" for base in line_of(kind))

    def array(self, value):
        root = value
        while type(root.base) is type(value):
            root = root.base
        self.parts.add(address(root))
        self.say("array", value.dtype.str, value.shape, value.strides, value.flags.writeable)
        if value.nbytes > MOST_BYTES or self.hook.is_over():
            self.opaque = True
            return []
        if value.dtype.hasobject:
            if self.over(value.size):
                return []
            return [value.ravel().tolist()]
        self.digest.update(value.tobytes())
        return [] if root.base is None else [root.base]

    def of_pandas(self, value, kind, name):
        def parts_of(*names):
            return [object.__getattribute__(value, it) for it in names]

        bases = {self.named(base)[1] for base in line_of(kind)}
        self.say(name)
        try:
            if bases & {"DataFrame", "Series"}:
                self.parts.add(address(value))
                held = object.__getattribute__(value, "__dict__")
                return [held.get("_mgr"), held.get("_attrs"), held.get("_name")]
            if bases & {"BlockManager", "SingleBlockManager"}:
                self.parts.add(address(value))
                blocks = [part for block in value.blocks for part in (block.values, block.mgr_locs.as_array)]
                return [*value.axes, *blocks]
            if "MultiIndex" in bases:
                return parts_of("_levels", "_codes", "_names")
            if "RangeIndex" in bases:
                return parts_of("_range", "_name")
            if "Index" in bases:
                return parts_of("_data", "_name")
            if "NDArrayBackedExtensionArray" in bases:
                self.say(str(value.dtype))
                return parts_of("_ndarray")
            if "ExtensionDtype" in bases or name in ("Timestamp", "Timedelta", "NaTType"):
                self.say(repr(value))
                return []
        except AttributeError:
            self.opaque = True
            return []
        return None

    def instance(self, value, kind, module, name):
        self.parts.add(address(value))
        self.say("object", module, name)
        further = [kind]
        for base in line_of(kind):
            if base is object:
                continue
            space = type.__getattribute__(base, "__dict__")
            if base in (list, tuple, set, frozenset, collections.deque):
                further.append(list(base.__iter__(value)))
            elif base in (dict, collections.OrderedDict, collections.defaultdict):
                further.append(self.alternate(dict.items(value)))
            elif base in (int, float, str, bytes, complex):
                further.append(base.__repr__(value))
            elif base is BaseException:
                further.append(BaseException.args.__get__(value))
            elif BaseException in line_of(base) and FLAGS(base) & HEAP_TYPE == 0:
                continue
            elif FLAGS(base) & HEAP_TYPE == 0 or not self.is_of_python(base):
                self.opaque = True
                if "io" in self.named(base)[0]:
                    self.file(value)
                return [kind, *(it for it in gc.get_referents(value) if type(it) is not types.FrameType)]
            for slot, descriptor in space.items():
                if type(descriptor) is types.MemberDescriptorType:
                    try:
                        further += [slot, descriptor.__get__(value, kind)]
                    except AttributeError:
                        pass
        try:
            further.append(object.__getattribute__(value, "__dict__"))
        except AttributeError:
            pass
        return further

    @staticmethod
    def is_of_python(base):
        space = Look.space_of(sys.modules.get(Look.named(base)[0]))
        file = space.get("__file__")
        if space.get("__name__") != "__main__" and not (type(file) is str and file.endswith(".py")):
            return False
        # A class of Python's own has no fields but its slots, a dictionary and weak references.
        slots = sum(type(it) is types.MemberDescriptorType for it in type.__getattribute__(base, "__dict__").values())
        fields = (SIZE(base) - SIZE(BASE(base))) // WORD
        return fields <= slots + 2

    def file(self, value):
        try:
            name, mode = value.name, value.mode
        except Exception:
            return
        if type(name) is str and type(mode) is str and set(mode) & set("wax+") and not name.startswith("<"):
            self.files.add(name)
