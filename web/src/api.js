// Calls the REST API. Commands carry a key, and are repeated with it until their answer is known.

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
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem({ code: 'UNREACHABLE', detail: 'the engine cannot be reached' });
  }
  if (response.ok) return response.json();
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
const WAITS_MS = [200, 500, 1000, 2000, 4000];

/** Returns true if the same request may get an answer later. @param {unknown} error */
export function isPassing(error) {
  return error instanceof Problem && PASSING.has(error.code);
}

/**
 * Sends a command. If its answer is lost it is sent again with the same key, so that it is done once.
 * @param {string} method
 * @param {string} path
 * @param {any} body
 */
export async function command(method, path, body) {
  const key = newKey();
  for (const wait of WAITS_MS) {
    try {
      return await request(method, path, body, key);
    } catch (error) {
      if (!isPassing(error)) throw error;
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
  return request(method, path, body, key);
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
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
