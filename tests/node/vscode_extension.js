// nb's extension for VS Code against a real nb and a real kernel, in a stand-in of VS Code. The first word names the
// part.

const assert = require('node:assert/strict');
const { spawnSync } = require('node:child_process');
const { once } = require('node:events');
const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');
const { agent, journal, main, nb, until: arrives, within } = require('./vscode');
const editor = require('./vscode_stand_in');

const { recorded, until } = editor;
const SOURCES = process.env.NB_TEST_EXTENSION;
const load = Module._load;
Module._load = (name, ...rest) => (name === 'vscode' ? editor.vscode : load(name, ...rest));

const claude = (...words) => nb('--as', 'claude', ...words);

// Activates the extension, with an nb on PATH that is not in the workspace.
function activate() {
  const bin = path.join(process.env.TMPDIR, 'bin');
  fs.mkdirSync(bin, { recursive: true });
  if (!fs.existsSync(path.join(bin, 'nb'))) fs.symlinkSync(process.env.NB_TEST_BINARY, path.join(bin, 'nb'));
  // A stranger's workspace may have one of its own, and name it.
  const stranger = path.resolve('bin');
  fs.mkdirSync(stranger);
  fs.writeFileSync(path.join(stranger, 'nb'), '#!/bin/sh\ntouch ran-a-program-of-the-workspace\n', { mode: 0o755 });
  editor.settings.workspace = path.join(stranger, 'nb');
  process.env.PATH = [stranger, 'bin', bin, process.env.PATH].join(':');
  const context = editor.context();
  const extension = require(path.join(SOURCES, 'extension.js')).activate(context);
  return { context, extension };
}

async function end({ context }) {
  for (const each of context.subscriptions) each.dispose();
  // Also one that is still being started: its process would outlive the window.
  for (const kernel of await Promise.all(editor.jupyter.starting)) await kernel.dispose();
  assert(!fs.existsSync('ran-a-program-of-the-workspace'));
  assert.deepEqual(recorded.messages.filter(it => it.kind === 'error'), []);
}

// Adds cells as an agent; their ids.
function cells(...sources) {
  for (const source of sources) claude('insert', 't.ipynb', source);
  return JSON.parse(fs.readFileSync('t.ipynb')).cells.map(cell => cell.id);
}

const SIX = ['one', 'two', 'three', 'four', 'five', 'six'].map(name => `print('${name}')`);

// The person's Run All in the first cells; `sent` is the code that was sent.
function firstCells(notebook, count = 6) {
  const kernel = editor.kernels.get(notebook.uri.fsPath);
  const sent = [];
  const send = code => {
    sent.push(code);
    const cell = kernel.cell(code);
    const outputs = async () => [{ output_type: 'stream', name: 'stdout', text: (await cell.done).stdout }];
    return { begins: within(60, code, arrives(() => cell.count)).then(() => cell.count), ends: outputs() };
  };
  return { sent, runAll: () => notebook.run(notebook.getCells().slice(0, count), send) };
}

const inFile = () => JSON.parse(fs.readFileSync('t.ipynb')).cells;

// What `nb live` knows.
function record() {
  try {
    const [name] = fs.readdirSync('.nb/live').filter(it => it.endsWith('.json'));
    return name && JSON.parse(fs.readFileSync(path.join('.nb/live', name)));
  } catch {
    return undefined; // it is not there yet, or not any more
  }
}

// Waits until these texts are known to be unsaved.
const reported = (...texts) => becomes(() => {
  const found = record()?.notebooks[0]?.cells.map(it => it.source);
  return found && JSON.stringify(found) === JSON.stringify(texts);
});

// For what no event tells: a file, or a look that the extension repeats.
const becomes = async condition => { while (!condition()) await sleep(20); };

const status = text => until(`the status bar shows ${text}`, () => recorded.status?.text.includes(text) && recorded.status);
// A cell may be replaced while its mark is awaited.
const mark = (notebook, at, text) => until(`a mark ${text}`,
  () => editor.marks(notebook.getCells()[at]).some(it => it.includes(text)));

const parts = {
  // A notebook of the project is opened on the shared kernel, once; another one by the command.
  async shares() {
    claude('run', '-n', 't.ipynb', "agents = 'the agent was here'");
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await until('the kernel is chosen', () => recorded.chosen.length === 1);
    assert.equal(recorded.chosen[0].name, 'nb-shared');
    const kernel = editor.kernels.get(notebook.uri.fsPath);
    assert.equal(await kernel.run('print(agents)'), 'the agent was here\n');
    await until('it is remembered', () => running.context.memory.get(`nb.chosen ${notebook.uri}`));

    // No kernel yet: the extension does nothing by itself.
    nb('open', 'b.ipynb', '--no-kernel');
    const other = editor.open('b.ipynb');
    await until('its status was read', () => recorded.status === undefined);
    assert.equal(recorded.chosen.length, 1);
    await editor.vscode.commands.executeCommand('nb.share');
    assert.deepEqual(recorded.chosen.map(it => path.basename(it.file)), ['t.ipynb', 'b.ipynb']);
    await editor.kernels.get(other.uri.fsPath).run("mine = 'from the window'");
    assert.match(nb('run', '-n', 'b.ipynb', 'print(mine)'), /from the window/);

    // What is chosen later stays: the extension does not choose again.
    editor.show(notebook);
    await status('idle');
    claude('run', '-n', 't.ipynb', '1 + 1');
    await until('the run is over', () => journal('done').length >= 4);
    await status('idle');
    assert.equal(recorded.chosen.length, 2);
    await end(running);
  },

  // The status bar and the cells show an agent's run and its edit; Interrupt ends the run.
  async shows() {
    const [first, second] = cells('x = 1', "import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)");
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await status('idle');
    const long = agent('--as', 'claude', 'exec', '-n', 't.ipynb', second, '--stream');
    const shown = await status('claude · cell 1 · 0:0');
    assert.equal(shown.command, 'nb.show');
    assert.match(shown.tooltip, /^nb: claude runs cell 1, "import time", in t\.ipynb since \d\d:/);
    await editor.vscode.commands.executeCommand('nb.show');
    assert.deepEqual(recorded.revealed, [1]);
    assert.equal(recorded.stop.command, 'nb.interrupt');
    await mark(notebook, 1, 'claude runs this');
    assert.deepEqual(editor.marks(notebook.getCells()[0]).filter(it => it.includes('runs')), []);
    await long.prints('on');

    // A no to the question leaves it running.
    editor.answers.push(undefined, 'Interrupt');
    await editor.vscode.commands.executeCommand('nb.interrupt');
    assert.match(recorded.messages.at(-1).text, /^claude runs cell 1, "import time", since .* Interrupt it\?$/);
    assert.equal(journal('interrupted').length, 0);
    await editor.vscode.commands.executeCommand('nb.interrupt');
    await long.ended;
    const [interrupted] = journal('interrupted');
    assert.equal(interrupted.by, 'human (VS Code)');
    await status('idle');
    assert.equal(recorded.stop, undefined);
    // Its insertion, before the window, says more than the run.
    await mark(notebook, 1, 'claude inserted this');
    nb('--as', 'human', 'exec', '-n', 't.ipynb', first);
    await until('no mark', () => !editor.marks(notebook.getCells()[0]).length);
    claude('exec', '-n', 't.ipynb', first);
    await mark(notebook, 0, 'claude ran this');

    claude('edit', 't.ipynb', first, 'x = 2');
    await mark(notebook, 0, 'claude edited this');
    // Its difference, and back.
    const press = async title => {
      const { command } = editor.items(notebook.getCells()[0]).find(it => it.text === title);
      await editor.vscode.commands.executeCommand(command.command, ...command.arguments);
    };
    await press('difference');
    await until('the difference is shown', () => recorded.diffs.length === 1);
    assert.deepEqual([recorded.diffs[0].left, recorded.diffs[0].right], ['x = 1', 'x = 2']);
    assert.match(recorded.diffs[0].title, /^claude edited this · \d\d:/);
    await press('undo');
    await until('the edit is taken back', () => notebook.getCells()[0].text === 'x = 1');
    // What the person does to a cell takes its mark away.
    await until('no mark', () => !editor.marks(notebook.getCells()[0]).length);
    claude('edit', '--force', 't.ipynb', first, 'x = 2');
    await mark(notebook, 0, 'claude edited this');
    notebook.type(0, 'x = 3');
    await until('no mark', () => !editor.marks(notebook.getCells()[0]).length);
    await notebook.save();

    // A process that was killed is begun again.
    const { connection: live } = running.extension.editor.live;
    const { pid } = live.child;
    process.kill(pid, 'SIGKILL');
    await until('another process follows', () => live.child && live.child.pid !== pid && live.failures === 0);
    claude('edit', '--force', 't.ipynb', first, 'x = 4');
    await mark(notebook, 0, 'claude edited this');

    editor.answers.push(0);
    await editor.vscode.commands.executeCommand('nb.log');
    const [picks] = recorded.picks;
    assert(picks[0].label.startsWith('edited ') && picks[0].description.startsWith('claude'), JSON.stringify(picks));
    assert(picks.some(it => /^ran cell 1 · "import time": (error|interrupted)$/.test(it.label)), JSON.stringify(picks));
    assert.deepEqual(recorded.revealed, [1, 0]);
    await until('the difference is shown', () => recorded.diffs.length === 2);
    await end(running);
  },

  // With the setting, cells that are out of date are marked until they have run again.
  async stale() {
    cells('x = 1', 'y = x', 'z = 1', 'never = 1');
    claude('exec', '-n', 't.ipynb', '0', '1', '2');
    const running = activate();
    const notebook = editor.open('t.ipynb');
    claude('edit', 't.ipynb', '0', 'x = 2');
    await mark(notebook, 0, 'claude edited this');
    const marked = () => notebook.getCells().map(cell => editor.items(cell).find(it => it.text.endsWith('stale'))?.tooltip);
    assert.deepEqual(marked(), [undefined, undefined, undefined, undefined]);

    const sets = value => {
      editor.settings.staleMarks = value;
      editor.events.configuration.fire({ affectsConfiguration: name => name === 'nb.staleMarks' });
    };
    sets(true);
    await until('two cells are stale', () => marked().filter(Boolean).length === 2);
    const [first, second] = marked();
    assert.equal(first, 'edited since it ran');
    assert.match(second, /^\w+, which defines x, is stale$/);
    nb('--as', 'human', 'exec', '-n', 't.ipynb', '0');
    await until('the first one is not', () => !marked()[0] && marked()[1]);
    sets(false);
    await until('no mark', () => !marked().some(Boolean));
    await status('idle');
    await end(running);
  },

  // A run that began before the window is shown, with its end.
  async began_before() {
    cells("import time\nprint('on', flush=True)\nfor _ in range(600): time.sleep(0.1)");
    const long = agent('--as', 'claude', 'exec', '-n', 't.ipynb', '--all', '--stream');
    await long.prints('on');
    const running = activate();
    editor.open('t.ipynb');
    await status('claude · cell 0 · ');
    claude('interrupt', 't.ipynb');
    await long.ended;
    await status('idle');
    await end(running);
  },

  // A tab with unsaved outputs and text gets what an agent writes: nothing is replaced, and Save asks nothing.
  async takes_in() {
    const [, second, third] = cells('print(1)', 'y = 1', 'z = 1');
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await within(60, 'the notebook is reported', reported());
    notebook.prints(0, 'only in the tab', 7);
    notebook.type(0, 'print(1, "typed")');
    await within(60, 'the text is reported', reported('print(1, "typed")'));
    const [cell] = notebook.getCells();
    claude('edit', 't.ipynb', second, 'y = 2');
    claude('insert', 't.ipynb', '# new', '--type', 'markdown', '--at', '0');
    claude('rm', 't.ipynb', third);
    const texts = ['# new', 'print(1, "typed")', 'y = 2'];
    await until('the tab has it', () => String(notebook.getCells().map(it => it.text)) === String(texts));
    assert.equal(notebook.getCells()[1], cell);
    assert.equal(notebook.printed(1), 'only in the tab');
    assert.deepEqual(recorded.replaced, ['z = 1']);
    assert.equal(await notebook.save(), true);
    assert.equal(recorded.asked, 0);
    assert.deepEqual(inFile().map(it => it.source.join('')), texts);
    assert.deepEqual(inFile().map(it => it.execution_count), [undefined, 7, null]);
    assert.deepEqual(recorded.messages, []);
    await end(running);
  },

  // Two texts of one cell stand at the cell until the person chooses.
  async conflicts() {
    cells('a = 1', 'b = 1');
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await within(60, 'the notebook is reported', reported());
    const text = at => notebook.getCells()[at].text;
    const marked = () => editor.items(notebook.getCells()[0]).filter(it => it.alignment === 1);
    // Another program does not ask whether somebody types.
    const writes = source => {
      const file = JSON.parse(fs.readFileSync('t.ipynb'));
      Object.assign(file.cells[0], { source: [source] });
      fs.writeFileSync('t.ipynb.new', JSON.stringify(file));
      // The system's time of a file is some milliseconds behind the one of a save.
      fs.utimesSync('t.ipynb.new', new Date(), new Date());
      fs.renameSync('t.ipynb.new', 't.ipynb');
    };
    for (const [keep, result] of [['mine', 'a = "mine"'], ['theirs', 'a = "theirs"'], ['both', 'a = "mine"\na = "theirs"']]) {
      writes('a = 1');
      const { live } = running.extension.editor;
      const known = () => [...live.known.get(String(notebook.uri)).cells.values()][0].source;
      await within(60, 'the tab has it', becomes(() => text(0) === 'a = 1' && !notebook.isDirty && known() === 'a = 1'));
      notebook.type(0, 'a = "mine"');
      await within(60, 'the text is reported', reported('a = "mine"'));
      writes('a = "theirs"');
      await until('the person is told', () => marked().length === 5);
      assert.equal(marked()[0].text, '$(warning) another program changed these lines:');
      assert.equal(text(0), 'a = "mine"');
      assert.equal(await notebook.save(), false, 'VS Code asks');
      const { command } = marked().find(it => it.text === keep);
      await editor.vscode.commands.executeCommand(command.command, ...command.arguments);
      await until('it is settled', () => !marked().length && text(0) === result);
      assert.equal(await notebook.save(), true);
      await within(60, 'the file has it', becomes(() => inFile()[0].source.join('') === result));
    }
    assert.deepEqual(recorded.messages, []);
    assert.deepEqual(recorded.replaced, []);

    // The person overwrites; what is lost is offered once.
    notebook.type(0, 'a = "over"');
    await within(60, 'the text is reported', reported('a = "over"'));
    writes('a = "theirs again"');
    await until('the person is told', () => marked().length === 5);
    editor.answers.push('Bring it back');
    assert.equal(await notebook.save({ overwrites: true }), true);
    await until('it is there', () => text(0) === 'a = "over"\na = "theirs again"');
    assert.deepEqual(recorded.messages.map(it => it.text), ['nb: your save has replaced what another program wrote in cell 0']);
    await end(running);
  },

  // Run All beside an agent's cell, in a tab whose unsaved changes are outputs: each cell runs, and the counts agree.
  async run_all() {
    const ids = cells(...SIX, "import os, time\nprint('on', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)");
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await until('the kernel is chosen', () => recorded.chosen.length === 1);
    const { sent, runAll } = firstCells(notebook);
    await runAll();
    const long = agent('--as', 'claude', 'exec', '-n', 't.ipynb', ids[6], '--stream');
    await long.prints('on');
    const again = runAll();
    await status('human (VS Code) waits with cell 0');
    fs.writeFileSync('go', '');
    await Promise.all([again, long.ended]);
    assert.deepEqual(sent, [...SIX, ...SIX]);
    assert.deepEqual(recorded.dropped, []);
    const agents = () => notebook.getCells()[6];
    await until("the agent's outputs are in the tab", () => agents().executionSummary.executionOrder === 7);
    assert.match(notebook.printed(6), /on/);
    assert.match(notebook.printed(0), /one/);
    assert.equal(await notebook.save(), true);
    const saved = JSON.parse(fs.readFileSync('t.ipynb')).cells.map(cell => cell.execution_count);
    assert.deepEqual(saved, notebook.getCells().map(cell => cell.executionSummary.executionOrder));
    assert.deepEqual(saved, [8, 9, 10, 11, 12, 13, 7]);
    await end(running);
  },

  // The same in a tab without unsaved changes, which VS Code would reload by itself: nothing is written in mid-run.
  async run_all_saved() {
    editor.settings.autoSave = true;
    const prints = "while not os.path.exists('go'): print('on', flush=True); time.sleep(0.05)";
    const ids = cells(...SIX, `import os, time\n${prints}\nprint('over')`);
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await until('the kernel is chosen', () => recorded.chosen.length === 1);
    const { sent, runAll } = firstCells(notebook);
    await runAll();
    // The tab has unsaved changes a moment after the run's end, until they are saved.
    await new Promise(resolve => { setImmediate(() => setImmediate(resolve)); });
    await until('the tab is saved', () => !notebook.isDirty);
    const before = fs.readFileSync('t.ipynb', 'utf8');
    const long = agent('--as', 'claude', 'exec', '-n', 't.ipynb', ids[6], '--stream');
    await long.prints('on');
    const again = runAll();
    await status('human (VS Code) waits');
    assert.equal(fs.readFileSync('t.ipynb', 'utf8'), before);
    fs.writeFileSync('go', '');
    await Promise.all([again, long.ended]);
    assert.deepEqual(recorded.dropped, []);
    assert.deepEqual(sent, [...SIX, ...SIX]);
    await until("the agent's outputs are in the tab", () => notebook.printed(6).includes('over'));
    await until('the tab is saved', () => !notebook.isDirty);
    const saved = () => inFile().map(cell => cell.execution_count);
    await within(60, 'the file has it', becomes(() => String(saved()) === '8,9,10,11,12,13,7'));
    assert.match(JSON.stringify(inFile()[6].outputs), /over/);
    assert.equal(recorded.asked, 0);
    await end(running);
  },

  // Beside a person's cells that wait and run, in a tab that was saved meanwhile: what an agent's run has printed, and what
  // it edits, is in the file and in the tab at once.
  async beside_run() {
    const waitsFor = name => `import os, time\nwhile not os.path.exists('${name}'): time.sleep(0.01)\nprint('${name}')`;
    const ids = cells(waitsFor('mine'), "print('two')", 'x = 1', `print('on', flush=True)\n${waitsFor('agents')}`);
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await until('the kernel is chosen', () => recorded.chosen.length === 1);
    await status('idle');
    const long = agent('--as', 'claude', 'exec', '-n', 't.ipynb', ids[3], '--stream');
    await long.prints('on');
    const { runAll } = firstCells(notebook, 2);
    const both = runAll();
    await status('human (VS Code) waits with cell 0');
    notebook.type(2, 'x = 2');
    await within(60, 'the text is reported', reported('x = 2'));
    await notebook.save();
    fs.writeFileSync('agents', '');
    await long.ended;
    assert.match(JSON.stringify(inFile()[3].outputs), /agents/);
    assert.match(notebook.printed(3), /agents/);
    const [mine] = notebook.getCells();
    await until('the cell runs', () => notebook.requests.get(mine) === 'runs');
    await agent('--as', 'claude', 'insert', 't.ipynb', 'y = 1', '--at', '4').ended;
    assert.equal(inFile()[4].source.join(''), 'y = 1');
    assert.equal(notebook.getCells()[4].text, 'y = 1');
    assert.deepEqual([...notebook.requests.values()], ['runs', 'waits']);
    fs.writeFileSync('mine', '');
    await both;
    assert.deepEqual(recorded.dropped, []);
    assert.equal(await notebook.save(), true);
    assert.equal(recorded.asked, 0);
    assert.deepEqual(inFile().map(cell => cell.execution_count), [2, 3, null, 1, null]);
    assert.match(JSON.stringify(inFile()[3].outputs), /agents/);
    await end(running);
  },

  // The window and its notebook come first, then `nb open` makes a project above the notebook's folder.
  async appears() {
    fs.mkdirSync('../later/deep', { recursive: true });
    const file = '../later/deep/n.ipynb';
    fs.writeFileSync(file, JSON.stringify({ cells: [], metadata: {}, nbformat: 4, nbformat_minor: 5 }));
    const running = activate();
    const notebook = editor.open(file);
    nb('open', '../later/other.ipynb', '--no-kernel');
    await within(60, 'the project is found', becomes(() => running.extension.editor.open.size === 1));
    claude('insert', file, 'x = 1');
    editor.fileChanged(file);
    await mark(notebook, 0, 'claude inserted this');
    await end(running);
  },

  // There is a project and no nb: one message, with a button.
  async asks() {
    fs.mkdirSync(path.join(process.env.TMPDIR, 'empty'));
    Object.assign(process.env, { PATH: '/usr/bin:/bin', HOME: path.join(process.env.TMPDIR, 'empty') });
    delete process.env.XDG_DATA_HOME;
    editor.answers.push('Set nb.path');
    const context = editor.context();
    require(path.join(SOURCES, 'extension.js')).activate(context);
    const running = { context };
    editor.open('t.ipynb');
    await until('the person is asked', () => recorded.messages.length === 1 && recorded.settings);
    assert.match(recorded.messages[0].text, /the program nb was not found/);
    assert.equal(recorded.settings, 'nb.path');
    fs.copyFileSync('t.ipynb', 'b.ipynb');
    editor.open('b.ipynb');
    assert.equal(recorded.messages.length, 1);
    await end(running);
  },

  // What a person has just typed keeps an agent from an edit of that cell, and of no other one, until it is saved.
  async reports() {
    const [first, second] = cells('x = 1', 'y = 1');
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await within(60, 'the notebook is reported', reported());
    assert.equal(record().editor, 'VS Code');
    notebook.type(0, 'x = 1\ntyped = 1');
    await within(60, 'the text is reported', reported('x = 1\ntyped = 1'));
    const edit = (cell, text) => spawnSync(process.env.NB_TEST_BINARY, ['--as', 'claude', 'edit', 't.ipynb', cell, text], { encoding: 'utf8' });
    const refused = edit(first, 'x = 2');
    assert.equal(refused.status, 5, refused.stderr);
    assert.match(refused.stderr, /VS Code has unsaved text of the cell/);
    await notebook.save();
    await within(60, 'the save is reported', reported());
    claude('cell', 't.ipynb', first);
    assert.equal(edit(first, 'x = 2').status, 0);
    assert.equal(edit(second, 'y = 2').status, 0);
    editor.close(notebook);
    await within(60, 'the end is reported', becomes(() => !record()));
    await end(running);
  },

  // Unsaved text stays the person's when `nb live` was killed, and when the window is loaded again.
  async restores() {
    const [, second] = cells('x = 1', 'y = 1');
    const running = activate();
    const notebook = editor.open('t.ipynb');
    await within(60, 'the notebook is reported', reported());
    notebook.type(0, 'x = 2');
    await within(60, 'the text is reported', reported('x = 2'));
    const stamp = () => running.context.memory.get(`nb.synced ${notebook.uri}`);
    const gets = async source => {
      const before = stamp();
      claude('edit', '--force', 't.ipynb', second, source);
      await until('the edit is there', () => notebook.getCells()[1].text === source && stamp() !== before);
      assert.deepEqual(editor.items(notebook.getCells()[0]).filter(it => it.alignment === 1), []);
      assert.deepEqual([notebook.getCells()[0].text, notebook.isDirty], ['x = 2', true]);
    };
    const { connection: live } = running.extension.editor.live;
    const { pid } = live.child;
    process.kill(pid, 'SIGKILL');
    await until('another process follows', () => live.child && live.child.pid !== pid && live.failures === 0);
    await gets('y = 2');
    // The window is loaded again; meanwhile an agent edits.
    const closed = once(live.child, 'close');
    for (const each of running.context.subscriptions.splice(0)) each.dispose();
    await closed;
    [notebook.isDirty, notebook.isRestored] = [false, true];
    claude('edit', 't.ipynb', second, 'y = 3');
    require(path.join(SOURCES, 'extension.js')).activate(running.context);
    await until('the edit is there', () => notebook.getCells()[1].text === 'y = 3');
    assert.equal(notebook.getCells()[0].text, 'x = 2');
    await gets('y = 4');
    await end(running);
  },

  // The parts that know neither VS Code nor a process.
  async pure() {
    const from = name => require(path.join(SOURCES, name));
    const { duration, logLine, nameOf, plain, waits, what, whatWhole, who } = from('words.js');
    assert.equal(plain('a\u202e\u0000$(zap)\n b', 40), 'a (zap)  b');
    // No name is drawn as an icon or a link, and none has hidden characters: marks of direction, tags, fillers.
    const odd = ['$(bug)', '$$(bug)', '$\u0007$(bug)', '$\u200b(bug)', '[a](command:b)', '[a]\u2060(command:b)',
      'x\u200fy', 'x\u061cy', 'x\u{e0041}y', 'x\u3164y', 'x\ud800y'];
    const shown = odd.flatMap(text => [
      who(text), what({ line: text }), whatWhole({ index: 1, line: text }), waits([{ by: text, line: text }]),
      nameOf(`/w/${text}.ipynb`),
      ...Object.values(logLine({ event: 'edited', by: text, changes: [{ what: text, cell: 'c' }] }, () => -1)),
      ...Object.values(logLine({ event: 'edited', by: text, changes: [{ what: text, cell: text }] }, () => 0)).slice(0, 2),
      ...Object.values(logLine({ event: 'kernel', by: text, kernel: text }, () => -1)),
    ]);
    const hidden = /\$\(|\]\(|[\p{Cc}\p{Cf}\p{Cs}\p{Default_Ignorable_Code_Point}]/u;
    assert.deepEqual(shown.filter(text => hidden.test(text)), []);
    assert.equal(who('[$$(bug)](x)'), '[(bug)] (x)');
    assert.equal(plain('x'.repeat(50), 10), `${'x'.repeat(9)}…`);
    assert.equal(what({ line: 'y = 1' }), '"y = 1"');
    assert.equal(what({ index: 3, line: 'y = 1' }), 'cell 3');
    assert.equal(whatWhole({ index: 3, line: 'y = 1' }), 'cell 3, "y = 1",');
    assert.deepEqual([0, 7400, 61_000, 3_723_000, NaN, -5].map(duration), ['0:00', '0:07', '1:01', '1:02:03', '0:00', '0:00']);

    const { pause } = from('process.js');
    assert.deepEqual([0, 1, 5, 6, 99].map(pause), [1000, 2000, 32000, 60000, 60000]);

    const { find, isBelow, projectOf } = from('nb.js');
    assert(isBelow('/w', '/w/..a/b') && isBelow('/w', '/w') && !isBelow('/w', '/wx') && !isBelow('/w', '/'));
    const bin = path.resolve('tools');
    fs.mkdirSync(bin);
    fs.writeFileSync(path.join(bin, 'nb'), '', { mode: 0o755 });
    assert.equal(find({ PATH: `tools:${bin}`, folders: [] }), path.join(bin, 'nb'));
    assert.equal(find({ PATH: bin, folders: [process.cwd()] }), undefined);
    const link = path.join(process.env.TMPDIR, 'link');
    fs.symlinkSync(bin, link);
    assert.equal(find({ PATH: link, folders: [process.cwd()] }), undefined, 'a link into the workspace');
    assert.equal(find({ set: 'nb', PATH: bin, folders: [] }), undefined, 'a relative setting');
    assert.equal(find({ set: path.join(bin, 'nb'), folders: [] }), path.join(bin, 'nb'));
    const home = path.join(process.env.TMPDIR, 'home');
    fs.mkdirSync(path.join(home, '.cargo/bin'), { recursive: true });
    fs.symlinkSync(process.env.NB_TEST_BINARY, path.join(home, '.cargo/bin/nb'));
    assert.equal(find({ PATH: '/nowhere', home, folders: [] }), path.join(home, '.cargo/bin/nb'));
    // The one that `nb serve` has linked is the user's own choice, also if it is in a folder of the workspace.
    fs.mkdirSync(path.join(home, '.local/share/nb/bin'), { recursive: true });
    const linked = path.join(home, '.local/share/nb/bin/nb');
    fs.symlinkSync(path.join(bin, 'nb'), linked);
    assert.equal(find({ PATH: '/nowhere', home, folders: [process.cwd()] }), linked);
    assert.equal(find({ PATH: '/nowhere', data: path.join(home, '.local/share'), folders: [] }), linked);
    assert.equal(find({ PATH: '/nowhere', home, folders: [home] }), undefined, 'a home folder that is the workspace');
    assert.equal(projectOf(path.resolve('t.ipynb')), undefined);


    const { Activity } = from('activity.js');
    const activity = new Activity();
    const run = (by, more) => ({ run: '1', by, person: by.startsWith('human'), since: '2026-01-01T00:00:00Z', ...more });
    const tells = (message, now = 0) => activity.tell('d', message, now);
    assert.equal(activity.idleSince('d'), undefined, 'nothing is known');
    assert.equal(tells({ type: 'conflict' }), false);
    tells({ type: 'activity', kernel: true, running: null, waiting: [] });
    assert.equal(activity.idleSince('d'), 0);
    tells({ type: 'activity', kernel: true, running: run('claude'), waiting: [run('human (VS Code)', { index: 2 })] }, 1);
    assert.equal(activity.idleSince('d'), undefined);
    assert.equal(waits(activity.runs('d').waiting), ' · human (VS Code) waits with cell 2');
    assert.equal(waits([run('a'), run('b')]), ' · 2 cells wait');
    assert.equal(activity.runs().doc, 'd');
    assert.equal(activity.runs('other'), undefined);
    tells({ type: 'activity', kernel: true, running: null, waiting: [] }, 2);
    assert.equal(activity.idleSince('d'), 2);
    tells({ type: 'activity', kernel: false, running: null, waiting: [] }, 3);
    assert.equal(activity.idleSince('d'), undefined, 'no kernel');
    tells({ type: 'marks', cells: [{ cell: 'a', by: 'claude', what: 'ran', at: '' }] });
    assert.equal(activity.known.get('d').marks.get('a').what, 'ran');

    const { difference, languageOf, stays } = from('cells.js');
    assert.equal(languageOf({ metadata: { kernelspec: { language: 'R' } } }), 'R');
    assert.equal(languageOf({ metadata: { kernelspec: { language: '--project\n' } } }), 'python');
    const changed = (was, now) => {
      const { start, end, text } = difference(was, now);
      assert.equal(was.slice(0, start) + text + was.slice(end), now);
      return [start, end, text];
    };
    assert.deepEqual(changed('x = 1', 'x = 12'), [5, 5, '2']);
    assert.deepEqual(changed('aaa', 'aa'), [2, 3, '']);
    assert.deepEqual(changed('', 'x'), [0, 0, 'x']);
    // Two characters of which a half is equal.
    assert.deepEqual(changed('a\u{1f600}b', 'a\u{1f601}b'), [1, 3, '\u{1f601}']);
    assert.deepEqual(changed('\u{10400}', '\u{10800}'), [0, 2, '\u{10800}']);
    const staying = (list, ...fixed) => stays(list, at => fixed.includes(at)) && [...stays(list, at => fixed.includes(at))].sort();
    assert.deepEqual(staying([0, 1, 2]), [0, 1, 2]);
    assert.deepEqual(staying([3, 0, 1, 2]), [1, 2, 3]);
    assert.deepEqual(staying([3, 0, 1, 2], 0), [0]);
    assert.equal(staying([3, 0, 1, 2], 0, 2), undefined);
    assert.deepEqual(staying([]), []);

    const { inOrder } = from('live.js');
    assert.deepEqual(inOrder(['a', 'b', 'c', 'd'], ['d', 'a', 'gone']), ['d', 'a', 'b', 'c']);
    assert.deepEqual(inOrder(['x', 'a', 'b'], ['b', 'a']), ['x', 'b', 'a']);
  },
};

main(parts[process.argv[2]]);
