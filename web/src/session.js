// Holds the token of this window and who its bearer is. The token is kept in sessionStorage only.

import { tokenOf } from './address.js';

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
  const given = tokenOf(location.hash);
  if (given !== null) {
    // The whole address, because a path that begins with two slashes alone would name another host.
    history.replaceState(null, '', location.href.replace(/#.*$/s, ''));
  }
  if (given) keep(given);
  else token = stored((storage) => storage.getItem(KEY)) ?? '';
}

/** @param {string} given */
export function keep(given) {
  token = given.trim();
  session.farewell = '';
  stored((storage) => (token ? storage.setItem(KEY, token) : storage.removeItem(KEY)));
}

/** Forgets the token. @param {string} [why] */
export function leave(why = '') {
  token = '';
  person = null;
  stored((storage) => storage.removeItem(KEY));
  session.farewell = why;
}

/** @param {Person | null} found */
export function setPerson(found) {
  person = found;
}

/**
 * Reads or writes the storage of this window. A browser may forbid it: then the token is in memory alone.
 * @template T
 * @param {(storage: Storage) => T} work
 */
function stored(work) {
  try {
    return work(sessionStorage);
  } catch {
    return null;
  }
}
