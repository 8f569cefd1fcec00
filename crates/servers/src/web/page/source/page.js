// The page: the list of notebooks, or one notebook, as the address says.

import "@jupyterlab/rendermime/style/base.css";
import "./style.css";

import { AssistantPanel } from "./assistant.js";
import { Connection, LOST, pathOf, request } from "./connection.js";
import { showKeys } from "./keys.js";
import { Notebook } from "./notebook.js";
import { Panel } from "./panel.js";
import { button, iconButton, make, runButton } from "./parts.js";

// Found once: an output may have elements of the same names.
const find = (selector) => document.querySelector(selector);
const [title, savedNode, kernelNode, tools, banner, offers, main, aside, assistantNode, newsNode] = [
  "header h1",
  "header .saved",
  "header .kernel",
  "header .tools",
  "body > .banner",
  ".offers",
  "main",
  "aside.panel",
  "aside.assistant",
  ".news",
].map(find);

/** Returns the notebook that the end of an address names. */
function decoded(hash) {
  try {
    return decodeURIComponent(hash.slice(1));
  } catch {
    // An address that is not a text names no notebook.
    return "";
  }
}

/** Returns the notebook that a link in another one names by its place beside it; null for other links. */
function linked(href, from) {
  try {
    const here = new URL(from.split("/").map(encodeURIComponent).join("/"), "file:///");
    const { protocol, pathname } = new URL(href, here);
    return protocol === "file:" && pathname.endsWith(".ipynb") ? decodeURIComponent(pathname.slice(1)) : null;
  } catch {
    return null;
  }
}

/** Asks the person for the path of a notebook; returns null for none. */
function askForPath(question, given) {
  const name = prompt(question, given)?.trim().replace(/(\.ipynb)?$/, ".ipynb");
  return !name || name === ".ipynb" || name.endsWith("/.ipynb") ? null : name;
}

const OUTDATED = "nb web has ended or was started again: open the address that it prints";

class Page {
  constructor() {
    this.book = null;
    this.panel = new Panel(aside);
    this.isConnected = undefined;
    this.build();
    this.assistant = new AssistantPanel(assistantNode, this);
    this.connection = new Connection(
      (message) => this.receives(message),
      (isConnected, isFirst) => this.connects(isConnected, isFirst),
    );
    addEventListener("hashchange", () => this.go());
    main.addEventListener("click", (event) => this.follows(event));
    addEventListener("keydown", (event) => this.key(event));
    main.addEventListener("scroll", () => this.book?.scrolls());
    addEventListener("pagehide", () => this.book?.keepPlace());
    addEventListener("beforeunload", (event) => this.book?.isChanged && event.preventDefault());
  }

  build() {
    const act = (what) => () => this.book && what(this.book);
    const tool = (picture, name, what, more) => iconButton(picture, name, act(what), more);
    const below = (type) => (book) => book.insert(book.selected, "after", true, type);
    const runNext = (book) => book.selected && book.runAndGoOn(book.selected);
    const groups = [
      [
        runButton("Run the selected cell", act(runNext), { words: "Run", title: "Run the selected cell and go on (Shift-Enter)" }),
        runButton("Run all cells", act((book) => book.runAll()), { picture: "runAll", words: "All" }),
        tool("why", "Why stale", (book) => this.panel.showPlan(book), { words: "Why stale", title: "Show and run what is out of date" }),
        tool("stop", "Stop", (book) => book.kernel("interrupt"), { words: "Stop", title: "Interrupt the kernel (i, i)" }),
        tool("restart", "Restart the kernel", (book) => book.kernel("restart"), { title: "Restart the kernel (0, 0)" }),
        tool("power", "Shut down the kernel", (book) => book.kernel("shutdown")),
      ],
      [
        tool("plus", "Add code cell", below("code"), { words: "Code", title: "Add a code cell below (b)" }),
        tool("text", "Add Markdown cell", below("markdown"), { words: "Markdown", title: "Add a Markdown cell below" }),
        tool("undo", "Undo", (book) => book.undo(), { title: "Take your last edit back (z)" }),
        tool("clear", "Clear all outputs", (book) => book.clear()),
      ],
      [
        tool("find", "Find", (book) => this.panel.find(book), { title: "Find a text in sources and outputs (f)" }),
        tool("assistant", "Assistant", (book) => this.assistant.open(book, !this.assistant.isOpen), { title: "Talk with the assistant" }),
        tool("history", "History", (book) => this.panel.open(book, !this.panel.isOpen), {
          title: "Show who did what, variables, the graph and deleted cells",
        }),
      ],
      [
        tool("file", "New notebook", () => this.create(), { title: "Make a notebook, and start its kernel" }),
        tool("rename", "Rename", (book) => this.rename(book), { title: "Rename or move the notebook" }),
        tool("download", "Download", (book) => this.download(book), { title: "Download the notebook's file" }),
        iconButton("keys", "Keys", showKeys, { title: "Show what the keys do (?)" }),
      ],
    ];
    tools.append(...groups.map((group) => make("span.group", {}, ...group)));
  }

  /** Moves the notebook to the path that the person types, with its kernel and its history. */
  async rename(book) {
    const to = askForPath("The new path of the notebook, below the folder of nb web:", book.id);
    if (!to || to === book.id || !(await book.saveAll())) return;
    if (await book.catch(request("POST", book.path("rename"), { to }))) location.hash = encodeURIComponent(to);
  }

  /** Saves what was typed, and downloads the notebook's file. */
  async download(book) {
    if (!(await book.saveAll())) return;
    const link = make("a", { href: book.path("file"), download: book.id.split("/").at(-1) });
    link.click();
  }

  /** Shows what the address names. */
  async go() {
    const name = decoded(location.hash);
    if (!(await this.leaves(name))) return;
    this.book?.destroy();
    this.book = null;
    this.clearProblem();
    offers.replaceChildren();
    title.textContent = name || "Notebooks";
    savedNode.textContent = "";
    document.title = name ? `${name} – nb` : "nb";
    tools.hidden = !name;
    kernelNode.textContent = "";
    main.replaceChildren();
    if (!name) {
      this.panel.open(null, false);
      this.assistant.open(null, false);
      await this.list();
      return;
    }
    const book = new Notebook(name, this);
    this.book = book;
    main.append(book.node, book.end);
    this.panel.open(book, this.panel.isOpen);
    this.assistant.open(book, this.assistant.isOpen);
    await book.catch(book.load(), "notebook");
  }

  /** Saves what the person has typed, and asks where that cannot be; returns whether the notebook may be left for another. */
  async leaves(name) {
    const { book } = this;
    if (!book?.isChanged) return true;
    if (book.id === name) return false;
    await Promise.all(book.order.map((view) => book.save(view)));
    // The address may name another one by now.
    if (this.book !== book || decoded(location.hash) !== name) return false;
    if (!book.isChanged || this.confirms(`${book.id} has texts that are not saved. Leave it and lose them?`)) return true;
    history.replaceState(null, "", `#${encodeURIComponent(book.id)}`);
    return false;
  }

  async list() {
    try {
      const { notebooks, more, kernels } = await request("GET", "/api/notebooks");
      // The person may have gone on meanwhile.
      if (this.book) return;
      const isOf = (kernel, path) => kernel.path.endsWith(`/${path}`);
      // The longest path is that of the kernel: `sub/a.ipynb`, not `a.ipynb`.
      const longest = (paths) => paths.reduce((one, other) => (other.length > one.length ? other : one), "");
      const row = (path) => {
        const kernel = kernels.find((each) => longest(notebooks.filter((other) => isOf(each, other))) === path);
        const link = make("a", { href: `#${encodeURIComponent(path)}` }, path);
        return make("li", {}, link, kernel ? ` ${kernel.state}` : "");
      };
      const none = make("p", {}, "No notebook is here.");
      const open = () => {
        const name = askForPath("The path of the notebook, below this folder:", "");
        if (name) location.hash = encodeURIComponent(name);
      };
      const add = [
        iconButton("file", "New notebook", () => this.create(), { words: "New notebook", title: "Make a notebook, and start its kernel" }),
        button("Open…", "Open a notebook by its path", open),
      ];
      main.replaceChildren(notebooks.length ? make("ul.notebooks", {}, ...notebooks.map(row)) : none, make("p.add", {}, ...add));
      if (more) main.append(make("p", {}, `${more} more`));
    } catch (error) {
      if (!this.book) this.problem(error.message, error.status);
    }
  }

  /** Makes the notebook that the person names, and shows it. */
  async create() {
    const name = askForPath("The path of the new notebook, below this folder:", "notebook.ipynb");
    if (!name) return;
    try {
      await request("POST", pathOf(name, "open"), {});
      location.hash = encodeURIComponent(name);
    } catch (error) {
      this.problem(error.message, error.status);
    }
  }

  receives(message) {
    if (message.type === "reload") this.reload();
    else this.book?.receives(message);
  }

  /** Loads anew what was missed. */
  reload() {
    const { book } = this;
    if (book) book.catch(book.load(), "notebook");
    this.panel.refresh();
    this.assistant.reload();
  }

  async connects(isConnected, isFirst) {
    if (isConnected !== this.isConnected) this.connectionChanges(isConnected, isFirst);
    if (isConnected || this.isOutdated) return;
    // A server that was started again knows no cookie of the earlier one.
    const answer = await fetch("/api/openapi.json").catch(() => null);
    if (this.isConnected || answer?.status !== 401) return;
    this.isOutdated = true;
    this.problem(OUTDATED);
  }

  connectionChanges(isConnected, isFirst) {
    // What is loaded after the first connection misses nothing that the connection does not report.
    if (this.isConnected === undefined) this.go();
    else if (isFirst) this.reload();
    this.isConnected = isConnected;
    this.isOutdated = false;
    document.body.classList.toggle("offline", !isConnected);
    if (isConnected) {
      this.clearProblem();
      this.book?.live.open();
      this.book?.saveChanged();
    } else {
      this.book?.live.ends();
      this.problem(LOST);
    }
  }

  /** Shows what the server says of the notebook as a whole. */
  shows() {
    main.removeAttribute("aria-busy");
  }

  /** Says whether the notebook has all that was typed. */
  saved(text) {
    if (savedNode.textContent !== text) savedNode.textContent = text;
  }

  kernel(kernel) {
    const words = kernel ? [kernel.state, kernel.running?.text].filter(Boolean) : ["no kernel"];
    const text = words.join(" · ");
    if (kernelNode.textContent !== text) kernelNode.textContent = kernelNode.title = text;
    kernelNode.dataset.state = kernel?.state ?? "none";
  }

  /** While the assistant is at work, the person edits but does not run: the results of two who run in turn are nobody's. */
  assistantWorks(isAtWork) {
    document.body.classList.toggle("assistant-works", isAtWork);
    for (const node of document.querySelectorAll("button.run")) node.disabled = isAtWork;
  }

  happened() {
    this.panel.refresh();
  }

  news(text) {
    newsNode.textContent = text;
    clearTimeout(this.newsTimer);
    this.newsTimer = setTimeout(() => (newsNode.textContent = ""), 8000);
  }

  /** Shows an offer, until it is closed. */
  offer(node) {
    offers.append(node);
  }

  /** Shows a problem. What has the same `kind` and does not fail takes it back. */
  problem(text, status, kind) {
    this.problemKind = kind;
    banner.hidden = false;
    const close = button("✕", "Close", () => this.clearProblem());
    banner.replaceChildren(make("span", {}, status === 401 ? OUTDATED : text), close);
  }

  /** Takes the problem back, if it is of this kind; without one, whatever it is. */
  clearProblem(kind) {
    if (kind !== undefined && kind !== this.problemKind) return;
    banner.hidden = true;
    banner.replaceChildren();
  }

  confirms(text) {
    return confirm(text);
  }

  /** Follows a link in a cell to a heading or another notebook: the end of the address names the notebook. */
  follows(event) {
    const href = event.target.closest(".cell a[href]")?.getAttribute("href");
    if (!href || !this.book) return;
    if (href.startsWith("#")) {
      event.preventDefault();
      this.book.goesTo(decoded(href));
      return;
    }
    const other = linked(href, this.book.id);
    if (!other) return;
    event.preventDefault();
    location.hash = encodeURIComponent(other);
  }

  key(event) {
    const target = event.composedPath()[0];
    const isText = target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
    const isWaiting = this.book?.coming > 0;
    const isControl = target instanceof Element && target.closest("button, a, summary") && event.key === "Enter" && !isWaiting;
    // What has the focus beside the notebook is not what the keys would act on.
    const isBeside = target instanceof Element && target.closest("aside, .banner");
    if (isText || isControl || isBeside || event.defaultPrevented || !this.book) return;
    if (this.book.key(event)) event.preventDefault();
  }
}

new Page();
