// Three notebooks in one folder: each gets its own kernel, whatever names it.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { Kernel, main, nb, session } = require('./vscode');

main(async () => {
  for (const name of ['a', 'b']) nb('run', '-n', `${name}.ipynb`, `whose = '${name}'`);

  // By the start-up code; by the first cell where no start-up code is sent, or none is known.
  // What the user's settings run first waits for a name, and at last for none.
  const settings = { python: false, startup: ['print(1)'] };
  for (const options of [{}, { python: false }, { known: false }, settings]) {
    for (const name of ['a', 'b']) {
      const kernel = await Kernel.start(`${name}.ipynb`, options);
      assert.equal(await kernel.run('print(whose)'), `${name}\n`, JSON.stringify(options));
      await kernel.dispose();
    }
  }
  const [a, b] = [session('a.ipynb'), session('b.ipynb')];
  assert.notEqual(a.pid, b.pid);

  // By a link, and from a folder that says nothing or something else.
  fs.symlinkSync('a.ipynb', 'link.ipynb');
  const home = { folder: process.env.HOME };
  for (const [name, options] of [['link.ipynb', {}], ['a.ipynb', home], ['a.ipynb', { ...home, python: false }]]) {
    const kernel = await Kernel.start(name, options);
    assert.equal(await kernel.run('print(whose)'), 'a\n', `${name} ${JSON.stringify(options)}`);
    await kernel.dispose();
  }

  // One that has no kernel gets one of its own, which stays.
  fs.mkdirSync('deep down');
  const others = [['c.ipynb', {}], ['deep down/ö.ipynb', {}], ['deep down/1#?%&.ipynb', { python: false }]];
  for (const [name, options] of others) {
    fs.copyFileSync('a.ipynb', name);
    const kernel = await Kernel.start(name, options);
    assert.equal(await kernel.run("print('whose' in globals())"), 'False\n');
    await kernel.run('whose = __import__("os").getpid()');
    await kernel.dispose();
    const own = session(name);
    assert.match(nb('run', '-n', name, 'print(whose)'), new RegExp(`^${own.pid}$`, 'm'));
    assert(![a.pid, b.pid].includes(own.pid));
    nb('shutdown', '--force', name);
  }
  assert.deepEqual([session('a.ipynb'), session('b.ipynb')], [a, b]);
});
