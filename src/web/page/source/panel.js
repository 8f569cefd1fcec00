// The panel beside the notebook: who did what, the variables, and the deleted cells.

import { pathOf, request } from "./connection.js";
import { button, duration, make, soon } from "./parts.js";

export class Panel {
  constructor(node) {
    this.node = node;
    this.tab = "log";
    this.list = make("div.list", { role: "tabpanel" });
    const tabs = [
      ["log", "History"],
      ["variables", "Variables"],
      ["deleted", "Deleted cells"],
    ];
    this.tabs = tabs.map(([name, title]) => {
      const show = () => this.show(name);
      return make("button", { type: "button", role: "tab", "data-tab": name, onclick: show }, title);
    });
    node.append(make("div.tabs", { role: "tablist", "aria-label": "Panel" }, ...this.tabs), this.list);
    this.refresh = soon(() => this.load(), 200);
  }

  /** Shows the panel of a notebook, or hides it. */
  open(book, isOpen) {
    this.book = book;
    this.node.hidden = !isOpen;
    if (isOpen) this.show(this.tab);
  }

  get isOpen() {
    return !this.node.hidden;
  }

  show(tab) {
    this.tab = tab;
    for (const each of this.tabs) each.setAttribute("aria-selected", String(each.dataset.tab === tab));
    this.list.setAttribute("aria-label", tab);
    this.load();
  }

  async load() {
    if (!this.isOpen || !this.book) return;
    const { book, tab } = this;
    let rows;
    try {
      const answer = await request("GET", pathOf(book.id, tab));
      rows = this[tab](answer);
    } catch (error) {
      rows = [make("p", {}, error.message)];
    }
    if (this.tab === tab && this.book === book) this.list.replaceChildren(...rows);
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
