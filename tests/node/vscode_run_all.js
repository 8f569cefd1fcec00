// A person's requests beside an agent's run: the extension's own code in a stand-in of VS Code that drops what waits in
// a cell that is replaced, with a simulated nb, a simulated kernel and a simulated clock.

const assert = require('node:assert/strict');
const { EventEmitter } = require('node:events');
const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');

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
    for (const name of ['stdout', 'stderr']) child[name] = Object.assign(new EventEmitter(), { setEncoding() {} });
    child.stdin = Object.assign(new EventEmitter(), { write() {}, end() {} });
    child.kill = () => {};
    // It only reads what is reported.
    if (words.includes('live')) return child;
    world.follower = child;
    setTimeout(() => (world.hasEvents ? child.stdout.emit('data', '{"from":"now"}\n') : child.emit('close', 1)), 10);
    return child;
  },
  execFile(program, words, options, done) {
    assert(words.includes('status'), `${words}`);
    const status = { sessions: [{ notebook: FILE, state: 'idle' }] };
    setTimeout(() => done(null, JSON.stringify(status), ''), 10);
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
    this.hasEvents = true;
    const cell = id => ({ cell_type: 'code', id, metadata: {}, execution_count: null, outputs: [], source: [id] });
    const cells = [...SIX, AGENTS].map(cell);
    fs.writeFileSync(FILE, JSON.stringify({ cells, metadata: {}, nbformat: 4, nbformat_minor: 5 }));
    this.stamp();
    Object.assign(recorded, { messages: [], output: [], dropped: [], replaced: [], thrownOut: 0, reverts: 0, newer: undefined });
    Object.assign(editor.settings, { autoSave, path: process.execPath, watches: false });
    this.notebook = editor.open(FILE);
    this.context = editor.context();
    this.context.memory.set('nb.chosen', [String(this.notebook.uri)]);
    if (isActive) require(path.join(SOURCES, 'extension.js')).activate(this.context);
  }

  end() {
    for (const each of this.context.subscriptions) each.dispose();
    editor.close(this.notebook);
  }

  stamp() {
    fs.utimesSync(FILE, new Date(), new Date());
  }

  // An event of the journal.
  event(event, by, fields) {
    const line = JSON.stringify({ event, by, session: FILE, notebook: FILE, at: new Date().toISOString(), ...fields });
    setTimeout(() => this.follower?.stdout.emit('data', `${line}\n`), 20);
  }

  // Runs code when all that was sent before has ended: no end is reported until then.
  execute(by, code, ms) {
    const run = {};
    run.begins = this.queue.then(() => {
      run.count = this.ran.push({ by, code, count: this.ran.length + 1 });
      this.event('requested', by, { msg_id: `${run.count}`, cell: code, code });
      return run.count;
    });
    run.ends = run.begins.then(async count => {
      await sleep(ms);
      this.event('done', by, { msg_id: `${count}`, status: 'ok' });
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

  // An agent edits a cell.
  edits(id, source) {
    this.write(id, { source: [source] });
    this.event('edited', 'claude', { changes: [{ cell: id, what: 'edited' }] });
  }

  // An agent runs its cell, whose recorder writes into the file.
  async agentRuns(ms) {
    const run = this.execute('claude', AGENTS, ms);
    const count = await run.begins;
    let isOver = false;
    const writes = (async () => {
      for (let lines = 1; ; lines++) {
        await sleep(lines === 1 ? 300 : 1000);
        if (isOver) break;
        this.write(AGENTS, { execution_count: count, outputs: [{ output_type: 'stream', name: 'stdout', text: 'line\n'.repeat(lines) }] });
      }
    })();
    const outputs = await run.ends;
    isOver = true;
    this.write(AGENTS, { execution_count: count, outputs });
    await writes;
  }

  // The person presses Run All in the own cells.
  runAll(ms) {
    const cells = this.notebook.getCells().filter(cell => SIX.includes(cell.text));
    assert.equal(cells.length, SIX.length);
    return this.notebook.run(cells, code => this.execute(PERSON, code, ms));
  }
}

// The text of a cell's outputs in the file.
const printed = cell => cell.outputs.map(it => it.text).join('');

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
    await done(world.notebook.save().catch(error => faults.push(error.message)));
    const shown = world.notebook.getCells().map(cell => cell.executionSummary.executionOrder);
    for (const [at, cell] of world.read().entries()) {
      const { count } = world.ran.findLast(it => it.code === cell.id);
      if (cell.execution_count !== count) faults.push(`${cell.id} is ${cell.execution_count} in the file, not ${count}`);
      if (printed(cell) !== `${cell.id} #${count}\n`) faults.push(`${cell.id} in the file printed ${printed(cell)}`);
      if (shown[at] !== count) faults.push(`${cell.id} is ${shown[at]} in the tab, not ${count}`);
    }
    if (recorded.newer) faults.push(recorded.newer.text);
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

  // While the cursor is in a cell nothing is taken into the tab, not even what the person has chosen.
  async cursor() {
    const world = new World();
    const { notebook } = world;
    const text = at => notebook.getCells()[at].text;
    await pass(1000);
    await done(world.runAll(40));
    await pass(3000);
    editor.edits(notebook.getCells()[1]);
    world.edits('four', 'four = 4');
    await pass(20_000);
    assert.equal(recorded.reverts, 0);
    assert.match(recorded.newer.text, /the file of t\.ipynb is newer/);
    assert.equal(text(3), 'four');
    editor.edits(undefined);
    await pass(1000);
    assert.equal(text(3), 'four = 4');
    assert.equal(recorded.newer, undefined);
    // The edited cell has the outputs of its earlier text no more; the others are put back.
    assert.deepEqual(recorded.replaced, SIX.filter(id => id !== 'four'));
    assert.equal(notebook.printed(0).includes('one #1'), true);

    // The person has text of their own, and answers with the cursor still in the cell.
    editor.edits(notebook.getCells()[1]);
    notebook.type(1, 'two = 2');
    editor.answers.push('Keep both');
    world.edits('five', 'five = 5');
    await pass(20_000);
    assert.equal(recorded.messages.length, 1);
    assert.equal(text(4), 'five');
    editor.edits(undefined);
    await pass(1000);
    assert.deepEqual([text(1), text(4)], ['two = 2', 'five = 5']);

    // What is typed after the answer is never taken away by it.
    notebook.type(0, 'one = 1');
    editor.edits(notebook.getCells()[0]);
    editor.answers.push("Take the file's");
    world.edits('one', 'one = "theirs"');
    await pass(10_000);
    notebook.type(0, 'one = 10');
    editor.edits(undefined);
    await pass(10_000);
    assert.equal(text(0), 'one = 10');
    assert.equal(recorded.messages.length, 3, 'the person is asked again');
    assert.equal(recorded.thrownOut, 0);
    world.end();
  },

  // A cell whose outputs were cleared looks like one that waits: it counts as one until the kernel was idle for long.
  async doubt() {
    const world = new World();
    const { notebook } = world;
    const text = at => notebook.getCells()[at].text;
    await pass(1000);
    await done(world.runAll(40));
    await pass(3000);
    notebook.summary(notebook.getCells()[2], {});
    world.edits('four', 'four = 4');
    await pass(50_000);
    assert.equal(text(3), 'four');
    assert(recorded.newer);
    await pass(15_000);
    assert.equal(text(3), 'four = 4');

    // While the events are missing, nothing is known of the kernel.
    notebook.summary(notebook.getCells()[2], {});
    world.hasEvents = false;
    world.follower.emit('close', 1);
    world.edits('four', 'four = 5');
    await pass(150_000);
    assert.equal(text(3), 'four = 4');
    world.hasEvents = true;
    await pass(130_000);
    assert.equal(text(3), 'four = 5');
    world.end();
  },

  // Nothing is taken in shortly after a person's cell has ended, here or at another front end, nor while it runs there.
  async quiet() {
    const world = new World();
    const text = at => world.notebook.getCells()[at].text;
    await pass(1000);
    await done(world.runAll(40));
    world.edits('four', 'four = 4');
    await pass(1800);
    assert.equal(text(3), 'four');
    await pass(1000);
    assert.equal(text(3), 'four = 4');

    await pass(10_000);
    const other = world.execute('human (JupyterLab)', 'x = 1', 8000);
    await done(other.begins);
    await pass(100);
    world.edits('four', 'four = 5');
    await done(other.ends);
    await pass(1800);
    assert.equal(text(3), 'four = 4');
    await pass(70_000);
    assert.equal(text(3), 'four = 5');
    world.end();
  },

  // Cells that were put back and saved are kept by the next reload. Outputs that the file has by then are not put back.
  async puts_back() {
    const world = new World();
    const { notebook } = world;
    const edited = async source => {
      world.edits('four', source);
      await pass(10_000);
      assert.equal(notebook.getCells()[3].text, source);
    };
    await pass(1000);
    await done(world.runAll(40));
    await edited('four = 4');
    assert.deepEqual(recorded.replaced, SIX.filter(id => id !== 'four'));
    await done(notebook.save());
    const kept = notebook.getCells().slice(0, 3);
    await done(notebook.run([notebook.getCells()[5]], code => world.execute(PERSON, code, 40)));
    await edited('four = 5');
    assert(kept.every((cell, at) => cell === notebook.getCells()[at]), 'the cells are replaced');
    assert.deepEqual(recorded.replaced.slice(5), ['six']);

    // Another program writes the same outputs at the moment of the reload.
    await done(notebook.run([notebook.getCells()[5]], code => world.execute(PERSON, code, 40)));
    const { count } = world.ran.at(-1);
    const reverts = editor.commands.get('workbench.action.files.revert');
    editor.commands.set('workbench.action.files.revert', () => {
      const outputs = [{ output_type: 'stream', name: 'stdout', text: `six #${count}\n` }];
      world.write('six', { execution_count: count, outputs });
      reverts();
    });
    await edited('four = 6');
    editor.commands.set('workbench.action.files.revert', reverts);
    assert.equal(recorded.replaced.length, 6);
    assert.equal(notebook.printed(5).includes(`six #${count}`), true);
    world.end();
  },

  // The numbers of the runs are in the file also where VS Code's own edit of the metadata has failed.
  async counts() {
    const world = new World();
    world.notebook.losesCounts = true;
    await pass(1000);
    await done(world.runAll(40));
    await done(world.notebook.save());
    assert.deepEqual(world.read().map(cell => cell.execution_count), [1, 2, 3, 4, 5, 6, null]);
    assert.deepEqual(recorded.replaced, []);
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
