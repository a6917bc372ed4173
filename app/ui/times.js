// "3 min ago" stays true while nothing else on the page changes.

import { el } from './dom.js';
import { ago, moment } from './format.js';

export function since(at_ms) {
  return el('time', { datetime: new Date(at_ms).toISOString(), title: moment(at_ms), 'data-at': at_ms }, ago(at_ms));
}

setInterval(() => {
  if (document.hidden) return;
  for (const node of document.querySelectorAll('time[data-at]')) {
    const text = ago(Number(node.dataset.at));
    if (node.textContent !== text) node.textContent = text;
  }
}, 5000);
