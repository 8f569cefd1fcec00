// A stand-in of the part of VS Code's API that nb's extension uses, and of the Jupyter extension's exports. The types
// of both are checked apart from this. `until` is notified of each change.

const assert = require('node:assert/strict');
const { EventEmitter: NodeEmitter, once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const { Kernel } = require('./vscode');

const SECONDS = 60;

const changes = new NodeEmitter();
changes.setMaxListeners(0);
const changed = () => changes.emit('change');

// Waits until it is so; the error has the recorded states if it never is.
async function until(event, condition) {
  const deadline = AbortSignal.timeout(SECONDS * 1000);
  for (let found = condition(); ; found = condition()) {
    if (found) return found;
    try {
      await once(changes, 'change', { signal: deadline });
    } catch {
      throw new Error(`${event}: not within ${SECONDS} s; ${JSON.stringify(recorded, null, 1)}`);
    }
  }
}

// What a person would see.
const recorded = {
  status: undefined, stop: undefined, messages: [], output: [], chosen: [], diffs: [], picks: [], revealed: [],
  // What a person loses: cells whose request was dropped, and how often the cursor was thrown out of a cell.
  dropped: [], thrownOut: 0,
  replaced: [], sets: [], asked: 0,
};
// What the person answers, in this order; none is to close the message.
const answers = [];

class EventEmitter {
  constructor() {
    this.listeners = new Set();
    this.event = listener => {
      this.listeners.add(listener);
      return { dispose: () => this.listeners.delete(listener) };
    };
  }

  fire(value) {
    for (const listener of [...this.listeners]) listener(value);
    changed();
  }

  dispose() { this.listeners.clear(); }
}

class Uri {
  constructor(scheme, file) { this.scheme = scheme; this.path = file; }

  static file(file) { return new Uri('file', file); }

  static from({ scheme, path: file }) { return new Uri(scheme, file); }

  get fsPath() { return this.path; }

  toString() { return `${this.scheme}://${this.path}`; }
}

class NotebookRange {
  constructor(start, end) { this.start = start; this.end = end; }
}

class NotebookCellData {
  constructor(kind, value, languageId) { Object.assign(this, { kind, value, languageId, outputs: [], metadata: {} }); }
}

class NotebookCellStatusBarItem {
  constructor(text, alignment) { this.text = text; this.alignment = alignment; }
}

class NotebookCellOutput {
  constructor(items, metadata) { Object.assign(this, { items, metadata }); }
}

class NotebookCellOutputItem {
  constructor(data, mime) { Object.assign(this, { data, mime }); }

  static text(value, mime) { return new NotebookCellOutputItem(encoded(value), mime); }

  static json(value, mime) { return NotebookCellOutputItem.text(JSON.stringify(value), mime); }

  static stdout(value) { return NotebookCellOutputItem.text(value, 'application/vnd.code.notebook.stdout'); }

  static stderr(value) { return NotebookCellOutputItem.text(value, 'application/vnd.code.notebook.stderr'); }

  static error({ name, message: text, stack }) {
    return NotebookCellOutputItem.json({ name, message: text, stack }, 'application/vnd.code.notebook.error');
  }
}

class Position {
  constructor(line, character) { Object.assign(this, { line, character }); }
}

class Range {
  constructor(start, end) { Object.assign(this, { start, end }); }
}

class WorkspaceEdit {
  constructor() { this.edits = []; this.texts = []; }

  set(uri, edits) { this.edits.push({ uri, edits }); }

  // VS Code refuses an edit of a text that has changed since.
  replace(uri, range, text) {
    const cell = notebooks.flatMap(each => each.cells).find(each => each.document.uri === uri);
    this.texts.push({ cell, range, text, was: cell.text });
  }
}

const NotebookEdit = {
  replaceCells: (range, cells) => ({ range, cells }),
  insertCells: (at, cells) => ({ range: new NotebookRange(at, at), cells }),
  updateCellMetadata: (index, metadata) => ({ index, metadata }),
  updateNotebookMetadata: metadata => ({ metadata }),
};

const events = Object.fromEntries(
  ['open', 'willSave', 'save', 'change', 'close', 'active', 'text', 'cursor', 'selection', 'document', 'configuration'].map(name => [name, new EventEmitter()]),
);

// Lets what is under way happen first.
const turn = () => new Promise(resolve => { setImmediate(resolve); });

const encoded = text => new TextEncoder().encode(text);

// Outputs as VS Code's extension "ipynb" writes them.
const lines = text => text.split(/(?<=\n)/);
function written({ items, metadata }) {
  const text = ({ data }) => new TextDecoder().decode(data);
  const data = Object.fromEntries(items.map(it => {
    const isBinary = it.mime.startsWith('image/') && it.mime !== 'image/svg+xml';
    if (isBinary) return [it.mime, Buffer.from(it.data).toString('base64')];
    return [it.mime, it.mime.includes('json') ? JSON.parse(text(it)) : lines(text(it))];
  }));
  const { outputType: type, executionCount: count = null } = metadata;
  if (type === 'stream') return { output_type: type, name: items[0].mime.split('.').at(-1), text: lines(text(items[0])) };
  if (type === 'error') {
    const { name, message: value } = JSON.parse(text(items[0]));
    return { output_type: type, ename: name, evalue: value, traceback: metadata.originalError.traceback };
  }
  return { output_type: type, data, metadata: metadata.metadata, ...(type === 'execute_result' ? { execution_count: count } : {}) };
}

// The extension's own reader, which is checked against VS Code's own in the workbench.
let outputOf = it => { ({ outputOf } = require(path.join(process.env.NB_TEST_EXTENSION, 'outputs.js'))); return outputOf(it); };

const decoded = outputs => outputs.flatMap(it => it.items).map(it => new TextDecoder().decode(it.data)).join('');

// An open notebook, as the editor has it: with its own copy of what the file had.
class Notebook {
  constructor(file) {
    this.uri = Uri.file(file);
    this.notebookType = 'jupyter-notebook';
    this.isClosed = false;
    // What the extension is told, a little after the editor itself knows it.
    this.isDirty = false;
    this.hasChanges = false;
    this.isRestored = false;
    this.cells = [];
    // The person's requests: 'waits' or 'runs', by cell.
    this.requests = new Map();
    // Whether VS Code's own edit of a cell's metadata fails at the end of its run, as it does while a person types.
    this.losesCounts = false;
    this.load();
  }

  // Reads the file, as an editor does that opens or reloads a tab. VS Code keeps the equal cells before the
  // first and after the last difference, and replaces all between; a cell that was run here is equal to none.
  load() {
    this.loaded = fs.statSync(this.uri.fsPath);
    const found = JSON.parse(fs.readFileSync(this.uri.fsPath, 'utf8'));
    this.metadata = { nbformat: found.nbformat, nbformat_minor: found.nbformat_minor, metadata: found.metadata };
    const data = found.cells.map(cell => {
      const kind = cell.cell_type === 'markdown' ? 1 : 2;
      const text = Array.isArray(cell.source) ? cell.source.join('') : cell.source;
      const made = new NotebookCellData(kind, text, kind === 1 ? 'markdown' : 'python');
      made.metadata = { id: cell.id, metadata: cell.metadata, ...(kind === 2 ? { execution_count: cell.execution_count } : {}) };
      made.outputs = (cell.outputs ?? []).map(outputOf);
      made.executionSummary = { executionOrder: cell.execution_count ?? undefined };
      return made;
    });
    const isEqual = (cell, it) => cell !== undefined && it !== undefined && cell.kind === it.kind && cell.text === it.value
      && cell.metadata.id === it.metadata.id && decoded(cell.outputs) === decoded(it.outputs)
      && cell.executionSummary?.success === undefined
      && cell.executionSummary?.executionOrder === it.executionSummary.executionOrder;
    const most = Math.min(this.cells.length, data.length);
    let [first, last] = [0, 0];
    while (first < most && isEqual(this.cells[first], data[first])) first++;
    while (last < most - first && isEqual(this.cells.at(-1 - last), data.at(-1 - last))) last++;
    this.isDirty = this.hasChanges = false;
    this.replace(first, this.cells.length - last, data.slice(first, data.length - last));
  }

  replace(start, end, data) {
    const removedCells = this.cells.splice(start, end - start, ...data.map(each => this.cell(each)));
    for (const cell of removedCells) {
      // VS Code drops the execution of a cell that is not there any more.
      if (this.requests.delete(cell)) recorded.dropped.push(cell.text);
      if (textEditor?.document === cell.document) {
        recorded.thrownOut++;
        edits(undefined);
      }
    }
    for (const cell of removedCells) cell.index = -1;
    this.cells.forEach((cell, index) => { cell.index = index; });
    // The selection keeps its place, not its cell: the second change above the cursor throws it out of its cell, unless the
    // selection is set in between.
    const edited = this.cells.find(cell => cell.document === textEditor?.document);
    if (edited && removedCells.length !== data.length && start <= edited.index) {
      if (isShifted) {
        recorded.thrownOut++;
        edits(undefined);
      }
      isShifted = true;
    }
    const change = { range: new NotebookRange(start, end), removedCells, addedCells: this.cells.slice(start, start + data.length) };
    events.change.fire({ notebook: this, cellChanges: [], contentChanges: [change] });
  }

  cell(data) {
    const cell = { ...data, notebook: this, text: data.value };
    cell.document = { getText: () => cell.text, languageId: data.languageId, uri: new Uri('vscode-notebook-cell', `${++cellNumber}`) };
    return cell;
  }

  getCells() { return [...this.cells]; }

  cellAt(at) { return this.cells[at]; }

  // As VS Code does it: the event of the change comes first, that of unsaved changes a little later.
  isChanged(cellChanges = []) {
    this.hasChanges = true;
    events.change.fire({ notebook: this, cellChanges, contentChanges: [] });
    setImmediate(() => {
      this.isDirty = this.hasChanges;
      this.saveLater();
      changed();
    });
  }

  // The person types, in a cell without the cursor as "Replace in Files" does.
  type(at, text) {
    const cell = this.cells[at];
    cell.text = text;
    events.document.fire({ document: cell.document });
    this.isChanged([{ cell, document: cell.document }]);
  }

  // The person's own run of a cell has printed this.
  prints(at, text, count) {
    const cell = this.cells[at];
    cell.outputs = [outputOf({ output_type: 'display_data', data: { 'text/plain': text }, metadata: {} })];
    this.summary(cell, { executionOrder: count, success: true });
  }

  printed(at) { return decoded(this.cells[at].outputs); }

  // That a cell waits makes no unsaved changes; its run does.
  summary(cell, executionSummary) {
    cell.executionSummary = executionSummary;
    const change = { cell, executionSummary };
    if (executionSummary.executionOrder) this.isChanged([change]);
    else events.change.fire({ notebook: this, cellChanges: [change], contentChanges: [] });
  }

  // The person runs cells. All of them wait at once; each is sent once the one before it has ended. `send` sends code:
  // what it returns has the number of the run once it has begun, and its outputs, as the file has them, at its end.
  async run(cells, send) {
    for (const cell of cells) {
      this.requests.set(cell, 'waits');
      this.summary(cell, {});
    }
    for (const cell of cells) {
      if (!this.requests.has(cell)) continue;
      const { begins, ends } = send(cell.text);
      const executionOrder = await begins;
      if (this.requests.has(cell)) {
        this.requests.set(cell, 'runs');
        cell.outputs = [];
        this.summary(cell, { executionOrder });
      }
      const outputs = await ends;
      if (!this.requests.delete(cell)) continue;
      cell.outputs = outputs.map(outputOf);
      if (!this.losesCounts) cell.metadata = { ...cell.metadata, execution_count: executionOrder };
      this.summary(cell, { executionOrder, success: true });
    }
  }

  // `files.autoSave`: a while after the last change.
  saveLater() {
    clearTimeout(this.saving);
    if (settings.autoSave) this.saving = setTimeout(() => void this.save().catch(() => {}), 1000);
  }

  // VS Code refuses to save over a file whose time is later than at the last load or save, and whose size is another.
  // `overwrites` is the person's answer where VS Code asks.
  async save({ overwrites = false } = {}) {
    if (!this.hasChanges) return true;
    const waits = [];
    events.willSave.fire({ notebook: this, waitUntil: edit => waits.push(edit) });
    await Promise.all(waits);
    await turn();
    if (settings.stall) await new Promise(resolve => { setTimeout(resolve, settings.stall); });
    const { mtimeMs, size } = fs.statSync(this.uri.fsPath);
    if (!overwrites && mtimeMs > this.loaded.mtimeMs && size !== this.loaded.size) {
      recorded.asked++;
      changed();
      return false;
    }
    const found = JSON.parse(fs.readFileSync(this.uri.fsPath, 'utf8'));
    found.metadata = this.metadata.metadata;
    found.cells = this.cells.map(cell => ({
      cell_type: cell.kind === 1 ? 'markdown' : 'code', id: cell.metadata.id, metadata: cell.metadata.metadata,
      source: cell.text.split(/(?<=\n)/),
      ...(cell.kind === 1 ? {} : {
        execution_count: cell.metadata.execution_count ?? null,
        outputs: cell.outputs.map(written),
      }),
    }));
    fs.writeFileSync(this.uri.fsPath, `${JSON.stringify(found, null, 1)}\n`);
    fs.utimesSync(this.uri.fsPath, new Date(), new Date());
    this.loaded = fs.statSync(this.uri.fsPath);
    this.isDirty = this.hasChanges = false;
    events.save.fire(this);
    return true;
  }
}

// ---- The editor

const notebooks = [];
let cellNumber = 0;
let isShifted = false;
let selection = new NotebookRange(0, 1);
let active;
let textEditor;

// The person sets the cursor into a cell, or leaves it.
function edits(cell) {
  textEditor = cell && { document: cell.document };
  isShifted = false;
  events.text.fire(textEditor);
  if (cell) events.cursor.fire({ textEditor, kind: 2 });
}

const editorOf = notebook => ({
  notebook,
  visibleRanges: [new NotebookRange(0, 100)],
  get selection() { return selection; },
  set selection(range) { [selection, isShifted] = [range, false]; },
  revealRange: range => { recorded.revealed.push(range.start); changed(); },
});

function open(file) {
  const notebook = new Notebook(path.resolve(file));
  notebooks.push(notebook);
  events.open.fire(notebook);
  show(notebook);
  return notebook;
}

function show(notebook) {
  if (active?.notebook !== notebook) active = editorOf(notebook);
  events.active.fire(active);
  return active;
}

function close(notebook) {
  notebook.isClosed = true;
  notebooks.splice(notebooks.indexOf(notebook), 1);
  if (active?.notebook === notebook) active = undefined;
  edits(undefined);
  clearTimeout(notebook.saving);
  events.close.fire(notebook);
}

// A file has changed. The editor takes it in where a tab has no unsaved changes.
function fileChanged(name) {
  const uri = Uri.file(path.resolve(name));
  const open = notebooks.find(each => String(each.uri) === String(uri));
  if (open && !open.hasChanges && fs.existsSync(uri.fsPath) && fs.statSync(uri.fsPath).mtimeMs > open.loaded.mtimeMs) open.load();
}

const providers = [];
const contents = new Map();
const commands = new Map([
  ['workbench.action.openSettings', name => { recorded.settings = name; changed(); }],
  ['vscode.diff', (left, right, title) => {
    const text = uri => contents.get(uri.scheme).provideTextDocumentContent(uri);
    recorded.diffs.push({ left: text(left), right: text(right), title });
    changed();
  }],
]);

const message = kind => async (text, ...choices) => {
  const named = choices.filter(each => typeof each === 'string');
  recorded.messages.push({ kind, text, choices: named });
  changed();
  // Only a message with choices waits for the person.
  return named.length ? answers.shift() : undefined;
};

const vscode = {
  EventEmitter, NotebookCellData, NotebookCellOutput, NotebookCellOutputItem, NotebookCellStatusBarItem, NotebookEdit,
  NotebookRange, Position, Range, Uri, WorkspaceEdit,
  NotebookCellKind: { Markup: 1, Code: 2 },
  NotebookCellStatusBarAlignment: { Left: 1, Right: 2 },
  NotebookEditorRevealType: { InCenter: 1 },
  ProgressLocation: { Notification: 15 },
  StatusBarAlignment: { Left: 1, Right: 2 },
  commands: {
    registerCommand: (name, run) => { commands.set(name, run); return { dispose() {} }; },
    executeCommand: async (name, ...words) => {
      assert(commands.has(name), `there is no command ${name}`);
      return commands.get(name)(...words);
    },
  },
  extensions: { getExtension: id => (id === 'ms-toolsai.jupyter' ? jupyter : undefined) },
  notebooks: {
    registerNotebookCellStatusBarItemProvider: (type, provider) => {
      assert.equal(type, 'jupyter-notebook');
      providers.push(provider);
      return { dispose() {} };
    },
  },
  window: {
    get activeNotebookEditor() { return active; },
    get visibleNotebookEditors() { return active ? [active] : []; },
    onDidChangeActiveNotebookEditor: events.active.event,
    get activeTextEditor() { return textEditor; },
    onDidChangeActiveTextEditor: events.text.event,
    onDidChangeTextEditorSelection: events.cursor.event,
    onDidChangeNotebookEditorSelection: events.selection.event,
    // Of a notebook that was restored with unsaved changes, only its tab says that it has some.
    get tabGroups() {
      return { all: [{ tabs: notebooks.map(each => ({ isDirty: each.isDirty || each.isRestored, input: { uri: each.uri } })) }] };
    },
    createOutputChannel: () => ({ appendLine: text => { recorded.output.push(text); changed(); }, dispose() {} }),
    createStatusBarItem: id => {
      const name = id.replace('nb.', '');
      assert(name in recorded, id);
      return {
        show() { recorded[name] = { text: this.text, tooltip: this.tooltip, command: this.command }; changed(); },
        hide() { recorded[name] = undefined; changed(); },
        dispose() {},
      };
    },
    showErrorMessage: message('error'),
    showInformationMessage: message('information'),
    showWarningMessage: message('warning'),
    showNotebookDocument: async notebook => show(notebook),
    showQuickPick: async items => { recorded.picks.push(items); changed(); return items[answers.shift()]; },
    withProgress: (options, work) => work(),
  },
  workspace: {
    get notebookDocuments() { return [...notebooks]; },
    get workspaceFolders() { return [{ uri: Uri.file(process.cwd()) }]; },
    getConfiguration: () => ({
      inspect: () => ({ globalValue: settings.path, workspaceValue: settings.workspace }),
      get: name => settings[name],
    }),
    onDidOpenNotebookDocument: events.open.event,
    onWillSaveNotebookDocument: events.willSave.event,
    onDidSaveNotebookDocument: events.save.event,
    onDidChangeNotebookDocument: events.change.event,
    onDidCloseNotebookDocument: events.close.event,
    onDidChangeTextDocument: events.document.event,
    onDidChangeConfiguration: events.configuration.event,
    registerTextDocumentContentProvider: (scheme, provider) => {
      contents.set(scheme, provider);
      return { dispose() {} };
    },
    findFiles: async () => (fs.existsSync('.nb/state.json') ? [Uri.file(path.resolve('.nb/state.json'))] : []),
    applyEdit: async ({ edits: all, texts }) => {
      await turn();
      if (settings.slow) await new Promise(resolve => { setTimeout(resolve, settings.slow); });
      settings.meanwhile?.();
      settings.meanwhile = undefined;
      if (texts.some(({ cell, was }) => cell.text !== was || cell.index < 0)) return false;
      for (const { cell, range, text } of texts) {
        const at = ({ line, character }) => lines(cell.text).slice(0, line).join('').length + character;
        recorded.sets.push(text);
        cell.text = cell.text.slice(0, at(range.start)) + text + cell.text.slice(at(range.end));
        events.document.fire({ document: cell.document });
        cell.notebook.isChanged([{ cell, document: cell.document }]);
      }
      for (const { uri, edits: each } of all) {
        const notebook = notebooks.find(it => String(it.uri) === String(uri));
        // All places are those before the edit.
        for (const { range, cells, index, metadata } of each.toSorted((one, other) => (other.range?.end ?? 0) - (one.range?.end ?? 0))) {
          if (index !== undefined) {
            notebook.cells[index].metadata = metadata;
          } else if (metadata) {
            notebook.metadata = metadata;
          } else {
            recorded.replaced.push(...notebook.cells.slice(range.start, range.end).map(cell => cell.text));
            notebook.replace(range.start, range.end, cells);
          }
        }
        notebook.isChanged();
      }
      return true;
    },
  },
};

// ---- The Jupyter extension

// The kernels that it lists, with the ids that it gives them: name, program, interpreter ("/" for none), arguments.
function controllers() {
  const folder = path.join(process.env.JUPYTER_DATA_DIR, 'kernels');
  const names = fs.existsSync(folder) ? fs.readdirSync(folder) : [];
  return names.map(name => {
    const spec = JSON.parse(fs.readFileSync(path.join(folder, name, 'kernel.json'), 'utf8'));
    const words = spec.language === 'python'
      ? spec.argv.slice(1).filter(word => !['-f', '{connection_file}'].includes(word))
      : spec.argv;
    return { name, id: `.${name}.${spec.argv[0]}./.${words.join('#').toLowerCase()}` };
  });
}

// How often it does not know its kernels yet, and the kernels that it has begun to start.
const jupyter = {
  misses: 1,
  starting: [],
  activate: async () => ({
    ready: Promise.resolve(),
    // It shows an error to the user where it does not know the publisher.
    getKernelService: () => assert.fail('getKernelService is not for this publisher'),
    openNotebook: async (uri, id) => {
      const found = controllers().find(each => each.id === id);
      if (!found || jupyter.misses-- > 0) throw new Error(`Kernel ${id} not found.`);
      const starting = Kernel.start(uri.fsPath, { spec: found.name });
      jupyter.starting.push(starting);
      const kernel = await starting;
      recorded.chosen.push({ file: uri.fsPath, name: found.name });
      kernels.set(uri.fsPath, kernel);
      changed();
      return notebooks.find(each => String(each.uri) === String(uri));
    },
  }),
};
const kernels = new Map();

// Between an edit by the extension and its application so many milliseconds go by, and the person does this.
const settings = { path: undefined, workspace: undefined, autoSave: false, watches: true, stall: 0, slow: 0, meanwhile: undefined };

// What the extension shows below a cell.
const marks = cell => items(cell).map(it => it.text);
const items = cell => providers.flatMap(each => each.provideCellStatusBarItems(cell));

// The context of the extension, with the window's memory.
function context() {
  const memory = new Map();
  const watch = settings.watches && fs.watch(process.cwd(), (_, name) => name?.endsWith('.ipynb') && fileChanged(name));
  return {
    subscriptions: [{ dispose: () => watch && watch.close() }],
    workspaceState: {
      get: (key, otherwise) => memory.get(key) ?? otherwise,
      update: async (key, value) => { memory.set(key, value); changed(); },
    },
    memory,
  };
}

module.exports = {
  answers, changed, close, commands, context, edits, events, fileChanged, items, jupyter, kernels, marks, open, recorded, settings, show,
  until, vscode,
};
