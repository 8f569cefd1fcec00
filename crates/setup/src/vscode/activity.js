// What happens in one project, from `nb status --json` and the events after it. Pure: callers pass the time.
'use strict';

/**
 * @typedef {object} Run What the kernel runs, or what waits for it.
 * @property {string | undefined} by Who asked for it.
 * @property {string} session The session whose kernel runs it.
 * @property {string} notebook The notebook of its cell.
 * @property {string | undefined} cell Its cell.
 * @property {string | undefined} code Its code.
 * @property {string} since
 */

/**
 * @typedef {object} Mark What an agent did to a cell.
 * @property {'runs' | 'ran' | 'edited' | 'inserted'} what
 * @property {string} by
 * @property {string | number} at
 */

// How long a cell stays marked, in milliseconds.
const MARKED = 10 * 60_000;

// How many runs and marks are kept; the oldest go first.
const MOST = 1000;

// States of a session whose kernel a front end can use.
const UP = new Set(['idle', 'busy', 'live', 'disconnected', 'starting', 'restarting', 'elsewhere', 'unchecked']);

/** Whether this is the person, at any front end, as `nb` names them. @param {unknown} by */
const isHuman = by => typeof by === 'string' && (by === 'human' || /^human \(.*\)$/.test(by));

/** @param {unknown} by @returns {by is string} */
const isAgent = by => typeof by === 'string' && by !== '' && !isHuman(by) && by !== 'username'
  && by !== 'another client' && !/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(by);

/** @param {unknown} value */
const text = value => (typeof value === 'string' ? value : undefined);

/** @param {string} notebook @param {string} cell */
const key = (notebook, cell) => `${notebook}\0${cell}`;

class Activity {
  constructor() {
    /** @type {Map<string, Run>} by the request's id, in the order in which they were asked for */
    this.runs = new Map();
    /** @type {Map<string, Run>} the cells of front ends that wait at their proxies, like `runs` */
    this.waits = new Map();
    /** @type {Map<string, Mark>} */
    this.marks = new Map();
    /** @type {Map<string, { kernelOf: string, isUp: boolean }>} by notebook */
    this.sessions = new Map();
    /** @type {Map<string, number>} when a request last ended, by session */
    this.ended = new Map();
    // Whether each event since the last status has been taken.
    this.isFollowed = false;
  }

  /**
   * Takes what `nb status --json` answered. The events since `nb events` began are already taken.
   * @param {any} status
   */
  look(status) {
    this.isFollowed = true;
    this.sessions.clear();
    const running = new Map();
    for (const it of Array.isArray(status?.sessions) ? status.sessions : []) {
      if (typeof it?.notebook !== 'string') continue;
      this.sessions.set(it.notebook, { kernelOf: text(it.kernel_of) ?? it.notebook, isUp: UP.has(it.state) });
      if (it.running && !it.kernel_of) running.set(it.notebook, it.running);
    }
    // What the status does not show has ended, or it began since, which its event says.
    for (const [id, run] of this.runs) {
      if (id.startsWith('status ')) this.runs.delete(id);
      else if (this.sessions.get(run.session)?.isUp === false) this.runs.delete(id);
    }
    for (const [session, it] of running) {
      if (this.running(session)) continue;
      this.runs.set(`status ${session}`, {
        by: text(it.by), session, notebook: session, cell: text(it.cell), code: undefined,
        since: text(it.since) ?? '',
      });
    }
  }

  /** Forgets what ran when the events broke off. */
  lose() {
    this.isFollowed = false;
    this.runs.clear();
    this.waits.clear();
  }

  /**
   * Takes one event. Returns whether the sessions may have changed, so that the status is to be read again.
   * @param {any} event @param {number} now
   */
  take(event, now) {
    const session = text(event?.session);
    if (session === undefined) return false;
    const notebook = text(event.notebook) ?? session;
    const id = text(event.msg_id);
    if (id !== undefined && (event.event === 'requested' || event.event === 'done')) this.waits.delete(id);
    switch (event.event) {
      case 'queued':
      case 'requested':
      case 'begun_outside': {
        const list = event.event === 'queued' ? this.waits : this.runs;
        if (id === undefined || event.store_history === false || list.has(id)) return false;
        list.set(id, {
          by: text(event.by), session, notebook, cell: text(event.cell), code: text(event.code),
          since: text(event.at) ?? '',
        });
        bound(list);
        if (list === this.waits) return false;
        return !this.sessions.get(notebook)?.isUp;
      }
      case 'done':
        if (id !== undefined) this.end(session, id, event, now);
        return false;
      case 'edited':
      case 'saved':
        this.change(notebook, event, now);
        return false;
      case 'opened':
      case 'restarted':
      case 'stopped':
      case 'died':
        for (const [each, run] of this.runs) if (run.session === session) this.drop(each, run, now);
        for (const [each, run] of this.waits) if (run.session === session) this.waits.delete(each);
        return true;
      case 'moved':
        return true;
      default:
        return false;
    }
  }

  /** @param {string} session @param {string} id @param {any} event @param {number} now */
  end(session, id, event, now) {
    const known = this.runs.get(id);
    const wasRun = event.status !== 'withdrawn' && event.status !== 'aborted';
    if (!known) {
      // The status named what ran, without its request: the kernel runs one at a time.
      if (wasRun && event.store_history !== false) this.runs.delete(`status ${session}`);
      return;
    }
    this.drop(id, known, now);
    if (known.cell && isAgent(known.by) && wasRun) {
      const before = this.marks.get(key(known.notebook, known.cell));
      // An edit says more than the run after it.
      if (before && before.what !== 'ran' && before.by === known.by) before.at = now;
      else this.mark(known.notebook, known.cell, { what: 'ran', by: known.by, at: now });
    }
  }

  /** @param {string} id @param {Run} run @param {number} now */
  drop(id, run, now) {
    this.runs.delete(id);
    this.ended.set(run.session, now);
    bound(this.ended);
  }

  /** @param {string} notebook @param {any} event @param {number} now */
  change(notebook, event, now) {
    for (const step of Array.isArray(event.changes) ? event.changes : []) {
      const cell = text(step?.cell);
      if (cell === undefined) continue;
      if ((step.what === 'edited' || step.what === 'inserted') && isAgent(event.by)) {
        this.mark(notebook, cell, { what: step.what, by: event.by, at: now });
      } else if (step.what === 'edited' || step.what === 'removed') {
        this.marks.delete(key(notebook, cell));
      }
    }
  }

  /** @param {string} notebook @param {string} cell @param {Mark} mark */
  mark(notebook, cell, mark) {
    // Last in the order of the map.
    this.marks.delete(key(notebook, cell));
    this.marks.set(key(notebook, cell), mark);
    bound(this.marks);
  }

  /** What the kernel of a notebook runs. @param {string} notebook @returns {Run | undefined} */
  running(notebook) {
    const session = this.sessions.get(notebook)?.kernelOf ?? notebook;
    return [...this.runs.values()].find(run => run.session === session);
  }

  /** What waits until a run has ended. @param {Run} run */
  behind(run) {
    return [...this.waits.values()].filter(each => each.session === run.session);
  }

  /**
   * Since when the kernel of a notebook is idle; `undefined` if it is not, or that is not known.
   * @param {string} notebook
   */
  idleSince(notebook) {
    const session = this.sessions.get(notebook);
    if (!this.isFollowed || !session?.isUp || this.running(notebook)) return undefined;
    return this.ended.get(session.kernelOf) ?? 0;
  }

  /**
   * What an agent does to a cell or has just done to it.
   * @param {string} notebook @param {string} cell @param {number} now @returns {Mark | undefined}
   */
  markOf(notebook, cell, now) {
    const run = this.running(notebook);
    if (run && run.notebook === notebook && run.cell === cell && isAgent(run.by)) {
      return { what: 'runs', by: run.by, at: run.since };
    }
    const mark = this.marks.get(key(notebook, cell));
    return mark && now - Number(mark.at) < MARKED ? mark : undefined;
  }

  /** When the next mark is old, in milliseconds from now; `undefined` if no cell is marked. @param {number} now */
  nextExpiry(now) {
    for (const [each, mark] of this.marks) if (now - Number(mark.at) >= MARKED) this.marks.delete(each);
    const times = [...this.marks.values()].map(mark => Number(mark.at) + MARKED - now);
    return times.length ? Math.min(...times) : undefined;
  }
}

/** @param {Map<string, unknown>} map */
function bound(map) {
  for (const each of map.keys()) {
    if (map.size <= MOST) return;
    map.delete(each);
  }
}

module.exports = { Activity, MARKED, isAgent, isHuman };
