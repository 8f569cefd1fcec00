// A window of VS Code that runs one cell, whose output it expects, and is closed. The kernel stays.
//
//     node vscode_cell.js NOTEBOOK CODE OUTPUT

const assert = require('node:assert/strict');
const { Kernel, main } = require('./vscode');

main(async () => {
  const [notebook, code, output] = process.argv.slice(2);
  const kernel = await Kernel.start(notebook);
  assert.equal(await kernel.run(code), output);
  await kernel.dispose();
});
