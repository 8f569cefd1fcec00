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
  status: undefined, newer: undefined, messages: [], output: [], chosen: [], diffs: [], picks: [], revealed: [],
  // What a person loses: cells whose request was dropped, and how often the cursor was thrown out of a cell.
  dropped: [], thrownOut: 0,
  reverts: 0, replaced: [],
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

class TabInputNotebook {
  constructor(uri) { this.uri = uri; }
}

class WorkspaceEdit {
  constructor() { this.edits = []; }

  set(uri, edits) { this.edits.push({ uri, edits }); }
}

const NotebookEdit = {
  replaceCells: (range, cells) => ({ range, cells }),
  updateCellMetadata: (index, metadata) => ({ index, metadata }),
};

const events = Object.fromEntries(
  ['open', 'willSave', 'save', 'change', 'close', 'active', 'text', 'configuration'].map(name => [name, new EventEmitter()]),
);

// Lets what is under way happen first.
const turn = () => new Promise(resolve => { setImmediate(resolve); });

const encoded = text => new TextEncoder().encode(text);

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
    this.cells = [];
    // The person's requests: 'waits' or 'runs', by cell.
    this.requests = new Map();
    // Whether VS Code's own edit of a cell's metadata fails at the end of its run, as it does while a person types.
    this.losesCounts = false;
    this.load();
  }

  // Reads the file, as an editor does that opens, reloads or reverts a tab. VS Code keeps the equal cells before the
  // first and after the last difference, and replaces all between; a cell that was run here is equal to none.
  load() {
    this.loaded = fs.statSync(this.uri.fsPath);
    const found = JSON.parse(fs.readFileSync(this.uri.fsPath, 'utf8'));
    this.metadata = { metadata: found.metadata };
    const data = found.cells.map(cell => {
      const kind = cell.cell_type === 'markdown' ? 1 : 2;
      const text = Array.isArray(cell.source) ? cell.source.join('') : cell.source;
      const made = new NotebookCellData(kind, text, kind === 1 ? 'markdown' : 'python');
      made.metadata = { id: cell.id, metadata: cell.metadata, ...(kind === 2 ? { execution_count: cell.execution_count } : {}) };
      made.outputs = (cell.outputs ?? []).map(it => ({ items: [{ mime: it.output_type, data: encoded(JSON.stringify(it)) }] }));
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
    this.cells.forEach((cell, index) => { cell.index = index; });
    const change = { range: new NotebookRange(start, end), removedCells, addedCells: this.cells.slice(start, start + data.length) };
    events.change.fire({ notebook: this, cellChanges: [], contentChanges: [change] });
  }

  cell(data) {
    const cell = { ...data, notebook: this, text: data.value };
    cell.document = { getText: () => cell.text, languageId: data.languageId };
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
    this.isChanged([{ cell, document: cell.document }]);
  }

  // The person's own run of a cell has printed this.
  prints(at, text, count) {
    const cell = this.cells[at];
    cell.outputs = [{ items: [{ mime: 'text/plain', data: encoded(text) }] }];
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
      cell.outputs = outputs.map(it => ({ items: [{ mime: it.output_type, data: encoded(JSON.stringify(it)) }] }));
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
  async save() {
    if (!this.isDirty) return;
    const waits = [];
    events.willSave.fire({ notebook: this, waitUntil: edit => waits.push(edit) });
    for (const edit of await Promise.all(waits)) {
      await vscode.workspace.applyEdit(edit);
      await turn();
    }
    const { mtimeMs, size } = fs.statSync(this.uri.fsPath);
    if (mtimeMs > this.loaded.mtimeMs && size !== this.loaded.size) throw new Error('the content of the file is newer');
    const found = JSON.parse(fs.readFileSync(this.uri.fsPath, 'utf8'));
    found.cells = this.cells.map(cell => ({
      cell_type: cell.kind === 1 ? 'markdown' : 'code', id: cell.metadata.id, metadata: cell.metadata.metadata,
      source: cell.text.split(/(?<=\n)/),
      ...(cell.kind === 1 ? {} : {
        execution_count: cell.metadata.execution_count ?? null,
        outputs: cell.outputs.flatMap(it => it.items).map(it => JSON.parse(new TextDecoder().decode(it.data))),
      }),
    }));
    fs.writeFileSync(this.uri.fsPath, `${JSON.stringify(found, null, 1)}\n`);
    fs.utimesSync(this.uri.fsPath, new Date(), new Date());
    this.loaded = fs.statSync(this.uri.fsPath);
    this.isDirty = this.hasChanges = false;
    events.save.fire(this);
  }
}

// ---- The editor

const notebooks = [];
let active;
let textEditor;

// The person sets the cursor into a cell, or leaves it.
function edits(cell) {
  textEditor = cell && { document: cell.document };
  events.text.fire(textEditor);
}

const editorOf = notebook => ({ notebook, revealRange: range => { recorded.revealed.push(range.start); changed(); } });

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

// A file has changed. The editor itself takes it in where a tab has no unsaved changes.
const fileEvents = [new EventEmitter(), new EventEmitter()];
function fileChanged(name) {
  const uri = Uri.file(path.resolve(name));
  const open = notebooks.find(each => String(each.uri) === String(uri));
  if (open && !open.hasChanges && fs.existsSync(uri.fsPath) && fs.statSync(uri.fsPath).mtimeMs > open.loaded.mtimeMs) open.load();
  for (const each of fileEvents) each.fire(uri);
}

const providers = [];
const contents = new Map();
const commands = new Map([
  ['workbench.action.files.revert', () => { recorded.reverts++; active.notebook.load(); }],
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
  EventEmitter, NotebookCellData, NotebookCellStatusBarItem, NotebookEdit, NotebookRange, TabInputNotebook, Uri,
  WorkspaceEdit,
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
    onDidChangeActiveNotebookEditor: events.active.event,
    get activeTextEditor() { return textEditor; },
    onDidChangeActiveTextEditor: events.text.event,
    tabGroups: {
      activeTabGroup: {
        get activeTab() { return active && { input: new TabInputNotebook(active.notebook.uri) }; },
      },
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
    fs: {
      readFile: async uri => {
        await turn();
        return new Uint8Array(fs.readFileSync(uri.fsPath));
      },
    },
    get notebookDocuments() { return [...notebooks]; },
    get workspaceFolders() { return [{ uri: Uri.file(process.cwd()) }]; },
    getConfiguration: () => ({ inspect: () => ({ globalValue: settings.path, workspaceValue: settings.workspace }) }),
    onDidOpenNotebookDocument: events.open.event,
    onWillSaveNotebookDocument: events.willSave.event,
    onDidSaveNotebookDocument: events.save.event,
    onDidChangeNotebookDocument: events.change.event,
    onDidCloseNotebookDocument: events.close.event,
    onDidChangeConfiguration: events.configuration.event,
    registerTextDocumentContentProvider: (scheme, provider) => {
      contents.set(scheme, provider);
      return { dispose() {} };
    },
    findFiles: async () => (fs.existsSync('.nb/state.json') ? [Uri.file(path.resolve('.nb/state.json'))] : []),
    createFileSystemWatcher: () => {
      const watch = settings.watches && fs.watch(process.cwd(), (_, name) => name?.endsWith('.ipynb') && fileChanged(name));
      return { onDidChange: fileEvents[0].event, onDidCreate: fileEvents[1].event, dispose: () => watch && watch.close() };
    },
    applyEdit: async ({ edits: all }) => {
      for (const { uri, edits: each } of all) {
        const notebook = notebooks.find(it => String(it.uri) === String(uri));
        for (const { range, cells, index, metadata } of each) {
          if (metadata) {
            notebook.cells[index].metadata = metadata;
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

// How often it does not know its kernels yet.
const jupyter = {
  misses: 1,
  activate: async () => ({
    ready: Promise.resolve(),
    // It shows an error to the user where it does not know the publisher.
    getKernelService: () => assert.fail('getKernelService is not for this publisher'),
    openNotebook: async (uri, id) => {
      const found = controllers().find(each => each.id === id);
      if (!found || jupyter.misses-- > 0) throw new Error(`Kernel ${id} not found.`);
      const kernel = await Kernel.start(uri.fsPath, { spec: found.name });
      recorded.chosen.push({ file: uri.fsPath, name: found.name });
      kernels.set(uri.fsPath, kernel);
      changed();
      return notebooks.find(each => String(each.uri) === String(uri));
    },
  }),
};
const kernels = new Map();

const settings = { path: undefined, workspace: undefined, autoSave: false, watches: true };

// What the extension shows below a cell.
const marks = cell => providers.map(each => each.provideCellStatusBarItems(cell)).filter(Boolean).map(it => it.text);

// The context of the extension, with the window's memory.
function context() {
  const memory = new Map();
  return {
    subscriptions: [],
    workspaceState: {
      get: (key, otherwise) => memory.get(key) ?? otherwise,
      update: async (key, value) => { memory.set(key, value); changed(); },
    },
    memory,
  };
}

module.exports = {
  answers, changed, close, commands, context, edits, events, fileChanged, jupyter, kernels, marks, open, recorded, settings, show,
  until, vscode,
};
