// A notebook window of VS Code, as far as a kernel can tell: the same libraries (zeromq 6 and
// @jupyterlab/services' KernelConnection over bare sockets), the same order of messages, the same
// way to launch and to kill. Nothing here is taken from the extension; what it does is in the
// comments.

const assert = require('node:assert/strict');
const { spawn, execFileSync } = require('node:child_process');
const crypto = require('node:crypto');
const { EventEmitter, once } = require('node:events');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');
const { setTimeout: sleep } = require('node:timers/promises');

const zmq = require('zeromq');
const { ServerConnection, KernelMessage } = require('@jupyterlab/services');
const { KernelConnection } = require('@jupyterlab/services/lib/kernel/default');

// The library says at which address it dials, which is none.
console.debug = () => {};

const SECONDS = 60;
// How long a scenario may take.
const LONGEST = 300;
const DELIMITER = '<IDS|MSG>';

// ---- The wire

function sign(key, parts) {
  if (!key) return '';
  const mac = crypto.createHmac('sha256', key);
  parts.forEach(part => mac.update(part));
  return mac.digest('hex');
}

function encode(message, key) {
  const parts = ['header', 'parent_header', 'metadata', 'content'].map(name =>
    Buffer.from(JSON.stringify(message[name] ?? {})));
  const buffers = (message.buffers ?? []).map(buffer => Buffer.from(buffer.buffer ?? buffer));
  return [DELIMITER, sign(key, parts), ...parts, ...buffers];
}

function decode(frames, key, channel) {
  const at = frames.findIndex(frame => frame.toString('latin1') === DELIMITER);
  assert(at >= 0 && frames.length >= at + 6, `no message on ${channel}: ${frames}`);
  const parts = frames.slice(at + 2, at + 6);
  assert.equal(frames[at + 1].toString(), sign(key, parts), `badly signed on ${channel}: ${parts}`);
  const [header, parent_header, metadata, content] = parts.map(part => JSON.parse(part));
  return { header, parent_header, metadata, content, buffers: frames.slice(at + 6), channel };
}

// What the library takes for its WebSocket. Shell, control and stdin have one routing id, iopub
// subscribes to everything, heartbeat is not used. As in VS Code the reader of a channel ends for
// good with the first message that is malformed or badly signed; here that also fails the test.
class Channels {
  protocol = '';

  constructor(connection, trouble) {
    const routingId = crypto.randomUUID();
    const unlimited = { receiveHighWaterMark: 0, maxMessageSize: -1 };
    this.connection = connection;
    this.closed = false;
    this.sending = Promise.resolve();
    this.sockets = { iopub: new zmq.Subscriber({ ...unlimited, linger: 0 }) };
    for (const channel of ['shell', 'control', 'stdin']) {
      this.sockets[channel] =
        new zmq.Dealer({ routingId, sendHighWaterMark: 0, ...unlimited, linger: 0 });
    }
    for (const [channel, socket] of Object.entries(this.sockets)) {
      socket.connect(`tcp://${connection.ip}:${connection[`${channel}_port`]}`);
      this.read(channel, socket).catch(trouble);
    }
    this.sockets.iopub.subscribe();
  }

  async read(channel, socket) {
    for await (const frames of socket) {
      if (this.closed) return;
      const message = decode(frames, this.connection.key, channel);
      this.onmessage({ data: message });
    }
  }

  send(message) {
    const frames = encode(message, this.connection.key);
    // zeromq.js refuses a second send while one is under way.
    this.sending = this.sending
      .then(() => this.closed || this.sockets[message.channel].send(frames))
      .catch(error => { if (!this.closed) throw error; });
  }

  close() {
    if (this.closed) return;
    this.closed = true;
    Object.values(this.sockets).forEach(socket => socket.close());
  }
}

// ---- Launching

// The first of five free ports, from 9000 up: found, not reserved. Each test looks from elsewhere
// on, since unlike two windows they run by the dozen.
async function freePorts() {
  const free = port => new Promise(resolve => {
    const server = net.createServer();
    server.once('error', () => resolve(false));
    server.listen(port, '127.0.0.1', () => server.close(() => resolve(true)));
  });
  const found = [];
  while (found.length < 5) {
    // Two windows may look at once.
    const port = freePorts.next++;
    if (await free(port)) found.push(port);
  }
  return found;
}
freePorts.next = 9000 + (process.pid * 40) % 20000;

async function untilUsed(port, process, stderr) {
  const used = () => new Promise(resolve => {
    const socket = net.connect(port, '127.0.0.1');
    socket.once('connect', () => { socket.destroy(); resolve(true); });
    socket.once('error', () => resolve(false));
  });
  const end = Date.now() + SECONDS * 1000;
  while (!await used()) {
    const why = `nobody listens on ${port}, exit ${process.exitCode}: ${stderr()}`;
    assert(process.exitCode === null && Date.now() < end, why);
    await sleep(200);
  }
}

// A process that was launched from a kernelspec, with the connection file made for it.
class Launched {
  static all = [];

  static async start(spec, folder, environment) {
    const [hb, control, shell, stdin, iopub] = await freePorts();
    const launched = new Launched();
    Launched.all.push(launched);
    launched.connection = {
      key: crypto.randomUUID(), signature_scheme: 'hmac-sha256', transport: 'tcp', ip: '127.0.0.1',
      hb_port: hb, control_port: control, shell_port: shell, stdin_port: stdin, iopub_port: iopub,
      kernel_name: spec,
    };
    const runtime = process.env.JUPYTER_RUNTIME_DIR;
    fs.mkdirSync(runtime, { recursive: true });
    const name = `kernel-v3${crypto.randomBytes(20).toString('hex')}.json`;
    launched.file = path.join(runtime, name);
    fs.writeFileSync(launched.file, JSON.stringify(launched.connection));

    const described = path.join(process.env.JUPYTER_DATA_DIR, 'kernels', spec, 'kernel.json');
    const { argv, env } = JSON.parse(fs.readFileSync(described));
    const [program, ...words] = argv.map(word => word.replace('{connection_file}', launched.file));
    launched.stderr = '';
    launched.began = performance.now();
    launched.process = spawn(program, words, {
      cwd: folder,
      env: {
        ...process.env,
        VSCODE_PID: String(process.pid), VSCODE_CWD: process.env.HOME,
        VSCODE_IPC_HOOK: path.join(process.env.HOME, 'vscode.sock'), VSCODE_NLS_CONFIG: '{}',
        PYTHONUNBUFFERED: '1', PYTHONDONTWRITEBYTECODE: '1',
        PYDEVD_IPYTHON_COMPATIBLE_DEBUGGING: '1',
        ...env, ...environment,
      },
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    changed();
    launched.process.stderr.on('data', text => { launched.stderr += text; changed(); });
    launched.ended = new Promise(resolve => launched.process.once('exit', (code, signal) => {
      launched.endedAt = performance.now();
      resolve({ code, signal });
    }));
    await Promise.all([shell, iopub].map(port => untilUsed(port, launched.process, () => launched.stderr)));
    return launched;
  }

  // SIGTERM to every descendant, then to the process, then the connection file goes.
  async kill() {
    const parents = await processes();
    const descendants = [this.process.pid];
    for (const pid of descendants) {
      descendants.push(...parents.filter(([, parent]) => parent === pid).map(([child]) => child));
    }
    for (const pid of descendants.slice(1)) {
      try { process.kill(pid, 'SIGTERM'); } catch { /* it went by itself */ }
    }
    this.process.kill('SIGTERM');
    fs.rmSync(this.file, { force: true });
    return this.ended;
  }
}

// Every process with its parent.
async function processes() {
  const pids = (await fs.promises.readdir('/proc')).filter(name => /^\d+$/.test(name));
  const found = await Promise.all(pids.map(async pid => {
    const stat = await fs.promises.readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '');
    // The name, in parentheses, may hold anything.
    return [Number(pid), Number(stat.slice(stat.lastIndexOf(')') + 1).split(' ')[2])];
  }));
  return found;
}

// ---- A kernel of one notebook

// Start-up code in the form of VS Code's; the texts are this test's, so that their fingerprints
// must be made known before anybody recognises them.
const PROBE = 'try:\n    import ipywidgets as _VSCODE_ipywidgets\n' +
  "    print('e976ee50-99ed-4aba-9b6b-9dcd5634d07d:IPyWidgets:' + _VSCODE_ipywidgets.__version__)\n" +
  'except Exception:\n    pass';
const MODULE = '\ndef __VSCODE_inject_module():\n    import sys, types\n' +
  "    sys.modules['vscode'] = types.ModuleType('vscode')\n\n\n__VSCODE_inject_module()\n" +
  'del __VSCODE_inject_module\n';
const JEDI_OFF = '%config Completer.use_jedi = False';

function setup(notebook) {
  return `${MODULE}\n__vsc_ipynb_file__ = "${notebook.replaceAll('\\', '\\\\')}"\n${JEDI_OFF}`;
}

// The hash of a start-up text without its blank lines, the notebook's and Jedi's.
function fingerprint(code) {
  const lines = code.split('\n').map(line => line.trimEnd()).filter(line =>
    line && line !== JEDI_OFF && !line.startsWith('__vsc_ipynb_file__ = "'));
  return crypto.createHash('sha256').update(lines.map(line => `${line}\n`).join('')).digest('hex');
}
const KNOWN = [fingerprint(PROBE), fingerprint(setup('/n.ipynb'))].join(',');

// `known`: whether the proxy knows this version's start-up code; `startup`: the user's own;
// `python`: whether the kernelspec is of Python, since others get no start-up code; `folder`: where
// `jupyter.notebookFileRoot` says, else the notebook's.
class Kernel {
  constructor(notebook, {
    spec = 'nb-shared', known = true, environment = {}, startup = [], python = true, folder,
  } = {}) {
    // As the user has opened it, which may be by a link.
    this.notebook = path.resolve(notebook);
    this.folder = folder ?? path.dirname(this.notebook);
    this.spec = spec;
    this.environment = { ...(known ? { NB_STARTUP_KNOWN: KNOWN } : {}), ...environment };
    this.startup = startup;
    this.python = python;
    // They belong to the kernel as VS Code's user sees it: a restart keeps them.
    this.clientId = crypto.randomUUID();
    this.username = crypto.randomUUID();
    this.sessions = new Set();
    this.messages = [];
    this.troubles = [];
  }

  static async start(notebook, options) {
    const kernel = new Kernel(notebook, options);
    await kernel.launch();
    return kernel;
  }

  async launch() {
    this.launched = await Launched.start(this.spec, this.folder, this.environment);
    const { launched } = this;
    launched.ended.then(how => { if (this.launched === launched) this.died = how; changed(); });
    this.connect(launched);
    await this.getReady();
    await this.initialize();
    this.readyAfter = performance.now() - launched.began;
  }

  connect(launched) {
    let channels;
    const trouble = error => this.troubles.push(error);
    const settings = ServerConnection.makeSettings({
      wsUrl: 'RAW',
      WebSocket: class extends Channels {
        constructor() { super(launched.connection, trouble); channels = this; }
      },
      serializer: { serialize: message => message, deserialize: message => message },
    });
    this.connection = new KernelConnection({
      serverSettings: settings, clientId: this.clientId, username: this.username,
      handleComms: true, model: { name: this.spec, id: crypto.randomUUID() },
    });
    // The library deletes a comm's subshell just after its last message: ipykernel may then raise an
    // error of its own in place of that message's idle, for which this test would wait.
    this.connection.commsOverSubshells = 'disabled';
    this.channels = channels;
    this.connection.anyMessage.connect((_, { msg, direction }) => {
      if (direction === 'recv') {
        this.messages.push(msg);
        this.sessions.add(msg.header.session);
      }
      changed();
    });
    this.connection.statusChanged.connect(changed);
    this.widgets = new Widgets(this);
    channels.onopen({});
  }

  // kernel_info on control and shell every half second, until there is any reply and any iopub.
  async getReady() {
    const { connection } = this;
    let hasIopub = false;
    let hasReply = false;
    const onIopub = () => { hasIopub = true; changed(); };
    connection.iopubMessage.connect(onIopub);
    const end = Date.now() + SECONDS * 1000;
    while (!(hasIopub && hasReply)) {
      assert(Date.now() < end && !this.died, `not ready: ${JSON.stringify(this.died)}`);
      const message = KernelMessage.createMessage({
        msgType: 'kernel_info_request', channel: 'control', content: {},
        username: this.username, session: this.clientId,
      });
      const replied = Promise.any([
        connection.sendControlMessage(message, true, true).done, connection.requestKernelInfo(),
      ]).then(() => { hasReply = true; changed(); });
      replied.catch(() => {});
      await Promise.race([sleep(500), until(() => hasIopub && hasReply)]);
    }
    connection.iopubMessage.disconnect(onIopub);
  }

  // The start-up code, each awaited, the user's own, one more kernel_info, then the idle.
  async initialize() {
    this.silent = {};
    if (this.python) {
      this.silent.probe = await this.silently(PROBE);
      this.widgets.load(this.silent.probe.text);
      this.silent.setup = await this.silently(setup(this.notebook));
    }
    for (const code of this.startup) await this.silently(code);
    await this.connection.requestKernelInfo();
    await within(SECONDS, 'idle', until(() => this.connection.status === 'idle'));
    const { connection } = this;
    if (this.python) {
      connection.requestComplete({ code: '__file__.', cursor_pos: 9 }).catch(() => {});
    }
  }

  // As VS Code runs its own code: no history, no cell. Its stream output.
  async silently(code) {
    const future = this.connection.requestExecute({
      code, silent: false, stop_on_error: false, allow_stdin: true, store_history: false,
    }, true);
    return collect(future);
  }

  // A user's cell, begun.
  cell(code, { stop_on_error = false } = {}) {
    const uri = this.notebook.split('/').map(encodeURIComponent).join('/');
    const cellId = `vscode-notebook-cell:${uri}#W0sZmlsZQ%3D%3D`;
    const future = this.connection.requestExecute({
      code, silent: false, stop_on_error, allow_stdin: true, store_history: true,
    }, false, { cellId });
    const cell = { request: future.msg.header.msg_id, outputs: [], text: '' };
    cell.prints = text => within(SECONDS, `"${text}" of ${code}`,
      until(() => cell.text.includes(text)));
    cell.asks = () => within(SECONDS, `a prompt of ${code}`, until(() => cell.prompt));
    cell.done = within(2 * SECONDS, code, collect(future, cell));
    cell.done.catch(() => {});
    return cell;
  }

  // A cell that must succeed: what it printed on stdout.
  async run(code) {
    const cell = await this.cell(code).done;
    assert.equal(cell.reply.status, 'ok', `${code}: ${cell.text} ${JSON.stringify(cell.reply)}`);
    return cell.stdout;
  }

  // Stop: VS Code waits 10 s for the reply and the idle of the interrupt itself.
  async stop() {
    const message = KernelMessage.createMessage({
      msgType: 'interrupt_request', channel: 'control', content: {},
      username: this.username, session: this.clientId,
    });
    const began = performance.now();
    const future = this.connection.sendControlMessage(message, true, true);
    const reply = await within(10, 'the interrupt', future.done);
    assert.equal(reply.content.status, 'ok');
    return performance.now() - began;
  }

  // The old process is not awaited: its kill and the next launch go on side by side. `late`: the
  // next is there first.
  async restart({ late = false } = {}) {
    this.disconnect();
    const { launched } = this;
    this.launched = undefined;
    const count = Launched.all.length;
    const killed = late
      ? until(() => Launched.all.at(count)?.process).then(() => launched.kill())
      : launched.kill();
    await this.launch();
    return killed;
  }

  // What a reload, a closed notebook and a change of the kernel have in common.
  async dispose() {
    this.disconnect();
    const { launched } = this;
    this.launched = undefined;
    return launched.kill();
  }

  disconnect() {
    this.check();
    this.channels.close();
    this.connection.dispose();
  }

  // What must hold of everything that was received.
  check() {
    assert.deepEqual(this.troubles, []);
    assert(this.sessions.size <= 1, `several sessions: ${[...this.sessions]}`);
    this.sessions.clear();
    const states = this.messages.filter(m => m.header.msg_type === 'status')
      .map(m => m.content.execution_state);
    const strange = states.filter(state => !['busy', 'idle', 'starting'].includes(state));
    assert.deepEqual(strange, []);
    this.messages = [];
  }
}

// A window's widgets. Their manager is loaded once the probe has printed a version of ipywidgets, and on a
// first start VS Code does not ask again. Until then the window takes no further message of the
// kernel's: a `comm_open` is awaited, and with it all that follows.
class Widgets {
  constructor({ connection }) {
    this.models = new Map();
    const loaded = new Promise(resolve => {
      this.load = code => {
        const [, version] = code.match(/:IPyWidgets:([78])\./) ?? [];
        if (version) resolve(this.version = Number(version));
      };
    });
    connection.registerCommTarget('jupyter.widget', async (comm, message) => {
      await loaded;
      const model = { comm, state: { ...message.content.data.state } };
      comm.onMsg = ({ content: { data } }) => { Object.assign(model.state, data.state); changed(); };
      this.models.set(comm.commId, model);
      changed();
    });
  }

  // As the manager sends it when a person moves something.
  update(id, state) {
    const { comm } = this.models.get(id);
    return comm.send({ method: 'update', state, buffer_paths: [] }).done;
  }
}

// Fills in what comes of an execute request; resolves at its reply and idle.
async function collect(future, cell = { outputs: [], text: '' }) {
  future.onIOPub = message => {
    const { msg_type: type } = message.header;
    if (type === 'execute_input') cell.count = message.content.execution_count;
    if (type === 'stream') cell.text += message.content.text;
    changed();
    if (['stream', 'error', 'execute_result', 'display_data', 'clear_output'].includes(type)) {
      cell.outputs.push({ type, ...message.content });
    }
  };
  future.onStdin = message => { cell.prompt = message; changed(); };
  cell.reply = (await future.done).content;
  const text = name => cell.outputs.filter(o => o.type === 'stream' && o.name === name)
    .map(o => o.text).join('');
  cell.stdout = text('stdout');
  cell.stderr = text('stderr');
  return cell;
}

// ---- Waiting, and nb

// Whatever arrives, ends or changes its mind says so here.
const changes = new EventEmitter();
changes.setMaxListeners(0);
const changed = () => changes.emit('change');

// Waits for a condition on what arrives.
async function until(condition) {
  while (!condition()) await once(changes, 'change');
}

async function within(seconds, event, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`${event}: not within ${seconds} s`)), seconds * 1000);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}

// Runs the nb under test to its end; what it says on stdout.
function nb(...words) {
  return execFileSync(process.env.NB_TEST_BINARY, words, { encoding: 'utf8' });
}

// An agent's nb, begun: it ends by itself, and `output` grows.
function agent(...words) {
  const child = spawn(process.env.NB_TEST_BINARY, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  const agent = { output: '', child };
  for (const stream of [child.stdout, child.stderr]) {
    stream.on('data', text => { agent.output += text; changed(); });
  }
  agent.ended = new Promise(resolve => child.once('exit', resolve));
  agent.prints = text => within(SECONDS, `"${text}" of nb ${words}; its output: ${agent.output}`,
    until(() => agent.output.includes(text)));
  return agent;
}

// The life that a notebook's kernel leads now, as the project's memory has it.
function session(notebook) {
  const { sessions } = JSON.parse(fs.readFileSync('.nb/state.json'));
  const file = fs.realpathSync(notebook);
  const found = Object.values(sessions).find(each => path.resolve(each.notebook) === file);
  assert(found, `no session of ${notebook}: ${JSON.stringify(sessions)}`);
  return { pid: found.backend.process.pid, generation: found.generation };
}

// What happened of one kind, oldest first.
function journal(event) {
  return fs.readFileSync('.nb/journal.jsonl', 'utf8').trim().split('\n')
    .map(line => JSON.parse(line)).filter(entry => entry.event === event);
}

const say = (...words) => console.error(...words);

// Runs a scenario. The sockets would keep the process alive after it.
function main(scenario) {
  const tooLong = new Promise((_, reject) => {
    setTimeout(() => reject(new Error(`no end after ${LONGEST} s`)), LONGEST * 1000);
  });
  Promise.race([scenario(), tooLong]).then(
    () => process.exit(0),
    error => {
      say(error);
      for (const { process: child } of Launched.all) child?.kill('SIGKILL');
      process.exit(1);
    },
  );
}

module.exports = {
  Kernel, PROBE, agent, changed, collect, fingerprint, journal, main, nb, say, session, setup,
  until, within,
};
