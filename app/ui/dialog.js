// Asking before something is done, and saying how it went.

import { el, show } from './dom.js';

/** Whether the operator means it. Escape and a click beside it mean no; no is what has the focus. */
export function confirmed({ title, text, details = [], action, dangerous = false }) {
  const dialog = document.getElementById('dialog');
  const no = el('button', { type: 'button', class: 'button', value: 'no' }, 'Cancel');
  const yes = el('button', { type: 'button', class: dangerous ? 'button danger' : 'button primary', value: 'yes' }, action);
  show(
    dialog,
    el('h2', { id: 'dialog-title' }, title),
    el('p', {}, text),
    details.length ? el('dl', { class: 'facts' }, details.map(([term, value]) => [el('dt', {}, term), el('dd', {}, value)])) : null,
    el('div', { class: 'dialog-row' }, no, yes),
  );
  return new Promise((resolve) => {
    dialog.returnValue = '';
    dialog.onclose = () => resolve(dialog.returnValue === 'yes');
    dialog.onclick = (event) => { if (event.target === dialog) dialog.close('no'); };
    no.onclick = () => dialog.close('no');
    yes.onclick = () => dialog.close('yes');
    dialog.showModal();
    no.focus();
  });
}

/** A sentence that goes by itself; errors stay longer. */
export function say(text, kind = 'good') {
  const toast = el('div', { class: `toast ${kind}` }, el('span', {}, text),
    el('button', { type: 'button', class: 'quiet', 'aria-label': 'Dismiss', onclick: () => toast.remove() }, '\u00d7'));
  document.getElementById('toasts').append(toast);
  setTimeout(() => toast.remove(), kind === 'good' ? 6000 : 15000);
}

/** Do something that a button stands for: the button waits, the outcome is said. */
export async function act(button, run, done) {
  button.disabled = true;
  button.setAttribute('aria-busy', 'true');
  try {
    const result = await run();
    say(typeof done === 'function' ? done(result) : done);
    return true;
  } catch (trouble) {
    say(trouble.message, 'bad');
    return false;
  } finally {
    button.disabled = false;
    button.removeAttribute('aria-busy');
  }
}
