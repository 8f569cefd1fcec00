// The page: the list of notebooks, or one notebook, as the address says.

import "@jupyterlab/rendermime/style/base.css";
import "./style.css";

import { AssistantPanel } from "./assistant.js";
import { Connection, LOST, request } from "./connection.js";
import { Notebook } from "./notebook.js";
import { Panel } from "./panel.js";
import { button, make, runButton } from "./parts.js";

// Found once: an output may have elements of the same names.
const find = (selector) => document.querySelector(selector);
const [title, kernelNode, tools, banner, main, aside, assistantNode, newsNode] = [
  "header h1",
  "header .kernel",
  "header .tools",
  ".banner",
  "main",
  "aside.panel",
  "aside.assistant",
  ".news",
].map(find);

const OUTDATED = "nb web has ended or was started again: open the address that it prints";

class Page {
  constructor() {
    /** The name under which the page acts. */
    this.name = "human (browser)";
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
    addEventListener("keydown", (event) => this.key(event));
    addEventListener("beforeunload", (event) => this.book?.isChanged && event.preventDefault());
  }

  build() {
    const act = (what) => () => this.book && what(this.book);
    tools.append(
      runButton("▶ Run", "Run the selected cell and go on (Shift-Enter)", act((book) => book.selected && book.runAndGoOn(book.selected))),
      runButton("▶▶ All", "Run all cells", act((book) => book.runAll())),
      runButton("▶ Stale", "Show and run what is out of date", act((book) => this.panel.showPlan(book))),
      button("■ Interrupt", "Interrupt the kernel (i, i)", act((book) => book.kernel("interrupt"))),
      button("↻ Restart", "Restart the kernel (0, 0)", act((book) => book.kernel("restart"))),
      button("Shut down", "Shut down the kernel", act((book) => book.kernel("shutdown"))),
      button("+ Cell", "Insert a cell below (b)", act((book) => book.insert(book.selected, "after", true))),
      button("✦ Assistant", "Talk with the assistant", act((book) => this.assistant.open(book, !this.assistant.isOpen))),
      button("☰ History", "Show who did what, variables and deleted cells", act((book) => this.panel.open(book, !this.panel.isOpen))),
    );
  }

  /** Shows what the address names. */
  async go() {
    let name = "";
    try {
      name = decodeURIComponent(location.hash.slice(1));
    } catch {
      // An address that is no text names no notebook.
    }
    this.book?.destroy();
    this.book = null;
    this.clearProblem();
    title.textContent = name || "Notebooks";
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
    main.append(book.node);
    this.panel.open(book, this.panel.isOpen);
    this.assistant.open(book, this.assistant.isOpen);
    await book.catch(book.load());
  }

  async list() {
    try {
      const { notebooks, more, kernels } = await request("GET", "/api/notebooks");
      const row = (path) => {
        const kernel = kernels.find((each) => each.path.endsWith(`/${path}`));
        const link = make("a", { href: `#${encodeURIComponent(path)}` }, path);
        return make("li", {}, link, kernel ? ` ${kernel.state}` : "");
      };
      const none = make("p", {}, "No notebook is here. `nb open NOTEBOOK.ipynb` makes one.");
      main.replaceChildren(notebooks.length ? make("ul.notebooks", {}, ...notebooks.map(row)) : none);
      if (more) main.append(make("p", {}, `${more} more`));
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
    if (book) book.catch(book.load());
    this.panel.refresh();
  }

  async connects(isConnected, isFirst) {
    if (isConnected === this.isConnected) return;
    // What is loaded after the first connection misses nothing that the connection does not report.
    if (this.isConnected === undefined) this.go();
    else if (isFirst) this.reload();
    this.isConnected = isConnected;
    document.body.classList.toggle("offline", !isConnected);
    if (isConnected) {
      this.clearProblem();
      return;
    }
    const answer = await fetch("/api/notebooks").catch(() => null);
    if (this.isConnected) return;
    this.problem(answer?.status === 401 ? OUTDATED : LOST);
  }

  /** Shows what the server says of the notebook as a whole. */
  shows() {
    main.removeAttribute("aria-busy");
  }

  kernel(kernel) {
    const words = kernel ? [kernel.state, kernel.running?.text].filter(Boolean) : ["no kernel"];
    const text = words.join(" · ");
    if (kernelNode.textContent !== text) kernelNode.textContent = text;
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

  problem(text, status, ...acts) {
    banner.hidden = false;
    const close = button("✕", "Close", () => this.clearProblem());
    banner.replaceChildren(make("span", {}, status === 401 ? OUTDATED : text), ...acts, close);
  }

  clearProblem() {
    banner.hidden = true;
    banner.replaceChildren();
  }

  confirms(text) {
    return confirm(text);
  }

  key(event) {
    const target = event.composedPath()[0];
    const isText = target instanceof Element && target.closest("input, textarea, select, [contenteditable]");
    const isControl = target instanceof Element && target.closest("button, a") && event.key === "Enter";
    if (isText || isControl || event.defaultPrevented || !this.book) return;
    if (this.book.key(event)) event.preventDefault();
  }
}

new Page();
