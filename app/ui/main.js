// Puts the page together: who is asking, the panels, and the line that says whether it is live.

import { get } from './api.js';
import { el, show, visible } from './dom.js';
import { ago, words } from './format.js';
import { newUser } from './panel.js';
import * as budget from './panels/budget.js';
import * as events from './panels/events.js';
import * as jobs from './panels/jobs.js';
import * as misses from './panels/misses.js';
import * as namespaces from './panels/namespaces.js';
import * as overview from './panels/overview.js';
import * as quarantine from './panels/quarantine.js';
import * as storage from './panels/storage.js';
import * as traffic from './panels/traffic.js';
import * as tree from './panels/tree.js';
import { learn, secret, signOut } from './session.js';
import { askForSecret, hideSignIn } from './sign-in.js';
import { isRunning, startAll, stopAll } from './source.js';
import { ready, stats } from './sources.js';

const board = document.getElementById('board');
const banner = document.getElementById('banner');

async function begin() {
  let whoami = null;
  try {
    whoami = await get('/admin/v1/whoami');
  } catch (trouble) {
    if (trouble.kind === 'unauthorized') return wantSecret(secret() ? 'The server does not know this token, or it has run out.' : 'This server wants to know who you are.');
    if (trouble.kind === 'offline') return offline();
  }
  learn(whoami);
  newUser();
  hideSignIn();
  online();
  board.hidden = false;
  document.getElementById('sign-out').hidden = !secret();
  return startAll();
}

function wantSecret(why) {
  stopAll();
  online();
  board.hidden = true;
  document.getElementById('sign-out').hidden = true;
  pulse('Signed out', 'off');
  askForSecret(why, begin);
}

document.getElementById('sign-out').addEventListener('click', () => {
  signOut();
  // A page that is loaded anew holds nothing of what was seen.
  location.reload();
});

// ---- live or not ---------------------------------------------------------------------------

let retry = null;

function offline() {
  pulse('Offline', 'bad');
  if (banner.hidden) {
    show(banner,
      el('span', {}, 'The server does not answer. ', stats.state.at_ms ? `These figures are of ${new Date(stats.state.at_ms).toLocaleTimeString()}.` : ''),
      el('button', { type: 'button', class: 'button small', onclick: () => (isRunning() ? startAll() : begin()) }, 'Try again'));
    banner.hidden = false;
  }
  clearTimeout(retry);
  if (!isRunning()) retry = setTimeout(() => { if (!document.hidden) begin(); }, 5000);
}

function online() {
  clearTimeout(retry);
  banner.hidden = true;
}

function pulse(text, kind) {
  const node = document.getElementById('pulse');
  if (node.textContent !== text) node.textContent = text;
  node.className = `pulse ${kind}`;
}

stats.listen(({ status, trouble }) => {
  if (status === 'offline') return offline();
  online();
  if (status === 'unauthorized') return wantSecret('The token is not good any more.');
  if (status === 'forbidden') {
    pulse('Part of the page', 'mild');
    return askForSecret(`The figures of the whole store are not for this token: ${trouble.message}.`, begin);
  }
  return pulse(status === 'ok' ? 'Live' : 'Trouble', status === 'ok' ? 'good' : 'bad');
});

document.addEventListener('visibilitychange', () => {
  if (document.hidden) pulse('Paused', 'off');
  else if (!isRunning()) begin();
});

ready.listen(({ data, status }) => {
  const strip = document.getElementById('degraded');
  const mode = document.getElementById('mode');
  strip.hidden = status !== 'ok' || !data.degraded.length;
  show(strip, data?.degraded?.length ? el('ul', {}, data.degraded.map((line) => el('li', {}, visible(line)))) : null);
  mode.hidden = !data?.mode;
  mode.textContent = data?.mode ? words(data.mode).replace('lookup record', 'lookup + record') : '';
});

// How old the figures are, when they are older than they should be.
setInterval(() => {
  const { status, at_ms } = stats.state;
  if (document.hidden || status !== 'ok' || Date.now() - at_ms < 20000) return;
  pulse(`Figures from ${ago(at_ms)}`, 'mild');
}, 5000);

for (const panel of [overview, traffic, misses, storage, budget, namespaces, events, quarantine, tree, jobs]) panel.start();
begin();
