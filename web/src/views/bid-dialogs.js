// The dialogs that amend, regroup and cancel a bid, and release a node.

import { request } from '../api.js';
import { announce, field, h, setText } from '../dom.js';
import { dollars, amountError, instant, parseDollars, plainDollars, plural, span } from '../format.js';
import { live, looksIn, ownAfter } from '../live.js';
import { commandDialog } from './command-dialog.js';
import { TYPING_MS } from './place.js';

/** Says what was done, and reads what the tenant has. @param {string} words @returns {(answer: any) => Promise<void>} */
function after(words) {
  return async ({ seq }) => {
    announce(words);
    await ownAfter(seq).catch(() => {});
  };
}

/** Returns the time that is billed at least for what a tenant gives up, or nothing if it is free. @param {string[]} markets in which it may be */
function leastCharge(markets) {
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
  const effect = h('p', { class: 'quote brief', role: 'status' });
  let asked = 0;
  /** Warns of what the change does to the nodes that the bid has, and to those that it still wants. */
  const look = async () => {
    asked += 1;
    const mine = asked;
    const micros = parseDollars(ceiling.value);
    const wanted = nodes.value === '' ? bid.max_nodes : Number(nodes.value);
    const [has, least] = [bid.held + bid.claimed, claimCharge(bid)];
    const words = claimsGivenUp(Math.min(bid.claimed, has - wanted), least);
    if (micros !== null && micros < BigInt(bid.ceiling_micros)) {
      if (bid.ceiling_locked_until_us) words.push(`It cannot be lowered before ${instant(bid.ceiling_locked_until_us)}, because it was raised while a node had a notice.`);
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
  commandDialog(`Amend bid ${bid.bid}`, {
    content: [
      field('At most, $ per node-hour', ceiling, `Now ${dollars(bid.ceiling_micros)}. You pay what keeps the others out, never more than this.`),
      field('Nodes', nodes, `Now ${bid.max_nodes}.`),
      effect,
    ],
    changed: look,
    choices: [{
      text: 'Amend',
      read: () => {
        const micros = parseDollars(ceiling.value);
        if (!micros) {
          ceiling.focus();
          throw new Error(`At most: ${amountError(ceiling.value)}`);
        }
        /** @type {Record<string, any>} */
        const body = {};
        if (micros !== BigInt(bid.ceiling_micros)) body.ceiling_micros = String(micros);
        if (Number(nodes.value) !== bid.max_nodes) body.max_nodes = Number(nodes.value);
        return Object.keys(body).length ? { method: 'PATCH', path: `/v1/bids/${bid.bid}`, body } : null;
      },
    }],
    done: after(`Bid ${bid.bid} amended.`),
  });
}

/** Returns the number of nodes that a bid waits for at once. @param {any} bid @returns {number} */
export function leastNodes(bid) {
  return Math.min(bid.min_nodes, bid.max_nodes);
}

/** Returns what it costs to end all nodes and claims of a bid now. @param {any} bid @returns {string[]} */
function costsOfEnding(bid) {
  const least = leastCharge(live.nodes.filter((node) => node.bid === bid.bid).map((node) => node.market));
  return [...(bid.held > 0 && least ? [`A node that ends now without a notice is billed for at least ${least}.`] : []), ...claimsGivenUp(bid.claimed, claimCharge(bid))];
}

/** @param {any} bid */
export function regroupDialog(bid) {
  const held = bid.held + bid.under_notice;
  commandDialog(`Regroup bid ${bid.bid}?`, {
    content: [
      h('p', {}, `${held > 0 ? `All its nodes end now, ${held} in all. ` : ''}The bid then waits until it gets ${leastNodes(bid)} nodes at once again, and keeps its place among bids of the same ceiling.`),
      ...costsOfEnding(bid).map((cost) => h('p', {}, cost)),
    ],
    choices: [{ text: 'End its nodes and regroup', kind: 'danger', read: () => ({ method: 'POST', path: `/v1/bids/${bid.bid}/cancel`, body: { mode: 'REGROUP' } }) }],
    done: after(`Bid ${bid.bid} regrouped.`),
  });
}

/** @param {any} bid */
export function cancelDialog(bid) {
  const held = bid.held + bid.under_notice;
  /** @returns {import('./command-dialog.js').Choice} */
  const choice = (/** @type {string} */ text, /** @type {string} */ mode, /** @type {string} */ kind) =>
    ({ text, kind, read: () => ({ method: 'POST', path: `/v1/bids/${bid.bid}/cancel`, body: { mode } }) });
  commandDialog(`Cancel bid ${bid.bid}?`, {
    content: [
      h('p', {}, held
        ? `It holds ${plural(held, 'node')}. ${held === 1 ? 'It' : 'They'} can end now, or stay yours until another bid takes ${held === 1 ? 'it' : 'them'}.`
        : 'It ends its search.'),
      ...costsOfEnding(bid).map((cost) => h('p', {}, cost)),
    ],
    choices: [choice(held ? 'Cancel and release' : 'Cancel the bid', 'RELEASE', 'danger'), ...(held > 0 ? [choice('Cancel and keep the nodes', 'KEEP', '')] : [])],
    done: after(`Bid ${bid.bid} cancelled.`),
  });
}

/** @param {any} node */
export function releaseDialog(node) {
  const least = leastCharge([node.market]);
  commandDialog(`Release node ${node.allocation}?`, {
    content: [h('p', {}, node.notice
      ? 'It ends at once. Under notice that costs nothing extra.'
      : `It ends at once, and its bid wants one node fewer.${least ? ` It is billed for at least ${least}.` : ''}`)],
    choices: [{ text: 'Release', kind: 'danger', read: () => ({ method: 'POST', path: `/v1/allocations/${node.allocation}/release`, body: {} }) }],
    back: 'Keep it',
    done: after(`Node ${node.allocation} released.`),
  });
}
