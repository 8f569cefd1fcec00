// The open notebooks of projects: reports to `nb live` what the person does in them, and does what it asks for.
'use strict';

const crypto = require('node:crypto');
const fs = require('node:fs');
const os = require('node:os');
const { setTimeout: sleep } = require('node:timers/promises');
const vscode = require('vscode');
const { Activity } = require('./activity');
const { difference, idOf, languageOf, stays, textOf, typeOf } = require('./cells');
const { Live, inOrder } = require('./live');
const { outputOf } = require('./outputs');
const { Process } = require('./process');
const { changedLines, difference: differenceOf, who } = require('./words');

// The scheme of the texts that a comparison shows.
const SCHEME = 'nb-cells';

// VS Code shows a cell whose request was withdrawn, or whose outputs were cleared, like a cell that waits. Such a cell
// counts as waiting until the kernel was idle for so long, in milliseconds.
const DOUBT = 60_000;

// How long after a key the cell with the cursor is not removed, the pause between two tries to store what is held, and the
// time in which the window shows what was revealed, in milliseconds.
const TYPES = 3000;
const AGAIN = 500;
const REVEALED = 50;

// How long after the handler a save may end, in milliseconds, and the time that the file has until then, in seconds: VS Code
// asks only where the file is later than when the tab was loaded or saved.
const SAVES = 10_000;
const EARLY = 1;

/**
 * @typedef {{ by: string, theirs: string }} Conflict
 * @typedef {import('./live').Answer} Answer
 * @typedef {{ doc: string, notebook: vscode.NotebookDocument, cell?: vscode.NotebookCell, message: any }} Request
 */

const APPLIED = /** @type {const} */ ({ applied: true });
const REFUSED = /** @type {const} */ ({ applied: false });

class Editor {
  /**
   * @param {{
   *   memory: vscode.Memento,
   *   program: () => string | undefined,
   *   showsStale: () => boolean,
   *   activity: () => void,
   *   marks: () => void,
   *   says: (text: string) => void,
   *   fails: (text: string) => void,
   * }} host `activity` and `marks` are called when what is to be shown has changed
   */
  constructor(host) {
    this.host = host;
    this.says = host.says;
    this.fails = host.fails;
    // VS Code does not wait for longer.
    this.longestWait = 1500;
    // Also for a window that is loaded again with unsaved texts.
    this.stamps = {
      get: (/** @type {string} */ doc) => host.memory.get(`nb.synced ${doc}`),
      set: (/** @type {string} */ doc, /** @type {object} */ stamp) => void host.memory.update(`nb.synced ${doc}`, stamp),
    };
    /** @type {Live | undefined} */
    this.live = undefined;
    /** @type {Map<string, vscode.NotebookDocument>} */
    this.open = new Map();
    this.activity = new Activity();
    /** @type {WeakMap<vscode.NotebookCell, string>} */
    this.names = new WeakMap();
    this.named = 0;
    /** @type {WeakMap<vscode.NotebookCell, number>} cells that wait or run, and since when that is seen */
    this.busy = new WeakMap();
    // Outputs for cells that wait, run, or hold the cursor.
    /** @type {Map<string, { doc: string, message: any, isLate: boolean }>} */
    this.held = new Map();
    /** @type {NodeJS.Timeout | undefined} */
    this.again = undefined;
    /** @type {Set<string>} documents that had no unsaved changes before `nb` changed them */
    this.clean = new Set();
    /** @type {Set<string>} documents of which VS Code does not say yet whether it has restored unsaved changes */
    this.restored = new Set();
    /** @type {Map<string, string>} the stamps with which saves began that have not ended, or were refused; '' for none */
    this.unended = new Map();
    /** @type {Map<string, Map<string, Conflict>>} */
    this.conflicts = new Map();
    /** @type {Map<string, () => void>} */
    this.saves = new Map();
    /** @type {Map<string, string>} */
    this.texts = new Map();
    // The cell in which the person last set the cursor or typed, until another one is selected. VS Code tells of no Escape.
    /** @type {vscode.TextDocument | undefined} */
    this.edited = undefined;
    /** @type {vscode.TextDocument | undefined} the cell whose text is being set */
    this.setting = undefined;
    this.typedAt = 0;
    const { workspace } = vscode;
    this.subscriptions = [
      workspace.onDidChangeNotebookDocument(event => this.changes(event)),
      workspace.onDidChangeTextDocument(({ document }) => {
        if (document === vscode.window.activeTextEditor?.document) this.enters(document);
      }),
      vscode.window.onDidChangeTextEditorSelection(({ textEditor: { document }, kind }) => {
        // By a key or the mouse.
        if (kind === 1 || kind === 2) this.enters(document);
      }),
      vscode.window.onDidChangeNotebookEditorSelection(({ notebookEditor: { notebook }, selections }) => {
        const at = notebook.getCells().find(each => this.isEdited(each))?.index ?? -1;
        if (at >= 0 && !selections.some(({ start, end }) => start <= at && at < end)) this.leaves();
      }),
      workspace.onWillSaveNotebookDocument(event => {
        if (this.open.has(docOf(event.notebook))) event.waitUntil(this.beforeSave(event.notebook));
      }),
      workspace.onDidSaveNotebookDocument(notebook => {
        const doc = docOf(notebook);
        // What is held is to be saved, too.
        if (this.isHeld(doc)) this.clean.add(doc);
        else this.clean.delete(doc);
        this.unended.delete(doc);
        this.saves.get(doc)?.();
        void this.live?.saved(doc);
      }),
      workspace.onDidCloseNotebookDocument(notebook => {
        const doc = docOf(notebook);
        if (!this.open.delete(doc)) return;
        for (const map of [this.clean, this.unended, this.conflicts, this.activity.known]) map.delete(doc);
        this.host.activity();
        for (const [key, held] of this.held) if (held.doc === doc) this.held.delete(key);
        this.live?.closed(doc);
        void host.memory.update(`nb.synced ${doc}`, undefined);
      }),
      vscode.window.onDidChangeActiveTextEditor(editor => editor?.document !== this.edited && this.leaves()),
      workspace.registerTextDocumentContentProvider(SCHEME, {
        provideTextDocumentContent: uri => this.texts.get(String(uri)) ?? '',
      }),
      vscode.commands.registerCommand('nb.outputs', () => this.leaves()),
      ...['mine', 'theirs', 'both', 'difference'].map(choice => vscode.commands.registerCommand(
        `nb.conflict.${choice}`, (/** @type {vscode.NotebookCell | undefined} */ cell) => this.chooses(choice, cell),
      )),
    ];
  }

  dispose() {
    clearTimeout(this.again);
    for (const each of this.subscriptions) each.dispose();
    for (const end of [...this.saves.values()]) end();
    this.live?.stop();
  }

  /** A notebook of a project is open. @param {vscode.NotebookDocument} notebook */
  opened(notebook) {
    const doc = docOf(notebook);
    const program = this.host.program();
    if (this.open.has(doc) || !program) return;
    this.open.set(doc, notebook);
    if (this.stamps.get(doc)) this.restored.add(doc);
    this.live?.open(doc);
    this.live ??= new Live(
      listener => new Process(program, ['live', '--stdio'], os.homedir(), listener),
      { editor: 'VS Code', can: ['change', 'activity', ...(this.host.showsStale() ? ['stale'] : [])] },
      this,
    ).start();
  }

  /** Ends `nb live`. The notebooks are to be opened again. */
  ends() {
    this.live?.stop();
    this.live = undefined;
    this.open.clear();
    this.lost();
  }

  /** @param {vscode.TextDocument} document */
  enters(document) {
    if (document === this.setting) return;
    this.edited = document;
    this.typedAt = Date.now();
  }

  leaves() {
    this.edited = undefined;
    this.release();
  }

  /** Whether the cursor is in a cell. @param {vscode.NotebookCell} cell */
  isEdited(cell) {
    return cell.document === this.edited;
  }

  /** @param {vscode.NotebookDocumentChangeEvent} event */
  changes({ notebook, cellChanges }) {
    const doc = docOf(notebook);
    if (!this.open.has(doc)) return;
    for (const { cell, outputs, executionSummary } of cellChanges) {
      if (outputs || executionSummary) this.clean.delete(doc);
      if (!executionSummary) continue;
      if (typeof executionSummary.success === 'boolean') this.busy.delete(cell);
      else this.busy.set(cell, Date.now());
      // What the person runs now is newer.
      if (executionSummary.executionOrder) this.held.delete(`${doc}\n${this.name(cell)}`);
    }
    this.live?.changed(doc);
    this.release();
  }

  // ---- What is reported

  /** `nb` has ended. The next one tells again what this one has told. */
  lost() {
    this.conflicts.clear();
    this.activity.known.clear();
    this.host.activity();
  }

  /** The person has changed something. @param {string} doc */
  changed(doc) {
    this.clean.delete(doc);
  }

  /** @param {string} doc */
  describe(doc) {
    const notebook = this.open.get(doc);
    if (!notebook) return undefined;
    const cells = notebook.getCells().map(cell => (
      { cell: this.name(cell), id: idOf(ownOf(cell)), cell_type: typeOf(cell), source: textOf(cell) }));
    return { notebook: notebook.uri.fsPath, cells, dirty: this.restored.delete(doc) || isDirty(notebook) };
  }

  /** @param {vscode.NotebookCell} cell */
  name(cell) {
    const name = this.names.get(cell) ?? `cell ${(this.named += 1)}`;
    this.names.set(cell, name);
    return name;
  }

  /** @param {string} doc @param {string | undefined} name */
  cellOf(doc, name) {
    return this.open.get(doc)?.getCells().find(each => this.names.get(each) === name);
  }

  // ---- What `nb` asks for

  /** @param {string} doc @param {any} message @returns {Promise<Answer>} */
  async request(doc, message) {
    const notebook = this.open.get(doc);
    if (!notebook || notebook.isClosed) return REFUSED;
    if (!isDirty(notebook)) this.clean.add(doc);
    const request = { doc, notebook, cell: this.cellOf(doc, message.cell), message };
    const type = ['set', 'insert', 'remove', 'order', 'metadata', 'outputs'].find(each => each === message.type);
    return type ? this[/** @type {'set'} */ (type)](request) : REFUSED;
  }

  /** @param {Request} request @returns {Promise<Answer>} */
  async set({ cell, message: { was, source } }) {
    if (!cell) return REFUSED;
    const has = textOf(cell);
    if (has === source) return APPLIED;
    if (has !== was) return { applied: false, source: has };
    const { start, end, text } = difference(has, source);
    const edit = new vscode.WorkspaceEdit();
    edit.replace(cell.document.uri, new vscode.Range(positionIn(has, start), positionIn(has, end)), text);
    this.setting = cell.document;
    // It is not done if a key came meanwhile.
    const isDone = await vscode.workspace.applyEdit(edit);
    this.setting = undefined;
    return isDone ? APPLIED : { applied: false, source: textOf(cell) };
  }

  /** @param {Request} request @returns {Promise<Answer>} */
  async insert({ notebook, cell, message: { cell: name, after, id, cell_type: type, source } }) {
    const cells = notebook.getCells();
    // VS Code may have loaded the file first.
    const there = cell ?? cells.find(each => id !== undefined && idOf(each.metadata) === id);
    if (there) {
      this.names.set(there, name);
      return APPLIED;
    }
    const before = cells.find(each => this.names.get(each) === after);
    if (after !== null && after !== undefined && !before) return REFUSED;
    const { Code, Markup } = vscode.NotebookCellKind;
    const code = cells.find(each => typeOf(each) === 'code')?.document.languageId ?? languageOf(notebook.metadata);
    const language = { code, markdown: 'markdown', raw: 'raw' }[/** @type {'code'} */ (type)];
    const data = new vscode.NotebookCellData(type === 'markdown' ? Markup : Code, source, language);
    const { nbformat = 4, nbformat_minor: minor = 5 } = notebook.metadata;
    data.metadata = {
      ...(nbformat > 4 || minor >= 5 ? { id } : {}), ...(type === 'code' ? { execution_count: null } : {}), metadata: {},
    };
    return this.replaces(notebook, before ? before.index + 1 : 0, 0, data, name);
  }

  /** @param {Request} request @returns {Promise<Answer>} */
  async remove({ notebook, cell, message: { was } }) {
    if (!cell) return APPLIED;
    const source = textOf(cell);
    const isTyped = this.isEdited(cell) && Date.now() - this.typedAt < TYPES;
    if (source !== was || isTyped || this.isBusy(cell)) return { applied: false, source };
    return this.replaces(notebook, cell.index, 1);
  }

  /** Moves cells round those that wait, run, or hold the cursor. @param {Request} request @returns {Promise<Answer>} */
  async order({ notebook, message: { order } }) {
    const names = notebook.getCells().map(each => this.name(each));
    const wanted = inOrder(names, order);
    const staying = stays(names.map(each => wanted.indexOf(each)), at => !this.isFree(notebook.cellAt(at)));
    if (!staying) return REFUSED;
    for (const name of wanted.filter(each => !staying.has(names.indexOf(each)))) {
      const cells = notebook.getCells();
      const cell = cells.find(each => this.names.get(each) === name);
      // Behind the one that it is to follow: those before it are in their places.
      const before = wanted[wanted.indexOf(name) - 1];
      const at = cells.findIndex(each => this.names.get(each) === before) + 1;
      if (!cell || at === cell.index || (before !== undefined && !at)) continue;
      if (!this.isFree(cell)) return REFUSED;
      const place = at > cell.index ? at - 1 : at;
      const answer = await this.replaces(notebook, cell.index, 1, dataOf(cell), name, place);
      if (!answer.applied) return answer;
    }
    return APPLIED;
  }

  /** @param {Request} request @returns {Promise<Answer>} */
  async metadata({ notebook, cell, message: { cell: name, was, metadata } }) {
    if (name !== undefined && !cell) return REFUSED;
    const has = cell ? withCount(cell) : notebook.metadata;
    const next = { ...has.metadata };
    for (const key of Object.keys(was)) if (!(key in metadata)) delete next[key];
    for (const [key, value] of Object.entries(metadata)) {
      if (JSON.stringify(was[key]) !== JSON.stringify(value)) next[key] = value;
    }
    const now = { ...has, metadata: next };
    const { updateCellMetadata, updateNotebookMetadata } = vscode.NotebookEdit;
    const isDone = await edits(notebook, [cell ? updateCellMetadata(cell.index, now) : updateNotebookMetadata(now)]);
    return isDone ? APPLIED : REFUSED;
  }

  /**
   * Replaces cells by a new one, or by none. What the person sees, the selection and the cursor stay.
   * @param {vscode.NotebookDocument} notebook
   * @param {number} at the first cell that is replaced
   * @param {number} count how many are
   * @param {vscode.NotebookCellData} [data]
   * @param {string} [name] the new one's name in the protocol
   * @param {number} [place] where the new one is once the others are removed
   * @returns {Promise<Answer>}
   */
  async replaces(notebook, at, count, data, name, place = at) {
    const before = notebook.getCells();
    const edited = before.find(each => this.isEdited(each));
    // A notebook may be shown more than once, side by side.
    const { activeNotebookEditor: active, visibleNotebookEditors: visible } = vscode.window;
    const views = visible.filter(view => view.notebook === notebook).map(view => (
      { view, cell: (view === active && edited) || before[view.selection.start] }));
    if (active?.notebook === notebook && edited && Math.min(at, place) <= edited.index) {
      const last = Math.max(0, ...active.visibleRanges.map(range => range.end));
      if (edited.index + 2 >= last) {
        active.revealRange(rangeOf(edited.index), vscode.NotebookEditorRevealType.InCenter);
        await sleep(REVEALED);
      }
    }
    // Cells may have come meanwhile.
    const removed = before.slice(at, at + count);
    const above = before[at - 1];
    const first = count ? removed[0].index : above ? above.index + 1 : 0;
    if (first < 0) return REFUSED;
    const list = data ? [data] : [];
    const { insertCells, replaceCells } = vscode.NotebookEdit;
    const range = new vscode.NotebookRange(first, first + count);
    const all = place === at
      ? [replaceCells(range, list)]
      : [replaceCells(range, []), insertCells(place > at ? place + count : place, list)];
    /** @type {vscode.NotebookDocumentContentChange | undefined} */
    let change;
    const watch = vscode.workspace.onDidChangeNotebookDocument(event => {
      if (event.notebook === notebook) change = event.contentChanges[0] ?? change;
    });
    const isDone = await edits(notebook, all);
    watch.dispose();
    if (!isDone) return REFUSED;
    // VS Code may have loaded the file in that moment, with the new cell.
    const added = notebook.getCells().filter(each => !before.includes(each) && textOf(each) === data?.value);
    const [made, twin] = added.filter(each => idOf(each.metadata) === idOf(data?.metadata ?? {}));
    if (twin) await edits(notebook, [replaceCells(rangeOf(twin.index), [])]);
    // VS Code counts cells, and the person may have inserted or removed one above in that moment. A cell that was hit in
    // place of the right one comes back.
    if (change && removed.some(each => each.index >= 0)) {
      const [hit] = change.removedCells;
      if (hit) await this.replaces(notebook, made?.index ?? change.range.start, made ? 1 : 0, dataOf(hit), this.name(hit));
      return REFUSED;
    }
    if (made && name !== undefined) this.names.set(made, name);
    for (const { view, cell } of views) {
      const now = removed.includes(cell) ? made?.index : cell?.index;
      if (now !== undefined && now >= 0) view.selection = rangeOf(now);
    }
    return APPLIED;
  }

  // ---- Outputs of others' runs

  /** Whether a cell of the person waits or runs, as far as VS Code shows that. @param {vscode.NotebookCell} cell */
  isBusy(cell) {
    const seen = this.busy.get(cell);
    if (seen === undefined) return false;
    const idle = this.activity.idleSince(docOf(cell.notebook));
    return idle === undefined || Date.now() - Math.max(seen, idle) < DOUBT;
  }

  /** @param {vscode.NotebookCell} cell */
  isFree(cell) {
    return !this.isBusy(cell) && !this.isEdited(cell);
  }

  /**
   * Shows outputs, or holds them until the cell neither waits nor runs nor holds the cursor: then it only gets the number of
   * the run, so that the tab has unsaved changes and VS Code does not load the file.
   * @param {Request} request @returns {Promise<Answer>}
   */
  async outputs({ doc, cell, message }) {
    if (!cell) return REFUSED;
    const key = `${doc}\n${message.cell}`;
    if (this.isFree(cell)) {
      this.held.delete(key);
      return this.shows(cell, message);
    }
    const metadata = { ...ownOf(cell), execution_count: message.execution_count };
    if (!await edits(cell.notebook, [vscode.NotebookEdit.updateCellMetadata(cell.index, metadata)])) return REFUSED;
    this.held.set(key, { doc, message, isLate: false });
    this.release();
    this.host.marks();
    return APPLIED;
  }

  /** Shows what is held and can be shown now. */
  release() {
    clearTimeout(this.again);
    for (const [key, held] of this.held) {
      const { doc, message } = held;
      const isThere = () => this.held.get(key) === held;
      const now = this.cellOf(doc, message.cell);
      if (now && !this.isFree(now)) continue;
      void this.live?.turn(doc, async () => {
        const cell = this.cellOf(doc, message.cell);
        if (!isThere() || (cell && (!this.isFree(cell) || !(await this.shows(cell, message)).applied))) return;
        if (isThere()) this.held.delete(key);
        this.host.marks();
        if (held.isLate) this.saveClean(doc);
      });
    }
    if (this.held.size) this.again = setTimeout(() => this.release(), AGAIN);
  }

  /** Whether outputs for a document are held. @param {string} doc */
  isHeld(doc) {
    return [...this.held.values()].some(held => held.doc === doc);
  }

  /** Gives a cell the outputs of another run. @param {vscode.NotebookCell} cell @param {any} message */
  async shows(cell, { cell: name, outputs, execution_count: count }) {
    const data = dataOf(cell);
    data.outputs = outputs.map(outputOf);
    data.metadata = { ...data.metadata, execution_count: count };
    data.executionSummary = count ? { executionOrder: count } : {};
    return this.replaces(cell.notebook, cell.index, 1, data, name);
  }

  /** Who has run a cell whose outputs are held. @param {vscode.NotebookCell} cell @returns {string | undefined} */
  heldBy(cell) {
    return this.held.get(`${docOf(cell.notebook)}\n${this.names.get(cell)}`)?.message.by;
  }

  // ---- What `nb` tells

  /** @param {string} doc @param {any} message */
  tell(doc, message) {
    if (this.activity.tell(doc, message, Date.now())) return this.host.activity();
    const conflicts = this.conflicts.get(doc) ?? new Map();
    if (message.type === 'conflict') {
      this.conflicts.set(doc, conflicts.set(message.cell, message));
    } else if (message.type === 'settled') {
      conflicts.delete(message.cell);
    } else if (message.type === 'overwritten') {
      void this.offers(doc, message, conflicts.get(message.cell)?.by);
    } else if (message.type === 'synced') {
      for (const held of this.held.values()) if (held.doc === doc) held.isLate = true;
      this.saveClean(doc);
      // VS Code has refused a save if the file is newer than that, and does not try again.
      const isOpen = ![undefined, message.stamp].includes(this.unended.get(doc));
      if (isOpen && this.unended.delete(doc)) void this.open.get(doc)?.save();
    } else if (message.type === 'compared') {
      const cell = this.cellOf(doc, message.cell);
      if (cell) void this.compares([message.was, textOf(cell)], differenceOf(this.markOf(cell)));
    }
    return this.host.marks();
  }

  /** Saves what others wrote, if the person has changed nothing since the last save. @param {string} doc */
  saveClean(doc) {
    if (!this.clean.has(doc) || this.isHeld(doc) || this.live?.report(doc)) return;
    this.clean.delete(doc);
    void this.open.get(doc)?.save();
  }

  /** @param {vscode.NotebookCell} cell */
  conflictOf(cell) {
    return this.conflicts.get(docOf(cell.notebook))?.get(this.names.get(cell) ?? '');
  }

  /** The person has chosen in a conflict. @param {string} choice @param {vscode.NotebookCell} [named] else the selected cell */
  async chooses(choice, named) {
    const active = vscode.window.activeNotebookEditor;
    const cell = named ?? active?.notebook.cellAt(active.selection.start);
    const conflict = cell && this.conflictOf(cell);
    if (!conflict) return;
    const { by, theirs } = conflict;
    if (choice === 'difference') await this.compares([theirs, textOf(cell)], changedLines(by));
    else await this.live?.choose(docOf(cell.notebook), this.name(cell), /** @type {'mine'} */ (choice), theirs);
  }

  /** Offers once to bring back what a save of the person has replaced. @param {string} doc @param {any} message @param {string} by */
  async offers(doc, { cell: name, theirs }, by) {
    const cell = this.cellOf(doc, name);
    if (!cell) return;
    const [back, difference] = ['Bring it back', 'Show the difference'];
    const text = `nb: your save has replaced what ${who(by)} wrote in cell ${cell.index}`;
    const chosen = await vscode.window.showInformationMessage(text, back, difference);
    if (chosen === back) await this.live?.choose(doc, name, 'both', theirs);
    else if (chosen === difference) await this.compares([theirs, textOf(cell)], changedLines(by));
  }

  /** Shows the difference of two texts of a cell. @param {string[]} both @param {string} title */
  async compares(both, title) {
    const [left, right] = both.map(text => {
      const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${hash(text).slice(0, 16)}/cell.py` });
      this.texts.set(String(uri), text);
      return uri;
    });
    await vscode.commands.executeCommand('vscode.diff', left, right, title);
  }

  // ---- What others did

  /** What an agent did to a cell. @param {vscode.NotebookCell} cell */
  markOf(cell) {
    return this.activity.known.get(docOf(cell.notebook))?.marks.get(this.names.get(cell) ?? '');
  }

  /** Takes back an agent's edit, or shows it. @param {'undo' | 'compare'} type @param {vscode.NotebookCell} cell */
  asks(type, cell) {
    const mark = this.markOf(cell);
    if (mark) this.live?.asks(docOf(cell.notebook), { type, cell: mark.cell, edit: mark.edit, before: mark.before });
  }

  // ---- Saves

  /** Stores lost metadata, waits for what others wrote, and lets Save ask nothing. @param {vscode.NotebookDocument} notebook */
  async beforeSave(notebook) {
    const doc = docOf(notebook);
    // In a turn of its own: it names cells by their places.
    void this.live?.turn(doc, async () => {
      for (let tries = 0; tries < 3; tries++) {
        const lost = notebook.getCells().filter(cell => withCount(cell) !== cell.metadata);
        const { updateCellMetadata } = vscode.NotebookEdit;
        if (lost.length) await edits(notebook, lost.map(cell => updateCellMetadata(cell.index, withCount(cell))));
      }
    });
    const hasConflict = () => notebook.getCells().some(cell => this.conflictOf(cell));
    const saving = this.live?.saving(doc);
    const stamp = hasConflict() ? undefined : (await saving)?.stamp;
    if (hasConflict()) return;
    this.unended.set(doc, stamp ?? '');
    if (stamp !== undefined) this.agree(doc, notebook.uri.fsPath, stamp);
  }

  /**
   * Gives a file an earlier time until it is saved, if its bytes have this SHA-256. A file that is written meanwhile, or
   * put in its place, has its own time: then VS Code asks.
   * @param {string} doc @param {string} file @param {string} stamp
   */
  agree(doc, file, stamp) {
    this.saves.get(doc)?.();
    let fd = -1;
    try {
      fd = fs.openSync(file, 'r');
      const { atime, mtime } = fs.fstatSync(fd);
      if (hash(fs.readFileSync(fd)) !== stamp) throw new Error(`${file} was written just before the save`);
      fs.futimesSync(fd, atime, EARLY);
      const end = () => {
        clearTimeout(timer);
        this.saves.delete(doc);
        if (fs.fstatSync(fd).mtimeMs === EARLY * 1000) fs.futimesSync(fd, atime, mtime);
        fs.closeSync(fd);
      };
      const timer = setTimeout(end, SAVES);
      this.saves.set(doc, end);
    } catch (error) {
      this.host.says(String(error));
      if (fd >= 0) fs.closeSync(fd);
    }
  }
}

/** @param {vscode.NotebookDocument} notebook */
const docOf = notebook => String(notebook.uri);

/** Whether it has unsaved changes. Of one restored with some, only its tab says so. @param {vscode.NotebookDocument} notebook */
function isDirty({ isDirty: isKnown, uri }) {
  const isOf = (/** @type {any} */ { uri: its }) => String(its) === String(uri);
  return isKnown || vscode.window.tabGroups.all.some(({ tabs }) => tabs.some(tab => tab.isDirty && isOf(tab.input ?? {})));
}

/** @param {string | Uint8Array} bytes */
const hash = bytes => crypto.createHash('sha256').update(bytes).digest('hex');

/** @param {number} at */
const rangeOf = at => new vscode.NotebookRange(at, at + 1);

/** @param {string} text @param {number} offset */
function positionIn(text, offset) {
  const lines = text.slice(0, offset).split('\n');
  return new vscode.Position(lines.length - 1, lines[lines.length - 1].length);
}

/** A copy of a cell. @param {vscode.NotebookCell} cell */
function dataOf(cell) {
  const data = new vscode.NotebookCellData(cell.kind, textOf(cell), cell.document.languageId);
  data.outputs = [...cell.outputs];
  data.metadata = { ...withCount(cell) };
  // Without success and times, as a cell that VS Code has read from the file: one that has them is never equal to the
  // file's again, and the next reload would replace it.
  data.executionSummary = { executionOrder: cell.executionSummary?.executionOrder };
  return data;
}

/** @type {WeakMap<vscode.NotebookCell, { readonly [key: string]: any }>} */
const owned = new WeakMap();

/**
 * A cell's metadata. VS Code's own edits of metadata name a cell by its place, and hit another one if cells come or go
 * meanwhile: that one has lost its id. It gets back what it had. @param {vscode.NotebookCell} cell */
function ownOf(cell) {
  const own = owned.get(cell) ?? cell.metadata;
  const isForeign = idOf(own) !== undefined && idOf(own) !== idOf(cell.metadata);
  if (!isForeign) owned.set(cell, cell.metadata);
  return isForeign ? own : cell.metadata;
}

/**
 * A cell's metadata with the number of its run that is shown, from which VS Code writes the file: its own edit at the end of
 * a cell fails while a person types, and it forgets the number when the text changes. Older editors store none there.
 * @param {vscode.NotebookCell} cell @returns {{ [key: string]: any }}
 */
function withCount(cell) {
  const metadata = ownOf(cell);
  const { executionOrder } = cell.executionSummary ?? {};
  const isLost = executionOrder && 'execution_count' in metadata && metadata.execution_count !== executionOrder;
  return isLost ? { ...metadata, execution_count: executionOrder } : metadata;
}

/** @param {vscode.NotebookDocument} notebook @param {vscode.NotebookEdit[]} list */
function edits(notebook, list) {
  const edit = new vscode.WorkspaceEdit();
  edit.set(notebook.uri, list);
  return vscode.workspace.applyEdit(edit);
}

module.exports = { Editor, docOf };
