"""`nb web`, and a notebook in a tab of its page."""

import os
import re
import subprocess

from lab import SECONDS, expect


def until(page, condition, argument=None):
    """Waits until a condition holds in the page. Playwright's own way would evaluate text there, which the policy forbids."""
    page.evaluate(
        f"""async (argument) => {{
            const end = performance.now() + {1000 * SECONDS};
            while (!({condition})) {{
                if (performance.now() > end) throw new Error({condition!r} + " never comes");
                await new Promise(requestAnimationFrame);
            }}
        }}""",
        argument,
    )


class Web:
    """`nb web`, and the address that it prints."""

    def __init__(self, *words):
        self.process = subprocess.Popen(
            [os.environ["NB_TEST_BINARY"], "web", *(words or ["--port", "0"])],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.address = self.process.stdout.readline().strip()

    def end(self):
        self.process.kill()
        self.process.wait()


class Book:
    """The notebook in a tab."""

    def __init__(self, page):
        self.page = page
        self.problems = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))

    def cell(self, index):
        return self.page.locator(".cell").nth(index)

    def source(self, index):
        return self.cell(index).locator(".cm-content")

    def outputs(self, index):
        return self.cell(index).locator(".outputs")

    def has_ended(self, index):
        expect(self.cell(index).locator(".prompt")).to_have_text(re.compile(r"\[\d+\]"))

    def select(self, index):
        self.cell(index).locator(".side").click()
        expect(self.cell(index)).to_have_attribute("aria-current", "true")
        self.page.keyboard.press("Escape")
        self.cell(index).focus()

    def write(self, index, text):
        self.source(index).click()
        self.source(index).press("Control+a")
        self.page.keyboard.insert_text(text)

    def run(self, index):
        self.select(index)
        self.page.keyboard.press("Control+Enter")


FAULTS = """async () => {
    const { violations } = await axe.run(document, { resultTypes: ["violations"] });
    const bad = violations.filter(({ impact }) => ["serious", "critical"].includes(impact));
    return bad.map(({ id, help, nodes }) => `${id}: ${help}\\n` + nodes.slice(0, 5).map(({ target, html, failureSummary }) =>
        `  ${target.join(" ")}\\n  ${html.slice(0, 300)}\\n  ${failureSummary}`).join("\\n"));
}"""


def accessible(page, context):
    """Fails if axe finds what keeps people out."""
    faults = page.evaluate(FAULTS)
    assert faults == [], f"{context}:\n" + "\n".join(faults)
