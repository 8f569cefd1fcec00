// What others do in the open notebooks, as `nb live` tells it. Pure.
'use strict';

/**
 * A cell, or other code, that the kernel runs or that waits for it. `notebook` is another one that uses the kernel.
 * @typedef {{ run: string, by: string, person: boolean, since: string,
 *   notebook?: string, cell?: string, index?: number, line?: string }} Run
 *
 * What an agent did to a cell.
 * @typedef {{ cell: string, by: string, what: 'ran' | 'edited' | 'inserted', at: string,
 *   edit?: string, before?: string }} Mark
 *
 * What is known of one document. `kernel` says whether it has one that a front end can use, `idleAt` when a request last
 * ended, in milliseconds, `stale` why cells are out of date.
 * @typedef {{ kernel: boolean, running?: Run, waiting: Run[], idleAt: number, marks: Map<string, Mark>,
 *   stale: Map<string, { why: string }> }} Known
 */

class Activity {
  constructor() {
    /** @type {Map<string, Known>} */
    this.known = new Map();
  }

  /** Takes in what `nb` tells; false for what is nothing of this. @param {string} doc @param {any} message @param {number} now */
  tell(doc, message, now) {
    if (!['activity', 'marks', 'stale'].includes(message.type)) return false;
    const none = { kernel: false, running: undefined, waiting: [], idleAt: 0, marks: new Map(), stale: new Map() };
    const known = this.known.get(doc) ?? none;
    this.known.set(doc, known);
    if (message.type === 'activity') {
      if (known.running && !message.running) known.idleAt = now;
      Object.assign(known, { kernel: message.kernel, running: message.running ?? undefined, waiting: message.waiting });
    } else {
      const byCell = new Map(message.cells.map((/** @type {any} */ each) => [each.cell, each]));
      Object.assign(known, { [message.type]: byCell });
    }
    return true;
  }

  /** What runs in the document, or in any one if none is named, and what waits for it. @param {string} [doc] */
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
