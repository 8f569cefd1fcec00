"""The public suite `jupyter_kernel_test` with ipykernel's samples; prints its results as JSON on stdout."""

import json
import unittest

from jupyter_kernel_test import IopubWelcomeTests, KernelTests
from launch import SECONDS, arguments, outputs, reply_to, say

KERNEL = arguments().kernel


class Patient:
    """An iopub channel with time limits for a busy machine; the assertions stay the same."""

    def __init__(self, channel):
        self._channel = channel

    def get_msg(self, timeout=None):
        return self._channel.get_msg(timeout=SECONDS)

    def __getattr__(self, name):
        return getattr(self._channel, name)


class Ipykernel(KernelTests):
    kernel_name = KERNEL
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('oh', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    invalid_code_samples = ["import = 7q"]
    code_page_something = "zip?"
    code_generate_error = "raise RuntimeError('on purpose')"
    code_execute_result = [
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
        {"code": "from IPython.display import HTML; HTML('<b>x</b>')", "mime": "text/html"},
    ]
    code_display_data = [
        {"code": "from IPython.display import HTML, display; display(HTML('<b>x</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    # Not "range": IPython gives the running session the number 0, and the suite expects the session's own
    # number.
    supported_history_operations = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.kc._iopub_channel = Patient(cls.kc.iopub_channel)

    def flush_channels(self):
        """Waits for the end of a separate request instead of a tenth of a second without messages."""
        request = self.kc.kernel_info()
        reply_to(self.kc, request)
        outputs(self.kc, request)


class Welcome(IopubWelcomeTests):
    kernel_name = KERNEL


class Results(unittest.TestResult):
    """Records the result of every test and subtest."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def note(self, test, outcome, why=""):
        name = test.id().split(".", 1)[1]
        self.outcomes[name] = outcome
        say(f"{name}: {outcome} {why}")

    def addSuccess(self, test):
        self.note(test, "ok")

    def addFailure(self, test, err):
        self.note(test, "failed", self._exc_info_to_string(err, test))

    def addError(self, test, err):
        self.note(test, "error", self._exc_info_to_string(err, test))

    def addSkip(self, test, reason):
        self.note(test, "skipped", reason)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.note(subtest, "failed", self._exc_info_to_string(err, subtest))


def main():
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    results = Results()
    unittest.TestSuite([load(Ipykernel), load(Welcome)]).run(results)
    print(json.dumps(results.outcomes, indent=1, sort_keys=True))


main()
