"""The page of `nb web`: what is out of date, plots and widgets, and whether everybody can use it."""

import contextlib
import json
import os
import pathlib
import re

from lab import IS_THOROUGH, SECONDS, chromium, expect, nb, picture, say, until, write
from web_tab import Book, Web, accessible

GRAPH = "graph.ipynb"
FAILS = "fails.ipynb"
PLOTS = "plots.ipynb"
SHOWN = "shown.ipynb"

BARS = {"data": [{"type": "bar", "x": ["a", "b", "c"], "y": [1, 3, 2], "name": "<b>bars</b>"}], "layout": {"title": {"text": "Bars"}, "height": 300}}  # fmt: skip
POINTS = {
    "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
    "data": {"values": [{"a": "A", "b": 28}, {"a": "B", "b": 55}, {"a": "C", "b": 43}]},
    "transform": [{"calculate": "datum.b * 2", "as": "c"}],
    "mark": "bar",
    "encoding": {"x": {"field": "a", "type": "nominal"}, "y": {"field": "c", "type": "quantitative"}},
}
# It would read what only the person may.
ELSEWHERE = {**POINTS, "data": {"url": "/api/notebooks", "format": {"property": "notebooks"}}}
VEGALITE = "application/vnd.vegalite.v5+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
HOSTILE = "<b id='inner'>bold</b><script>document.title = 'taken'</script><img src='x' onerror='document.title = 1'>"


# A plot as Altair shows it by itself, and by the type that front ends know.
ALTAIR = """import altair
values = [{"a": "A", "b": 28}, {"a": "B", "b": 55}, {"a": "</script>", "b": 43}]
plot = altair.Chart(altair.Data(values=values)).mark_bar().encode(x="a:N", y="b:Q")
display(plot)
altair.renderers.enable("mimetype")
display(plot)"""

# It would take the tab to another page.
REFRESH = "<p>kept</p><meta http-equiv='refresh' content='0; url=about:blank'>"


def model(name, module=None, **state):
    return {
        "model_module": module or ("@jupyter-widgets/base" if name == "LayoutModel" else "@jupyter-widgets/controls"),
        "model_module_version": "2.0.0",
        "model_name": name,
        "state": state,
    }


def output_of_html(html):
    return {"output_type": "display_data", "data": {"text/html": html}, "metadata": {}}


STATE = {
    "version_major": 2,
    "version_minor": 0,
    "state": {
        "layout": model("LayoutModel"),
        "style": model("SliderStyleModel"),
        "slider": model(
            "IntSliderModel", value=42, max=100, description="Size", layout="IPY_MODEL_layout", style="IPY_MODEL_style"
        ),
        "text": model("HTMLModel", value=HOSTILE, layout="IPY_MODEL_layout"),
        "box": model("VBoxModel", children=["IPY_MODEL_slider", "IPY_MODEL_text"], layout="IPY_MODEL_layout"),
        "hostile": model("VBoxModel", children=[f"IPY_MODEL_h{number}" for number in range(11)], layout="IPY_MODEL_layout"),
        # What a model is called, and what is drawn.
        "h0": model("LabelModel", _view_name="HTMLView", value=REFRESH),
        "h1": model("TextModel", _view_name="HTMLMathView", value=REFRESH),
        "h2": model("LabelModel", _view_module="@jupyter-widgets/base", _view_name="ErrorWidgetView", msg=REFRESH, error={"stack": REFRESH}),
        "h3": model("WidgetModel", "@jupyter-widgets/base", _view_name="ErrorWidgetView", msg=REFRESH, error={"stack": REFRESH}),
        "h4": model(REFRESH, _view_name=REFRESH),
        "h5": model("BoxModel", "@jupyter-widgets/output", outputs=[output_of_html(REFRESH)]),
        # An error's text has what is written here.
        "h6": model("IntSliderModel", readout_format=REFRESH, value=1, layout="IPY_MODEL_layout", style="IPY_MODEL_style"),
        # Texts of their own.
        "h7": model("HTMLMathModel", value=REFRESH),
        "h8": model("CheckboxModel", description=REFRESH, description_allow_html=True),
        "h9": model("OutputModel", "@jupyter-widgets/output", outputs=[output_of_html(REFRESH)]),
        # A text that another model would get after it was checked.
        "h10": model("HTMLModel", value="<p>kept</p>"),
        "source": model("TextModel", value=REFRESH),
        "link": model("DirectionalLinkModel", source=["IPY_MODEL_source", "value"], target=["IPY_MODEL_h10", "value"]),
    },
}


def output(**data):
    return {"output_type": "display_data", "data": {"text/plain": "a fallback", **data}, "metadata": {}}


def widget(name):
    return output(**{WIDGET: {"model_id": name, "version_major": 2, "version_minor": 0}})


def main():
    expect.set_options(timeout=1000 * SECONDS)
    write(GRAPH, "a = 1", "b = a + 1", "print('sum', a + b)", "c = 5\nc")
    write(FAILS, "1 / 0", "print('after')")
    notebook = json.loads(pathlib.Path(GRAPH).read_text())
    notebook["cells"][0]["id"] = "makes_a0"
    pathlib.Path(GRAPH).write_text(json.dumps(notebook))
    for name in [GRAPH, FAILS]:
        nb("open", name, "--python", os.environ["NB_TEST_PYTHON"])
    write_plots()
    for number, python in enumerate(os.environ["NB_TEST_ALTAIR"].split(os.pathsep)):
        write(f"altair{number}.ipynb", ALTAIR)
        nb("open", f"altair{number}.ipynb", "--python", python)
        nb("exec", f"altair{number}.ipynb", "--all")
    write_shown()
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        context = browser.new_context(viewport={"width": 1200, "height": 800}, color_scheme="light")
        # Injected by the browser: the page's own policy forbids it.
        context.add_init_script(path=os.environ["NB_TEST_AXE"])
        context.add_init_script("addEventListener('securitypolicyviolation', it => (globalThis.violations ??= []).push(it.violatedDirective + ' ' + it.blockedURI))")
        page = context.new_page()
        page.goto(web.address)
        expect(page.get_by_role("link", name=GRAPH)).to_be_visible()
        accessible(page, "the list")
        fails(page)
        page.goto(page.url.split("#")[0])
        graph(page)
        plots(page)
        altair(page)
        shown(page)


def write_plots():
    outputs = [
        output(**{"application/vnd.plotly.v1+json": BARS, "text/html": "<p>needs scripts</p>"}),
        output(**{VEGALITE: POINTS}),
        output(**{VEGALITE: ELSEWHERE}),
        widget("box"),
        widget("none"),
        {"output_type": "stream", "name": "stdout", "text": "x" * 300 + "\n\x1b[31mred\x1b[0m \x1b[32mgreen\x1b[0m \x1b[38;5;28mof 256\x1b[0m"},
        {"output_type": "error", "ename": "E", "evalue": "1", "traceback": ["\x1b[0;31mE\x1b[0m: 1"]},
        output(**{"text/html": "<table><tr><th>name</th></tr><tr><td>value</td></tr></table><a href='https://example.com'>link</a>"
                              "<p class='news' style='color: rgb(120, 60, 0); position: fixed'>styled</p>"}),
    ]
    write(PLOTS, *["show()"] * len(outputs))
    book = json.loads(pathlib.Path(PLOTS).read_text())
    for cell, each in zip(book["cells"], outputs):
        cell["outputs"] = [each]
    book["cells"].append({"cell_type": "markdown", "id": "words000", "metadata": {}, "source": "# Words\n\n`code` and $x^2$ [link](https://example.com)"})
    hostile_cell = {"cell_type": "code", "id": "hostile0", "metadata": {}, "source": "show()", "execution_count": None, "outputs": [widget("hostile")]}
    links = f"[to words](#Words) [the graph](./{GRAPH})"
    book["cells"].insert(0, {"cell_type": "markdown", "id": "links000", "metadata": {}, "source": links})
    dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    book["cells"].append({"cell_type": "markdown", "id": "image000", "metadata": {}, "source": "![dot](attachment:a%20dot.png)",
                          "attachments": {"a dot.png": {"image/png": dot}}})
    book["cells"].append(hostile_cell)
    book["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": STATE}
    pathlib.Path(PLOTS).write_text(json.dumps(book))


def fails(page):
    say("cells behind one that fails no longer wait")
    page.get_by_role("link", name=FAILS).click()
    book = Book(page)
    page.get_by_role("button", name="Run all cells").click()
    expect(book.outputs(0)).to_contain_text("ZeroDivisionError")
    book.has_ended(0)
    expect(book.cell(1).locator(".prompt")).to_have_text("[ ]")
    assert book.problems == []


def graph(page):
    say("what is out of date is marked, with the reason")
    page.get_by_role("link", name=GRAPH).click()
    book = Book(page)
    page.get_by_role("button", name="Run all cells").click()
    expect(book.outputs(2)).to_contain_text("sum 3")
    book.has_ended(3)
    expect(page.locator(".cell .stale:visible")).to_have_count(0)
    nb("cell", GRAPH, "makes_a0")
    nb("edit", GRAPH, "makes_a0", "a = 10")
    expect(book.cell(0).locator(".stale")).to_have_text("Out of date: edited since it ran")
    expect(book.cell(1).locator(".stale")).to_contain_text("Out of date: 0 · make · a = 10, which defines a, is stale")
    expect(book.cell(2).locator(".stale")).to_be_visible()
    expect(book.cell(3).locator(".stale")).to_be_hidden()
    book.cell(1).get_by_role("button", name="Go to the cell that gives a").click()
    expect(book.cell(0)).to_have_attribute("aria-current", "true")

    say("the graph of the selected cell")
    page.get_by_role("button", name="History", exact=True).click()
    panel = page.get_by_role("complementary")
    panel.get_by_role("tab", name="Graph").click()
    book.select(1)
    above, below = [panel.get_by_role("region", name=name) for name in ["Depends on", "Needed by"]]
    expect(above.get_by_role("listitem")).to_have_text(["0 · make · a = 10 a"])
    expect(below.get_by_role("listitem")).to_have_text([re.compile(r"2 · \w+ · print\('sum', a \+ b\) b")])
    book.select(0)
    expect(below.get_by_role("listitem")).to_have_count(2)
    below.get_by_role("button", name="Go to 2 · ").click()
    expect(book.cell(2)).to_have_attribute("aria-current", "true")
    expect(above.get_by_role("listitem")).to_have_count(2)
    expect(panel.get_by_role("region", name="Out of date: 3").get_by_role("listitem")).to_have_count(3)
    # The tabs are one stop of the keyboard.
    panel.get_by_role("tab", name="Graph").focus()
    page.keyboard.press("ArrowRight")
    expect(panel.get_by_role("tab", name="Deleted cells")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("ArrowLeft")
    expect(panel.get_by_role("tab", name="Graph")).to_be_focused()

    say("the plan of a run of what is out of date, and the run")
    # An answer that was asked for before the plan and comes after it does not take its place.
    late = []
    page.route("**/graph", lambda route: route.continue_() if late else late.append(route))
    panel.get_by_role("tab", name="Graph").click()
    until(lambda: page.wait_for_timeout(10) or late)
    panel.get_by_role("button", name="Run stale").click()
    plan = panel.get_by_role("region", name="Plan")
    expect(plan.get_by_role("listitem").first).to_have_text("0 · make · a = 10 edited since it ran")
    with page.expect_response("**/graph"):
        late[0].continue_()
    page.unroute("**/graph")
    expect(plan.get_by_role("listitem")).to_have_count(3)
    picture(page, "web-graph")
    everywhere(page, "the graph", panel)
    plan.get_by_role("button", name="Run these 3 cells").click()
    expect(book.outputs(2)).to_contain_text("sum 21")
    expect(page.locator(".cell .stale:visible")).to_have_count(0)
    expect(panel.get_by_role("region", name="Out of date: 0")).to_contain_text("nothing")
    page.get_by_role("button", name="Why stale", exact=True).click()
    expect(plan).to_contain_text("Nothing is out of date.")
    assert book.problems == [], book.problems


def plots(page):
    say("plots that JavaScript makes")
    early = loaded(page)
    assert not {"plotly.js", "vega.js", "widgets.js"}.intersection(early), early
    page.evaluate("name => { location.hash = name }", PLOTS)
    book = Book(page)
    bars = book.outputs(1).locator(".plot")
    expect(bars.locator(".bars .point")).to_have_count(3)
    expect(bars.locator(".gtitle")).to_have_text("Bars")
    # Without the rules of plotly, its layers stand below each other.
    assert bars.locator(".main-svg").first.evaluate("it => getComputedStyle(it).position") == "absolute"
    book.cell(2).scroll_into_view_if_needed()
    drawn = "it => new Set(it.getContext('2d').getImageData(0, 0, it.width, it.height).data).size > 4"
    canvas = book.outputs(2).locator(".plot canvas")
    expect(canvas).to_be_visible()
    assert canvas.evaluate(drawn)
    book.cell(3).scroll_into_view_if_needed()
    expect(book.outputs(3)).to_contain_text("/api/notebooks is not loaded")
    expect(book.outputs(3)).to_contain_text("a fallback")

    say("widgets in their saved state")
    book.cell(4).scroll_into_view_if_needed()
    box = book.outputs(4).locator(".widget")
    expect(box.locator(".widget-slider")).to_contain_text("Size")
    expect(box.locator(".widget-readout")).to_have_text("42")
    expect(box.locator("b")).to_have_text("bold")
    for forbidden in ["script", "[onerror]"]:
        expect(box.locator(forbidden)).to_have_count(0)
    expect(book.outputs(5)).to_contain_text("the notebook does not have its state")
    expect(book.outputs(5)).to_contain_text("a fallback")
    hostile(page, book)
    expect(page).to_have_title(f"{PLOTS} – nb")
    assert {"plotly.js", "vega.js", "widgets.js"}.issubset(loaded(page)), loaded(page)
    expect(box.get_by_role("slider", name="Size")).to_be_visible()
    # The policy has kept out styles that libraries add and an image's address, and no script has tried anything.
    violations = page.evaluate("globalThis.violations ?? []")
    assert all(violation.startswith(("style-src", "img-src")) for violation in violations), violations
    styles(book)
    links(page, book)
    book.cell(1).scroll_into_view_if_needed()
    picture(page, "web-plots")
    everywhere(page, "outputs", page.get_by_role("complementary"))
    assert book.problems == [], book.problems


def hostile(page, book):
    say("a widget is drawn by its own view, and its texts run nothing")
    cell = book.cell(11)
    cell.scroll_into_view_if_needed()
    box = book.outputs(11).locator(".widget")
    # Those with a view of their own that has a text.
    expect(box.get_by_text("kept")).to_have_count(4)
    expect(box.get_by_text("[a widget that this page does not draw]")).to_have_count(7)
    for refused in box.get_by_text("[a widget that this page does not draw]").all():
        refused.click()
    expect(page.locator("meta[http-equiv='refresh']")).to_have_count(0)


def styles(book):
    say("styles of outputs, as far as they are safe")
    book.cell(8).scroll_into_view_if_needed()
    styled = book.outputs(8).locator("p", has_text="styled")
    assert styled.evaluate("it => getComputedStyle(it).color") == "rgb(120, 60, 0)"
    assert styled.evaluate("it => getComputedStyle(it).position") == "static"
    book.cell(6).scroll_into_view_if_needed()
    expect(book.outputs(6).locator(".ansi-green-fg")).to_have_text(["green", "of 256"])

    say("an image in a cell of Markdown")
    book.cell(10).scroll_into_view_if_needed()
    image = book.cell(10).get_by_role("img", name="dot")
    expect(image).to_have_js_property("naturalWidth", 1)


def links(page, book):
    say("links to headings and other notebooks stay in the page")
    page.set_viewport_size({"width": 1200, "height": 300})
    heading = book.cell(9).locator("h1")
    for link in [book.cell(0).get_by_role("link", name="to words"), heading.locator("a")]:
        heading.hover()
        link.click()
        expect(heading).to_be_in_viewport()
        expect(page).to_have_url(re.compile(f"#{PLOTS}$"))
    book.cell(0).get_by_role("link", name="the graph").click()
    expect(page.locator("header h1")).to_have_text(GRAPH)
    page.evaluate("name => { location.hash = name }", PLOTS)
    expect(page.locator("header h1")).to_have_text(PLOTS)
    page.set_viewport_size({"width": 1200, "height": 800})


def altair(page):
    say("plots of Altair 5 and 6, without the network")
    drawn = "it => new Set(it.getContext('2d').getImageData(0, 0, it.width, it.height).data).size > 4"
    for name in ["altair0.ipynb", "altair1.ipynb"]:
        first = json.loads(pathlib.Path(name).read_text())["cells"][0]["outputs"][0]
        assert "cdn.jsdelivr.net" in "".join(first["data"]["text/html"]), first
        page.evaluate("name => { location.hash = name }", name)
        expect(page.locator("header h1")).to_have_text(name)
        plots = Book(page).outputs(0).locator(".plot canvas")
        expect(plots).to_have_count(2)
        for plot in plots.all():
            expect(plot).to_be_visible()
            assert plot.evaluate(drawn)
    far = [entry for entry in page.evaluate("performance.getEntriesByType('resource').map(it => it.name)") if not entry.startswith(page.url.split("#")[0])]
    assert far == [], far


JSON_OF_MANY = {"few": {"a": [1, "<b>two</b>", None, True, {}]}, "many": list(range(100_000))}
FRAMED = "<p>with <b>text</b></p><script>document.body.append('made by a script')</script>"


def write_shown():
    outputs = [
        output(**{"application/json": JSON_OF_MANY}),
        output(**{"text/html": FRAMED}),
        output(**{"text/html": "<div id='a'></div><script>document.body.append('made by a script')</script>"}),
        output(**{"text/html": "<style>p { color: red }</style>"}),
        {"output_type": "stream", "name": "stdout", "text": ""},
        output(**{"text/html": "<p>data</p><script type='application/json'>{}</script>"}),
    ]
    write(SHOWN, *["show()"] * len(outputs))
    book = json.loads(pathlib.Path(SHOWN).read_text())
    for cell, each in zip(book["cells"], outputs):
        cell["outputs"] = [each]
    text = "Some `code`, and $\\frac{a}{b}$:\n\n```python\nx = 1\n```"
    book["cells"].append({"cell_type": "markdown", "id": "words000", "metadata": {}, "source": text})
    pathlib.Path(SHOWN).write_text(json.dumps(book))


def shown(page):
    page.evaluate("name => { location.hash = name }", SHOWN)
    expect(page.locator("header h1")).to_have_text(SHOWN)
    book = Book(page)
    say("JSON as a tree, of which only what is open is made")
    root = book.outputs(0).locator(".tree > details")
    expect(root.locator("> details > summary")).to_have_text(["few: { 1 entry }", "many: [ 100,000 entries ]"])
    few, many = root.locator("> details").all()
    few.locator("> summary").click()
    few.locator("> details > summary").click()
    expect(few.locator("> details > div")).to_have_text(["0: 1", '1: "<b>two</b>"', "2: null", "3: true", "4: {}"])
    assert many.locator("*").count() < 10
    many.locator("> summary").click()
    expect(many.locator("> div")).to_have_count(100)
    many.get_by_role("button", name="100 more of 99,900").click()
    expect(many.locator("> div")).to_have_count(200)
    many.locator("> summary").click()

    say("what needs scripts says so, and runs them in a frame")
    for index, begin in [(1, "with text"), (2, "a fallback")]:
        expect(book.outputs(index)).to_contain_text(begin)
        expect(book.outputs(index)).to_contain_text("This output needs scripts")
        book.outputs(index).get_by_role("button", name="Open in a frame").press("Enter")
        expect(book.outputs(index).frame_locator("iframe").get_by_text("made by a script")).to_be_visible()
    book.outputs(1).get_by_role("button", name="Close the frame").click()
    expect(book.outputs(1).locator("iframe")).to_have_count(0)
    expect(book.outputs(1)).to_contain_text("This output needs scripts")

    say("what shows nothing has no place, and data in a script runs nothing")
    expect(book.outputs(3)).to_have_text("")
    for index in [3, 4]:
        expect(book.outputs(index).locator("> .output")).to_be_hidden()
        assert book.outputs(index).bounding_box()["height"] == 0
    expect(book.outputs(5)).to_have_text("data")

    say("formulas have their font, and code looks like code")
    words = book.cell(6).locator(".rendered")
    assert "Math" in words.locator("math").evaluate("it => getComputedStyle(it).fontFamily")
    for code in ["p code", "pre code"]:
        assert "mono" in words.locator(code).evaluate("it => getComputedStyle(it).fontFamily").lower()
    assert words.locator("pre").evaluate("it => getComputedStyle(it).borderTopStyle") == "solid"
    picture(page, "web-shown")
    accessible(page, "outputs of all kinds")


def loaded(page):
    """The names of the files that the page has loaded."""
    return page.evaluate("performance.getEntriesByType('resource').map(it => new URL(it.name).pathname.slice(1))")


def everywhere(page, context, panel):
    """Looks at the page light and dark, wide and narrow, with each part of the panel."""
    wide, narrow = [{"width": width, "height": 800} for width in (1200, 390)]
    for scheme, sizes in [("light", [wide, narrow]), ("dark", [narrow, wide])]:
        page.emulate_media(color_scheme=scheme)
        for size in sizes if IS_THOROUGH else sizes[:1]:
            page.set_viewport_size(size)
            width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
            assert width[0] <= width[1], (context, size, width)
            tabs = panel.get_by_role("tablist")
            place = tabs.bounding_box()
            for tab in ["History", "Variables", "Graph", "Deleted cells", "Find"]:
                panel.get_by_role("tab", name=tab).click()
                expect(panel.get_by_role("tabpanel", name=tab)).not_to_be_empty()
                assert tabs.bounding_box() == place, "what is shown has moved the tabs"
                accessible(page, f"{context}, {scheme}, {size['width']} wide, {tab}")
            panel.get_by_role("tab", name="Graph").click()
            expect(panel.get_by_role("region", name="Depends on").or_(panel.get_by_text("has no code"))).to_be_visible()
    page.set_viewport_size({"width": 1200, "height": 800})
    page.emulate_media(color_scheme="light")


main()
