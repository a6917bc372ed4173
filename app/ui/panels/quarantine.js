// The quarantine desk: why each state is out of service, and its ways out.

import { send } from '../api.js';
import { act, confirmed, say } from '../dialog.js';
import { el, name, visible } from '../dom.js';
import { bytes, count, shortId, words } from '../format.js';
import { note, panel } from '../panel.js';
import { may } from '../session.js';
import { audit, quarantine, stats } from '../sources.js';
import { since } from '../times.js';

export function start() {
  panel('quarantine', [quarantine], (held) => {
    if (!held.states.length) return note('Nothing is out of service', 'A state whose restore fails is moved here, with the evidence.', 'good');
    return [
      may('admin:write') ? null : el('p', { class: 'hint locked' }, 'Seeing only: changes need the scope admin:write.'),
      el('ul', { class: 'held' }, held.states.map(item)),
      held.next ? el('p', { class: 'foot' }, `The first ${count(held.states.length)}; there are more.`) : null,
    ];
  });
}

function item(state) {
  const { evidence } = state;
  return el('li', {},
    el('div', { class: 'held-head' },
      el('strong', {}, words(evidence?.failure_class ?? 'quarantined')),
      name(state.namespace),
      evidence ? since(evidence.at_ms) : null),
    el('p', { class: 'reason' }, evidence ? visible(evidence.reason) : 'No evidence was kept.'),
    el('dl', { class: 'facts inline' },
      fact('State', el('code', { title: state.state_id }, shortId(state.state_id))),
      fact('Prefix', `${count(state.token_count)} tokens`),
      fact('Size', bytes(state.logical_bytes)),
      fact('Kind', words(state.kind)),
      evidence ? fact('Found by', evidence.client ? [evidence.reported_by, ' ', el('code', { title: evidence.client }, shortId(evidence.client))] : evidence.reported_by) : null,
      evidence?.component ? fact('Where', `${evidence.component}${evidence.first_bad_block === null ? '' : `, block ${count(evidence.first_bad_block)}`}`) : null,
      digest('Expected', evidence?.expected_digest),
      digest('Found', evidence?.actual_digest),
      evidence?.verified_at_ms ? fact('Verified', [evidence.intact ? 'intact, ' : 'still fails, ', since(evidence.verified_at_ms)]) : null),
    may('admin:write') ? actions(state) : null);
}

function fact(term, value) {
  return el('div', {}, el('dt', {}, term), el('dd', {}, value));
}

function digest(term, value) {
  return value ? fact(term, el('code', { title: value }, value.slice(0, 12))) : null;
}

function actions(state) {
  const path = `/admin/v1/states/${encodeURIComponent(state.state_id)}`;
  const button = (verb, kind, onclick) => el('button', {
    type: 'button', class: `button small ${kind}`, 'data-key': `${verb} ${state.state_id}`,
    'aria-label': `${verb} state ${shortId(state.state_id)}`, onclick: (event) => onclick(event.currentTarget),
  }, verb);
  return el('div', { class: 'actions' },
    button('Re-verify', '', (at) => verify(at, state, path)),
    button('Release', '', (at) => release(at, state, path)),
    button('Purge', 'danger', (at) => purge(at, state, path)));
}

function facts(state) {
  return [['Namespace', name(state.namespace)], ['State', el('code', {}, state.state_id)], ['Size', `${bytes(state.logical_bytes)}, ${count(state.token_count)} tokens`]];
}

async function verify(button, state, path) {
  if (!await confirmed({ title: 'Re-verify this state?', text: 'Every byte is read and checked. It stays in quarantine whatever comes out.', details: facts(state), action: 'Re-verify' })) return;
  await act(button, async () => {
    const { intact } = await send('POST', `${path}/verify`);
    if (!intact) throw new Error('It still fails. The evidence is up to date.');
  }, 'Every byte is as it was recorded: it can be released.');
  await after();
}

async function release(button, state, path) {
  if (!await confirmed({ title: 'Release this state?', text: 'Every byte is read and checked first. If all is as recorded, lookups find it again.', details: facts(state), action: 'Verify and release' })) return;
  await act(button, () => send('POST', `${path}/release`), 'Back in service.');
  await after();
}

async function purge(button, state, path) {
  if (!await confirmed({ title: 'Purge this state?', text: 'Its bytes and the evidence are deleted. This cannot be undone.', details: facts(state), action: 'Purge', dangerous: true })) return;
  await act(button, () => send('DELETE', path), 'Purged.');
  await after();
}

async function after() {
  await Promise.all([quarantine, stats, audit].map((source) => source.restart())).catch((trouble) => say(trouble.message, 'bad'));
}
