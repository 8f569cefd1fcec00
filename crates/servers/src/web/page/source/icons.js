// The icons of the page, drawn in a square of 16 by 16.

const PATHS = {
  run: "M4 2.5v11l9-5.5z",
  runAll: "M2 3v10l6-5zM8 3v10l6-5z",
  why: "M5.5 6a2.5 2.5 0 1 1 3.6 2.2c-.7.4-1.1.9-1.1 1.8M8 12.6v.4",
  stop: "M4 4h8v8H4z",
  restart: "M12.8 6A5.2 5.2 0 1 0 13.2 8.6M13 2.5V6H9.5",
  power: "M8 2v5.5M5 4a5 5 0 1 0 6 0",
  plus: "M8 3v10M3 8h10",
  text: "M3 4h10M8 4v9",
  undo: "M6 3 2.5 6.5 6 10M3 6.5h6a4 4 0 0 1 0 8H6",
  find: "M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 1 1 0-9M10.4 10.4 14 14",
  assistant: "M8 2l1.5 4.5L14 8l-4.5 1.5L8 14l-1.5-4.5L2 8l4.5-1.5z",
  history: "M8 2.5a5.5 5.5 0 1 1-5.2 3.7M2.5 2.5v4h4M8 5v3.5l2.5 1.5",
  rename: "M3 13l.6-3L10.5 3l2.5 2.5-7 7z",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M3 13.5h10",
  clear: "M6 13.5h7M3 9.5l6-6 4 4-5 5.5H6z",
  file: "M4 2h5l3 3v9H4zM8 7v4M6 9h4",
  keys: "M2 4.5h12v7H2zM4.5 7h.1M7 7h.1M9.5 7h.1M11.9 7h.1M5 9.5h6",
  up: "M8 13V3.5M4 7.5l4-4 4 4",
  down: "M8 3v9.5M4 8.5l4 4 4-4",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  trash: "M3 4.5h10M6 4.5V3h4v1.5M4.5 4.5l.6 9h5.8l.6-9",
  close: "M4 4l8 8M12 4l-8 8",
};

const SVG = "http://www.w3.org/2000/svg";

/** Makes an icon. Its colour is that of the text. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: "0 0 16 16", class: "icon", "aria-hidden": "true" };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
