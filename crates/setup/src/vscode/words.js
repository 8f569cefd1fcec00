// The words that people read. Pure.
'use strict';

// The longest name, the longest line of code and the longest message, in characters.
const NAME = 40;
const CODE = 30;
const MESSAGE = 1000;

// Characters without a shape of their own: controls, marks of direction, what Unicode calls ignorable.
const SHAPELESS = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]+/gu;

/**
 * A text of another program as one short line that VS Code shows as it is: it would draw `$(name)` as an icon, and
 * `[text](command:name)` in a message as a link that runs the command.
 * @param {string} text @param {number} [longest]
 */
function plain(text, longest = MESSAGE) {
  const line = text.replace(SHAPELESS, ' ').trim().replace(/\$+\(/g, '(').replaceAll('](', '] (');
  const characters = [...line];
  return characters.length > longest ? `${characters.slice(0, longest - 1).join('')}…` : line;
}

/** The name of a notebook, without its folder. @param {string} file */
const nameOf = file => plain(file.split(/[\\/]/).at(-1) ?? '', NAME);

/** @param {string | undefined} by */
const who = by => plain(by ?? '', NAME) || 'another client';

/** The first line of code, in quotes; empty if there is none. @param {string | undefined} code */
function quoted(code) {
  const line = (code ?? '').split('\n').find(each => each.trim());
  return line ? `"${plain(line, CODE)}"` : '';
}

/** What runs, by its cell or else by its first line. @param {{ index?: number, line?: string }} run */
const what = ({ index, line }) => (index === undefined ? quoted(line) || 'code' : `cell ${index}`);

/** The same, with both. @param {{ index?: number, line?: string }} run */
const whatWhole = run => (run.index === undefined || !run.line ? what(run) : `${what(run)}, ${quoted(run.line)},`);

/**
 * Who waits until a run has ended, as the rest of a line; empty if nobody does.
 * @param {{ by: string, index?: number, line?: string }[]} waiting
 */
function waits(waiting) {
  const [first] = waiting;
  if (!first) return '';
  return waiting.length === 1 ? ` · ${who(first.by)} waits with ${what(first)}` : ` · ${waiting.length} cells wait`;
}

/** @param {string | undefined} by */
const changedLines = by => `${who(by)} changed these lines`;

/** The title of a comparison. @param {{ by: string, at: string } | undefined} mark */
const difference = mark => (mark ? `${who(mark.by)} edited this · ${time(mark.at)}` : 'before and now');

/** @param {string | number | Date} at */
function time(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? 'an unknown time' : date.toTimeString().slice(0, 8);
}

/** How long something takes: 0:07, 1:02:03. @param {number} milliseconds */
function duration(milliseconds) {
  const seconds = Math.max(0, Math.floor(milliseconds / 1000)) || 0;
  const two = (/** @type {number} */ value) => String(value % 60).padStart(2, '0');
  const minutes = Math.floor(seconds / 60);
  return minutes < 60 ? `${minutes}:${two(seconds)}` : `${Math.floor(minutes / 60)}:${two(minutes)}:${two(seconds)}`;
}

/**
 * A line of `nb log --json`, as a list shows it; `undefined` for what is of no interest there.
 * @param {any} entry @param {(id: unknown) => number} indexOf where a cell is, -1 if it is not there
 * @returns {{ label: string, description: string, cell?: string, before?: string } | undefined}
 */
function logLine(entry, indexOf) {
  const description = `${who(entry.by)} · ${time(entry.at)}`;
  const cellOf = (/** @type {unknown} */ id) => (indexOf(id) < 0 ? plain(String(id), 8) : `cell ${indexOf(id)}`);
  if (entry.event === 'ran') {
    const cell = typeof entry.cell === 'string' ? entry.cell : undefined;
    const ran = [cell && cellOf(cell), quoted(entry.code)].filter(Boolean).join(' · ') || 'code';
    return { label: `ran ${ran}: ${plain(entry.status ?? 'no end is known', 20)}`, description, cell };
  }
  if (entry.event === 'edited') {
    const steps = entry.changes ?? [];
    const label = steps.slice(0, 3).map((/** @type {any} */ step) => `${plain(String(step.what), 20)} ${cellOf(step.cell)}`);
    if (steps.length > 3) label.push(`${steps.length - 3} more`);
    const { cell, before } = steps[0] ?? {};
    return { label: label.join(', ') || 'edited no cell', description, cell, before };
  }
  if (entry.event === 'kernel') return { label: `kernel ${plain(String(entry.kernel), 20)}`, description };
  return undefined;
}

module.exports = { changedLines, difference, duration, logLine, nameOf, plain, time, waits, what, whatWhole, who };
