// Reports the open notebooks of projects, and what is typed in them, to `nb live`.
'use strict';

const os = require('node:os');
const vscode = require('vscode');
const { idOf } = require('./cells');
const { Live } = require('./live');

// How long after a change of a tab without unsaved changes it counts as loaded from its file, in milliseconds: VS Code
// tells of a change before it tells that there are unsaved changes.
const SOON = 300;

class Reports {
  /** @param {{ program: () => string | undefined, says: (text: string) => void }} host */
  constructor(host) {
    this.host = host;
    /** @type {Live | undefined} */
    this.live = undefined;
    /** @type {Set<vscode.NotebookDocument>} */
    this.open = new Set();
    /** @type {WeakMap<vscode.NotebookCell, string>} */
    this.names = new WeakMap();
    this.named = 0;
    /** @type {Map<vscode.NotebookDocument, NodeJS.Timeout>} */
    this.settling = new Map();
    this.subscriptions = [
      vscode.workspace.onDidChangeNotebookDocument(event => this.changes(event)),
      vscode.workspace.onDidSaveNotebookDocument(notebook => {
        if (this.open.has(notebook)) this.live?.saved(docOf(notebook), this.order(notebook));
      }),
      vscode.workspace.onDidCloseNotebookDocument(notebook => {
        clearTimeout(this.settling.get(notebook));
        this.settling.delete(notebook);
        if (this.open.delete(notebook)) this.live?.closed(docOf(notebook));
      }),
    ];
  }

  dispose() {
    for (const timer of this.settling.values()) clearTimeout(timer);
    for (const each of this.subscriptions) each.dispose();
    this.live?.stop();
  }

  /**
   * A notebook of a project is open.
   * @param {vscode.NotebookDocument} notebook
   */
  opened(notebook) {
    const program = this.host.program();
    if (this.open.has(notebook) || !program) return;
    this.open.add(notebook);
    if (this.live) {
      this.live.open(this.describe(notebook));
      return;
    }
    this.live = new Live(program, os.homedir(), {
      documents: () => [...this.open].map(each => this.describe(each)),
      says: this.host.says,
    });
    this.live.start();
  }

  /** @param {vscode.NotebookDocumentChangeEvent} event */
  changes({ notebook, cellChanges, contentChanges }) {
    if (!this.open.has(notebook)) return;
    const doc = docOf(notebook);
    const added = contentChanges.flatMap(change => change.addedCells);
    // VS Code gives a new cell its id a moment later.
    const named = cellChanges.flatMap(({ cell, metadata }) => (metadata && idOf(metadata) ? [cell] : []));
    if (contentChanges.length || named.length) {
      this.live?.cells(doc, this.order(notebook), [...added, ...named].map(cell => this.cell(cell)));
    }
    for (const { cell, document } of cellChanges) {
      if (document) this.live?.text(doc, this.name(cell), () => textOf(cell));
    }
    clearTimeout(this.settling.get(notebook));
    if (notebook.isDirty) return;
    this.settling.set(notebook, setTimeout(() => {
      this.settling.delete(notebook);
      if (!notebook.isDirty && this.open.has(notebook)) this.live?.open(this.describe(notebook));
    }, SOON));
  }

  /** @param {vscode.NotebookDocument} notebook */
  describe(notebook) {
    const cells = notebook.getCells().map(cell => this.cell(cell));
    return { doc: docOf(notebook), notebook: notebook.uri.fsPath, cells, dirty: notebook.isDirty };
  }

  /**
   * @param {vscode.NotebookCell} cell
   * @returns {import('./live').Cell}
   */
  cell(cell) {
    const isCode = cell.kind === 2; // vscode.NotebookCellKind.Code
    return { cell: this.name(cell), id: idOf(cell.metadata), cell_type: isCode ? 'code' : 'markdown', source: textOf(cell) };
  }

  /** @param {vscode.NotebookDocument} notebook */
  order(notebook) {
    return notebook.getCells().map(cell => this.name(cell));
  }

  /** @param {vscode.NotebookCell} cell */
  name(cell) {
    const name = this.names.get(cell) ?? `cell ${(this.named += 1)}`;
    this.names.set(cell, name);
    return name;
  }
}

/** @param {vscode.NotebookDocument} notebook */
const docOf = notebook => String(notebook.uri);

/** @param {vscode.NotebookCell} cell */
const textOf = cell => cell.document.getText().replaceAll('\r\n', '\n');

module.exports = { Reports };
