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

  const asks = kernel.cell("print('hello', input('who? '))");
  await asks.asks();
  assert.equal(asks.prompt.content.prompt, 'who? ');
  kernel.connection.sendInputReply({ status: 'ok', value: 'VS Code' }, asks.prompt.header);
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
