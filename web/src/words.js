// Says in words what the API says in codes.

import { dollars, exactDollars } from './format.js';

/** @type {Record<string, string>} */
const UNFILLED = {
  NO_MARKET: 'no market of this type is open',
  OWN_SUPPLY: 'you sell in this market, and so cannot buy here',
  NO_SUPPLY: 'no provider offers more nodes here at present',
  BELOW_FLOOR: 'your ceiling is below the floor, the least that a provider asks',
  BELOW_NEEDED_CEILING: 'your ceiling is too low to outbid the bids that hold the nodes',
  MINIMUM_NOT_MET: 'some nodes could be had, but not as many at once',
  NO_FUNDS: 'your account cannot pay for it at this ceiling: “Money” shows what is left',
  WAITING_FOR_PROTECTED_NODE: 'the node that your ceiling would take is still protected for its holder',
};

/** @type {Record<string, string>} */
const ENDS = {
  OUTBID: 'outbid',
  CAPACITY_WITHDRAWN: 'taken back by the provider',
  RESERVE_RAISED: 'the provider asks for more than your ceiling',
  RELEASED: 'released',
  REGROUPED: 'its bid was regrouped',
  UNIT_LOST: 'the machine was lost',
  START_TIMEOUT: 'never reported ready',
  CLAIM_DROPPED: 'a claim was given up',
  FUNDS: 'the account cannot pay for longer',
  OTHER: 'its tenant has to give it up',
};

/** @type {Record<string, string>} */
const CLOSES = { EXPIRED: 'its time is over', IOC: 'it took what there was', CANCELLED: 'cancelled', DONE: 'it wants nothing more', MARKET_CLOSED: 'its market was closed' };

/** @type {Record<string, string>} */
const REFUSALS = {
  PROTECTED: 'The ceiling cannot be lowered yet: a node of this bid is protected, or the ceiling was raised while a node had a notice.',
  BELOW_HELD: 'The bid holds more nodes than that. Release nodes first.',
  BAD_NODES: '“At least at once” must be between 1 and “Nodes”.',
  BELOW_RESERVE: 'The ceiling is below the reserve of a node that the bid holds.',
  ENDED: 'The node has ended already.',
  CLOSED: 'The bid is closed already.',
  NO_FUNDS: 'The account cannot pay for the nodes of this bid at that ceiling. “Money” shows what is left.',
  NOT_A_GANG: 'Only a bid that waits for several nodes at once is regrouped.',
  NOT_RESTING: 'The unit does not rest.',
  MARKET_CLOSED: 'The market is closed: it takes no new bids and no more units.',
  FORBIDDEN: 'Your token does not allow this.',
  UNREACHABLE: 'The engine cannot be reached. Try again: what you asked for is done once.',
};

/** The labels of the forms for the fields of the API. @type {Record<string, string>} */
const LABELS = { ceiling_micros: '“At most”', reserve_micros: '“Reserve”', max_nodes: '“Nodes”', nodes: '“Nodes”', ceiling_max: 'highest ceiling' };

/** @param {string | undefined} reason */
export function unfilledReason(reason) {
  return (reason && UNFILLED[reason]) || 'it waits';
}

/** @param {string | undefined} reason */
export function endReason(reason) {
  return (reason && ENDS[reason]) || 'it ended';
}

/** @param {string | undefined} reason */
export function closeReason(reason) {
  return (reason && CLOSES[reason]) || 'closed';
}

/** Says why a command was refused. @param {unknown} error */
export function refusalInWords(error) {
  const problem = /** @type {{code?: string, message?: string}} */ (error);
  const known = problem.code && REFUSALS[problem.code];
  if (known) return known;
  const text = inLabels(problem.message || String(error));
  // A name of the market keeps its letters.
  const begin = /^\S*[/]/.test(text) ? text.charAt(0) : text.charAt(0).toUpperCase();
  return `${begin}${text.slice(1)}${/[.!?]$/.test(text) ? '' : '.'}`;
}

/** Writes a sentence of the engine with the labels of the forms, and with dollars. @param {string} sentence */
function inLabels(sentence) {
  return sentence
    .replace(/ at line \d+ column \d+/, '')
    .replace(/\b(ceiling_micros|reserve_micros|ceiling_max|tick|limit of) (\d+)/g, (_, what, micros) => `${what} ${exactDollars(micros)}`)
    .replace(/is more than the bid_nodes_max (\d+) of (\S+)/, 'is more than the $1 that a bid in $2 may have')
    .replace(/^nodes\b|\b(ceiling_micros|reserve_micros|max_nodes|ceiling_max)\b/g, (name) => LABELS[name]);
}

/**
 * Says what happened in an event, for the party that sees it.
 * @param {any} event
 * @returns {string}
 */
export function eventInWords(event) {
  const nodeOf = (/** @type {any} */ body) => `Node ${body.allocation}`;
  if (event.price_changed) {
    const numbers = event.price_changed.numbers;
    const entry = numbers.entry_price_micros;
    return `${event.price_changed.market}: price ${dollars(numbers.market_price_micros)}, ${
      entry === undefined ? 'no entry' : `entry ${dollars(entry, 'up')}`}`;
  }
  if (event.market_opened) return `Market ${event.market_opened.market} opened`;
  if (event.market_closing) return `Market ${event.market_closing.market} was closed: it ends when it is empty`;
  if (event.market_ended) return `Market ${event.market_ended.market} has ended`;
  if (event.rules_changed) return `Rules of ${event.rules_changed.market} changed`;
  if (event.bid_placed) {
    const bid = event.bid_placed;
    return `Bid ${bid.bid} placed: ${bid.max_nodes} × at most ${dollars(bid.ceiling_micros, 'up')} in ${bid.markets.join(', ') || bid.instance_type}`;
  }
  if (event.bid_amended) {
    return `Bid ${event.bid_amended.bid} amended: ${event.bid_amended.max_nodes} × at most ${dollars(event.bid_amended.ceiling_micros, 'up')}`;
  }
  if (event.bid_closed) return `Bid ${event.bid_closed.bid} closed: ${closeReason(event.bid_closed.reason)}`;
  if (event.allocated) {
    const bid = event.allocated.bid;
    return bid ? `${nodeOf(event.allocated)} allocated to bid ${bid}: ${event.allocated.unit}` : `${event.allocated.unit} allocated`;
  }
  if (event.ready) return `${nodeOf(event.ready)} is ready; billing begins`;
  if (event.notice_started) return `${nodeOf(event.notice_started)} has a notice: ${endReason(event.notice_started.reason)}`;
  if (event.notice_rescinded) return `${nodeOf(event.notice_rescinded)} stays: its notice was taken back`;
  if (event.claimed?.was && !event.claimed.bid) return `Bid ${event.claimed.was} lost its claim on ${event.claimed.unit} to a higher bid`;
  if (event.claimed) return event.claimed.bid ? `Bid ${event.claimed.bid} has a claim on ${event.claimed.unit}: it gets the unit when the notice ends` : `Another bid has a claim on ${event.claimed.unit}`;
  if (event.claim_dropped) return event.claim_dropped.bid ? `Bid ${event.claim_dropped.bid} lost its claim on ${event.claim_dropped.unit}` : `The claim on ${event.claim_dropped.unit} was dropped`;
  if (event.ended) return `${nodeOf(event.ended)} ended: ${endReason(event.ended.reason)}`;
  if (event.charged) return `${dollars(event.charged.debit_micros)} charged for ${event.charged.unit}`;
  if (event.offer_put) return `Offer in ${event.offer_put.market}: ${event.offer_put.capacity} × at least ${dollars(event.offer_put.reserve_micros)}`;
  if (event.unit_added) return `Unit ${event.unit_added.unit} is on offer`;
  if (event.unit_leaving) return `Unit ${event.unit_leaving.unit} leaves when its notice ends`;
  if (event.unit_back) return `Unit ${event.unit_back.unit} stays`;
  if (event.unit_resting) return `Unit ${event.unit_resting.unit} rests: its node was not ready in time`;
  if (event.unit_resumed) return `Unit ${event.unit_resumed.unit} was resumed`;
  if (event.unit_removed) return `Unit ${event.unit_removed.unit} is off the market`;
  if (event.rejected) return `A command was refused: ${event.rejected.reason.toLowerCase().replaceAll('_', ' ')}`;
  if (event.repeated) return `A command came again, and was done once`;
  return 'Something happened';
}
