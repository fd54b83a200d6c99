// What an address shows that names no view, or one that the token does not allow.

import { h } from '../dom.js';

/** Returns the view of an address that names nothing. @returns {import('../main.js').View} */
export function noView() {
  return say('There is no such view', 'The address names none. A link may have been cut.');
}

/** Returns the view of an address that the person may not see. @param {boolean} isStranger @returns {import('../main.js').View} */
export function closedView(isStranger) {
  return say('This view is not for you', isStranger ? 'Log in with a token that allows it.' : 'Your token does not allow it.');
}

/** @param {string} title @param {string} words @returns {import('../main.js').View} */
function say(title, words) {
  return { title, root: h('div', {}, h('h1', {}, title), h('p', { class: 'lead' }, words), h('p', {}, h('a', { href: '#/markets' }, 'Show the markets'))) };
}
