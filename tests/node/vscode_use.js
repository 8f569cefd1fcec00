// A day with one notebook in VS Code: cells, a prompt, Stop.

const assert = require('node:assert/strict');
const { Kernel, main, nb, say } = require('./vscode');

main(async () => {
  nb('run', '-n', 't.ipynb', "agents = 'the agent was here'");
  const kernel = await Kernel.start('t.ipynb', { startup: ["settings = 'ran'"] });
  say(`ready after ${kernel.readyAfter.toFixed(0)} ms`);
  assert.equal(await kernel.run('print(agents)'), 'the agent was here\n');
  // `jupyter.runStartupCommands` are the user's own.
  assert.equal(await kernel.run('print(settings)'), 'ran\n');
  assert.equal(await kernel.run("mine = 6 * 7\nprint(mine)"), '42\n');
  assert.match(nb('run', '-n', 't.ipynb', 'print(mine)'), /^42$/m);

  // The one effect of VS Code's start-up code that is missed: with Jedi on, the first completion
  // takes seconds.
  assert.equal(await kernel.run('print(get_ipython().Completer.use_jedi)'), 'False\n');

  // What the editor asks by itself, on shell and on control.
  const { connection } = kernel;
  const { content: completed } = await connection.requestComplete({ code: 'min', cursor_pos: 3 });
  assert(completed.matches.includes('mine'), JSON.stringify(completed));
  const { content: inspected } = await connection.requestInspect({ code: 'mine', cursor_pos: 4, detail_level: 0 });
  assert(inspected.found, JSON.stringify(inspected));
  assert.deepEqual((await connection.requestCommInfo({})).content.comms, {});
  const debug = { type: 'request', seq: 1, command: 'debugInfo', arguments: {} };
  assert.equal((await connection.requestDebug(debug).done).content.success, true);

  const asks = kernel.cell("print('hello', input('who? '))");
  await asks.asks();
  assert.equal(asks.prompt.content.prompt, 'who? ');
  connection.sendInputReply({ status: 'ok', value: 'VS Code' }, asks.prompt.header);
  assert.equal((await asks.done).stdout, 'hello VS Code\n');

  const endless = kernel.cell("print('on', flush=True)\nwhile True: pass");
  await endless.prints('on');
  const took = await kernel.stop();
  assert.equal((await endless.done).reply.ename, 'KeyboardInterrupt');
  say(`interrupted in ${took.toFixed(0)} ms`);
  assert.equal(await kernel.run('print(mine)'), '42\n');
  await kernel.dispose();
  assert.match(nb('run', '-n', 't.ipynb', 'print(mine)'), /^42$/m);
});
