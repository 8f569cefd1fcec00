// Plots of Vega and Vega-Lite. The page loads this file for the first of them.

import { View, loader, parse } from "vega";
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

export async function show(node, spec, isLite) {
  const parsed = parse(isLite ? compile(spec).spec : spec, null, { ast: true });
  const inner = new InnerLoader();
  // The content security policy forbids the functions that Vega would make of expressions.
  const view = new View(parsed, { expr: expressionInterpreter, loader: inner, renderer: "canvas", hover: true });
  // What goes wrong within the plot is said below it.
  view.logLevel(0);
  view.initialize(node);
  await view.runAsync();
  if (inner.refused.length > 0) {
    view.finalize();
    throw new Error(`${inner.refused[0]} is not loaded: a plot on this page has its data in it`);
  }
}
