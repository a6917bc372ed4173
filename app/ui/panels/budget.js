// What may be held, what is held, and what the disk has left.

import { el } from '../dom.js';
import { bytes, count, percent, times } from '../format.js';
import { panel } from '../panel.js';
import { pins, stats } from '../sources.js';

export function start() {
  panel('budget', [stats, pins], (found, pinned) => [
    gauge('Budget', found.stored_bytes, found.budget_bytes, bytes, found.reserved_bytes),
    gauge('States', found.live, found.max_entries, count),
    pinned && pinned.pin_budget_bytes ? gauge('Pinned', pinned.pinned_bytes, pinned.pin_budget_bytes, bytes) : null,
    el('dl', { class: 'facts' },
      fact('Free disk', bytes(found.free_disk_bytes)),
      fact('Block files', bytes(found.block_file_bytes)),
      fact('Write-ahead log', bytes(found.wal_bytes)),
      found.reserved_bytes ? fact('Reserved by uploads', bytes(found.reserved_bytes)) : null,
      fact('Leases held', count(found.leases_held)),
      found.write_amplification.ratio === null ? null : fact('Write amplification', times(found.write_amplification.ratio))),
  ]);
}

function gauge(label, value, most, format, promised = 0) {
  const part = most ? Math.min(1, value / most) : 0;
  const kind = part > 0.98 ? 'full' : part > 0.9 ? 'high' : '';
  return el('div', { class: 'gauge' },
    el('div', { class: 'bar-head' }, el('span', {}, label), el('span', { class: 'figure' }, format(value), ' ', el('small', {}, `of ${format(most).replace(/\.0+(?=\D|$)/, '')}`))),
    el('div', {
      class: `track thick ${kind}`, role: 'meter', 'aria-label': label, 'aria-valuemin': 0, 'aria-valuemax': 100,
      'aria-valuenow': (part * 100).toFixed(1), 'aria-valuetext': `${format(value)} of ${format(most)}, ${percent(value, most)}`,
    },
    el('span', { class: 'fill', vars: { '--part': part } }),
    promised ? el('span', { class: 'fill promised', vars: { '--part': Math.min(1 - part, promised / most) } }) : null));
}

function fact(term, value) {
  return [el('dt', {}, term), el('dd', {}, value)];
}
