// What counters grew by in each step of time: as the server keeps it, or as this page has seen it.

const STEP_MS = 5000;
const KEPT = 240;

/** Growth between the answers of /admin/v1/stats since the page was opened, in the form of the route. */
export class LocalHistory {
  constructor() {
    this.before = null;
    this.steps = [];
  }

  note(counters, now_ms = Date.now()) {
    const now = new Map(counters.map(({ name, label, value }) => [`${name}\n${label}`, value]));
    if (this.before) {
      const growth = new Map();
      for (const [key, value] of now) growth.set(key, Math.max(0, value - (this.before.get(key) ?? 0)));
      const slot = Math.floor(now_ms / STEP_MS);
      const last = this.steps.at(-1);
      if (last?.slot === slot) for (const [key, value] of growth) last.growth.set(key, (last.growth.get(key) ?? 0) + value);
      else this.steps.push({ slot, growth });
      if (this.steps.length > KEPT) this.steps.shift();
    }
    this.before = now;
  }

  read(now_ms = Date.now()) {
    const slots = 60;
    const end = Math.floor(now_ms / STEP_MS);
    const by_slot = new Map(this.steps.map((step) => [step.slot, step.growth]));
    const keys = new Set(this.steps.flatMap((step) => [...step.growth.keys()]));
    const series = [...keys].map((key) => {
      const [name, label] = key.split('\n');
      const values = Array.from({ length: slots }, (_, at) => by_slot.get(end - slots + 1 + at)?.get(key) ?? 0);
      return { name, label, values };
    });
    return { from_ms: (end - slots + 1) * STEP_MS, step_ms: STEP_MS, steps: slots, series };
  }
}

/** Sum of all series of a name (and label), step by step. */
export function growth(found, name, label = null) {
  const picked = found.series.filter((one) => one.name === name && (label === null || one.label === label));
  const length = Math.max(found.steps ?? 1, ...found.series.map((one) => one.values.length));
  const sum = new Array(length).fill(0);
  for (const one of picked) one.values.forEach((value, at) => { sum[at] += value; });
  return sum;
}

export function total(values) {
  return values.reduce((sum, value) => sum + value, 0);
}
