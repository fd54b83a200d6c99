// The form that takes a token, and the question whether to take that of a link.

import { Problem } from '../api.js';
import { busy, field, h } from '../dom.js';
import { session } from '../session.js';
import { refusalInWords } from '../words.js';

/** @param {(token: string) => Promise<void>} logIn @returns {import('../main.js').View} */
export function loginView(logIn) {
  const token = h('input', { type: 'password', autocomplete: 'off', spellcheck: 'false', required: true });
  const error = h('p', { class: 'error', role: 'alert' }, session.farewell);
  const button = h('button', { type: 'submit', class: 'primary' }, 'Log in');
  const form = h('form', {
    class: 'panel narrow',
    oninput: () => { error.textContent = ''; },
    onsubmit: (/** @type {SubmitEvent} */ event) => {
      event.preventDefault();
      error.textContent = '';
      busy(button, async () => {
        try {
          await logIn(token.value);
        } catch (problem) {
          const unknown = problem instanceof Problem && problem.code === 'UNAUTHENTICATED';
          error.textContent = unknown ? 'The engine does not know this token.' : refusalInWords(problem);
        }
      });
    },
  },
  h('h1', {}, 'Log in'),
  h('p', {}, 'An administrator makes tokens. ', h('code', {}, 'kubebid up'), ' prints links that log in.'),
  error,
  field('Token', token, 'It is kept in this window only.'),
  button);
  return { title: 'Log in', root: form };
}

/**
 * Asks whether to log in with the token of a link.
 * @param {(token: string) => Promise<void>} logIn
 * @param {() => void} leave shows another view
 * @returns {import('../main.js').View}
 */
export function offeredView(logIn, leave) {
  const given = session.offered;
  const account = session.person?.account;
  const error = h('p', { class: 'error', role: 'alert' });
  const stay = h('button', {
    type: 'button',
    class: 'primary',
    onclick: () => {
      session.offered = '';
      leave();
    },
  }, account ? `Stay ${account}` : 'Do not log in');
  const change = h('button', {
    type: 'button',
    onclick: () => busy(change, async () => {
      try {
        await logIn(given);
      } catch (problem) {
        error.textContent = refusalInWords(problem);
      }
    }),
  }, 'Log in with the link');
  const root = h('section', { class: 'panel narrow' },
    h('h1', {}, 'Log in with this link?'),
    h('p', {}, account ? `You are logged in as ${account}. The link that was opened has another token.` : 'The link that was opened has a token.',
      ' What you do with it is done for the account of that token. Log in with it only if you know who gave you the link.'),
    error,
    h('div', { class: 'actions' }, stay, change));
  return { title: 'Log in', root, begin: () => stay.focus() };
}
