// Notebooks are opened and closed again: their kernels stay, are listed, and can be ended.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const path = require('node:path');
const { Kernel, main, nb, say } = require('./vscode');

main(async () => {
  // In two projects; the spec is that of a kernel that costs little.
  const elsewhere = path.join(process.env.HOME, 'elsewhere');
  fs.mkdirSync(elsewhere);
  const document = JSON.stringify({
    cells: [], nbformat: 4, nbformat_minor: 5,
    metadata: { kernelspec: { name: 'idle-info', display_name: 'Idle info', language: 'python' } },
  });
  const notebooks = Array.from({ length: 4 }, (_, number) => {
    const notebook = path.join(number % 2 ? elsewhere : process.cwd(), `n${number}.ipynb`);
    fs.writeFileSync(notebook, document);
    return notebook;
  });

  const began = performance.now();
  const pids = new Map();
  for (const notebook of notebooks) {
    const kernel = await Kernel.start(notebook);
    pids.set(notebook, Number(await kernel.run('import os\nprint(os.getpid())')));
    await kernel.dispose();
  }
  say(`${notebooks.length} notebooks opened and closed in ${(performance.now() - began).toFixed(0)} ms`);
  assert.equal(new Set(pids.values()).size, notebooks.length);

  const alive = () => JSON.parse(nb('status', '--all', '--json')).kernels
    .map(kernel => [kernel.path, kernel.kernel_pid]).sort();
  assert.deepEqual(alive(), [...pids].sort());
  for (const notebook of notebooks) assert.equal(fs.readFileSync(notebook, 'utf8'), document);

  nb('shutdown', '--idle', '1h', '--all');
  assert.deepEqual(alive(), [...pids].sort());
  // One that somebody has joined stays.
  const [used] = notebooks;
  const kernel = await Kernel.start(used);
  nb('shutdown', '--idle', '0s', '--all');
  assert.deepEqual(alive(), [[used, pids.get(used)]]);
  await kernel.dispose();
  nb('shutdown', '--idle', '0s', '--all');
  assert.deepEqual(alive(), []);
});
