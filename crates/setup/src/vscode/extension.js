// The extension: what VS Code shows of a kernel and a notebook that a person and AI agents share through `nb`.
//
// It speaks to `nb` by running its commands, and to the Jupyter extension by its exported API. Without it everything
// works that works in an unmodified VS Code.
'use strict';

const os = require('node:os');
const path = require('node:path');
const vscode = require('vscode');
const { isAgent, isHuman } = require('./activity');
const { idOf } = require('./cells');
const { Editor } = require('./editor');
const { kernelId, languageOf } = require('./kernel');
const { find, projectOf, run } = require('./nb');
const { Project } = require('./project');
const { changedLines, logLine, nameOf, plain, time, waits, what, who } = require('./words');

/**
 * @typedef {import('@vscode/jupyter-extension').Jupyter & {
 *   ready?: Promise<void>,
 *   openNotebook?: (uri: vscode.Uri, kernelId: string) => Promise<vscode.NotebookDocument>,
 * }} JupyterApi `ready` and `openNotebook` are exported, and are not in the published types.
 */

const JUPYTER = 'ms-toolsai.jupyter';
const VIEW = 'jupyter-notebook';

// How long the Jupyter extension may take to find the kernelspec, and the pause between two tries, in milliseconds.
const FINDS = 30_000;
const TRY = 500;

// The pause between two looks for a project of open notebooks that have none, in milliseconds.
const SEARCH = 1000;

const SET_PATH = 'Set nb.path';

// The key under which the window remembers the notebooks whose kernel it has chosen.
const CHOSEN = 'nb.chosen';

class Extension {
  /** @param {vscode.ExtensionContext} context */
  constructor(context) {
    this.context = context;
    /** @type {Map<string, Project>} by its folder */
    this.projects = new Map();
    this.output = vscode.window.createOutputChannel('nb');
    this.item = vscode.window.createStatusBarItem('nb.status', vscode.StatusBarAlignment.Left, 10);
    this.item.name = 'nb';
    /** @type {vscode.EventEmitter<void>} */
    this.marks = new vscode.EventEmitter();
    /** @type {NodeJS.Timeout | undefined} */
    this.expiry = undefined;
    /** @type {Map<string, Promise<boolean>>} notebooks whose kernel is being chosen, or could not be */
    this.choosing = new Map();
    this.isDisposed = false;
    this.hasAsked = false;
    // A person may open a notebook first, and run `nb open` then, in this folder or above it.
    this.search = setInterval(() => {
      for (const notebook of vscode.workspace.notebookDocuments) {
        if (!this.editor.open.has(String(notebook.uri))) this.projectOf(notebook);
      }
    }, SEARCH);
    this.search.unref();
    this.editor = new Editor({
      program: () => this.program(),
      idleSince: notebook => {
        const project = this.projectOf(notebook);
        return project?.activity.idleSince(project.key(notebook.uri.fsPath));
      },
      marks: () => this.marks.fire(),
      says: text => this.says(text),
    });
    context.subscriptions.push(
      this, this.editor, this.output, this.item, this.marks,
      vscode.commands.registerCommand('nb.share', () => this.reported(() => this.share())),
      vscode.commands.registerCommand('nb.log', () => this.reported(() => this.log())),
      vscode.commands.registerCommand('nb.interrupt', () => this.reported(() => this.interrupt())),
      vscode.notebooks.registerNotebookCellStatusBarItemProvider(VIEW, {
        onDidChangeCellStatusBarItems: this.marks.event,
        provideCellStatusBarItems: cell => this.marksOf(cell),
      }),
      vscode.window.onDidChangeActiveNotebookEditor(() => this.looksAtNotebook()),
      vscode.workspace.onDidOpenNotebookDocument(notebook => {
        if (this.projectOf(notebook)) this.editor.opened(notebook);
      }),
      vscode.workspace.onDidChangeConfiguration(event => {
        if (event.affectsConfiguration('nb.path')) this.begin();
      }),
    );
    this.begin();
  }

  dispose() {
    this.isDisposed = true;
    clearTimeout(this.expiry);
    clearInterval(this.search);
    for (const { process: events } of this.projects.values()) events.stop(true);
  }

  /** Writes a line into the output channel. @param {string} text */
  says(text) {
    this.output.appendLine(plain(text));
  }

  /** Finds the projects of the workspace and of the open notebooks. */
  begin() {
    for (const { process: events } of this.projects.values()) events.stop(true);
    this.projects.clear();
    for (const folder of vscode.workspace.workspaceFolders ?? []) {
      if (folder.uri.scheme === 'file') this.find(path.join(folder.uri.fsPath, 'notebook.ipynb'));
    }
    for (const notebook of vscode.workspace.notebookDocuments) this.find(notebook.uri.fsPath);
    const found = vscode.workspace.findFiles('**/.nb/state.json', '**/node_modules/**', 50);
    void found.then(files => files.forEach(file => this.find(path.join(path.dirname(file.fsPath), '../notebook.ipynb'))));
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
    const text = 'nb: the program nb was not found. Run "nb serve --vscode" in a shell that has it, or set its path.';
    this.says(text);
    if (await vscode.window.showWarningMessage(text, SET_PATH) !== SET_PATH) return;
    await vscode.commands.executeCommand('workbench.action.openSettings', 'nb.path');
  }

  /** Finds the project of a notebook, and begins to follow it. @param {string} notebook */
  find(notebook) {
    const root = projectOf(notebook);
    if (!root || this.isDisposed) return undefined;
    const known = this.projects.get(root);
    if (known) return known;
    const program = this.program();
    if (!program) {
      void this.asksForProgram();
      return undefined;
    }
    const project = new Project(program, root, {
      changed: () => this.changed(project),
      says: text => this.says(text),
    });
    this.projects.set(root, project);
    project.process.start();
    for (const open of vscode.workspace.notebookDocuments) {
      if (this.projectOf(open) === project) this.editor.opened(open);
    }
    return project;
  }

  /** @param {vscode.NotebookDocument} notebook */
  projectOf(notebook) {
    if (notebook.notebookType !== VIEW || notebook.uri.scheme !== 'file') return undefined;
    return this.find(notebook.uri.fsPath);
  }

  /** The notebook that the person looks at, with its project. */
  active() {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    const project = notebook && this.projectOf(notebook);
    return notebook && project && { notebook, project, key: project.key(notebook.uri.fsPath) };
  }

  looksAtNotebook() {
    this.draw();
    void this.chooseOnce();
  }

  /** @param {Project} project */
  changed(project) {
    if (this.isDisposed) return;
    this.looksAtNotebook();
    this.marks.fire();
    const now = Date.now();
    clearTimeout(this.expiry);
    const times = [...this.projects.values()].flatMap(each => each.activity.nextExpiry(now) ?? []);
    if (times.length) this.expiry = setTimeout(() => this.changed(project), Math.min(...times) + 100);
  }

  // ---- What is shown

  /** What runs, for the notebook in view, else anywhere; with the notebook to interrupt. */
  runs() {
    const active = this.active();
    if (active) {
      const run = active.project.activity.running(active.key);
      return run && { run, project: active.project };
    }
    for (const project of this.projects.values()) {
      const [run] = project.activity.runs.values();
      if (run) return { run, project };
    }
    return undefined;
  }

  draw() {
    const active = this.active();
    const found = this.runs();
    if (found) {
      const { run, project } = found;
      const isElsewhere = !active || run.notebook !== active.key;
      const where = isElsewhere ? ` in ${nameOf(run.notebook)}` : '';
      const waiting = waits(project.activity.behind(run));
      this.item.text = `$(sync~spin) ${who(run.by)} runs ${what(run)}${where}${waiting}`;
      this.item.tooltip = `nb: ${who(run.by)} runs ${what(run)} in ${plain(run.notebook)} since ${time(run.since)}${waiting}. Click to interrupt.`;
      this.item.command = 'nb.interrupt';
      this.item.show();
    } else if (active?.project.activity.sessions.get(active.key)?.isUp) {
      this.item.text = '$(circle-outline) nb: idle';
      this.item.tooltip = 'nb: the shared kernel of this notebook is idle. Click to see what agents did.';
      this.item.command = 'nb.log';
      this.item.show();
    } else {
      this.item.hide();
    }
  }

  /** What an agent does or did to a cell, and what the person can choose there. @param {vscode.NotebookCell} cell */
  marksOf(cell) {
    const { Left, Right } = vscode.NotebookCellStatusBarAlignment;
    /** @param {string} text @param {string} command @param {string} tooltip */
    const item = (text, command, tooltip, side = Right) => {
      const made = new vscode.NotebookCellStatusBarItem(text, side);
      made.command = { title: tooltip, command, arguments: [cell] };
      made.tooltip = tooltip;
      return made;
    };
    const conflict = this.editor.conflictOf(cell);
    if (conflict) {
      /** @param {string} name @param {string} tooltip */
      const choice = (name, tooltip) => item(name, `nb.conflict.${name}`, tooltip, Left);
      return [
        item(`$(warning) ${changedLines(conflict.by)}:`, 'nb.conflict.difference', 'Show the difference', Left),
        choice('mine', 'Keep your text'), choice('theirs', 'Take the text of the file'),
        choice('both', 'Keep both: yours, then the other'), choice('difference', 'Show the difference'),
      ];
    }
    const held = this.editor.heldBy(cell);
    if (held !== undefined) {
      const why = 'Show the outputs now, unless a run of yours waits for the cell. Else they follow when you leave it';
      return [item(`$(sparkle) ${who(held)} ran this · outputs follow`, 'nb.outputs', why)];
    }
    const project = this.projectOf(cell.notebook);
    const id = idOf(cell.metadata);
    const mark = id && project?.activity.markOf(project.key(cell.notebook.uri.fsPath), id, Date.now());
    if (!mark) return [];
    const words = { runs: 'runs this', ran: 'ran this', edited: 'edited this', inserted: 'inserted this' };
    const isRun = mark.what === 'runs';
    const text = `$(${isRun ? 'sync~spin' : 'sparkle'}) ${who(mark.by)} ${words[mark.what]} · ${time(mark.at)}`;
    return [item(text, isRun ? 'nb.interrupt' : 'nb.log', isRun ? 'Interrupt' : 'What did the agent do')];
  }

  // ---- The kernel

  /** Chooses the shared kernel for the notebook in view, once: what the person chooses later stays. */
  async chooseOnce() {
    const active = this.active();
    if (!active?.project.activity.sessions.get(active.key)?.isUp) return;
    const uri = String(active.notebook.uri);
    /** @type {string[]} */
    const chosen = this.context.workspaceState.get(CHOSEN, []);
    if (chosen.includes(uri) || this.choosing.has(uri)) return;
    try {
      await this.choose(active.notebook);
    } catch (error) {
      this.says(`${active.notebook.uri.fsPath}: ${error instanceof Error ? error.message : error}`);
      // Not again in this window: it would fail again with each event.
      this.choosing.set(uri, Promise.resolve(false));
    }
  }

  /**
   * Chooses the shared kernel for a notebook, and remembers that. Returns false if the person has gone to another
   * notebook meanwhile.
   * @param {vscode.NotebookDocument} notebook
   */
  async choose(notebook) {
    const uri = String(notebook.uri);
    const begun = this.choosing.get(uri);
    if (begun && await begun.catch(() => false)) return true;
    const choice = this.chooseNow(notebook);
    this.choosing.set(uri, choice);
    try {
      const isDone = await choice;
      if (isDone) await this.remember(uri);
      return isDone;
    } finally {
      this.choosing.delete(uri);
    }
  }

  /** @param {string} uri */
  async remember(uri) {
    /** @type {string[]} */
    const chosen = this.context.workspaceState.get(CHOSEN, []);
    const MOST = 1000;
    await this.context.workspaceState.update(CHOSEN, [...chosen.filter(each => each !== uri), uri].slice(-MOST));
  }

  /** @param {vscode.NotebookDocument} notebook */
  async chooseNow(notebook) {
    const program = this.program();
    const jupyter = vscode.extensions.getExtension(JUPYTER);
    if (!program || !jupyter) throw new Error(`${program ? 'the Jupyter extension' : 'nb'} is not installed`);
    const language = languageOf(notebook.metadata);
    const id = kernelId(await run(program, ['serve', `--language=${language}`], path.dirname(notebook.uri.fsPath)));
    /** @type {JupyterApi} */
    const api = await jupyter.activate();
    await api.ready;
    const end = Date.now() + FINDS;
    for (;;) {
      const editor = vscode.window.activeNotebookEditor;
      if (editor?.notebook !== notebook || this.isDisposed) return false;
      try {
        if (api.openNotebook) {
          await api.openNotebook(notebook.uri, id);
          return true;
        }
        const options = { notebookEditor: editor, id, extension: JUPYTER };
        if (await vscode.commands.executeCommand('notebook.selectKernel', options)) return true;
        throw new Error(`the Jupyter extension does not list the kernel ${id}`);
      } catch (error) {
        // It may still be looking for kernelspecs.
        if (Date.now() > end) throw error;
        await new Promise(resolve => { setTimeout(resolve, TRY); });
      }
    }
  }

  // ---- Commands

  /** @param {() => Promise<void>} work */
  async reported(work) {
    try {
      await work();
    } catch (error) {
      const text = error instanceof Error ? error.message : String(error);
      this.says(text);
      void vscode.window.showErrorMessage(`nb: ${plain(text)}`);
    }
  }

  /** "Share this notebook's kernel" */
  async share() {
    const notebook = vscode.window.activeNotebookEditor?.notebook;
    if (!notebook || notebook.notebookType !== VIEW || notebook.uri.scheme !== 'file') {
      throw new Error('open a notebook (.ipynb) of this machine first');
    }
    const program = this.program();
    if (!program) throw new Error('the program nb was not found on PATH: set nb.path');
    const file = notebook.uri.fsPath;
    const options = { location: vscode.ProgressLocation.Notification, title: `nb open ${nameOf(file)}` };
    await vscode.window.withProgress(options, () => run(program, ['open', file], path.dirname(file)));
    await this.find(file)?.look();
    try {
      await this.choose(notebook);
    } catch (error) {
      const text = error instanceof Error ? error.message : error;
      throw new Error(`the kernel runs; choose it with Select Kernel > Jupyter Kernel... > nb shared kernel (${text})`);
    }
  }

  /** "What did the agent do" */
  async log() {
    const active = this.active();
    if (!active) throw new Error('open a notebook of a project of nb first');
    const answer = await active.project.nb(['log', active.notebook.uri.fsPath]);
    /** @type {any[]} */
    const entries = (answer.log ?? []).filter((/** @type {any} */ entry) => isAgent(entry.by));
    const items = entries.reverse().flatMap(entry => logLine(entry) ?? []).slice(0, 200);
    const placeHolder = items.length ? 'Choose one to see its cell' : 'No agent has done anything here';
    const item = await vscode.window.showQuickPick(items, { placeHolder, matchOnDescription: true });
    if (!item?.cell) return;
    const cell = active.notebook.getCells().find(each => idOf(each.metadata) === item.cell);
    if (!cell) {
      void vscode.window.showInformationMessage(`nb: cell ${plain(item.cell, 8)} is not in the notebook any more`);
      return;
    }
    const editor = await vscode.window.showNotebookDocument(active.notebook);
    editor.revealRange(new vscode.NotebookRange(cell.index, cell.index + 1), vscode.NotebookEditorRevealType.InCenter);
  }

  /** "Interrupt" */
  async interrupt() {
    const active = this.active();
    const found = this.runs();
    const project = found?.project ?? active?.project;
    const key = found?.run.session ?? active?.key;
    if (!project || key === undefined) throw new Error('nothing runs here');
    const words = ['interrupt', path.join(project.root, key)];
    // What the person asked for needs no question.
    if (found && !isHuman(found.run.by)) {
      const text = `${who(found.run.by)} runs ${what(found.run)} since ${time(found.run.since)}. Interrupt it?`;
      const chosen = await vscode.window.showWarningMessage(text, { modal: true }, 'Interrupt');
      if (chosen !== 'Interrupt') return;
      const now = project.activity.running(key);
      // Another cell may run by now, to which the answer does not apply.
      if (!now || now.by !== found.run.by || now.since !== found.run.since) return;
      words.push('--force');
    }
    await project.nb(words);
  }
}

/** @param {vscode.ExtensionContext} context */
function activate(context) {
  return new Extension(context);
}

module.exports = { activate, deactivate() {} };
