// A notebook that is open in JupyterLab: reports to `nb live` what the person does in it, and does what it asks for.
'use strict';

const { Activity } = require('../vscode/activity');
const { difference, stays } = require('../vscode/cells');
const { CommConnection } = require('./comm');
const { Live, inOrder } = require('../vscode/live');

// The pause between two tries to show outputs that are held, in milliseconds.
const AGAIN = 500;

// How many frames the place of the active cell is kept after a change: cells above it get their height later.
const FRAMES = 6;

const APPLIED = /** @type {const} */ ({ applied: true });
const REFUSED = /** @type {const} */ ({ applied: false });

/**
 * @typedef {import('../vscode/live').Answer} Answer
 * @typedef {{ contents: any, shows: (tab: Tab) => void, says: (text: string) => void, fails: (text: string) => void,
 *   offers: (tab: Tab, message: any, by: string | undefined) => void,
 *   compares: (tab: Tab, cell: any, was: string, title: string | undefined) => void }} Page
 */

class Tab {
  /** @param {any} panel JupyterLab's `NotebookPanel` @param {Page} page */
  constructor(panel, page) {
    this.panel = panel;
    this.context = panel.context;
    this.page = page;
    this.doc = '1';
    this.longestWait = 5000;
    this.open = new Map([[this.doc, panel]]);
    this.stamps = new Map();
    this.activity = new Activity();
    /** @type {Map<string, { by: string, theirs: string }>} */
    this.conflicts = new Map();
    // Whether the document had no unsaved changes before `nb` changed it.
    this.isClean = false;
    // Whether a change is not the person's.
    this.isOwn = false;
    // Whether something has changed since the content of the last save was taken.
    this.isLate = false;
    this.restarts = false;
    // Whether a save is under way, and what waits for its end.
    this.saves = /** @type {Promise<void> | undefined} */ (undefined);
    this.lastSave = Promise.resolve();
    /** @type {Map<string, any>} outputs for cells that wait or run */
    this.held = new Map();
    /** @type {{ run: string, cell: string, model: any } | undefined} the cell of another that is shown as running */
    this.shown = undefined;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    const { sessionContext } = this.context;
    const kernel = () => sessionContext.session?.kernel;
    this.live = new Live(
      listener => (this.connection = new CommConnection(kernel, listener)),
      { editor: 'JupyterLab', can: ['change', 'activity', 'output', 'acknowledge'] },
      this,
    );
    const again = () => this.connection.again();
    sessionContext.kernelChanged.connect(again);
    sessionContext.connectionStatusChanged.connect((/** @type {any} */ _, /** @type {string} */ status) => {
      if (status === 'connected') again();
    });
    sessionContext.statusChanged.connect((/** @type {any} */ _, /** @type {string} */ status) => {
      if (status === 'restarting' || status === 'autorestarting') this.restarts = true;
      else if (this.restarts && status !== 'unknown') {
        this.restarts = false;
        again();
      }
    });
    this.context.model.contentChanged.connect(() => {
      if (!this.isOwn) this.isClean = false;
      this.isLate = true;
      this.live.changed(this.doc);
    });
    void this.context.ready.then(() => this.connection.comm && this.live.open(this.doc));
    this.context.pathChanged.connect(again);
    // Exactly the texts that are saved are reported: they are taken right after this.
    this.context.saveState.connect((/** @type {any} */ _, /** @type {string} */ state) => {
      if (state !== 'started') return;
      this.live.report(this.doc);
      this.isLate = false;
    });
    this.context.disposed.connect(() => this.stop());
    const save = this.context.save.bind(this.context);
    this.context.save = () => (this.isRoom ? save() : this.saveInTurn(save));
    this.live.start();
  }

  stop() {
    clearTimeout(this.timer);
    this.live.stop();
  }

  // ---- What is reported

  get notebook() {
    return this.context.model.sharedModel;
  }

  /** Whether the server has the document in a room, with the pages of others, and writes the file. */
  get isRoom() {
    return Boolean(this.context.model.collaborative);
  }

  /** Whether no other page has the same document: in a room each gets what runs, and what one shows the others have too. */
  get isAlone() {
    // The server has a state of its own, without a user.
    const pages = [...(this.notebook.awareness?.getStates().values() ?? [])].filter(state => state.user);
    return !this.isRoom || pages.length === 1;
  }

  describe() {
    const { model, isReady, isDisposed, _contentProviderId: provider, _createSaveOptions: options } = this.context;
    const room = this.isRoom;
    if (!isReady || isDisposed || (room && (provider !== 'rtc' || !options))) return undefined;
    const { cells, nbformat_minor: minor } = this.notebook;
    const all = cells.map((/** @type {any} */ cell) => (
      { cell: cell.id, id: minor >= 5 ? cell.id : undefined, cell_type: cell.cell_type, source: cell.getSource() }));
    if (new Set(all.map((/** @type {any} */ each) => each.cell)).size < all.length) return undefined;
    // In a room others' changes come without unsaved changes.
    return { notebook: this.context.path, cells: all, dirty: room || model.dirty, room };
  }

  lost() {
    this.conflicts.clear();
    this.activity.known.clear();
    this.follows();
    this.page.shows(this);
  }

  changed() {
    this.isClean = false;
  }

  /** @param {string} text */
  says(text) {
    this.page.says(text);
  }

  /** @param {string} text */
  fails(text) {
    this.page.fails(text);
  }

  /** @param {string} name */
  at(name) {
    return this.notebook.cells.findIndex((/** @type {any} */ cell) => cell.id === name);
  }

  /** @param {string} name */
  cell(name) {
    return this.notebook.cells[this.at(name)];
  }

  /** The cell on the screen. @param {string} name */
  widget(name) {
    return this.panel.content.widgets[this.at(name)];
  }

  /** Whether a cell of the person waits or runs. @param {string} name */
  isBusy(name) {
    const prompt = this.widget(name)?.node.querySelector('.jp-InputPrompt')?.textContent ?? '';
    return prompt.includes('*') && name !== this.shown?.cell;
  }

  // ---- What `nb` asks for

  /** @param {string} _ @param {any} message @returns {Promise<Answer>} */
  async request(_, message) {
    await this.saves;
    if (this.context.isDisposed) return REFUSED;
    switch (message.type) {
      case 'set': return this.keep(() => this.set(message));
      case 'insert': return this.keep(() => this.insert(message));
      case 'remove': return this.keep(() => this.remove(message));
      case 'order': return this.keep(() => this.order(message));
      case 'metadata': return this.keep(() => this.metadata(message));
      case 'outputs': return this.keep(() => this.outputs(message));
      case 'store': return this.store();
      default: return REFUSED;
    }
  }

  /** Makes a change that is not the person's. @template T @param {() => T} change @returns {T} */
  owns(change) {
    if (!this.context.model.dirty) this.isClean = true;
    this.isOwn = true;
    try {
      return change();
    } finally {
      this.isOwn = false;
    }
  }

  /** Changes something that the person's undo does not take back. @param {() => void} change */
  edits(change) {
    this.notebook.transact(change, false, 'nb');
  }

  /**
   * Makes a change that is not the person's. What the person looks at stays in its place while cells above it change.
   * @template T @param {() => T} change @returns {T}
   */
  keep(change) {
    const { content } = this.panel;
    const cell = content.activeCell?.node;
    const inside = '.jp-WindowedPanel-outer';
    const scrolled = content.node.closest(inside) ?? content.node.querySelector(inside) ?? content.node;
    const before = cell?.getBoundingClientRect();
    const seen = scrolled.getBoundingClientRect();
    const done = this.owns(change);
    if (!before || before.bottom < seen.top || before.top > seen.bottom) return done;
    const correct = (/** @type {number} */ frames) => {
      if (!cell.isConnected) return;
      scrolled.scrollTop += cell.getBoundingClientRect().top - before.top;
      if (frames) requestAnimationFrame(() => correct(frames - 1));
    };
    requestAnimationFrame(() => correct(FRAMES));
    return done;
  }

  /** @param {any} message @returns {Answer} */
  set({ cell: name, was, source }) {
    const cell = this.cell(name);
    if (!cell) return REFUSED;
    const has = cell.getSource();
    if (has === source) return APPLIED;
    if (has !== was) return { applied: false, source: has };
    const { start, end, text } = difference(has, source);
    cell.transact(() => cell.updateSource(start, end, text), false, 'nb');
    return APPLIED;
  }

  /** @param {any} message @returns {Answer} */
  insert({ cell: id, after, cell_type: type, source }) {
    if (this.cell(id)) return APPLIED;
    const before = this.at(after);
    if (before < 0 && after !== null && after !== undefined) return REFUSED;
    const code = type === 'code' ? { outputs: [], execution_count: null } : {};
    this.edits(() => this.notebook.insertCell(before + 1, { id, cell_type: type, source, metadata: {}, ...code }));
    return APPLIED;
  }

  /** @param {any} message @returns {Answer} */
  remove({ cell: name, was }) {
    const cell = this.cell(name);
    if (!cell) return APPLIED;
    const source = cell.getSource();
    if (source !== was || this.isBusy(name)) return { applied: false, source };
    this.edits(() => this.notebook.deleteCell(this.at(name)));
    return APPLIED;
  }

  /** Moves cells round those that wait or run and the active one: JupyterLab makes a moved cell anew. @param {any} message */
  order({ order }) {
    const names = this.notebook.cells.map((/** @type {any} */ cell) => cell.id);
    const wanted = inOrder(names, order);
    const active = this.panel.content.activeCell?.model.id;
    const isFixed = (/** @type {number} */ at) => names[at] === active || this.isBusy(names[at]);
    const staying = stays(names.map((/** @type {string} */ name) => wanted.indexOf(name)), isFixed);
    if (!staying) return REFUSED;
    for (const name of wanted.filter(each => !staying.has(names.indexOf(each)))) {
      const from = this.at(name);
      // Behind the one that it is to follow: those before it are in their places.
      const at = this.at(wanted[wanted.indexOf(name) - 1] ?? '') + 1;
      const to = at > from ? at - 1 : at;
      if (to !== from) this.edits(() => this.notebook.moveCell(from, to));
    }
    return APPLIED;
  }

  /** @param {any} message @returns {Answer} */
  metadata({ cell: name, was, metadata }) {
    const owner = name === undefined ? this.notebook : this.cell(name);
    if (!owner) return REFUSED;
    this.edits(() => {
      for (const key of Object.keys(was)) if (!(key in metadata)) owner.deleteMetadata(key);
      for (const [key, value] of Object.entries(metadata)) {
        if (JSON.stringify(was[key]) !== JSON.stringify(value)) owner.setMetadata(key, value);
      }
    });
    return APPLIED;
  }

  /** Asks the server of the room to write the file: a save of this page would write over what others type. */
  async store() {
    const { context } = this;
    const options = { ...context._createSaveOptions(), contentProviderId: context._contentProviderId };
    await this.page.contents.save(context.path, options);
    return APPLIED;
  }

  // ---- Outputs of others' runs

  /** Shows outputs, or holds them while the cell waits or runs. @param {any} message @returns {Answer} */
  outputs(message) {
    if (!this.cell(message.cell)) return REFUSED;
    if (this.isBusy(message.cell)) {
      this.held.set(message.cell, message);
      this.release();
      return APPLIED;
    }
    this.held.delete(message.cell);
    this.put(message.cell, message.outputs, message.execution_count);
    return APPLIED;
  }

  release() {
    clearTimeout(this.timer);
    for (const [name, message] of this.held) if (!this.isBusy(name)) this.keep(() => this.outputs(message));
    if (this.held.size) this.timer = setTimeout(() => this.release(), AGAIN);
  }

  /** The person's own run of a cell begins: it is newer than what is held. @param {string} name */
  runs(name) {
    this.held.delete(name);
    if (this.shown?.cell === name) this.shown = undefined;
  }

  /** The model of a code cell's view. @param {string} name */
  model(name) {
    const model = this.context.model.cells.get(this.at(name));
    return model?.type === 'code' ? model : undefined;
  }

  /**
   * Gives a cell outputs by the model of its view, as they come from the kernel: those that are there and only grow stay.
   * @param {string} name @param {any[]} outputs @param {number | null} count
   */
  put(name, outputs, count) {
    const model = this.model(name);
    if (!model) return;
    const next = outputs.map(output => ('text' in output ? { ...output, text: joined(output.text) } : output));
    if (JSON.stringify(model.outputs.toJSON().map(plain)) !== JSON.stringify(next.map(plain))) model.outputs.fromJSON(next);
    model.executionCount = count;
  }

  /** `nb` has told what runs: the cell of another is shown as running. */
  follows() {
    const run = this.activity.known.get(this.doc)?.running;
    if (run?.run === this.shown?.run) return;
    const before = this.shown;
    this.shown = undefined;
    if (before && !before.model.isDisposed) this.owns(() => { before.model.executionState = 'idle'; });
    if (run?.cell === undefined || !this.isAlone) return;
    const model = this.model(run.cell);
    // The page itself shows what it has asked for.
    if (!model || this.isBusy(run.cell)) return;
    this.owns(() => { model.executionState = 'running'; });
    this.shown = { run: run.run, cell: run.cell, model };
  }

  /** What the cell of another has output so far. @param {any} message */
  progress({ cell, outputs, execution_count: count }) {
    this.put(cell, outputs, count);
    // With a count JupyterLab takes the run for ended.
    if (this.shown) this.shown.model.executionState = 'running';
  }

  // ---- What `nb` tells

  /** @param {string} doc @param {any} message */
  tell(doc, message) {
    if (this.activity.tell(doc, message, Date.now())) {
      if (message.type === 'activity') this.follows();
    } else if (message.type === 'output') {
      if (this.isAlone && this.shown?.run === message.run) this.keep(() => this.progress(message));
    } else if (message.type === 'conflict') {
      this.conflicts.set(message.cell, message);
    } else if (message.type === 'settled') {
      this.conflicts.delete(message.cell);
    } else if (message.type === 'overwritten') {
      this.page.offers(this, message, this.conflicts.get(message.cell)?.by);
    } else if (message.type === 'synced') {
      this.synced(message);
    } else if (message.type === 'compared') {
      this.page.compares(this, this.cell(message.cell), message.was, undefined);
    }
    this.page.shows(this);
  }

  /** The document has all that the file has: a save asks nothing, and nothing is unsaved but what the person typed. */
  synced(/** @type {any} */ message) {
    if (this.isRoom) return savesUnasked(this.context);
    if (this.saves) return;
    this.stamp(message);
    if (!this.isClean || this.held.size || this.live.report(this.doc)) return;
    this.isClean = false;
    this.context.model.dirty = false;
  }

  /** Lets a save over the version of the file with this stamp ask nothing. @param {any} message */
  stamp({ stamp, modified }) {
    const { context } = this;
    const model = context.contentsModel;
    if (!model || typeof context._updateContentsModel !== 'function') return;
    const hash = typeof model.hash === 'string' ? { hash: stamp } : {};
    context._updateContentsModel({ ...model, ...hash, last_modified: modified ?? model.last_modified });
  }

  /** @param {string} cell @param {'mine' | 'theirs' | 'both'} keep */
  chooses(cell, keep) {
    const conflict = this.conflicts.get(cell);
    if (conflict) void this.live.choose(this.doc, cell, keep, conflict.theirs);
  }

  /** Saves when the save before has ended: only one at a time is reported. @param {() => Promise<void>} save */
  saveInTurn(save) {
    const saved = this.lastSave.then(() => this.whileSaving(save));
    this.lastSave = saved.catch(() => {});
    return saved;
  }

  /** Takes in what is unseen, and then saves. @param {() => Promise<void>} save */
  async whileSaving(save) {
    const synced = this.connection.isAnswered ? await this.live.saving(this.doc) : undefined;
    if (synced && !this.conflicts.size) this.stamp(synced);
    const saved = save();
    this.saves = saved.then(() => undefined, () => undefined).then(() => { this.saves = undefined; });
    await saved;
    // JupyterLab takes all for saved, also what came after it had taken the content.
    if (this.isLate && !this.context.isDisposed) this.context.model.dirty = true;
    // JupyterLab takes no other save before this one has ended.
    if (!this.context.isDisposed) void this.live.saved(this.doc);
  }
}

/**
 * Lets saves of a document in a room ask nothing: `nb` has it saved, and the room has all that the file has.
 * @param {any} context
 */
function savesUnasked(context) {
  const inherited = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(context), 'contentsModel')?.get;
  if (!inherited || Object.hasOwn(context, 'contentsModel')) return;
  context.lastModifiedCheckMargin = Number.MAX_SAFE_INTEGER;
  Object.defineProperty(context, 'contentsModel', {
    get() {
      const all = inherited.call(context);
      if (!all) return all;
      const { hash, ...model } = all;
      return model;
    },
  });
}

/** @param {unknown} text */
const joined = text => (Array.isArray(text) ? text.join('') : String(text ?? ''));

/** An output without what only the view has. @param {any} output */
function plain({ output_type: type, ...fields }) {
  const { transient, ...rest } = fields;
  return Object.fromEntries(Object.entries({ type, ...rest }).sort(([one], [other]) => (one < other ? -1 : 1)));
}

module.exports = { Tab };
