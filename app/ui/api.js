// Talking to this server. Every failure is a `Trouble` that says what kind it is.

import { secret } from './session.js';

const PATIENCE_MS = 15000;

/** `kind`: offline, unauthorized, forbidden, missing (no such route), problem. */
export class Trouble extends Error {
  constructor(kind, detail, code = null, status = 0) {
    super(detail);
    this.kind = kind;
    this.code = code;
    this.status = status;
  }
}

export function get(path, params = {}) {
  const query = new URLSearchParams(Object.entries(params).filter(([, value]) => value !== null && value !== undefined));
  return send('GET', query.size ? `${path}?${query}` : path);
}

export async function send(method, path, body = undefined) {
  const headers = { Accept: 'application/json' };
  if (secret()) headers.Authorization = `Bearer ${secret()}`;
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  let answer;
  let text;
  try {
    answer = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: 'no-store',
      credentials: 'omit',
      redirect: 'error',
      // What is written may take as long as the server takes: release and verify read every byte.
      signal: method === 'GET' ? AbortSignal.timeout(PATIENCE_MS) : undefined,
    });
    text = await answer.text();
  } catch {
    throw new Trouble('offline', 'The server does not answer.');
  }
  const found = parsed(text);
  if (answer.ok) return found;
  throw trouble(answer.status, found);
}

function parsed(text) {
  try {
    return text ? JSON.parse(text) : null;
  } catch {
    return null;
  }
}

function trouble(status, problem) {
  const code = problem?.code ?? null;
  const detail = problem?.detail ?? `The server answered ${status}.`;
  if (status === 401) return new Trouble('unauthorized', detail, code, status);
  if (status === 403 && code !== 'disabled') return new Trouble('forbidden', detail, code, status);
  if ((status === 404 && code === 'not_found') || status === 405) return new Trouble('missing', detail, code, status);
  return new Trouble('problem', detail, code, status);
}
