// What others do in the open notebooks, as `nb live` tells it. Pure.
'use strict';

/**
 * @typedef {object} Run A cell, or other code, that the kernel runs or that waits for it.
 * @property {string} run
 * @property {string} by
 * @property {boolean} person Whether the person asked for it, at any front end.
 * @property {string} since
 * @property {string} [notebook] Another notebook that uses the kernel.
 * @property {string} [cell]
 * @property {number} [index]
 * @property {string} [line]
 *
 * @typedef {object} Mark What an agent did to a cell.
 * @property {string} cell
 * @property {string} by
 * @property {'ran' | 'edited' | 'inserted'} what
 * @property {string} at
 * @property {string} [edit]
 * @property {string} [before]
 */

/** What is known of one document. */
class Known {
  constructor() {
    // Whether it has a kernel that a front end can use.
    this.kernel = false;
    /** @type {Run | undefined} */
    this.running = undefined;
    /** @type {Run[]} */
    this.waiting = [];
    // When a request last ended, in milliseconds.
    this.idleAt = 0;
    /** @type {Map<string, Mark>} */
    this.marks = new Map();
  }
}

class Activity {
  constructor() {
    /** @type {Map<string, Known>} */
    this.known = new Map();
  }

  /**
   * Takes in what `nb` tells; returns false for what is nothing of this.
   * @param {string} doc @param {any} message @param {number} now
   */
  tell(doc, message, now) {
    if (message.type !== 'activity' && message.type !== 'marks') return false;
    const known = this.known.get(doc) ?? new Known();
    this.known.set(doc, known);
    if (message.type === 'marks') {
      known.marks = new Map(message.cells.map((/** @type {Mark} */ mark) => [mark.cell, mark]));
    } else {
      if (known.running && !message.running) known.idleAt = now;
      Object.assign(known, { kernel: message.kernel, running: message.running ?? undefined, waiting: message.waiting });
    }
    return true;
  }

  /** @param {string} doc */
  hasKernel(doc) {
    return this.known.get(doc)?.kernel ?? false;
  }

  /**
   * What runs in the document, or in any one if none is named, and what waits for it.
   * @param {string} [doc]
   */
  runs(doc) {
    const all = doc === undefined ? [...this.known] : [[doc, this.known.get(doc)]];
    for (const [each, known] of /** @type {[string, Known | undefined][]} */ (all)) {
      if (known?.running) return { doc: each, run: known.running, waiting: known.waiting };
    }
    return undefined;
  }

  /** Since when the kernel of a document is idle; `undefined` if it is not, or that is not known. @param {string} doc */
  idleSince(doc) {
    const known = this.known.get(doc);
    return known?.kernel && !known.running ? known.idleAt : undefined;
  }
}

module.exports = { Activity };
