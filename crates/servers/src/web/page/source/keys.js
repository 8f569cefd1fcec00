// What the keys do.

import { button, make } from "./parts.js";

const KEYS = [
  ["Enter", "edits the cell"],
  ["Esc", "ends that"],
  ["Shift-Enter", "runs the cell and goes on"],
  ["Ctrl-Enter", "runs the cell"],
  ["Ctrl-S", "writes the cell into the notebook"],
  ["Tab", "completes a word, or indents"],
  ["Shift-Tab", "shows the documentation, or dedents"],
  ["j, k, arrows", "select the next or the previous cell"],
  ["a, b", "insert a cell above or below"],
  ["y, m", "make it code or Markdown"],
  ["d d", "deletes the cell"],
  ["z", "takes your last edit back"],
  ["f", "finds a text"],
  ["i i", "interrupts the kernel"],
  ["0 0", "restarts the kernel"],
  ["?", "shows this"],
];

export function showKeys() {
  const row = ([key, act]) => make("tr", {}, make("th", { scope: "row" }, key), make("td", {}, act));
  const dialog = make(
    "dialog.keys",
    { "aria-label": "Keys", onclose: () => dialog.remove() },
    make("table", {}, make("tbody", {}, ...KEYS.map(row))),
    button("Close", "Close", () => dialog.close()),
  );
  document.body.append(dialog);
  dialog.showModal();
}
