// The sign-in field, shown when the server wants a token or the one given is not good for the figures.

import { el, show } from './dom.js';
import { secret, signIn } from './session.js';

/** Ask for a secret; `why` says what is wanted. Calls `done` once one was typed. */
export function askForSecret(why, done) {
  const section = document.getElementById('sign-in');
  if (!section.hidden && section.dataset.why === why) return;
  section.dataset.why = why;
  const field = el('input', {
    id: 'secret', type: 'password', autocomplete: 'off', spellcheck: 'false', autocapitalize: 'off',
    required: true, placeholder: 'sth_\u2026', 'aria-describedby': 'sign-in-why',
  });
  const form = el('form', {
    onsubmit: (event) => {
      event.preventDefault();
      if (!field.value.trim()) return;
      signIn(field.value.trim());
      done();
    },
  },
  el('label', { for: 'secret' }, 'Access token'),
  el('div', { class: 'field-row' }, field, el('button', { class: 'button primary', type: 'submit' }, 'Sign in')));
  show(section,
    el('h2', { id: 'sign-in-title' }, secret() ? 'Another token is needed' : 'Sign in'),
    el('p', { id: 'sign-in-why' }, why),
    form,
    el('p', { class: 'hint' }, 'It is kept in this tab only and forgotten when the tab is closed.'));
  section.hidden = false;
  field.focus();
}

export function hideSignIn() {
  const section = document.getElementById('sign-in');
  section.hidden = true;
  delete section.dataset.why;
  show(section);
}
