// Lets a test ask the workbench: it evaluates the JavaScript that is posted to it, with `vscode` in scope. The file that
// NB_TEST_DRIVER names gets its port. It also has two kernels, which make the calls that the Jupyter extension makes: one
// prints each cell's text, the other is "nb shared kernel", launched and used as the Jupyter extension does it.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
const { Module } = require('node:module');
const path = require('node:path');
// eslint-disable-next-line no-unused-vars
const vscode = require('vscode');

function kernel() {
  const made = vscode.notebooks.createNotebookController('driver', 'jupyter-notebook', 'driver');
  made.supportedLanguages = ['python'];
  made.supportsExecutionOrder = true;
  let queue = Promise.resolve();
  let count = 0;
  made.executeHandler = cells => {
    // All wait at once; one runs after the other.
    for (const execution of cells.map(cell => made.createNotebookCellExecution(cell))) {
      queue = queue.then(async () => {
        execution.executionOrder = count += 1;
        execution.start(Date.now());
        await execution.clearOutput();
        const text = `${execution.cell.document.getText()} #${count}\n`;
        const item = vscode.NotebookCellOutputItem.stdout(text);
        await execution.appendOutput(new vscode.NotebookCellOutput([item], { outputType: 'stream' }));
        execution.end(true, Date.now());
      });
    }
    return queue;
  };
  return made;
}

// The shared kernel of each notebook, by its file.
const shared = new Map();

function sharedKernel() {
  const made = vscode.notebooks.createNotebookController('shared', 'jupyter-notebook', 'shared');
  made.supportedLanguages = ['python'];
  made.supportsExecutionOrder = true;
  made.executeHandler = async (cells, notebook) => {
    const file = notebook.uri.fsPath;
    const executions = cells.map(cell => made.createNotebookCellExecution(cell));
    process.env.NODE_PATH = process.env.NB_TEST_MODULES;
    Module._initPaths();
    const { Kernel, until } = require(path.join(process.env.NB_TEST_NODE, 'vscode.js'));
    if (!shared.has(file)) shared.set(file, Kernel.start(file));
    const kernel = await shared.get(file);
    for (const execution of executions) {
      const run = kernel.cell(execution.cell.document.getText());
      await until(() => run.count);
      execution.executionOrder = run.count;
      execution.start(Date.now());
      await execution.clearOutput();
      const { reply, stdout } = await run.done;
      const item = vscode.NotebookCellOutputItem.stdout(stdout);
      await execution.appendOutput(new vscode.NotebookCellOutput([item], { outputType: 'stream' }));
      execution.end(reply.status === 'ok', Date.now());
    }
  };
  return made;
}

exports.activate = context => {
  context.subscriptions.push(kernel(), sharedKernel());
  const server = http.createServer(async (request, response) => {
    const parts = [];
    for await (const part of request) parts.push(part);
    let answer;
    try {
      answer = { value: await eval(`(async () => { ${Buffer.concat(parts)} })()`) };
    } catch (error) {
      answer = { error: String(error?.stack ?? error) };
    }
    response.end(JSON.stringify(answer));
  });
  server.listen(0, '127.0.0.1', () => {
    const file = process.env.NB_TEST_DRIVER;
    fs.writeFileSync(`${file}.new`, String(server.address().port));
    fs.renameSync(`${file}.new`, file);
  });
  const ends = () => Promise.all([...shared.values()].map(async kernel => (await kernel).dispose()));
  context.subscriptions.push({ dispose: () => { server.close(); return ends(); } });
};
