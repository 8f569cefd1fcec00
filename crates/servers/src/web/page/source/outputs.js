// Outputs, as JupyterLab shows those of a notebook that is not trusted: HTML is sanitised, scripts do nothing. What needs
// scripts says so.

import { MimeModel, RenderMimeRegistry, standardRendererFactories } from "@jupyterlab/rendermime";
import { marked } from "marked";
import { altairPlot, needsScripts, scriptsLine } from "./frame.js";
import { tree } from "./tree.js";

const SVG = "image/svg+xml";

/** How many characters of a text are shown. */
const LONGEST = 200_000;

/** Shows a drawing as an image, in which no script runs. */
class Drawing {
  constructor() {
    this.node = document.createElement("img");
    this.node.alt = "drawing";
  }

  async renderModel(model) {
    const text = String(model.data[SVG]);
    const bytes = new TextEncoder().encode(text);
    const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
    this.node.src = `data:${SVG};base64,${btoa(binary)}`;
  }

  dispose() {}
}

const PLOTLY = "application/vnd.plotly.v1+json";
const VEGA = /^application\/vnd\.vega(lite)?\.v\d+/;
/** Altair 6 writes a dot where others write a plus. */
const VEGA_TYPES = [3, 4, 5, 6].flatMap((version) =>
  ["vegalite", "vega"].flatMap((name) => ["+", "."].map((sign) => `application/vnd.${name}.v${version}${sign}json`)),
);
const JSON_TYPES = ["application/json", "application/geo+json"];
const HTML = "text/html";
const WIDGET = "application/vnd.jupyter.widget-view+json";

/** Loads the style sheet of a part of the page, once. */
const styles = (name) =>
  new Promise((resolve, reject) => {
    const known = document.querySelector(`link[href="/${name}.css"]`);
    if (known) {
      resolve();
      return;
    }
    const link = document.createElement("link");
    Object.assign(link, { rel: "stylesheet", href: `/${name}.css`, onload: resolve, onerror: reject });
    document.head.append(link);
  });

/** The parts of the page that are loaded for the first output that needs them. */
const parts = {
  async plotly() {
    // Plotly would put its rules into a style element of this id, which the policy forbids; this tells it not to.
    const none = document.createElement("template");
    Object.assign(none, { id: "plotly.js-style-global", className: "no-inline-styles" });
    document.head.append(none);
    await styles("plotly");
    return import("/plotly.js");
  },
  vega: () => import("/vega.js"),
  math: () => import("/math.js"),
  async widgets() {
    await styles("widgets");
    return import("/widgets.js");
  },
};
const loaded = new Map();

/** Returns a part of the page; one that could not be loaded is tried again. */
export function part(name) {
  if (!loaded.has(name)) {
    const promise = parts[name]();
    promise.catch(() => loaded.delete(name));
    loaded.set(name, promise);
  }
  return loaded.get(name);
}

/** Shows a plot that JavaScript makes. */
class Plot {
  constructor({ mimeType }) {
    this.mime = mimeType;
    this.node = document.createElement("div");
    this.node.className = "plot";
    this.node.setAttribute("role", "figure");
    this.node.setAttribute("aria-label", "plot");
  }

  async renderModel(model) {
    const data = structuredClone(model.data[this.mime]);
    if (this.mime === PLOTLY) await (await part("plotly")).show(this.node, data);
    else await (await part("vega")).show(this.node, data, VEGA.exec(this.mime)[1] !== undefined);
  }

  dispose() {}
}

/** Shows JSON as a tree. */
class Tree {
  constructor({ mimeType }) {
    this.mime = mimeType;
    this.node = document.createElement("div");
    this.node.className = "tree";
  }

  async renderModel(model) {
    const root = tree(model.data[this.mime]);
    if (root.matches("details")) root.open = true;
    this.node.append(root);
  }

  dispose() {}
}

/** The types of text that may have formulas. */
const WITH_MATH = [HTML, "text/markdown", "text/latex"];

/** The types of text whose elements may have styles. */
const WITH_STYLES = [HTML, "text/markdown"];

/** The colours of terminals that the page has, which are readable on its background, by a sixth of the hues each. */
const TERMINAL_HUES = ["red", "yellow", "green", "cyan", "blue", "magenta"];

const registry = new RenderMimeRegistry({
  initialFactories: [
    ...standardRendererFactories.filter((factory) => !factory.mimeTypes.includes(SVG)),
    { safe: true, mimeTypes: [SVG], defaultRank: 80, createRenderer: () => new Drawing() },
    { safe: true, mimeTypes: [PLOTLY, ...VEGA_TYPES], defaultRank: 10, createRenderer: (options) => new Plot(options) },
    { safe: true, mimeTypes: JSON_TYPES, defaultRank: 115, createRenderer: (options) => new Tree(options) },
  ],
  markdownParser: { render: async (text) => marked.parse(text, { gfm: true }) },
});

const joined = (text) => (Array.isArray(text) ? text.join("") : String(text ?? ""));

function shortened(text) {
  if (text.length <= LONGEST) return text;
  const half = LONGEST / 2;
  return `${text.slice(0, half)}\n… ${text.length - LONGEST} characters are left out …\n${text.slice(-half)}`;
}

/** Returns the forms of an output. */
function dataOf(output) {
  switch (output.output_type) {
    case "stream": {
      const mime = output.name === "stderr" ? "stderr" : "stdout";
      return { [`application/vnd.jupyter.${mime}`]: shortened(joined(output.text)) };
    }
    case "error": {
      const lines = output.traceback?.length ? output.traceback : [`${output.ename}: ${output.evalue}`];
      return { "application/vnd.jupyter.stderr": shortened(lines.join("\n")) };
    }
    default: {
      const forms = Object.entries(output.data ?? {});
      const isText = ([mime]) => !mime.endsWith("json");
      return Object.fromEntries(forms.map((form) => (isText(form) ? [form[0], joined(form[1])] : form)));
    }
  }
}

/** Renders data into a node. `cell` has what its cell knows: its notebook, and the address for a frame. */
async function render(node, given, metadata, cell = {}) {
  const plot = given[HTML] && altairPlot(given[HTML]);
  const { [HTML]: html, ...others } = given;
  const data = plot ? { ...others, ...plot } : given;
  if (data[WIDGET] && cell.book) return renderWidget(node, data, metadata, cell);
  const mime = registry.preferredMimeType(data, "ensure");
  if (mime === undefined) {
    const names = Object.keys(data).filter((name) => data[name] !== "");
    node.textContent = names.length ? `an output of the types ${names.join(", ")}, which this page does not show` : "";
    return;
  }
  const renderer = registry.createRenderer(mime);
  node.append(renderer.node);
  try {
    await renderer.renderModel(new MimeModel({ data, metadata: metadata ?? {}, trusted: false }));
  } catch (error) {
    await renderOthers(node, data, metadata, mime, missing(`this output cannot be shown: ${error.message}`));
    return;
  }
  if (mime === HTML && needsScripts(html)) {
    const line = scriptsLine(cell.frame?.());
    // What the scripts would have filled says nothing.
    if (!showsSomething(node)) return renderOthers(node, data, metadata, mime, line);
    node.prepend(line);
  }
  if (WITH_STYLES.includes(mime)) applyStyles(node);
  else nameColours(node);
  nameParts(node);
  // The renderers typeset only what a widget of JupyterLab's shell has attached.
  if (WITH_MATH.includes(mime) && /[$\\]/.test(node.textContent)) (await part("math")).show(node);
}

/** What shows something without a text, or will. */
const SHOWN = ".widget, .plot, img, canvas, svg, video, audio, input, button, select, textarea, hr, progress, meter, math, iframe";

/** Returns whether there is something to see in a node. */
function showsSomething(node) {
  return node.textContent.trim() !== "" || node.querySelector(SHOWN) !== null;
}

function missing(text) {
  const line = document.createElement("p");
  line.className = "missing";
  line.textContent = text;
  return line;
}

/** Applies the styles of elements, which the sanitizer has left: the policy lets only scripts set them. */
function applyStyles(node) {
  for (const element of node.querySelectorAll("[style]")) element.style.cssText = element.getAttribute("style");
}

/** Gives text in one of a terminal's many colours the nearest one of the page's, as IPython's tracebacks need. */
function nameColours(node) {
  for (const span of node.querySelectorAll("pre span[style]")) {
    const found = /(?:^|;)\s*color:\s*rgb\((\d+),\s*(\d+),\s*(\d+)\)/.exec(span.getAttribute("style"));
    if (!found) continue;
    const [red, green, blue] = found.slice(1).map(Number);
    const most = Math.max(red, green, blue);
    const range = most - Math.min(red, green, blue);
    const side = most === red ? (green - blue) / range : most === green ? 2 + (blue - red) / range : 4 + (red - green) / range;
    const hue = TERMINAL_HUES[Math.round(side + 6) % 6];
    span.classList.add(range < 40 ? "ansi-black-fg" : `ansi-${hue}-fg`);
  }
}

/** Gives names to what has none: those who do not see the page hear them. */
function nameParts(node) {
  for (const image of node.querySelectorAll("img:not([alt])")) image.alt = "output";
  for (const slider of node.querySelectorAll("[role=slider]:not([aria-label])")) {
    const label = slider.closest(".widget-inline-hbox, .widget-inline-vbox")?.querySelector(".widget-label");
    slider.setAttribute("aria-label", label?.textContent || "slider");
  }
}

/** Renders the other forms of data whose first form is not shown, after a line that says why. */
async function renderOthers(node, data, metadata, mime, line) {
  const { [mime]: _, ...others } = data;
  node.replaceChildren(line);
  if (Object.keys(others).length === 0) return;
  const rest = document.createElement("div");
  node.append(rest);
  await render(rest, others, metadata);
}

/** The widgets of each notebook. */
const widgets = new WeakMap();

/** Shows a widget: connected to the kernel, or in the state that a front end has saved. */
async function renderWidget(node, data, metadata, { book }) {
  try {
    const { Widgets } = await part("widgets");
    const sanitize = (html) => registry.sanitizer.sanitize(html);
    if (!widgets.has(book)) widgets.set(book, new Widgets(book.id, () => book.widgets(), sanitize));
    const line = missing("");
    line.setAttribute("role", "status");
    const place = document.createElement("div");
    place.className = "widget";
    node.append(line, place);
    const says = (text) => (line.textContent = text ?? "");
    // The views of a box come one after the other.
    new MutationObserver(() => nameParts(place)).observe(place, { childList: true, subtree: true });
    await widgets.get(book).show(place, data[WIDGET].model_id, says);
  } catch (error) {
    await renderOthers(node, data, metadata, WIDGET, missing(`this widget is not shown: ${error.message}`));
  }
}

/** Ends the connection of a notebook's widgets to the kernel, which has ended. */
export function endWidgets(book) {
  widgets.get(book)?.ends();
}

/** Ends the connection for good. */
export function closeWidgets(book) {
  widgets.get(book)?.close();
}

/** Shows Markdown. `attachments` loads the files in the cell, by their names. */
export async function showMarkdown(node, text, attachments) {
  const files = text.includes("attachment:") ? await attachments().catch(() => ({})) : {};
  const shown = text.replace(/attachment:([^\s)"'>]+)/g, (address, name) => attachedImage(files, name) ?? address);
  const fresh = document.createElement("div");
  await render(fresh, { "text/markdown": shown });
  node.replaceChildren(...fresh.childNodes);
}

/** Returns the address of an attached image, which has its data; none if there is no such image. */
function attachedImage(files, name) {
  const known = Object.keys(files).find((file) => file === name || encodeURI(file) === name);
  const forms = files[known] ?? {};
  const mime = Object.keys(forms).find((type) => type.startsWith("image/") && type !== SVG);
  return mime && `data:${mime};base64,${joined(forms[mime]).replace(/\s/g, "")}`;
}

/** The outputs of one cell. */
export class Outputs {
  /** `cell` is the cell of a notebook. */
  constructor(node, book, cell) {
    this.node = node;
    this.book = book;
    this.cell = cell;
    this.shown = [];
  }

  /** Shows outputs; those that are already shown stay as they are. */
  show(outputs) {
    const keys = outputs.map((output) => JSON.stringify(output));
    let same = 0;
    while (same < keys.length && same < this.shown.length && keys[same] === this.shown[same].key) same += 1;
    // The last one may have grown: a new node replaces it once it is rendered, so that nothing flickers.
    const old = this.shown.splice(same);
    outputs.slice(same).forEach((output, at) => {
      const node = document.createElement("div");
      node.className = `output output-${output.output_type === "error" ? "error" : (output.name ?? "data")}`;
      const replaced = old.shift()?.node;
      const shown = { key: keys[same + at], node };
      this.shown.push(shown);
      if (replaced?.isConnected) replaced.replaceWith(node);
      else this.node.append(node);
      const cell = { book: this.book, frame: () => this.framePath(same + at) };
      // Nothing to see has no place.
      node.setAttribute("aria-busy", "true");
      render(node, dataOf(output), output.metadata, cell).finally(() => {
        node.removeAttribute("aria-busy");
        node.hidden = !showsSomething(node);
      });
    });
    for (const { node } of old) node.remove();
  }

  /** Returns the address of an output's HTML as a document of its own. */
  framePath(number) {
    return ["/frames", this.book.id, this.cell.id, number].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/");
  }
}
