// A person's requests beside an agent's run and edits: the extension's own code in a stand-in of VS Code that drops what waits
// in a cell that is replaced, with a simulated nb, a simulated kernel and a simulated clock.

const assert = require('node:assert/strict');
const crypto = require('node:crypto');
const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const { PassThrough } = require('node:stream');

const { main } = require('./vscode');
const editor = require('./vscode_stand_in');

const { recorded } = editor;
const SOURCES = process.env.NB_TEST_EXTENSION;
const PERSON = 'human (VS Code)';
const FILE = 't.ipynb';
// The cells of the person, and the one that the agent runs.
const SIX = ['one', 'two', 'three', 'four', 'five', 'six'];
const AGENTS = 'agent';

let world;

const load = Module._load;
Module._load = (name, parent, ...rest) => {
  if (name === 'vscode') return editor.vscode;
  const isOfExtension = parent?.filename?.startsWith(SOURCES);
  return isOfExtension && name === 'node:child_process' ? processes : load(name, parent, ...rest);
};

// The processes of nb.
const processes = {
  spawn(program, words) {
    const child = new EventEmitter();
    for (const name of ['stdout', 'stderr']) child[name] = new PassThrough();
    child.stdin = Object.assign(new EventEmitter(), { write: line => world.hears(JSON.parse(line)), end() {} });
    child.kill = () => {};
    assert(words.includes('live'), `${words}`);
    world.live = child;
    return child;
  },
};

// ---- The clock

const real = { Date, setImmediate };
const timers = new Map();
let now = Date.now();

// Replaces the clock of this process by one that stands still but for `pass`.
function stopTheClock() {
  let last = 0;
  globalThis.setTimeout = (call, ms) => {
    timers.set(++last, { call, at: now + Math.max(ms, 0) });
    return last;
  };
  globalThis.clearTimeout = timer => timers.delete(timer);
  globalThis.setImmediate = call => setTimeout(call, 0);
  globalThis.Date = class extends real.Date {
    constructor(...words) { super(...(words.length ? words : [now])); }

    static now() { return now; }
  };
}

// Lets so many milliseconds go by.
async function pass(ms) {
  for (const end = now + ms; now < end; now += 10) {
    for (const [timer, { call, at }] of [...timers]) {
      if (at <= now && timers.delete(timer)) call();
    }
    await new Promise(resolve => { real.setImmediate(resolve); });
  }
}

const sleep = ms => new Promise(resolve => { setTimeout(resolve, ms); });

// ---- The kernel, the journal and the file

class World {
  constructor({ autoSave = false, isActive = true } = {}) {
    world = this;
    this.ran = [];
    this.queue = Promise.resolve();
    // What runs, and whether nb knows that.
    this.running = null;
    this.knowsActivity = true;
    // What the editor has said, the cells' names by their ids, and what waits for an answer.
    this.heard = [];
    this.names = {};
    this.asked = new Map();
    this.seq = 0;
    const cell = id => ({ cell_type: 'code', id, metadata: {}, execution_count: null, outputs: [], source: [id] });
    const cells = [...SIX, AGENTS].map(cell);
    fs.writeFileSync(FILE, JSON.stringify({ cells, metadata: {}, nbformat: 4, nbformat_minor: 5 }));
    this.stamp();
    Object.assign(recorded, { messages: [], output: [], dropped: [], replaced: [], sets: [], thrownOut: 0, asked: 0 });
    Object.assign(editor.settings, { autoSave, path: process.execPath, watches: false });
    this.notebook = editor.open(FILE);
    this.context = editor.context();
    this.context.memory.set(`nb.chosen ${this.notebook.uri}`, true);
    if (isActive) require(path.join(SOURCES, 'extension.js')).activate(this.context);
  }

  end() {
    for (const each of this.context.subscriptions) each.dispose();
    editor.close(this.notebook);
  }

  stamp() {
    fs.utimesSync(FILE, new Date(), new Date());
  }

  // What runs is another one, or nothing.
  runs(by, run, line) {
    this.running = by ? { run, by, person: by === PERSON, line, since: new Date().toISOString() } : null;
    this.tellsActivity();
  }

  tellsActivity() {
    const { running } = this;
    if (!this.live || !this.knowsActivity) return;
    setTimeout(() => this.tells({ type: 'activity', kernel: true, running, waiting: [] }), 20);
  }

  // Runs code when all that was sent before has ended: no end is reported until then.
  execute(by, code, ms) {
    const run = {};
    run.begins = this.queue.then(() => {
      run.count = this.ran.push({ by, code, count: this.ran.length + 1 });
      this.runs(by, `${run.count}`, code);
      return run.count;
    });
    run.ends = run.begins.then(async count => {
      await sleep(ms);
      this.runs();
      return [{ output_type: 'stream', name: 'stdout', text: `${code} #${count}\n` }];
    });
    this.queue = run.ends;
    return run;
  }

  read() { return JSON.parse(fs.readFileSync(FILE, 'utf8')).cells; }

  // Another program changes a cell in the file.
  write(id, change) {
    const found = JSON.parse(fs.readFileSync(FILE, 'utf8'));
    Object.assign(found.cells.find(cell => cell.id === id), change);
    fs.writeFileSync(`${FILE}.new`, JSON.stringify(found));
    fs.renameSync(`${FILE}.new`, FILE);
    this.stamp();
    setTimeout(() => editor.fileChanged(FILE), 50);
  }

  // A line of the editor to `nb live`.
  hears(message) {
    this.heard.push(message);
    for (const { cell, id } of [...(message.cells ?? []), ...(message.new ?? [])]) if (id) this.names[id] = cell;
    if (message.type === 'open') this.tellsActivity();
    if (message.type === 'saving') setTimeout(() => this.synced(), 20);
    this.asked.get(message.seq)?.(message);
  }

  tells(message) { this.live.stdout.write(`${JSON.stringify({ doc: String(this.notebook.uri), ...message })}\n`); }

  // Asks the editor for a change; its answer.
  asks(type, fields) {
    const seq = ++this.seq;
    const answer = new Promise(resolve => { this.asked.set(seq, resolve); });
    this.tells({ type, seq, by: 'claude', ...fields });
    return answer;
  }

  synced() {
    this.tells({ type: 'synced', stamp: crypto.createHash('sha256').update(fs.readFileSync(FILE)).digest('hex') });
  }

  // An agent edits a cell: the editor gets it first.
  async edits(id, was, source) {
    const answer = await this.asks('set', { cell: this.names[id], was, source });
    this.write(id, { source: [source] });
    this.synced();
    return answer;
  }

  // An agent has run a cell.
  async shows(id, count, text) {
    const outputs = [{ output_type: 'stream', name: 'stdout', text }];
    const answer = await this.asks('outputs', { cell: this.names[id], outputs, execution_count: count });
    this.write(id, { execution_count: count, outputs });
    this.synced();
    return answer;
  }

  // An agent runs its cell; nothing is written before the end.
  async agentRuns(ms) {
    const run = this.execute('claude', AGENTS, ms);
    const count = await run.begins;
    const [{ text }] = await run.ends;
    if (this.live) await this.shows(AGENTS, count, text);
    else this.write(AGENTS, { execution_count: count, outputs: [{ output_type: 'stream', name: 'stdout', text }] });
  }

  // The person presses Run All in the own cells.
  runAll(ms) {
    const cells = this.notebook.getCells().filter(cell => SIX.includes(cell.text));
    assert.equal(cells.length, SIX.length);
    return this.notebook.run(cells, code => this.execute(PERSON, code, ms));
  }
}

// The text of a cell's outputs in the file.
const printed = cell => cell.outputs.flatMap(it => it.text).join('');

// Waits for what takes simulated time.
async function done(...all) {
  let isOver = false;
  const ended = Promise.all(all).then(() => { isOver = true; });
  for (let at = 0; !isOver; at++) {
    assert(at < 10_000, 'it does not end');
    await pass(10);
  }
  return ended;
}

// Run All beside an agent's cell, begun at a moment of it: what is wrong at the end.
async function runAllBeside(moment, { autoSave, ms, isActive = true }) {
  const world = new World({ autoSave, isActive });
  world.notebook.losesCounts = moment % 200 === 0;
  await pass(1000);
  await done(world.runAll(40));
  await pass(500);
  const agent = world.agentRuns(6000);
  await pass(moment);
  const before = world.ran.length;
  await done(agent, world.runAll(ms));
  const ran = world.ran.slice(before).filter(it => it.by === PERSON).map(it => it.code);
  const faults = SIX.filter(code => !ran.includes(code)).map(code => `${code} did not run`);
  await pass(12_000);
  if (isActive) {
    await done(world.notebook.save());
    const shown = world.notebook.getCells().map(cell => cell.executionSummary.executionOrder);
    for (const [at, cell] of world.read().entries()) {
      const { count } = world.ran.findLast(it => it.code === cell.id);
      if (cell.execution_count !== count) faults.push(`${cell.id} is ${cell.execution_count} in the file, not ${count}`);
      if (printed(cell) !== `${cell.id} #${count}\n`) faults.push(`${cell.id} in the file printed ${printed(cell)}`);
      if (shown[at] !== count) faults.push(`${cell.id} is ${shown[at]} in the tab, not ${count}`);
    }
    if (recorded.asked) faults.push('Save asked');
    faults.push(...recorded.dropped.map(text => `the request of ${text} was dropped`));
  }
  world.end();
  const setting = `autoSave ${autoSave}, cells of ${ms} ms, Run All after ${moment} ms`;
  return faults.map(fault => `${setting}: ${fault}`);
}

const parts = {
  // Run All at ten moments of an agent's run: each cell runs, and the counts agree.
  async beside() {
    const moments = [100, 250, 600, 1200, 1900, 2600, 3700, 4900, 5700, 5990];
    const faults = [];
    for (const autoSave of [false, true]) {
      for (const ms of [40, 1500]) {
        for (const moment of moments) {
          faults.push(...await runAllBeside(moment, { autoSave, ms }));
          // The workbench alone drops none of these requests.
          assert.deepEqual(await runAllBeside(moment, { autoSave, ms, isActive: false }), []);
        }
      }
    }
    assert.deepEqual(faults, []);
  },

  // Outputs for the cell with the cursor come when the person leaves it. What is done above keeps the cursor in its cell.
  async cursor() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    await done(world.runAll(40));
    await pass(3000);
    const cell = notebook.getCells()[1];
    editor.edits(cell);
    const answers = [];
    const asks = async (...words) => { answers.push((await world.asks(...words)).type); };
    await done(world.shows('two', 9, 'theirs\n'));
    await pass(5000);
    assert.match(notebook.printed(1), /two #2/);
    assert.deepEqual(editor.marks(cell), ['$(sparkle) claude ran this · outputs follow']);
    await done((async () => {
      const first = { cell: 'new1', id: 'new1', after: null, cell_type: 'code', source: 'new = 1' };
      await asks('insert', first);
      await asks('insert', { ...first, cell: 'new2', id: 'new2', cell_type: 'markdown', source: '# new' });
      await asks('remove', { cell: world.names.one, was: 'one' });
      await asks('set', { cell: world.names.two, was: 'two', source: 'new line\ntwo' });
      await asks('order', { order: [AGENTS, 'two', 'three'].map(id => world.names[id]) });
    })());
    assert.deepEqual(answers, ['applied', 'applied', 'applied', 'applied', 'applied']);
    assert.deepEqual(notebook.getCells().map(each => each.text), ['# new', 'new = 1', AGENTS, 'new line\ntwo', 'three', 'four', 'five', 'six']);
    assert.deepEqual(notebook.getCells().map(each => each.kind), [1, 2, 2, 2, 2, 2, 2, 2]);
    assert.equal(recorded.thrownOut, 0);
    assert.deepEqual(recorded.replaced, ['one', AGENTS]);
    // The person types in it: it is not removed.
    notebook.type(3, 'new line\ntwo, typed');
    await done(asks('remove', { cell: world.names.two, was: 'new line\ntwo, typed' }));
    assert.equal(answers.at(-1), 'refused');
    // VS Code tells of no Escape: the person selects another cell.
    editor.events.selection.fire({ notebookEditor: { notebook }, selections: [{ start: 2, end: 4 }] });
    await pass(1000);
    assert.match(notebook.printed(3), /two #2/);
    editor.events.selection.fire({ notebookEditor: { notebook }, selections: [{ start: 4, end: 5 }] });
    await pass(1000);
    assert.equal(notebook.printed(3), 'theirs\n');
    assert.equal(notebook.getCells()[3].executionSummary.executionOrder, 9);
    assert.equal(notebook.getCells()[3].text, 'new line\ntwo, typed');
    // A click on the mark shows them at once.
    editor.edits(notebook.getCells()[4]);
    await done(world.shows('three', 10, 'theirs, too\n'));
    await pass(1000);
    assert.match(notebook.printed(4), /three #3/);
    const [{ command }] = editor.items(notebook.getCells()[4]);
    await editor.vscode.commands.executeCommand(command.command, ...command.arguments);
    await pass(100);
    assert.equal(notebook.printed(4), 'theirs, too\n');
    // VS Code has an active editor of a cell in which the person has never been, or is not any more.
    editor.edits(notebook.getCells()[4]);
    editor.edits(undefined);
    await done(world.shows('three', 11, 'at once\n'));
    assert.equal(notebook.printed(4), 'at once\n');
    // The cell is another one now, with the same name.
    await done(asks('set', { cell: world.names.two, was: 'new line\ntwo, typed', source: 'two' }));
    assert.equal(answers.at(-1), 'applied');
    // What is done for others is not reported as the person's.
    await pass(1000);
    assert.deepEqual(world.heard.filter(it => ['text', 'cells'].includes(it.type)), []);
    world.end();
  },

  // A cell that waits or runs is neither replaced, moved nor removed. Outputs of an earlier run never replace those of a
  // later one.
  async waits() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    const long = world.execute('claude', AGENTS, 5000);
    await pass(100);
    const runs = world.runAll(40);
    await pass(100);
    const requests = (async () => {
      const answers = [];
      for (const id of ['one', 'six']) await world.shows(id, 7, 'older\n');
      const order = ['six', 'one', 'two', 'three', 'four', 'five', AGENTS].map(id => world.names[id]);
      answers.push(await world.asks('order', { order }));
      const moves = [AGENTS, 'one'].map(id => world.names[id]);
      answers.push(await world.asks('order', { order: moves }));
      answers.push(await world.asks('remove', { cell: world.names.two, was: 'two' }));
      answers.push(await world.asks('set', { cell: world.names.three, was: 'three', source: 'three' }));
      return answers.map(it => it.type);
    })();
    await done(requests);
    assert.deepEqual(await requests, ['refused', 'applied', 'refused', 'applied']);
    assert.deepEqual(notebook.getCells().map(each => each.text), [AGENTS, ...SIX]);
    await done(runs, long.ends);
    await pass(70_000);
    assert.deepEqual(recorded.dropped, []);
    assert.deepEqual(world.ran.slice(1).map(it => it.code), SIX);
    assert.match(notebook.printed(1), /one #2/);
    assert.match(notebook.printed(6), /six #7/);
    world.end();
  },

  // A cell whose outputs were cleared looks like one that waits: it counts as one until the kernel was idle for long.
  async doubt() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    await done(world.runAll(40));
    await pass(3000);
    notebook.summary(notebook.getCells()[2], {});
    await done(world.shows('three', 8, 'theirs\n'));
    await pass(50_000);
    assert.match(notebook.printed(2), /three #3/);
    await pass(15_000);
    assert.equal(notebook.printed(2), 'theirs\n');

    // As long as nb does not tell what runs, nothing is known of the kernel.
    notebook.summary(notebook.getCells()[2], {});
    world.knowsActivity = false;
    world.live.emit('close', 1);
    await pass(2000);
    await done(world.shows('three', 9, 'theirs again\n'));
    await pass(150_000);
    assert.equal(notebook.printed(2), 'theirs\n');
    world.knowsActivity = true;
    world.tellsActivity();
    await pass(70_000);
    assert.equal(notebook.printed(2), 'theirs again\n');
    world.end();
  },

  // VS Code tells of a change before it tells of unsaved changes: what is typed then is not taken for what was loaded.
  async typed_just_now() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    // The tab has loaded the agent's edit already.
    assert.equal((await world.asks('set', { cell: world.names.one, was: 'zero', source: 'one' })).type, 'applied');
    world.heard = [];
    notebook.type(0, 'one, typed');
    world.synced();
    await new Promise(resolve => { real.setImmediate(resolve); });
    assert.equal(notebook.isDirty, false);
    await pass(1000);
    assert.deepEqual(world.heard.map(({ type, source }) => ({ type, source })), [{ type: 'text', source: 'one, typed' }]);

    // What VS Code has loaded is reported as such.
    await done(notebook.save());
    world.heard = [];
    world.write('two', { source: ['two, by another program'] });
    await pass(1000);
    assert.deepEqual(world.heard.map(({ type, dirty }) => ({ type, dirty })), [{ type: 'open', dirty: false }]);
    world.end();
  },

  // A tab without unsaved changes has none after an agent's edit, and Save asks nothing; one with unsaved text keeps it.
  async saves() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    await done(world.edits('four', 'four', 'four = 4'));
    await pass(1000);
    assert.deepEqual([notebook.isDirty, notebook.cells[3].text], [false, 'four = 4']);
    assert.deepEqual(recorded.sets, [' = 4']);
    assert.deepEqual(recorded.replaced, []);

    notebook.type(0, 'one, typed');
    await pass(1000);
    await done(world.edits('four', 'four = 4', 'four = 5'));
    await pass(1000);
    assert.equal(notebook.isDirty, true);
    const told = fs.statSync(FILE).mtimeMs;
    await done(notebook.save());
    assert.equal(recorded.asked, 0);
    assert(fs.statSync(FILE).mtimeMs >= told);
    assert.deepEqual(world.read().slice(0, 4).flatMap(cell => cell.source), ['one, typed', 'two', 'three', 'four = 5']);

    // VS Code stands still between the handler and its write.
    notebook.type(0, 'one, typed slowly');
    await pass(1000);
    await done(world.edits('four', 'four = 5', 'four = 50'));
    await pass(1000);
    editor.settings.stall = 5000;
    const before = world.heard.length;
    const slow = notebook.save();
    // What `nb` says twice of the same file is no reason to save twice.
    await pass(100);
    world.synced();
    await done(slow);
    editor.settings.stall = 0;
    assert.deepEqual(world.heard.slice(before).map(it => it.type), ['saving', 'saved']);
    assert.equal(recorded.asked, 0);
    assert.deepEqual(world.read().slice(0, 4).flatMap(cell => cell.source), ['one, typed slowly', 'two', 'three', 'four = 50']);

    // A file that is written after the handler has looked is not overwritten.
    notebook.type(0, 'one, typed again');
    await pass(1000);
    const saved = notebook.save();
    world.tells = message => {
      World.prototype.tells.call(world, message);
      setTimeout(() => world.write('five', { source: ['five, by a program that nb does not know'] }), 0);
    };
    await done(saved);
    assert.equal(await saved, false);
    assert.equal(recorded.asked, 1);
    delete world.tells;

    // Without an answer, and in a conflict, VS Code asks; no file keeps a time of another one.
    const asks = async () => {
      world.write('five', { source: [`five ${recorded.asked}, longer and longer`] });
      const { mtimeMs } = fs.statSync(FILE);
      await done(notebook.save());
      await pass(3000);
      assert.equal(fs.statSync(FILE).mtimeMs, mtimeMs);
    };
    world.synced = () => {};
    await asks();
    assert.equal(recorded.asked, 2);
    delete world.synced;
    const conflict = { type: 'conflict', cell: world.names.one, by: 'claude', mine: 'one, typed again', theirs: 'one = 1' };
    world.tells(conflict);
    await asks();
    assert.equal(recorded.asked, 3);

    // The person sees it at the cell, and chooses there.
    const [first] = notebook.getCells();
    assert.deepEqual(editor.marks(first), ['$(warning) claude changed these lines:', 'mine', 'theirs', 'both', 'difference']);
    const chooses = async text => {
      const { command } = editor.items(first).find(it => it.text === text);
      await done(editor.vscode.commands.executeCommand(command.command, ...command.arguments));
    };
    await chooses('difference');
    assert.deepEqual(recorded.diffs, [{ left: 'one = 1', right: 'one, typed again', title: 'claude changed these lines' }]);
    await chooses('theirs');
    assert.deepEqual(world.heard.at(-1), {
      type: 'choose', doc: String(notebook.uri), cell: world.names.one, keep: 'theirs', theirs: 'one = 1',
    });
    world.tells({ type: 'settled', cell: world.names.one });
    await pass(10);
    assert.deepEqual(editor.marks(first), []);
    assert.deepEqual(recorded.messages, []);
    // A time that the handler has changed is put back where no save follows.
    const wait = [];
    const { mtimeMs } = fs.statSync(FILE);
    editor.events.willSave.fire({ notebook, waitUntil: each => wait.push(each) });
    await done(...wait);
    assert.equal(fs.statSync(FILE).mtimeMs, 1000);
    await pass(11_000);
    assert.equal(fs.statSync(FILE).mtimeMs, mtimeMs);
    world.end();
  },

  // A save that VS Code has refused is made again once the tab has what the file has.
  async saves_again() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    const ways = ['nb is late', 'the file is written before the handler', 'VS Code is late', 'the file is written after the handler'];
    for (const [number, way] of ways.entries()) {
      notebook.type(0, way);
      await pass(1000);
      const was = notebook.cells[3].text;
      const source = `four ${'='.repeat(10 + number)}`;
      const writes = () => world.write('four', { source: [source] });
      const sets = () => world.asks('set', { cell: world.names.four, was, source });
      if (number === 0) world.synced = () => {};
      if (number % 2) world.tells = message => {
        delete world.tells;
        world.tells(message);
        if (number === 1) writes();
        else setTimeout(writes, 0);
      };
      else writes();
      if (number === 2) editor.settings.slow = 2000;
      let set = number === 2 && sets();
      await pass(100);
      const heard = world.heard.length;
      const saved = notebook.save();
      await done(saved);
      assert.equal(await saved, false);
      delete world.synced;
      notebook.type(1, `${way}, and the person types`);
      await pass(1000);
      assert.equal(notebook.isDirty, true);
      set ||= sets();
      await done(set);
      editor.settings.slow = 0;
      world.synced();
      await pass(1000);
      assert.equal(notebook.isDirty, false);
      const texts = [way, `${way}, and the person types`, 'three', source];
      assert.deepEqual(world.read().slice(0, 4).flatMap(cell => cell.source), texts);
      // A save that does not wait any more is not told: nb would wait for its end.
      const told = world.heard.slice(heard).filter(it => it.type === 'saving').length;
      assert.equal(told, number === 2 ? 1 : 2);
    }
    assert.equal(recorded.asked, 4);
    world.end();
  },

  // What the person types meanwhile is refused with the text that is there, and reported after the answers only.
  async types() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    notebook.type(0, 'one 1');
    const answers = Promise.all([
      world.asks('set', { cell: world.names.one, was: 'one', source: 'ONE' }),
      world.asks('set', { cell: world.names.two, was: 'two', source: 'TWO' }),
      world.asks('set', { cell: world.names.six, was: 'six', source: 'SIX\u2028' }),
    ]);
    await pass(10);
    notebook.type(1, 'two 2');
    await pass(300);
    notebook.type(5, 'SIX\u2028 6');
    await done(answers);
    const doc = String(notebook.uri);
    await pass(1000);
    const said = world.heard.slice(world.heard.findIndex(it => it.type === 'refused'));
    assert.deepEqual(said, [
      { type: 'refused', doc, seq: 1, source: 'one 1' },
      { type: 'refused', doc, seq: 2, source: 'two 2' },
      { type: 'applied', doc, seq: 3 },
      { type: 'text', doc, cell: world.names.six, source: 'SIX\u2028 6' },
    ]);
    // Metadata: only what differs.
    notebook.cells[0].metadata = { ...notebook.cells[0].metadata, metadata: { mine: 1, tags: ['a'], gone: true } };
    const metadata = Promise.all([
      world.asks('metadata', { cell: world.names.one, was: { tags: ['a'], gone: true }, metadata: { tags: ['b'] } }),
      world.asks('metadata', { was: {}, metadata: { kernelspec: { name: 'python3' } } }),
    ]);
    await done(metadata);
    assert.deepEqual(notebook.cells[0].metadata.metadata, { mine: 1, tags: ['b'] });
    assert.deepEqual(notebook.metadata.metadata, { kernelspec: { name: 'python3' } });
    world.end();
  },

  // The numbers of the runs are in the file also where VS Code's own edit of the metadata has failed.
  async counts() {
    const world = new World();
    world.notebook.losesCounts = true;
    await pass(1000);
    await done(world.runAll(40));
    // That of a run before the window was opened: VS Code forgets it when the text changes.
    world.notebook.cells[6].executionSummary = { executionOrder: 9 };
    await done(world.notebook.save());
    assert.deepEqual(world.read().map(cell => cell.execution_count), [1, 2, 3, 4, 5, 6, 9]);
    assert.deepEqual(recorded.replaced, []);
    world.end();
  },

  // VS Code's own edits of metadata name cells by their places: one that was to hit another cell is of no consequence.
  async foreign_metadata() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    const [one, two] = notebook.cells;
    two.metadata = { ...one.metadata, execution_count: 3 };
    notebook.isChanged([{ cell: two, metadata: two.metadata }]);
    await pass(1000);
    assert(!world.heard.some(it => it.type === 'cells'));
    await done(notebook.save());
    assert.deepEqual(world.read().map(cell => cell.id), [...SIX, AGENTS]);
    assert.deepEqual(world.read().map(cell => cell.execution_count), Array(7).fill(null));
    world.end();
  },

  // A save begins while an agent removes a cell: the numbers of the runs are not given to other cells.
  async counts_beside_a_removal() {
    const world = new World();
    const { notebook } = world;
    notebook.losesCounts = true;
    await pass(1000);
    await done(world.runAll(40));
    let saved;
    editor.settings.meanwhile = () => { saved = notebook.save(); };
    await done(world.asks('remove', { cell: world.names.one, was: 'one' }));
    await done(saved);
    assert.deepEqual(world.read().map(cell => [cell.id, cell.execution_count]), [
      ['two', 2], ['three', 3], ['four', 4], ['five', 5], ['six', 6], [AGENTS, null],
    ]);
    world.end();
  },

  // Another program inserts a cell, and VS Code loads the file while the extension inserts it.
  async loads_meanwhile() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    editor.settings.meanwhile = () => {
      const found = JSON.parse(fs.readFileSync(FILE, 'utf8'));
      found.cells.splice(1, 0, { ...found.cells[0], id: 'new', source: ['new'] });
      fs.writeFileSync(FILE, JSON.stringify(found));
      notebook.load();
    };
    const insert = { after: world.names.one, cell: 'new', id: 'new', cell_type: 'code', source: 'new' };
    await done(world.asks('insert', insert));
    await pass(1000);
    assert.deepEqual(notebook.getCells().map(each => each.text), ['one', 'new', ...SIX.slice(1), AGENTS]);
    assert(!world.heard.some(it => it.type === 'cells' && it.new.some(each => each.id === 'new')));

    // A cell that it has loaded anew is reported before the next request is answered.
    const made = new editor.vscode.NotebookCellData(2, 'loaded', 'python');
    made.metadata = notebook.cells[0].metadata;
    notebook.replace(0, 1, [made]);
    notebook.isChanged();
    const heard = world.heard.length;
    const sets = ['one', 'two'].map(id => world.asks('set', { cell: world.names[id], was: id, source: `${id} = 2` }));
    await done(Promise.all(sets));
    assert.deepEqual(world.heard.slice(heard).map(it => it.type), ['refused', 'cells', 'applied']);
    world.end();
  },

  // While a change by an agent is under way, the person inserts or removes a cell above: no other cell is hit.
  async places() {
    const world = new World();
    const { notebook } = world;
    await pass(1000);
    const mine = new editor.vscode.NotebookCellData(2, 'mine', 'python');
    const inserts = () => { notebook.replace(0, 0, [mine]); notebook.isChanged(); };
    const removes = () => { notebook.replace(0, 1, []); notebook.isChanged(); };
    const outputs = [{ output_type: 'stream', name: 'stdout', text: 'by claude' }];
    const removal = ['remove', { cell: world.names.three, was: 'three' }];
    const result = ['outputs', { cell: world.names.five, outputs, execution_count: 9 }];
    for (const [request, meanwhile] of [[result, inserts], [result, removes], [removal, inserts], [removal, removes]]) {
      const before = notebook.getCells().map(each => each.text);
      editor.settings.meanwhile = meanwhile;
      const answer = world.asks(...request);
      await done(answer);
      assert.equal((await answer).type, 'refused');
      const after = meanwhile === inserts ? ['mine', ...before] : before.slice(1);
      assert.deepEqual(notebook.getCells().map(each => each.text), after);
      await pass(1000);
      assert(!notebook.getCells().some(each => each.outputs.length));
    }
    for (const request of [result, removal]) await done(world.asks(...request));
    assert.deepEqual(notebook.getCells().map(each => each.text), ['one', 'two', 'four', 'five', 'six', AGENTS]);
    assert.deepEqual(notebook.getCells().map(each => each.outputs.length), [0, 0, 0, 1, 0, 0]);
    assert.deepEqual(recorded.output, []);
    // For nb, only the person has inserted and removed cells.
    const reported = world.heard.filter(it => it.type === 'cells').flatMap(it => it.new);
    assert.deepEqual([...new Set(reported.map(it => it.source))], ['mine']);
    world.end();
  },
};

main(async () => {
  process.chdir(fs.mkdtempSync(path.join(process.env.TMPDIR, 'run-all-')));
  fs.mkdirSync('.nb');
  fs.writeFileSync('.nb/state.json', '{}');
  stopTheClock();
  await parts[process.argv[2]]();
});
