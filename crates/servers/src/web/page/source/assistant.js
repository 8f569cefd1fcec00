// The conversation with the assistant: what it says, and each step it takes.

import { pathOf, request, send } from "./connection.js";
import { linesNode } from "./diff.js";
import { showMarkdown } from "./outputs.js";
import { button, make } from "./parts.js";
import { visible } from "./visible.js";

/** The events of the server that a turn has. */
const EVENTS = [
  "text_delta",
  "note",
  "tool_start",
  "tool_update",
  "tool_result",
  "question",
  "answered",
  "usage",
  "error",
  "done",
];

export class AssistantPanel {
  /** `page` is told whether the assistant is at work: cells are not run meanwhile. */
  constructor(node, page) {
    this.node = node;
    this.page = page;
    this.turns = new Map();
    /** How many messages of the server were heard of. An answer that was asked for before one is older than it. */
    this.heard = 0;
    this.list = make("div.turns", { role: "log", "aria-live": "polite", "aria-label": "Conversation" });
    /** Who answers, or how that is set up. */
    this.setup = make("p.setup");
    this.field = make("textarea", {
      rows: "3",
      "aria-label": "Message to the assistant",
      placeholder: "What shall the assistant do? (Ctrl-Enter sends)",
      onkeydown: (event) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && this.send(),
    });
    this.sendButton = button("Send", "Send the message (Ctrl-Enter)", () => this.send());
    this.stopButton = button("■ Stop", "Stop the assistant, and interrupt its cell", () => this.stop());
    this.newButton = button("New", "Forget this conversation and begin a new one", () => this.forget());
    node.append(
      this.list,
      this.setup,
      this.field,
      make("div.tools", { role: "toolbar", "aria-label": "Assistant" }, this.sendButton, this.stopButton, this.newButton),
    );
    this.works(false);
  }

  get isOpen() {
    return !this.node.hidden;
  }

  /** Shows the conversation about a notebook, or hides it. */
  async open(book, isOpen) {
    const isOther = this.book !== book;
    this.book = book;
    this.node.hidden = !isOpen;
    if (isOther) this.clear();
    if (book && !this.isLoaded) await this.load();
  }

  clear() {
    this.removeTurns();
    this.isLoaded = false;
    this.works(false);
  }

  removeTurns() {
    for (const turn of this.turns.values()) turn.leave();
    this.turns.clear();
    this.list.replaceChildren();
  }

  /** Loads the conversation anew. */
  async reload() {
    if (this.book) await this.load();
  }

  /** Loads the conversation; while the panel is closed, only whether the assistant is at work. */
  async load() {
    const { book, isOpen, heard } = this;
    this.isLoaded = isOpen;
    const asked = request("GET", pathOf(book.id, "chat"));
    const answer = await (isOpen ? book.catch(asked) : asked.catch(() => null));
    if (this.book !== book) return;
    if (!answer) {
      this.isLoaded = false;
      return;
    }
    if (this.heard !== heard) {
      await this.load();
      return;
    }
    this.works(answer.running !== null);
    if (!isOpen) return;
    this.showSetup();
    this.removeTurns();
    for (const turn of answer.turns) {
      const view = this.view(turn.id, turn.message);
      if (turn.id === answer.running) view.follow();
      else for (const event of turn.events) view.take(event);
    }
  }

  /** Says who answers, or how that is set up: once, as a command may print the key. */
  async showSetup() {
    if (this.isSetUp) return;
    this.isSetUp = true;
    const answer = await this.book.catch(request("GET", "/api/assistant"));
    this.isSetUp = answer?.hints.length === 0;
    if (answer) this.setup.textContent = visible([answer.text, ...answer.hints].join("\n"));
  }

  view(id, message) {
    const known = this.turns.get(id);
    if (known) return known;
    const view = new TurnView(this, id, message);
    this.turns.set(id, view);
    this.list.append(view.node);
    return view;
  }

  /** Takes the message that a turn has begun or ended, or that all turns were forgotten, in this tab or another one. */
  async receives({ turn, running }) {
    this.heard += 1;
    this.works(running);
    if (turn === null) this.removeTurns();
    if (turn === null || this.turns.has(turn)) return;
    if (!this.isOpen || !this.isLoaded) {
      this.isLoaded = false;
      return;
    }
    const answer = await this.book.catch(request("GET", pathOf(this.book.id, "chat")));
    const found = answer?.turns.find((each) => each.id === turn);
    if (found) this.view(turn, found.message).follow();
  }

  works(isAtWork) {
    this.isAtWork = isAtWork;
    this.stopButton.disabled = !isAtWork;
    this.sendButton.disabled = isAtWork;
    this.newButton.disabled = isAtWork;
    this.page.assistantWorks(isAtWork);
  }

  async send() {
    const message = this.field.value;
    if (!message.trim() || this.isAtWork) return;
    this.works(true);
    const sent = await this.book.catch(begin(this.book.id, message));
    if (sent) this.field.value = "";
    else this.works(false);
  }

  stop() {
    return this.book.catch(request("POST", pathOf(this.book.id, "chat", "stop"), {}));
  }

  async forget() {
    const done = await this.book.catch(request("DELETE", pathOf(this.book.id, "chat")));
    if (done) this.removeTurns();
  }
}

/** Sends a message. Its events come by the turn's own address, which every tab reads. */
async function begin(notebook, message) {
  const response = await send("POST", pathOf(notebook, "chat"), { message });
  await response.body.cancel();
  return true;
}

/** One message, and what came of it. */
class TurnView {
  constructor(panel, id, message) {
    this.panel = panel;
    this.id = id;
    this.steps = new Map();
    this.parts = make("div.parts");
    this.foot = make("div.foot");
    this.node = make("article.turn", { "data-turn": id }, make("p.message", {}, message), this.parts, this.foot);
  }

  /** Reads the events; the browser connects again by itself and names the last one it has. */
  follow() {
    if (this.source) return;
    this.source = new EventSource(pathOf(this.panel.book.id, "chat", this.id));
    for (const name of EVENTS) {
      this.source.addEventListener(name, (event) => {
        // A lost connection is an event of this name too, without data.
        if (event.data === undefined) return;
        this.take(JSON.parse(event.data));
        if (name === "done") this.leave();
      });
    }
  }

  leave() {
    this.source?.close();
  }

  take(event) {
    const { list } = this.panel;
    const isAtEnd = list.scrollHeight - list.scrollTop - list.clientHeight < 60;
    this[event.type]?.(event);
    if (isAtEnd) list.scrollTop = list.scrollHeight;
  }

  text_delta({ text }) {
    if (!this.text) {
      this.text = { whole: "", node: make("div.answer.jp-RenderedHTMLCommon") };
      this.parts.append(this.text.node);
    }
    this.text.whole += text;
    // Not for each piece: a long answer would be rendered again and again.
    this.text.isDue ??= setTimeout(() => this.render(this.text), 100);
    this.last = this.text;
  }

  render(text) {
    text.isDue = undefined;
    showMarkdown(text.node, text.whole);
  }

  add(node) {
    if (this.last) {
      clearTimeout(this.last.isDue);
      this.render(this.last);
    }
    this.text = this.last = undefined;
    this.parts.append(node);
  }

  note({ text }) {
    this.add(make("p.remark", {}, visible(text)));
  }

  tool_start({ id, title, kind, content, warnings }) {
    const state = make("span.state", {}, "…");
    const shown = make("div.shown", {}, ...content.map(contentNode));
    const result = make("div.result");
    const tools = make("span.step-tools");
    const summary = make("summary", {}, state, ` ${visible(title)} `, tools);
    const node = make("details.step", { "data-kind": kind, open: content.length > 0 }, summary, shown, result);
    for (const warning of warnings ?? []) shown.append(make("p.warning", {}, visible(warning)));
    this.steps.set(id, { node, state, result, tools });
    this.add(node);
  }

  tool_update({ id, content }) {
    const step = this.steps.get(id);
    step?.result.replaceChildren(...content.map(contentNode));
  }

  tool_result({ id, failed, content, op, changes, status }) {
    const step = this.steps.get(id);
    if (!step) return;
    step.state.textContent = failed ? "✗" : "✓";
    step.node.classList.toggle("failed", failed);
    step.result.replaceChildren(...content.map(contentNode));
    const { book } = this.panel;
    for (const { cell } of changes ?? []) {
      step.tools.append(button(cell.slice(0, 4), `Go to cell ${cell}`, () => book.show(cell)));
    }
    if (op) step.tools.append(button("Undo", `Take edit ${op} back`, () => book.undo(op)));
    if (status && status !== "ok") step.tools.append(` ${status}`);
  }

  question({ id, text }) {
    const answer = (letter) => {
      const path = pathOf(this.panel.book.id, "chat", "answer");
      return this.panel.book.catch(request("POST", path, { id, text: letter }));
    };
    const [title, ...options] = visible(text).split("\n");
    const known = options.map((line) => line.match(/^ {2}([a-z]) {2}(.*)$/)).filter(Boolean);
    const buttons = known.map(([, letter, words]) => button(words, words, () => answer(letter)));
    this.asked = make("div.asked", { role: "group", "aria-label": "Question" }, make("p", {}, title), ...buttons);
    this.add(this.asked);
    this.panel.page.news("the assistant asks something");
  }

  answered() {
    this.asked?.remove();
  }

  usage({ input_tokens: input, output_tokens: output, cost }) {
    const price = cost ? ` · ${cost[0].toFixed(4)} ${cost[1]}` : "";
    this.foot.textContent = `${input + output} tokens${price}`;
  }

  error({ message, hints }) {
    const lines = (hints ?? []).map((hint) => make("p.remark", {}, hint));
    this.add(make("div.fault", { role: "alert" }, make("p", {}, message), ...lines));
  }

  done({ reason }) {
    this.answered();
    this.add(make("p.remark", {}, reason === "end_turn" ? "" : reason));
    for (const { state } of this.steps.values()) if (state.textContent === "…") state.textContent = "✗";
  }
}

function contentNode(content) {
  if (content.type === "text") return make("pre", {}, visible(content.text));
  const lines = (kind, text) => text.split("\n").map((line) => ({ [kind]: line }));
  return linesNode([...lines("removed", content.old), ...lines("added", content.new)]);
}
