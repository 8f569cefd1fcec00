"""A chat in JupyterLab: an agent edits and runs a cell of another notebook, which is open beside it.

The argument is the cell that starts the agent.
"""

import os
import re
import sys

from lab import SECONDS, SHARED, Server, chromium, expect, nb, picture, say, write
from tab import PLAIN, Notebook

CHAT = "Agent Client Protocol"
DATA, TALK = "analysis.ipynb", "chat.ipynb"
START, ON, ASK = range(3)


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(DATA, kernelspec={"name": "python3", "display_name": PLAIN})
    nb("insert", DATA, "--source", "x = 20", "--id", "cell0001")
    write(
        TALK, sys.argv[1], f"%agent on {DATA}", "Correct the notebook",
        kernelspec={"name": "nb-chat", "display_name": CHAT, "language": "agent-chat"},
    )  # fmt: skip
    nb("open", DATA, "--python", os.environ["NB_TEST_PYTHON"])
    with Server() as server, chromium() as browser:
        book = Notebook(browser.new_page(viewport={"width": 1100, "height": 900}), server, DATA)
        book.choose(SHARED)
        book.run(0)
        expect(book.cell(0).locator(".jp-InputPrompt")).to_have_text("[1]:")
        book.save()
        book.is_saved()
        book.opens(TALK)
        talk(book)
        shown(book)


def talk(chat):
    say("the agent starts")
    chat.run(START)
    chat.ends(START, "gemini (Gemini CLI")
    chat.run(ON)
    chat.ends(ON, f"the agents work on {DATA}")

    say("it asks for each step")
    chat.run(ASK)
    ended = chat.cell(ASK).locator(".jp-InputPrompt", has_text=re.compile(r"\[\d+\]:"))
    question = chat.cell(ASK).locator(".jp-Stdin-input")
    answered = 0
    while True:
        expect(question.or_(ended).first).to_be_visible()
        if ended.count():
            break
        field = question.element_handle()
        field.fill("a")
        field.press("Enter")
        field.wait_for_element_state("hidden")
        answered += 1
    assert answered >= 1, "nothing was asked"
    chat.ends(ASK, "The cell gives 42.")

    say("the log names the agent and the chat's cell")
    chat.save()
    chat.is_saved()
    cell = chat.page.evaluate(
        "window.jupyterapp.shell.currentWidget.content.widgets[2].model.id"
    )
    log = nb("log", DATA)
    assert "gemini edited" in log and "gemini ran" in log, log
    assert f"gemini did that for {TALK} cell {cell}: “Correct the notebook”" in log, log
    link = chat.cell(ASK).locator("a", has_text=DATA)
    expect(link).to_be_visible()
    chat.cell(ASK).scroll_into_view_if_needed()
    picture(chat.page, "chat")


def shown(data):
    say("the other tab shows it")
    data.shows(DATA)
    data.menu("File", "Reload Notebook from Disk")
    expect(data.source(0)).to_contain_text("x = 21")
    data.ends(0, "42")


main()
