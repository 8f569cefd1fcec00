// Completion and documentation by the kernel, and closing brackets.

import { acceptCompletion, autocompletion, closeBrackets, closeBracketsKeymap, startCompletion } from "@codemirror/autocomplete";
import { Prec, StateEffect, StateField } from "@codemirror/state";
import { EditorView, keymap, showTooltip } from "@codemirror/view";

const theme = EditorView.theme({
  ".cm-tooltip": {
    border: "1px solid var(--line)",
    borderRadius: "4px",
    backgroundColor: "var(--raised)",
    color: "var(--text)",
    fontFamily: "var(--mono)",
  },
  ".cm-tooltip-autocomplete ul li[aria-selected]": { backgroundColor: "var(--selection)", color: "var(--text)" },
  ".cm-completionDetail": { color: "var(--quiet)" },
  ".cm-documentation": { margin: "0", padding: "6px 8px", maxWidth: "80ch", maxHeight: "20em", overflow: "auto", whiteSpace: "pre-wrap" },
});

const setDocumentation = StateEffect.define();

/** What is shown at the cursor, until the person goes on. */
const documentation = StateField.define({
  create: () => null,
  update(shown, transaction) {
    const set = transaction.effects.find((effect) => effect.is(setDocumentation));
    if (set) return set.value;
    return transaction.docChanged || transaction.selection ? null : shown;
  },
  provide: (field) => showTooltip.from(field),
});

/** How many Unicode characters stand before a place in a text, as the kernel counts. */
const charactersBefore = (text, at) => [...text.slice(0, at)].length;

/** The place in a text before which so many Unicode characters stand. */
const placeOf = (text, characters) => [...text].slice(0, characters).join("").length;

/** Asks the kernel about the text at a place: `ask(what, code, at)` returns its answer, or null. */
function askAt({ state }, ask, what) {
  const code = state.doc.toString();
  return ask(what, code, charactersBefore(code, state.selection.main.head));
}

/** Returns the extension for an editor of code. */
export function help(ask) {
  const completions = async (context) => {
    const code = context.state.doc.toString();
    const answer = await askAt(context, ask, "complete");
    if (!answer || answer.matches.length === 0) return null;
    const options = answer.matches.map(({ text, kind }) => ({ label: text, detail: kind ?? undefined }));
    return { from: placeOf(code, answer.from), to: placeOf(code, answer.to), options, validFor: /^\w*$/ };
  };
  // Tab indents where no word ends.
  const isAtWord = ({ state }) => {
    const { main } = state.selection;
    return main.empty && /[\w.]$/.test(state.sliceDoc(state.doc.lineAt(main.head).from, main.head));
  };
  const isAtCode = ({ state }) => {
    const { main } = state.selection;
    return main.empty && /\S/.test(state.sliceDoc(state.doc.lineAt(main.head).from, main.head));
  };
  const showDocumentation = async (view) => {
    const { state } = view;
    const answer = await askAt(view, ask, "documentation");
    if (!answer?.text || view.state !== state) return;
    view.dispatch({ effects: setDocumentation.of(tooltip(state.selection.main.head, answer.text)) });
  };
  const keys = [
    { key: "Tab", run: (view) => acceptCompletion(view) || (isAtWord(view) && startCompletion(view)) },
    { key: "Shift-Tab", run: (view) => isAtCode(view) && (showDocumentation(view), true) },
    { key: "Escape", run: hideDocumentation },
  ];
  return [
    autocompletion({ override: [completions], activateOnTyping: false, icons: false, interactionDelay: 0 }),
    documentation,
    closeBrackets(),
    Prec.highest(keymap.of(keys)),
    keymap.of(closeBracketsKeymap),
    theme,
  ];
}

function hideDocumentation(view) {
  if (view.state.field(documentation) === null) return false;
  view.dispatch({ effects: setDocumentation.of(null) });
  return true;
}

function tooltip(pos, text) {
  const create = () => {
    const dom = document.createElement("pre");
    dom.className = "cm-documentation";
    dom.setAttribute("role", "status");
    // Its colours are those of a terminal.
    dom.textContent = text.replace(/\x1b\[[0-9;]*m/g, "");
    return { dom };
  };
  return { pos, above: true, create };
}
