// The extension: what VS Code shows of a kernel and a notebook that a person and AI agents share through `nb`.
//
// It speaks to `nb` by running its commands, and to the Jupyter extension by its exported API. Without it everything
// works that works in an unmodified VS Code.
'use strict';

const os = require('node:os');
const path = require('node:path');
const vscode = require('vscode');
const { idOf, languageOf } = require('./cells');
const { Editor, docOf } = require('./editor');
const { find, projectOf, run } = require('./nb');
const { changedLines, duration, logLine, nameOf, plain, time, waits, what, whatWhole, who } = require('./words');

const VIEW = 'jupyter-notebook';

// How long the Jupyter extension may take to find the kernelspec, and the pause between two tries, in milliseconds.
const FINDS = 30_000;
const TRY = 500;

const NO_PROGRAM = 'the program nb was not found. Run "nb serve --vscode" in a shell that has it, or set its path.';
const SET_PATH = 'Set nb.path';

// What the person can choose where a cell has two texts.
const CHOICES = {
  mine: 'Keep your text', theirs: 'Take the text of the file',
  both: 'Keep both: yours, then the other', difference: 'Show the difference',
};

class Extension {
  /** @param {vscode.ExtensionContext} context */
  constructor(context) {
    this.context = context;
    this.output = vscode.window.createOutputChannel('nb');
    const { Left } = vscode.StatusBarAlignment;
    this.item = vscode.window.createStatusBarItem('nb.status', Left, 10);
    this.item.name = 'nb';
    this.stop = vscode.window.createStatusBarItem('nb.stop', Left, 9);
    Object.assign(this.stop, { name: 'nb: interrupt', text: '$(debug-stop) Interrupt', command: 'nb.interrupt' });
    /** @type {vscode.EventEmitter<void>} */
    this.marks = new vscode.EventEmitter();
    /** @type {Map<string, Promise<boolean>>} notebooks whose kernel is being chosen, or could not be */
    this.choosing = new Map();
    this.isDisposed = false;
    this.hasAsked = false;
    // A person may open a notebook first, and then run `nb open`, in this folder or above it, or set the program.
    this.clock = setInterval(() => this.looks(), 1000);
    this.clock.unref();
    this.editor = new Editor({
      memory: context.workspaceState,
      program: () => this.program(),
      showsStale: () => Boolean(vscode.workspace.getConfiguration('nb').get('staleMarks')),
      activity: () => this.changed(),
      marks: () => this.marks.fire(),
      says: text => this.says(text),
      fails: text => this.fails(text),
    });
    context.subscriptions.push(
      this, this.editor, this.output, this.item, this.stop, this.marks,
      this.command('share', () => this.share()),
      this.command('log', () => this.log()),
      this.command('interrupt', () => this.interrupt()),
      this.command('show', () => this.show()),
      this.command('undo', cell => this.editor.asks('undo', cell)),
      this.command('compare', cell => this.editor.asks('compare', cell)),
      vscode.notebooks.registerNotebookCellStatusBarItemProvider(VIEW, {
        onDidChangeCellStatusBarItems: this.marks.event,
        provideCellStatusBarItems: cell => this.marksOf(cell),
      }),
      vscode.window.onDidChangeActiveNotebookEditor(() => this.looksAtNotebook()),
      vscode.workspace.onDidOpenNotebookDocument(notebook => this.opens(notebook)),
      vscode.workspace.onDidChangeConfiguration(event => {
        if (event.affectsConfiguration('nb.staleMarks')) this.editor.ends();
        this.looks();
      }),
    );
    this.looks();
  }

  dispose() {
    this.isDisposed = true;
    clearInterval(this.clock);
  }

  /** Writes a line into the output channel. @param {string} text */
  says(text) {
    this.output.appendLine(plain(text));
  }

  /** Looks for projects of open notebooks, and shows what runs and for how long. */
  looks() {
    for (const notebook of vscode.workspace.notebookDocuments) this.opens(notebook);
    this.looksAtNotebook();
  }

  /** The program `nb`; `undefined` if there is none. */
  program() {
    const folders = (vscode.workspace.workspaceFolders ?? []).map(folder => folder.uri.fsPath);
    // Only the user's own setting: a workspace cannot have one of machine scope.
    const set = vscode.workspace.getConfiguration('nb').inspect('path')?.globalValue;
    const { PATH, XDG_DATA_HOME: data } = process.env;
    return find({ set: typeof set === 'string' ? set : undefined, PATH, data, home: os.homedir(), folders });
  }

  /** Says once that there is no `nb`, and how to name one. */
  async asksForProgram() {
    if (this.hasAsked) return;
    this.hasAsked = true;
    this.says(NO_PROGRAM);
    if (await vscode.window.showWarningMessage(`nb: ${NO_PROGRAM}`, SET_PATH) !== SET_PATH) return;
    await vscode.commands.executeCommand('workbench.action.openSettings', 'nb.path');
  }

  /** Takes in a notebook if it is in a project of `nb`. @param {vscode.NotebookDocument} notebook */
  opens(notebook) {
    const isOurs = notebook.notebookType === VIEW && notebook.uri.scheme === 'file';
    if (!isOurs || this.editor.open.has(docOf(notebook)) || !projectOf(notebook.uri.fsPath)) return;
    if (this.program()) this.editor.opened(notebook);
    else void this.asksForProgram();
  }

  /** The notebook that the person looks at, if it is in a project. */
  active() {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    return notebook && this.editor.open.has(docOf(notebook)) ? { notebook, doc: docOf(notebook) } : undefined;
  }

  looksAtNotebook() {
    this.draw();
    void this.chooseOnce();
  }

  changed() {
    if (this.isDisposed) return;
    this.looksAtNotebook();
    this.marks.fire();
  }

  // ---- What is shown

  /** What runs, for the notebook in view, else in any open one. */
  runs() {
    return this.editor.activity.runs(this.active()?.doc);
  }

  draw() {
    const active = this.active();
    const found = this.runs();
    if (found) {
      const { doc, run, waiting } = found;
      const file = run.notebook ?? this.editor.open.get(doc)?.uri.fsPath ?? '';
      const where = active && !run.notebook ? '' : ` in ${nameOf(file)}`;
      const took = duration(Date.now() - Date.parse(run.since));
      this.item.text = `$(sync~spin) ${who(run.by)} · ${what(run)}${where} · ${took}${waits(waiting)}`;
      this.item.tooltip = `nb: ${who(run.by)} runs ${whatWhole(run)} in ${nameOf(file)} since ${time(run.since)}${waits(waiting)}. Click to go there.`;
      this.item.command = 'nb.show';
      this.item.show();
      this.stop.tooltip = `nb: interrupt what ${who(run.by)} runs`;
      return this.stop.show();
    }
    this.stop.hide();
    if (!active || !this.editor.activity.known.get(active.doc)?.kernel) return this.item.hide();
    const tooltip = 'nb: the shared kernel of this notebook is idle. Click to see what agents did.';
    Object.assign(this.item, { text: '$(circle-outline) nb: idle', tooltip, command: 'nb.log' });
    return this.item.show();
  }

  /** What an agent does or did to a cell, and what the person can choose there. @param {vscode.NotebookCell} cell */
  marksOf(cell) {
    const { Left, Right } = vscode.NotebookCellStatusBarAlignment;
    /** @param {string} text @param {string | undefined} command @param {string} tooltip */
    const item = (text, command, tooltip, side = Right) => {
      const made = Object.assign(new vscode.NotebookCellStatusBarItem(text, side), { tooltip });
      if (command) made.command = { title: tooltip, command, arguments: [cell] };
      return made;
    };
    const conflict = this.editor.conflictOf(cell);
    if (conflict) {
      const choices = Object.entries(CHOICES).map(([name, tooltip]) => item(name, `nb.conflict.${name}`, tooltip, Left));
      const text = `$(warning) ${changedLines(conflict.by)}:`;
      return [item(text, 'nb.conflict.difference', CHOICES.difference, Left), ...choices];
    }
    const held = this.editor.heldBy(cell);
    if (held !== undefined) {
      const why = 'Show the outputs now, unless a run of yours waits for the cell. Else they follow when you leave it';
      return [item(`$(sparkle) ${who(held)} ran this · outputs follow`, 'nb.outputs', why)];
    }
    const run = this.editor.activity.runs(docOf(cell.notebook))?.run;
    if (run && !run.person && run.cell !== undefined && this.editor.cellOf(docOf(cell.notebook), run.cell) === cell) {
      return [item(`$(sync~spin) ${who(run.by)} runs this · ${time(run.since)}`, 'nb.interrupt', 'Interrupt')];
    }
    const mark = this.editor.markOf(cell);
    const stale = this.editor.activity.known.get(docOf(cell.notebook))?.stale.get(this.editor.name(cell));
    const marks = stale ? [item('$(history) stale', undefined, plain(stale.why))] : [];
    if (!mark) return marks;
    const text = `$(sparkle) ${who(mark.by)} ${mark.what} this · ${time(mark.at)}`;
    marks.push(item(text, 'nb.log', 'What did the agent do'));
    if (mark.before) marks.push(item('difference', 'nb.compare', 'Compare with the text before'));
    if (mark.edit) marks.push(item('undo', 'nb.undo', 'Take this edit back'));
    return marks;
  }

  // ---- The kernel

  /** Chooses the shared kernel for the notebook in view, once: what the person chooses later stays. */
  async chooseOnce() {
    const active = this.active();
    if (!active || !this.editor.activity.known.get(active.doc)?.kernel) return;
    const uri = active.doc;
    if (this.context.workspaceState.get(`nb.chosen ${uri}`) || this.choosing.has(uri)) return;
    try {
      await this.choose(active.notebook);
    } catch (error) {
      this.says(`${active.notebook.uri.fsPath}: ${textOf(error)}`);
      // Not again in this window: it would fail again with each event.
      this.choosing.set(uri, Promise.resolve(false));
    }
  }

  /** Chooses the shared kernel; false if the person has gone to another notebook. @param {vscode.NotebookDocument} notebook */
  async choose(notebook) {
    const uri = String(notebook.uri);
    const begun = this.choosing.get(uri);
    if (begun && await begun.catch(() => false)) return true;
    const choice = this.chooseNow(notebook);
    this.choosing.set(uri, choice);
    try {
      const isDone = await choice;
      if (isDone) await this.context.workspaceState.update(`nb.chosen ${uri}`, true);
      return isDone;
    } finally {
      this.choosing.delete(uri);
    }
  }

  /** @param {vscode.NotebookDocument} notebook */
  async chooseNow(notebook) {
    const program = this.program();
    const jupyter = vscode.extensions.getExtension('ms-toolsai.jupyter');
    if (!program || !jupyter) throw new Error(`${program ? 'the Jupyter extension' : 'nb'} is not installed`);
    const words = ['serve', `--language=${languageOf(notebook.metadata)}`];
    const { vscode_kernel: id } = await run(program, words, path.dirname(notebook.uri.fsPath));
    /** @type {{ ready?: Promise<void>, openNotebook: (uri: vscode.Uri, kernelId: string) => Promise<unknown> }} */
    const api = await jupyter.activate();
    await api.ready;
    const end = Date.now() + FINDS;
    for (;;) {
      if (vscode.window.activeNotebookEditor?.notebook !== notebook || this.isDisposed) return false;
      try {
        await api.openNotebook(notebook.uri, id);
        return true;
      } catch (error) {
        // It may still be looking for kernelspecs.
        if (Date.now() > end) throw error;
        await new Promise(resolve => { setTimeout(resolve, TRY); });
      }
    }
  }

  // ---- Commands

  /** Registers a command that says why it has failed. @param {string} name @param {(cell: any) => void | Promise<void>} work */
  command(name, work) {
    return vscode.commands.registerCommand(`nb.${name}`, async cell => {
      try {
        await work(cell);
      } catch (error) {
        this.fails(textOf(error));
      }
    });
  }

  /** Tells the person why what they asked for was not done. @param {string} text */
  fails(text) {
    this.says(text);
    void vscode.window.showErrorMessage(`nb: ${plain(text)}`);
  }

  /** "Share this notebook's kernel" */
  async share() {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    if (!notebook || notebook.notebookType !== VIEW || notebook.uri.scheme !== 'file') {
      throw new Error('open a notebook (.ipynb) of this machine first');
    }
    const program = this.program();
    if (!program) throw new Error(NO_PROGRAM);
    const file = notebook.uri.fsPath;
    const options = { location: vscode.ProgressLocation.Notification, title: `nb open ${nameOf(file)}` };
    await vscode.window.withProgress(options, () => run(program, ['open', file], path.dirname(file)));
    this.opens(notebook);
    try {
      await this.choose(notebook);
    } catch (error) {
      throw new Error(`the kernel runs; choose it with Select Kernel > Jupyter Kernel... > nb shared kernel (${textOf(error)})`);
    }
  }

  /** "What did the agent do" */
  async log() {
    const active = this.active();
    if (!active) throw new Error('open a notebook of a project of nb first');
    const { notebook, doc } = active;
    const program = this.program();
    if (!program) throw new Error(NO_PROGRAM);
    const file = notebook.uri.fsPath;
    const answer = await run(program, ['log', file, '--by', 'agent'], path.dirname(file));
    const indexOf = (/** @type {unknown} */ id) => notebook.getCells().findIndex(each => idOf(each.metadata) === id);
    /** @type {any[]} */
    const entries = (answer.log ?? []).reverse();
    const items = entries.flatMap(entry => logLine(entry, indexOf) ?? []).slice(0, 200);
    const placeHolder = items.length ? 'Choose one to see its cell' : 'No agent has done anything here';
    const chosen = await vscode.window.showQuickPick(items, { placeHolder, matchOnDescription: true });
    if (!chosen?.cell) return;
    const cell = notebook.getCells()[indexOf(chosen.cell)];
    if (!cell) throw new Error(`cell ${plain(chosen.cell, 8)} is not in the notebook any more`);
    await this.reveals(cell);
    if (chosen.before) this.editor.live?.asks(doc, { type: 'compare', cell: this.editor.name(cell), before: chosen.before });
  }

  /** @param {vscode.NotebookCell} cell */
  async reveals(cell) {
    const editor = await vscode.window.showNotebookDocument(cell.notebook);
    editor.revealRange(new vscode.NotebookRange(cell.index, cell.index + 1), vscode.NotebookEditorRevealType.InCenter);
  }

  /** Goes to the cell that runs. */
  async show() {
    const found = this.runs();
    if (!found) return;
    const notebook = this.editor.open.get(found.doc);
    const cell = this.editor.cellOf(found.doc, found.run.cell);
    if (cell) await this.reveals(cell);
    else if (notebook) await vscode.window.showNotebookDocument(notebook);
  }

  /** "Interrupt" */
  async interrupt() {
    const found = this.runs();
    if (!found) throw new Error('nothing runs here');
    const { doc, run: { run: id, by, person, since } } = found;
    // What the person asked for needs no question.
    if (!person) {
      const text = `${who(by)} runs ${whatWhole(found.run)} since ${time(since)}. Interrupt it?`;
      const chosen = await vscode.window.showWarningMessage(text, { modal: true }, 'Interrupt');
      if (chosen !== 'Interrupt') return;
    }
    this.editor.live?.asks(doc, { type: 'interrupt', run: id });
  }
}

/** @param {unknown} error */
const textOf = error => (error instanceof Error ? error.message : String(error));

module.exports = {
  activate: (/** @type {vscode.ExtensionContext} */ context) => new Extension(context),
};
