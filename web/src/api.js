// Calls the REST API.

import { session } from './session.js';

/** A refusal, as the API describes it (RFC 9457), or a request that got no answer. */
export class Problem extends Error {
  /** @param {{code: string, detail?: string, title?: string, status?: number, field?: string}} body */
  constructor(body) {
    super(body.detail || body.title || body.code);
    this.code = body.code;
    this.status = body.status ?? 0;
    this.field = body.field;
  }
}

/** What a caller does when the token is not accepted any more. @type {{ended: (problem: Problem) => void}} */
export const onEnd = { ended: () => {} };

/** The difference between the market's time and this machine's, in microseconds. */
export const clock = {
  offset: 0,
  /** Returns the market's time in microseconds. */
  now() { return Date.now() * 1000 + clock.offset; },
  /** @param {string | number} us */
  set(us) { clock.offset = Number(us) - Date.now() * 1000; },
};

/** @returns {Record<string, string>} */
export function credentials() {
  return session.token ? { authorization: `Bearer ${session.token}` } : {};
}

/**
 * Sends one request and returns its answer.
 * @param {string} method
 * @param {string} path
 * @param {any} [body]
 * @param {string} [key]
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>}
 */
export async function request(method, path, body, key, signal) {
  /** @type {Record<string, string>} */
  const headers = { ...credentials() };
  if (body !== undefined) headers['content-type'] = 'application/json';
  if (key) headers['idempotency-key'] = key;
  let response;
  try {
    response = await fetch(path, {
      method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: 'no-store',
    });
    if (response.ok) return await response.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ code: 'UNREACHABLE', detail: 'the engine cannot be reached' });
  }
  throw await problemOf(response);
}

/** Reads the refusal of a response. @param {Response} response */
export async function problemOf(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    // A proxy on the way may answer in its own words.
  }
  return refusal(body?.code ? body : { code: 'UNAVAILABLE', status: response.status, detail: response.statusText });
}

/** Returns a refusal, and ends the session if the token is not accepted any more. @param {any} body */
export function refusal(body) {
  const problem = new Problem(body);
  if (problem.code === 'UNAUTHENTICATED') onEnd.ended(problem);
  return problem;
}

const PASSING = new Set(['UNREACHABLE', 'UNAVAILABLE', 'NOT_LEADING', 'BUSY', 'NOT_YET']);

/** Returns true if the same request may get an answer later. @param {unknown} error */
export function isPassing(error) {
  return error instanceof Problem && PASSING.has(error.code);
}

/**
 * Reads all pages of a list.
 * @param {string} path with its query
 * @param {string} entries the field that has the entries
 * @param {number} [most]
 */
export async function list(path, entries, most = 10_000) {
  const found = [];
  let first = null;
  let page = '';
  do {
    const join = path.includes('?') ? '&' : '?';
    const answer = await request('GET', `${path}${join}page_size=1000${page ? `&page_token=${encodeURIComponent(page)}` : ''}`);
    first ??= answer;
    found.push(...answer[entries]);
    page = answer.next_page_token;
  } while (page && found.length < most);
  return { entries: found, seq: first.seq, cursor: first.cursor, cut: Boolean(page) };
}

/** Returns the path of a market. @param {string} market @param {string} rest */
export function marketPath(market, rest) {
  return `/v1/markets/${market.split('/').map(encodeURIComponent).join('/')}/${rest}`;
}
