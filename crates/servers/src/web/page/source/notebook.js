// One notebook: its cells as the server has them, and what the person does.

import { CellView } from "./cell.js";
import { Refused, pathOf, request } from "./connection.js";
import { showKeys } from "./keys.js";
import { Live } from "./live.js";
import { closeWidgets, endWidgets } from "./outputs.js";
import { InSteps, button, iconButton, make, soon } from "./parts.js";

/** For how long a run may not be known to the kernel's state, in milliseconds. */
const JUST = 1000;

/** How long to wait until it is asked again which cells wait, in milliseconds. */
const LOOKS_AGAIN = 2000;

/** After how many milliseconds the notebook is read again when a text could not be written. */
const READS_AGAIN = 3000;

/** For how many milliseconds a deleted cell can be brought back at its place. */
const OFFERS_UNDO = 10000;

/** How many entries of the log are read for how long cells took. */
const TIMES = 200;

/** How many characters of a cell's first line are in its name. */
const FIRST_LINE = 40;

/** How many cells are requested at a time. */
const MOST_CELLS = 20;

/** The keys that are kept for a cell that is still on its way. */
const KEPT_KEY = /^(.|Enter|Escape|Tab|Backspace|Delete|Home|End|Arrow\w+)$/u;

/** Why a cell is out of date because of another cell, which has this name on the page. */
const BECAUSE_OF = {
  needs_stale: (cell, name) => `${cell}, which defines ${name}, is stale`,
  ran_after: (cell, name) => `${cell} ran after it: ${name}`,
  other_cell: (cell, name) => `when it ran, ${name} was not what ${cell} gives`,
};

export class Notebook {
  /** `page` shows what is not of one cell. */
  constructor(id, page) {
    this.id = id;
    this.page = page;
    this.live = new Live(this);
    this.node = make("div.cells", { role: "list" });
    const add = (picture, name, type, words) => iconButton(picture, name, () => this.insert(null, "after", true, type), { words });
    this.end = make("div.end", {}, add("plus", "Add code cell at the end", "code", "Code"), add("text", "Add Markdown cell at the end", "markdown", "Markdown"));
    this.sizes = new ResizeObserver((entries) => {
      // If the cell itself has grown, its editor may have scrolled to the cursor.
      if (entries.every(({ target }) => target !== this.typed?.view.node)) this.keepTyped();
      for (const { target } of entries) target.cellView?.showScrolling();
    });
    this.sizes.observe(this.node);
    /** The cells with a text that the notebook does not have. */
    this.unsaved = new Set();
    /** How many texts are being written, and how many were. */
    this.writes = 0;
    this.written = 0;
    /** Who has changed a cell last. */
    this.changers = new Map();
    this.views = new Map();
    this.order = [];
    this.selected = null;
    /** What the person had typed in cells that come back. */
    this.restored = new Map();
    this.lastKey = { name: "", at: 0 };
    /** How many new cells are on their way, and the keys that were pressed meanwhile. */
    this.coming = 0;
    this.keys = [];
    /** What was typed in cells that others have deleted, until the person closes it. */
    this.offers = new Set();
    /** The lines in place of cells that were just deleted. */
    this.removed = new Map();
    /** The cells whose outputs are loaded with the next request. */
    this.toLoad = new Set();
    /** The last undo that was asked for. */
    this.undoing = Promise.resolve();
    this.arriving = new InSteps((cell) => this.views.get(cell.id)?.takeOutputs(cell));
    this.isOutdated = false;
    /** Whether the next load writes the texts that are not written yet: the notebook could not be read or written. */
    this.mustWrite = false;
    this.refreshKernel = soon(() => this.loadKernel(), 100);
    /** How many beginnings and ends of runs were heard of. An answer that was asked for before one is older than it. */
    this.heard = 0;
    this.clock = setInterval(() => this.order.forEach((view) => view.running && view.showNote()), 500);
  }

  path(...rest) {
    return pathOf(this.id, ...rest);
  }

  /** Loads the notebook; the outputs of a cell follow once it comes near the screen. */
  async load() {
    this.widgetState = null;
    this.take(await request("GET", `${this.path()}?outputs=false`));
    this.live.open();
    this.showSaved();
    // What they have printed meanwhile was not heard of.
    for (const view of this.order) if (view.running) view.joinsLive();
    await Promise.all([this.loadKernel(), this.loadJobs()]);
    await this.loadTimes();
  }

  /** Loads how long the cells took. */
  async loadTimes() {
    const { log } = await request("GET", `${this.path("log")}?count=${TIMES}`).catch(() => ({ log: [] }));
    for (const { event, cell, took_ms: took } of log) {
      const view = event === "ran" && this.views.get(cell);
      if (!view || typeof took !== "number") continue;
      view.took = took;
      view.showNote();
    }
  }

  /** Loads what has changed. While it does, further changes make it load once more. */
  refresh() {
    this.isOutdated = true;
    this.refreshing ??= this.loadChanges();
    return this.refreshing;
  }

  async loadChanges() {
    try {
      while (this.isOutdated) {
        this.isOutdated = false;
        this.widgetState = null;
        const { written } = this;
        const answer = await request("GET", `${this.path()}?outputs=false`);
        const isChanged = ({ id, outputs_digest: digest, output_count: count }) => {
          const view = this.views.get(id);
          return view?.isMounted && view.outputsDigest !== digest && count > 0;
        };
        const changed = answer.cells.filter(isChanged).map((cell) => cell.id);
        const loaded = await this.outputsOf(changed).catch(() => new Map());
        const given = (cell) => {
          const { outputs, outputs_digest: digest = cell.outputs_digest } = loaded.get(cell.id) ?? {};
          return { ...cell, outputs, outputs_digest: digest };
        };
        this.take({ ...answer, cells: answer.cells.map(given) }, written);
        if (this.mustWrite) this.saveChanged();
        this.mustWrite = false;
        // It may be in a project by now.
        if (!this.live.known) this.live.open();
      }
    } catch (error) {
      this.mustWrite = true;
      throw error;
    } finally {
      this.refreshing = null;
    }
  }

  /** Requests cells with their outputs; returns them by their ids. */
  async outputsOf(ids) {
    const found = new Map();
    for (let at = 0; at < ids.length; at += MOST_CELLS) {
      const named = ids.slice(at, at + MOST_CELLS).map(encodeURIComponent).join(",");
      const { cells } = await request("GET", `${this.path()}?cells=${named}`);
      for (const cell of cells) found.set(cell.id, cell);
    }
    return found;
  }

  /** Loads the outputs of a cell, together with those that are asked for until the last request is answered. */
  loadOutputs(view) {
    this.toLoad.add(view);
    this.loading ??= this.catch(this.loadWanted(), "notebook").finally(() => (this.loading = null));
  }

  async loadWanted() {
    // Those that are asked for at once are one request.
    await new Promise(requestAnimationFrame);
    while (this.toLoad.size > 0) {
      const wanted = [...this.toLoad].filter((view) => this.views.has(view.id));
      this.toLoad.clear();
      const loaded = await this.outputsOf(wanted.map((view) => view.id)).catch(() => null);
      // A cell that is gone makes the request fail.
      if (!loaded) return this.refresh();
      for (const cell of loaded.values()) this.arriving.add(cell);
    }
  }

  /** Returns the state of the widgets that is saved in the notebook, or null. */
  widgets() {
    this.widgetState ??= request("GET", this.path("widgets")).then(({ widgets }) => widgets);
    return this.widgetState;
  }

  /** Loads the files in a cell of Markdown. */
  async attachments(view) {
    return (await request("GET", this.path("cells", view.id, "attachments"))).attachments;
  }

  /** Shows the cells of an answer, which was asked for when so many texts had been written. */
  take(answer, written = this.written) {
    const gone = new Set(this.views.keys());
    this.order = answer.cells.map((data) => {
      gone.delete(data.id);
      const view = this.views.get(data.id);
      if (view) {
        // What was written since then may be missing in the answer.
        const isEarlier = view.written > written;
        this.isOutdated ||= isEarlier;
        view.update(isEarlier ? { ...data, source: view.base.source, revision: view.base.revision } : data);
        return view;
      }
      this.removed.get(data.id)?.remove();
      const fresh = new CellView(this, data);
      fresh.node.setAttribute("role", "listitem");
      this.views.set(data.id, fresh);
      this.sizes.observe(fresh.node);
      return fresh;
    });
    for (const id of gone) {
      const view = this.views.get(id);
      if (view.isRemoved) this.showRemoved(view);
      else if (view.isChanged || view.isEditing) this.offerToRestore(id, view.text);
      this.sizes.unobserve(view.node);
      this.notes(view, false);
      view.destroy();
      this.views.delete(id);
    }
    this.live.gone([...gone]);
    // Reasons name cells by their places, which are known now.
    for (const view of this.order) view.showStale();
    let at = this.node.firstChild;
    for (const { node } of this.order) {
      while (at?.matches(".removed")) at = at.nextSibling;
      // A node that moves loses the focus: nodes in place are left there.
      if (at === node) at = at.nextSibling;
      else this.node.insertBefore(node, at);
    }
    this.resumes();
    if (!this.order.includes(this.selected)) {
      const index = Math.min(this.selected?.data.index ?? 0, this.order.length - 1);
      this.select(this.order[index] ?? null, this.selected !== null);
    }
    for (const [id, text] of this.restored) {
      const view = this.views.get(id);
      if (!view) continue;
      this.restored.delete(id);
      this.select(view);
      view.edit();
      view.editor.text = text;
    }
    if (this.toSelect && this.views.has(this.toSelect)) {
      const view = this.views.get(this.toSelect);
      this.toSelect = null;
      // Who has gone on to another cell meanwhile stays there.
      const isElsewhere = this.keys.length === 0 && this.order.some((each) => each.isEditing);
      if (!isElsewhere) this.select(view);
      if (!isElsewhere && this.toEdit) view.edit();
    }
    this.page.shows(answer);
  }

  async loadKernel() {
    const before = this.heard;
    try {
      const answer = await request("GET", this.path("kernel"));
      if (this.isGone) return;
      const kernel = answer.sessions[0];
      const running = kernel?.running;
      for (const view of this.order.filter((each) => each.heard <= before)) {
        if (running?.cell === view.id) {
          if (!view.running) {
            view.begins(Date.parse(running.since), running.by);
            view.joinsLive();
          }
        } else if (view.running) {
          // A run that has just begun may not be known there.
          if (Date.now() - view.running.since > JUST) view.ends({});
          else setTimeout(this.refreshKernel, JUST);
        }
      }
      this.page.kernel(kernel);
    } catch (error) {
      if (this.isGone || !(error instanceof Refused)) return;
      this.page.kernel(null);
    }
  }

  /** Returns what a running cell has printed; null if the server cannot say. */
  outputsUntilNow(view) {
    return request("GET", this.path("cells", view.id, "running")).catch(() => null);
  }

  /** Loads which cells wait, and looks again while some do: those behind one that fails are not run. */
  async loadJobs() {
    clearTimeout(this.nextJobs);
    const before = this.heard;
    const answer = await request("GET", this.path("jobs")).catch(() => null);
    if (this.isGone) return;
    const open = (answer?.jobs ?? []).filter((each) => each.state !== "done");
    const waiting = new Set();
    for (const job of open) {
      const cells = job.cells.filter((cell) => !cell.status).map((each) => each.cell);
      for (const cell of cells) waiting.add(cell);
      const asking = this.views.get(cells[0]);
      if (job.prompt && asking && asking.heard <= before) asking.asks(job.prompt, job.id);
    }
    for (const view of answer ? this.order : []) {
      const waits = waiting.has(view.id) && !view.running;
      if (view.heard > before || view.isWaiting === waits) continue;
      view.isWaiting = waits;
      view.showState();
    }
    clearTimeout(this.nextJobs);
    if (this.order.some((view) => view.isWaiting)) this.nextJobs = setTimeout(() => this.loadJobs(), LOOKS_AGAIN);
  }

  /** Takes a message of the server. */
  receives(message) {
    const view = (id) => this.views.get(id);
    if (message.type === "event") {
      this.happens(message);
    } else if (message.type === "live") {
      this.live.receives(message.message);
    } else if (message.notebook !== this.id) {
      return;
    } else if (message.type === "changed") {
      this.catch(this.refresh(), "notebook");
    } else if (message.type === "output") {
      view(message.cell)?.prints(message);
    } else if (message.type === "assistant") {
      this.page.assistant.receives(message);
    } else if (message.type === "prompt") {
      if (message.cell) view(message.cell)?.asks(message.prompt, message.job);
      else if (message.prompt) this.page.problem(`job ${message.job} asks: ${message.prompt.prompt}`, undefined, message.job);
      else this.page.clearProblem(message.job);
    }
  }

  happens({ notebook, event }) {
    this.refreshKernel();
    this.page.happened();
    if (notebook !== this.id) return;
    const view = this.views.get(event.cell);
    for (const { cell } of event.changes ?? []) this.changers.set(cell, event.by ?? "another program");
    if (event.event === "requested" && view) {
      this.runs ??= new Map();
      this.runs.set(event.msg_id, view);
      view.heard = ++this.heard;
      view.begins(Date.parse(event.at), event.by);
      if (event.job) view.beginsLive();
    } else if (event.event === "done") {
      const ended = this.runs?.get(event.msg_id);
      if (ended) ended.heard = ++this.heard;
      ended?.ends(event);
      this.runs?.delete(event.msg_id);
      this.catch(this.refresh(), "notebook");
    } else if (["restarted", "stopped", "died"].includes(event.event)) {
      for (const each of this.order) {
        if (each.running || each.isWaiting) each.ends({});
      }
    }
    if (["opened", "restarted"].includes(event.event)) this.page.clearProblem("run");
    if (["opened", "restarted", "stopped", "died"].includes(event.event)) endWidgets(this);
    const words = wordsOf(event, (cell) => this.nameOf(cell));
    if (words && event.by !== this.page.connection.name) this.news(words);
  }

  news(text) {
    this.page.news(text);
  }

  /** Selects a cell; `focuses` says whether the keyboard goes to it. */
  select(view, focuses = true) {
    if (this.selected !== view) {
      this.selected?.node.removeAttribute("aria-current");
      this.selected?.node.setAttribute("tabindex", "-1");
      this.selected = view;
      view?.node.setAttribute("aria-current", "true");
      view?.node.setAttribute("tabindex", "0");
      this.page.panel.selects();
    }
    if (view && focuses) {
      view.node.focus({ preventScroll: true });
      view.node.scrollIntoView({ block: "nearest" });
    }
  }

  /** Returns why a cell is out of date. Another cell has its number on the page. */
  whyStale({ why, name, cell, text }) {
    return BECAUSE_OF[why]?.(this.nameOf(cell), name) ?? text;
  }

  /** Returns why a cell would run. */
  whyPlanned({ why, stale, reads }) {
    if (stale) return this.whyStale(stale);
    return reads ? `reads ${reads.name} from ${this.nameOf(reads.from[0])}` : why;
  }

  /** Returns the name of a cell, the same as on the command line: its place from 0, its short id, and its first line. */
  nameOf(id) {
    const view = this.views.get(id);
    return view ? nameWith(view, view.text) : id.slice(0, 4);
  }

  /** Keeps the place in the notebook for a page that is loaded again in this tab. */
  keepPlace() {
    const isInSight = (view) => {
      const { top, bottom } = view.node.getBoundingClientRect();
      return bottom > 0 && top < document.documentElement.clientHeight;
    };
    const seen = [this.selected, ...this.order].find((view) => view && isInSight(view));
    const place = { selected: this.selected?.id, seen: seen?.id, top: seen?.node.getBoundingClientRect().top };
    sessionStorage.setItem(`place ${this.id}`, JSON.stringify(place));
    const texts = [...this.unsaved].map(({ id, text, base }) => ({ id, text, base }));
    // The storage may be too small for them.
    if (texts.length > 0) attempt(() => sessionStorage.setItem(`texts ${this.id}`, JSON.stringify(texts)));
  }

  /** Takes what was typed in this tab before the page was loaded again, once. */
  resumesTexts() {
    const kept = sessionStorage.getItem(`texts ${this.id}`);
    sessionStorage.removeItem(`texts ${this.id}`);
    for (const text of JSON.parse(kept) ?? []) {
      const view = this.views.get(text.id);
      if (view) view.resumes(text);
      else this.offerToRestore(text.id, text.text);
    }
  }

  /** Goes where the person was before the page was loaded again, and stays there while outputs come, until the person acts. */
  resumes() {
    if (this.hasResumed) return;
    this.hasResumed = true;
    this.resumesTexts();
    const kept = sessionStorage.getItem(`place ${this.id}`);
    if (!kept || this.toSelect) return;
    const { selected, seen, top } = JSON.parse(kept);
    if (this.views.has(selected)) this.select(this.views.get(selected));
    if (!this.views.has(seen)) return;
    this.resumed = { view: this.views.get(seen), top };
    const acts = () => (this.resumed = null);
    for (const name of ["pointerdown", "wheel", "keydown"]) addEventListener(name, acts, { once: true, capture: true });
    this.keepsAt(this.resumed);
  }

  /** Scrolls so that a cell is at a place of the screen. */
  keepsAt({ view, top }) {
    const { scroller } = this;
    scroller.scrollTop += view.node.getBoundingClientRect().top - top;
    this.scrolledTo = scroller.scrollTop;
  }

  /** Notes that the page was scrolled, by the person if not by `keepsAt`. */
  scrolls() {
    if (this.scroller.scrollTop !== this.scrolledTo) this.noteTyped();
  }

  get scroller() {
    return this.node.parentElement;
  }

  /** Notes where on the screen the cell is in which the person types. */
  noteTyped() {
    const typed = this.order.find((view) => view.isEditing);
    this.typed = typed && { view: typed, top: typed.node.getBoundingClientRect().top };
  }

  /** Keeps that cell where it is when something above it grows. */
  keepTyped() {
    const { view, top } = this.typed ?? {};
    const { clientHeight } = document.documentElement;
    // Its place is not noted anew: a browser scrolls by whole pixels, and what is left over would add up.
    if (view?.isEditing && top >= 0 && top < clientHeight) return this.keepsAt(this.typed);
    if (this.resumed && this.order.includes(this.resumed.view)) this.keepsAt(this.resumed);
    this.noteTyped();
  }

  /** Others have deleted a cell that the person is in: it can come back with what was typed. */
  offerToRestore(id, text) {
    const close = () => {
      this.offers.delete(node);
      node.remove();
    };
    const restore = async () => {
      const isThere = this.views.has(id);
      this.restored.set(id, text);
      const done = isThere || (await this.catch(request("POST", this.path("cells", id, "restore"), {})));
      if (!done) {
        this.restored.delete(id);
        return;
      }
      close();
      await this.catch(this.refresh(), "notebook");
    };
    const node = make(
      "p.banner",
      { role: "alert" },
      make("span", {}, `${this.changers.get(id) ?? "Somebody"} deleted the cell ${id.slice(0, 4)}; what you typed: ${text}`),
      button("Restore", "Restore", restore),
      button("✕", "Drop your text", close),
    );
    this.offers.add(node);
    this.page.offer(node);
  }

  step(by) {
    const view = this.order[this.order.indexOf(this.selected) + by];
    if (view) this.select(view);
  }

  /** Reports what the server refused. What does not fail takes an earlier report of its kind back. */
  async catch(promise, kind) {
    try {
      const answer = await promise;
      if (kind) this.page.clearProblem(kind);
      return answer;
    } catch (error) {
      this.page.problem(error instanceof Refused ? problemText(error.error) : error.message, error.status, kind);
      return null;
    }
  }

  /** Writes the text of a cell, if it was changed; returns whether the notebook has it. Where others have changed the same lines, `keepsBoth` says whether both are kept. */
  save(view, keepsBoth = false) {
    // One after the other: the second starts from what the first has written.
    view.saving = (view.saving ?? Promise.resolve()).then(() => this.write(view, keepsBoth));
    return view.saving;
  }

  async write(view, keepsBoth) {
    if (!view.isChanged || !this.views.has(view.id)) return true;
    const text = view.text;
    const { source: base, revision: before } = view.base;
    this.writes += 1;
    this.showSaved();
    this.live.report();
    try {
      const answer = await request("PUT", this.path("cells", view.id), { source: text, base, both: keepsBoth }, before);
      const change = answer.changes.find((each) => each.cell === view.id);
      view.written = this.written += 1;
      view.conflict.hidden = true;
      const isMerged = change && change.before !== before;
      const revision = isMerged ? before : (change?.after ?? before);
      // Where the notebook has others' lines too, `nb live` has said so before.
      if ([base, text].includes(view.base.source)) view.base = { source: text, revision };
      if (isMerged) await this.catch(this.refresh(), "notebook");
      else view.data = { ...view.data, source: text, revision };
      view.show();
      this.page.clearProblem("save");
      return true;
    } catch (error) {
      if (error.status === 409 && error.error.conflicts?.length) {
        view.conflicts(error.error);
        return false;
      }
      // A file that was away for a moment is back without an event: it is read again, and then the text is written.
      this.mustWrite = true;
      clearTimeout(this.nextRead);
      this.nextRead = setTimeout(() => this.catch(this.refresh(), "notebook"), READS_AGAIN);
      await this.catch(Promise.reject(error), "save");
      return false;
    } finally {
      this.writes -= 1;
      this.showSaved();
    }
  }

  /** Shows whether the notebook has all that was typed. */
  showSaved() {
    const rest = this.unsaved.size > 0 ? "Not saved" : "Saved";
    this.page.saved(this.writes > 0 ? "Saving…" : rest);
  }

  /** Notes whether a cell has a text that the notebook does not have. */
  notes(view, isChanged) {
    if (this.unsaved.has(view) === isChanged) return;
    if (isChanged) this.unsaved.add(view);
    else this.unsaved.delete(view);
    this.showSaved();
  }

  /** Writes all texts; returns whether the notebook has them. */
  async saveAll() {
    for (const view of this.order) if (!(await this.save(view))) return false;
    return true;
  }

  /** Writes the texts that could not be written before. */
  saveChanged() {
    const unsaved = this.order.filter((view) => view.isChanged && !view.isEditing && view.conflict.hidden);
    return Promise.all(unsaved.map((view) => this.save(view)));
  }

  /** Returns whether cells may be run, and says why not. */
  get mayRun() {
    const { isAtWork } = this.page.assistant;
    if (isAtWork) this.news("the assistant is at work: wait, or stop it");
    return !isAtWork;
  }

  async run(view) {
    if (!(await this.save(view)) || !this.mayRun) return;
    if (view.data.type !== "code" || view.text.trim() === "") return;
    view.isMine = true;
    view.isWaiting = true;
    view.heard = ++this.heard;
    view.showState();
    const begun = await this.catch(request("POST", this.path("run"), { cells: [view.id] }), "run");
    if (!begun && !view.running) {
      view.isWaiting = false;
      view.showState();
    }
    if (view.isWaiting) this.loadJobs();
  }

  async runAll() {
    if (!this.mayRun) return;
    if (!(await this.saveAll())) return;
    await this.catch(request("POST", this.path("run"), { all: true }), "run");
    await this.loadJobs();
  }

  /** Runs the cells that are out of date. */
  async runStale() {
    if (!this.mayRun) return;
    if (!(await this.saveAll())) return;
    await this.catch(request("POST", this.path("run"), { stale: true }), "run");
    await this.loadJobs();
  }

  async runAndGoOn(view) {
    view.editor?.blur();
    const next = this.order[this.order.indexOf(view) + 1];
    this.run(view);
    if (next) {
      this.select(next);
    } else {
      this.select(view);
      await this.keepKeys(async () => (await this.save(view)) && this.add(view, "after", true));
    }
  }

  /** Inserts a cell; `edits` says whether it is edited then. */
  insert(view, place, edits = false, type = "code") {
    return this.keepKeys(() => this.add(view, place, edits, type));
  }

  async add(view, place, edits, type = "code") {
    const body = { source: "", type, ...(view ? { [place]: view.id } : {}) };
    const answer = await this.catch(request("POST", this.path("cells"), body));
    if (!answer) return false;
    const [{ cell }] = answer.changes;
    [this.toSelect, this.toEdit] = [cell, edits];
    await this.catch(this.refresh(), "notebook");
    return this.views.has(cell);
  }

  /** Does what makes a new cell. The keys that are pressed until it is there are for that cell. */
  async keepKeys(makes) {
    this.coming += 1;
    const isThere = await makes();
    this.coming -= 1;
    if (this.coming > 0) return;
    const { keys } = this;
    this.keys = [];
    if (!isThere || this.isGone) return;
    for (const event of keys) {
      // The keys before it may have begun another new cell.
      if (this.coming === 0 && this.selected?.isEditing) this.selected.editor.press(event);
      else this.key(event);
    }
  }

  async remove(view) {
    if (view.isRemoved) return;
    view.isRemoved = true;
    const done = await this.catch(request("DELETE", this.path("cells", view.id), undefined, view.base.revision));
    view.isRemoved = done !== null;
    await this.catch(this.refresh(), "notebook");
  }

  /** Offers to bring a deleted cell back, at its place. The next cell's buttons do not come under the pointer. */
  showRemoved(view) {
    const undo = async () => {
      await this.catch(request("POST", this.path("cells", view.id, "restore"), {}));
      await this.catch(this.refresh(), "notebook");
      this.show(view.id);
    };
    const text = make("span", { role: "status" }, `Deleted: ${nameWith(view, view.base.source)}`);
    const node = make("div.removed", { role: "listitem" }, text, button("Undo", "Bring the cell back", undo));
    view.node.before(node);
    this.removed.set(view.id, node);
    setTimeout(() => node.remove(), OFFERS_UNDO);
  }

  /** Inserts a copy of a cell below it. */
  async duplicate(view) {
    if (!(await this.save(view))) return;
    const body = { source: view.text, type: view.data.type, after: view.id };
    const answer = await this.catch(request("POST", this.path("cells"), body));
    if (answer) this.toSelect = answer.changes[0].cell;
    await this.catch(this.refresh(), "notebook");
  }

  /** Clears the outputs of a cell, or of all. */
  async clear(view) {
    await this.catch(request("POST", this.path("clear"), { cells: view ? [view.id] : [] }));
    await this.catch(this.refresh(), "notebook");
  }

  async move(view, by) {
    const other = this.order[this.order.indexOf(view) + by];
    if (!other || !(await this.save(view))) return;
    const body = { [by < 0 ? "before" : "after"]: other.id };
    await this.catch(request("POST", this.path("cells", view.id, "move"), body, view.base.revision));
    await this.catch(this.refresh(), "notebook");
    this.select(view);
  }

  async setType(view, type) {
    if (view.data.type === type || !(await this.save(view))) return;
    await this.catch(request("PUT", this.path("cells", view.id), { type }, view.base.revision));
    await this.catch(this.refresh(), "notebook");
  }

  /** Undoes an edit, or the last one: also a text that is not written yet. */
  undo(op) {
    // One after the other: the second undoes what is then the last one.
    this.undoing = this.undoing.then(() => this.undoNow(op));
    return this.undoing;
  }

  async undoNow(op) {
    await this.saveAll();
    const answer = await this.catch(request("POST", this.path("undo"), op ? { op } : {}));
    await this.catch(this.refresh(), "notebook");
    // What was undone is in sight.
    const changed = answer?.changes.find((change) => this.views.has(change.cell));
    if (changed) this.show(changed.cell);
  }

  async reply(view, job, number, field) {
    const done = await this.catch(request("POST", this.path("reply"), { job, number, text: field.value }));
    // Another question may have come by now.
    if (done && view.question.contains(field)) view.asks(null);
  }

  /** Interrupts, restarts or ends the kernel; asks the person where that ends others' work, or loses variables. */
  async kernel(action) {
    const path = this.path(action);
    const force = action !== "interrupt";
    if (force && !(await this.confirmsLosses(action))) return;
    try {
      await request("POST", path, { force });
      this.page.clearProblem("run");
    } catch (error) {
      const isRefused = error instanceof Refused && error.status === 403;
      if (!isRefused || !this.page.confirms(`${error.message}. ${capital(action)} all the same?`)) {
        await this.catch(Promise.reject(error), "run");
        return;
      }
      await this.catch(request("POST", path, { force: true }), "run");
    }
    await this.loadKernel();
  }

  /** Asks the kernel about code that is being written: `what` is a route; null if it does not say. */
  async ask(what, code, at) {
    try {
      return await request("POST", this.path(what), { code, at });
    } catch (error) {
      this.news(error.message);
      return null;
    }
  }

  /** Asks whether the kernel is to be restarted or shut down, with what is lost; returns the answer. */
  async confirmsLosses(action) {
    const losses = await this.catch(request("GET", this.path("losses")), "run");
    if (!losses) return false;
    const { variables, would } = losses;
    const count = variables === null ? "Its variables" : variables === 1 ? "1 variable" : `${variables} variables`;
    const what = action === "restart" ? "Restart" : "Shut down";
    const others = would.map((each) => `It would ${each}.`);
    return this.page.confirms([`${what} the kernel? ${count} will be lost.`, ...others].join("\n"));
  }

  /** Takes a key that is pressed while no text is edited; returns whether it means something. */
  key(event) {
    const view = this.selected;
    const name = event.key;
    if (this.coming > 0) return this.keepsKey(event);
    if (event.shiftKey && name === "Enter") return this.act(() => this.runAndGoOn(view));
    if ((event.ctrlKey || event.metaKey) && name === "Enter") return this.act(() => this.run(view));
    if (event.ctrlKey || event.metaKey || event.altKey) return false;
    const isTwice = this.lastKey.name === name && event.timeStamp - this.lastKey.at < 800;
    this.lastKey = isTwice ? { name: "", at: 0 } : { name, at: event.timeStamp };
    const keys = {
      Enter: () => view?.edit(),
      j: () => this.step(1),
      ArrowDown: () => this.step(1),
      k: () => this.step(-1),
      ArrowUp: () => this.step(-1),
      a: () => this.insert(view, "before"),
      b: () => this.insert(view, "after"),
      y: () => view && this.setType(view, "code"),
      m: () => view && this.setType(view, "markdown"),
      z: () => this.undo(),
      f: () => this.page.panel.find(this),
      d: () => isTwice && view && this.remove(view),
      i: () => isTwice && this.kernel("interrupt"),
      0: () => isTwice && this.kernel("restart"),
      "?": showKeys,
    };
    return Object.hasOwn(keys, name) && this.act(keys[name]);
  }

  keepsKey(event) {
    const isText = event.key.length === 1 && (event.altKey || event.getModifierState("AltGraph"));
    const isCommand = (event.ctrlKey || event.metaKey || event.altKey) && event.key !== "Enter" && !isText;
    if (isCommand || !KEPT_KEY.test(event.key)) return false;
    this.keys.push(event);
    return true;
  }

  act(what) {
    what();
    return true;
  }

  /** Returns whether a text is here that the notebook does not have. */
  get isChanged() {
    return this.offers.size > 0 || this.order.some((view) => view.isChanged);
  }

  /** Selects a cell by its id. */
  show(id) {
    const view = this.views.get(id);
    if (view) this.select(view);
  }

  /** Shows the heading with a name, as links have it. */
  goesTo(name) {
    const named = (node) => node.dataset.jupyterId === name || node.id === name;
    const heading = [...this.node.querySelectorAll("[data-jupyter-id], [id]")].find(named);
    // What is far from the screen is not rendered yet.
    const nameOf = (line) => line.replace(/^#+ +/, "").trim().replaceAll(" ", "-");
    const has = (view) => view.data.type === "markdown" && view.text.split("\n").some((line) => /^#/.test(line) && nameOf(line) === name);
    (heading ?? this.order.find(has)?.node)?.scrollIntoView();
  }

  destroy() {
    this.isGone = true;
    this.live.close();
    this.sizes.disconnect();
    closeWidgets(this);
    clearInterval(this.clock);
    clearTimeout(this.nextJobs);
    clearTimeout(this.nextRead);
    for (const view of this.order) view.destroy();
    this.node.remove();
    this.end.remove();
  }
}

/** Returns the name of a cell with the beginning of its text. */
function nameWith(view, text) {
  const line = [...text.trim().split("\n", 1)[0].trim()];
  const first = line.length > FIRST_LINE ? `${line.slice(0, FIRST_LINE - 1).join("")}…` : line.join("");
  return first ? `${view.name} · ${first}` : view.name;
}

/** Does what may fail without harm. */
function attempt(what) {
  try {
    what();
  } catch {}
}

const capital = (word) => word[0].toUpperCase() + word.slice(1);

function problemText(error) {
  return [error.message, ...(error.lines ?? []), ...(error.hints ?? [])].join("\n");
}

/** Returns what somebody did, in a few words; null for what nobody need hear. */
function wordsOf(event, nameOf) {
  const by = event.by ?? "somebody";
  const cells = (event.changes ?? []).map((change) => nameOf(change.cell)).join(", ");
  switch (event.event) {
    case "requested":
      return `${by} runs ${event.cell ? nameOf(event.cell) : "code"}`;
    case "edited":
      return `${by}: ${event.command ?? "edit"} ${cells}`;
    case "saved":
      return `${event.by ?? "another program"} saved ${cells}`;
    case "opened":
    case "restarted":
    case "stopped":
    case "interrupted":
      return `${by}: the kernel was ${event.event}`;
    case "died":
      return `the kernel died: ${event.reason}`;
    default:
      return null;
  }
}
