// The outputs of a notebook's file as VS Code's own extension "ipynb" reads them, so that it writes the same ones back.
'use strict';

const vscode = require('vscode');

// As that extension sorts what one output has; the rest comes last.
const ORDER = [
  'application/vnd.', 'application/vdom.', 'application/geo+json', 'application/x-nteract-model-debug+json', 'text/html',
  'application/javascript', 'image/gif', 'text/latex', 'text/markdown', 'image/png', 'image/svg+xml', 'image/jpeg',
  'application/json', 'text/plain',
];

/** @param {any} text */
const joined = text => (Array.isArray(text) ? text.join('') : String(text ?? ''));

/** @param {string} mime @param {any} value */
function item(mime, value) {
  const { text, json } = vscode.NotebookCellOutputItem;
  if (!value) return text('', mime);
  if (mime.startsWith('image/') && mime !== 'image/svg+xml' && typeof value === 'string') {
    return new vscode.NotebookCellOutputItem(Buffer.from(value, 'base64'), mime);
  }
  if (typeof value === 'object' && !Array.isArray(value)) return text(JSON.stringify(value), mime);
  if (mime === 'application/json') return json(value, mime);
  return text(joined(value), mime);
}

/** @param {string} mime */
function place(mime) {
  const at = ORDER.findIndex(each => mime.startsWith(each));
  return at < 0 ? ORDER.length : at;
}

/** @param {any} output one of a cell in a notebook's file */
function outputOf(output) {
  const { stderr, stdout, error } = vscode.NotebookCellOutputItem;
  /** @type {{ [key: string]: any }} */
  const metadata = { outputType: output.output_type };
  if (output.transient) metadata.transient = output.transient;
  if (output.output_type === 'stream') {
    const text = joined(output.text);
    return new vscode.NotebookCellOutput([output.name === 'stderr' ? stderr(text) : stdout(text)], metadata);
  }
  if (output.output_type === 'error') {
    const { ename, evalue, traceback } = output;
    const found = { name: ename || '', message: evalue || '', stack: (traceback ?? []).join('\n') };
    return new vscode.NotebookCellOutput([error(found)], { ...metadata, originalError: output });
  }
  metadata.executionCount = output.execution_count;
  metadata.metadata = output.metadata ?? {};
  const items = Object.entries(output.data ?? {}).map(([mime, value]) => item(mime, value));
  return new vscode.NotebookCellOutput(items.sort((one, other) => place(one.mime) - place(other.mime)), metadata);
}

module.exports = { outputOf };
