// One time axis, drawn as SVG: columns, or a line over faint columns.
//
// The box has its height from the style sheet and its width from the page, so nothing moves when figures
// come. A pointer or the arrow keys pick a step; its figures stand in the line above.

import { el, show, svg } from './dom.js';
import { clock } from './format.js';

const LEFT = 44;
const RIGHT = 6;
const TOP = 8;
const BOTTOM = 22;

export class Chart {
  /**
   * @param title what is drawn, for those who do not see it
   * @param axis value -> text beside a grid line
   * @param most fixed top of the axis, or null: the largest value
   */
  constructor({ key, title, axis, most = null }) {
    Object.assign(this, { title, axis, most });
    this.readout = el('p', { class: 'readout', 'aria-live': 'off' });
    this.box = el('div', {
      class: 'chart',
      tabindex: '0',
      role: 'group',
      'aria-roledescription': 'chart, arrow keys read its steps',
      'data-key': `chart ${key}`,
      onpointermove: (event) => this.#point(event),
      onpointerdown: (event) => this.#point(event),
      onpointerleave: () => this.#pick(null),
      onblur: () => this.#pick(null),
      onkeydown: (event) => this.#key(event),
    });
    this.node = el('div', { class: 'chart-frame' }, this.readout, this.box);
    this.picked = null;
    this.data = null;
    this.width = 0;
    new ResizeObserver(([entry]) => {
      const width = Math.round(entry.contentRect.width);
      if (width && width !== this.width) {
        this.width = width;
        this.#draw();
      }
    }).observe(this.box);
  }

  /**
   * @param data from_ms, step_ms; `columns` and/or `line`: values, null where there is none;
   *   `summary`: nodes for the line above; `tell(step)`: the same for one step; `spoken`: one sentence
   */
  set(data) {
    this.data = data;
    this.box.setAttribute('aria-label', `${this.title}. ${data.spoken}`);
    this.#draw();
    return this.node;
  }

  get #steps() {
    return (this.data.line ?? this.data.columns).length;
  }

  #x(step) {
    return LEFT + ((this.width - LEFT - RIGHT) * step) / this.#steps;
  }

  #draw() {
    if (!this.data || !this.width) return;
    const height = this.box.clientHeight;
    const floor = height - BOTTOM;
    const { line, columns } = this.data;
    const top = this.most ?? ceiling(Math.max(0, ...(line ?? columns)));
    const y = (value, most) => floor - ((floor - TOP) * value) / most;
    const parts = [0, 0.5, 1].map((part) => [
      svg('line', { class: 'grid', x1: LEFT, x2: this.width - RIGHT, y1: y(part, 1), y2: y(part, 1) }),
      svg('text', { class: 'tick', x: LEFT - 8, y: y(part, 1) + 4, 'text-anchor': 'end' }, this.axis(top * part)),
    ]);
    if (columns) parts.push(this.#columns(columns, line ? ceiling(Math.max(0, ...columns)) * 2.2 : top, y, Boolean(line)));
    if (line) parts.push(this.#line(line, top, y, floor));
    parts.push(this.#times(height));
    if (this.picked !== null && this.picked < this.#steps) parts.push(this.#cross(floor, y, top));
    show(this.box, svg('svg', { width: this.width, height, 'aria-hidden': 'true' }, parts));
    const told = this.picked === null ? this.data.summary : this.data.tell(this.picked);
    const at = this.picked === null ? null : el('span', { class: 'when' }, this.#when(this.picked));
    show(this.readout, at, told);
  }

  #columns(values, most, y, faint) {
    const slot = this.#x(1) - this.#x(0);
    const gap = slot > 5 ? 2 : slot > 2.5 ? 1 : 0;
    return values.map((value, step) => value > 0 && svg('rect', {
      class: `column${faint ? ' faint' : ''}${step === this.picked ? ' picked' : ''}`,
      x: this.#x(step) + gap / 2,
      width: Math.max(1, slot - gap),
      y: Math.min(y(value, most), y(0, 1) - 1),
      height: Math.max(1, y(0, 1) - y(value, most)),
      rx: slot > 8 ? 2 : 0,
    }));
  }

  #line(values, most, y, floor) {
    const half = (this.#x(1) - this.#x(0)) / 2;
    const runs = [];
    values.forEach((value, step) => {
      if (value === null) return;
      const point = [this.#x(step) + half, y(value, most)];
      // Steps without lookups are bridged by a straight line only where they are few.
      if (runs.length && step - runs.at(-1).last <= 3) runs.at(-1).points.push(point);
      else runs.push({ points: [point] });
      runs.at(-1).last = step;
    });
    return runs.map(({ points }) => {
      if (points.length === 1) return svg('circle', { class: 'dot', cx: points[0][0], cy: points[0][1], r: 2.5 });
      const path = points.map(([px, py], at) => `${at ? 'L' : 'M'}${px.toFixed(1)} ${py.toFixed(1)}`).join('');
      return [
        svg('path', { class: 'area', d: `${path}L${points.at(-1)[0]} ${floor}L${points[0][0]} ${floor}Z` }),
        svg('path', { class: 'line', d: path }),
      ];
    });
  }

  #times(height) {
    const span_ms = this.data.step_ms * this.#steps;
    const marks = this.width < 420 ? 3 : 5;
    return Array.from({ length: marks }, (_, at) => {
      const part = at / (marks - 1);
      const anchor = at === 0 ? 'start' : at === marks - 1 ? 'end' : 'middle';
      const x = LEFT + (this.width - LEFT - RIGHT) * part;
      const text = clock(this.data.from_ms + span_ms * part, span_ms > 90000000 && part === 0);
      return svg('text', { class: 'tick', x, y: height - 5, 'text-anchor': anchor }, at === marks - 1 ? 'now' : text);
    });
  }

  #cross(floor, y, top) {
    const x = (this.#x(this.picked) + this.#x(this.picked + 1)) / 2;
    const value = this.data.line?.[this.picked] ?? null;
    return [
      svg('line', { class: 'cross', x1: x, x2: x, y1: TOP, y2: floor }),
      value !== null && svg('circle', { class: 'dot', cx: x, cy: y(value, top), r: 4 }),
    ];
  }

  #when(step) {
    const from = this.data.from_ms + step * this.data.step_ms;
    return `${clock(from)}\u2013${clock(from + this.data.step_ms)}`;
  }

  #point(event) {
    if (!this.data) return;
    const inside = event.clientX - this.box.getBoundingClientRect().left - LEFT;
    const step = Math.floor((inside / (this.width - LEFT - RIGHT)) * this.#steps);
    this.#pick(Math.min(this.#steps - 1, Math.max(0, step)));
  }

  #pick(step) {
    if (step === this.picked) return;
    this.picked = step;
    this.#draw();
  }

  #key(event) {
    if (!this.data) return;
    const last = this.#steps - 1;
    const at = this.picked ?? last + 1;
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last, Escape: null }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.readout.setAttribute('aria-live', 'polite');
    this.#pick(to === null ? null : Math.min(last, Math.max(0, to)));
  }
}

/** A round number at or above: 1, 2, 4, 5 or 8 times a power of ten, so that its half is short too. */
function ceiling(value) {
  if (value <= 2) return 2;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 6, 8, 10].find((part) => value <= part * power) * power;
}
