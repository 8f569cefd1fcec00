// JupyterLab's library on a Jupyter server: a notebook is opened, and used, while a long cell of an
// agent's runs on its kernel.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const crypto = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const readline = require('node:readline');
const { setTimeout: sleep } = require('node:timers/promises');

const { KernelManager, KernelSpecManager, ServerConnection, SessionManager } =
  require('@jupyterlab/services');
const { agent, main, say, within } = require('./vscode');

main(async () => {
  const server = await within(180, 'a server', startServer());
  const { settings } = server;
  const specs = new KernelSpecManager({ serverSettings: settings });
  await specs.ready;
  assert(specs.specs.kernelspecs['nb-shared'], 'the server has no such kernelspec');

  const kernels = new KernelManager({ serverSettings: settings });
  const sessions = new SessionManager({ kernelManager: kernels, serverSettings: settings });
  const start = () => within(60, 'a session', sessions.startNew({
    path: 't.ipynb', name: 't.ipynb', type: 'notebook', kernel: { name: 'nb-shared' },
  }));
  // The first one is the server's to be slow with: it loads what it needs only then.
  await (await start()).shutdown();

  const long = agent('run', '--stream', '-n', 't.ipynb',
    "import time\nprint('the agent is on', flush=True)\ntime.sleep(120)");
  await long.prints('the agent is on');

  const began = performance.now();
  const session = await start();
  const info = await within(60, 'the kernel', session.kernel.info);
  const took = performance.now() - began;
  say(`ready after ${took.toFixed(0)} ms`);
  // The agent's takes 120 s.
  assert(took < 60_000, `ready after ${took} ms behind a long cell`);
  assert.equal(info.language_info.name, 'python');
  assert.equal(long.child.exitCode, null, 'the agent was disturbed');

  // Stop comes as another of the server's clients than the cell that it is for.
  const held = session.kernel.requestExecute({ code: "print('held')" });
  await within(60, 'the cell is held', logged(held.msg.header.msg_id));
  await session.kernel.interrupt();
  assert.equal((await within(60, 'the held cell', held.done)).content.status, 'error');
  assert.equal(long.child.exitCode, null, `the agent's cell ended: ${long.output}`);
  await session.kernel.interrupt();
  await long.ended;
  assert.match(long.output, /KeyboardInterrupt/);
  const future = session.kernel.requestExecute({ code: "print('here')" });
  let text = '';
  future.onIOPub = message => { text += message.content.text ?? ''; };
  assert.equal((await within(60, 'a cell', future.done)).content.status, 'ok');
  assert.equal(text, 'here\n');

  await session.shutdown();
  server.process.kill('SIGTERM');
  await once(server.process, 'exit');
});

// Waits for a line on this request in the proxies' log.
async function logged(request) {
  while (!fs.readFileSync('.nb/proxy.log', 'utf8').includes(request)) await sleep(20);
}

async function startServer() {
  const token = crypto.randomUUID();
  const server = spawn(process.env.NB_TEST_PYTHON, [
    '-m', 'jupyter_server', '--allow-root', '--ServerApp.ip=127.0.0.1', '--ServerApp.port=0',
    '--ServerApp.open_browser=False', `--ServerApp.root_dir=${process.cwd()}`,
  ], { env: { ...process.env, JUPYTER_TOKEN: token }, stdio: ['ignore', 'ignore', 'pipe'] });
  const lines = readline.createInterface({ input: server.stderr });
  const baseUrl = await new Promise(resolve => lines.on('line', line => {
    const [url] = line.match(/http:\/\/127\.0\.0\.1:\d+\//) ?? [];
    if (url) resolve(url);
  }));
  const settings = ServerConnection.makeSettings({ baseUrl, token, appendToken: true });
  // It tells of its port a little before it listens.
  for (let code; code !== 200;) {
    const answer = ServerConnection.makeRequest(`${baseUrl}api/status`, {}, settings);
    code = await answer.then(({ status }) => status, () => undefined);
  }
  return { process: server, settings };
}
