// The comm on which a page speaks with `nb live`: docs/live.md. The Jupyter server may drop messages of it.
'use strict';

const TARGET = 'nb.live';

// How long nothing may be heard of `nb live`, which says something each five seconds, and the pauses between two tries to
// open a comm, in milliseconds.
const SILENCE = 15_000;
const FIRST_PAUSE = 1000;
const LONGEST_PAUSE = 60_000;

/** Messages with numbers, given on in their order and each once. */
class InOrder {
  /** @param {(message: any) => void} next */
  constructor(next) {
    this.next = next;
    this.last = 0;
    /** @type {Map<number, any>} */
    this.early = new Map();
  }

  /** @param {any} message */
  take(message) {
    if (message.n > this.last) this.early.set(message.n, message);
    for (let found; (found = this.early.get(this.last + 1)); ) {
      this.early.delete(found.n);
      this.last = found.n;
      this.next(found);
    }
  }
}

/** A way to `nb live` for as long as there is a kernel of `nb`. */
class CommConnection {
  /**
   * @param {() => any} kernel the kernel's connection in JupyterLab, if there is one
   * @param {import('../vscode/live').Listener} listener
   */
  constructor(kernel, listener) {
    this.kernel = kernel;
    this.listener = listener;
    this.failures = 0;
    this.isStopped = false;
    // Whether an `nb live` has answered: a kernel without one is not waited for.
    this.isAnswered = false;
    this.comm = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.silence = undefined;
  }

  start() {
    clearTimeout(this.timer);
    const kernel = this.kernel();
    // When it is connected, the tab begins anew.
    if (this.isStopped || this.comm || kernel?.connectionStatus !== 'connected') return;
    if (!/^nb-shared(-|$)/.test(kernel.name)) return;
    const comm = kernel.createComm(TARGET, `${TARGET}-${crypto.randomUUID?.() ?? Math.random()}`);
    this.comm = comm;
    const ordered = new InOrder(message => {
      if (message.type !== 'alive') this.listener.message(message);
    });
    comm.onMsg = (/** @type {any} */ { content: { data } }) => {
      if (this.comm !== comm) return;
      this.waits();
      ordered.take(data);
      this.send({ type: 'received', n: ordered.last });
    };
    comm.onClose = (/** @type {any} */ { content: { data } }) => {
      if (this.comm === comm) this.over(data?.message ?? 'the kernel does not know nb live');
    };
    // Else JupyterLab asks a kernel that is busy for a subshell.
    comm.commsOverSubshells = 'disabled';
    comm.open().dispose();
    this.waits();
    this.listener.begun();
  }

  /** Begins anew: the comm belongs to a kernel or to a connection that has ended. */
  again() {
    this.failures = 0;
    this.close();
    this.listener.ended('the kernel is another one', null);
    this.start();
  }

  /** @param {object} message */
  send(message) {
    const { comm } = this;
    if (!comm || comm.isDisposed) return;
    try {
      comm.send(message).dispose();
    } catch (error) {
      this.over(String(error));
    }
  }

  works() {
    this.failures = 0;
    this.isAnswered = true;
  }

  stop() {
    this.isStopped = true;
    clearTimeout(this.timer);
    this.close();
  }

  waits() {
    clearTimeout(this.silence);
    this.silence = setTimeout(() => this.over('nothing is heard of nb live'), SILENCE);
  }

  close() {
    clearTimeout(this.silence);
    const { comm } = this;
    this.comm = undefined;
    this.isAnswered = false;
    if (!comm || comm.isDisposed) return;
    try {
      comm.close()?.dispose();
    } catch {
      // The kernel is gone.
    }
  }

  /** @param {string} why */
  over(why) {
    this.close();
    if (this.isStopped || !this.listener.ended(why, null)) return;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.start(), Math.min(FIRST_PAUSE * 2 ** this.failures, LONGEST_PAUSE));
    this.failures += 1;
  }
}

module.exports = { CommConnection, InOrder };
