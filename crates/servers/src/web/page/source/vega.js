// Plots of Vega and Vega-Lite. The page loads this file for the first of them.

import { View, expressionFunction, loader, parse } from "vega";
import { expressionInterpreter } from "vega-interpreter";
import { compile } from "vega-lite";

/** Loads images that are in the plot itself, and nothing else: an address could be one of this server. */
class InnerLoader {
  constructor() {
    Object.assign(this, loader());
    this.refused = [];
    this.load = this.http = this.file = (address) => this.refuse(address);
    this.sanitize = async (address) => (/^data:image\//.test(address) ? { href: address } : this.refuse(address));
  }

  async refuse(address) {
    this.refused.push(address);
    throw new Error("not loaded");
  }
}

/** What a plot hears of what happens outside of its place: that it is dragged further, and no keys. */
const WINDOW_EVENTS = ["mousemove", "mouseup", "pointermove", "pointerup", "touchmove", "touchend", "resize"];

/** Where a plot listens and has its inputs: in its place, whatever it asks for. */
const eventConfig = { bind: "container", selector: false, window: WINDOW_EVENTS, globalCursor: false };

// An event leads to the page, and the plot to its element: expressions read neither.
expressionFunction("inPlot", (value) => (value instanceof EventTarget || value instanceof View ? undefined : value));

/** Returns an expression that gets what it reads of objects from `inPlot`. */
function guarded(part) {
  if (Array.isArray(part)) return part.map(guarded);
  if (part === null || typeof part !== "object" || part instanceof RegExp) return part;
  const inner = Object.fromEntries(Object.entries(part).map(([name, value]) => [name, guarded(value)]));
  return part.type === "MemberExpression" ? { type: "CallExpression", callee: { name: "inPlot" }, arguments: [inner] } : inner;
}

// The content security policy forbids the functions that Vega would make of expressions.
const interpreter = Object.fromEntries(
  Object.entries(expressionInterpreter).map(([kind, make]) => [kind, (context, expr) => make(context, guarded(expr))]),
);

export async function show(node, spec, isLite) {
  const parsed = parse(isLite ? compile(spec).spec : spec, null, { ast: true });
  parsed.eventConfig = { ...parsed.eventConfig, ...eventConfig };
  const inner = new InnerLoader();
  const view = new View(parsed, { expr: interpreter, loader: inner, renderer: "canvas", hover: true });
  // What goes wrong within the plot is said below it.
  view.logLevel(0);
  view.initialize(node);
  await view.runAsync();
  if (inner.refused.length > 0) {
    view.finalize();
    throw new Error(`${inner.refused[0]} is not loaded: a plot on this page has its data in it`);
  }
}
