// Why a bid waits, and why a node is under notice or was lost.

import { request } from '../api.js';
import { h, openDialog } from '../dom.js';
import { dollars, time } from '../format.js';
import { refusalInWords, unfilledReason } from '../words.js';

/** Returns a sentence of the engine with its instants as people read them. @param {string} text @returns {import('../dom.js').Child[]} */
function readable(text) {
  return text.split(/(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)/).map((part, index) => (index % 2 ? time(Date.parse(part) * 1000) : part));
}

/** @param {'bids' | 'allocations'} kind @param {string} number */
export async function explainDialog(kind, number) {
  const body = h('div', { class: 'explanation' }, h('p', {}, 'Asking…'));
  openDialog(kind === 'bids' ? `Why bid ${number} waits` : `Why node ${number}`, (dialog) => [
    body,
    h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')),
  ]);
  try {
    const answer = await request('GET', `/v1/explain/${kind}/${number}`);
    const obstacles = answer.obstacles.map((/** @type {any} */ obstacle) => h('li', {},
      h('strong', {}, obstacle.market), `: ${unfilledReason(obstacle.reason)}. `,
      obstacle.needed_ceiling_micros ? `A ceiling of ${dollars(obstacle.needed_ceiling_micros, 'up')} would get a node. ` : '',
      obstacle.protected_until_us ? h('span', {}, 'The first protection ends at ', time(obstacle.protected_until_us), '.') : null));
    const steps = answer.steps.map((/** @type {any} */ step) => h('li', {}, time(step.at_us), h('span', {}, ...readable(step.text))));
    body.replaceChildren(
      h('p', { class: 'lead', tabindex: '-1' }, ...readable(answer.summary)),
      ...(obstacles.length ? [h('ul', {}, ...obstacles)] : []),
      ...(steps.length ? [h('h3', {}, 'What led here'), h('ol', { class: 'ticker' }, ...steps)] : []));
  } catch (error) {
    body.replaceChildren(h('p', { class: 'error' }, refusalInWords(error)));
  }
}
