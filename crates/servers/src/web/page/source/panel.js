// The panel beside the notebook: who did what, the variables, what depends on what, the deleted cells, and where a text is.

import { pathOf, request } from "./connection.js";
import { differences } from "./diff.js";
import { Graph } from "./graph.js";
import { button, duration, make, soon } from "./parts.js";

/** How many changes of one edit are shown. */
const MOST_CHANGES = 20;

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
      ["search", "Find"],
    ];
    this.tabs = tabs.map(([name, title]) => {
      const show = () => this.show(name);
      return make("button", { type: "button", role: "tab", "aria-controls": "panel", "data-tab": name, onclick: show }, title);
    });
    const step = (event) => this.step(event);
    this.field = make("input", {
      type: "search",
      "aria-label": "Text to find",
      placeholder: "Find in sources and outputs",
      oninput: soon(() => this.load(), 150),
    });
    node.append(make("div.tabs", { role: "tablist", "aria-label": "Panel", onkeydown: step }, ...this.tabs), this.field, this.list);
    this.refresh = soon(() => this.load(), 200);
  }

  /** Lets the person type what to find. */
  find(book) {
    this.open(book, true);
    this.show("search");
    this.field.select();
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
    this.field.hidden = tab !== "search";
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
        tab === "search" ? this.found() : request("GET", pathOf(book.id, tab)),
        tab === "graph" && this.hasPlan ? request("GET", pathOf(book.id, "plan")) : null,
      ]);
      if (this.loads !== number) return;
      rows = this[tab](answer, plan);
    } catch (error) {
      rows = [make("p", {}, error.message)];
    }
    if (this.loads === number) this.list.replaceChildren(...rows);
  }

  /** Loads the lines that have the text. */
  async found() {
    const text = this.field.value;
    return text ? request("GET", `${pathOf(this.book.id, "search")}?text=${encodeURIComponent(text)}`) : { matches: [], count: 0 };
  }

  /** Shows the lines that have the text. */
  search({ matches, count }) {
    const row = (match) => {
      const where = match.output === null ? `line ${match.line}` : "output";
      const name = this.book.nameOf(match.cell);
      const go = button(name, `Go to ${name}`, () => this.book.show(match.cell));
      return make("div.row", {}, go, ` ${where}: `, make("span.first", {}, match.text.trim()));
    };
    const rows = matches.map(row);
    if (count > matches.length) rows.push(make("p", {}, `${count - matches.length} more`));
    const none = this.field.value ? "No cell has it." : "What you type above is looked for in all sources and outputs.";
    return rows.length ? rows : [make("p", {}, none)];
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
      const words = [make("time", { datetime: entry.at }, timeOf(entry.at)), ` ${wordsOf(entry, (cell) => this.book.nameOf(cell))}`];
      if (entry.changes?.length) return this.edit(entry, words);
      const row = make("div.row", {}, ...words);
      if (this.book.views.has(entry.cell)) row.append(" ", button("Show", "Go to the cell", () => this.book.show(entry.cell)));
      return row;
    });
    return rows.length ? rows : [make("p", {}, "Nothing has happened yet.")];
  }

  /** Returns the row of an edit, which opens with its differences. */
  edit({ op, event, changes }, words) {
    const { book } = this;
    const name = op ?? `${changes[0].cell} ${changes[0].after}`;
    const opens = async () => {
      this.opened = row.open ? name : null;
      if (!row.open || body.hasChildNodes()) return;
      for (const { cell, before, after } of changes.slice(0, MOST_CHANGES)) {
        const go = book.views.has(cell) ? [button("Show", `Go to ${book.nameOf(cell)}`, () => book.show(cell))] : [];
        const diff = before === after ? "" : await differences(book, cell, { before, after }).catch((error) => error.message);
        body.append(make("p", {}, book.nameOf(cell), " ", ...go), diff);
      }
      if (op && event === "edited") body.append(button("Undo this", `Undo edit ${op}`, () => book.undo(op)));
    };
    const body = make("div.body-of-row");
    const row = make("details.row", { open: this.opened === name, ontoggle: opens }, make("summary", {}, ...words), body);
    return row;
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
    const rows = deleted.map(({ cell, at, by, revision, first_line: first }) => {
      const restore = async () => {
        await this.book.catch(request("POST", pathOf(this.book.id, "cells", cell, "restore"), {}));
        await this.book.catch(this.book.refresh());
        this.book.show(cell);
        this.load();
      };
      const text = make("div");
      const opens = async () => {
        if (!row.open || text.hasChildNodes()) return;
        text.append(await differences(this.book, cell, { before: revision }).catch((error) => error.message));
      };
      const who = ` ${by ?? "another program"} deleted ${cell.slice(0, 4)} · ${first ?? ""} `;
      const summary = make("summary", {}, make("time", { datetime: at }, timeOf(at)), who);
      const row = make("details.row", { ontoggle: opens }, summary, text, button("Restore", "Restore", restore));
      return row;
    });
    return rows.length ? rows : [make("p", {}, "No cell was deleted.")];
  }
}

function timeOf(at) {
  return new Date(at).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function wordsOf(entry, nameOf) {
  const by = entry.by ?? "another client";
  switch (entry.event) {
    case "ran": {
      const took = entry.took_ms === null || entry.took_ms === undefined ? "" : ` in ${duration(entry.took_ms)}`;
      return `${by} ran ${entry.cell ? nameOf(entry.cell) : entry.label}${entry.status ? ` · ${entry.status}${took}` : ""}`;
    }
    case "edited":
      return `${by}: ${entry.command ?? "edit"} ${cellsOf(entry, nameOf)}`;
    case "saved":
      return `${entry.by ?? "another program"} saved ${cellsOf(entry, nameOf)}`;
    case "kernel":
      return `${by}: kernel ${entry.kernel}`;
    case "messaged":
      return `${by} did that for a message in ${entry.chat}`;
    default:
      return `${by}: ${entry.event}`;
  }
}

function cellsOf(entry, nameOf) {
  return [...new Set(entry.changes.map((change) => nameOf(change.cell)))].join(", ");
}
