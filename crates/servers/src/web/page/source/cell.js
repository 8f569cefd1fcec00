// One cell: its source, its outputs, and what happens to it.

import { differences } from "./diff.js";
import { Editor } from "./editor.js";
import { Outputs, showMarkdown } from "./outputs.js";
import { InSteps, button, duration, iconButton, make, plain, runButton } from "./parts.js";

const mounting = new InSteps((view) => view.mount());

/** Makes the parts of a cell once it comes near the screen: a notebook may have many cells. */
const near = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) mounting.add(target.cellView);
      else mounting.delete(target.cellView);
    }
  },
  { rootMargin: "1000px" },
);

export class CellView {
  /** `book` is the notebook; `data` is what the server says of the cell. */
  constructor(book, data) {
    this.book = book;
    this.data = { ...data, outputs: outputsOf(data) };
    /** Which outputs are here. */
    this.outputsDigest = this.data.outputs && data.outputs_digest;
    /** The source and the revision from which the person edits. */
    this.base = { source: book.live.known?.get(data.id) ?? plain(data.source), revision: data.revision };
    this.isEditing = false;
    this.isWaiting = false;
    this.running = null;
    /** The number of the last beginning or end of a run that was heard of. */
    this.heard = 0;
    /** After how many of the notebook's writes its text was written last. */
    this.written = 0;
    this.live = null;
    /** The outputs that have come while those before them are loaded. */
    this.late = null;
    this.build();
    this.show();
    near.observe(this.node);
  }

  get id() {
    return this.data.id;
  }

  /** The name of the cell without its first line: its place from 0, and its short id. */
  get name() {
    return `${this.data.index} · ${this.data.short_id}`;
  }

  get text() {
    return this.editor ? this.editor.text : this.base.source;
  }

  get isChanged() {
    return this.text !== this.base.source;
  }

  build() {
    const { book } = this;
    this.prompt = make("div.prompt");
    this.nameNode = make("div.name");
    this.note = make("div.note");
    this.source = make("div.source");
    this.plain = make("pre.plain", {}, this.base.source);
    this.rendered = make("div.rendered.jp-RenderedHTMLCommon", { hidden: true });
    this.source.append(this.plain);
    this.question = make("div.question", { hidden: true });
    this.conflict = make("div.conflict", { role: "group", "aria-label": "Conflict", hidden: true });
    this.stale = make("p.stale", { hidden: true });
    this.outputsNode = make("div.outputs", { role: "region" });
    this.outputs = new Outputs(this.outputsNode, book, this);
    this.runButton = runButton("Run this cell", () => book.run(this));
    const tools = make(
      "div.cell-tools",
      { role: "toolbar", "aria-label": "Cell" },
      this.runButton,
      iconButton("up", "Move up", () => book.move(this, -1)),
      iconButton("down", "Move down", () => book.move(this, 1)),
      iconButton("copy", "Duplicate this cell", () => book.duplicate(this)),
      iconButton("clear", "Clear its outputs", () => book.clear(this)),
      iconButton("trash", "Delete this cell", () => book.remove(this)),
    );
    // For the mouse: the keys a and b do the same.
    const above = (picture, name, type, words) => {
      const node = iconButton(picture, name, () => book.insert(this, "before", true, type), { words });
      node.tabIndex = -1;
      return node;
    };
    const between = make(
      "div.between",
      {},
      above("plus", "Insert a code cell here", "code", "Code"),
      above("text", "Insert a Markdown cell here", "markdown", "Markdown"),
    );
    this.node = make(
      "section.cell",
      { tabindex: "-1" },
      make("div.side", {}, this.prompt, this.nameNode, this.note),
      make("div.middle", {}, between, tools, this.source, this.rendered, this.stale, this.conflict, this.outputsNode, this.question),
    );
    this.node.cellView = this;
    this.node.addEventListener("mousedown", () => book.select(this, false));
    this.node.addEventListener("focusin", () => book.select(this, false));
    this.rendered.addEventListener("dblclick", () => this.edit());
  }

  /** Makes the editor and the outputs. */
  mount() {
    if (this.isMounted) return;
    this.isMounted = true;
    near.unobserve(this.node);
    this.makeEditor();
    this.show();
    this.loadOutputs();
  }

  /** Loads the outputs, if the server has others. Those of one digest are asked for once. */
  loadOutputs() {
    const digest = this.data.outputs_digest;
    if (!this.isMounted || this.outputsDigest === digest || this.askedDigest === digest) return;
    this.askedDigest = digest;
    this.book.loadOutputs(this);
  }

  makeEditor() {
    const text = this.text;
    this.editor?.destroy();
    const host = make("div.editor");
    this.editorType = this.data.type;
    this.editor = new Editor(host, {
      text,
      type: this.data.type,
      label: () => `Source of cell ${this.name}`,
      acts: {
        changed: () => {
          this.showState();
          this.book.live.typed();
        },
        entered: () => {
          this.isEditing = true;
          this.showState();
          this.book.noteTyped();
        },
        left: () => {
          this.isEditing = false;
          this.showState();
          // What answers a conflict may be what is clicked now.
          if (this.conflict.hidden) this.book.save(this);
        },
        key: (name) => this.key(name),
        ask: (what, code, at) => this.book.ask(what, code, at),
      },
    });
    this.source.replaceChildren(host);
  }

  key(name) {
    if (name === "Escape") {
      this.editor.blur();
      this.book.select(this);
    } else if (name === "Shift-Enter") {
      this.book.runAndGoOn(this);
    } else if (name === "Mod-s") {
      this.book.save(this);
    } else {
      this.editor.blur();
      this.book.select(this);
      this.book.run(this);
    }
    return true;
  }

  /** Takes what the server says of the cell. */
  update(data) {
    const isNew = data.revision !== this.base.revision;
    const isElsewhere = data.index !== this.data.index;
    const given = outputsOf(data);
    const keepsOutputs = given === null;
    if (!keepsOutputs) this.outputsDigest = data.outputs_digest;
    this.data = { ...data, outputs: given ?? this.data.outputs };
    if (isNew) {
      const source = plain(data.source);
      if (this.base.source === source) {
        this.base.revision = data.revision;
      } else if (this.text === source) {
        this.takeText(source, source, data.revision);
      } else if (!this.isChanged) {
        // What `nb live` has said may be newer than the answer.
        const told = this.book.live.told(this.id) ?? source;
        this.takeText(told, told, told === source ? data.revision : this.base.revision);
      }
      if (this.editor && this.editorType !== data.type) this.makeEditor();
    }
    if (isElsewhere) this.editor?.relabel();
    // What the kernel has sent is newer than the file until the file has the whole run.
    if (this.live && !keepsOutputs && this.isOver(data.execution_count)) this.live = null;
    this.show();
    this.loadOutputs();
  }

  /** Takes a text, and the one that the notebook has. */
  takeText(text, source, revision = this.base.revision) {
    this.base = { source, revision };
    if (this.editor) this.editor.text = text;
    else this.plain.textContent = text;
    if (text === source) this.conflict.hidden = true;
    this.showState();
  }

  /** Takes the text from which the person's is made. */
  takeBase(source) {
    this.base.source = source;
    if (plain(this.data.source) === source) this.base.revision = this.data.revision;
    this.showState();
  }

  /** Takes what the person had typed before the page was loaded again. */
  resumes({ text, base }) {
    this.base = base;
    this.mount();
    this.takeText(text, base.source);
  }

  /** Takes outputs that were loaded. */
  takeOutputs({ outputs, outputs_digest: digest, execution_count: count }) {
    this.outputsDigest = digest;
    this.data = { ...this.data, outputs };
    if (this.live && this.isOver(count)) this.live = null;
    this.show();
    this.loadOutputs();
  }

  show() {
    this.showState();
    const { data } = this;
    const isMarkdown = data.type === "markdown";
    if (isMarkdown && this.isMounted) this.showRendered();
    if (this.isMounted) {
      const outputs = this.live ? this.live.outputs : (data.outputs ?? []);
      // Those of a run grow in place.
      if (this.live || outputs !== this.shownOutputs) this.outputs.show(outputs);
      this.shownOutputs = this.live ? null : outputs;
      this.outputsNode.setAttribute("aria-label", `Outputs of cell ${this.name}`);
    }
  }

  /** Lets the keyboard scroll outputs that are as high as they get. */
  showScrolling() {
    const { clientHeight } = this.outputsNode;
    if (clientHeight >= parseFloat(getComputedStyle(this.outputsNode).maxHeight) - 1) this.outputsNode.tabIndex = 0;
    else this.outputsNode.removeAttribute("tabindex");
  }

  showRendered() {
    if (this.shownMarkdown === this.text) return;
    this.shownMarkdown = this.text;
    showMarkdown(this.rendered, this.text.trim() || "*empty*", () => this.book.attachments(this));
  }

  showState() {
    const { data, node } = this;
    const isRunning = this.running !== null;
    node.dataset.type = data.type;
    node.dataset.cell = data.id;
    node.dataset.state = isRunning ? "running" : this.isWaiting ? "waiting" : (data.state ?? "");
    node.setAttribute("aria-label", `Cell ${this.name}, ${data.type}${isRunning ? ", running" : ""}`);
    this.nameNode.textContent = this.name;
    node.classList.toggle("editing", this.isEditing);
    const { isChanged } = this;
    node.classList.toggle("changed", isChanged);
    this.book.notes(this, isChanged);
    const isRendered = data.type === "markdown" && !this.isEditing && this.isMounted === true;
    this.source.hidden = isRendered;
    this.rendered.hidden = !isRendered;
    if (isRendered) this.showRendered();
    this.runButton.hidden = data.type !== "code";
    const count = isRunning || this.isWaiting ? "*" : (data.execution_count ?? " ");
    this.prompt.textContent = data.type === "code" ? `[${count}]` : "";
    this.showStale();
    this.showNote();
  }

  /** Says why the cell is out of date. */
  showStale() {
    const stale = this.data.state === "stale" && !this.running && !this.isWaiting ? this.data.stale : null;
    const text = stale ? this.book.whyStale(stale) : "";
    this.stale.hidden = !stale;
    if (this.stale.dataset.text === text) return;
    this.stale.dataset.text = text;
    this.stale.replaceChildren(`Out of date: ${text}`);
    if (stale?.cell) {
      const go = () => this.book.show(stale.cell);
      this.stale.append(" ", button("Go there", `Go to the cell that gives ${stale.name}`, go));
    }
  }

  showNote() {
    const { data } = this;
    let note = "";
    if (this.running) {
      const time = duration(Math.max(0, Date.now() - this.running.since));
      note = this.running.by ? `${this.running.by} · ${time}` : time;
    } else if (this.isChanged && data.revision !== this.base.revision) note = "others changed it";
    else if (this.isWaiting) note = "waits";
    else if (this.took !== undefined) note = duration(this.took);
    this.note.textContent = note;
  }

  /** Marks the cell as running. */
  begins(since, by) {
    this.isWaiting = false;
    this.running = { since, by };
    this.showState();
  }

  /** Begins with the outputs of a run. */
  beginsLive() {
    this.late = null;
    this.live = { outputs: [] };
  }

  /** Returns whether the notebook has the outputs of the run, with this count. */
  isOver(count) {
    const { end } = this.live;
    return end !== undefined && (end === null || count === end);
  }

  /** Begins with the outputs of a run that has begun before. */
  async joinsLive() {
    const late = (this.late = []);
    const { number, outputs } = (await this.book.outputsUntilNow(this)) ?? {};
    // It may have ended meanwhile.
    if (this.late !== late) return;
    this.late = null;
    if (!outputs) return;
    this.beginsLive();
    this.prints({ from: 0, outputs });
    late.filter((message) => message.number > number).forEach((message) => this.prints(message));
  }

  /** Takes outputs of the run: they replace those from a place on. */
  prints(message) {
    if (this.late) {
      // What was printed before them is not here yet.
      this.late.push(message);
    } else if (this.live && message.from > this.live.outputs.length) {
      this.joinsLive();
    } else if (this.live) {
      this.live.outputs.splice(message.from, Infinity, ...message.outputs);
      this.show();
    }
  }

  /** Marks the run as over. */
  ends({ took_ms: took, execution_count: count }) {
    this.running = null;
    this.isWaiting = false;
    this.late = null;
    this.isMine = false;
    this.took = took;
    if (this.live) this.live.end = count ?? null;
    this.asks(null);
    this.showState();
  }

  /** Shows a question of the code, or removes it. */
  asks(prompt, job) {
    const asked = prompt && JSON.stringify([job, prompt]);
    if (this.asked === asked) return;
    this.asked = asked;
    const hadFocus = this.question.contains(document.activeElement);
    this.question.hidden = prompt === null;
    if (prompt === null) {
      this.question.replaceChildren();
      if (hadFocus) this.book.select(this);
      return;
    }
    const field = make("input", {
      type: prompt.password ? "password" : "text",
      "aria-label": prompt.prompt || "Answer",
      autocomplete: "off",
      onkeydown: (event) => event.key === "Enter" && send(),
    });
    const send = () => this.book.reply(this, job, prompt.number, field);
    this.question.replaceChildren(make("span", {}, prompt.prompt), field, button("Answer", "Answer", send));
    // Who has run it, by keys that go on to the next cell too, is asked at once; but not who types elsewhere.
    const isElsewhere = this.book.order.some((view) => view.isEditing && view !== this);
    if (this.book.selected === this || (this.isMine && !isElsewhere)) field.focus();
  }

  /** Shows what others have written in the lines that the person has changed too. */
  conflicts(error) {
    const conflict = error.conflicts.find((each) => each.cell === this.id) ?? error.conflicts[0];
    if (!conflict) return;
    const theirs = plain(conflict.theirs ?? "");
    const who = this.book.changers.get(this.id) ?? "Somebody";
    const take = (text) => {
      this.conflict.hidden = true;
      this.base = { source: theirs, revision: conflict.revision };
      if (this.editor) this.editor.text = text;
      this.showState();
    };
    const keep = () => {
      const mine = this.text;
      take(mine);
      this.book.save(this);
    };
    const diff = make("div", {}, make("pre.diff", {}, theirs));
    this.conflict.hidden = false;
    this.conflict.replaceChildren(
      make("p", {}, `${who} changed the same lines. In red ${who === "Somebody" ? "theirs" : `${who}'s`}, in green yours:`),
      diff,
      button("Keep mine", "Overwrite their lines with yours", keep),
      button("Take theirs", "Drop your text", () => take(theirs)),
      button("Merge", "Merge", () => this.book.save(this, true)),
    );
    const found = differences(this.book, this.id, { before: conflict.revision, text: this.text });
    this.book.catch(found).then((node) => node && diff.replaceChildren(node));
    this.book.news(`${who} changed the lines that you edit: the cell shows both`);
  }

  edit() {
    this.mount();
    this.isEditing = true;
    this.showState();
    this.editor.focus();
  }

  destroy() {
    near.unobserve(this.node);
    mounting.delete(this);
    this.editor?.destroy();
    this.node.remove();
  }
}

/** Returns the outputs in what the server says of a cell; null if it has left them out. */
const outputsOf = (data) => data.outputs ?? (data.output_count === 0 ? [] : null);
