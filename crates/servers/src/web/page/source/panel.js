// The panel beside the notebook: who did what, the variables, what depends on what, and the deleted cells.

import { pathOf, request } from "./connection.js";
import { Graph } from "./graph.js";
import { button, duration, make, soon } from "./parts.js";

export class Panel {
  constructor(node) {
    this.node = node;
    this.tab = "log";
    this.list = make("div.list", { role: "tabpanel", id: "panel", tabindex: "0" });
    /** Whether the plan of a run of stale cells is shown. */
    this.hasPlan = false;
    /** How often it was begun to load what is shown: an answer that comes late is of no use. */
    this.loads = 0;
    const tabs = [
      ["log", "History"],
      ["variables", "Variables"],
      ["graph", "Graph"],
      ["deleted", "Deleted cells"],
    ];
    this.tabs = tabs.map(([name, title]) => {
      const show = () => this.show(name);
      return make("button", { type: "button", role: "tab", "aria-controls": "panel", "data-tab": name, onclick: show }, title);
    });
    const step = (event) => this.step(event);
    node.append(make("div.tabs", { role: "tablist", "aria-label": "Panel", onkeydown: step }, ...this.tabs), this.list);
    this.refresh = soon(() => this.load(), 200);
  }

  /** Shows the panel of a notebook, or hides it. */
  open(book, isOpen) {
    if (this.book !== book) this.hasPlan = false;
    this.book = book;
    this.node.hidden = !isOpen;
    if (isOpen) this.show(this.tab);
  }

  get isOpen() {
    return !this.node.hidden;
  }

  show(tab) {
    this.tab = tab;
    for (const each of this.tabs) {
      const isShown = each.dataset.tab === tab;
      each.setAttribute("aria-selected", String(isShown));
      each.setAttribute("tabindex", isShown ? "0" : "-1");
      if (isShown) this.list.setAttribute("aria-label", each.textContent);
    }
    this.load();
  }

  /** Goes to the next tab, or back. */
  step(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    const now = this.tabs.findIndex((each) => each.dataset.tab === this.tab);
    const next = this.tabs[(now + by + this.tabs.length) % this.tabs.length];
    next.focus();
    this.show(next.dataset.tab);
  }

  /** Shows what a run of the stale cells would run. */
  showPlan(book) {
    this.open(book, true);
    this.hasPlan = true;
    this.show("graph");
  }

  /** Shows the graph of the cell that is selected now. */
  selects() {
    if (this.isOpen && this.tab === "graph" && this.shownGraph?.book === this.book) this.showGraph();
  }

  async load() {
    if (!this.isOpen || !this.book) return;
    const { book, tab } = this;
    const number = (this.loads += 1);
    let rows;
    try {
      const [answer, plan] = await Promise.all([
        request("GET", pathOf(book.id, tab)),
        tab === "graph" && this.hasPlan ? request("GET", pathOf(book.id, "plan")) : null,
      ]);
      if (this.loads !== number) return;
      rows = this[tab](answer, plan);
    } catch (error) {
      rows = [make("p", {}, error.message)];
    }
    if (this.loads === number) this.list.replaceChildren(...rows);
  }

  graph(answer, plan) {
    this.shownGraph = new Graph(answer, this.book);
    this.cellNode = make("div.of-cell", { "aria-live": "polite" });
    this.showGraph();
    const close = () => {
      this.hasPlan = false;
      this.load();
    };
    const run = () => {
      close();
      this.book.runStale();
    };
    const above = plan
      ? this.shownGraph.ofPlan(plan, run, close)
      : [button("Run stale…", "Show and run what is out of date", () => this.showPlan(this.book))];
    return [...above, this.cellNode, ...this.shownGraph.stale()];
  }

  showGraph() {
    this.cellNode.replaceChildren(...this.shownGraph.ofCell(this.book.selected?.id));
  }

  log({ log }) {
    const rows = log.toReversed().map((entry) => {
      const row = make("div.row", {}, make("time", { datetime: entry.at }, timeOf(entry.at)), ` ${wordsOf(entry)}`);
      if (entry.op && entry.event === "edited") {
        row.append(" ", button("Undo", `Undo edit ${entry.op}`, () => this.book.undo(entry.op)));
      }
      return row;
    });
    return rows.length ? rows : [make("p", {}, "Nothing has happened yet.")];
  }

  variables({ variables, more }) {
    const cells = (variable) => [variable.name, variable.type, variable.value ?? variable.repr ?? ""];
    const row = (variable) => make("tr", {}, ...cells(variable).map((text) => make("td", {}, String(text ?? ""))));
    const head = make("tr", {}, ...["Name", "Type", "Value"].map((text) => make("th", { scope: "col" }, text)));
    const rows = [make("table", {}, make("thead", {}, head), make("tbody", {}, ...variables.map(row)))];
    if (more) rows.push(make("p", {}, `${more} more`));
    return rows;
  }

  deleted({ deleted }) {
    const rows = deleted.map((cell) => {
      const restore = async () => {
        await this.book.catch(request("POST", pathOf(this.book.id, "cells", cell.cell, "restore"), {}));
        await this.book.catch(this.book.refresh());
        this.load();
      };
      const time = make("time", { datetime: cell.at }, timeOf(cell.at));
      const who = ` ${cell.by ?? "another program"} deleted ${cell.cell.slice(0, 4)} `;
      return make("div.row", {}, time, who, button("Restore", `Restore cell ${cell.cell}`, restore));
    });
    return rows.length ? rows : [make("p", {}, "No cell was deleted.")];
  }
}

function timeOf(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function wordsOf(entry) {
  const by = entry.by ?? "another client";
  switch (entry.event) {
    case "ran": {
      const took = entry.took_ms === null || entry.took_ms === undefined ? "" : ` in ${duration(entry.took_ms)}`;
      return `${by} ran ${entry.label}${entry.status ? ` · ${entry.status}${took}` : ""}`;
    }
    case "edited":
      return `${by}: ${entry.command ?? "edit"} ${cellsOf(entry)}`;
    case "saved":
      return `${entry.by ?? "another program"} saved ${cellsOf(entry)}`;
    case "kernel":
      return `${by}: kernel ${entry.kernel}`;
    case "messaged":
      return `${by} did that for a message in ${entry.chat}`;
    default:
      return `${by}: ${entry.event}`;
  }
}

function cellsOf(entry) {
  return [...new Set(entry.changes.map((change) => change.cell.slice(0, 4)))].join(", ");
}
