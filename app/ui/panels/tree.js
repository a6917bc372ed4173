// The radix tree of one namespace, a node at a time: a tree for the keyboard as for the pointer.

import { get } from '../api.js';
import { el, show, visible } from '../dom.js';
import { bytes, count, shortId, words } from '../format.js';
import { note } from '../panel.js';
import { namespaces } from '../sources.js';

const PAGE = 50;
const CAP = 1000; // where the server stops counting

const body = () => document.querySelector('#tree .body');
const chosen = { key: null, tenant: null, namespace: null };
const names = new Map();

export function start() {
  const picker = el('select', { id: 'tree-namespace', 'data-key': 'tree-namespace', onchange: () => open(names.get(picker.value)) });
  const anew = el('button', { type: 'button', class: 'button small', onclick: () => open(chosen.key && names.get(chosen.key)) }, 'Read anew');
  const tree = el('div', { id: 'tree-view' });
  show(body(), el('div', { class: 'picker' }, el('label', { for: 'tree-namespace' }, 'Namespace'), picker, anew), tree);
  show(tree, note('Loading', ''));
  namespaces.listen(({ data, status }) => {
    if (!data) {
      show(tree, note(status === 'forbidden' ? 'You may not see this' : 'No answer yet', status === 'forbidden' ? 'Listing namespaces needs the scope lookup.' : 'The server does not answer.', 'warn'));
      return;
    }
    offer(picker, data.namespaces);
    if (!data.namespaces.length) show(tree, note('No tree yet', 'It grows with the first recording.'));
    else if (!names.has(chosen.key)) open(largest(data.namespaces));
  });
}

/** Show the tree of a namespace: for links from other panels. */
export function walk(namespace) {
  const picker = document.getElementById('tree-namespace');
  picker.value = key(namespace);
  document.getElementById('tree').scrollIntoView();
  open(namespace).then(() => document.querySelector('#tree-view [role=treeitem]')?.focus({ preventScroll: true }));
}

function key(namespace) {
  return JSON.stringify([namespace.tenant ?? null, namespace.namespace]);
}

function largest(all) {
  return all.reduce((most, one) => (one.entries > most.entries ? one : most));
}

function offer(picker, all) {
  const keys = all.map(key);
  if (keys.length === names.size && keys.every((one) => names.has(one))) return;
  names.clear();
  all.forEach((one) => names.set(key(one), one));
  show(picker, all.map((one) => {
    const label = visible(one.namespace);
    return el('option', { value: key(one) }, `${one.tenant ? `${visible(one.tenant)}: ` : ''}${label.length > 90 ? `${label.slice(0, 89)}\u2026` : label}`);
  }));
  if (names.has(chosen.key)) picker.value = chosen.key;
}

async function open(namespace) {
  if (!namespace) return;
  Object.assign(chosen, { key: key(namespace), tenant: namespace.tenant ?? null, namespace: namespace.namespace });
  document.getElementById('tree-namespace').value = chosen.key;
  const view = document.getElementById('tree-view');
  const asked = chosen.key;
  view.setAttribute('aria-busy', 'true');
  try {
    const found = await step(null, null);
    if (asked !== chosen.key) return;
    if (!found.node) {
      show(view, note('No tree yet', 'Nothing has been recorded into this namespace.'));
      return;
    }
    const root = item(found.node, 1);
    show(view, el('ul', { role: 'tree', class: 'tree', 'aria-label': `Prefixes of ${visible(chosen.namespace)}`, onkeydown: keys }, root));
    root.querySelector('.node').tabIndex = 0;
    grow(root, found);
  } catch (trouble) {
    show(view, refusal(trouble));
  } finally {
    view.setAttribute('aria-busy', 'false');
  }
}

function refusal(trouble) {
  if (trouble.kind === 'missing') return note('Not offered by this server', 'It may be older than this page.');
  if (trouble.kind === 'forbidden') return note('You may not see this', 'It needs the scope admin:read.', 'lock');
  return note('The tree cannot be read', trouble.message, 'warn');
}

function step(node_id, after) {
  return get('/admin/v1/tree/nodes', { namespace: chosen.namespace, tenant: chosen.tenant || null, node_id, after, limit: PAGE });
}

// ---- one node ------------------------------------------------------------------------------

function item(node, level) {
  const inner = node.children > 0;
  const li = el('li', { role: 'none' });
  const row = el('div', {
    class: 'node', role: 'treeitem', tabindex: '-1', 'aria-level': level, 'aria-expanded': inner ? 'false' : null,
    onclick: () => { focusOn(row); if (inner) toggle(li); },
  },
  el('span', { class: 'twist', 'aria-hidden': 'true' }, inner ? '\u203a' : ''),
  el('span', { class: 'depth' }, level === 1 ? 'root' : `${count(node.depth)} tokens`),
  node.edge_tokens ? el('span', { class: 'edge' }, `+${count(node.edge_tokens)}`) : null,
  inner ? el('span', { class: 'edge' }, branches(node.children)) : null,
  el('span', { class: 'ends' }, node.states.slice(0, 4).map(chip), beyond(node)));
  li.node = node;
  li.append(row);
  return li;
}

function branches(children) {
  if (children === 1) return 'goes on';
  return `${count(children)}${children >= CAP ? '+' : ''} branches`;
}

function chip(state) {
  return el('span', { class: `chip state ${state.status}`, title: `${state.state_id} ${state.status}` },
    `${words(state.kind)} ${bytes(state.logical_bytes)}`, state.status === 'live' ? null : el('span', {}, ` ${state.status}`), el('code', {}, shortId(state.state_id).slice(-4)));
}

function beyond(node) {
  const more = node.state_count === undefined ? 0 : node.state_count - Math.min(4, node.states.length);
  return more > 0 ? el('span', { class: 'edge' }, `and ${count(more)}${node.state_count >= CAP ? '+' : ''} more`) : null;
}

async function toggle(li) {
  const row = li.querySelector(':scope > .node');
  const open_now = row.getAttribute('aria-expanded') === 'true';
  const group = li.querySelector(':scope > ul');
  if (group) {
    group.hidden = open_now;
    row.setAttribute('aria-expanded', String(!open_now));
    return;
  }
  if (row.getAttribute('aria-busy') === 'true') return;
  row.setAttribute('aria-busy', 'true');
  const asked = chosen.key;
  try {
    const found = await step(li.node.node_id, null);
    if (asked === chosen.key) grow(li, found);
  } catch (trouble) {
    const gone = trouble.code === 'node_not_found';
    li.append(el('p', { class: 'hint' }, gone ? 'This node has gone meanwhile. Read anew.' : trouble.message));
  } finally {
    row.removeAttribute('aria-busy');
  }
}

function grow(li, found) {
  const row = li.querySelector(':scope > .node');
  if (!found.children.length) return;
  row.setAttribute('aria-expanded', 'true');
  const level = Number(row.getAttribute('aria-level')) + 1;
  let group = li.querySelector(':scope > ul');
  if (!group) li.append(group = el('ul', { role: 'group' }));
  group.append(...found.children.map((child) => item(child, level)));
  if (!found.more) return;
  const last = found.children.at(-1).node_id;
  const next = el('li', { role: 'none' }, el('div', {
    class: 'node more', role: 'treeitem', tabindex: '-1', 'aria-level': level,
    onclick: async () => {
      try {
        const page = await step(li.node.node_id, last);
        next.remove();
        grow(li, page);
      } catch (trouble) {
        next.append(el('p', { class: 'hint' }, trouble.message));
      }
    },
  }, 'Show more branches'));
  group.append(next);
}

// ---- keyboard: https://www.w3.org/WAI/ARIA/apg/patterns/treeview/ ----------------------------

function focusOn(row) {
  for (const other of row.closest('[role=tree]').querySelectorAll('.node[tabindex="0"]')) other.tabIndex = -1;
  row.tabIndex = 0;
  row.focus();
}

function keys(event) {
  const row = event.target.closest('.node');
  if (!row) return;
  const seen = [...row.closest('[role=tree]').querySelectorAll('.node')].filter((one) => !one.closest('[hidden]'));
  const at = seen.indexOf(row);
  const expanded = row.getAttribute('aria-expanded');
  const above = row.parentElement.parentElement.closest('li')?.querySelector(':scope > .node');
  const to = {
    ArrowDown: () => seen[at + 1],
    ArrowUp: () => seen[at - 1],
    Home: () => seen[0],
    End: () => seen.at(-1),
    ArrowRight: () => (expanded === 'true' ? seen[at + 1] : (expanded === 'false' && row.click(), null)),
    ArrowLeft: () => (expanded === 'true' ? (row.click(), null) : above),
    Enter: () => (row.click(), null),
    ' ': () => (row.click(), null),
  }[event.key];
  if (!to) return;
  event.preventDefault();
  const target = to();
  if (target) focusOn(target);
}

