// A window joins while a long cell of an agent's runs: it is ready at once, and what it asks for
// waits in the kernel only where somebody wants to see it.

const assert = require('node:assert/strict');
const fs = require('node:fs');
const { Kernel, PROBE, agent, fingerprint, main, nb, say, setup, within } = require('./vscode');

// What the kernel tells, or VS Code's own default: without a version a first start draws no widget.
const VERSION = /^.*:IPyWidgets:8\.(1\.7)?\n$/;

main(async () => {
  // Found by the kernel, whose folder this is.
  fs.writeFileSync('ipywidgets.py', "__version__ = '8.1.7'\n");
  const before = await Kernel.start('t.ipynb');
  assert.match(before.silent.probe.stdout, VERSION);
  await before.dispose();

  const long = agent('run', '--stream', '-n', 't.ipynb',
    "import time\nprint('the agent is on', flush=True)\ntime.sleep(120)");
  await long.prints('the agent is on');
  const kernel = await within(60, 'ready', Kernel.start('t.ipynb'));
  const ready = kernel.readyAfter;
  say(`ready after ${ready.toFixed(0)} ms`);
  // The agent's takes 120 s.
  assert(ready < 60_000, `ready after ${ready} ms behind a long cell`);
  assert.match(kernel.silent.probe.stdout, VERSION);
  assert.equal(kernel.silent.setup.reply.status, 'ok');
  const info = await kernel.connection.info;
  assert.equal(info.language_info.name, 'python');
  assert.equal(long.child.exitCode, null, 'the agent was disturbed');

  nb('interrupt', '-n', 't.ipynb');
  await long.ended;
  assert.match(long.output, /KeyboardInterrupt/);
  // The set-up code did not run there: neither its module nor its variable is in the kernel.
  const traces = "import sys\nprint('vscode' in sys.modules, '__vsc_ipynb_file__' in globals())";
  assert.equal(await kernel.run(traces), 'False False\n');
  // That second question comes while the widget's own cell runs.
  const cell = kernel.cell("import time\nprint('a widget', flush=True)\ntime.sleep(1)");
  await cell.prints('a widget');
  assert.match((await kernel.silently(PROBE)).stdout, /:IPyWidgets:8\.1\.7\n$/);
  assert.equal((await cell.done).reply.status, 'ok');
  await kernel.dispose();

  // A text that is not known is the kernel's, and the log says how to make it known.
  const newer = await Kernel.start('t.ipynb', { known: false });
  assert.equal(await newer.run(traces), 'True True\n');
  await newer.dispose();
  const log = fs.readFileSync('.nb/proxy.log', 'utf8');
  assert(log.includes(fingerprint(setup('/n.ipynb'))), 'no fingerprint in proxy.log');
});
