// Where the work is: namespaces by the uses of the states that were used last.

import { el, name, visible } from '../dom.js';
import { bytes, count, percent } from '../format.js';
import { note, panel } from '../panel.js';
import { namespaces, recent } from '../sources.js';
import { since } from '../times.js';
import { walk } from './tree.js';

const SHOWN = 12;
const SAVED = 'Of the bytes as recorded: by deduplication and by compression together';

export function start() {
  panel('namespaces', [namespaces, recent], (found, states) => {
    if (!found.namespaces.length) return note('No namespaces yet', 'One appears with the first recording.');
    const uses = byNamespace(states?.states ?? []);
    const busiest = found.namespaces
      .map((one) => ({ ...one, ...(uses.get(key(one)) ?? { hits: 0, touched_at_ms: 0 }) }))
      .sort((a, b) => b.hits - a.hits || b.touched_at_ms - a.touched_at_ms || b.stored_bytes - a.stored_bytes)
      .slice(0, SHOWN);
    const most = Math.max(1, ...busiest.map((one) => one.hits));
    return [
      el('div', { class: 'table-frame' }, el('table', {},
        el('thead', {}, el('tr', {},
          ['Namespace', 'Uses', 'States', 'Stored', 'Saved', 'Last used'].map((title, at) => el('th', { scope: 'col', class: at ? 'number' : '', title: title === 'Saved' ? SAVED : null }, title)))),
        el('tbody', {}, busiest.map((one) => row(one, most, Boolean(states)))))),
      el('p', { class: 'foot' }, `${states ? `Uses: of the ${count(states.states.length)} states used last. ` : ''}${count(busiest.length)} of ${count(found.namespaces.length)}${found.all ? '' : '+'} namespaces.`),
    ];
  });
}

function key(one) {
  return JSON.stringify([one.tenant ?? '', one.namespace]);
}

function byNamespace(states) {
  const found = new Map();
  for (const state of states) {
    const sum = found.get(key(state)) ?? { hits: 0, touched_at_ms: 0 };
    sum.hits += state.hits;
    sum.touched_at_ms = Math.max(sum.touched_at_ms, state.touched_at_ms);
    found.set(key(state), sum);
  }
  return found;
}

function row(one, most, used) {
  return el('tr', {},
    el('th', { scope: 'row' },
      el('button', { type: 'button', class: 'link', title: 'Walk its tree', 'data-key': `ns ${key(one)}`, onclick: () => walk(one) }, name(one.namespace)),
      el('span', { class: 'chips' },
        one.tenant ? el('span', { class: 'chip' }, visible(one.tenant)) : null,
        one.mode ? el('span', { class: 'chip' }, visible(one.mode.replaceAll('_', ' + '))) : null,
        one.warnings.length ? el('span', { class: 'chip warn', title: one.warnings.join(', ').replaceAll('_', ' ') }, 'identity') : null),
      el('span', { class: 'under-bar', 'aria-hidden': 'true' }, el('span', { vars: { '--part': one.hits / most } }))),
    cell('Uses', used ? count(one.hits) : '\u2013'),
    cell('States', count(one.entries)),
    cell('Stored', bytes(one.stored_bytes)),
    cell('Saved', one.logical_bytes ? percent(Math.max(0, one.logical_bytes - one.stored_bytes), one.logical_bytes) : '\u2013'),
    cell('Last used', one.touched_at_ms ? since(one.touched_at_ms) : '\u2013'));
}

function cell(label, value) {
  return el('td', { class: 'number', 'data-label': label }, value);
}
