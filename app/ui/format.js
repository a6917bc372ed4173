// Figures as people read them.

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];

/** Three digits that matter and a unit: 4.22 MiB, 812 KiB. */
export function bytes(value) {
  let size = Number(value) || 0;
  let unit = 0;
  while (Math.abs(size) >= 1023.5 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? Math.round(size) : digits(size)}\u00a0${UNITS[unit]}`;
}

/** 999, 12,345, 1.23 M. */
export function count(value) {
  const number = Number(value) || 0;
  const size = Math.abs(number);
  for (const [from, unit] of [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']]) {
    if (size >= from * 0.9995) return `${digits(number / from)}\u00a0${unit}`;
  }
  return Math.round(number).toLocaleString('en');
}

function digits(value) {
  const size = Math.abs(value);
  return value.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

export function percent(part, whole) {
  return whole > 0 ? `${rounded((100 * part) / whole)}\u00a0%` : '\u2013';
}

function rounded(value) {
  if (value === 0 || value === 100) return String(value);
  // What is not all is never shown as all, what is something never as nothing.
  return Math.min(99.9, Math.max(0.1, value)).toFixed(1);
}

export function times(value) {
  return `${digits(value)}\u00d7`;
}

export function ago(at_ms, now_ms = Date.now()) {
  const seconds = Math.max(0, Math.round((now_ms - at_ms) / 1000));
  if (seconds < 5) return 'just now';
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

export function moment(at_ms) {
  return new Date(at_ms).toLocaleString();
}

export function clock(at_ms, with_day = false) {
  const at = new Date(at_ms);
  const time = at.toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', hour12: false });
  return with_day ? `${at.toLocaleDateString([], { day: 'numeric', month: 'short' })} ${time}` : time;
}

/** The first characters of an id are enough to tell it apart: UUIDv7 ends in what is random. */
export function shortId(id) {
  return id.length > 13 ? `${id.slice(0, 8)}\u2026${id.slice(-4)}` : id;
}

export function words(code) {
  return String(code).replaceAll('_', ' ');
}
