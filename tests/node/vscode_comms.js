// Widgets' channels: VS Code closes a comm whose target it does not know, also one that is another
// client's. Only its own may go.

const assert = require('node:assert/strict');
const { Kernel, main, nb } = require('./vscode');

const OPEN = `from comm import create_comm
closed = []
opened = create_comm('somebodys.target')
opened.on_close(lambda message: closed.append('closed'))`;

main(async () => {
  const windows = [await Kernel.start('t.ipynb'), await Kernel.start('t.ipynb')];
  // Its close comes on shell before the window's next cell.
  const closed = async () => {
    for (const window of windows) await window.run('pass');
    return windows[0].run('print(closed)');
  };

  nb('run', '-n', 't.ipynb', OPEN);
  assert.equal(await closed(), '[]\n');

  // Its own: the second window, which did not ask for it, leaves it alone.
  await windows[0].run(OPEN);
  assert.equal(await closed(), "['closed']\n");

  // One that a window opens is the kernel's to close, and the window's.
  await windows[0].run(`def accept(comm, opened):
    comm.on_msg(lambda message: comm.send({'echo': message['content']['data']}))
    comm.on_close(lambda message: closed.append('by its window'))
get_ipython().kernel.comm_manager.register_target('echo', accept)`);
  const comm = windows[1].connection.createComm('echo');
  const echoed = new Promise(resolve => { comm.onMsg = message => resolve(message.content.data); });
  await comm.open({}).done;
  await comm.send({ number: 42 }).done;
  assert.deepEqual(await echoed, { echo: { number: 42 } });
  await comm.close().done;
  assert.equal(await closed(), "['closed', 'by its window']\n");

  await Promise.all(windows.map(window => window.dispose()));
});
