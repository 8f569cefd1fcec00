// JupyterLab's library, which VS Code's "Existing Jupyter Server" uses too, on the kernels of `nb web`: by URL and
// token, without a kernelspec here. Twice: with the subprotocol, and without it (JSON).

const assert = require('node:assert/strict');
const fs = require('node:fs');

const { KernelManager, KernelSpecManager, ServerConnection, SessionManager } =
  require('@jupyterlab/services');
const { agent, changed, main, nb, until, within } = require('./vscode');
const { Client, connect, settings } = require('./web_jupyter_client');

main(async () => {
  for (const subprotocol of [true, false]) await uses(settings({ subprotocol }), subprotocol);
});

async function uses(serverSettings, subprotocol) {
  const specs = new KernelSpecManager({ serverSettings });
  await within(60, 'the kernelspecs', specs.ready);
  assert.equal(specs.specs.default, 'nb-shared');
  assert.equal(specs.specs.kernelspecs['nb-shared'].language, 'python');

  const kernels = new KernelManager({ serverSettings });
  const sessions = new SessionManager({ kernelManager: kernels, serverSettings });
  await within(60, 'the sessions', sessions.ready);
  await sessions.refreshRunning();
  const models = [...sessions.running()];
  assert.deepEqual(models.map(it => [it.path, it.name, it.type]), [['t.ipynb', 't.ipynb', 'notebook']]);
  const [model] = models;
  await kernels.refreshRunning();
  assert.deepEqual([...kernels.running()].map(it => it.id), [model.kernel.id]);

  nb('run', '-n', 't.ipynb', 'theirs = 41');
  const one = await connect(sessions.connectTo({ model }));
  const two = await connect(kernels.connectTo({ model: model.kernel }));
  assert.equal(one.kernel.id, two.kernel.id);

  // Variables, in all directions.
  assert.equal(await one.run('mine = theirs + 1\nprint(mine)'), '42\n');
  assert.equal(await two.run('print(mine)'), '42\n');
  assert.match(nb('run', '-n', 't.ipynb', 'print(mine)'), /^42$/m);
  assert.match(nb('log', '-n', 't.ipynb'), /human \(Jupyter\)/);

  // A prompt, which comes to the client whose cell it is.
  const asks = one.cell("print('hello', input('who? '))");
  await asks.asks();
  assert.equal(asks.prompt.content.prompt, 'who? ');
  one.kernel.sendInputReply({ status: 'ok', value: 'VS Code' }, asks.prompt.header);
  assert.equal((await asks.done).stdout, 'hello VS Code\n');

  // Bytes in both directions.
  await one.run(`def accept(comm, opened):
    comm.on_msg(lambda message: comm.send({'size': len(message['buffers'][0])}, buffers=[bytes(message['buffers'][0])[::-1]]))
get_ipython().kernel.comm_manager.register_target('reversed', accept)`);
  const comm = one.kernel.createComm('reversed');
  const echoed = new Promise(resolve => { comm.onMsg = resolve; });
  await comm.open({}).done;
  const sent = Uint8Array.from([0, 1, 2, 254, 255]);
  await comm.send({}, {}, [sent.buffer]).done;
  const { content, buffers } = await within(60, 'the buffer', echoed);
  assert.equal(content.data.size, 5);
  const [view] = buffers;
  const received = new Uint8Array(view.buffer ?? view, view.byteOffset ?? 0, view.byteLength);
  assert.deepEqual([...received], [255, 254, 2, 1, 0]);

  // Stop ends one's own cell.
  const endless = two.cell("print('on', flush=True)\nwhile True: pass");
  await endless.prints('on');
  await two.kernel.interrupt();
  assert.equal((await endless.done).reply.ename, 'KeyboardInterrupt');

  // One's own cell that waits behind an agent's is withdrawn; the agent's goes on.
  const long = agent('run', '--stream', '-n', 't.ipynb',
    "import time\nprint('the agent is on', flush=True)\ntime.sleep(300)");
  await long.prints('the agent is on');
  // Who joins now is not kept waiting.
  const late = kernels.connectTo({ model: model.kernel });
  await within(20, 'the kernel behind a long cell', late.info);
  late.dispose();
  const held = one.cell("print('held')");
  await within(60, 'the cell is held', logged(held.request));
  await one.kernel.interrupt();
  assert.equal((await held.done).reply.status, 'error');
  assert.equal(long.child.exitCode, null, `the agent's cell ended: ${long.output}`);
  // Nothing waits: what runs is interrupted, whoever runs it.
  await one.kernel.interrupt();
  await long.ended;
  assert.match(long.output, /KeyboardInterrupt/);

  // A new kernel, for all.
  const generation = () => JSON.parse(nb('status', '--json', '-n', 't.ipynb')).sessions[0].kernel_generation;
  const before = generation();
  await within(120, 'the restart', one.kernel.restart());
  assert.equal(generation(), before + 1);
  const check = "print('mine' in globals())";
  assert.equal(await one.run(check), 'False\n');
  assert.equal(await two.run(check), 'False\n');

  // Outputs that are more than a websocket's buffers hold, in order.
  const many = await one.run("for n in range(3000): print(n, 'x' * 500)");
  assert.equal(many.split('\n').length, 3001);
  assert(many.startsWith('0 x') && many.trimEnd().split('\n').at(-1).startsWith('2999 x'));

  // Shut down here, it lives on there.
  await one.run('kept = 1');
  await sessions.shutdown(model.id);
  await kernels.shutdown(model.kernel.id);
  assert.match(nb('run', '-n', 't.ipynb', 'print(kept)'), /^1$/m);
  const { status } = await ServerConnection.makeRequest(
    `${serverSettings.baseUrl}api/kernels/${model.kernel.id}`, {}, serverSettings);
  assert.equal(status, 200);

  // The session of VS Code's, whose path has a mark.
  const opened = await sessions.startNew({
    path: 'folder/t-jvsc-0a1b.ipynb', name: 't.ipynb', type: 'notebook', kernel: { name: 'nb-shared' },
  });
  assert.equal(opened.kernel.id, model.kernel.id);
  assert.equal(opened.path, 't.ipynb');
  opened.dispose();

  assert.equal(Client.protocols.size, 1);
  assert([...Client.protocols][0] === (subprotocol ? 'v1.kernel.websocket.jupyter.org' : ''));
  Client.protocols.clear();
  for (const client of [one, two]) client.dispose();
  for (const manager of [sessions, kernels, specs]) manager.dispose();
}

// Waits for a line on this request in the proxies' log.
async function logged(request) {
  const log = '.nb/proxy.log';
  const watcher = fs.watch(log, changed);
  await until(() => fs.readFileSync(log, 'utf8').includes(request));
  watcher.close();
}
