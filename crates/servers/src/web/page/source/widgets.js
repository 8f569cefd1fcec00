// Widgets in their saved state. The page loads this file for the first of them.
//
// What a model is called does not decide what is drawn: its view does. So a model is drawn by its own view and no
// other, and texts become safe where they become HTML. Links between models are not made: they would change a text
// after it was checked, and the saved state has both sides.

import "@lumino/widgets/style/index.css";
import "@jupyter-widgets/controls/css/widgets-base.css";
import { DOMWidgetModel, DOMWidgetView, ErrorWidgetView } from "@jupyter-widgets/base";
import { HTMLManager } from "@jupyter-widgets/html-manager/lib/htmlmanager";

const BASE = "@jupyter-widgets/base";
const CONTROLS = "@jupyter-widgets/controls";
const OUTPUT = "@jupyter-widgets/output";

/** The models whose view has their name: `Box` is BoxModel with BoxView. */
const OWN_VIEWS =
  "Accordion Audio Box Button Checkbox ColorPicker ColorsInput Combobox Controller ControllerAxis ControllerButton " +
  "DatePicker Datetime Dropdown FileUpload FloatLogSlider FloatRangeSlider FloatSlider FloatText FloatsInput GridBox " +
  "HBox HTML HTMLMath Image IntRangeSlider IntSlider IntText IntsInput Label Password Play RadioButtons Select " +
  "SelectMultiple SelectionRangeSlider SelectionSlider Stack Tab TagsInput Text Textarea Time ToggleButton " +
  "ToggleButtons VBox Valid Video";

/** The models of styles. */
const STYLES =
  "Button Checkbox Description HTML HTMLMath Label Progress Slider Text ToggleButton ToggleButtons";

/** The module and the name of each model's view, by the model's. */
const VIEWS = new Map([
  ...OWN_VIEWS.split(" ").map((name) => [`${CONTROLS} ${name}Model`, `${CONTROLS} ${name}View`]),
  ...STYLES.split(" ").map((name) => [`${CONTROLS} ${name}StyleModel`, `${BASE} StyleView`]),
  [`${CONTROLS} BoundedFloatTextModel`, `${CONTROLS} FloatTextView`],
  [`${CONTROLS} BoundedIntTextModel`, `${CONTROLS} IntTextView`],
  [`${CONTROLS} FloatProgressModel`, `${CONTROLS} ProgressView`],
  [`${CONTROLS} IntProgressModel`, `${CONTROLS} ProgressView`],
  [`${CONTROLS} NaiveDatetimeModel`, `${CONTROLS} DatetimeView`],
  [`${BASE} LayoutModel`, `${BASE} LayoutView`],
  [`${OUTPUT} OutputModel`, `${OUTPUT} OutputView`],
]);

/** The classes that are loaded. A notebook gets no other class of the packages. */
const CLASSES = new Set([...VIEWS.keys(), ...VIEWS.values()]);

/** The views that show the text of their model as HTML. */
const HTML = ["HTMLView", "HTMLMathView"];

/** The types of outputs within a widget that are shown. */
const SHOWN = ["text/plain", "image/png", "image/jpeg"];

/** Names that lead from a state to what all objects have in common. */
const SHARED = ["__proto__", "constructor", "prototype"];

/** Returns the data of an output, without what could run. */
function plain(data, sanitize) {
  const shown = Object.entries(data).filter(([mime]) => SHOWN.includes(mime));
  const html = data["text/html"];
  if (html !== undefined) shown.push(["text/html", sanitize([html].flat().join(""))]);
  return Object.fromEntries(shown);
}

/** Returns a view that makes the text of its model safe before it shows it. */
function withSafeText(View, sanitize) {
  return class extends View {
    update(options) {
      this.model.set("value", sanitize(this.model.get("value")), { silent: true });
      return super.update(options);
    }
  };
}

/** Returns a model of outputs that makes them safe before it passes them on. */
function withSafeOutputs(Model, sanitize) {
  return class extends Model {
    setOutputs(model, value, options) {
      const outputs = [this.get("outputs") ?? []].flat();
      const safe = outputs.map((output) => (output.data ? { ...output, data: plain(output.data, sanitize) } : output));
      this.set("outputs", safe, { silent: true });
      return super.setOutputs(model, value, options);
    }
  };
}

/** The view of a widget that is not drawn. That of an error would show the error's text as HTML after a click. */
class Refused extends DOMWidgetView {
  render() {
    super.render();
    this.el.textContent = "[a widget that this page does not draw]";
  }
}

class Manager extends HTMLManager {
  constructor(sanitize) {
    super();
    this.inline_sanitize = sanitize;
  }

  async loadClass(name, module, version) {
    if (!CLASSES.has(`${module} ${name}`)) throw new Error("this class is not loaded");
    const found = await super.loadClass(name, module, version);
    if (name === "OutputModel") return withSafeOutputs(found, this.inline_sanitize);
    return HTML.includes(name) ? withSafeText(found, this.inline_sanitize) : found;
  }

  /** Makes a model. One that cannot be made is a model without a view: the others are shown all the same. */
  async _make_model(options, state) {
    if (!VIEWS.has(`${options.model_module} ${options.model_name}`)) return this.noModel();
    try {
      return await super._make_model(options, state);
    } catch {
      return this.noModel();
    }
  }

  noModel() {
    return new DOMWidgetModel({}, { model_id: "none", widget_manager: this });
  }

  /** Draws a model by its own view. */
  async create_view(model, options = {}) {
    const view = VIEWS.get(`${model.module} ${model.name}`);
    if (view !== undefined && view === `${model.get("_view_module")} ${model.get("_view_name")}`) {
      const drawn = await super.create_view(model, options);
      if (!(drawn instanceof ErrorWidgetView)) return drawn;
    }
    const refused = new Refused({ model: this.noModel(), options: this.setViewOptions(options) });
    await refused.render();
    return refused;
  }
}

/** Makes the models of a notebook's widgets; `sanitize` returns HTML in which no script is. */
export async function modelsOf({ state, ...versions }, sanitize) {
  const isOwn = ({ path }) => Array.isArray(path) && !path.some((name) => SHARED.includes(name));
  const models = Object.entries(state).map(([id, model]) => [
    id,
    { ...model, state: model.state ?? {}, buffers: (model.buffers ?? []).filter(isOwn) },
  ]);
  const manager = new Manager((html) => sanitize(String(html ?? "")));
  const made = await manager.set_state({ ...versions, state: Object.fromEntries(models) });
  return { manager, models: made };
}

export async function show(node, { manager, models }, id) {
  const model = models.find((each) => each.model_id === id);
  await manager.display_view(await manager.create_view(model), node);
}
