// Holds what the page knows of the market, and keeps it current: lists first, then the stream of events.

import { clock, credentials, list, request } from './api.js';
import { HOUR_US } from './calendar.js';
import { announce } from './dom.js';
import { dollars, span } from './format.js';
import { session } from './session.js';
import { follow } from './stream.js';
import { endReason } from './words.js';

/** @typedef {'markets' | 'own' | 'events' | 'connection' | 'second'} Topic */

/** The least time between two reads of the same lists. */
const MARKETS_MS = 800;
const OWN_MS = 500;
/** The time after which one's own lists are read although no event says so: labels of a bid may come a moment after it. */
const OWN_AGAIN_MS = 4000;
/** The most often that views are drawn. */
const DRAW_MS = 350;
/** The most events that are kept of each kind: the market's and one's own. */
const EVENTS_KEPT = 200;
/** The time between two reads of one's own nodes while the page is hidden, so that its title tells of a notice. */
const HIDDEN_MS = 10_000;
/** The kinds of events that are one's own. A market with many prices would push them out of a list of all. */
const OWN_KINDS = ['bid_placed', 'bid_amended', 'bid_closed', 'allocated', 'ready', 'notice_started', 'notice_rescinded', 'claimed', 'claim_dropped',
  'ended', 'charged', 'offer_put', 'unit_added', 'unit_leaving', 'unit_back', 'unit_resting', 'unit_resumed', 'unit_removed', 'rejected', 'repeated'];

export const live = {
  /** @type {Map<string, any>} */
  markets: new Map(),
  /** @type {any[]} */
  bids: [],
  /** @type {any[]} */
  nodes: [],
  /** One's own events, newest first. @type {any[]} */
  events: [],
  /** Events of markets that came by the stream, newest first. @type {any[]} */
  ticker: [],
  /** @type {'connecting' | 'live' | 'lost'} */
  connection: 'connecting',
  /** When the last frame came, by this machine's clock. */
  lastFrame: 0,
  loaded: false,
};

/** Returns the market that an event is about, if everybody may see it. @param {any} event @returns {string | undefined} */
export function publicMarket(event) {
  return (event.price_changed ?? event.market_opened ?? event.rules_changed ?? event.market_closing ?? event.market_ended)?.market;
}

/** Counts the people of this window. An answer that was asked for by an earlier one is dropped. */
let generation = 0;

/**
 * Returns the answer of a request, unless another person is there by then.
 * @template T
 * @param {Promise<T>} asking
 */
async function mine(asking) {
  const asked = generation;
  const answer = await asking;
  if (asked !== generation) throw new Error('the session has ended');
  return answer;
}

/** @type {Set<(topics: Set<Topic>) => void>} */
const listeners = new Set();
/** @type {Set<Topic>} */
const changed = new Set();
let drawn = 0;
let drawing = false;

/** Calls a function when something of the state changed. Returns what ends that. @param {(topics: Set<Topic>) => void} listener */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** @param {Topic} topic */
function change(topic) {
  changed.add(topic);
  if (drawing) return;
  drawing = true;
  // A page that is not seen has no animation frames.
  setTimeout(() => (document.hidden ? draw() : requestAnimationFrame(draw)), Math.max(0, drawn + DRAW_MS - performance.now()));
}

function draw() {
  drawing = false;
  drawn = performance.now();
  const topics = new Set(changed);
  changed.clear();
  for (const listener of listeners) listener(topics);
}

/**
 * Returns a function that runs `work` soon: at most once in `ms`, never twice at once, and always after the last call.
 * @param {number} ms
 * @param {() => Promise<void>} work
 */
export function paced(ms, work) {
  let wanted = false;
  let busy = false;
  let last = -Infinity;
  const run = async () => {
    if (busy || !wanted) return;
    busy = true;
    const wait = last + ms - performance.now();
    if (wait > 0) await new Promise((resolve) => setTimeout(resolve, wait));
    wanted = false;
    last = performance.now();
    try {
      await work();
    } catch {
      // The stream says whether the engine is there. It asks again when it is back.
    }
    busy = false;
    run();
  };
  return () => {
    wanted = true;
    run();
  };
}

async function readMarkets() {
  const answer = await mine(list('/v1/markets', 'markets'));
  live.markets = new Map(answer.entries.map((market) => [market.market, market]));
  change('markets');
  return answer;
}

async function readOwn() {
  if (!session.person?.tenant && !session.person?.provider) return;
  const [bids, nodes] = await mine(Promise.all([
    session.person.tenant ? list('/v1/bids?state=OPEN', 'bids') : { entries: [] },
    list('/v1/allocations?state=STARTING&state=ACTIVE', 'allocations'),
  ]));
  live.bids = bids.entries;
  live.nodes = nodes.entries;
  change('own');
}

/** Reads the markets soon. */
export const wantMarkets = paced(MARKETS_MS, async () => { await readMarkets(); });
/** Reads one's own bids and nodes soon. */
export const wantOwn = paced(OWN_MS, readOwn);
const wantOwnAgain = paced(OWN_AGAIN_MS, readOwn);

/** Reads one's own bids and nodes up to a command, so that its effect is there. @param {string} seq */
export async function ownAfter(seq) {
  await request('GET', `/v1/allocations?page_size=1&min_seq=${seq}`);
  await readOwn();
  wantMarkets();
}

/** Reads the market's time. A statement has it to the microsecond; who has none takes that of the answer's header, to the second. */
async function readClock() {
  if (!session.person?.tenant && !session.person?.provider) {
    const answer = await fetch('/v1/markets?page_size=1', { headers: credentials(), cache: 'no-store' });
    const second = Date.parse(answer.headers.get('date') ?? '') * 1000;
    // A clock that is right to the second is better than the header.
    if (Math.abs(second - Date.now() * 1000) > 2_000_000) clock.set(second + 500_000);
    return;
  }
  const from = String(Date.now() * 1000 + HOUR_US);
  const before = Date.now();
  const statement = await request('GET', `/v1/statement?from_us=${from}`);
  clock.set(Number(statement.to_us) + (Date.now() - before) * 500);
}

/** @returns {Promise<string>} the cursor to go on from */
async function loadAll() {
  const markets = await readMarkets();
  await Promise.all([readOwn(), readHistory(), readClock()]);
  live.loaded = true;
  change('markets');
  return markets.cursor;
}

/** An administrator would see the events of all accounts. */
function whose() {
  return session.person?.admin ? `&account=${encodeURIComponent(session.person.account)}` : '';
}

async function readHistory() {
  if (!session.person) return;
  const answer = await mine(request('GET', `/v1/events?newest_first=true&page_size=${EVENTS_KEPT}&kind=${OWN_KINDS.join('&kind=')}${whose()}`));
  live.events = answer.events;
  change('events');
}

/** @param {any} frame */
function onFrame(frame) {
  live.lastFrame = Date.now();
  if (live.connection !== 'live') {
    live.connection = 'live';
    change('connection');
  }
  // A frame without events says that something happened which is another's: the supply may differ.
  wantMarkets();
  wantOwnAgain();
  if (frame.points) {
    const events = frame.points.map((/** @type {any} */ point) => ({
      seq: point.seq, index: point.index, at_us: point.at_us, price_changed: { market: point.market, numbers: point.numbers },
    }));
    onEvents(events);
  } else onEvents(frame.events);
}

/** @param {any[]} events */
function onEvents(events) {
  if (events.length === 0) return;
  /** @type {any[]} */
  const [own, ticker] = [[], []];
  for (const event of events) {
    (publicMarket(event) === undefined ? own : ticker).unshift(event);
    if (event.price_changed) {
      const market = live.markets.get(event.price_changed.market);
      if (market) {
        market.price = { ...market.price, numbers: event.price_changed.numbers, at_us: event.at_us, seq: event.seq };
        change('markets');
      }
      if (concerns(event.price_changed.market)) wantOwn();
    } else if (event.market_opened || event.market_closing || event.market_ended) {
      wantMarkets();
    } else if (publicMarket(event) === undefined) {
      wantOwn();
      say(event);
    }
  }
  live.events = [...own, ...live.events].slice(0, EVENTS_KEPT);
  live.ticker = [...ticker, ...live.ticker].slice(0, EVENTS_KEPT);
  change('events');
}

/** Returns true if a bid searches in the market. @param {any} bid @param {string} market */
export function looksIn(bid, market) {
  return bid.markets.includes(market) || bid.instance_type === market.split('/')[0];
}

/** Returns true if a bid or a node of the caller is in the market. @param {string} market */
function concerns(market) {
  return live.nodes.some((node) => node.market === market) || live.bids.some((bid) => looksIn(bid, market));
}

/** Says what a tenant must not miss. @param {any} event */
function say(event) {
  if (event.notice_started) {
    const left = span(Number(event.notice_started.deadline_us) - clock.now());
    announce(`Notice for node ${event.notice_started.allocation}: it ends in ${left}.`, 'assertive');
  } else if (event.notice_rescinded) announce(`Node ${event.notice_rescinded.allocation} stays.`);
  else if (event.allocated?.bid) announce(`Bid ${event.allocated.bid} has node ${event.allocated.allocation}.`);
  else if (event.ended) announce(`Node ${event.ended.allocation} ended: ${endReason(event.ended.reason)}.`);
  else if (event.charged) announce(`Charged ${dollars(event.charged.debit_micros)}.`);
}

/** @type {(() => void) | null} */
let stop = null;
/** @type {ReturnType<typeof setInterval> | undefined} */
let ticking;
/** Somebody's session has begun, and has not ended. */
let begun = false;

/** Starts to follow the market, on behalf of the person of this window. */
export function start() {
  halt();
  begun = true;
  const path = (/** @type {string} */ cursor) => {
    const place = `cursor=${encodeURIComponent(cursor)}`;
    return session.person ? `/v1/events/stream?${place}${whose()}` : `/v1/prices/stream?${place}`;
  };
  live.connection = 'connecting';
  change('connection');
  stop = follow({
    begin: loadAll,
    path,
    onFrame,
    onLive: () => {
      live.lastFrame = Date.now();
      live.connection = 'live';
      change('connection');
      // What changed while the connection was lost and is in no event of ours.
      wantMarkets();
      wantOwn();
    },
    onLost: () => {
      live.connection = 'lost';
      change('connection');
    },
  });
  ticking = setInterval(() => change('second'), 1000);
}

/** Ends the stream. What is known stays. */
export function halt() {
  stop?.();
  stop = null;
  clearInterval(ticking);
}

/** Returns true if the market is followed, also while the engine cannot be reached. */
export function isFollowed() {
  return begun || live.connection === 'lost';
}

/** Forgets everything, for the next person. */
export function forget() {
  halt();
  begun = false;
  generation += 1;
  Object.assign(live, { markets: new Map(), bids: [], nodes: [], events: [], ticker: [], connection: 'connecting', loaded: false });
}

// A browser has few connections to one host, and a stream takes one. A page that is not seen gives it back, and asks for its own
// nodes from time to time.
document.addEventListener('visibilitychange', () => {
  if (!begun) return;
  if (document.hidden) {
    halt();
    // A frame that was asked for does not come.
    draw();
    ticking = setInterval(wantOwn, HIDDEN_MS);
  } else start();
});
