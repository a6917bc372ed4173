// A question that is asked again and again, and who listens to its answers.
//
// One question is never asked twice at a time; it rests at least ten times as long as its answer took,
// so that a page left open is no load, but never for minutes, so that one slow answer does not leave old
// figures standing; it rests altogether while the tab is hidden.

const RESTS = 10;
const LONGEST_REST_MS = 20000;
const sources = [];

export class Source {
  /** @param ask async, gives the data; @param every_ms rest between an answer and the next question. */
  constructor(name, ask, every_ms) {
    Object.assign(this, { name, ask, every_ms });
    this.state = { status: 'loading', data: null, trouble: null, at_ms: 0 };
    this.listeners = new Set();
    this.timer = null;
    this.asking = null;
    sources.push(this);
  }

  listen(listener) {
    this.listeners.add(listener);
  }

  /** Ask now; while a question is under way, its answer. */
  refresh() {
    this.asking ??= this.#round().finally(() => { this.asking = null; });
    return this.asking;
  }

  /** Forget what was answered, for a question that has changed. */
  async restart() {
    await this.asking;
    return this.refresh();
  }

  async #round() {
    clearTimeout(this.timer);
    const began = performance.now();
    try {
      const data = await this.ask();
      this.state = { status: 'ok', data, trouble: null, at_ms: Date.now() };
    } catch (trouble) {
      if (!trouble.kind) console.error(trouble);
      this.state = { ...this.state, status: trouble.kind ?? 'problem', trouble };
    }
    for (const listener of this.listeners) listener(this.state);
    this.#later(performance.now() - began);
  }

  #later(took_ms) {
    if (!running || document.hidden) return;
    // A route that is not there may be there after an upgrade: look now and then.
    const rest = this.state.status === 'missing' ? 60000 : Math.max(this.every_ms, Math.min(RESTS * took_ms, LONGEST_REST_MS));
    this.timer = setTimeout(() => this.refresh(), rest);
  }

  stop() {
    clearTimeout(this.timer);
  }
}

let running = false;

export function startAll() {
  running = true;
  return Promise.all(sources.map((source) => source.refresh()));
}

export function stopAll() {
  running = false;
  sources.forEach((source) => source.stop());
}

export function isRunning() {
  return running;
}

document.addEventListener('visibilitychange', () => {
  if (document.hidden) sources.forEach((source) => source.stop());
  else if (running) startAll();
});
