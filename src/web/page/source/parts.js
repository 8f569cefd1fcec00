// Small parts of the page.

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

export function button(text, title, act) {
  return make("button", { type: "button", title, "aria-label": title, onclick: act }, text);
}

/** Returns a button that runs cells: it is off while the assistant is at work. */
export function runButton(text, title, act) {
  const node = button(text, title, act);
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
