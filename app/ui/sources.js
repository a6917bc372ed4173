// Every question this page asks, in one place.

import { get } from './api.js';
import { LocalHistory } from './history.js';
import { Source } from './source.js';

const SECOND = 1000;
export const RANGES = [
  { label: '1 h', minutes: 60, step: 1 },
  { label: '6 h', minutes: 360, step: 5 },
  { label: '24 h', minutes: 1440, step: 20 },
  { label: '48 h', minutes: 2880, step: 40 },
];
export const range = { chosen: RANGES[0] };

const local = new LocalHistory();

export const stats = new Source('stats', async () => {
  const found = await get('/admin/v1/stats');
  local.note(found.counters);
  return found;
}, 4 * SECOND);

export const ready = new Source('ready', async () => {
  try {
    return await get('/readyz');
  } catch (trouble) {
    if (trouble.kind === 'offline') throw trouble;
    return { degraded: ['the server is shutting down'], mode: null };
  }
}, 10 * SECOND);

export const history = new Source('history', async () => {
  const { minutes, step } = range.chosen;
  try {
    const found = await get('/admin/v1/history', { minutes, step_minutes: step, names: 'lookups,hit_tokens,misses' });
    return { ...found, local: false };
  } catch (trouble) {
    if (trouble.kind !== 'missing') throw trouble;
    // What this page has seen since it was opened is better than nothing.
    return { ...local.read(), local: true };
  }
}, 5 * SECOND);

export const namespaces = new Source('namespaces', async () => {
  const found = [];
  let after = null;
  do {
    const page = await get('/v1/namespaces', { limit: 1000, after });
    found.push(...page.namespaces);
    after = page.next;
  } while (after && found.length < 5000);
  return { namespaces: found, all: !after };
}, 15 * SECOND);

export const recent = new Source('recent', () => get('/admin/v1/states', { sort: 'touched', order: 'desc', limit: 300 }), 15 * SECOND);

export const quarantine = new Source('quarantine', () => get('/admin/v1/quarantine', { limit: 50 }), 6 * SECOND);
export const audit = new Source('audit', () => get('/admin/v1/audit', { limit: 30 }), 8 * SECOND);
export const jobs = new Source('jobs', () => get('/admin/v1/jobs'), 3 * SECOND);
export const pins = new Source('pins', () => get('/admin/v1/pins'), 20 * SECOND);

export function counter(found, name, label = null) {
  return found.counters
    .filter((one) => one.name === name && (label === null || one.label === label))
    .reduce((sum, one) => sum + one.value, 0);
}
