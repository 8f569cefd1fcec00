// Tells `nb` what is typed before it is saved, and takes what others write before the file has it: docs/live.md.

import { plain } from "./parts.js";

/** A text is reported after a pause in typing, and each second at least, in milliseconds. */
const QUIET = 150;
const MOST = 1000;

/** After how many milliseconds a notebook is opened again when `nb live` has ended. */
const AGAIN = 2000;

export class Live {
  constructor(book) {
    this.book = book;
    /** The cells as `nb` knows them, by their ids, in their order; none if the notebook is not open there. */
    this.known = null;
    /** Those of which `nb` has a text that is not the file's, until it is known which one counts. */
    this.conflicts = new Set();
  }

  /** Returns the text that `nb` has last said or heard of a cell, if it is the file's but for what is unsaved. */
  told(id) {
    return this.conflicts.has(id) ? undefined : this.known?.get(id);
  }

  send(message) {
    return this.book.page.connection.send({ ...message, doc: this.book.id });
  }

  /** Reports all cells: first the texts that the person began from. */
  open() {
    clearTimeout(this.next);
    this.conflicts.clear();
    if (!this.book.hasResumed) return;
    const cells = this.book.order.map(({ id, data, base }) => ({ cell: id, id, cell_type: data.type, source: base.source }));
    const isSent = this.send({ type: "open", notebook: this.book.id, cells, dirty: false });
    this.known = isSent ? new Map(cells.map(({ cell, source }) => [cell, source])) : null;
    this.report();
  }

  /** The person has changed a text. */
  typed() {
    const now = Date.now();
    this.since ??= now;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.report(), Math.max(0, Math.min(QUIET, this.since + MOST - now)));
  }

  /** Reports the texts that `nb` does not know. */
  report() {
    clearTimeout(this.timer);
    this.since = undefined;
    for (const { id, text } of this.known ? this.book.order : []) {
      if (!this.known.has(id) || this.known.get(id) === text) continue;
      this.known.set(id, text);
      this.send({ type: "text", cell: id, source: text });
    }
  }

  /** These cells are not on the page any more. */
  gone(ids) {
    const isKnown = ids.filter((id) => this.known?.delete(id)).length > 0;
    if (isKnown) this.send({ type: "cells", order: [...this.known.keys()] });
  }

  /** Nothing is heard of `nb live`: the page takes texts from the notebook alone. */
  ends() {
    this.known = null;
  }

  /** Takes a message of `nb live`; none says that it has ended. */
  receives(message) {
    if (!message) {
      this.ends();
      clearTimeout(this.next);
      this.next = setTimeout(() => this.open(), AGAIN);
    } else if (message.doc !== this.book.id) {
      return;
    } else if (message.type === "reopen") {
      this.open();
    } else if (message.type === "conflict") {
      this.conflicts.add(message.cell);
    } else if (message.type === "settled") {
      this.conflicts.delete(message.cell);
    } else if (message.type === "base") {
      this.book.views.get(message.cell)?.takeBase(plain(message.source));
    } else if (message.type === "problem") {
      this.ends();
    } else if (message.seq !== undefined && this.known) {
      const refused = this.does(message);
      this.send({ type: refused === undefined ? "applied" : "refused", seq: message.seq, source: refused });
    }
  }

  /** Does what a request asks for; returns the text of a cell that has another one than the request replaces. */
  does({ type, cell, was, source, base, after, order }) {
    const { known } = this;
    const view = this.book.views.get(cell);
    const has = view?.text;
    const isOther = view && has !== plain(was ?? "");
    if (type === "set") {
      const text = plain(source);
      if (isOther && has !== text) return this.refuses(cell, has);
      known.set(cell, text);
      view?.takeText(text, plain(base ?? source));
    } else if (type === "remove") {
      if (isOther) return this.refuses(cell, has);
      known.delete(cell);
    } else if (type === "insert") {
      known.delete(cell);
      const cells = [...known];
      const text = plain(source);
      cells.splice(cells.findIndex(([id]) => id === after) + 1, 0, [cell, text]);
      this.known = new Map(cells);
      if (view && !view.isChanged) view.takeText(text, text);
    } else if (type === "order") {
      this.known = new Map([...order, ...known.keys()].filter((id) => known.has(id)).map((id) => [id, known.get(id)]));
    }
    return undefined;
  }

  refuses(cell, text) {
    this.known.set(cell, text);
    return text;
  }

  close() {
    clearTimeout(this.timer);
    clearTimeout(this.next);
    this.send({ type: "closed" });
  }
}
