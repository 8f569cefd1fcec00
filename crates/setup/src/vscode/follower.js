// Follows `nb events --json` in one project, and begins again when it ends. Knows nothing of VS Code.
'use strict';

const { spawn } = require('node:child_process');
const { ACTOR } = require('./nb');

// The pause before the next start, in milliseconds: it doubles with each start that fails.
const FIRST = 1000;
const LONGEST = 60_000;

// The longest line that is read, in characters; a longer one is skipped.
const LINE = 4 * 1024 * 1024;

/**
 * The pause after so many failed starts in a row.
 * @param {number} failures
 */
const pause = failures => Math.min(FIRST * 2 ** failures, LONGEST);

/** Lines from pieces of text, with a bound on their length. */
class Lines {
  constructor() {
    this.rest = '';
    this.skips = false;
  }

  /**
   * The lines that this piece completes.
   * @param {string} text
   * @returns {string[]}
   */
  take(text) {
    const parts = text.split('\n');
    const lines = [];
    for (const [at, part] of parts.entries()) {
      if (this.rest.length + part.length > LINE) {
        this.rest = '';
        this.skips = true;
      } else if (!this.skips) {
        this.rest += part;
      }
      if (at === parts.length - 1) break;
      if (!this.skips && this.rest) lines.push(this.rest);
      this.rest = '';
      this.skips = false;
    }
    return lines;
  }
}

/** The events of one project: one process, begun again when it ends. */
class Follower {
  /**
   * @param {string} program
   * @param {string} root
   * @param {{ begun: () => void, event: (event: any) => void, ended: (why: string) => void }} listener
   */
  constructor(program, root, listener) {
    this.program = program;
    this.root = root;
    this.listener = listener;
    this.failures = 0;
    this.stopped = false;
    /** @type {import('node:child_process').ChildProcess | undefined} */
    this.child = undefined;
    /** @type {NodeJS.Timeout | undefined} */
    this.timer = undefined;
  }

  start() {
    if (this.stopped || this.child) return;
    const lines = new Lines();
    let hasBegun = false;
    let said = '';
    const child = spawn(this.program, ['--as', ACTOR, 'events', '--json'], {
      cwd: this.root, stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.child = child;
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', text => {
      for (const line of lines.take(text)) {
        const found = parsed(line);
        if (!found) continue;
        if (found.event) {
          this.listener.event(found);
        } else if (found.from && !hasBegun) {
          hasBegun = true;
          this.failures = 0;
          this.listener.begun();
        } else if (found.error?.message) {
          said = String(found.error.message);
        }
      }
    });
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', text => { said = `${said}${text}`.slice(-2000); });
    let isOver = false;
    const over = (/** @type {string} */ why) => {
      if (isOver) return;
      isOver = true;
      this.child = undefined;
      if (this.stopped) return;
      this.listener.ended(said.trim().split('\n').at(-1) || why);
      this.timer = setTimeout(() => this.start(), pause(this.failures));
      this.failures += 1;
    };
    child.once('error', error => over(error.message));
    child.once('close', (code, signal) => over(`nb events ended with ${signal ?? code}`));
  }

  stop() {
    this.stopped = true;
    clearTimeout(this.timer);
    this.child?.kill();
  }
}

/**
 * @param {string} line
 * @returns {any}
 */
function parsed(line) {
  try {
    const found = JSON.parse(line);
    return typeof found === 'object' && found !== null ? found : undefined;
  } catch {
    return undefined;
  }
}

module.exports = { Follower, Lines, pause };
