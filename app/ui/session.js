// Who is asking. The secret lives in this tab's sessionStorage and nowhere else.

const KEY = 'statehold.secret';

let known = null; // the answer of /admin/v1/whoami; null: the server has no such route

export function secret() {
  return sessionStorage.getItem(KEY);
}

export function signIn(value) {
  sessionStorage.setItem(KEY, value);
}

export function signOut() {
  sessionStorage.removeItem(KEY);
  known = null;
}

export function learn(whoami) {
  known = whoami;
}

/** Whether a button that needs the scope is offered; the server decides in the end. */
export function may(scope) {
  return known === null || known.access === 'open' || known.scopes.includes(scope);
}

export function who() {
  return known;
}
