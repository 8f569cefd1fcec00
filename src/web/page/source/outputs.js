// Outputs, as JupyterLab shows those of a notebook that is not trusted: HTML is sanitised, scripts do nothing.

import { MimeModel, RenderMimeRegistry, standardRendererFactories } from "@jupyterlab/rendermime";
import renderMath from "katex/contrib/auto-render";
import { marked } from "marked";

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

const mathOptions = {
  output: "mathml",
  throwOnError: false,
  trust: false,
  maxExpand: 1000,
  delimiters: [
    { left: "$$", right: "$$", display: true },
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
    { left: "$", right: "$", display: false },
  ],
};

/** The types of text that may have formulas. */
const WITH_MATH = ["text/html", "text/markdown", "text/latex"];

const registry = new RenderMimeRegistry({
  initialFactories: [
    ...standardRendererFactories.filter((factory) => !factory.mimeTypes.includes(SVG)),
    { safe: true, mimeTypes: [SVG], defaultRank: 80, createRenderer: () => new Drawing() },
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

/** Renders data into a node. */
async function render(node, data, metadata) {
  const mime = registry.preferredMimeType(data, "ensure");
  if (mime === undefined) {
    node.textContent = `an output of the types ${Object.keys(data).join(", ")}, which this page does not show`;
    return;
  }
  const renderer = registry.createRenderer(mime);
  node.append(renderer.node);
  try {
    await renderer.renderModel(new MimeModel({ data, metadata: metadata ?? {}, trusted: false }));
  } catch (error) {
    node.textContent = `this output cannot be shown: ${error.message}`;
  }
  // The renderers typeset only what a widget of JupyterLab's shell has attached.
  if (WITH_MATH.includes(mime)) renderMath(node, mathOptions);
  for (const image of node.querySelectorAll("img:not([alt])")) image.alt = "output";
}

/** Shows Markdown. */
export async function showMarkdown(node, text) {
  const fresh = document.createElement("div");
  await render(fresh, { "text/markdown": text });
  node.replaceChildren(...fresh.childNodes);
}

/** The outputs of one cell. */
export class Outputs {
  constructor(node) {
    this.node = node;
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
      render(node, dataOf(output), output.metadata);
    });
    for (const { node } of old) node.remove();
  }
}

/** The outputs of a cell that runs, made from the kernel's messages. */
export class LiveOutputs {
  constructor() {
    this.outputs = [];
    this.clears = false;
  }

  take(output) {
    if (output.output_type === "clear_output") {
      this.clears = output.wait;
      if (!output.wait) this.outputs = [];
      return;
    }
    const id = output.transient?.display_id;
    if (output.output_type === "update_display_data") {
      for (const shown of this.outputs) {
        if (id !== undefined && shown.transient?.display_id === id) {
          [shown.data, shown.metadata] = [output.data, output.metadata];
        }
      }
      return;
    }
    if (this.clears) [this.outputs, this.clears] = [[], false];
    const last = this.outputs.at(-1);
    if (output.output_type === "stream" && last?.output_type === "stream" && last.name === output.name) {
      last.text = overwritten(last.text + output.text);
    } else {
      this.outputs.push({ ...output });
    }
  }
}

/** Lets a carriage return begin its line again, as progress bars do. */
function overwritten(text) {
  return text.includes("\r") ? text.replace(/\r+\n/g, "\n").replace(/^[^\n]*\r(?=[^\n])/gm, "") : text;
}
