// The dialogs that amend and cancel a bid.

import { command, request } from '../api.js';
import { announce, field, h, openDialog, setText } from '../dom.js';
import { dollars, amountError, parseDollars, plainDollars, plural, span } from '../format.js';
import { live, looksIn, ownAfter } from '../live.js';
import { refusalInWords } from '../words.js';
import { TYPING_MS } from './place.js';

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

/** Returns the time that is billed at least for what a tenant gives up, or nothing if it is free. @param {string[]} markets in which it may be */
export function leastCharge(markets) {
  const [first, ...others] = new Set(markets.map((market) => live.markets.get(market)?.rules.min_charge_us));
  if (first === undefined || others.length > 0) return 'the minimum charge of its market';
  return first === '0' ? '' : span(Number(first));
}

/** Returns the time that is billed for each claim that a bid gives up, or nothing if it is free. @param {any} bid */
function claimCharge(bid) {
  return leastCharge([...live.markets.keys()].filter((market) => looksIn(bid, market)));
}

/** Says what the claims cost that a bid gives up. @param {number} claims @param {string} least the time that is billed for each @returns {string[]} */
function claimsGivenUp(claims, least) {
  return claims > 0 && least ? [`It gives up ${plural(claims, 'claim')} on nodes under notice. A claim that is given up is billed for ${least}.`] : [];
}

/** @param {any} bid */
export function amendDialog(bid) {
  const ceiling = h('input', { inputmode: 'decimal', value: plainDollars(bid.ceiling_micros), required: true, autocomplete: 'off' });
  const nodes = h('input', { type: 'number', min: '0', step: '1', value: bid.max_nodes, required: true });
  const error = h('p', { class: 'error', role: 'alert' });
  const effect = h('p', { class: 'quote brief', role: 'status' });
  let asked = 0;
  /** Warns of what the change does to the nodes that the bid has, and to those that it still wants. */
  const look = async () => {
    error.textContent = '';
    asked += 1;
    const mine = asked;
    const micros = parseDollars(ceiling.value);
    const wanted = nodes.value === '' ? bid.max_nodes : Number(nodes.value);
    const [has, least] = [bid.held + bid.claimed, claimCharge(bid)];
    const words = claimsGivenUp(Math.min(bid.claimed, has - wanted), least);
    if (micros !== null && micros < BigInt(bid.ceiling_micros)) {
      if (has > 0) words.push('A lower ceiling makes its nodes easier to outbid.');
      if (bid.claimed > 0 && least) words.push(`It may lose claims, each billed for ${least}.`);
    }
    if (micros !== null && wanted > has) {
      await new Promise((resolve) => setTimeout(resolve, TYPING_MS));
      if (mine !== asked || !effect.isConnected) return;
      const scope = bid.markets.length ? { markets: bid.markets } : { instance_type: bid.instance_type };
      // The quote is that of a new tenant, who can take the nodes of this bid too: this bid needs as much or more.
      // A quote that failed says nothing.
      const entry = await request('POST', '/v1/bids/quote', { ...scope, nodes: 1 }).then(({ quotes }) => quotes[0]?.entry_price_micros, () => null);
      if (entry === undefined) words.push('It waits: no ceiling gets one node more at once now.');
      else if (entry !== null && micros < BigInt(entry)) words.push(`It waits: one node more now needs ${dollars(entry, 'up')} or more.`);
      else if (entry !== null && bid.held > 0) words.push('It may wait: nodes of this bid do not count as nodes that it can get.');
    }
    if (mine === asked) setText(effect, words.join(' '));
  };
  openDialog(`Amend bid ${bid.bid}`, (dialog) => [
    h('form', {
      oninput: look,
      onsubmit: (/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        const micros = parseDollars(ceiling.value);
        if (!micros) {
          error.textContent = `At most: ${amountError(ceiling.value)}`;
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
    effect,
    h('div', { class: 'actions' },
      h('button', { type: 'submit', class: 'primary' }, 'Amend'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Back'))),
  ]);
}

/** @param {any} bid */
export function cancelDialog(bid) {
  const error = h('p', { class: 'error', role: 'alert' });
  const held = bid.held + bid.under_notice;
  const least = leastCharge(live.nodes.filter((node) => node.bid === bid.bid).map((node) => node.market));
  const costs = [...(bid.held > 0 && least ? [`A node that ends now without a notice is billed for at least ${least}.`] : []), ...claimsGivenUp(bid.claimed, claimCharge(bid))];
  openDialog(`Cancel bid ${bid.bid}?`, (dialog) => {
    const button = (/** @type {string} */ text, /** @type {string} */ mode, /** @type {string} */ kind) => h('button', {
      type: 'button', class: kind,
      onclick: () => send(dialog, error, () => command('POST', `/v1/bids/${bid.bid}/cancel`, { mode }), `Bid ${bid.bid} cancelled.`),
    }, text);
    return [
      h('p', {}, held
        ? `It holds ${plural(held, 'node')}. ${held === 1 ? 'It' : 'They'} can end now, or stay yours until another bid takes ${held === 1 ? 'it' : 'them'}.`
        : 'It ends its search.'),
      ...costs.map((cost) => h('p', {}, cost)),
      error,
      h('div', { class: 'actions' },
        button(held ? 'Cancel and release' : 'Cancel the bid', 'RELEASE', 'danger'),
        held > 0 && button('Cancel and keep the nodes', 'KEEP', ''),
        h('button', { type: 'button', onclick: () => dialog.close() }, 'Back')),
    ];
  });
}
