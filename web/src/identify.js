// Finds out who the bearer of the token is.

import { Problem, request } from './api.js';
import { session, setPerson } from './session.js';

/** Asks the engine who the bearer of the token is, by what the token may do. */
export async function identify() {
  setPerson(null);
  if (!session.token) return;
  const may = async (/** @type {string} */ path) => {
    try {
      return await request('GET', path);
    } catch (problem) {
      if (problem instanceof Problem && problem.code === 'FORBIDDEN') return null;
      throw problem;
    }
  };
  // A statement of the future is empty, and says whose it is.
  const future = String((Date.now() + 3_600_000) * 1000);
  const [statement, bids, offers, accounts] = await Promise.all([
    may(`/v1/statement?from_us=${future}`),
    may('/v1/bids?page_size=1'),
    may('/v1/offers?page_size=1'),
    may('/v1/accounts?page_size=1'),
  ]);
  setPerson({
    account: statement?.account ?? '',
    tenant: bids !== null,
    provider: offers !== null,
    admin: accounts !== null,
  });
}
