//! What is known of Python's own functions, of common methods, and of common libraries, by name.
//!
//! A notebook that defines a method of one of these names has its own.

/// The names that every Python module, and IPython, has.
pub fn is_builtin(name: &str) -> bool {
    BUILTINS.binary_search(&name).is_ok()
}

/// Names that stand for the last outputs.
pub fn is_output(name: &str) -> bool {
    let digits = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
    matches!(
        name,
        "_" | "__" | "___" | "Out" | "_i" | "_ii" | "_iii" | "In"
    ) || name.strip_prefix("_i").is_some_and(digits)
        || name.strip_prefix('_').is_some_and(digits)
}

/// The relevant effect of a built-in function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Builtin {
    /// It reads or writes any name.
    AnyName,
    /// It reads something outside the kernel.
    Outside,
    /// It changes its first argument.
    ChangesFirst,
    /// It returns an iterator.
    Iterator,
    /// It returns a new object with the same elements.
    Copies,
    /// It returns one of its arguments, or a part of one.
    Returns,
    /// It returns a new object that has nothing in common with others.
    Fresh,
}

/// Returns the relevant effect of a built-in function.
pub fn builtin(name: &str) -> Builtin {
    match name {
        "exec" | "eval" | "globals" | "locals" | "vars" | "compile" | "__import__"
        | "get_ipython" => Builtin::AnyName,
        "input" | "open" => Builtin::Outside,
        "next" | "setattr" | "delattr" | "anext" => Builtin::ChangesFirst,
        "iter" | "map" | "filter" | "zip" | "enumerate" | "reversed" | "aiter" => Builtin::Iterator,
        "list" | "tuple" | "set" | "frozenset" | "dict" | "sorted" => Builtin::Copies,
        "max" | "min" | "getattr" | "super" | "type" | "memoryview" | "sum" => Builtin::Returns,
        _ => Builtin::Fresh,
    }
}

/// The result of a method that only reads its object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadingMethod {
    /// It changes nothing, and returns a new object.
    New,
    /// It changes nothing, and may return a part of the object, or a view of it.
    View,
}

/// Returns whether a method of this name only reads its object. Other methods may change it.
pub fn reading_method(name: &str) -> Option<ReadingMethod> {
    if VIEWS.binary_search(&name).is_ok() {
        return Some(ReadingMethod::View);
    }
    let is_known = READING.binary_search(&name).is_ok();
    (is_known || name.starts_with("to_") || name.starts_with("is_") || name.starts_with("plot_"))
        .then_some(ReadingMethod::New)
}

/// Says whether Python calls a special method of this name when code only uses its object: `__len__`, but not
/// `__init__`.
pub fn is_reading_special_method(name: &str) -> bool {
    let inner = name.strip_prefix("__");
    let inner = inner.and_then(|name| name.strip_suffix("__"));
    inner.is_some_and(|inner| OTHER_SPECIAL_METHODS.binary_search(&inner).is_err())
}

/// Says whether a decorator of this name leaves its function uncalled, and changes nothing else.
pub fn only_wraps(decorator: &str) -> bool {
    matches!(
        decorator,
        "abstractmethod"
            | "asynccontextmanager"
            | "classmethod"
            | "contextmanager"
            | "dataclass"
            | "deleter"
            | "getter"
            | "inference_mode"
            | "no_grad"
            | "overload"
            | "property"
            | "setter"
            | "staticmethod"
            | "total_ordering"
            | "wraps"
    )
}

/// Says whether a decorator of this name may keep results, or compiled code: `lru_cache`, `memoize`, `njit`.
pub fn caches(decorator: &str) -> bool {
    ["cache", "memo", "jit"]
        .iter()
        .any(|part| decorator.contains(part))
}

/// Says whether a method of this name stores its arguments in its object.
pub fn takes_in(method: &str) -> bool {
    matches!(
        method,
        "add"
            | "append"
            | "appendleft"
            | "extend"
            | "extendleft"
            | "insert"
            | "put"
            | "setdefault"
            | "update"
    )
}

/// Says whether a method of this name changes its object even if that belongs to a module: `sys.path.append`.
pub fn changes_module(method: &str) -> bool {
    takes_in(method) || matches!(method, "clear" | "pop" | "popitem" | "remove")
}

/// The relevant effect of a function of a library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// Its result may be another each time.
    Outside,
    /// It changes its first argument.
    ChangesFirst,
    /// It returns an iterator.
    Iterator,
    /// It returns a new object with the same elements.
    Copies,
    /// It may return its argument, or an object that holds it.
    Keeps,
    /// It returns a new object.
    New,
}

/// Returns the relevant effect of a library's function, by its whole name: `numpy.random.shuffle`.
pub fn library(name: &str) -> Library {
    let last = name.rsplit('.').next().unwrap_or(name);
    if matches!(
        last,
        "shuffle"
            | "heappush"
            | "heappop"
            | "heapify"
            | "heapreplace"
            | "heappushpop"
            | "insort"
            | "insort_left"
            | "insort_right"
            | "copyto"
            | "putmask"
            | "fill_diagonal"
            | "put_along_axis"
    ) {
        return Library::ChangesFirst;
    }
    // It waits, and returns nothing.
    let is_wait = name == "time.sleep";
    let begins = |start: &&str| name.starts_with(*start) && !is_wait;
    if OUTSIDE.iter().any(begins) || last.starts_with("read_") {
        return Library::Outside;
    }
    if name == "copy.copy" {
        return Library::Copies;
    }
    if name.starts_with("itertools.") {
        return Library::Iterator;
    }
    let is_class = last.starts_with(|first: char| first.is_uppercase());
    let keeps = matches!(
        last,
        "asarray"
            | "ascontiguousarray"
            | "atleast_1d"
            | "atleast_2d"
            | "broadcast_to"
            | "expand_dims"
            | "from_numpy"
            | "as_tensor"
            | "partial"
            | "ravel"
            | "reshape"
            | "squeeze"
            | "swapaxes"
            | "transpose"
            | "deque"
            | "OrderedDict"
            | "defaultdict"
            | "proxy"
            | "ref"
    );
    match (is_class && !NEW_CLASSES.contains(&last)) || keeps {
        true => Library::Keeps,
        false => Library::New,
    }
}

/// Classes of libraries that copy what they are given.
const NEW_CLASSES: [&str; 8] = [
    "Counter",
    "DataFrame",
    "Decimal",
    "Fraction",
    "Index",
    "Path",
    "Series",
    "Timestamp",
];

/// How the names of functions begin whose result may be another each time.
const OUTSIDE: [&str; 32] = [
    "aiohttp.",
    "boto3.",
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "getpass.",
    "glob.",
    "httpx.",
    "numpy.load",
    "numpy.random.",
    "os.environ",
    "os.getcwd",
    "os.getenv",
    "os.listdir",
    "os.popen",
    "os.system",
    "os.urandom",
    "os.walk",
    "pandas.Timestamp.now",
    "pandas.Timestamp.today",
    "pathlib.Path.cwd",
    "pickle.load",
    "joblib.load",
    "random.",
    "requests.",
    "secrets.",
    "subprocess.",
    "time.",
    "torch.rand",
    "urllib.",
    "uuid.",
];

/// Special methods, without their underscores, that make or change an object, or are called by its name. In the order
/// of their bytes.
const OTHER_SPECIAL_METHODS: [&str; 29] = [
    "aenter",
    "aexit",
    "call",
    "class_getitem",
    "del",
    "delattr",
    "delete",
    "delitem",
    "enter",
    "exit",
    "iadd",
    "iand",
    "ifloordiv",
    "ilshift",
    "imatmul",
    "imod",
    "imul",
    "init",
    "init_subclass",
    "ior",
    "ipow",
    "isub",
    "itruediv",
    "ixor",
    "new",
    "post_init",
    "set",
    "setattr",
    "setitem",
];

/// Methods that return a view of their object, or a part. In the order of their bytes.
const VIEWS: [&str; 20] = [
    "T",
    "as_view",
    "diagonal",
    "get",
    "get_group",
    "groupby",
    "items",
    "iteritems",
    "iterrows",
    "itertuples",
    "keys",
    "ravel",
    "reshape",
    "squeeze",
    "swapaxes",
    "transpose",
    "unsqueeze",
    "values",
    "view",
    "xs",
];

/// Methods of Python's own types, of pandas and of NumPy that change nothing. In the order of their bytes.
const READING: [&str; 303] = [
    "DataFrame",
    "PolarsDataFrame",
    "abs",
    "absolute",
    "add_prefix",
    "add_suffix",
    "agg",
    "aggregate",
    "align",
    "all",
    "any",
    "apply",
    "applymap",
    "argmax",
    "argmin",
    "argpartition",
    "argsort",
    "as_integer_ratio",
    "as_posix",
    "asfreq",
    "asof",
    "assign",
    "astype",
    "at_time",
    "autocorr",
    "backfill",
    "between",
    "between_time",
    "bfill",
    "bit_length",
    "bool_",
    "boxplot",
    "capitalize",
    "case_when",
    "casefold",
    "cat",
    "ceil",
    "center",
    "choose",
    "clip",
    "combine",
    "combine_first",
    "compare",
    "compress",
    "conj",
    "conjugate",
    "contains",
    "convert_dtypes",
    "copy",
    "corr",
    "corrwith",
    "count",
    "cov",
    "cpu",
    "cumcount",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "date",
    "day_name",
    "decision_function",
    "decode",
    "describe",
    "detach",
    "diff",
    "difference",
    "div",
    "divide",
    "dot",
    "drop",
    "drop_duplicates",
    "droplevel",
    "dropna",
    "dumps",
    "duplicated",
    "elements",
    "encode",
    "endswith",
    "eq",
    "equals",
    "ewm",
    "exists",
    "expanding",
    "expandtabs",
    "explode",
    "extract",
    "extractall",
    "factorize",
    "ffill",
    "fillna",
    "filter",
    "find",
    "findall",
    "first",
    "first_valid_index",
    "flatten",
    "floor",
    "floordiv",
    "format",
    "format_map",
    "fullmatch",
    "ge",
    "get_dummies",
    "get_feature_names_out",
    "get_params",
    "getfield",
    "group",
    "groupdict",
    "groups",
    "gt",
    "head",
    "hex",
    "hist",
    "histogram",
    "idxmax",
    "idxmin",
    "index",
    "infer_objects",
    "info",
    "interpolate",
    "intersection",
    "inverse_transform",
    "is_dir",
    "is_file",
    "is_integer",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isdisjoint",
    "isfinite",
    "isidentifier",
    "isin",
    "islower",
    "isna",
    "isnan",
    "isnull",
    "isnumeric",
    "isoformat",
    "isoweekday",
    "isprintable",
    "isspace",
    "issubset",
    "issuperset",
    "istitle",
    "isupper",
    "item",
    "iterdir",
    "join",
    "joinpath",
    "kurt",
    "kurtosis",
    "last",
    "last_valid_index",
    "le",
    "len",
    "ljust",
    "lookup",
    "lower",
    "lstrip",
    "lt",
    "maketrans",
    "map",
    "mask",
    "match",
    "max",
    "mean",
    "median",
    "melt",
    "memory_usage",
    "merge",
    "min",
    "mod",
    "mode",
    "month_name",
    "most_common",
    "mul",
    "multiply",
    "nbytes",
    "ndim",
    "ne",
    "ngroup",
    "nlargest",
    "nonzero",
    "normalize",
    "notna",
    "notnull",
    "nsmallest",
    "nth",
    "numel",
    "numpy",
    "nunique",
    "ohlc",
    "partition",
    "pct_change",
    "pipe",
    "pivot",
    "pivot_table",
    "plot",
    "pow",
    "predict",
    "predict_log_proba",
    "predict_proba",
    "prod",
    "product",
    "ptp",
    "quantile",
    "query",
    "radd",
    "rank",
    "rdiv",
    "read_bytes",
    "read_text",
    "reindex",
    "reindex_like",
    "relative_to",
    "removeprefix",
    "removesuffix",
    "rename",
    "rename_axis",
    "reorder_levels",
    "repeat",
    "replace",
    "resample",
    "reset_index",
    "resolve",
    "rfind",
    "rfloordiv",
    "rindex",
    "rjust",
    "rmod",
    "rmul",
    "rolling",
    "round",
    "rpartition",
    "rpow",
    "rsplit",
    "rstrip",
    "rsub",
    "rtruediv",
    "samefile",
    "sample",
    "score",
    "score_samples",
    "search",
    "searchsorted",
    "select_dtypes",
    "sem",
    "set_axis",
    "set_flags",
    "set_index",
    "shape",
    "shift",
    "size",
    "skew",
    "slice_replace",
    "sort_index",
    "sort_values",
    "span",
    "split",
    "splitlines",
    "stack",
    "startswith",
    "std",
    "strftime",
    "strip",
    "sub",
    "subn",
    "subtract",
    "sum",
    "swapcase",
    "swaplevel",
    "symmetric_difference",
    "tail",
    "take",
    "timestamp",
    "timetuple",
    "title",
    "to",
    "tobytes",
    "tolist",
    "total_seconds",
    "trace",
    "transform",
    "translate",
    "truediv",
    "truncate",
    "tz_convert",
    "tz_localize",
    "union",
    "unique",
    "unstack",
    "upper",
    "utcoffset",
    "value_counts",
    "var",
    "weekday",
    "where",
    "with_name",
    "with_suffix",
    "zfill",
];

/// In the order of their bytes.
const BUILTINS: [&str; 173] = [
    "ArithmeticError",
    "AssertionError",
    "AttributeError",
    "BaseException",
    "BaseExceptionGroup",
    "BlockingIOError",
    "BrokenPipeError",
    "BufferError",
    "BytesWarning",
    "ChildProcessError",
    "ConnectionAbortedError",
    "ConnectionError",
    "ConnectionRefusedError",
    "ConnectionResetError",
    "DeprecationWarning",
    "EOFError",
    "Ellipsis",
    "EncodingWarning",
    "EnvironmentError",
    "Exception",
    "ExceptionGroup",
    "False",
    "FileExistsError",
    "FileNotFoundError",
    "FloatingPointError",
    "FutureWarning",
    "GeneratorExit",
    "IOError",
    "ImportError",
    "ImportWarning",
    "IndentationError",
    "IndexError",
    "InterruptedError",
    "IsADirectoryError",
    "KeyError",
    "KeyboardInterrupt",
    "LookupError",
    "MemoryError",
    "ModuleNotFoundError",
    "NameError",
    "None",
    "NotADirectoryError",
    "NotImplemented",
    "NotImplementedError",
    "OSError",
    "OverflowError",
    "PendingDeprecationWarning",
    "PermissionError",
    "ProcessLookupError",
    "PythonFinalizationError",
    "RecursionError",
    "ReferenceError",
    "ResourceWarning",
    "RuntimeError",
    "RuntimeWarning",
    "StopAsyncIteration",
    "StopIteration",
    "SyntaxError",
    "SyntaxWarning",
    "SystemError",
    "SystemExit",
    "TabError",
    "TimeoutError",
    "True",
    "TypeError",
    "UnboundLocalError",
    "UnicodeDecodeError",
    "UnicodeEncodeError",
    "UnicodeError",
    "UnicodeTranslateError",
    "UnicodeWarning",
    "UserWarning",
    "ValueError",
    "Warning",
    "WindowsError",
    "ZeroDivisionError",
    "__annotations__",
    "__build_class__",
    "__builtin__",
    "__builtins__",
    "__cached__",
    "__debug__",
    "__doc__",
    "__file__",
    "__import__",
    "__loader__",
    "__name__",
    "__package__",
    "__session__",
    "__spec__",
    "_dh",
    "_ih",
    "_oh",
    "abs",
    "aiter",
    "all",
    "anext",
    "any",
    "ascii",
    "bin",
    "bool",
    "breakpoint",
    "bytearray",
    "bytes",
    "callable",
    "chr",
    "classmethod",
    "compile",
    "complex",
    "copyright",
    "credits",
    "delattr",
    "dh",
    "dict",
    "dir",
    "display",
    "divmod",
    "enumerate",
    "eval",
    "exec",
    "exit",
    "filter",
    "float",
    "format",
    "frozenset",
    "get_ipython",
    "getattr",
    "globals",
    "hasattr",
    "hash",
    "help",
    "hex",
    "id",
    "input",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "license",
    "list",
    "locals",
    "map",
    "max",
    "memoryview",
    "min",
    "next",
    "object",
    "oct",
    "open",
    "ord",
    "pow",
    "print",
    "property",
    "quit",
    "range",
    "repr",
    "reveal_locals",
    "reveal_type",
    "reversed",
    "round",
    "set",
    "setattr",
    "slice",
    "sorted",
    "staticmethod",
    "str",
    "sum",
    "super",
    "tuple",
    "type",
    "vars",
    "zip",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_in_order() {
        for table in [&READING[..], &BUILTINS, &VIEWS, &OTHER_SPECIAL_METHODS] {
            assert!(table.is_sorted_by(|one, other| one < other), "{table:?}");
        }
    }
}
