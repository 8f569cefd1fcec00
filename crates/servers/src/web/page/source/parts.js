// Small parts of the page.

import { icon } from "./icons.js";

/** Makes an element: `make("button.run", { title: "Run" }, "text", child)`. */
export function make(what, attributes = {}, ...children) {
  const [tag, ...classes] = what.split(".");
  const node = document.createElement(tag);
  if (classes.length) node.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (typeof value === "boolean") node.toggleAttribute(name, value);
    else if (value !== undefined) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Makes a button. Its name has the words on it, so that who speaks to the browser finds it by them. */
export function button(text, title, act) {
  const words = text.replace(/[^\p{L}\p{N} ]/gu, "").trim();
  const isThere = title.toLowerCase().includes(words.toLowerCase());
  const name = isThere ? title : `${words}: ${title}`;
  return make("button", { type: "button", title, "aria-label": name, onclick: act }, text);
}

/** Makes a button with an icon, and with words beside it where they are given. `title` says what it does. */
export function iconButton(picture, name, act, { words, title = name } = {}) {
  const attributes = { type: "button", title, "aria-label": name, onclick: act };
  return make("button.with-icon", attributes, icon(picture), ...(words ? [words] : []));
}

/** Makes one that runs cells: it is off while the assistant is at work. */
export function runButton(name, act, more) {
  const node = iconButton(more?.picture ?? "run", name, act, more);
  node.classList.add("run");
  node.disabled = document.body.classList.contains("assistant-works");
  return node;
}

/** Returns a length of time as people read it. */
export function duration(milliseconds) {
  if (milliseconds < 1000) return `${Math.round(milliseconds)} ms`;
  const seconds = milliseconds / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")} min`;
}

/** Returns a function that calls another once, a moment after the last of several calls. */
export function soon(act, milliseconds) {
  let timer;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(act, milliseconds);
  };
}

/** How long work in small steps may hold up a frame, in milliseconds. */
const STEP = 6;

/** How many pixels a frame the page may be scrolled while such work is done. */
const FAST = 60;

/** Work that is done a little in each frame, and not while the page is scrolled fast, so that it stays smooth. */
export class InSteps {
  constructor(act) {
    this.act = act;
    this.waiting = new Set();
    this.scroller = document.querySelector("main");
  }

  add(what) {
    if (this.waiting.size === 0) requestAnimationFrame(() => this.step());
    this.waiting.add(what);
  }

  delete(what) {
    this.waiting.delete(what);
  }

  step() {
    const { scrollTop } = this.scroller;
    const isFast = Math.abs(scrollTop - (this.scrolledTo ?? scrollTop)) > FAST;
    this.scrolledTo = scrollTop;
    const end = performance.now() + STEP;
    for (const what of isFast ? [] : this.waiting) {
      this.waiting.delete(what);
      this.act(what);
      if (performance.now() > end) break;
    }
    if (this.waiting.size > 0) requestAnimationFrame(() => this.step());
    else this.scrolledTo = undefined;
  }
}

/** Returns a text with the ends of lines that an editor has. */
export const plain = (text) => text.replace(/\r\n?/g, "\n");
