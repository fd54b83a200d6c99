// Sends what a person asks for with a button or a form: once, however often the button is pressed and however often its answer is lost.

import { Problem, isPassing, request } from './api.js';

/**
 * What is sent. A call of administrators has no client key: `isKeyed` is false, `done` is the refusal which says that an earlier try
 * did it, and `check` runs before another try and refuses it by throwing.
 * @typedef {{method: 'POST' | 'PUT' | 'PATCH' | 'DELETE', path: string, body?: any, isKeyed?: boolean, done?: string, check?: () => Promise<void>}} Call
 */

/** The waits between tries, as long as there is no answer. */
const WAITS_MS = [200, 500, 1000, 2000, 4000];

/** A command of a button or a form. @typedef {ReturnType<typeof command>} Command */

/**
 * Returns the command of a button or a form. It has one client key until it is refused or renewed, so that what the person asks for
 * once is done once. After an answer it keeps the answer.
 * @param {() => Call} read reads what the person asks for; it runs once for each client key, and throws if a field is wrong
 */
export function command(read) {
  /** @type {{call: Call, key: string, isLost: boolean, answer: Promise<any> | null} | null} */
  let asked = null;
  return {
    /** Forgets what was asked for. The person changed it, so what is sent next is another command. */
    renew() {
      asked = null;
    },
    /** Sends the command and returns its answer. Sent again, it returns the first answer. */
    async send() {
      asked ??= { call: read(), key: newKey(), isLost: false, answer: null };
      const mine = asked;
      mine.answer ??= answerTo(mine);
      try {
        return await mine.answer;
      } catch (problem) {
        mine.answer = null;
        // Nothing was done, and what is refused at present may be accepted later.
        if (isRefusal(problem) && asked === mine) asked = null;
        throw problem;
      }
    },
  };
}

/** @param {{call: Call, key: string, isLost: boolean}} asked */
async function answerTo(asked) {
  const { method, path, body, isKeyed = true, done, check } = asked.call;
  for (let tries = 0; ; tries += 1) {
    try {
      if (asked.isLost) await check?.();
      return await request(method, path, body, isKeyed ? asked.key : undefined);
    } catch (problem) {
      if (asked.isLost && done && problem instanceof Problem && problem.code === done) return {};
      if (isRefusal(problem)) throw problem;
      asked.isLost = true;
      if (!isPassing(problem) || tries === WAITS_MS.length) throw problem;
      await new Promise((resolve) => setTimeout(resolve, WAITS_MS[tries]));
    }
  }
}

/** Returns true if the engine refused the command. Otherwise it is not known whether it was done. @param {unknown} problem */
function isRefusal(problem) {
  return problem instanceof Problem && !isPassing(problem) && problem.status >= 400 && problem.status < 500;
}

function newKey() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, '0')).join('');
}
