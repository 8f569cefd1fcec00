// A person's cell behind an agent's: it waits, Stop takes it back, the next Stop ends the agent's.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { setTimeout: sleep } = require('node:timers/promises');

const { Kernel, agent, journal, main, nb, say, within } = require('./vscode');

const ENDLESS = "import time\nprint('the agent is on', flush=True)\nwhile True: time.sleep(0.01)";

// Waits until the journal says that a cell has gone to the kernel.
async function asked(request) {
  while (!journal('requested').some(({ msg_id }) => msg_id === request)) await sleep(20);
}

main(async () => {
  const kernel = await Kernel.start('t.ipynb');
  const bystander = await Kernel.start('t.ipynb');
  await kernel.run('mine = []');

  const endless = agent('run', '--as', 'claude', '--stream', '-n', 't.ipynb', ENDLESS);
  await endless.prints('the agent is on');
  const held = kernel.cell("mine.append('held')");
  // What is not a cell does not wait for one.
  const took = await kernel.stop();
  const { reply } = await held.done;
  assert.equal(reply.status, 'error');
  assert.match(reply.ename, /Interrupt/);
  say(`a held cell was taken back in ${took.toFixed(0)} ms`);
  assert.equal(endless.child.exitCode, null, `the agent's cell ended: ${endless.output}`);
  assert.deepEqual(journal('interrupted').filter(({ withdrawn }) => !withdrawn), []);

  await kernel.stop();
  await endless.ended;
  assert.match(endless.output, /KeyboardInterrupt/);
  const [stopped, ...others] = journal('interrupted').filter(({ withdrawn }) => !withdrawn);
  assert.match(stopped.by, /VS Code/);
  assert.deepEqual(others, []);
  assert.equal(await kernel.run('print(mine)'), '[]\n');

  // Without a Stop it runs when the agent's is done, and in its own order.
  const waits = agent('run', '--as', 'claude', '--stream', '-n', 't.ipynb',
    "import os\nprint('the agent is on', flush=True)\nwhile not os.path.exists('go'): pass\nmine += ['agent']");
  await waits.prints('the agent is on');
  const cells = ['one', 'two'].map(word => kernel.cell(`mine.append('${word}')\nprint(mine)`));
  fs.writeFileSync('go', '');
  const printed = await Promise.all(cells.map(async cell => (await cell.done).stdout));
  assert.deepEqual(printed, ["['agent', 'one']\n", "['agent', 'one', 'two']\n"]);
  assert.equal(await waits.ended, 0);

  // A failing cell with stop_on_error, as JupyterLab sends it, ends its own client's queue only.
  // It leaves the interpreter to the kernel's thread that receives: a cell that computes would hold that up.
  const fails = bystander.cell("import time\nprint('on', flush=True)\nwhile not os.path.exists('fail'): time.sleep(0.01)\n1 / 0",
    { stop_on_error: true });
  await fails.prints('on');
  const survives = kernel.cell("print('survived')");
  const aborted = bystander.cell("print('never')");
  // Only what is in the kernel's queue by then is aborted.
  await within(60, 'the cell is on its way to the kernel', asked(aborted.request));
  fs.writeFileSync('fail', '');
  assert.equal((await fails.done).reply.ename, 'ZeroDivisionError');
  assert.equal((await survives.done).stdout, 'survived\n');
  assert.equal((await aborted.done).reply.status, 'aborted');
  assert.match(nb('run', '-n', 't.ipynb', 'print(mine)'), /'one', 'two'/);

  await kernel.dispose();
  await bystander.dispose();
});
