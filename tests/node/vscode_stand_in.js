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
const recorded = { status: undefined, messages: [], output: [], chosen: [], diffs: [], picks: [], revealed: [] };
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

const NotebookEdit = { replaceCells: (range, cells) => ({ range, cells }) };

const events = Object.fromEntries(
  ['open', 'save', 'change', 'close', 'active', 'configuration'].map(name => [name, new EventEmitter()]),
);

const encoded = text => new TextEncoder().encode(text);

// An open notebook, as the editor has it: with its own copy of what the file had.
class Notebook {
  constructor(file) {
    this.uri = Uri.file(file);
    this.notebookType = 'jupyter-notebook';
    this.isClosed = false;
    this.load();
  }

  // Reads the file, as an editor does that opens or reverts a tab.
  load() {
    const found = JSON.parse(fs.readFileSync(this.uri.fsPath, 'utf8'));
    this.metadata = { metadata: found.metadata };
    const data = found.cells.map(cell => {
      const kind = cell.cell_type === 'markdown' ? 1 : 2;
      const text = Array.isArray(cell.source) ? cell.source.join('') : cell.source;
      const made = new NotebookCellData(kind, text, kind === 1 ? 'markdown' : 'python');
      made.metadata = { id: cell.id, metadata: cell.metadata };
      made.outputs = (cell.outputs ?? []).map(it => ({ items: [{ mime: it.output_type, data: encoded(JSON.stringify(it)) }] }));
      made.executionSummary = { executionOrder: cell.execution_count ?? undefined };
      return made;
    });
    this.cells = data.map(each => this.cell(each));
    this.isDirty = false;
    this.renumber();
    events.change.fire({ notebook: this });
  }

  cell(data) {
    const cell = { ...data, notebook: this, text: data.value, outputs: data.outputs };
    cell.document = { getText: () => cell.text, languageId: data.languageId };
    return cell;
  }

  renumber() { this.cells.forEach((cell, index) => { cell.index = index; }); }

  getCells() { return [...this.cells]; }

  cellAt(at) { return this.cells[at]; }

  // As VS Code does it: the event of the change comes first, that of unsaved changes a little later.
  isChanged() {
    events.change.fire({ notebook: this });
    setImmediate(() => { this.isDirty = true; changed(); });
  }

  // The person types.
  type(at, text) {
    this.cells[at].text = text;
    this.isChanged();
  }

  // The person's own run of a cell has printed this.
  prints(at, text, count) {
    this.cells[at].outputs = [{ items: [{ mime: 'text/plain', data: encoded(text) }] }];
    this.cells[at].executionSummary = { executionOrder: count };
    this.isChanged();
  }

  printed(at) {
    return this.cells[at].outputs.flatMap(it => it.items).map(it => new TextDecoder().decode(it.data)).join('');
  }
}

// ---- The editor

const notebooks = [];
let active;

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

// The editor itself takes in a changed file where a tab has no unsaved changes.
function reload(notebook) {
  if (!notebook.isDirty) notebook.load();
}

const providers = [];
const contents = new Map();
const commands = new Map([
  ['workbench.action.files.revert', () => active.notebook.load()],
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
    tabGroups: {
      activeTabGroup: {
        get activeTab() { return active && { input: new TabInputNotebook(active.notebook.uri) }; },
      },
    },
    createOutputChannel: () => ({ appendLine: text => { recorded.output.push(text); changed(); }, dispose() {} }),
    createStatusBarItem: () => ({
      show() { recorded.status = { text: this.text, tooltip: this.tooltip, command: this.command }; changed(); },
      hide() { recorded.status = undefined; changed(); },
      dispose() {},
    }),
    showErrorMessage: message('error'),
    showInformationMessage: message('information'),
    showWarningMessage: message('warning'),
    showNotebookDocument: async notebook => show(notebook),
    showQuickPick: async items => { recorded.picks.push(items); changed(); return items[answers.shift()]; },
    withProgress: (options, work) => work(),
  },
  workspace: {
    fs: { readFile: async uri => new Uint8Array(await fs.promises.readFile(uri.fsPath)) },
    get notebookDocuments() { return [...notebooks]; },
    get workspaceFolders() { return [{ uri: Uri.file(process.cwd()) }]; },
    getConfiguration: () => ({ inspect: () => ({ globalValue: settings.path, workspaceValue: settings.workspace }) }),
    onDidOpenNotebookDocument: events.open.event,
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
      const files = [new EventEmitter(), new EventEmitter()];
      const watch = fs.watch(process.cwd(), (_, name) => {
        if (!name?.endsWith('.ipynb')) return;
        for (const each of files) each.fire(Uri.file(path.resolve(name)));
      });
      return { onDidChange: files[0].event, onDidCreate: files[1].event, dispose: () => watch.close() };
    },
    applyEdit: async ({ edits }) => {
      for (const { uri, edits: each } of edits) {
        const notebook = notebooks.find(it => String(it.uri) === String(uri));
        for (const { range, cells } of each) {
          notebook.cells.splice(range.start, range.end - range.start, ...cells.map(data => notebook.cell(data)));
        }
        notebook.renumber();
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

const settings = { path: undefined, workspace: undefined };

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
  answers, changed, commands, context, events, jupyter, kernels, marks, open, reload, recorded, settings, show, until, vscode,
};
