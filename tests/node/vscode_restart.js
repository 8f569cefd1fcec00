// Restart in VS Code restarts the shared kernel, once; what looks like it restarts nothing.

const assert = require('node:assert/strict');
const { Kernel, agent, journal, main, nb, say, session } = require('./vscode');

main(async () => {
  const first = session('t.ipynb');
  // Two windows at once.
  const [kernel, other] = await Promise.all([Kernel.start('t.ipynb'), Kernel.start('t.ipynb')]);
  assert.equal(await kernel.run("x = 'of the first life'\nprint(x)"), 'of the first life\n');
  assert.equal(await other.run('print(x)'), 'of the first life\n');

  const running = other.cell("print('on', flush=True)\nwhile True: pass");
  await running.prints('on');
  let now = await restarts(kernel, first, {});
  assert.equal((await running.done).reply.ename, 'KernelRestarted');
  const next = await other.cell("print('x' in globals())").done;
  assert.equal(next.stdout, 'False\n');
  assert.match(next.stderr, /restarted .* by human \(VS Code\)/);
  // The next process is there before the last is told to go: both happen, nobody waits for either.
  now = await restarts(kernel, now, { late: true });

  // A window that is reloaded or closed and opened again is another client.
  await kernel.run("x = 'kept'");
  await kernel.dispose();
  const reloaded = await Kernel.start('t.ipynb');
  assert.equal(await reloaded.run('print(x)'), 'kept\n');
  // So is one whose kernel was changed, away and back; its new process does not wait for the old.
  const [, back] = await Promise.all([reloaded.dispose(), Kernel.start('t.ipynb')]);
  assert.equal(await back.run('print(x)'), 'kept\n');
  assert.deepEqual(session('t.ipynb'), now);

  // An agent whose cell a person's Restart ends gets a message.
  const busy = agent('run', '--stream', '-n', 't.ipynb',
    "import time\nprint('the agent is on', flush=True)\nwhile True: time.sleep(0.01)");
  await busy.prints('the agent is on');
  now = await restarts(back, now, {});
  await busy.ended;
  assert.match(busy.output, /restarted by human \(VS Code\)/);

  // After a death it is a restart all the same.
  process.kill(now.pid, 'SIGKILL');
  now = await restarts(back, now, {});
  assert.deepEqual(journal('restarted').map(({ by }) => by), Array(4).fill('human (VS Code)'));

  // Whoever wants it keeps the kernel.
  const keeper = await Kernel.start('t.ipynb', { environment: { NB_ON_RESTART: 'keep' } });
  await keeper.run("x = 'kept again'");
  await keeper.restart();
  assert.equal(await keeper.run('print(x)'), 'kept again\n');
  assert.deepEqual(session('t.ipynb'), now);

  await Promise.all([other, back, keeper].map(window => window.dispose()));
  assert.match(nb('run', '-n', 't.ipynb', 'print(x)'), /^kept again$/m);
  assert.deepEqual(session('t.ipynb'), now);
});

// Restarts; the shared kernel is another then, and only one life older.
async function restarts(kernel, before, how) {
  const { code, signal } = await kernel.restart(how);
  say(`ready again after ${kernel.readyAfter.toFixed(0)} ms; the old proxy: ${code ?? signal}`);
  assert.equal(await kernel.run("print('x' in globals())"), 'False\n');
  const now = session('t.ipynb');
  assert.equal(now.generation, before.generation + 1);
  assert.notEqual(now.pid, before.pid);
  return now;
}
