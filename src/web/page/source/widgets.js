// Widgets in their saved state. The page loads this file for the first of them.

import "@lumino/widgets/style/index.css";
import "@jupyter-widgets/controls/css/widgets-base.css";
import { HTMLManager } from "@jupyter-widgets/html-manager/lib/htmlmanager";

/** The models whose text is HTML. */
const HTML = ["HTMLModel", "HTMLMathModel"];

/** The types of outputs within a widget that are shown. */
const SHOWN = ["text/plain", "image/png", "image/jpeg"];

/** Returns the data of an output, without what could run. */
function plain(data, sanitize) {
  const shown = Object.entries(data).filter(([mime]) => SHOWN.includes(mime));
  const html = data["text/html"];
  if (html !== undefined) shown.push(["text/html", sanitize([html].flat().join(""))]);
  return Object.fromEntries(shown);
}

/** Returns the state of a model, without what could run: the classes of widgets take it as it is. */
function safe(name, state, sanitize) {
  if (HTML.includes(name)) return { ...state, value: sanitize(String(state.value ?? "")) };
  if (name !== "OutputModel") return state;
  const outputs = (state.outputs ?? []).map((output) =>
    output.data ? { ...output, data: plain(output.data, sanitize) } : output,
  );
  return { ...state, outputs };
}

/** Makes the models of a notebook's widgets; `sanitize` returns HTML in which no script is. */
export async function modelsOf({ state, ...versions }, sanitize) {
  const models = Object.entries(state).map(([id, model]) => [
    id,
    { ...model, state: safe(model.model_name, model.state ?? {}, sanitize) },
  ]);
  const manager = new HTMLManager();
  manager.inline_sanitize = sanitize;
  const made = await manager.set_state({ ...versions, state: Object.fromEntries(models) });
  return { manager, models: made };
}

export async function show(node, { manager, models }, id) {
  const model = models.find((each) => each.model_id === id);
  await manager.display_view(await manager.create_view(model), node);
}
