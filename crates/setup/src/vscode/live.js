// Speaks with `nb live` about the open documents: docs/live.md. Knows no front end, and not how messages are carried.
'use strict';

// A change of the person is reported after a pause in typing, and each second at least, in milliseconds.
const QUIET = 150;
const MOST = 1000;

// How long a save may take, in milliseconds.
const LONGEST_SAVE = 5000;

// The exit code of an `nb` that does not know the command.
const UNKNOWN_COMMAND = 2;

/**
 * @typedef {{ cell: string, id?: string, cell_type: 'code' | 'markdown' | 'raw', source: string }} Cell
 * @typedef {{ notebook: string, cells: Cell[], dirty: boolean, room?: boolean }} OpenDocument `room`: a server writes the file
 * @typedef {{ synced: string, revision?: string }} Stamp which version of the file a document had
 * @typedef {{ applied: true } | { applied: false, source?: string }} Answer `source` is the text that the cell has
 */

/**
 * The way to `nb live`. `works` says that it has answered.
 * @typedef {{ start: () => void, stop: () => void, send: (message: object) => void, works: () => void }} Connection
 *
 * What comes over it. `ended` returns whether the connection is begun again.
 * @typedef {{ begun: () => void, message: (message: any) => void, ended: (why: string, code: number | null) => boolean }}
 *   Listener
 *
 * The front end. `request` does what a request asks for. `tell` takes in what is no request. `changed` is called when the
 * person has changed something, `fails` when `nb` did not do what the person asked for, and `lost` when `nb` has ended.
 * `longestWait` is how long a save may wait for `nb`, in milliseconds. `stamps` keeps the stamp of each document's last
 * `synced`, for the next `nb live`.
 * @typedef {object} Host
 * @property {number} longestWait
 * @property {{ get: (doc: string) => Stamp | undefined, set: (doc: string, stamp: Stamp) => void }} stamps
 * @property {Map<string, unknown>} open the documents
 * @property {(doc: string) => OpenDocument | undefined} describe
 * @property {(doc: string, message: any) => Promise<Answer>} request
 * @property {(doc: string, message: any) => void} tell
 * @property {(doc: string) => void} changed
 * @property {(text: string) => void} says
 * @property {(text: string) => void} fails
 * @property {() => void} lost
 */

/** What `nb` knows of a document, and what is still to be done with it. */
class Known {
  constructor() {
    /** @type {string[]} */
    this.order = [];
    /** @type {Map<string, { id?: string, source: string }>} */
    this.cells = new Map();
    this.queue = Promise.resolve();
    this.turns = 0;
    // Whether a change is to be reported at the end of a turn.
    this.isDue = false;
    this.timer = /** @type {NodeJS.Timeout | undefined} */ (undefined);
    this.since = 0;
    this.changedAt = 0;
    this.savesUntil = 0;
    /** @type {((message: any) => void) | undefined} */
    this.synced = undefined;
  }

  /** @param {Cell[]} cells */
  has(cells) {
    this.order = cells.map(({ cell }) => cell);
    this.cells = new Map(cells.map(({ cell, id, source }) => [cell, { id, source }]));
  }

  /** Takes in what a request has changed. @param {any} message */
  applies({ type, cell, id, source, after, order }) {
    if (type === 'set') {
      const known = this.cells.get(cell);
      if (known) known.source = source;
    } else if (type === 'insert') {
      this.order = this.order.filter(each => each !== cell);
      this.order.splice(this.order.indexOf(after) + 1, 0, cell);
      this.cells.set(cell, { id, source });
    } else if (type === 'remove') {
      this.order = this.order.filter(each => each !== cell);
      this.cells.delete(cell);
    } else if (type === 'order') {
      this.order = inOrder(this.order, order);
    }
  }
}

class Live {
  /**
   * @param {(listener: Listener) => Connection} connect
   * @param {{ editor: string, can: string[] }} about the front end's name, and what it can do
   * @param {Host} host
   */
  constructor(connect, about, host) {
    this.host = host;
    /** @type {Map<string, Known>} */
    this.known = new Map();
    this.connection = connect({
      begun: () => {
        this.connection.send({ type: 'initialize', ...about });
        for (const doc of host.open.keys()) this.open(doc);
      },
      message: message => this.take(message),
      ended: (why, code) => {
        for (const doc of [...this.known.keys()]) this.forget(doc);
        host.lost();
        const isOld = code === UNKNOWN_COMMAND;
        const old = 'this nb is older than the extension and knows no "nb live": agents see what you type once it is saved';
        host.says(isOld ? old : why);
        return !isOld;
      },
    });
  }

  start() {
    this.connection.start();
    return this;
  }

  stop() {
    for (const doc of [...this.known.keys()]) this.forget(doc);
    this.connection.stop();
  }

  /** @param {any} message */
  take(message) {
    const { type, doc } = message;
    if (type === 'initialized') this.connection.works();
    else if (type === 'problem' && message.of) this.host.fails(message.message);
    else if (type === 'problem') this.host.says(message.message);
    else void this.turn(doc, known => this.does(doc, known, message));
  }

  /** @param {string} doc @param {Known} known @param {any} message */
  async does(doc, known, message) {
    if (message.type === 'synced') this.host.stamps.set(doc, { synced: message.stamp, revision: message.revision });
    if (message.type === 'reopen') {
      this.open(doc);
    } else if (message.seq !== undefined) {
      const answer = await this.host.request(doc, message).catch(error => this.fails(error));
      this.answer(doc, known, message, answer);
    } else if (message.type === 'synced' && known.synced) {
      known.synced(message);
    } else {
      this.host.tell(doc, message);
    }
  }

  /** @param {unknown} error @returns {Answer} */
  fails(error) {
    this.host.says(String(error));
    return { applied: false };
  }

  /** @param {string} doc @param {Known} known @param {any} message @param {Answer} answer */
  answer(doc, known, message, answer) {
    if (this.known.get(doc) !== known) return;
    const { seq, cell } = message;
    if (answer.applied) {
      known.applies(message);
      this.connection.send({ type: 'applied', doc, seq });
    } else {
      const has = known.cells.get(cell);
      if (has && answer.source !== undefined) has.source = answer.source;
      this.connection.send({ type: 'refused', doc, seq, source: answer.source });
      // The cell may be gone: then others stand for it, before `nb` takes what they have for the person's.
      if (answer.source === undefined) this.report(doc);
    }
  }

  /**
   * Does something with a document when all before it is done. Changes of the person are reported between two turns.
   * @param {string} doc @param {(known: Known) => void | Promise<void>} work
   */
  turn(doc, work) {
    const known = this.known.get(doc);
    if (!known) return Promise.resolve();
    known.turns += 1;
    const isThere = () => this.known.get(doc) === known;
    known.queue = known.queue.then(async () => {
      if (isThere()) await work(known);
    }).catch(error => void this.fails(error)).then(() => {
      known.turns -= 1;
      if (isThere() && known.isDue) this.report(doc);
    });
    return known.queue;
  }

  /** @param {string} doc */
  open(doc) {
    const open = this.host.describe(doc);
    if (!open) return;
    const known = this.known.get(doc) ?? new Known();
    this.known.set(doc, known);
    clearTimeout(known.timer);
    known.isDue = false;
    known.has(open.cells);
    this.connection.send({ type: 'open', doc, ...open, ...this.host.stamps.get(doc) });
  }

  /** A document has changed: by the person, by a request, or since the editor has loaded the file. @param {string} doc */
  changed(doc) {
    const known = this.known.get(doc);
    if (!known) return;
    const now = Date.now();
    known.changedAt = now;
    known.since ||= now;
    this.reportLater(doc, known, known.savesUntil > now ? 0 : Math.max(0, Math.min(QUIET, known.since + MOST - now)));
  }

  /** @param {string} doc @param {Known} known @param {number} wait */
  reportLater(doc, known, wait) {
    clearTimeout(known.timer);
    known.timer = setTimeout(() => {
      if (known.turns) known.isDue = true;
      else this.report(doc);
    }, wait);
  }

  /** Reports where a document is not as `nb` knows it; returns whether there was something. @param {string} doc */
  report(doc) {
    const known = this.known.get(doc);
    const now = known && this.host.describe(doc);
    if (!now) return false;
    clearTimeout(known.timer);
    known.isDue = false;
    known.since = 0;
    const order = now.cells.map(({ cell }) => cell);
    const before = (/** @type {Cell} */ { cell }) => known.cells.get(cell);
    const added = now.cells.filter(each => !before(each) || (each.id !== undefined && each.id !== before(each)?.id));
    const typed = now.cells.filter(each => before(each) && each.source !== before(each)?.source);
    const isMoved = order.length !== known.order.length || order.some((cell, at) => cell !== known.order[at]);
    if (!added.length && !typed.length && !isMoved) return false;
    if (!now.dirty && known.savesUntil <= Date.now()) {
      // The editor has loaded the file, or the person types: it tells of a change before it tells of unsaved changes.
      const left = known.changedAt + QUIET - Date.now();
      if (left > 0) this.reportLater(doc, known, left);
      else this.open(doc);
      return true;
    }
    known.has(now.cells);
    if (added.length || isMoved) this.connection.send({ type: 'cells', doc, order, new: added });
    for (const { cell, source } of typed) this.connection.send({ type: 'text', doc, cell, source });
    this.host.changed(doc);
    return true;
  }

  /** Before a save: the `synced` of the file that the document has, if any. @param {string} doc @returns {Promise<any>} */
  saving(doc) {
    const known = this.known.get(doc);
    if (!known) return Promise.resolve(undefined);
    return new Promise(resolve => {
      let isOver = false;
      const synced = (/** @type {any} */ message) => {
        isOver = true;
        clearTimeout(timer);
        if (known.synced === synced) known.synced = undefined;
        known.savesUntil = Date.now() + LONGEST_SAVE;
        resolve(message);
      };
      const timer = setTimeout(() => synced(undefined), this.host.longestWait);
      void this.turn(doc, () => {
        if (isOver) return;
        known.savesUntil = Date.now() + this.host.longestWait + LONGEST_SAVE;
        this.report(doc);
        known.synced = synced;
        this.connection.send({ type: 'saving', doc });
      });
    });
  }

  /** @param {string} doc */
  saved(doc) {
    return this.turn(doc, known => {
      this.report(doc);
      known.savesUntil = 0;
      this.connection.send({ type: 'saved', doc, order: known.order });
    });
  }

  /**
   * The person has chosen in a conflict.
   * @param {string} doc @param {string} cell @param {'mine' | 'theirs' | 'both'} keep @param {string} theirs
   */
  choose(doc, cell, keep, theirs) {
    return this.turn(doc, () => {
      this.report(doc);
      this.connection.send({ type: 'choose', doc, cell, keep, theirs });
    });
  }

  /** Asks for `interrupt`, `undo` or `compare`. @param {string} doc @param {{ type: string, [key: string]: unknown }} message */
  asks(doc, message) {
    this.connection.send({ ...message, doc });
  }

  /** @param {string} doc */
  closed(doc) {
    this.forget(doc);
    this.connection.send({ type: 'closed', doc });
  }

  /** @param {string} doc */
  forget(doc) {
    const known = this.known.get(doc);
    clearTimeout(known?.timer);
    known?.synced?.(undefined);
    this.known.delete(doc);
  }
}

/** A list in another one's order; the rest stays behind what it follows. @param {string[]} list @param {string[]} wanted */
function inOrder(list, wanted) {
  const sorted = wanted.filter(each => list.includes(each));
  for (const [at, each] of list.entries()) {
    if (!wanted.includes(each)) sorted.splice(sorted.indexOf(list[at - 1]) + 1, 0, each);
  }
  return sorted;
}

module.exports = { Live, inOrder };
