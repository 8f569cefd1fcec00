// The extension of JupyterLab: what it shows of others' work. `nb live` decides what that is.
'use strict';

const { Tab } = require('./tab');
const { changedLines, difference, duration, time, what, whatWhole, who, waits } = require('../vscode/words');

/** @type {{ [what: string]: string }} */
const VERBS = { ran: 'ran this', edited: 'edited this', inserted: 'inserted this' };

const STYLE = `
.nb-note { display: flex; gap: 8px; padding: 1px 8px; font-size: var(--jp-ui-font-size0, 11px);
  color: var(--jp-ui-font-color2, #555); }
.nb-note.nb-conflict { background: var(--jp-warn-color3, #ffe0b2); color: #000; }
.nb-note button, .nb-status button { border: 0; padding: 0 2px; background: none; font: inherit; color: inherit;
  text-decoration: underline; cursor: pointer; }
.nb-status { display: flex; gap: 8px; padding: 0 6px; line-height: 24px; font-size: var(--jp-ui-font-size1, 13px); }
.nb-compare { display: flex; gap: 12px; }
.nb-compare pre { margin: 0; white-space: pre-wrap; min-width: 280px; }
.nb-compare mark { background: var(--jp-warn-color3, #ffe0b2); }
`;

/**
 * @param {string} tag @param {string} className @param {string} [text] @param {() => void} [pressed]
 */
function element(tag, className, text = '', pressed = undefined) {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  if (pressed) made.addEventListener('click', pressed);
  return made;
}

/** Two texts side by side, the lines marked in which they differ. @param {[string, string][]} texts titles and texts */
function comparison(texts) {
  const lines = texts.map(([, text]) => text.split('\n'));
  const [one, other] = lines;
  let start = 0;
  while (start < Math.min(one.length, other.length) && one[start] === other[start]) start++;
  let end = 0;
  while (end < Math.min(one.length, other.length) - start && one.at(-1 - end) === other.at(-1 - end)) end++;
  const body = element('div', 'nb-compare');
  for (const [at, [title]] of texts.entries()) {
    const column = body.appendChild(element('div', ''));
    column.appendChild(element('b', '', title));
    const text = column.appendChild(element('pre', ''));
    for (const [number, line] of lines[at].entries()) {
      const differs = number >= start && number < lines[at].length - end;
      text.appendChild(element(differs ? 'mark' : 'span', '', `${line}\n`));
    }
  }
  return body;
}

/** What a tab shows of others' work. */
class Page {
  /** @param {any} modules those of JupyterLab @param {any} contents its files @param {any} tracker its open notebooks */
  constructor({ apputils, widgets }, contents, tracker) {
    this.contents = contents;
    this.apputils = apputils;
    this.widgets = widgets;
    this.tracker = tracker;
    /** @type {Map<any, Tab>} by their contexts */
    this.tabs = new Map();
    this.status = new widgets.Widget();
    this.status.addClass('nb-status');
    this.status.id = 'nb-status';
    const style = document.createElement('style');
    style.textContent = STYLE;
    document.head.appendChild(style);
    tracker.forEach((/** @type {any} */ panel) => this.opened(panel));
    tracker.widgetAdded.connect((/** @type {any} */ _, /** @type {any} */ panel) => this.opened(panel));
    tracker.currentChanged.connect(() => this.showStatus());
    window.addEventListener('pagehide', () => this.tabs.forEach(tab => tab.stop()));
    setInterval(() => this.showStatus(), 1000);
  }

  /** @param {any} panel */
  opened(panel) {
    const { context } = panel;
    if (this.tabs.has(context)) return;
    this.tabs.set(context, new Tab(panel, this));
    context.disposed.connect(() => this.tabs.delete(context));
  }

  /** @param {string} text */
  says(text) {
    console.debug(`nb: ${text}`);
  }

  /** @param {string} text */
  fails(text) {
    this.apputils.Notification.error(`nb: ${text}`, { autoClose: 10_000 });
  }

  get current() {
    return this.tabs.get(this.tracker.currentWidget?.context);
  }

  // ---- On the cells

  /** @param {Tab} tab */
  shows(tab) {
    if (tab.context.isDisposed) return;
    const marks = tab.activity.known.get(tab.doc)?.marks ?? new Map();
    for (const widget of tab.panel.content.widgets) {
      const name = widget.model.id;
      const note = this.noteOf(tab, name, tab.conflicts.get(name), marks.get(name));
      const before = [...widget.node.children].find(each => each.classList.contains('nb-note'));
      if (before?.isEqualNode(note ?? null)) continue;
      before?.remove();
      if (note) widget.node.appendChild(note);
    }
    this.showStatus();
  }

  /** @param {Tab} tab @param {string} cell @param {any} conflict @param {any} mark */
  noteOf(tab, cell, conflict, mark) {
    const held = tab.held.get(cell);
    if (!conflict && !mark && !held) return undefined;
    const note = element('div', 'nb-note');
    const add = (/** @type {string} */ text, /** @type {() => void} */ pressed) => (
      note.appendChild(element('button', '', text, pressed)));
    if (conflict) {
      note.classList.add('nb-conflict');
      note.appendChild(element('span', '', `${changedLines(conflict.by)}:`));
      for (const keep of /** @type {const} */ (['mine', 'theirs', 'both'])) add(keep, () => tab.chooses(cell, keep));
      add('difference', () => this.compares(tab, tab.cell(cell), conflict.theirs, changedLines(conflict.by)));
      return note;
    }
    if (held) {
      note.appendChild(element('span', '', `${who(held.by)} ran this; the outputs come when the cell has ended`));
      return note;
    }
    note.appendChild(element('span', '', `${who(mark.by)} ${VERBS[mark.what] ?? ''} · ${time(mark.at)}`));
    const ask = (/** @type {string} */ type) => {
      // A later edit may look the same.
      const now = tab.activity.known.get(tab.doc)?.marks.get(cell);
      if (now) tab.live.asks(tab.doc, { type, cell, edit: now.edit, before: now.before });
    };
    if (mark.before) add('difference', () => ask('compare'));
    if (mark.edit) add('undo', () => ask('undo'));
    return note;
  }

  /** @param {Tab} tab @param {any} cell @param {string} was @param {string | undefined} title */
  compares(tab, cell, was, title) {
    if (!cell) return;
    const mark = tab.activity.known.get(tab.doc)?.marks.get(cell.id);
    const texts = /** @type {[string, string][]} */ ([[title ? who(tab.conflicts.get(cell.id)?.by) : 'before', was], ['now', cell.getSource()]]);
    const body = new this.widgets.Widget({ node: comparison(texts) });
    void this.apputils.showDialog({
      title: title ?? difference(mark), body, buttons: [this.apputils.Dialog.okButton({ label: 'Close' })],
    });
  }

  /** Offers once to bring back what a save of the person has replaced. @param {Tab} tab @param {any} message @param {string | undefined} by */
  offers(tab, { cell, theirs }, by) {
    const back = () => void tab.live.choose(tab.doc, cell, 'both', theirs);
    const text = `Your save has replaced what ${who(by)} wrote in cell ${tab.at(cell)}.`;
    this.apputils.Notification.info(text, {
      autoClose: false,
      actions: [
        { label: 'Bring it back', callback: back },
        { label: 'Show the difference', callback: () => this.compares(tab, tab.cell(cell), theirs, changedLines(by)) },
      ],
    });
  }

  // ---- In the status bar

  showStatus() {
    const tab = this.current;
    const known = tab?.activity.known.get(tab.doc);
    const run = known?.running;
    const parts = [];
    if (tab && run) {
      const took = duration(Date.now() - Date.parse(run.since));
      const text = `${who(run.by)} · ${what(run)} · ${took}${waits(known.waiting)}`;
      const shown = element('button', 'nb-running', text, () => this.leads(tab, run.cell));
      shown.title = whatWhole(run);
      parts.push(shown);
      parts.push(element('button', 'nb-interrupt', 'Interrupt', () => tab.live.asks(tab.doc, { type: 'interrupt', run: run.run })));
    }
    if (tab && known?.marks.size) {
      const text = known.marks.size === 1 ? '1 cell of others' : `${known.marks.size} cells of others`;
      parts.push(element('button', 'nb-others', text, () => this.lists(tab, [...known.marks.values()])));
    }
    const { node } = this.status;
    // A button stays for as long as it does the same: else a click on it may get lost.
    const of = `${tab?.context.path}\n${run?.run}`;
    for (const [at, part] of parts.entries()) {
      part.dataset.of = of;
      const before = node.children[at];
      if (before?.className === part.className && before.dataset.of === of) before.textContent = part.textContent;
      else if (before) before.replaceWith(part);
      else node.appendChild(part);
    }
    while (node.children.length > parts.length) node.lastChild?.remove();
  }

  /** @param {Tab} tab @param {string | undefined} cell */
  leads(tab, cell) {
    const at = cell === undefined ? -1 : tab.at(cell);
    if (at < 0) return;
    tab.panel.content.activeCellIndex = at;
    void tab.panel.content.scrollToItem?.(at);
  }

  /** What others did, as a list that leads to the cells. @param {Tab} tab @param {any[]} marks */
  lists(tab, marks) {
    const list = element('div', 'nb-list');
    /** @type {any} */
    let dialog = undefined;
    for (const mark of marks.sort((one, other) => (one.at < other.at ? 1 : -1))) {
      const [line] = (tab.cell(mark.cell)?.getSource() ?? '').split('\n');
      const text = `${time(mark.at)} · ${who(mark.by)} ${mark.what} cell ${tab.at(mark.cell)} · ${line.slice(0, 60)}`;
      list.appendChild(element('div', '')).appendChild(element('button', '', text, () => {
        dialog.reject();
        this.leads(tab, mark.cell);
      }));
    }
    dialog = new this.apputils.Dialog({
      title: 'What others did in the last ten minutes', body: new this.widgets.Widget({ node: list }),
      buttons: [this.apputils.Dialog.okButton({ label: 'Close' })],
    });
    void dialog.launch();
  }
}

/** @param {{ apputils: any, notebook: any, statusbar: any, widgets: any }} modules those of JupyterLab */
function plugin(modules) {
  const { INotebookTracker, NotebookActions } = modules.notebook;
  return {
    id: 'nb-live:plugin',
    autoStart: true,
    requires: [INotebookTracker],
    optional: modules.statusbar ? [modules.statusbar.IStatusBar] : [],
    activate(/** @type {any} */ { serviceManager }, /** @type {any} */ tracker, /** @type {any} */ statusBar) {
      const page = new Page(modules, serviceManager.contents, tracker);
      statusBar?.registerStatusItem('nb-live', { item: page.status, align: 'left', rank: 10 });
      NotebookActions.executionScheduled.connect((/** @type {any} */ _, /** @type {any} */ { notebook, cell }) => {
        for (const tab of page.tabs.values()) if (tab.panel.content === notebook) tab.runs(cell.model.id);
      });
    },
  };
}

module.exports = { comparison, plugin };
