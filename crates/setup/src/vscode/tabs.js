// Tabs with unsaved changes whose file others have changed.
'use strict';

const vscode = require('vscode');
const { asText, decide, hash, isEqual, ofDocument, ofFile, placeIn, sameText } = require('./cells');
const { DOUBT, Requests } = require('./requests');
const { nameOf } = require('./words');

// The time from a change of a file to the look at it, and the shortest time between two looks, in milliseconds.
const SOON = 300;
const AGAIN = 5000;

// How long after the end of a person's cell nothing is taken in: VS Code still stores its outputs, and perhaps saves.
const QUIET = 2000;

// The scheme of the texts that a comparison shows.
const SCHEME = 'nb-cells';

const SHOW = 'Show differences';
const BOTH = 'Keep both';
const MINE = 'Keep mine';
const THEIRS = "Take the file's";

class Tabs {
  /**
   * @param {{
   *   isOurs: (notebook: vscode.NotebookDocument) => boolean,
   *   kernel: (notebook: vscode.NotebookDocument) => { isRunByPerson: boolean, endedAt: number, isIdle: boolean },
   *   marks: () => void,
   *   says: (text: string) => void,
   * }} host
   */
  constructor(host) {
    this.host = host;
    /** @type {Map<string, import('./cells').Base>} */
    this.bases = new Map();
    /** @type {Map<string, { timer: NodeJS.Timeout, last: number }>} */
    this.looks = new Map();
    /** @type {Map<string, NodeJS.Timeout>} */
    this.settling = new Map();
    /** @type {Map<string, string>} the file's version about which the person was asked */
    this.asked = new Map();
    /** @type {Map<string, string>} */
    this.texts = new Map();
    /** @type {Set<string>} */
    this.busy = new Set();
    /** @type {Map<string, Requests>} */
    this.requests = new Map();
    /** @type {Set<string>} the tabs whose file has what the tab does not show */
    this.newer = new Set();
    this.subscriptions = [
      vscode.workspace.onDidOpenNotebookDocument(notebook => void this.opened(notebook)),
      vscode.workspace.onDidSaveNotebookDocument(notebook => void this.clean(notebook)),
      vscode.workspace.onWillSaveNotebookDocument(event => {
        const edits = this.host.isOurs(event.notebook) ? counts(event.notebook) : [];
        if (edits.length) event.waitUntil(Promise.resolve(editOf(event.notebook, edits)));
      }),
      vscode.workspace.onDidChangeNotebookDocument(event => this.changes(event)),
      vscode.workspace.onDidCloseNotebookDocument(notebook => this.closed(notebook)),
      vscode.window.onDidChangeActiveNotebookEditor(editor => editor && this.soon(editor.notebook)),
      // The person may have left a cell.
      vscode.window.onDidChangeActiveTextEditor(() => {
        const notebook = vscode.window.activeNotebookEditor?.notebook;
        if (notebook && this.isNewer(notebook)) this.soon(notebook);
      }),
      vscode.workspace.registerTextDocumentContentProvider(SCHEME, {
        provideTextDocumentContent: uri => this.texts.get(String(uri)) ?? '',
      }),
    ];
    const files = vscode.workspace.createFileSystemWatcher('**/*.ipynb');
    const changed = (/** @type {vscode.Uri} */ uri) => {
      const open = vscode.workspace.notebookDocuments.find(each => String(each.uri) === String(uri));
      if (open) this.soon(open);
    };
    files.onDidChange(changed);
    files.onDidCreate(changed);
    this.subscriptions.push(files);
  }

  dispose() {
    for (const { timer } of this.looks.values()) clearTimeout(timer);
    for (const timer of this.settling.values()) clearTimeout(timer);
    for (const each of this.subscriptions) each.dispose();
  }

  /** @param {vscode.NotebookDocument} notebook */
  async opened(notebook) {
    if (notebook.isDirty) this.soon(notebook);
    else await this.clean(notebook);
  }

  /** @param {vscode.NotebookDocument} notebook */
  closed(notebook) {
    const key = String(notebook.uri);
    clearTimeout(this.looks.get(key)?.timer);
    clearTimeout(this.settling.get(key));
    for (const map of [this.bases, this.looks, this.settling, this.asked, this.requests, this.newer]) map.delete(key);
  }

  /** @param {vscode.NotebookDocumentChangeEvent} event */
  changes({ notebook, cellChanges, contentChanges }) {
    if (!isFile(notebook)) return;
    const requests = this.requestsOf(notebook);
    for (const { cell, executionSummary } of cellChanges) {
      if (executionSummary && requests.take(cell, executionSummary, Date.now())) this.soon(notebook, QUIET);
    }
    for (const { removedCells } of contentChanges) {
      for (const cell of removedCells) requests.cells.delete(cell);
    }
    this.settles(notebook);
  }

  /** @param {vscode.NotebookDocument} notebook */
  requestsOf(notebook) {
    const key = String(notebook.uri);
    const requests = this.requests.get(key) ?? new Requests();
    this.requests.set(key, requests);
    return requests;
  }

  /**
   * For how long, in milliseconds, nothing may be taken into a tab at least, since VS Code drops the requests of cells
   * that are replaced; 0 if no request of the person waits or runs, and none ended just now.
   * @param {vscode.NotebookDocument} notebook
   */
  busyFor(notebook) {
    const now = Date.now();
    const { isRunByPerson, endedAt, isIdle } = this.host.kernel(notebook);
    const requests = this.requestsOf(notebook);
    const left = Math.max(endedAt, requests.ended) + QUIET - now;
    // When that request ends, the file is checked again.
    return isRunByPerson ? DOUBT : Math.max(0, left, requests.openFor(now, isIdle));
  }

  /**
   * Whether the file has what the tab does not show.
   * @param {vscode.NotebookDocument} notebook
   */
  isNewer(notebook) {
    return this.newer.has(String(notebook.uri));
  }

  /**
   * @param {vscode.NotebookDocument} notebook
   * @param {boolean} isNewer
   */
  mark(notebook, isNewer) {
    if (this.isNewer(notebook) === isNewer) return;
    if (isNewer) this.newer.add(String(notebook.uri));
    else this.newer.delete(String(notebook.uri));
    this.host.marks();
  }

  /**
   * Looks a little later whether a change has come from the file: VS Code tells of a change before it tells that the
   * tab has unsaved changes by it.
   * @param {vscode.NotebookDocument} notebook
   */
  settles(notebook) {
    const key = String(notebook.uri);
    clearTimeout(this.settling.get(key));
    if (notebook.isDirty) return;
    this.settling.set(key, setTimeout(() => {
      this.settling.delete(key);
      if (!notebook.isDirty && !notebook.isClosed) void this.clean(notebook, true);
    }, SOON));
  }

  /**
   * Remembers what a tab without unsaved changes has.
   * @param {vscode.NotebookDocument} notebook
   * @param {boolean} [isChecked] whether it counts only if the tab still has no unsaved changes once the file was read
   */
  async clean(notebook, isChecked = false) {
    if (!isFile(notebook) || !this.host.isOurs(notebook)) return;
    const tab = ofDocument(notebook);
    const file = await read(notebook.uri);
    if (isChecked && notebook.isDirty) return;
    if (!file) return;
    this.bases.set(String(notebook.uri), { tab, file: file.cells, digest: file.digest });
    this.mark(notebook, false);
  }

  /**
   * Looks at a tab soon: once for several changes of its file.
   * @param {vscode.NotebookDocument} notebook
   * @param {number} [least] the time until then at least, in milliseconds
   */
  soon(notebook, least = SOON) {
    if (!isFile(notebook)) return;
    const key = String(notebook.uri);
    const { timer, last = 0 } = this.looks.get(key) ?? {};
    clearTimeout(timer);
    const wait = Math.max(least, last + AGAIN - Date.now());
    this.looks.set(key, { timer: setTimeout(() => void this.look(notebook), wait), last });
  }

  /** @param {vscode.NotebookDocument} notebook */
  async look(notebook) {
    const key = String(notebook.uri);
    if (!notebook.isDirty || notebook.isClosed || this.busy.has(key) || !this.host.isOurs(notebook)) return;
    const file = await read(notebook.uri);
    if (!file || !notebook.isDirty || this.busy.has(key)) return;
    const base = this.bases.get(key);
    const tab = ofDocument(notebook);
    const decision = decide(base, tab, file);
    this.mark(notebook, decision.do !== 'nothing' || (base !== undefined && base.digest !== file.digest));
    if (decision.do === 'nothing') {
      // A tab that the editor has restored with unsaved changes: from now on it is known what the file was.
      if (!base) this.bases.set(key, { tab: file.cells, file: file.cells, digest: file.digest });
      return;
    }
    const wait = this.busyFor(notebook);
    if (wait > 0) {
      this.soon(notebook, wait);
    } else if (decision.do === 'take') {
      // Only the active tab can be reverted. A change of the active tab, or of the cell that is edited, leads here again.
      if (isActive(notebook) && this.isFree(notebook)) await this.take(notebook, decision.keep, file);
    } else if (this.asked.get(key) !== file.digest) {
      this.asked.set(key, file.digest);
      await this.ask(notebook, tab, file, decision.texts);
    }
  }

  /**
   * Takes in the file's version, and puts back what only the tab has.
   * @param {vscode.NotebookDocument} notebook
   * @param {number[]} keep the places of cells whose outputs are put back
   * @param {{ cells: import('./cells').Cell[], digest: string }} file
   * @param {number[]} [texts] the places of cells whose text is put back, with its outputs
   */
  async take(notebook, keep, file, texts = []) {
    const key = String(notebook.uri);
    const tab = ofDocument(notebook);
    const kept = [...new Set([...keep, ...texts])].map(at => {
      const cell = notebook.cellAt(at);
      const data = new vscode.NotebookCellData(cell.kind, cell.document.getText(), cell.document.languageId);
      data.outputs = [...cell.outputs];
      // Without success and times, as a cell that VS Code has read from the file: one that has them is never equal to
      // the file's again, and the next reload would replace it.
      data.executionSummary = { executionOrder: cell.executionSummary?.executionOrder };
      return { cell: tab[at], at, data };
    });
    const known = this.looks.get(key);
    if (known) known.last = Date.now();
    this.busy.add(key);
    try {
      await vscode.commands.executeCommand('workbench.action.files.revert');
      if (notebook.isDirty) {
        this.host.says(`${notebook.uri.fsPath}: the editor did not take in the file`);
        return false;
      }
      const now = ofDocument(notebook);
      this.bases.set(key, { tab: now, file: file.cells, digest: file.digest });
      this.mark(notebook, false);
      const edits = kept.flatMap(({ cell, at, data }) => {
        const place = placeIn(cell, at, now);
        if (place < 0 || (!texts.includes(at) && now[place].source !== cell.source)) return [];
        const there = notebook.cellAt(place);
        // By now the person may have run it.
        if (isEqual(now[place], cell) || this.requestsOf(notebook).cells.has(there)) return [];
        data.metadata = { ...there.metadata };
        if ('execution_count' in data.metadata) data.metadata.execution_count = cell.count || null;
        return [vscode.NotebookEdit.replaceCells(new vscode.NotebookRange(place, place + 1), [data])];
      });
      if (edits.length) await vscode.workspace.applyEdit(editOf(notebook, edits));
      this.host.says(`${notebook.uri.fsPath}: the file's version was taken in, and ${edits.length} cells kept what only the tab had`);
      return true;
    } finally {
      this.busy.delete(key);
    }
  }

  /**
   * Lets the person choose between two texts.
   * @param {vscode.NotebookDocument} notebook
   * @param {import('./cells').Cell[]} tab
   * @param {{ cells: import('./cells').Cell[], digest: string }} file
   * @param {number[] | undefined} texts
   */
  async ask(notebook, tab, file, texts) {
    const name = nameOf(notebook.uri.fsPath);
    const text = `${name} was changed by others, and you have unsaved text in it.`;
    const choices = [SHOW, ...(texts ? [BOTH] : []), MINE, THEIRS];
    let chosen = await vscode.window.showWarningMessage(text, ...choices);
    if (chosen === SHOW) {
      await this.show(name, tab, file.cells);
      chosen = await vscode.window.showWarningMessage(text, ...choices.slice(1));
    }
    if (chosen !== BOTH && chosen !== THEIRS) return;
    const answered = ofDocument(notebook);
    await vscode.window.showNotebookDocument(notebook);
    let now;
    do {
      await this.free(notebook);
      if (notebook.isClosed) return;
      now = isActive(notebook) ? await read(notebook.uri) : undefined;
    } while (!this.isFree(notebook));
    // Meanwhile both may have changed again.
    const key = String(notebook.uri);
    const tabNow = ofDocument(notebook);
    const decision = now && decide(this.bases.get(key), tabNow, now);
    if (now && chosen === THEIRS && sameText(answered, tabNow)) {
      await this.take(notebook, [], now);
    } else if (now && chosen === BOTH && decision?.do === 'conflict' && decision.texts) {
      await this.take(notebook, decision.keep, now, decision.texts);
    } else {
      this.asked.delete(key);
      this.soon(notebook);
    }
  }

  /**
   * Whether the file may be taken into a tab now.
   * @param {vscode.NotebookDocument} notebook
   */
  isFree(notebook) {
    return this.busyFor(notebook) === 0 && !isEdited(notebook);
  }

  /** @param {vscode.NotebookDocument} notebook */
  async free(notebook) {
    while (!notebook.isClosed && !this.isFree(notebook)) {
      await new Promise(resolve => { setTimeout(resolve, SOON); });
    }
  }

  /**
   * Shows both texts.
   * @param {string} name
   * @param {import('./cells').Cell[]} tab
   * @param {import('./cells').Cell[]} file
   */
  async show(name, tab, file) {
    const uris = [file, tab].map((cells, at) => {
      const text = asText(cells);
      const title = `${at === 0 ? 'file' : 'tab'}/${name}.py`;
      const uri = vscode.Uri.from({ scheme: SCHEME, path: `/${hash(text).slice(0, 16)}/${title}` });
      this.texts.set(String(uri), text);
      return uri;
    });
    const title = `${name}: the file ↔ your tab`;
    await vscode.commands.executeCommand('vscode.diff', uris[0], uris[1], title);
  }
}

/** @param {vscode.NotebookDocument} notebook */
const isFile = notebook => notebook.notebookType === 'jupyter-notebook' && notebook.uri.scheme === 'file';

/**
 * Whether the notebook's tab is the one to which the command "Revert File" applies.
 * @param {vscode.NotebookDocument} notebook
 */
function isActive(notebook) {
  const input = vscode.window.tabGroups.activeTabGroup.activeTab?.input;
  return input instanceof vscode.TabInputNotebook && String(input.uri) === String(notebook.uri);
}

/**
 * Whether the cursor is in a cell of the notebook.
 * @param {vscode.NotebookDocument} notebook
 */
function isEdited(notebook) {
  const document = vscode.window.activeTextEditor?.document;
  return document !== undefined && notebook.getCells().some(cell => cell.document === document);
}

/**
 * Edits that store the numbers of the cells' runs in the metadata, from which VS Code writes the file: its own edit at
 * the end of a cell fails while a person types. Older editors store no number there.
 * @param {vscode.NotebookDocument} notebook
 */
function counts(notebook) {
  return notebook.getCells().flatMap(({ executionSummary, index, metadata }) => {
    const { executionOrder, success } = executionSummary ?? {};
    const isMissing = executionOrder && typeof success === 'boolean'
      && 'execution_count' in metadata && metadata.execution_count !== executionOrder;
    return isMissing
      ? [vscode.NotebookEdit.updateCellMetadata(index, { ...metadata, execution_count: executionOrder })]
      : [];
  });
}

/**
 * @param {vscode.NotebookDocument} notebook
 * @param {vscode.NotebookEdit[]} edits
 */
function editOf(notebook, edits) {
  const edit = new vscode.WorkspaceEdit();
  edit.set(notebook.uri, edits);
  return edit;
}

/**
 * Reads a notebook's file; `undefined` if it cannot be read, or is being written by somebody in pieces.
 * @param {vscode.Uri} uri
 */
async function read(uri) {
  try {
    const bytes = await vscode.workspace.fs.readFile(uri);
    const cells = ofFile(new TextDecoder().decode(bytes));
    return cells && { cells, digest: hash(bytes) };
  } catch {
    return undefined;
  }
}

module.exports = { Tabs };
