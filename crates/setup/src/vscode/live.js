// Speaks with `nb live` about the open documents: docs/live.md. Knows nothing of VS Code.
'use strict';

const { spawn } = require('node:child_process');
const { Lines, pause } = require('./follower');

// A text is reported after a pause in typing, and each second at least, in milliseconds.
const QUIET = 150;
const MOST = 1000;

// The exit code of an `nb` that does not know the command.
const UNKNOWN_COMMAND = 2;

/**
 * @typedef {{ cell: string, id?: string, cell_type: 'code' | 'markdown', source: string }} Cell
 * @typedef {{ doc: string, notebook: string, cells: Cell[], dirty: boolean }} OpenDocument
 */

/** One process, begun again when it ends. */
class Live {
  /**
   * @param {string} program
   * @param {string} folder
   * @param {{ documents: () => OpenDocument[], says: (text: string) => void }} host
   */
  constructor(program, folder, host) {
    this.program = program;
    this.folder = folder;
    this.host = host;
    this.failures = 0;
    this.isStopped = false;
    /** @type {import('node:child_process').ChildProcess | undefined} */
    this.child = undefined;
    /** @type {NodeJS.Timeout | undefined} */
    this.timer = undefined;
    /** @type {Map<string, { read: () => string, doc: string, cell: string, since: number, timer: NodeJS.Timeout }>} */
    this.typed = new Map();
  }

  start() {
    if (this.isStopped || this.child) return;
    const child = spawn(this.program, ['live', '--stdio'], { cwd: this.folder, stdio: ['pipe', 'pipe', 'ignore'] });
    this.child = child;
    const lines = new Lines();
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', text => lines.take(text).forEach(line => this.take(line)));
    // Its end is reported by the process.
    child.stdin.on('error', () => {});
    let isOver = false;
    const over = (/** @type {string} */ why, /** @type {number | null} */ code) => {
      if (isOver) return;
      isOver = true;
      this.child = undefined;
      if (this.isStopped) return;
      if (code === UNKNOWN_COMMAND) {
        this.host.says('this nb is older than the extension and knows no "nb live": agents see what you type once it is saved');
        return;
      }
      this.host.says(why);
      this.timer = setTimeout(() => this.start(), pause(this.failures));
      this.failures += 1;
    };
    child.once('error', error => over(error.message, null));
    child.once('close', (code, signal) => over(`nb live ended with ${signal ?? code}`, code));
    this.send({ type: 'initialize', editor: 'VS Code' });
    for (const each of this.host.documents()) this.open(each);
  }

  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
    for (const { timer } of this.typed.values()) clearTimeout(timer);
    this.child?.stdin?.end();
  }

  /** @param {object} message */
  send(message) {
    this.child?.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  /** @param {string} line */
  take(line) {
    const message = JSON.parse(line);
    if (message.type === 'initialized') {
      this.failures = 0;
    } else if (message.type === 'problem') {
      this.host.says(message.message);
    } else if (message.type === 'reopen') {
      const open = this.host.documents().find(each => each.doc === message.doc);
      if (open) this.open(open);
    }
  }

  /** @param {OpenDocument} document */
  open(document) {
    this.forget(document.doc);
    this.send({ type: 'open', ...document });
  }

  /**
   * The person changed a cell's text.
   * @param {string} doc
   * @param {string} cell
   * @param {() => string} read
   */
  text(doc, cell, read) {
    const key = `${doc}\n${cell}`;
    const before = this.typed.get(key);
    clearTimeout(before?.timer);
    const since = before?.since ?? Date.now();
    const wait = Math.max(0, Math.min(QUIET, since + MOST - Date.now()));
    this.typed.set(key, { read, doc, cell, since, timer: setTimeout(() => this.report(key), wait) });
  }

  /** @param {string} key */
  report(key) {
    const { doc, cell, read, timer } = this.typed.get(key) ?? {};
    clearTimeout(timer);
    if (this.typed.delete(key) && read) this.send({ type: 'text', doc, cell, source: read() });
  }

  /**
   * Reports what is typed in a document now.
   * @param {string} doc
   */
  flush(doc) {
    for (const [key, typed] of [...this.typed]) if (typed.doc === doc) this.report(key);
  }

  /**
   * The person inserted, removed or moved cells, or their ids are known now.
   * @param {string} doc
   * @param {string[]} order
   * @param {Cell[]} added
   */
  cells(doc, order, added) {
    this.flush(doc);
    this.send({ type: 'cells', doc, order, new: added });
  }

  /**
   * @param {string} doc
   * @param {string[]} order
   */
  saved(doc, order) {
    this.flush(doc);
    this.send({ type: 'saved', doc, order });
  }

  /** @param {string} doc */
  closed(doc) {
    this.forget(doc);
    this.send({ type: 'closed', doc });
  }

  /** @param {string} doc */
  forget(doc) {
    for (const [key, { timer, doc: of }] of [...this.typed]) {
      if (of !== doc) continue;
      clearTimeout(timer);
      this.typed.delete(key);
    }
  }
}

module.exports = { Live };
