// Building the page. Text goes in as text nodes only; nothing here can make markup out of a string.

const SVG = 'http://www.w3.org/2000/svg';

/** An element with properties and children; null and false children are left out. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** The same in SVG. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith('on')) node.addEventListener(name.slice(2), value);
    else if (name === 'vars') for (const [key, text] of Object.entries(value)) node.style.setProperty(key, text);
    else node.setAttribute(name, value === true ? '' : String(value));
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** Replace what a container shows and keep the keyboard focus where it was (by `data-key`). */
export function show(container, ...nodes) {
  const wanted = nodes.flat(Infinity).filter(Boolean);
  const there = container.childNodes;
  if (wanted.length && there.length === wanted.length && wanted.every((node, at) => node === there[at])) return;
  const active = document.activeElement;
  const key = container.contains(active) ? active.dataset.key : null;
  const scrolled = container.querySelector('[data-scroll]')?.scrollTop;
  container.replaceChildren(...wanted);
  if (scrolled) container.querySelector('[data-scroll]')?.scrollTo({ top: scrolled });
  if (!key) return;
  for (const node of container.querySelectorAll('[data-key]')) {
    if (node.dataset.key === key) node.focus({ preventScroll: true });
  }
}

// Characters that reorder, join or hide what stands around them: shown by their code point instead.
const UNSEEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\ufff9-\ufffb]/g;

/** A name from somewhere else, as it can safely be read: isolated, with unseen characters made visible. */
export function visible(text) {
  return String(text).replace(UNSEEN, (found) => `\u27e8U+${found.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}\u27e9`);
}

export function name(text, props = {}) {
  const shown = visible(text);
  return el('bdi', { class: 'name', title: shown, ...props }, shown);
}
