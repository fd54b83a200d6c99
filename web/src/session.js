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
  /** The token of a link that was opened, until the person says whether to log in with it. */
  offered: '',
};

/**
 * Takes the token from this window's storage when the page loads, and one from the address bar. One that would replace another, or that comes
 * later, may be of a foreign link: it is only offered.
 * @param {boolean} loads
 */
export function restore(loads) {
  const inAddress = tokenOf(location.hash);
  if (inAddress !== null) {
    // The whole address, because a path that begins with two slashes alone would name another host.
    history.replaceState(null, '', location.href.replace(/#.*$/s, ''));
  }
  if (loads) token = stored((storage) => storage.getItem(KEY)) ?? '';
  const given = inAddress?.trim() ?? '';
  if (!given || given === token) return;
  if (loads && !token) keep(given);
  else session.offered = given;
}

/** @param {string} given */
export function keep(given) {
  token = given.trim();
  session.farewell = '';
  session.offered = '';
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
