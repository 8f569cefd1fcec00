// What a notebook and a cell of VS Code have. Pure.
'use strict';

/** The id that the file gives a cell, by VS Code's metadata of it. @param {{ readonly [key: string]: any }} metadata */
function idOf(metadata) {
  const id = metadata?.id ?? metadata?.custom?.id;
  return typeof id === 'string' ? id : undefined;
}

/** @param {import('vscode').NotebookCell} cell */
const textOf = cell => cell.document.getText().replaceAll('\r\n', '\n');

/** The type that the file gives a cell. @param {import('vscode').NotebookCell} cell @returns {'code' | 'markdown' | 'raw'} */
function typeOf(cell) {
  // vscode.NotebookCellKind.Markup
  if (cell.kind === 1) return 'markdown';
  return cell.document.languageId === 'raw' ? 'raw' : 'code';
}

/** The language of a notebook, by the metadata that VS Code has of it. @param {{ [key: string]: any }} metadata */
function languageOf(metadata) {
  const own = metadata?.metadata ?? metadata?.custom?.metadata ?? {};
  const language = own.kernelspec?.language ?? own.language_info?.name;
  return typeof language === 'string' && /^[\w+#. -]{1,40}$/.test(language) ? language : 'python';
}

/**
 * The smallest part in which two texts differ: `was` from `start` to `end` is replaced by `text`. No half of a pair of
 * surrogates is left alone. @param {string} was @param {string} now
 */
function difference(was, now) {
  const isHalf = (/** @type {number} */ code, /** @type {number} */ first) => code >= first && code < first + 0x400;
  let start = 0;
  const most = Math.min(was.length, now.length);
  while (start < most && was[start] === now[start]) start++;
  if (start > 0 && isHalf(was.charCodeAt(start - 1), 0xd800)) start--;
  let same = 0;
  while (same < most - start && was.at(-1 - same) === now.at(-1 - same)) same++;
  if (same > 0 && isHalf(was.charCodeAt(was.length - same), 0xdc00)) same--;
  return { start, end: was.length - same, text: now.slice(start, now.length - same) };
}

/**
 * Which of the values in `list` stay where they are when the others are moved so that all are in the order of their
 * values: as many as possible, and all for which `isFixed` holds. `undefined` if that cannot be.
 * @param {number[]} list the places that are wanted
 * @param {(at: number) => boolean} isFixed whether what is at this place must stay
 * @returns {Set<number> | undefined} places in `list`
 */
function stays(list, isFixed) {
  const fixed = list.length + 1;
  const best = list.map((_, at) => ({ weight: isFixed(at) ? fixed : 1, before: -1 }));
  for (const [at, each] of best.entries()) {
    const own = each.weight;
    for (let before = 0; before < at; before++) {
      const weight = best[before].weight + own;
      if (list[before] < list[at] && weight > each.weight) Object.assign(each, { weight, before });
    }
  }
  const found = new Set();
  let at = best.reduce((most, each, index) => (each.weight > (best[most]?.weight ?? 0) ? index : most), -1);
  for (; at >= 0; at = best[at].before) found.add(at);
  return list.every((_, index) => found.has(index) || !isFixed(index)) ? found : undefined;
}

module.exports = { difference, idOf, languageOf, stays, textOf, typeOf };
