// A client of `nb web`, or of a Jupyter server, on JupyterLab's library.

const assert = require('node:assert/strict');

const { ServerConnection } = require('@jupyterlab/services');
const { changed, collect, until, within } = require('./vscode');

const SECONDS = 120;

// Settings as VS Code makes them: the token is in a header, and in the address of the websocket.
function settings({ url = process.env.NB_WEB_URL, token = process.env.NB_WEB_TOKEN, subprotocol = true } = {}) {
  const { WebSocket } = ServerConnection.makeSettings();
  return ServerConnection.makeSettings({
    baseUrl: url, wsUrl: url.replace(/^http/, 'ws'), token, appendToken: true,
    WebSocket: class extends WebSocket {
      constructor(address, protocols) {
        super(address, subprotocol ? protocols : []);
        this.addEventListener('open', () => Client.protocols.add(this.protocol));
      }
    },
  });
}

class Client {
  // The subprotocols that were negotiated.
  static protocols = new Set();

  constructor(connected) {
    this.connected = connected;
    this.kernel = connected.kernel ?? connected;
    this.kernel.commsOverSubshells = 'disabled';
    this.kernel.statusChanged.connect(changed);
  }

  // A cell, begun.
  cell(code) {
    const future = this.kernel.requestExecute({
      code, silent: false, stop_on_error: false, allow_stdin: true, store_history: true,
    }, false);
    const cell = { request: future.msg.header.msg_id, outputs: [], text: '' };
    cell.prints = text => within(SECONDS, `"${text}" of ${code}`, until(() => cell.text.includes(text)));
    cell.asks = () => within(SECONDS, `a prompt of ${code}`, until(() => cell.prompt));
    cell.done = within(SECONDS, code, collect(future, cell));
    cell.done.catch(() => {});
    return cell;
  }

  // A cell that must succeed: what it printed on stdout.
  async run(code) {
    const cell = await this.cell(code).done;
    assert.equal(cell.reply.status, 'ok', `${code}: ${cell.text} ${JSON.stringify(cell.reply)}`);
    return cell.stdout;
  }

  dispose() {
    this.connected.dispose();
  }
}

// Waits until a session or kernel is connected and idle.
async function connect(connected) {
  const client = new Client(connected);
  const info = await within(SECONDS, 'the kernel', client.kernel.info);
  assert.equal(info.language_info.name, 'python');
  await within(SECONDS, 'idle', until(() => client.kernel.status === 'idle'));
  return client;
}

module.exports = { Client, connect, settings };
