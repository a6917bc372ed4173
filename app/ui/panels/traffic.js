// Hit rate and tokens saved over time, and which time is shown.

import { Chart } from '../chart.js';
import { el, show } from '../dom.js';
import { count, percent } from '../format.js';
import { growth, total } from '../history.js';
import { note, panel } from '../panel.js';
import { history, range, RANGES } from '../sources.js';

export function start() {
  const rate = new Chart({ key: 'rate', title: 'Hit rate over time', axis: (value) => `${Math.round(value * 100)}%`, most: 1 });
  const saved = new Chart({ key: 'saved', title: 'Tokens saved over time', axis: (value) => count(value).replace(/\.0+(?=\D|$)/, '') });
  const drawn = [
    panel('hit-rate', [history], (past) => drawRate(rate, past)),
    panel('saved', [history], (past) => drawSaved(saved, past)),
  ];
  ranges(drawn);
}

function drawRate(chart, past) {
  const hits = growth(past, 'lookups', 'hit');
  const all = growth(past, 'lookups', 'miss').map((value, step) => value + hits[step]);
  const [hit, asked] = [total(hits), total(all)];
  if (!asked) return nothing(past, 'No lookups in this time', 'The rate appears with the first one.');
  const figures = (part, whole) => [el('strong', {}, percent(part, whole)), el('span', {}, `${count(whole)} ${whole === 1 ? 'lookup' : 'lookups'}`)];
  return chart.set({
    from_ms: past.from_ms,
    step_ms: past.step_ms,
    columns: all,
    line: all.map((value, step) => (value ? hits[step] / value : null)),
    summary: [figures(hit, asked), span(past)],
    tell: (step) => figures(hits[step], all[step]),
    spoken: `${percent(hit, asked)} of ${count(asked)} lookups hit`,
  });
}

function drawSaved(chart, past) {
  const tokens = growth(past, 'hit_tokens');
  const sum = total(tokens);
  if (!sum) return nothing(past, 'No tokens saved in this time', 'A hit saves the prefill of its prefix.');
  const figure = (value) => [el('strong', {}, count(value)), el('span', {}, 'tokens')];
  return chart.set({
    from_ms: past.from_ms,
    step_ms: past.step_ms,
    columns: tokens,
    summary: [figure(sum), span(past)],
    tell: (step) => figure(tokens[step]),
    spoken: `${count(sum)} tokens`,
  });
}

function span(past) {
  return past.local ? el('span', { class: 'aside' }, 'since this page was opened') : el('span', { class: 'aside' }, `last ${range.chosen.label}`);
}

function nothing(past, title, text) {
  return note(title, past.local ? `${text} This server keeps no history; figures gather while the page is open.` : text);
}

function ranges(drawn) {
  const row = document.getElementById('range');
  const choose = (chosen) => {
    range.chosen = chosen;
    draw();
    row.querySelector('[aria-checked=true]').focus();
    history.restart().then(() => drawn.forEach((one) => one.redraw()));
  };
  const draw = () => show(row, RANGES.map((one, at) => el('button', {
    type: 'button',
    role: 'radio',
    'aria-checked': String(one === range.chosen),
    tabindex: one === range.chosen ? '0' : '-1',
    onclick: () => choose(one),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step) return;
      event.preventDefault();
      choose(RANGES[(at + step + RANGES.length) % RANGES.length]);
    },
  }, one.label)));
  draw();
  history.listen((state) => row.classList.toggle('off', state.data?.local ?? false));
}
