"""The assistant on the page of `nb web`: a person clicks, types and stops while a scripted model works."""

import contextlib
import http.server
import json
import os
import re
import threading

from lab import IS_THOROUGH, SECONDS, chromium, expect, nb, picture, say, until, write
from live import records
from web_tab import Book, Web, accessible

NOTEBOOK = "sales.ipynb"
SLOW = "import time\nprint('begun', flush=True)\ntime.sleep(600)"


def events(*parts):
    """An answer in Anthropic's interface: texts, and calls as (tool, arguments)."""
    yield {"type": "message_start", "message": {"usage": {"input_tokens": 900, "output_tokens": 1}}}
    reason = "end_turn"
    for index, part in enumerate(parts):
        if isinstance(part, str):
            block, deltas = {"type": "text", "text": ""}, [{"type": "text_delta", "text": word} for word in re.split("(?<= )", part)]
        else:
            name, arguments = part
            reason = "tool_use"
            # Some models give each call the same id.
            block = {"type": "tool_use", "id": "call", "name": name, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps({"notebook": NOTEBOOK, **arguments})}]
        yield {"type": "content_block_start", "index": index, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 40}}
    yield {"type": "message_stop"}


class Model(http.server.ThreadingHTTPServer):
    """Gives the next answers; one that is a function is called first."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Answering)
        self.answers = []
        self.asked = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base(self):
        return f"http://127.0.0.1:{self.server_port}"


class Answering(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append(json.loads(body))
        answer = self.server.answers.pop(0)
        if callable(answer):
            answer = answer()
        if isinstance(answer, int):
            self.send_response(answer)
            self.end_headers()
            self.wfile.write(b'{"error": {"message": "invalid x-api-key"}}')
            return
        self.send_response(200)
        self.end_headers()
        for event in events(*answer):
            self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())

    def log_message(self, *_):
        pass


class Talk:
    """The conversation in a tab."""

    def __init__(self, page, model):
        self.page, self.model = page, model
        self.node = page.get_by_role("complementary", name="Assistant")

    def open(self):
        self.page.get_by_role("button", name="Assistant", exact=True).click()
        expect(self.node).to_be_visible()

    def say(self, message, *answers):
        self.model.answers.extend(answers)
        self.node.get_by_label("Message to the assistant").fill(message)
        self.node.get_by_role("button", name="Send").click()
        expect(self.turn().locator(".message")).to_have_text(message)

    def answer(self, text):
        return self.node.get_by_role("group", name="Question").get_by_role("button", name=text)

    def allow(self, text):
        self.answer(text).click()

    def turn(self):
        return self.node.locator(".turn").last

    def step(self, number=-1):
        return self.turn().locator(".step").nth(number)

    def is_over(self):
        expect(self.node.get_by_role("button", name="Send")).to_be_enabled()


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(NOTEBOOK, "sales = [12, 19, 3]\ntotal = sum(sales)", "print(total)")
    nb("open", NOTEBOOK, "--python", os.environ["NB_TEST_PYTHON"])
    nb("exec", NOTEBOOK, "--all")
    cells = [cell["id"] for cell in json.loads(nb("cells", NOTEBOOK, "--json"))["cells"]]
    model = Model()
    os.environ.update(ANTHROPIC_API_KEY="sk-browser", ANTHROPIC_BASE_URL=model.base)
    web = Web(NOTEBOOK, "--port", "0", "--approve", "--price", "3/15")
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1280, "height": 860}, color_scheme="light")
        context.add_init_script(path=os.environ["NB_TEST_AXE"])
        page = context.new_page()
        page.goto(web.address)
        book, talk = Book(page), Talk(page, model)
        expect(page.locator(".cell")).to_have_count(2)
        talk.open()
        # Before a message is sent.
        expect(talk.node.locator(".setup")).to_have_text("claude-sonnet-4-5 at 127.0.0.1")
        works(page, book, talk, cells)
        is_stopped(context, page, book, talk)
        asks(context, page, book, talk)
        conflicts(page, book, talk, cells)
        fails(talk)
        if IS_THOROUGH:
            two_tabs(context, page, talk)
        forgets(talk)
        wide, narrow = {"width": 1280, "height": 860}, {"width": 390, "height": 800}
        for size in [wide, narrow] if IS_THOROUGH else [narrow]:
            page.set_viewport_size(size)
            accessible(page, f"the assistant, {size['width']} wide")
        page.set_viewport_size(wide)
        server_ends(ends, context, page, book, talk, web)
        assert book.problems == [], book.problems


def works(page, book, talk, cells):
    talk.say(
        "Which month was the best, and what is the total?",
        ["I look at the cells first. ", ("get_notebook_state", {})],
        [("update_cell", {"cell": cells[1], "old_string": "print(total)", "new_string": "print(total, max(sales))", "run": True})],
        ["The total is **34**, and the best month has **19**: cell `" + cells[1][:4] + "`."],
    )
    expect(talk.step().locator(".diff .removed")).to_have_text("- print(total)")
    talk.allow("Allow everything (until the end of this turn)")
    talk.is_over()
    expect(talk.turn().locator("strong").first).to_have_text("34")
    expect(talk.turn().locator(".step")).to_have_count(2)
    step = talk.step()
    expect(step.locator(".state")).to_have_text("✓")
    expect(step.locator(".diff .added")).to_have_text("+ print(total, max(sales))")
    expect(talk.turn().locator(".foot")).to_have_text(re.compile(r"tokens · 0\.0\d+ USD"))
    expect(book.outputs(1)).to_have_text("34 19")
    picture(page, "assistant")
    step.get_by_role("button", name=f"Go to cell {cells[1]}").click()
    expect(book.cell(1)).to_have_attribute("aria-current", "true")
    step.get_by_role("button", name=re.compile("Take edit .* back")).click()
    expect(book.source(1)).to_have_text("print(total)")
    say("a model works, and its edit is taken back")


def is_stopped(context, page, book, talk):
    talk.say("Wait a while", [("create_cell", {"source": SLOW, "run": True})])
    expect(talk.step().locator(".shown")).to_contain_text("time.sleep(600)")
    talk.allow("Allow (this time)")
    expect(book.outputs(2)).to_have_text(re.compile("begun"))
    # Who edits may, and nobody else runs.
    expect(page.get_by_role("button", name="Run all cells")).to_be_disabled()
    expect(book.cell(0).locator("button.run")).to_be_disabled()
    book.write(0, "sales = [12, 19, 3, 5]\ntotal = sum(sales)")
    book.select(1)
    until(lambda: "3, 5]" in nb("cell", NOTEBOOK, "0"))
    # Another tab, and this one after it was loaded again, see the same.
    other = context.new_page()
    other.goto(page.url)
    second = Talk(other, talk.model)
    expect(other.locator(".cell")).to_have_count(3)
    # Its panel is still closed.
    expect(other.get_by_role("button", name="Run all cells")).to_be_disabled()
    second.open()
    expect(second.step().locator(".state")).to_have_text("…")
    page.reload()
    expect(page.locator(".cell")).to_have_count(3)
    talk.open()
    expect(talk.step().locator(".state")).to_have_text("…")
    second.node.get_by_role("button", name=re.compile("Stop")).click()
    for each in (talk, second):
        expect(each.turn().locator(".remark").last).to_have_text("stopped")
        each.is_over()
    expect(book.outputs(2)).to_have_text(re.compile("KeyboardInterrupt"))
    expect(page.get_by_role("button", name="Run all cells")).to_be_enabled()
    other.close()
    say("the other tab stops it")


def asks(context, page, book, talk):
    delete = [("delete_cell", {"cell": 2})]
    talk.say("Tidy up", delete, ["As you like."])
    question = talk.node.get_by_role("group", name="Question")
    expect(question).to_contain_text("remove cell 2")
    question.get_by_role("button", name="Do not allow (not this time)").click()
    talk.is_over()
    expect(talk.step().locator(".state")).to_have_text("✗")
    expect(page.locator(".cell")).to_have_count(3)
    talk.say("Do tidy up", delete, ["It is gone."])
    # Somebody else allows it: a cell in which one types stays all the same.
    other = context.new_page()
    other.goto(page.url)
    second = Talk(other, talk.model)
    expect(other.locator(".cell")).to_have_count(3)
    second.open()
    book.write(2, "mine = 1")
    until(lambda: any("mine = 1" in record for record in records()))
    second.node.get_by_role("button", name="Allow (this time)").click()
    second.is_over()
    other.close()
    expect(talk.step().locator(".state")).to_have_text("✗")
    expect(book.source(2)).to_have_text("mine = 1")
    # One who is in a cell that is removed by force gets it back.
    nb("rm", NOTEBOOK, "2", "--force")
    expect(page.locator(".cell")).to_have_count(2)
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(book.source(2)).to_have_text("mine = 1")
    book.select(0)
    until(lambda: "mine = 1" in nb("cell", NOTEBOOK, "2"))
    expect(page.locator(".cell")).to_have_count(3)
    say("it asks before it deletes")


def conflicts(page, book, talk, cells):
    """The person types in a cell that the assistant changes."""
    typed = threading.Event()

    def later():
        assert typed.wait(SECONDS)
        return [("update_cell", {"cell": cells[1], "source": "print('theirs')"})]

    talk.say("Change it", [("read_cell", {"cell": cells[1]})], later, ["Changed."])
    expect(talk.step().locator(".state")).to_have_text("✓")
    book.write(1, "print('mine')")
    until(lambda: any("print('mine')" in record for record in records()))
    typed.set()
    # In another tab, perhaps: here the person stays in the cell.
    talk.answer("Allow (this time)").dispatch_event("click")
    talk.is_over()
    # It is told that the person types there.
    expect(talk.step().locator(".state")).to_have_text("✗")
    expect(talk.step()).to_contain_text("unsaved text")
    nb("edit", "--force", NOTEBOOK, cells[1], "print('theirs')")
    expect(book.cell(1)).to_contain_text("others changed it")
    book.select(0)
    conflict = book.cell(1).get_by_role("group", name="Conflict")
    expect(conflict).to_contain_text("print('theirs')")
    conflict.get_by_role("button", name="Overwrite their lines with yours").click()
    until(lambda: "mine" in nb("cell", NOTEBOOK, cells[1]))
    # And the other way round: what the person has saved is not overwritten.
    talk.say(
        "Once more",
        [("update_cell", {"cell": cells[1], "source": "print('blind')"})],
        ["Your text stays."],
    )
    talk.allow("Allow (this time)")
    talk.is_over()
    expect(talk.step().locator(".state")).to_have_text("✗")
    expect(talk.step()).to_contain_text("mine")
    expect(book.source(1)).to_have_text("print('mine')")
    say("nobody's text is overwritten")


def fails(talk):
    talk.say("Hello", 401)
    expect(talk.turn().get_by_role("alert")).to_contain_text("refuses the key in ANTHROPIC_API_KEY: invalid x-api-key")
    talk.is_over()


def two_tabs(context, page, talk):
    """Two tabs show one conversation, also when a panel was closed meanwhile."""
    other = context.new_page()
    other.goto(page.url)
    second = Talk(other, talk.model)
    second.open()
    expect(second.turn().locator(".message")).to_have_text("Hello")
    other.get_by_role("button", name="Assistant", exact=True).click()
    expect(second.node).to_be_hidden()
    talk.say("Are you there?", ["Yes."])
    talk.is_over()
    second.open()
    expect(second.turn().locator(".message")).to_have_text("Are you there?")
    expect(second.turn().locator(".answer")).to_have_text("Yes.")
    forgets(talk)
    expect(second.node.locator(".turn")).to_have_count(0)
    other.close()
    talk.say("Once more", ["Yes."])
    talk.is_over()
    say("two tabs show one conversation")


def forgets(talk):
    talk.node.get_by_role("button", name="Forget this conversation").click()
    expect(talk.node.locator(".turn")).to_have_count(0)


def server_ends(ends, context, page, book, talk, web):
    """The server ends during a turn, and another one begins."""
    ended = threading.Event()
    ends.callback(ended.set)
    talk.say("Wait", lambda: ended.wait(SECONDS) and ["Too late."])
    expect(talk.node.get_by_role("button", name="Send")).to_be_disabled()
    port = re.search(r":(\d+)/", web.address)[1]
    web.end()
    alert = page.locator("body > .banner")
    expect(alert).to_contain_text("the connection to nb web is lost")
    other_web = Web(NOTEBOOK, "--port", port)
    ends.callback(other_web.end)
    expect(alert).to_contain_text("open the address that it prints")
    # One tab that opens the new address is enough.
    other = context.new_page()
    other.goto(other_web.address)
    expect(alert).to_be_hidden()
    talk.is_over()
    expect(talk.turn().get_by_role("alert")).to_contain_text("the server ended while the assistant was at work")
    expect(page.get_by_role("button", name="Run all cells")).to_be_enabled()
    other.close()
    say("the server ends during a turn")


main()
