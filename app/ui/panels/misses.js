// Why lookups found nothing, and what can be done about each reason.

import { el } from '../dom.js';
import { count, percent, words } from '../format.js';
import { growth, total } from '../history.js';
import { note, panel } from '../panel.js';
import { counter, history, stats } from '../sources.js';

const MEANING = {
  never_seen: 'nothing of this prefix was recorded',
  evicted_recently: 'it was here and had to go: a larger budget would have kept it',
  identity_mismatch: 'held for the same model under another identity: compare the two documents',
  quarantined: 'held, but out of service',
  kind_not_accepted: 'held in a kind that the caller does not take',
  lookup_disabled: 'the mode forbids lookups',
};

export function start() {
  panel('misses', [stats, history], (found, past) => {
    const lately = past && !past.local ? labels(past.series.filter((one) => one.name === 'misses').map((one) => one.label), (label) => total(growth(past, 'misses', label))) : [];
    const shown = lately.length ? lately : labels(found.counters.filter((one) => one.name === 'misses').map((one) => one.label), (label) => counter(found, 'misses', label));
    const sum = total(shown.map(([, value]) => value));
    if (!sum) return note('No misses', 'Reasons appear when a lookup finds nothing.', 'good');
    return [
      el('ul', { class: 'bars' }, shown.map(([label, value]) => bar(label, value, sum))),
      el('p', { class: 'foot' }, lately.length ? 'In the time shown above.' : 'Since the store was made.'),
    ];
  });
}

function labels(names, value) {
  return [...new Set(names)].map((label) => [label, value(label)]).filter(([, size]) => size).sort((a, b) => b[1] - a[1]);
}

function bar(label, value, sum) {
  return el('li', {},
    el('div', { class: 'bar-head' }, el('span', {}, words(label)), el('span', { class: 'figure' }, count(value), ' ', el('small', {}, percent(value, sum)))),
    el('div', { class: 'track', 'aria-hidden': 'true' }, el('span', { class: `fill miss-${Object.keys(MEANING).indexOf(label)}`, vars: { '--part': value / sum } })),
    MEANING[label] && el('p', { class: 'hint' }, MEANING[label]));
}
