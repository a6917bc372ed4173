// Long work: how far it is, starting it, and stopping it.

import { send } from '../api.js';
import { act, confirmed } from '../dialog.js';
import { el, name, visible } from '../dom.js';
import { bytes, count, percent, shortId, words } from '../format.js';
import { note, panel } from '../panel.js';
import { may } from '../session.js';
import { audit, jobs } from '../sources.js';
import { since } from '../times.js';

const OFFERED = {
  verify: 'Reads and checks every block that is held, in the background. What is damaged goes into quarantine.',
  backup: 'Copies the whole store into its backup folder while it goes on serving.',
  compact: 'Gives free space in the files back to the disk. The service pauses meanwhile: requests wait, and recordings that are not committed end.',
};
const SHOWN = 12;

export function start() {
  panel('jobs', [jobs], (found) => [
    may('admin:write') ? starters(found.jobs) : el('p', { class: 'hint locked' }, 'Seeing only: starting needs the scope admin:write.'),
    found.jobs.length ? el('ul', { class: 'jobs' }, ordered(found.jobs).map(item)) : note('No jobs yet', 'Verifications and backups show here.'),
  ]);
}

function ordered(all) {
  const rank = (job) => (job.status === 'running' ? 1 : 0);
  return [...all].sort((a, b) => rank(b) - rank(a) || b.created_at_ms - a.created_at_ms).slice(0, SHOWN);
}

function starters(all) {
  return el('div', { class: 'actions' }, Object.entries(OFFERED).map(([kind, text]) => {
    const running = all.some((job) => job.kind === kind && job.status === 'running');
    return el('button', {
      type: 'button', class: 'button small', disabled: running, 'data-key': `start ${kind}`,
      title: running ? 'One is running already.' : text,
      onclick: async (event) => {
        const button = event.currentTarget;
        if (!await confirmed({ title: `Start a ${kind} job?`, text, action: `Start ${kind}` })) return;
        await act(button, () => send('POST', '/admin/v1/jobs', { kind }), `The ${kind} job has started.`);
        await Promise.all([jobs.restart(), audit.restart()]);
      },
    }, `Start ${kind}`);
  }));
}

function item(job) {
  const running = job.status === 'running';
  const part = job.total > 0 ? Math.min(1, job.done / job.total) : 0;
  const amount = (value) => (job.unit === 'bytes' ? bytes(value) : count(value));
  return el('li', { class: job.status },
    el('div', { class: 'job-head' },
      el('strong', {}, words(visible(job.kind))),
      called(job),
      el('span', { class: `chip ${job.status}` }, job.status),
      since(job.ended_at_ms ?? job.created_at_ms)),
    running ? el('progress', job.total ? { max: 1, value: part, 'aria-label': `${job.kind} job` } : { 'aria-label': `${job.kind} job` }) : null,
    el('div', { class: 'job-foot' },
      el('span', {}, job.total ? `${amount(job.done)} of ${amount(job.total)}${job.unit === 'bytes' ? '' : ` ${visible(job.unit)}`}${running ? `, ${percent(job.done, job.total)}` : ''}` : ''),
      job.error ? el('span', { class: 'refused' }, words(visible(job.error))) : null,
      running && may('admin:write') ? el('button', {
        type: 'button', class: 'button small', 'data-key': `cancel ${job.job_id}`, 'aria-label': `Cancel ${job.kind} job`,
        onclick: (event) => cancel(event.currentTarget, job),
      }, 'Cancel') : null));
}

/** The name of a backup, where this is one. */
function called(job) {
  const given = job.arguments?.name ?? job.result?.name;
  return given ? name(given) : null;
}

async function cancel(button, job) {
  const details = [['Job', el('code', {}, shortId(job.job_id))], ['So far', percent(job.done, job.total)]];
  if (!await confirmed({ title: `Cancel this ${job.kind} job?`, text: 'What it has found or written so far stays as it is said in its result.', details, action: 'Cancel job', dangerous: true })) return;
  await act(button, () => send('POST', `/admin/v1/jobs/${encodeURIComponent(job.job_id)}/cancel`), 'It stops at the next safe place.');
  await jobs.restart();
}
