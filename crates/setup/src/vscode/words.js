// The words that people read. Pure.
'use strict';

const path = require('node:path');

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
const nameOf = file => plain(path.basename(file), NAME);

/** @param {string | undefined} by */
const who = by => plain(by ?? '', NAME) || 'another client';

/**
 * What runs, as a person would name it: by the first line of its code, or by its cell.
 * @param {{ code?: string, cell?: string }} run
 */
function what(run) {
  const line = (run.code ?? '').split('\n').find(each => each.trim());
  if (line) return `"${plain(line, CODE)}"`;
  return run.cell ? `cell ${plain(run.cell, 8)}` : 'code';
}

/**
 * Who waits until a run has ended, as the rest of a line; empty if nobody does.
 * @param {{ by?: string, code?: string, cell?: string }[]} waiting
 */
function waits(waiting) {
  const [first] = waiting;
  if (!first) return '';
  return waiting.length === 1 ? ` · ${who(first.by)} waits with ${what(first)}` : ` · ${waiting.length} cells wait`;
}

/** @param {string | undefined} by */
const changedLines = by => `${who(by)} changed these lines`;

/** @param {string | number | Date} at */
function time(at) {
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? 'an unknown time' : date.toTimeString().slice(0, 8);
}

/**
 * A line of `nb log --json`, as a list shows it; `undefined` for what is of no interest there.
 * @param {any} entry @returns {{ label: string, description: string, cell?: string } | undefined}
 */
function logLine(entry) {
  const description = `${who(entry.by)} · ${time(entry.at)}`;
  if (entry.event === 'ran') {
    const cell = typeof entry.cell === 'string' ? entry.cell : undefined;
    return { label: `ran ${what(entry)}: ${plain(entry.status ?? 'no end is known', 20)}`, description, cell };
  }
  if (entry.event === 'edited') {
    const steps = Array.isArray(entry.changes) ? entry.changes : [];
    const label = steps.slice(0, 3)
      .map((/** @type {any} */ step) => `${plain(String(step.what), 20)} ${plain(String(step.cell), 8)}`);
    if (steps.length > 3) label.push(`${steps.length - 3} more`);
    return { label: label.join(', ') || 'edited no cell', description, cell: steps[0]?.cell };
  }
  if (entry.event === 'kernel') return { label: `kernel ${plain(String(entry.kernel), 20)}`, description };
  return undefined;
}

module.exports = { changedLines, logLine, nameOf, plain, time, waits, what, who };
