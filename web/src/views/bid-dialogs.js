// The dialogs that amend and cancel a bid.

import { command } from '../api.js';
import { announce, field, h, openDialog } from '../dom.js';
import { dollars, parseDollars, plainDollars, plural } from '../format.js';
import { ownAfter } from '../live.js';
import { refusalInWords } from '../words.js';

/**
 * Sends a form's command and closes its dialog, or says why it was refused.
 * @param {HTMLDialogElement} dialog @param {HTMLElement} error @param {() => Promise<any>} work @param {string} done
 */
async function send(dialog, error, work, done) {
  error.textContent = '';
  try {
    const answer = await work();
    dialog.close();
    announce(done);
    await ownAfter(answer.seq).catch(() => {});
  } catch (problem) {
    error.textContent = refusalInWords(problem);
  }
}

/** @param {any} bid */
export function amendDialog(bid) {
  const ceiling = h('input', { inputmode: 'decimal', value: plainDollars(bid.ceiling_micros), required: true, autocomplete: 'off' });
  const nodes = h('input', { type: 'number', min: '0', step: '1', value: bid.max_nodes, required: true });
  const error = h('p', { class: 'error', role: 'alert' });
  openDialog(`Amend bid ${bid.bid}`, (dialog) => [
    h('form', {
      onsubmit: (/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        const micros = parseDollars(ceiling.value);
        if (micros === null) {
          error.textContent = 'The ceiling is an amount in dollars, as in 12.50.';
          ceiling.focus();
          return;
        }
        /** @type {Record<string, any>} */
        const body = {};
        if (micros !== BigInt(bid.ceiling_micros)) body.ceiling_micros = String(micros);
        if (Number(nodes.value) !== bid.max_nodes) body.max_nodes = Number(nodes.value);
        if (Object.keys(body).length === 0) {
          dialog.close();
          return;
        }
        send(dialog, error, () => command('PATCH', `/v1/bids/${bid.bid}`, body), `Bid ${bid.bid} amended.`);
      },
    },
    error,
    field('At most, $ per node-hour', ceiling, `Now ${dollars(bid.ceiling_micros)}. You pay what keeps the others out, never more than this.`),
    field('Nodes', nodes, `Now ${bid.max_nodes}.`),
    h('div', { class: 'actions' },
      h('button', { type: 'submit', class: 'primary' }, 'Amend'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Back'))),
  ]);
}

/** @param {any} bid */
export function cancelDialog(bid) {
  const error = h('p', { class: 'error', role: 'alert' });
  const held = bid.held + bid.under_notice;
  openDialog(`Cancel bid ${bid.bid}?`, (dialog) => {
    const button = (/** @type {string} */ text, /** @type {string} */ mode, /** @type {string} */ kind) => h('button', {
      type: 'button', class: kind,
      onclick: () => send(dialog, error, () => command('POST', `/v1/bids/${bid.bid}/cancel`, { mode }), `Bid ${bid.bid} cancelled.`),
    }, text);
    return [
      h('p', {}, held
        ? `It holds ${plural(held, 'node')}. They can end now, or stay yours until somebody outbids them.`
        : 'It ends its search.'),
      error,
      h('div', { class: 'actions' },
        button(held ? 'Cancel and release' : 'Cancel the bid', 'RELEASE', 'danger'),
        held > 0 && button('Cancel and keep the nodes', 'KEEP', ''),
        h('button', { type: 'button', onclick: () => dialog.close() }, 'Back')),
    ];
  });
}
