// Finds out who the bearer of the token is.

import { refusal, request } from './api.js';
import { session, setPerson } from './session.js';

/** Asks the engine who the bearer of the token is, and what the token may do. */
export async function identify() {
  setPerson(null);
  if (!session.token) return;
  // A header cannot carry it, so that no engine knows it.
  if (!/^[\x21-\x7e]+$/.test(session.token)) throw refusal({ code: 'UNAUTHENTICATED', status: 401 });
  const { name, roles, drills_allowed: drills } = await request('GET', '/v1/account');
  const admin = roles.includes('ADMIN');
  setPerson({
    account: name,
    tenant: admin || roles.includes('TENANT'),
    provider: admin || roles.includes('PROVIDER'),
    admin,
    drills: Boolean(drills),
  });
}
