// Widgets: connected to the kernel, or in the state that a front end has saved. The page loads this file for the first of
// them.
//
// What a model is called does not decide what is drawn: its view does. So a model is drawn by its own view and no
// other, and texts become safe where they become HTML, each time.

import "@lumino/widgets/style/index.css";
import "@jupyter-widgets/controls/css/widgets-base.css";
import { DOMWidgetModel, DOMWidgetView, ErrorWidgetView, shims } from "@jupyter-widgets/base";
import { HTMLManager } from "@jupyter-widgets/html-manager/lib/htmlmanager";
import { KernelConnection } from "@jupyterlab/services/lib/kernel/default";
import { ServerConnection } from "@jupyterlab/services/lib/serverconnection";
import { request } from "./connection.js";

const BASE = "@jupyter-widgets/base";
const CONTROLS = "@jupyter-widgets/controls";
const OUTPUT = "@jupyter-widgets/output";

/** The packages of which widgets are drawn. */
const OWN = [BASE, CONTROLS, OUTPUT];

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

/** The models that link two others, which have no view. */
const LINKS = [`${CONTROLS} LinkModel`, `${CONTROLS} DirectionalLinkModel`];

/** The classes that are loaded. A notebook gets no other class of the packages. */
const CLASSES = new Set([...VIEWS.keys(), ...VIEWS.values(), ...LINKS]);

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

/** Returns a view that shows the text of its model without what could run. The model keeps it. */
function withSafeText(View, sanitize) {
  return class extends View {
    update(options) {
      const text = this.model.get("value");
      this.model.set("value", sanitize(text), { silent: true });
      try {
        return super.update(options);
      } finally {
        this.model.set("value", text, { silent: true });
      }
    }
  };
}

/** Returns a model that links what two models show, and nothing else of them. */
function withOwnNames(Model) {
  const isShown = ([model, name]) => !`${name}`.startsWith("_") && Object.hasOwn(model?.attributes ?? {}, name);
  return class extends Model {
    updateBindings() {
      const ends = [this.get("source"), this.get("target")];
      if (ends.every((end) => end && isShown(end))) super.updateBindings();
      else this.cleanup();
    }
  };
}

/** The messages that an output widget takes. */
const OUTPUTS = ["stream", "display_data", "execute_result", "error", "clear_output"];

/** Returns a model of outputs that shows them without what could run. The model keeps them. */
function withSafeOutputs(Model, sanitize) {
  const safe = (output) => (output.data ? { ...output, data: plain(output.data, sanitize) } : output);
  return class extends Model {
    setOutputs(model, value, options) {
      if (options?.isShown) return;
      this.clear_output();
      this.outputs.fromJSON(structuredClone([this.get("outputs") ?? []].flat()).map(safe));
    }

    /** Takes a message of the kernel; `saves` says whether it is this page that tells the kernel what the widget has. */
    take({ header: { msg_type: type }, content }, saves) {
      if (type === "clear_output") {
        this.clear_output(content.wait);
        this.isCleared = true;
        if (content.wait) return;
      }
      const had = this.isCleared ? [] : [this.get("outputs") ?? []].flat();
      this.isCleared = false;
      if (type !== "clear_output") {
        const { transient: _, ...stored } = content;
        this.outputs.add(safe({ ...stored, output_type: type }));
        const last = had.at(-1);
        if (type !== "stream" || last?.name !== content.name) had.push({ ...stored, output_type: type });
        else had[had.length - 1] = { ...last, text: [last.text, content.text].flat().join("") };
      }
      this.set("outputs", had, { isShown: true });
      if (saves) this.save_changes();
    }
  };
}

/** How many characters of a package's name are shown. */
const LONGEST_NAME = 60;

/** The view of a widget that is not drawn. That of an error would show the error's text as HTML after a click. */
class Refused extends DOMWidgetView {
  render() {
    super.render();
    const { module } = this.model;
    const name = `${module}`.slice(0, LONGEST_NAME);
    this.el.textContent = OWN.includes(module)
      ? "[a widget that this page does not draw]"
      : `[a widget of the package ${name}, which this page does not draw]`;
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
    if (LINKS.includes(`${module} ${name}`)) return withOwnNames(found);
    if (name === "OutputModel") return withSafeOutputs(found, this.inline_sanitize);
    return HTML.includes(name) ? withSafeText(found, this.inline_sanitize) : found;
  }

  /** Makes a model. One that cannot be made is a model without a view: the others are shown all the same. */
  async _make_model(options, state) {
    const kind = `${options.model_module} ${options.model_name}`;
    if (!VIEWS.has(kind) && !LINKS.includes(kind)) return this.noModel(options.model_module, options.model_id);
    try {
      return await super._make_model(options, state);
    } catch {
      return this.noModel(BASE, options.model_id);
    }
  }

  noModel(module, id) {
    return Object.assign(new DOMWidgetModel({}, { model_id: id, widget_manager: this }), { module });
  }

  /** Draws a model by its own view. */
  async create_view(model, options = {}) {
    const view = VIEWS.get(`${model.module} ${model.name}`);
    if (view !== undefined && view === `${model.get("_view_module")} ${model.get("_view_name")}`) {
      const drawn = await super.create_view(model, options);
      if (!(drawn instanceof ErrorWidgetView)) return drawn;
    }
    const refused = new Refused({ model: this.noModel(model.module, model.model_id), options: this.setViewOptions(options) });
    await refused.render();
    return refused;
  }

  /** Shows a model. */
  async display(model, node) {
    await this.display_view(await this.create_view(await model), node);
  }
}

/** The connection to a kernel. Comms of others than widgets are not this page's: it would close what it does not know. */
class Kernel extends KernelConnection {
  async _handleCommOpen(message) {
    if (message.content.target_name === "jupyter.widget") await super._handleCommOpen(message);
  }
}

/** How many characters are shown of what a widget's code prints. */
const LONGEST_PRINTED = 10_000;

/** The widgets of a kernel. */
class LiveManager extends Manager {
  constructor(sanitize, kernel) {
    super(sanitize);
    this.kernel = kernel;
    const open = (comm, message) => this.handle_comm_open(new shims.services.Comm(comm), message);
    kernel.registerCommTarget(this.comm_target_name, open);
    kernel.iopubMessage.connect((_, message) => this.hears(message));
  }

  async _create_comm(target, id, data, metadata, buffers) {
    const comm = this.kernel.createComm(target, id);
    if (data || metadata) comm.open(data, metadata, buffers);
    return new shims.services.Comm(comm);
  }

  async _get_comm_info() {
    const { content } = await this.kernel.requestCommInfo({ target_name: this.comm_target_name });
    return content.status === "ok" ? content.comms : {};
  }

  /** Passes an output to the widgets that have asked for it, or, if none has, to where the page shows it. */
  async hears(message) {
    const { msg_id: id, session } = message.parent_header;
    const isOwn = session === this.kernel.clientId;
    if (id === undefined || !OUTPUTS.includes(message.header.msg_type)) return;
    const models = await Promise.all(Object.values(this._models));
    const takers = models.filter((model) => model.take && model.get("msg_id") === id);
    for (const model of takers) model.take(message, isOwn);
    if (takers.length === 0 && isOwn) this.prints?.(message);
  }
}

const WHY_NOT = {
  none: "no kernel runs",
  unknown: "the kernel does not know it: run the cell again",
  lost: "the connection to the kernel is lost; it is tried again",
  ended: "the kernel has ended or was restarted: run the cell again",
};

/** The states of a kernel after which it has no widgets any more. */
const ENDS = ["restarting", "autorestarting", "terminating", "dead"];

/** How long it is known that no kernel runs, in milliseconds. */
const KNOWN = 2000;

/** The widgets of a notebook. */
export class Widgets {
  /** `saved` returns the state in the notebook, or null; `sanitize` returns HTML in which no script is. */
  constructor(notebook, saved, sanitize) {
    this.notebook = notebook;
    this.saved = saved;
    this.sanitize = (html) => sanitize(String(html ?? ""));
    /** The widgets that are connected: where they are, and what says that they no longer are. */
    this.connected = new Map();
  }

  /** Shows a widget. `says` shows why it is not connected; null takes that back. */
  async show(node, id, says) {
    const live = await this.live();
    const model = await live?.get_model(id).catch(() => null);
    if (model && !this.isClosed) {
      await live.display(model, node);
      this.connected.set(node, says);
      node.addEventListener("pointerdown", () => (this.used = node), true);
      node.addEventListener("focusin", () => (this.used = node));
      return;
    }
    const why = WHY_NOT[live ? "unknown" : "none"];
    const manager = (this.savedManager ??= new Manager(this.sanitize));
    const models = await (this.savedModels ??= this.load(manager));
    const stored = models.find((each) => each.model_id === id);
    if (!stored) throw new Error(`${why}, and the notebook does not have its state`);
    await manager.display(stored, node);
    says(`Not connected, as it was saved: ${why}.`);
  }

  /** Makes the models that the notebook has saved. */
  async load(manager) {
    const { state, ...versions } = (await this.saved()) ?? {};
    const isOwn = ({ path }) => Array.isArray(path) && !path.some((name) => SHARED.includes(name));
    const models = Object.entries(state ?? {}).map(([id, model]) => [
      id,
      { ...model, state: model.state ?? {}, buffers: (model.buffers ?? []).filter(isOwn) },
    ]);
    return models.length ? manager.set_state({ ...versions, state: Object.fromEntries(models) }) : [];
  }

  /** Returns the widgets of the kernel, or null if none runs. */
  live() {
    this.connecting ??= this.connect().catch(() => null).then((live) => {
      if (live === null) setTimeout(() => (this.connecting = undefined), KNOWN);
      return live;
    });
    return this.connecting;
  }

  async connect() {
    const sessions = await request("GET", "/api/sessions");
    const session = sessions.find(({ path }) => path === this.notebook);
    if (!session || this.isClosed) return null;
    const baseUrl = `${location.origin}/`;
    const address = { baseUrl, wsUrl: baseUrl.replace(/^http/, "ws"), token: "", appendToken: false };
    const serverSettings = ServerConnection.makeSettings(address);
    const kernel = new Kernel({ model: { id: session.kernel.id, name: session.kernel.name }, serverSettings });
    this.kernel = kernel;
    kernel.statusChanged.connect((_, status) => ENDS.includes(status) && this.ends());
    kernel.connectionStatusChanged.connect((_, status) => {
      if (status !== "connected") this.says(`Not connected: ${WHY_NOT.lost}.`);
      else this.says(null);
    });
    const live = new LiveManager(this.sanitize, kernel);
    live.prints = (message) => this.prints(message);
    await live._loadFromKernel();
    return live;
  }

  /** Says something about the widgets that are connected. */
  says(text) {
    for (const [node, says] of this.connected) {
      if (node.isConnected) says(text);
      else this.connected.delete(node);
    }
  }

  /** Ends the connection: what is shown stays, and says so. */
  disconnects(kernel, why) {
    if (this.kernel !== kernel) return;
    this.says(`Not connected: ${why}.`);
    this.connected.clear();
    this.connecting?.then((live) => live?.disconnect());
    [this.kernel, this.connecting] = [undefined, undefined];
    kernel.dispose();
  }

  /** Shows what the code of the widget that was used last prints, below it. */
  prints({ header, content }) {
    const text = header.msg_type === "error" ? content.traceback.join("\n") : (content.text ?? content.data?.["text/plain"]);
    if (!this.used?.isConnected || text === undefined) return;
    let printed = this.used.querySelector(":scope > .printed");
    if (!printed) this.used.append((printed = Object.assign(document.createElement("pre"), { className: "printed" })));
    printed.textContent = (printed.textContent + String(text).replace(/\x1b\[[\d;]*m/g, "")).slice(-LONGEST_PRINTED);
  }

  /** The kernel has ended. */
  ends() {
    if (this.kernel) this.disconnects(this.kernel, WHY_NOT.ended);
  }

  /** The notebook is left. */
  close() {
    this.isClosed = true;
    this.ends();
  }
}
