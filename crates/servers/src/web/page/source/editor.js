// The editor of one cell. It lives in a shadow root: there its styles are style sheets of the document's own, which the
// content security policy allows.

import { defaultKeymap, history, historyKeymap, indentWithTab } from "@codemirror/commands";
import { markdown } from "@codemirror/lang-markdown";
import { python } from "@codemirror/lang-python";
import { HighlightStyle, bracketMatching, indentOnInput, indentUnit, syntaxHighlighting } from "@codemirror/language";
import { EditorState, Prec, Transaction } from "@codemirror/state";
import { EditorView, drawSelection, keymap, runScopeHandlers } from "@codemirror/view";
import { tags } from "@lezer/highlight";

import { help } from "./completion.js";

const theme = EditorView.theme({
  "&": { backgroundColor: "transparent", color: "var(--text)", fontSize: "13px" },
  "&.cm-focused": { outline: "none" },
  ".cm-scroller": { fontFamily: "var(--mono)", lineHeight: "1.45" },
  ".cm-content": { padding: "6px 0", caretColor: "var(--text)" },
  ".cm-line": { padding: "0 8px" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "var(--selection)",
  },
  "&.cm-focused .cm-matchingBracket": { backgroundColor: "var(--selection)" },
});

const colours = HighlightStyle.define([
  { tag: [tags.keyword, tags.operatorKeyword, tags.modifier], color: "var(--code-keyword)" },
  { tag: [tags.string, tags.special(tags.string)], color: "var(--code-string)" },
  { tag: [tags.number, tags.bool, tags.null], color: "var(--code-number)" },
  { tag: tags.comment, color: "var(--code-comment)", fontStyle: "italic" },
  { tag: [tags.function(tags.definition(tags.variableName)), tags.className], color: "var(--code-name)" },
  { tag: tags.heading, fontWeight: "bold" },
  { tag: tags.emphasis, fontStyle: "italic" },
  { tag: tags.strong, fontWeight: "bold" },
  { tag: [tags.link, tags.url], color: "var(--accent)" },
]);

export class Editor {
  /** `label` returns the name for screen readers; `acts` gets what the person does: `changed`, `left`, `key` with a name of a key, which returns true if it is used, and `ask` for the kernel's help. */
  constructor(host, { text, type, label, acts }) {
    const root = host.attachShadow({ mode: "open" });
    const parent = document.createElement("div");
    root.append(parent);
    const key = (name) => ({ key: name, run: () => acts.key(name) });
    const extensions = [
      type === "code" ? help(acts.ask) : [],
      Prec.highest(keymap.of(["Shift-Enter", "Mod-Enter", "Alt-Enter", "Escape", "Mod-s"].map(key))),
      history(),
      drawSelection(),
      indentOnInput(),
      bracketMatching(),
      indentUnit.of("    "),
      EditorState.tabSize.of(4),
      keymap.of([...defaultKeymap, ...historyKeymap, indentWithTab]),
      theme,
      syntaxHighlighting(colours),
      // Tab goes past it, since in it Tab is a letter; Enter on the cell leads in.
      EditorView.contentAttributes.of(() => ({ "aria-label": label(), spellcheck: "false", tabindex: "-1" })),
      EditorView.updateListener.of((update) => update.docChanged && !this.isSetting && acts.changed()),
      EditorView.domEventHandlers({ blur: () => acts.left(), focus: () => acts.entered() }),
    ];
    if (type === "code") extensions.push(python());
    if (type === "markdown") extensions.push(markdown(), EditorView.lineWrapping);
    this.isSetting = false;
    this.view = new EditorView({ state: EditorState.create({ doc: text, extensions }), parent, root });
  }

  get text() {
    return this.view.state.doc.toString();
  }

  /** Sets the text, and leaves the cursor where it is as far as possible. */
  set text(text) {
    const now = this.text;
    if (now === text) return;
    let start = 0;
    while (start < now.length && now[start] === text[start]) start += 1;
    let [from, to] = [now.length, text.length];
    while (from > start && to > start && now[from - 1] === text[to - 1]) [from, to] = [from - 1, to - 1];
    this.isSetting = true;
    // The person's undo takes back what the person has typed.
    const annotations = Transaction.addToHistory.of(false);
    this.view.dispatch({ changes: { from: start, to: from, insert: text.slice(start, to) }, annotations });
    this.isSetting = false;
  }

  /** Reads the label again. */
  relabel() {
    this.view.dispatch({});
  }

  /** Takes a key that was pressed before the editor was there. */
  press(event) {
    if (runScopeHandlers(this.view, event, "editor") || event.key.length !== 1) return;
    this.view.dispatch({ ...this.view.state.replaceSelection(event.key), userEvent: "input.type", scrollIntoView: true });
  }

  get hasFocus() {
    return this.view.hasFocus;
  }

  focus() {
    this.view.focus();
  }

  blur() {
    this.view.contentDOM.blur();
  }

  destroy() {
    this.view.destroy();
  }
}
