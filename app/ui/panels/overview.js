// The few figures that say whether all is well.

import { el } from '../dom.js';
import { bytes, count, percent } from '../format.js';
import { growth, total } from '../history.js';
import { panel } from '../panel.js';
import { counter, history, range, stats } from '../sources.js';

export function start() {
  panel('overview', [stats, history], (found, past) => [
    hitRate(found, past),
    saved(found, past),
    tile('States', count(found.live), found.recording ? `${count(found.recording)} being recorded` : `in ${count(found.namespaces)} ${found.namespaces === 1 ? 'namespace' : 'namespaces'}`),
    tile('Stored', bytes(found.stored_bytes), `${percent(found.stored_bytes, found.budget_bytes)} of ${bytes(found.budget_bytes)}`, found.stored_bytes > 0.98 * found.budget_bytes ? 'warn' : ''),
    tile('Quarantined', count(found.quarantined), found.quarantined ? 'out of service, see below' : 'nothing is out of service', found.quarantined ? 'bad' : ''),
  ]);
}

function hitRate(found, past) {
  const [hits, misses] = [counter(found, 'lookups', 'hit'), counter(found, 'lookups', 'miss')];
  if (past && !past.local) {
    const lately = [total(growth(past, 'lookups', 'hit')), total(growth(past, 'lookups', 'miss'))];
    if (lately[0] + lately[1]) return tile('Hit rate', percent(lately[0], lately[0] + lately[1]), `last ${range.chosen.label}, ${percent(hits, hits + misses)} ever`);
  }
  return tile('Hit rate', percent(hits, hits + misses), `of ${count(hits + misses)} lookups ever`);
}

function saved(found, past) {
  const ever = counter(found, 'hit_tokens');
  if (past && !past.local) return tile('Tokens saved', count(total(growth(past, 'hit_tokens'))), `last ${range.chosen.label}, ${count(ever)} ever`);
  return tile('Tokens saved', count(ever), 'prefill not computed again');
}

function tile(label, value, under, kind = '') {
  return el('div', { class: `tile ${kind}` }, el('span', { class: 'label' }, label), el('strong', { class: 'value' }, value), el('span', { class: 'under' }, under));
}
