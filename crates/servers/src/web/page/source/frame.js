// Outputs that need scripts: a line says so, and a frame runs them in a document of its own, which has no origin.

import { button, make } from "./parts.js";

/** What runs something, or is a page in the page. Data in an element for scripts runs nothing. */
const SCRIPTED = /<(?:iframe\b|script\b(?![^>]*\btype\s*=\s*["']?application\/(?:[\w.-]+\+)?json))/i;

/** Altair's HTML: a program that is the same for all plots, called with the plot and its options as JSON. */
const ALTAIR = /<div id="altair-viz-\w+"><\/div>\s*<script[^>]*>\s*var VEGA_DEBUG = [^]*?\n {2}\}\)\((\{[^]*\})\);\s*<\/script>\s*$/;

const NEEDS_SCRIPTS = "This output needs scripts, which do not run in the page.";

/** How long after a key a person is writing, in milliseconds: as long as the browser takes a key for an action of the person. */
const WRITES = 5000;

/** Returns whether HTML shows what it means only where its scripts run. */
export function needsScripts(html) {
  return SCRIPTED.test(html);
}

/** Returns the plot in HTML that Altair has made, as the other forms of an output have it; null for any other HTML. */
export function altairPlot(html) {
  const found = ALTAIR.exec(html);
  try {
    const [spec, { mode }] = JSON.parse(`[${found[1]}]`);
    return { [mode === "vega" ? "application/vnd.vega.v6+json" : "application/vnd.vegalite.v6+json"]: spec };
  } catch {
    return null;
  }
}

/** The open frames, each with what closes it. */
const frames = new Map();

/** What the person did in the page last: a key's name, or none for the pointer. */
let last = { key: null, at: 0 };
/** The element of the page that had the focus last. */
let lastFocus = null;

addEventListener("keydown", ({ key, timeStamp }) => (last = { key, at: timeStamp }), true);
addEventListener("pointerdown", ({ timeStamp }) => (last = { key: null, at: timeStamp }), true);
addEventListener("focusin", (event) => {
  // Editors are in a shadow tree.
  if (!frames.has(event.target)) lastFocus = event.composedPath()[0];
});

/** Returns whether a person has brought the focus into a frame: by Tab, or by a click, of which the page hears only so much. */
function isByPerson(frame, now) {
  if (last.key === "Tab") return true;
  const isWriting = last.key !== null && now - last.at < WRITES;
  return !isWriting && frame.matches(":hover") && (navigator.userActivation?.isActive ?? true);
}

/** Closes a frame that takes the focus by itself: it would get the keys that a person presses. */
addEventListener("blur", ({ timeStamp }) => {
  const frame = document.activeElement;
  if (!frames.has(frame) || isByPerson(frame, timeStamp)) return;
  frames.get(frame)("The frame was closed: it tried to take the keyboard.");
  // At once: the next key is for it.
  lastFocus?.focus({ preventScroll: true });
});

/** Returns a line that says that an output needs scripts. `address` is that of its document; without it there is no frame. */
export function scriptsLine(address) {
  const text = make("span", {}, NEEDS_SCRIPTS);
  if (!address) return make("p.missing", {}, text);
  const place = make("div.frame", { hidden: true });
  const close = (why) => {
    frames.delete(place.firstChild);
    place.replaceChildren();
    show(false, why);
  };
  const open = () => {
    // The server's policy says the same; a frame whose document is missing has only this.
    const frame = make("iframe", { sandbox: "allow-scripts", referrerpolicy: "no-referrer", title: "output", src: address });
    frames.set(frame, close);
    place.append(frame);
    show(true, "Its scripts run in a frame, apart from the page. It loads nothing from the network.");
  };
  const opener = button("Open in a frame", "Open in a frame", open);
  const closer = button("Close the frame", "Close the frame", () => close(NEEDS_SCRIPTS));
  const show = (isOpen, words) => {
    text.textContent = words;
    [place.hidden, opener.hidden, closer.hidden] = [!isOpen, isOpen, !isOpen];
  };
  closer.hidden = true;
  return make("div.scripts", {}, make("p.missing", { role: "status" }, text, " ", opener, closer), place);
}
