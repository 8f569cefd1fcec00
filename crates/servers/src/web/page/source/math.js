// Formulas. The page loads this file for the first text that may have one.

import renderMath from "katex/contrib/auto-render";

const options = {
  output: "mathml",
  throwOnError: false,
  trust: false,
  maxExpand: 1000,
  delimiters: [
    { left: "$$", right: "$$", display: true },
    { left: "\\[", right: "\\]", display: true },
    { left: "\\(", right: "\\)", display: false },
    { left: "$", right: "$", display: false },
  ],
};

export function show(node) {
  renderMath(node, options);
}
