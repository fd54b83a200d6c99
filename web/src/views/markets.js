// All markets: prices, supply, and how the price moved in the last hour.

import { marketLink } from '../address.js';
import { clock, marketPath, request } from '../api.js';
import { HOUR_US, MINUTE_US } from '../calendar.js';
import { sparkline } from '../chart.js';
import { fill, finder, h, keyed, setAttribute, setText, table } from '../dom.js';
import { dollars, price } from '../format.js';
import { live } from '../live.js';

const BAR_US = 2 * MINUTE_US;
const AGAIN_MS = 60_000;
/** The time between two requests for the past of a market. Without a token an address may send a hundred requests a second. */
const APART_MS = 25;

/** @returns {import('../main.js').View} */
export function marketsView() {
  const { root: rows, body } = table('Markets', [
    { text: 'Market' }, { text: 'Price', number: true }, { text: 'Entry', number: true }, { text: 'Floor', number: true },
    { text: 'In use', class: 'use' }, { text: 'Change', number: true }, { text: 'Last hour', class: 'past' },
  ]);
  rows.classList.add('cards', 'markets');
  const empty = h('p', { class: 'empty' }, 'No market is open.');
  const closing = new AbortController();
  const draw = () => {
    const markets = [...live.markets.values()];
    keyed(body, found.pick(markets, (market) => market.market), (market) => market.market, row);
    empty.hidden = markets.length > 0 || !live.loaded;
    rows.hidden = markets.length === 0;
  };
  const found = finder('markets', draw);
  const root = h('div', {},
    h('h1', {}, 'Markets'),
    h('p', { class: 'lead' }, 'Dollars per node-hour. The price is what a new holder pays; the entry price gets a new bid one node, now or when a notice ends.'),
    h('div', { class: 'panel flush' }, h('div', { class: 'search' }, found.find), rows, found.more, empty));

  /** The functions that read the past of each market shown, by its name. @type {Map<string, () => Promise<void>>} */
  const pasts = new Map();
  /** The markets whose past is to be read. @type {Set<string>} */
  const waiting = new Set();
  let reading = false;
  /** Reads the past of markets, one after the other. */
  const readPasts = async () => {
    if (reading) return;
    reading = true;
    for (const name of waiting) {
      waiting.delete(name);
      if (closing.signal.aborted) return;
      await pasts.get(name)?.();
      await new Promise((resolve) => setTimeout(resolve, APART_MS));
    }
    reading = false;
  };
  const again = setInterval(() => {
    if (document.hidden) return;
    for (const name of pasts.keys()) waiting.add(name);
    readPasts();
  }, AGAIN_MS);

  /** @param {any} market */
  const row = (market) => {
    const name = market.market;
    const [priceCell, entryCell, floorCell, changeCell] = ['price strong', 'entry', 'floor', 'change'].map((kind) => h('td', { class: `number ${kind}` }));
    const useText = h('span', {});
    const meter = h('span', { class: 'meter', 'aria-hidden': 'true' }, h('span', {}));
    const state = h('span', { class: 'hint', hidden: true }, 'closing');
    const spark = sparkline();
    /** @type {number[]} */
    let past = [];
    const read = async () => {
      const from = Math.floor(clock.now() - HOUR_US);
      try {
        const answer = await request('GET', marketPath(name, `prices?bar_us=${BAR_US}&from_us=${from}&page_size=1000`), undefined, undefined, closing.signal);
        past = answer.bars.filter((/** @type {any} */ bar) => Number(bar.mean_micros) > 0).map((/** @type {any} */ bar) => Number(bar.mean_micros));
        update(live.markets.get(name) ?? market);
      } catch {
        // The next reading tells.
      }
    };
    pasts.set(name, read);
    waiting.add(name);
    readPasts();
    const update = (/** @type {any} */ next) => {
      state.hidden = next.state !== 'CLOSING';
      const numbers = next.price.numbers;
      const supply = next.price.supply;
      fill(priceCell, price(numbers.market_price_micros));
      fill(entryCell, price(numbers.entry_price_micros, 'up'));
      fill(floorCell, price(numbers.floor_micros));
      const used = supply.allocated + supply.notice;
      setText(useText, `${used} of ${supply.total}`);
      const bar = /** @type {HTMLElement} */ (meter.firstElementChild);
      bar.style.width = `${supply.total ? (100 * used) / supply.total : 0}%`;
      const now = Number(numbers.market_price_micros);
      spark.draw([...past, now]);
      const before = past[0];
      const change = before ? (100 * (now - before)) / before : 0;
      setText(changeCell, before ? `${change > 0.05 ? '+' : change < -0.05 ? '−' : ''}${Math.abs(change).toFixed(1)} %` : '–');
      setAttribute(changeCell, 'title', before ? `${dollars(before)} an hour ago` : null);
    };
    const root = h('tr', {},
      h('th', { scope: 'row' }, h('a', { href: marketLink(name) }, name), state),
      priceCell, entryCell, floorCell,
      h('td', { class: 'use' }, h('span', {}, useText, meter)), changeCell, h('td', { class: 'past' }, spark.root));
    return { root, update };
  };

  return {
    title: 'Markets',
    root,
    update: (topics) => {
      if (topics.has('markets')) draw();
    },
    close: () => {
      closing.abort();
      clearInterval(again);
    },
  };
}
