// The server: requests, and the messages of its websocket.

/** What the server has refused. `error` is its problem: kind, message, hints, conflicts. */
export class Refused extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.error = error;
  }
}

export const LOST = "the connection to nb web is lost; it is tried again";

/** Returns the path of a notebook's resources. */
export function pathOf(notebook, ...rest) {
  return ["/api/notebooks", notebook, ...rest].map((part, at) => (at ? encodeURIComponent(part) : part)).join("/");
}

/** Sends a request; returns the answer's JSON. `revision` is what a change is made from. */
export async function request(method, path, body, revision) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (revision !== undefined) headers["If-Match"] = `"${revision}"`;
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent }).catch(() => {
    throw new Error(LOST);
  });
  const text = await response.text();
  if (response.ok) return JSON.parse(text);
  let error;
  try {
    error = JSON.parse(text).error;
  } catch {
    error = { kind: response.status === 401 ? "unknown" : "failed", message: text.trim(), hints: [], conflicts: [] };
  }
  throw new Refused(response.status, error);
}

const SHORTEST = 200;
const LONGEST = 5000;

/** Receives the server's messages, and connects again when the connection is lost. */
export class Connection {
  /** `receives` gets each message; `changes` is called with whether the server is connected, and whether that is the first time. */
  constructor(receives, changes) {
    this.receives = receives;
    this.changes = changes;
    this.pause = SHORTEST;
    this.connect();
  }

  connect() {
    const address = new URL("/api/ws", location.href);
    address.protocol = "ws:";
    if (this.run !== undefined) address.search = `run=${this.run}&after=${this.number}`;
    const socket = new WebSocket(address);
    socket.onmessage = (event) => this.take(JSON.parse(event.data));
    socket.onclose = () => {
      this.changes(false);
      setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, LONGEST);
    };
  }

  take(message) {
    if (message.type === "hello") {
      // The number of this connection counts once what was missed has come.
      const isFirst = this.run === undefined;
      if (this.run !== message.run) [this.run, this.number] = [message.run, message.number];
      this.pause = SHORTEST;
      this.changes(true, isFirst);
      return;
    }
    if (message.number !== undefined) this.number = message.number;
    this.receives(message);
  }
}
