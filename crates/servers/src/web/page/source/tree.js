// JSON as a tree. What is in a branch is made when it is opened, a part at a time.

import { button, make } from "./parts.js";

/** How many entries of a branch are shown at once. */
const STEP = 100;

/** How many characters of a value or a name are shown. */
const LONGEST = 1000;

const shortened = (text) => (text.length > LONGEST ? `${text.slice(0, LONGEST)}… (${text.length} characters)` : text);

/** Returns a value as an element; `name` is its name in the value around it. */
export function tree(value, name) {
  const label = name === undefined ? [] : [make("span.name", {}, shortened(String(name)), ": ")];
  const isBranch = value !== null && typeof value === "object";
  const names = isBranch ? Object.keys(value) : [];
  if (names.length === 0) {
    const kind = value === null ? "null" : typeof value;
    return make("div", {}, ...label, make(`span.${kind}`, {}, shortened(JSON.stringify(value))));
  }
  const size = names.length === 1 ? "1 entry" : `${names.length.toLocaleString("en")} entries`;
  const [begin, end] = Array.isArray(value) ? "[]" : "{}";
  const node = make("details", {}, make("summary", {}, ...label, make("span.size", {}, `${begin} ${size} ${end}`)));
  node.addEventListener("toggle", () => showMore(node, value, names), { once: true });
  return node;
}

function showMore(node, value, names) {
  node.append(...names.splice(0, STEP).map((name) => tree(value[name], name)));
  if (names.length === 0) return;
  const text = `${Math.min(STEP, names.length)} more of ${names.length.toLocaleString("en")}`;
  const more = button(text, text, () => {
    more.remove();
    showMore(node, value, names);
  });
  node.append(more);
}
