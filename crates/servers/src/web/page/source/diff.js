// The lines in which two texts of a cell differ. The server compares them.

import { pathOf, request } from "./connection.js";
import { make } from "./parts.js";
import { visible } from "./visible.js";

const MARKS = { same: " ", removed: "-", added: "+" };

/** Returns the differences that the server has found: `texts` has `before` and `after`, which are revisions, or `text`. */
export async function differences(book, cell, texts) {
  const { source } = await request("POST", pathOf(book.id, "cells", cell, "diff"), texts);
  return diffNode(source);
}

function diffNode(hunks) {
  return linesNode(hunks.flatMap((hunk, at) => [...(at ? [{ same: "…" }] : []), ...hunk.lines]));
}

/** Shows lines that are the same in both texts, removed, or added. */
export function linesNode(lines) {
  const row = (line) => {
    const [[kind, text]] = Object.entries(line);
    return make(`div.${kind}`, {}, `${MARKS[kind]} ${visible(text)}`);
  };
  return make("pre.diff", {}, ...lines.map(row));
}
