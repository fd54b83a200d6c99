// The form that places a bid, with what the bid would need beside it.

import { Problem, clock, isPassing, marketPath, request } from '../api.js';
import { shifted } from '../calendar.js';
import { command } from '../command.js';
import { announce, busy, field, fill, h } from '../dom.js';
import { dollars, amountError, exactDollars, parseDollars, plainDollars, plural } from '../format.js';
import { live, looksIn, ownAfter } from '../live.js';
import { refusalInWords, unfilledReason } from '../words.js';

/** The time between the last keystroke and a question. */
export const TYPING_MS = 200;
/** The least time between the last question and one that is asked because prices moved. */
const AGAIN_MS = 1000;
/** The times that a bid may search, by their choice. @type {Record<string, import('../calendar.js').Distance>} */
const TIMES = { hour: { hours: 1 }, 'eight-hours': { hours: 8 }, day: { days: 1 } };
/** The prefix of a choice that names an instance type. No market is called so. */
const TYPE = 'type:';

/** @param {string} [market] the market to begin with */
export function placeForm(market) {
  const where = h('select', { required: true });
  const ceiling = h('input', { inputmode: 'decimal', required: true, autocomplete: 'off', placeholder: '0.00' });
  const nodes = h('input', { type: 'number', min: '1', step: '1', value: '1', required: true });
  const least = h('input', { type: 'number', min: '1', step: '1', placeholder: '1' });
  const until = h('select', {}, h('option', { value: '' }, 'I cancel it'), h('option', { value: 'hour' }, 'an hour is over'),
    h('option', { value: 'eight-hours' }, '8 hours are over'), h('option', { value: 'day' }, 'a day is over'), h('option', { value: 'IOC' }, 'it took what there is now'));
  const lost = h('select', {}, h('option', { value: 'REQUEUE' }, 'search for another one'), h('option', { value: 'CLOSE' }, 'want one node fewer'));
  const labels = h('input', { autocomplete: 'off', placeholder: 'team=vision, job=42' });
  const config = h('textarea', { rows: '3', spellcheck: 'false', autocomplete: 'off' });
  const quote = h('div', { class: 'quote' });
  const error = h('p', { class: 'error', role: 'alert' });
  const done = h('p', { class: 'done' });
  const button = h('button', { type: 'submit', class: 'primary' }, 'Place bid');
  const another = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => { changed(); button.focus(); } }, 'Another like it');
  const take = h('button', { type: 'button', class: 'quiet', hidden: true, onclick: () => { ceiling.value = take.value; changed(); asked(true); ceiling.focus(); } });
  const closing = new AbortController();

  const form = h('form', { class: 'panel place', 'aria-labelledby': 'place-title', onsubmit: (/** @type {SubmitEvent} */ event) => { event.preventDefault(); place(); } },
    h('h2', { id: 'place-title' }, 'Place a bid'),
    field('Market', where),
    h('div', { class: 'pair' }, field('At most, $ per node-hour', ceiling), field('Nodes', nodes)),
    quote, h('div', { class: 'take' }, take),
    h('details', {}, h('summary', {}, 'More'),
      field('At least at once, nodes', least, 'Takes so many in one market, or none.'),
      field('It searches until', until),
      field('When a node is taken away', lost),
      field('Labels', labels, 'To find it and to bill it by. KEY=VALUE, with commas between.'),
      field('For the provider of the nodes', config, 'A public SSH key or cloud-init user data. Only you and the provider of your nodes see it.')),
    error, button, done, another);

  const scope = () => (where.value.startsWith(TYPE) ? { instance_type: where.value.slice(TYPE.length) } : { markets: [where.value] });

  /** The question that has no answer yet. A new one ends it. @type {AbortController | null} */
  let question = null;
  /** When the last question ended, and whether prices moved while it was under way. */
  let [last, moved] = [-Infinity, false];
  /** The engine refused the last question, whatever prices do. */
  let refused = false;
  /** Asks what the bid would need, and says it. @param {boolean} typed */
  const ask = async (typed) => {
    const count = Number(nodes.value);
    question?.abort();
    question = null;
    refused = false;
    if (!where.value) {
      fill(quote);
      take.hidden = true;
      return;
    }
    if (!Number.isInteger(count) || count < 1) {
      fill(quote, h('p', {}, 'At least 1 node.'));
      take.hidden = true;
      return;
    }
    const micros = parseDollars(ceiling.value);
    if (ceiling.value.trim() && !micros) {
      fill(quote, h('p', {}, `At most: ${amountError(ceiling.value)}`));
      take.hidden = true;
      return;
    }
    const mine = new AbortController();
    const signal = AbortSignal.any([mine.signal, closing.signal]);
    question = mine;
    moved = false;
    try {
      const { words, entry } = await preview(scope(), count, Number(least.value), micros, until.value === 'IOC', signal);
      if (signal.aborted) return;
      fill(quote, ...words.map((sentence) => h('p', {}, sentence)));
      take.hidden = !entry || (micros !== null && micros >= BigInt(entry));
      if (entry) {
        take.value = plainDollars(entry);
        take.textContent = `Use ${dollars(entry, 'up')}`;
        take.title = exactDollars(entry, 'per node-hour');
      }
      if (typed) announce(words.join(' '));
    } catch (problem) {
      if (signal.aborted) return;
      fill(quote, h('p', {}, refusalInWords(problem)));
      refused = problem instanceof Problem && problem.status < 500 && problem.code !== 'LIMIT' && !isPassing(problem);
    } finally {
      last = performance.now();
      if (question === mine) question = null;
      if (moved && !signal.aborted) askAgain();
    }
  };
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  const asked = (/** @type {boolean} */ typed, wait = TYPING_MS) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = undefined;
      ask(typed);
    }, wait);
  };
  /** Asks anew because prices moved, unless a question is to come. One that is under way gets its answer first. */
  const askAgain = () => {
    moved = question !== null;
    if (!moved && !refused && timer === undefined) asked(false, Math.max(0, last + AGAIN_MS - performance.now()));
  };
  for (const input of [where, ceiling, nodes, least, until]) input.addEventListener('input', () => asked(true));
  form.addEventListener('input', () => changed());

  const bid = command(() => {
    const micros = parseDollars(ceiling.value);
    if (micros === null || micros === 0n) {
      ceiling.focus();
      throw new Error(`At most: ${amountError(ceiling.value)}`);
    }
    const given = readLabels(labels.value);
    if (given === null) {
      labels.focus();
      throw new Error('Labels are KEY=VALUE, with commas between.');
    }
    /** @type {any} */
    const body = { ...scope(), ceiling_micros: String(micros), max_nodes: Number(nodes.value), on_preemption: lost.value, labels: given };
    if (config.value) body.node_config = base64(config.value);
    if (least.value) body.min_nodes = Number(least.value);
    if (until.value === 'IOC') body.time_in_force = 'IOC';
    else if (until.value) Object.assign(body, { time_in_force: 'GTT', expire_at_us: String(Math.floor(shifted(clock.now(), TIMES[until.value]))) });
    return { method: 'POST', path: '/v1/bids', body };
  });
  /** The bid that the form has placed as it is filled in. */
  let placed = '';
  /** Makes the form one for another bid: a field changed, or the person wants one more like the last. */
  const changed = () => {
    bid.renew();
    placed = '';
    another.hidden = true;
    done.textContent = '';
    error.textContent = '';
  };
  const place = () => busy(button, async () => {
    error.textContent = '';
    try {
      const answer = await bid.send();
      done.textContent = answer.bid === placed ? `Bid ${answer.bid} was placed already. “Another like it” allows one more.` : `Bid ${answer.bid} placed.`;
      placed = answer.bid;
      another.hidden = false;
      announce(done.textContent);
      await ownAfter(answer.seq).catch(() => {});
    } catch (problem) {
      error.textContent = refusalInWords(problem);
    }
  });

  let drawn = '';
  const drawMarkets = () => {
    const names = [...live.markets.values()].filter((market) => market.state === 'OPEN').map((market) => market.market);
    if (names.join() === drawn) return;
    drawn = names.join();
    const chosen = where.value || where.dataset.gone || market || '';
    const types = [...new Set(names.map((name) => name.split('/')[0]))];
    const several = types.filter((type) => names.filter((name) => name.startsWith(`${type}/`)).length > 1);
    const choices = [...names.map((name) => [name, name]), ...several.map((type) => [TYPE + type, `any ${type}, where it is cheapest`])];
    const isGone = chosen !== '' && !choices.some(([value]) => value === chosen);
    // A bid never goes to another market than the one that the person chose.
    if (isGone) choices.unshift(['', `${chosen.replace(TYPE, 'any ')} is not open: choose another`]);
    where.dataset.gone = isGone ? chosen : '';
    where.replaceChildren(...choices.map(([value, text]) => h('option', { value }, text)));
    where.value = isGone ? '' : chosen || choices[0]?.[0] || '';
  };

  return {
    root: form,
    /** @param {Set<string>} topics */
    update: (topics) => {
      if (!topics.has('markets')) return;
      drawMarkets();
      askAgain();
    },
    /** Brings the form into view, to fill it in. */
    begin: () => {
      form.scrollIntoView({ block: 'start' });
      ceiling.focus();
    },
    close: () => {
      closing.abort();
      clearTimeout(timer);
    },
  };
}

/**
 * Asks what a bid would need and get at present, and says it.
 * @param {{markets: string[]} | {instance_type: string}} scope
 * @param {number} count of its nodes @param {number} least of them that it takes at once @param {bigint | null} micros its ceiling
 * @param {boolean} isOnce true if it takes what there is now and ends @param {AbortSignal} signal
 * @returns {Promise<{words: string[], entry: string | undefined}>} with the lowest ceiling that gets all nodes at once
 */
async function preview(scope, count, least, micros, isOnce, signal) {
  const asked = { ...scope, nodes: count, ...(micros ? { ceiling_micros: String(micros) } : {}) };
  const { quotes } = await request('POST', '/v1/bids/quote', asked, undefined, signal);
  // The cheapest market may be one that the bid gets nothing in, such as one in which its tenant sells.
  const best = quotes.find((/** @type {any} */ quote) => !quote.unfilled_reason)
    ?? quotes.find((/** @type {any} */ quote) => quote.unfilled_reason !== 'OWN_SUPPLY') ?? quotes[0];
  let [got, later, ahead] = [count, best?.claimed ?? 0, 0];
  if (micros && best?.unfilled_reason) {
    // What a bid takes at least it takes in one market.
    const most = Math.max(0, ...quotes.map((/** @type {any} */ quote) => quote.nodes));
    const inAll = (/** @type {string} */ part) => quotes.reduce((/** @type {number} */ sum, /** @type {any} */ quote) => sum + quote[part], 0);
    got = most < least ? 0 : Math.min(count, inAll('nodes'));
    later = Math.min(got, inAll('claimed'));
    if (best.unfilled_reason === 'BELOW_NEEDED_CEILING') ahead = await waitingAhead(best.market, micros, signal);
  }
  const words = say(best, count, micros, got, later, ahead, isOnce);
  const own = micros && later > 0 && ownVictim(quotes.filter((/** @type {any} */ quote) => quote.claimed > 0), micros);
  if (own) words.push(`It may take node ${own.allocation} from your own bid ${own.bid}, whose ceiling is lower. To keep that node, amend bid ${own.bid} instead.`);
  return { words, entry: best?.entry_price_micros };
}

/** Returns one's own node that a bid may take first, if there is one. @param {any[]} quotes @param {bigint} micros */
function ownVictim(quotes, micros) {
  const taken = live.nodes.filter((node) => node.bid && !node.notice && Number(node.protected_until_us) <= clock.now() && BigInt(node.ceiling_micros) < micros && quotes.some((quote) => quote.market === node.market));
  return taken.sort((a, b) => Number(a.ceiling_micros) - Number(b.ceiling_micros))[0];
}

/** Counts the nodes that others want for at least this ceiling. @param {string} market @param {bigint} micros @param {AbortSignal} signal */
async function waitingAhead(market, micros, signal) {
  const depth = await request('GET', marketPath(market, 'depth?levels=1000'), undefined, undefined, signal);
  const unmet = (/** @type {any[]} */ some) => some.filter((one) => BigInt(one.ceiling_micros) >= micros).reduce((sum, one) => sum + one.unmet, 0);
  return Math.max(0, unmet(depth.demand) - unmet(live.bids.filter((bid) => looksIn(bid, market))));
}

/**
 * Says what a bid would need, and what it would get.
 * @param {any} best the quote of the cheapest market that the bid gets its nodes in, if there is one @param {number} count @param {bigint | null} micros
 * @param {number} got the nodes that the ceiling gets @param {number} later those of them that come when notices end
 * @param {number} ahead the nodes that others want for as much
 * @param {boolean} isOnce true if it takes what there is now and ends
 * @returns {string[]}
 */
function say(best, count, micros, got, later, ahead, isOnce) {
  if (!best) return ['No market of this type is open.'];
  const what = plural(count, 'node');
  const entry = best.entry_price_micros;
  const words = [];
  const waits = isOnce ? '' : `; a bid waits for ${count === 1 ? 'it' : 'them'}`;
  const needs = entry === undefined ? `You cannot get ${what} at once now, at any ceiling${waits}.` : `${what} now ${count === 1 ? 'needs' : 'need'} ${dollars(entry, 'up')}.`;
  const market = BigInt(best.market_price_micros);
  if (micros && got === 0) {
    const behind = ahead > 0 ? `, behind ${plural(ahead, 'node')} that others want for as much or more` : '';
    words.push(needs, `At ${dollars(micros)} your bid ${isOnce ? 'gets nothing' : `waits${behind}`}: ${unfilledReason(best.unfilled_reason)}.`);
  } else if (micros && got < count) {
    words.push(needs, `At ${dollars(micros)} you get ${inTime(`${got} of them`, got, later)}, and ${isOnce ? 'no' : `your bid waits for ${count - got}`} more.`);
  } else if (micros) {
    words.push(`At ${dollars(micros)} you get ${inTime(what, got, later)}.`);
    // The provider of the node may ask for more than the market price. Nodes of several markets have prices of their own.
    const most = best.unfilled_reason ? micros : (entry !== undefined && BigInt(entry) > market ? BigInt(entry) : market);
    const pays = most < micros ? most : micros;
    const each = pays > market ? `between ${dollars(market)} and ${dollars(pays)}` : `the market price, ${dollars(pays)}`;
    words.push(`At present that costs ${each} per node-hour: at most ${dollars(pays * BigInt(count))} an hour. Never more than ${dollars(micros)} per node-hour.`);
  } else {
    words.push(needs, `The market price is ${dollars(market)}. Bid what a node-hour is worth to you: you pay only what keeps others out.`);
  }
  return words;
}

/** Says when nodes come. @param {string} what @param {number} count @param {number} later those of them that come when notices end */
function inTime(what, count, later) {
  if (later === 0) return `${what} at once`;
  const then = later === 1 ? 'when a notice ends' : 'when notices end';
  return later === count ? `${what} ${then}` : `${what}, ${later} of them ${then}`;
}

/** @param {string} text @returns {Record<string, string> | null} */
function readLabels(text) {
  /** @type {Record<string, string>} */
  const found = {};
  for (const part of text.split(',').map((piece) => piece.trim()).filter(Boolean)) {
    const place = part.indexOf('=');
    if (place < 1) return null;
    found[part.slice(0, place).trim()] = part.slice(place + 1).trim();
  }
  return found;
}

/** Returns a text as the API has bytes. @param {string} text */
function base64(text) {
  const bytes = new TextEncoder().encode(text);
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}
