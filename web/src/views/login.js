// The form that takes a token.

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
