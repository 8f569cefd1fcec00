// The shared kernel dies in mid-cell, or is shut down, under a window that stays.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { Kernel, journal, main, nb, session } = require('./vscode');

main(async () => {
  const kernel = await Kernel.start('t.ipynb');
  const other = await Kernel.start('t.ipynb');
  await kernel.run('x = 1');

  for (const user of [kernel, other]) {
    const before = session('t.ipynb');
    const running = user.cell("print('on', flush=True)\nwhile True: pass");
    await running.prints('on');
    process.kill(before.pid, 'SIGKILL');
    const ended = await running.done;
    assert.equal(ended.reply.status, 'error');
    assert.match(`${ended.reply.ename} ${ended.reply.evalue}`, /kernel.*(died|ended|killed)/is);
    const [error] = ended.outputs.filter(output => output.type === 'error');
    assert.equal(error?.evalue, ended.reply.evalue);

    // Only a person's cell brings another kernel.
    const silent = await user.silently('1');
    assert.equal(silent.reply.status, 'error');
    const next = await user.cell("print('x' in globals())").done;
    assert.equal(next.stdout, 'False\n');
    assert.match(next.stderr, /variables are gone/);
    const now = session('t.ipynb');
    assert.notEqual(now.pid, before.pid);
    assert.equal(now.generation, before.generation + 1);
    // It is reported once.
    const after = await user.cell('x = 2').done;
    assert.deepEqual([after.reply.status, after.stderr], ['ok', '']);
    assert.match(nb('run', '-n', 't.ipynb', 'print(x)'), /^2$/m);
  }
  assert.equal(journal('died').length, 2);

  nb('shutdown', 't.ipynb', '--force');
  for (const user of [kernel, other]) {
    const refused = await user.cell('1').done;
    assert.equal(refused.reply.status, 'error');
    assert.match(refused.reply.evalue, /nb open/);
  }
  const status = spawnSync(process.env.NB_TEST_BINARY, ['status', 't.ipynb'], { encoding: 'utf8' });
  assert.equal(status.status, 6, status.stdout);
  await kernel.dispose();
  await other.dispose();
});
