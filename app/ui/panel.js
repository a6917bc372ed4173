// The frame of a panel: what it shows while it waits, when it may not, and when something is wrong.

import { el, show } from './dom.js';

/**
 * Draw a panel whenever one of its sources answers.
 *
 * The first source decides: without its data there is nothing to show. What has not changed is not drawn
 * again, so that focus and selection stay.
 */
export function panel(id, sources, draw) {
  const section = document.getElementById(id);
  const body = section.querySelector(':scope > .body') ?? section;
  let drawn = null;
  section.setAttribute('aria-busy', 'true');
  show(body, skeleton(id));
  const update = () => {
    const [first] = sources;
    if (first.state.status === 'loading') return;
    section.setAttribute('aria-busy', 'false');
    const parts = sources.map((source) => source.state.data);
    // Panels begin anew with a new user.
    const told = JSON.stringify([sources.map((source) => source.state.status), parts, epoch]);
    if (told === drawn) return;
    drawn = told;
    const { status, data, trouble } = first.state;
    section.classList.toggle('stale', status !== 'ok' && data !== null);
    if (status === 'forbidden') show(body, note('You may not see this', `It needs the scope ${needed(trouble)}.`, 'lock'));
    else if (status === 'missing') show(body, note('Not offered by this server', 'It may be older than this page.'));
    else if (data === null) show(body, note('No answer yet', trouble?.message ?? 'The server does not answer.', 'warn'));
    else show(body, draw(...parts));
  };
  for (const source of sources) source.listen(update);
  return { redraw: () => { drawn = null; update(); } };
}

let epoch = 0;
export function newUser() {
  epoch += 1;
}

function needed(trouble) {
  return /\b(admin:read|admin:write|forensics|lookup|record)\b/.exec(trouble?.message ?? '')?.[0] ?? 'admin:read';
}

export function note(title, text, kind = 'calm') {
  return el('div', { class: `note ${kind}` }, el('strong', {}, title), text && el('span', {}, text));
}

function skeleton(id) {
  if (id === 'overview') return Array.from({ length: 5 }, () => el('div', { class: 'tile' }, bone('short'), bone('big'), bone()));
  return el('div', { class: 'skeleton' }, bone(), bone(), bone('short'), bone());
}

function bone(kind = '') {
  return el('span', { class: `bone ${kind}`, 'aria-hidden': 'true' });
}
