// One market: its price over time, its numbers, depth, supply and public events.

import { placeLink } from '../address.js';
import { clock, list, marketPath, request } from '../api.js';
import { HOUR_US, MINUTE_US, SECOND_US, shifted } from '../calendar.js';
import { depthChart, priceChart } from '../chart.js';
import { fill, h, keyed } from '../dom.js';
import { dollars, plural, price, span, time } from '../format.js';
import { live, paced, publicMarket } from '../live.js';
import { session } from '../session.js';
import { eventInWords } from '../words.js';

const RANGES = [
  { name: 'Hour', distance: { hours: -1 } },
  { name: 'Day', distance: { days: -1 } },
  { name: 'Week', distance: { days: -7 } },
  { name: 'Month', distance: { months: -1 } },
];
/** The lengths of bars, and how many of them a chart shows at most. */
const BARS = [...[1, 2, 5, 10, 15, 30].map((seconds) => seconds * SECOND_US), ...[1, 2, 5, 10, 15, 30].map((minutes) => minutes * MINUTE_US),
  ...[1, 2, 4, 6].map((hours) => hours * HOUR_US)];
const BARS_SHOWN = 180;
const LONGEST_BAR = BARS[BARS.length - 1];
/** The least time that a chart shows. */
const LEAST_SPAN = 2 * MINUTE_US;
/** The time between two reads of the bars. Meanwhile the last one follows the price. */
const CHART_MS = 5000;
/** The least time between two drawings of the last bar, and between two reads of the depth. */
const PRICE_MS = 600;
const DEPTH_MS = 1000;
const TICKER = 15;

/** The five numbers, in the order of the guide. */
const NUMBERS = [
  ['market_price_micros', 'Market price', 'What a new holder pays'],
  ['entry_price_micros', 'Entry price', 'Gets a new bid one node now'],
  ['floor_micros', 'Floor', 'The least that a provider asks'],
  ['lowest_accepted_micros', 'Lowest accepted', 'Lowest ceiling with a node'],
  ['highest_losing_micros', 'Highest losing', 'Highest ceiling that waits'],
];

/** Returns the place of an event in the journal. @param {any} event */
function placeOf(event) {
  return `${event.seq}.${event.index}`;
}

/** @param {string} name @returns {import('../main.js').View} */
export function marketView(name) {
  let range = RANGES[0];
  /** @type {any[]} */
  let bars = [];
  let barLength = SECOND_US;
  let closed = false;
  const chart = priceChart(`Price of ${name}`);
  const depth = depthChart();
  const numbers = h('dl', { class: 'numbers' });
  const supplyBar = h('div', { class: 'supply-bar', 'aria-hidden': 'true' });
  const supplyKey = h('ul', { class: 'supply-key' });
  const ticker = h('ol', { class: 'ticker' });
  const rules = h('dl', { class: 'rules' });
  const missing = h('p', { class: 'error', hidden: true }, 'There is no such market, or it has ended.');
  const closing = h('p', { class: 'hint', hidden: true }, 'This market is closing: it takes no new bids, and ends when it is empty.');
  const ranges = h('div', { class: 'choices', role: 'group', 'aria-label': 'Time of the chart' }, ...RANGES.map((choice) =>
    h('button', {
      type: 'button',
      'aria-pressed': String(choice === range),
      onclick: (/** @type {MouseEvent} */ event) => {
        range = choice;
        for (const button of ranges.children) button.setAttribute('aria-pressed', String(button === event.currentTarget));
        readBars();
      },
    }, choice.name)));

  const root = h('div', {},
    h('p', { class: 'crumb' }, h('a', { href: '#/markets' }, 'Markets')),
    h('div', { class: 'title' }, h('h1', {}, name),
      session.person?.tenant && h('a', { class: 'button primary', href: placeLink(name) }, 'Place a bid')),
    missing,
    closing,
    numbers,
    h('section', { class: 'panel', 'aria-labelledby': 'chart-title' },
      h('div', { class: 'title' }, h('h2', { id: 'chart-title' }, 'Price'), ranges), chart.root),
    h('div', { class: 'columns' },
      h('section', { class: 'panel', 'aria-labelledby': 'depth-title' }, h('h2', { id: 'depth-title' }, 'Depth'), depth.root),
      h('section', { class: 'panel', 'aria-labelledby': 'supply-title' },
        h('h2', { id: 'supply-title' }, 'Supply'), supplyBar, supplyKey,
        h('h2', {}, 'Rules'), rules)),
    h('section', { class: 'panel', 'aria-labelledby': 'ticker-title' }, h('h2', { id: 'ticker-title' }, 'Events'), ticker));

  /** Returns from when the chart shows prices. A young market fills it with the time that it has. */
  const chartStart = () => {
    const opened = Number(live.markets.get(name)?.opened_at_us ?? 0);
    return Math.max(shifted(clock.now(), range.distance), Math.min(opened, clock.now() - LEAST_SPAN));
  };
  const readBars = async () => {
    const asked = range;
    const from = Math.floor(chartStart());
    const length = BARS.find((candidate) => candidate >= (clock.now() - from) / BARS_SHOWN) ?? LONGEST_BAR;
    try {
      const found = await list(marketPath(name, `prices?bar_us=${length}&from_us=${from}`), 'bars');
      if (closed || asked !== range) return;
      bars = found.entries;
      barLength = length;
      drawChart();
    } catch {
      // The connection shows that the engine is away; the next reading tells.
    }
  };
  /** The price in the last bar as it is drawn. */
  let drawnPrice = 0;
  const priceNow = () => Number(live.markets.get(name)?.price.numbers.market_price_micros ?? 0);
  const drawChart = () => {
    const to = clock.now();
    const from = chartStart();
    drawnPrice = priceNow();
    const shown = bars.filter((bar) => Number(bar.high_micros) > 0).map((bar) => {
      // Without an offer and a bid the price is 0, which is no price: a bar begins with the first one.
      const low = Number(bar.low_micros) || Number(bar.open_micros) || Number(bar.close_micros) || Number(bar.high_micros);
      return {
        start: Number(bar.start_us), end: Number(bar.start_us) + barLength, open: Number(bar.open_micros), high: Number(bar.high_micros),
        low, close: Number(bar.close_micros) || low, mean: Math.max(low, Number(bar.mean_micros)),
      };
    });
    const sorted = shown.map((bar) => bar.mean).sort((a, b) => a - b);
    const at = (/** @type {number} */ share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    const marks = sorted.length > 4 ? [{ label: 'median', value: at(0.5) }] : [];
    const summary = sorted.length
      ? `Last ${range.name.toLowerCase()}: 10th percentile ${dollars(at(0.1))}, median ${dollars(at(0.5))}, 90th percentile ${dollars(at(0.9))}.`
      : 'No prices in this time.';
    const last = shown.at(-1);
    if (last && drawnPrice > 0) {
      // The bars were read some seconds ago.
      Object.assign(last, { end: Math.max(last.end, to), high: Math.max(last.high, drawnPrice), low: Math.min(last.low, drawnPrice), close: drawnPrice });
    }
    chart.draw({ bars: shown, from, to, marks }, summary);
  };
  const drawPrice = paced(PRICE_MS, async () => { if (!closed) drawChart(); });
  const readDepth = paced(DEPTH_MS, async () => {
    if (closed || document.hidden) return;
    try {
      const found = await request('GET', marketPath(name, 'depth?levels=1000'));
      const demand = found.demand.map((/** @type {any} */ level) => ({ price: Number(level.ceiling_micros), nodes: level.unmet + level.held + level.claimed }));
      const supply = found.supply.map((/** @type {any} */ level) => ({ price: Number(level.reserve_micros), nodes: level.free + level.allocated + level.notice }));
      const sum = (/** @type {{nodes: number}[]} */ levels) => levels.reduce((all, level) => all + level.nodes, 0);
      depth.draw({ demand, supply, price: priceNow() },
        `Depth: ${plural(sum(demand), 'node')} wanted or held, ${plural(sum(supply), 'unit')} offered.`);
    } catch {
      // As above.
    }
  });

  const refresh = setInterval(() => { if (!document.hidden && live.connection !== 'lost') readBars(); }, CHART_MS);
  readBars();

  const drawNumbers = () => {
    const market = live.markets.get(name);
    missing.hidden = !live.loaded || Boolean(market);
    if (!market) return;
    closing.hidden = market.state !== 'CLOSING';
    fill(numbers, ...NUMBERS.map(([key, label, meaning]) => {
      const value = market.price.numbers[key];
      const none = value === undefined || (key === 'highest_losing_micros' && value === '0');
      return h('div', { title: meaning }, h('dt', {}, label), h('dd', {}, price(none ? undefined : value, key === 'entry_price_micros' ? 'up' : 'nearest')), h('dd', { class: 'hint' }, meaning));
    }));
    const supply = market.price.supply;
    const parts = [
      ['allocated', 'allocated', supply.allocated],
      ['claimed', 'under notice and claimed', supply.claimed],
      ['notice', 'under notice', supply.notice - supply.claimed],
      ['free', 'free', supply.free],
      ...(supply.resting ? [['resting', 'resting: to be repaired', supply.resting]] : []),
    ];
    keyed(supplyBar, parts, (part) => String(part[0]), (part) => {
      const piece = h('span', { class: `piece ${part[0]}` });
      return { root: piece, update: (next) => { piece.style.flexGrow = String(next[2]); piece.hidden = next[2] === 0; } };
    });
    fill(supplyKey, ...parts.map(([kind, label, count]) => h('li', { class: String(kind) }, h('strong', {}, String(count)), ` ${label}`)));
    const law = market.rules;
    fill(rules,
      ...[['Protected for', span(Number(law.min_runtime_us))], ['Notice', span(Number(law.notice_us))],
        ['To displace', `${law.increment_bps / 100} % more`], ['Minimum charge', span(Number(law.min_charge_us))]]
        .map(([label, value]) => h('div', {}, h('dt', {}, label), h('dd', {}, value))));
  };
  /** The latest events of this market, newest first. @type {any[]} */
  let past = [];
  const readPast = async () => {
    // Without a token there is only what the stream tells.
    if (!session.person) return;
    try {
      const kinds = ['price_changed', 'market_opened', 'rules_changed', 'market_closing', 'market_ended'].map((kind) => `&kind=${kind}`).join('');
      past = (await request('GET', `/v1/events?newest_first=true&page_size=${TICKER}&market=${encodeURIComponent(name)}${kinds}`)).events;
      drawTicker();
    } catch {
      // As above.
    }
  };
  const drawTicker = () => {
    const fresh = live.ticker.filter((event) => publicMarket(event) === name);
    const all = new Map([...past, ...fresh].map((event) => [placeOf(event), event]));
    past = [...all.values()].sort((a, b) => Number(b.seq) - Number(a.seq) || b.index - a.index).slice(0, TICKER);
    keyed(ticker, past, placeOf, (event) => {
      const words = event.price_changed ? eventInWords(event).replace(`${name}: `, '') : eventInWords(event);
      return { root: h('li', {}, time(event.at_us), h('span', {}, words.charAt(0).toUpperCase() + words.slice(1))), update: () => {} };
    });
  };
  readPast();

  return {
    title: name,
    root,
    update: (topics) => {
      if (topics.has('markets')) {
        drawNumbers();
        readDepth();
        if (bars.length && priceNow() !== drawnPrice) drawPrice();
      }
      if (topics.has('events')) drawTicker();
    },
    close: () => {
      closed = true;
      clearInterval(refresh);
    },
  };
}
