// A command of `nb` that writes one JSON object a line, begun again when it ends. Knows nothing of VS Code.
'use strict';

const { spawn } = require('node:child_process');

// The pause before the next start, in milliseconds: it doubles with each start that fails.
const FIRST = 1000;
const LONGEST = 60_000;

/** The pause after so many failed starts in a row. @param {number} failures */
const pause = failures => Math.min(FIRST * 2 ** failures, LONGEST);

class Process {
  /**
   * @param {string} program
   * @param {readonly string[]} words
   * @param {string} folder
   * @param {{
   *   begun: () => void,
   *   message: (message: any) => void,
   *   ended: (why: string, code: number | null) => boolean,
   * }} listener `ended` returns whether the command is begun again
   */
  constructor(program, words, folder, listener) {
    this.program = program;
    this.words = words;
    this.folder = folder;
    this.listener = listener;
    this.failures = 0;
    this.isStopped = false;
    /** @type {import('node:child_process').ChildProcess | undefined} */
    this.child = undefined;
    /** @type {NodeJS.Timeout | undefined} */
    this.timer = undefined;
  }

  start() {
    if (this.isStopped || this.child) return;
    let said = '';
    const child = spawn(this.program, this.words, { cwd: this.folder, stdio: 'pipe' });
    this.child = child;
    // Node's readline takes U+2028 for the end of a line, too.
    let rest = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', text => {
      const lines = text.split('\n');
      lines[0] = rest + lines[0];
      rest = lines.pop();
      for (const found of lines.map(parsed)) if (found && !this.isStopped) this.listener.message(found);
    });
    child.stderr.setEncoding('utf8');
    child.stderr.on('data', text => { said = `${said}${text}`.slice(-2000); });
    // Its end is reported by the process.
    child.stdin.on('error', () => {});
    let isOver = false;
    const over = (/** @type {string} */ why, /** @type {number | null} */ code) => {
      if (isOver) return;
      isOver = true;
      this.child = undefined;
      if (this.isStopped || !this.listener.ended(said.trim().split('\n').at(-1) || why, code)) return;
      this.timer = setTimeout(() => this.start(), pause(this.failures));
      this.failures += 1;
    };
    child.once('error', error => over(error.message, null));
    child.once('close', (code, signal) => over(`${this.words.join(' ')} ended with ${signal ?? code}`, code));
    this.listener.begun();
  }

  /** @param {object} message */
  send(message) {
    this.child?.stdin?.write(`${JSON.stringify(message)}\n`);
  }

  /** It works: the next pause is the first one again. */
  works() {
    this.failures = 0;
  }

  /** Ends its input, and with it the process. */
  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
    this.child?.stdin?.end();
  }
}

/** @param {string} line @returns {any} */
function parsed(line) {
  try {
    const found = JSON.parse(line);
    return typeof found === 'object' && found !== null ? found : undefined;
  } catch {
    return undefined;
  }
}

module.exports = { Process, parsed, pause };
