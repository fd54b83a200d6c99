// Holds the token of this window and who its bearer is. The token is kept in sessionStorage only.

const KEY = 'kubebid.token';

/** @typedef {{account: string, tenant: boolean, provider: boolean, admin: boolean, drills: boolean}} Person */

let token = '';
/** @type {Person | null} */
let person = null;

export const session = {
  get token() { return token; },
  get person() { return person; },
  /** Said above the form after a session ended by itself. */
  farewell: '',
};

/** Takes the token from the address bar, or from this window's storage. */
export function restore() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (given) {
    history.replaceState(null, '', location.pathname);
    keep(decodeURIComponent(given[1]));
  } else {
    token = sessionStorage.getItem(KEY) ?? '';
  }
}

/** @param {string} given */
export function keep(given) {
  token = given.trim();
  session.farewell = '';
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

/** Forgets the token. @param {string} [why] */
export function leave(why = '') {
  token = '';
  person = null;
  sessionStorage.removeItem(KEY);
  session.farewell = why;
}

/** @param {Person | null} found */
export function setPerson(found) {
  person = found;
}
