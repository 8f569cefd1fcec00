// The server: requests, and the messages over its websocket.

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
export async function request(...words) {
  return (await send(...words)).json();
}

/** Sends a request; returns the answer. */
export async function send(method, path, body, revision) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (revision !== undefined) headers["If-Match"] = `"${revision}"`;
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, { method, headers, body: sent }).catch(() => {
    throw new Error(LOST);
  });
  if (response.ok) return response;
  const text = await response.text();
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

/** After how long without a message the connection is dead, in milliseconds. The server sends one every 30 seconds. */
const SILENCE = 75_000;

/** The longest message to the server, in bytes. */
const LONGEST_MESSAGE = 16 << 20;

/** Receives the server's messages, and connects again when the connection is lost. */
export class Connection {
  /** `receives` gets each message; `changes` is called with whether the server is connected, and whether that is the first time. */
  constructor(receives, changes) {
    this.receives = receives;
    this.changes = changes;
    this.pause = SHORTEST;
    addEventListener("online", () => this.connect());
    // Timers of a page that is not seen come late.
    document.addEventListener("visibilitychange", () => Date.now() - this.heard > SILENCE && this.connect());
    this.connect();
  }

  /** Connects, in place of a connection that there is. */
  connect() {
    clearTimeout(this.next);
    if (this.socket) {
      // The browser would wait for the other side.
      this.socket.onmessage = this.socket.onclose = null;
      this.socket.close();
    }
    const address = new URL("/api/ws", location.href);
    address.protocol = "ws:";
    if (this.run !== undefined) address.search = `run=${this.run}&after=${this.number}`;
    this.socket = new WebSocket(address);
    this.socket.onmessage = (event) => this.take(JSON.parse(event.data));
    this.socket.onclose = () => {
      clearTimeout(this.silence);
      this.changes(false);
      this.next = setTimeout(() => this.connect(), this.pause);
      this.pause = Math.min(2 * this.pause, LONGEST);
    };
    this.hears();
  }

  /** Sends a message, if the server is connected and it is not too long; returns whether it was sent. */
  send(message) {
    const text = JSON.stringify(message);
    const isSent = this.socket.readyState === WebSocket.OPEN && new Blob([text]).size <= LONGEST_MESSAGE;
    if (isSent) this.socket.send(text);
    return isSent;
  }

  /** Notes that the server is there: it is waited for from now on. */
  hears() {
    this.heard = Date.now();
    clearTimeout(this.silence);
    this.silence = setTimeout(() => {
      this.changes(false);
      this.connect();
    }, SILENCE);
  }

  take(message) {
    this.hears();
    if (message.type === "alive") return;
    if (message.type === "hello") {
      // The number of this connection counts once what was missed has come.
      const isFirst = this.run === undefined;
      if (this.run !== message.run) [this.run, this.number] = [message.run, message.number];
      this.pause = SHORTEST;
      /** The name under which the page acts. */
      this.name = message.name;
      this.changes(true, isFirst);
      return;
    }
    if (message.number !== undefined) this.number = message.number;
    this.receives(message);
  }
}
