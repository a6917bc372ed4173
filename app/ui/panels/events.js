// What happened lately: changes by operators, and states that left service.

import { el, name, visible } from '../dom.js';
import { shortId, words } from '../format.js';
import { note, panel } from '../panel.js';
import { audit, quarantine } from '../sources.js';
import { since } from '../times.js';

const SHOWN = 40;
const HIGHEST = 430; // px
const DONE = {
  'POST /admin/v1/evictions': 'Eviction',
  'POST /admin/v1/states/{state_id}/quarantine': 'Quarantine by hand',
  'POST /admin/v1/states/{state_id}/release': 'Release from quarantine',
  'POST /admin/v1/states/{state_id}/verify': 'Verification',
  'GET /admin/v1/states/{state_id}/components/{name}/raw': 'Raw bytes taken',
  'DELETE /admin/v1/states/{state_id}': 'Purge',
  'PUT /admin/v1/states/{state_id}/pin': 'Pin',
  'DELETE /admin/v1/states/{state_id}/pin': 'Pin taken away',
  'PATCH /admin/v1/namespaces': 'Namespace changed',
  'PATCH /admin/v1/limits': 'Limits changed',
  'PUT /admin/v1/mode': 'Mode changed',
  'POST /admin/v1/jobs': 'Job started',
  'POST /admin/v1/jobs/{job_id}/cancel': 'Job cancelled',
  'POST /admin/v1/tokens': 'Token created',
  'DELETE /admin/v1/tokens/{token_id}': 'Token revoked',
  'PUT /admin/v1/tenants/{name}': 'Tenant changed',
  // On the command line, beside the server.
  'token create': 'Token created',
  'token revoke': 'Token revoked',
};
// What a refusal refuses: nothing was changed, revoked or started.
const WANTED = {
  'PATCH /admin/v1/namespaces': 'Change of a namespace',
  'PATCH /admin/v1/limits': 'Change of limits',
  'PUT /admin/v1/mode': 'Change of mode',
  'POST /admin/v1/jobs': 'Start of a job',
  'POST /admin/v1/jobs/{job_id}/cancel': 'Cancelling a job',
  'POST /admin/v1/tokens': 'Creating a token',
  'DELETE /admin/v1/tokens/{token_id}': 'Revoking a token',
  'GET /admin/v1/states/{state_id}/components/{name}/raw': 'Taking raw bytes',
  'DELETE /admin/v1/states/{state_id}/pin': 'Taking a pin away',
  'PUT /admin/v1/tenants/{name}': 'Change of a tenant',
};
// Ways to end that are no refusal.
const FAILED = { internal_error: 'failed', broken_off: 'was broken off' };

export function start() {
  // Quarantines alone are worth showing where there is no audit log: that panel's source decides.
  panel('events', [quarantine, audit], (held, log) => {
    const events = [
      ...(log?.entries ?? []).map(change),
      ...held.states.filter((state) => state.evidence && state.evidence.reported_by !== 'operator').map(leftService),
    ].sort((a, b) => b.at_ms - a.at_ms).slice(0, SHOWN);
    if (!events.length) return note('Nothing happened yet', 'Changes by operators and quarantines show here.');
    const list = el('ol', { class: 'events', 'data-scroll': '', tabindex: '0', 'aria-label': 'Recent events', 'data-key': 'events' }, events.map(({ at_ms, kind, title, about }) => el('li', { class: kind },
      el('span', { class: 'event-title' }, title), since(at_ms), about.length ? el('span', { class: 'event-about' }, about) : null)));
    fitted.observe(list.firstElementChild);
    return [list, el('p', { class: 'foot events-more', hidden: true }, 'Older ones stand below: scroll the list.')];
  });
}

// The list ends where a row does, and says where it goes on. A row is watched: its size does not follow the list's height.
const fitted = new ResizeObserver((entries) => {
  for (const list of entries.map(({ target }) => target.parentElement).filter((one) => one?.isConnected)) {
    const ends = [...list.children].map((row) => row.offsetTop + row.offsetHeight);
    const whole = ends.filter((end) => end <= HIGHEST).at(-1) ?? HIGHEST;
    list.style.maxHeight = `${whole}px`;
    list.nextElementSibling.hidden = ends.at(-1) <= HIGHEST;
  }
});

function change(entry) {
  const well = entry.outcome === 'done';
  const dry = entry.details?.body?.dry_run === true;
  const about = [name(short(entry.target), { title: visible(entry.target) }), el('span', {}, ` by ${visible(shortId(entry.actor))}`)];
  if (!well) about.push(el('span', { class: 'refused' }, `, ${words(visible(entry.outcome))}`));
  const done = DONE[entry.action] ?? visible(entry.action);
  const what = `${well ? done : WANTED[entry.action] ?? done}${dry ? ', dry run' : ''}`;
  return {
    at_ms: entry.at_ms,
    kind: well ? dry ? 'look' : 'change' : 'refusal',
    title: well ? what : `${what} ${FAILED[entry.outcome] ?? 'refused'}`,
    about: entry.target ? about : about.slice(1),
  };
}

function short(target) {
  return target.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, (id) => shortId(id));
}

function leftService(state) {
  const { evidence } = state;
  return {
    at_ms: evidence.at_ms,
    kind: 'fault',
    title: `Quarantined: ${words(evidence.failure_class)}`,
    about: [name(state.namespace), el('span', {}, ` ${shortId(state.state_id)}, found by the ${evidence.reported_by}`)],
  };
}
