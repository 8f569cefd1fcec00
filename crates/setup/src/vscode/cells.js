// The cells of a notebook as its file, and as VS Code has them; what differs, and what is to be done about it. Pure.
'use strict';

const crypto = require('node:crypto');

/**
 * @typedef {object} Cell
 * @property {string | undefined} id
 * @property {boolean} isCode
 * @property {string} source
 * @property {string} outputs A hash of its outputs; comparable only with one of the same origin.
 * @property {boolean} hasOutputs
 * @property {number} count The number that the kernel gave its last run; 0 for none.
 */

/** @param {...(string | Uint8Array)} parts */
function hash(...parts) {
  const hash = crypto.createHash('sha256');
  for (const part of parts) {
    // With its length, so that two parts are not taken for one.
    hash.update(`${part.length}:`).update(part);
  }
  return hash.digest('hex');
}

/**
 * The cells of a notebook's file; `undefined` if it is none.
 * @param {string} text
 * @returns {Cell[] | undefined}
 */
function ofFile(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch {
    return undefined;
  }
  if (!Array.isArray(found?.cells) || found.nbformat !== 4) return undefined;
  const lines = (/** @type {any} */ it) => (Array.isArray(it) ? it.join('') : String(it ?? ''));
  return found.cells.map((/** @type {any} */ cell) => {
    const outputs = Array.isArray(cell?.outputs) ? cell.outputs : [];
    return {
      id: typeof cell?.id === 'string' ? cell.id : undefined,
      isCode: cell?.cell_type !== 'markdown',
      source: lines(cell?.source),
      outputs: hash(JSON.stringify(outputs)),
      hasOutputs: outputs.length > 0,
      count: Number(cell?.execution_count) || 0,
    };
  });
}

/**
 * The id that the file gives a cell.
 * @param {{ readonly [key: string]: any }} metadata a cell's in VS Code
 * @returns {string | undefined}
 */
function idOf(metadata) {
  const id = metadata?.id ?? metadata?.custom?.id;
  return typeof id === 'string' ? id : undefined;
}

/**
 * The cells of an open notebook.
 * @param {import('vscode').NotebookDocument} notebook
 * @returns {Cell[]}
 */
function ofDocument(notebook) {
  return notebook.getCells().map(cell => ({
    id: idOf(cell.metadata),
    // vscode.NotebookCellKind.Code
    isCode: cell.kind === 2,
    source: cell.document.getText().replaceAll('\r\n', '\n'),
    outputs: hash(...cell.outputs.flatMap(output => output.items.flatMap(item => [item.mime, item.data]))),
    hasOutputs: cell.outputs.length > 0,
    count: cell.executionSummary?.executionOrder ?? 0,
  }));
}

/**
 * Whether two cells of one origin have the same text and the same outputs of the same run.
 * @param {Cell} one
 * @param {Cell} other
 */
const isEqual = (one, other) => one.source === other.source && one.outputs === other.outputs && one.count === other.count;

/**
 * Whether two lists have the same cells with the same text.
 * @param {Cell[]} one
 * @param {Cell[]} other
 */
function sameText(one, other) {
  return one.length === other.length && one.every((cell, at) => {
    const there = other[at];
    const sameId = cell.id === undefined || there.id === undefined || cell.id === there.id;
    return sameId && cell.isCode === there.isCode && cell.source === there.source;
  });
}

/**
 * The place in `list` of a cell, by its id; where there are none, by its own place.
 * @param {Cell} cell
 * @param {number} at
 * @param {Cell[]} list
 */
function placeIn(cell, at, list) {
  if (cell.id !== undefined) return list.findIndex(each => each.id === cell.id);
  return list[at]?.id === undefined && at < list.length ? at : -1;
}

/**
 * What a tab had in common with the file when it last had no unsaved changes.
 * @typedef {object} Base
 * @property {Cell[]} tab The cells that the tab had.
 * @property {Cell[]} file The cells that the file had.
 * @property {string} digest A hash of the file.
 */

/**
 * What to do about a tab with unsaved changes whose file may have changed. `take`: the tab has no text of its own, so
 * the file's version is taken in; `keep` are the places of cells in the tab whose outputs only the tab has.
 * `conflict`: both have text that the other has not; `texts` are the places of the tab's changed cells if the file has
 * left all of them as they were, so that both can be kept, and `keep` is as for `take`.
 * @typedef {{ do: 'nothing' } | { do: 'take', keep: number[] } | Conflict} Decision
 * @typedef {{ do: 'conflict', texts: number[] | undefined, keep: number[] }} Conflict
 */

/**
 * @param {Base | undefined} base
 * @param {Cell[]} tab
 * @param {{ cells: Cell[], digest: string }} file
 * @returns {Decision}
 */
function decide(base, tab, file) {
  if (base && base.digest === file.digest && sameText(base.tab, file.cells)) return { do: 'nothing' };
  const isTyped = base ? !sameText(base.tab, tab) : !sameText(tab, file.cells);
  if (!isTyped || sameText(tab, file.cells)) {
    const differs = tab.some((cell, at) => {
      const there = file.cells[at];
      return cell.count !== there?.count || cell.hasOutputs !== there?.hasOutputs;
    });
    // After a restart of the editor it is not known which is newer, unless something is to be seen.
    if (!base && !differs) return { do: 'nothing' };
    return { do: 'take', keep: ownOutputs(base, tab, file.cells) };
  }
  // After a restart of the editor it is not known whose text is the newer one. If only outputs have changed in the
  // file, the editor asks when the text is saved.
  if (!base || sameText(base.tab, file.cells)) return { do: 'nothing' };
  return { do: 'conflict', texts: ownTexts(base, tab, file.cells), keep: ownOutputs(base, tab, file.cells) };
}

/**
 * The places of cells in the tab whose outputs are newer than the file's.
 * @param {Base | undefined} base
 * @param {Cell[]} tab
 * @param {Cell[]} file
 */
function ownOutputs(base, tab, file) {
  return tab.flatMap((cell, at) => {
    const there = file[placeIn(cell, at, file)];
    if (!there || !cell.hasOutputs || there.source !== cell.source) return [];
    const before = base && base.tab[placeIn(cell, at, base.tab)];
    if (before && before.outputs === cell.outputs && before.count === cell.count) return [];
    const fileBefore = base && base.file[placeIn(cell, at, base.file)];
    const isUntouched = fileBefore && fileBefore.outputs === there.outputs && fileBefore.count === there.count;
    return isUntouched || !there.hasOutputs || cell.count > there.count ? [at] : [];
  });
}

/**
 * The places of cells with the tab's own text, if the file has exactly the base's text in each of them.
 * @param {Base} base
 * @param {Cell[]} tab
 * @param {Cell[]} file
 */
function ownTexts(base, tab, file) {
  if (tab.length !== base.tab.length || [...tab, ...file].some(cell => cell.id === undefined)) return undefined;
  const changed = [];
  for (const [at, cell] of tab.entries()) {
    const before = base.tab[at];
    if (before.id !== cell.id || before.isCode !== cell.isCode) return undefined;
    if (before.source === cell.source) continue;
    const there = file[placeIn(cell, at, file)];
    if (!there || there.source !== before.source || there.isCode !== cell.isCode) return undefined;
    changed.push(at);
  }
  return changed;
}

/**
 * A notebook as plain text, for a comparison.
 * @param {Cell[]} cells
 */
const asText = cells => cells
  .map(cell => `# %%${cell.isCode ? '' : ' [markdown]'}${cell.id === undefined ? '' : ` ${cell.id}`}\n${cell.source}\n`)
  .join('\n');

module.exports = { asText, decide, hash, idOf, isEqual, ofDocument, ofFile, placeIn, sameText };
