// Lets a test ask the workbench: it evaluates the JavaScript that is posted to it, with `vscode` in scope. The file that
// NB_TEST_DRIVER names gets its port. It also has a kernel, which makes the calls that the Jupyter extension makes: it
// prints each cell's text.
'use strict';

const fs = require('node:fs');
const http = require('node:http');
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

exports.activate = context => {
  context.subscriptions.push(kernel());
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
  context.subscriptions.push({ dispose: () => server.close() });
};
