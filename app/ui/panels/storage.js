// What storing each block once and compressing it have each saved.

import { el } from '../dom.js';
import { bytes, percent } from '../format.js';
import { note, panel } from '../panel.js';
import { stats } from '../sources.js';

export function start() {
  panel('storage', [stats], (found) => {
    const { logical_bytes: logical, block_raw_bytes: distinct, block_stored_bytes: stored } = found;
    if (!logical && !distinct) return note('Nothing is held yet', 'Recorded states show here what they take.');
    const most = Math.max(logical, distinct, stored);
    return [
      step('Logical', logical, most, 'logical', 'all live states as they were recorded'),
      step('Distinct blocks', distinct, most, 'distinct', saved('Deduplication', logical, distinct)),
      step('On disk', stored, most, 'stored', saved('Compression', distinct, stored)),
      el('p', { class: 'sum' }, logical > stored && stored
        ? [el('strong', {}, percent(logical - stored, logical)), ' saved altogether']
        : 'Nothing is saved yet: too little is held, or it does not compress.'),
    ];
  });
}

function saved(what, before, after) {
  if (after === before) return `${what} saved nothing yet`;
  if (after > before) return `${what}: ${bytes(after - before)} more (${what === 'Deduplication' ? 'states out of service or under way own blocks too' : 'page rounding'})`;
  return `${what} saved ${bytes(before - after)} (${percent(before - after, before)})`;
}

function step(label, value, most, kind, hint) {
  return el('div', { class: 'byte-step' },
    el('div', { class: 'bar-head' }, el('span', {}, label), el('span', { class: 'figure' }, bytes(value))),
    el('div', { class: 'track thick', 'aria-hidden': 'true' }, el('span', { class: `fill ${kind}`, vars: { '--part': most ? value / most : 0 } })),
    el('p', { class: 'hint' }, hint));
}
