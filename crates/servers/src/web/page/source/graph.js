// What the selected cell depends on, what depends on it, and what is out of date.

import { button, make } from "./parts.js";

/** Returns a list, or a line that says that there is nothing. */
function list(items, nothing) {
  return items.length ? make("ul", {}, ...items.map((item) => make("li", {}, ...item))) : make("p", {}, nothing);
}

const section = (title, ...children) => make("section", { "aria-label": title }, make("h2", {}, title), ...children);

/** The graph of a notebook, as the server has told it. */
export class Graph {
  constructor({ cells, advice }, book) {
    this.rows = cells;
    this.advice = advice;
    this.book = book;
    this.byId = new Map(cells.map((row) => [row.id, row]));
  }

  /** Returns the cells next to one, with the names that lead there: above it, or below it. */
  next(row, isAbove) {
    const found = new Map();
    const add = (id, name) => this.byId.has(id) && found.set(id, [...(found.get(id) ?? []), name]);
    if (isAbove) {
      for (const { name, from } of row.reads) from.forEach((id) => add(id, name));
    } else {
      for (const other of this.rows) {
        for (const { name, from } of other.reads) if (from.includes(row.id)) add(other.id, name);
      }
    }
    return found;
  }

  /** Returns all cells that are reached over others only, without those next to the cell. */
  further(row, isAbove) {
    const seen = new Set([row.id]);
    const waiting = [row];
    while (waiting.length) {
      for (const id of this.next(waiting.pop(), isAbove).keys()) {
        if (!seen.has(id)) waiting.push(this.byId.get(id));
        seen.add(id);
      }
    }
    const near = this.next(row, isAbove);
    return this.rows.filter(({ id }) => id !== row.id && seen.has(id) && !near.has(id));
  }

  link(row) {
    const name = this.book.nameOf(row.id);
    return button(name, `Go to ${name}`, () => this.book.show(row.id));
  }

  /** Returns the parts of the view of one cell. */
  ofCell(id) {
    const row = this.byId.get(id);
    if (!row) return [make("p", {}, "The selected cell has no code.")];
    const side = (isAbove) => {
      const near = [...this.next(row, isAbove)].map(([other, names]) => {
        const its = this.byId.get(other);
        return [this.link(its), " ", make("code", {}, names.join(", "))];
      });
      const far = this.further(row, isAbove).map((other) => [this.link(other), " over others"]);
      return [...near, ...far];
    };
    const doubts = [
      ...row.undefined.map(({ name, line }) => [`line ${line}: ${name} has no value`]),
      ...row.unknown.map(({ line, text }) => [`line ${line}: ${text}`]),
      ...(row.problem ? [[`line ${row.problem.line}: ${row.problem.text}`]] : []),
    ];
    return [
      make("p", {}, make("strong", {}, this.book.nameOf(row.id))),
      section("Depends on", list(side(true), "no other cell")),
      section("Needed by", list(side(false), "no other cell")),
      ...(doubts.length ? [section("Not certain", list(doubts, ""))] : []),
    ];
  }

  /** Returns the list of cells that are out of date. */
  stale() {
    const rows = this.rows.filter((row) => row.stale);
    const items = rows.map((row) => [this.link(row), ` ${this.book.whyStale(row.stale)}`]);
    const advice = this.advice.length ? [section("Advice", list(this.advice.map((text) => [text]), ""))] : [];
    return [section(`Out of date: ${rows.length}`, list(items, "nothing")), ...advice];
  }

  /** Returns what a run of the stale cells would run. `run` and `close` are what the person may do. */
  ofPlan({ plan, doubtful, any_name_is_doubtful: isAny }, run, close) {
    if (plan.length === 0) return [section("Plan", make("p", {}, "Nothing is out of date."), button("Close", "Close the plan", close))];
    const rows = plan.map((row) => make("li", {}, this.link(row), ` ${this.book.whyPlanned(row)}`));
    const doubts = doubtful.map(({ name, why }) => [`${name}: ${why}`]);
    if (isAny) doubts.push(["code ran that may write any name: every value may be another"]);
    const cells = plan.length === 1 ? "cell" : "cells";
    return [
      section(
        "Plan",
        make("ol", {}, ...rows),
        ...(doubts.length ? [make("p", {}, "Not certain after it:"), list(doubts, "")] : []),
        make(
          "div.buttons",
          {},
          button(`▶ Run ${plan.length} ${cells}`, `Run these ${plan.length} ${cells}`, run),
          button("Close", "Close the plan", close),
        ),
      ),
    ];
  }
}
