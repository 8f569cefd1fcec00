"""The public suite `jupyter_kernel_test` on the kernel of a chat; prints its results as JSON on stdout."""

import json
import sys
import unittest

from jupyter_kernel_test import KernelTests

START = sys.argv[1]


class Chat(KernelTests):
    kernel_name = "nb-chat"
    language_name = "agent-chat"
    file_extension = ".md"
    code_hello_world = "%agent start " + START
    completion_samples = [
        {"text": "%agent st", "matches": {"start", "stop"}},
        {"text": "!st", "matches": {"!start-agent", "!stop-agent"}},
    ]
    complete_code_samples = ["hello", "%agent list", "a\nb"]
    code_generate_error = "%agent dance"
    code_execute_result = []
    code_display_data = [{"code": "say **x**", "mime": "text/markdown"}]
    code_history_pattern = "%agent l?st"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "%agent"

    def test_execute_stdout(self):
        # The answer of a command is text on stdout.
        self.flush_channels()
        reply, messages = self.execute_helper(code="%agent list")
        self.assertEqual(reply["content"]["status"], "ok")
        self.assertEqual(messages[0]["msg_type"], "stream")
        self.assertIn("gemini", messages[0]["content"]["text"])

    def test_display_data(self):
        self.execute_helper(code=self.code_hello_world)
        super().test_display_data()



class Results(unittest.TestResult):
    def __init__(self):
        super().__init__()
        self.passed = []

    def addSuccess(self, test):
        self.passed.append(test.id())


results = Results()
loader = unittest.defaultTestLoader
loader.loadTestsFromTestCase(Chat).run(results)
json.dump(
    {
        "passed": results.passed,
        "skipped": [test.id() for test, _ in results.skipped],
        "failed": [[test.id(), text] for test, text in results.failures + results.errors],
    },
    sys.stdout,
)
