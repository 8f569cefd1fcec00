// A real Jupyter server whose kernels are those of `nb web` (`--gateway-url`), and JupyterLab's library on that server.

const assert = require('node:assert/strict');
const { spawn } = require('node:child_process');
const crypto = require('node:crypto');
const { once } = require('node:events');
const fs = require('node:fs');
const path = require('node:path');
const readline = require('node:readline');

const { KernelManager, KernelSpecManager, ServerConnection, SessionManager } =
  require('@jupyterlab/services');
const { main, nb, within } = require('./vscode');
const { connect, settings } = require('./web_jupyter_client');

main(async () => {
  nb('run', '-n', 't.ipynb', 'theirs = 41');
  const server = await within(120, 'a server', startServer());
  const { serverSettings } = server;
  const specs = new KernelSpecManager({ serverSettings });
  await within(60, 'the kernelspecs', specs.ready);
  assert.deepEqual(Object.keys(specs.specs.kernelspecs), ['nb-shared']);

  const kernels = new KernelManager({ serverSettings });
  const sessions = new SessionManager({ kernelManager: kernels, serverSettings });
  const session = await within(60, 'a session', sessions.startNew({
    path: 't.ipynb', name: 't.ipynb', type: 'notebook', kernel: { name: 'nb-shared' },
  }));
  const client = await connect(session);
  assert.equal(await client.run('mine = theirs + 1\nprint(mine)'), '42\n');
  assert.match(nb('run', '-n', 't.ipynb', 'print(mine)'), /^42$/m);

  const asks = client.cell("print('hello', input('who? '))");
  await asks.asks();
  client.kernel.sendInputReply({ status: 'ok', value: 'JupyterLab' }, asks.prompt.header);
  assert.equal((await asks.done).stdout, 'hello JupyterLab\n');

  const endless = client.cell("print('on', flush=True)\nwhile True: pass");
  await endless.prints('on');
  await client.kernel.interrupt();
  assert.equal((await endless.done).reply.ename, 'KeyboardInterrupt');

  await within(120, 'the restart', client.kernel.restart());
  assert.equal(await client.run("print('mine' in globals())"), 'False\n');
  await client.run('kept = 1');

  await within(60, 'the end of the session', session.shutdown());
  assert.match(nb('run', '-n', 't.ipynb', 'print(kept)'), /^1$/m);
  server.process.kill('SIGTERM');
  await once(server.process, 'exit');
});

async function startServer() {
  const token = crypto.randomUUID();
  // Another folder, as on another machine.
  const folder = path.join(process.env.HOME, 'laptop');
  fs.mkdirSync(folder);
  fs.copyFileSync('t.ipynb', path.join(folder, 't.ipynb'));
  const server = spawn(process.env.NB_TEST_PYTHON, [
    '-m', 'jupyter_server', '--allow-root', '--ServerApp.ip=127.0.0.1', '--ServerApp.port=0',
    '--ServerApp.open_browser=False', `--ServerApp.root_dir=${folder}`,
    `--GatewayClient.url=${process.env.NB_WEB_URL}`,
    `--GatewayClient.auth_token=${process.env.NB_WEB_TOKEN}`,
    '--GatewayClient.allowed_envs=JPY_SESSION_NAME',
  ], { cwd: folder, env: { ...process.env, JUPYTER_TOKEN: token }, stdio: ['ignore', 'ignore', 'pipe'] });
  const lines = readline.createInterface({ input: server.stderr });
  lines.on('line', line => console.error(line));
  const url = await new Promise(resolve => lines.on('line', line => {
    const [found] = line.match(/http:\/\/127\.0\.0\.1:\d+\//) ?? [];
    if (found && found !== process.env.NB_WEB_URL) resolve(found);
  }));
  const serverSettings = settings({ url, token, subprotocol: true });
  // It tells of its port a little before it listens.
  for (let code; code !== 200;) {
    const answer = ServerConnection.makeRequest(`${url}api/status`, {}, serverSettings);
    code = await answer.then(({ status }) => status, () => undefined);
  }
  return { process: server, serverSettings };
}
