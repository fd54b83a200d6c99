// What nodes cost and what units earn: now, by hour or day, and as a file.

import { clock, list, request } from '../api.js';
import { barChart } from '../chart.js';
import { csv } from '../csv.js';
import { fill, h, keyed, setText, table } from '../dom.js';
import { amount, day, dollars, plural, shortTime, span } from '../format.js';
import { live } from '../live.js';
import { session } from '../session.js';
import { refusalInWords } from '../words.js';

const HOUR_US = 3_600_000_000;
const DAY_US = 24 * HOUR_US;
const AGAIN_MS = 2000;
/** The most charges that are read. A statement has the sums of all. */
const MOST = 5000;

const PERIODS = [
  { name: '24 hours', span: DAY_US, bucket: HOUR_US },
  { name: '7 days', span: 7 * DAY_US, bucket: DAY_US },
  { name: '30 days', span: 30 * DAY_US, bucket: DAY_US },
];

/** Returns the start of the local hour or day of an instant. @param {number} us @param {number} bucket */
function bucketOf(us, bucket) {
  const date = new Date(us / 1000);
  if (bucket === HOUR_US) date.setMinutes(0, 0, 0);
  else date.setHours(0, 0, 0, 0);
  return date.getTime() * 1000;
}

/** @returns {import('../main.js').View} */
export function moneyView() {
  const earns = session.person?.provider && !session.person.admin && !session.person.tenant;
  const side = earns ? 'credit_micros' : 'debit_micros';
  let period = PERIODS[0];
  let group = 'bid';
  let closed = false;
  /** @type {any[]} */
  let charges = [];
  const chart = barChart(earns ? 'Earnings' : 'Spend');
  const facts = h('dl', { class: 'numbers' });
  const error = h('p', { class: 'error', role: 'alert' });
  const note = h('p', { class: 'hint' });
  const lines = table('Sums', [{ text: 'What' }, { text: 'Time', number: true, class: 'mid' }, { text: 'So far', number: true, class: 'mid' }, { text: 'Sum', number: true }]);
  const empty = h('p', { class: 'empty' }, 'Nothing was charged in this time.');

  const choose = (/** @type {HTMLElement} */ bar, /** @type {EventTarget | null} */ chosen) => {
    for (const button of bar.children) button.setAttribute('aria-pressed', String(button === chosen));
  };
  const periods = h('div', { class: 'choices', role: 'group', 'aria-label': 'Period' }, ...PERIODS.map((one) => h('button', {
    type: 'button', 'aria-pressed': String(one === period),
    onclick: (/** @type {MouseEvent} */ event) => { period = one; choose(periods, event.currentTarget); read(); },
  }, one.name)));
  const by = h('select', { 'aria-label': 'Sums by', onchange: () => { group = by.value; draw(); } });
  let groups = '';

  const root = h('div', {},
    h('div', { class: 'title' }, h('h1', {}, 'Money'), periods),
    error, facts,
    h('section', { class: 'panel', 'aria-labelledby': 'spend-title' }, h('h2', { id: 'spend-title' }, earns ? 'Earnings' : 'Spend'), chart.root),
    h('section', { class: 'panel flush', 'aria-labelledby': 'sums-title' },
      h('div', { class: 'title' }, h('h2', { id: 'sums-title' }, 'Sums'),
        h('div', { class: 'actions' }, by, h('button', { type: 'button', onclick: () => download(charges) }, 'Statement as CSV'))),
      lines.root, empty, note));

  const read = async () => {
    if (closed || document.hidden) return;
    const asked = period;
    const from = bucketOf(clock.now() - asked.span + asked.bucket, asked.bucket);
    try {
      const [found, statement] = await Promise.all([list(`/v1/charges?from_us=${from}`, 'charges', MOST), request('GET', `/v1/statement?from_us=${from}`)]);
      if (closed || asked !== period) return;
      clock.set(statement.to_us);
      charges = found.entries;
      error.textContent = '';
      setText(note, found.cut ? `The first ${MOST} charges are shown; kubebid charges list has all.` : '');
      drawFacts(statement);
      draw();
    } catch (problem) {
      if (!closed && live.connection === 'live') error.textContent = refusalInWords(problem);
    }
  };

  /** @param {any} statement */
  const drawFacts = (statement) => {
    const [charged, accrued] = [BigInt(statement.charged[side]), BigInt(statement.accrued[side])];
    const running = live.nodes.filter((node) => node.state === 'ACTIVE');
    const rate = running.reduce((sum, node) => sum + BigInt(node.price_micros), 0n);
    const time = Number(statement.charged.node_time_us) + Number(statement.accrued.node_time_us);
    const fact = (/** @type {string} */ label, /** @type {Node} */ value, /** @type {string} */ hint) => h('div', {}, h('dt', {}, label), h('dd', {}, value), h('dd', { class: 'hint' }, hint));
    fill(facts,
      fact(earns ? 'Earning now' : 'Running cost', h('span', {}, amount(rate), ' / h'), plural(running.length, 'running node')),
      fact('So far', amount(accrued), 'of nodes that run, not charged yet'),
      fact(earns ? 'Credited' : 'Charged', amount(charged), `in the last ${period.name}`),
      fact('Node time', h('span', {}, span(time)), 'that was billed'));
  };

  const draw = () => {
    /** @type {Map<number, bigint>} */
    const buckets = new Map();
    const end = bucketOf(clock.now(), period.bucket);
    for (let at = bucketOf(clock.now() - period.span + period.bucket, period.bucket); at <= end; at = bucketOf(at + period.bucket * 1.5, period.bucket)) buckets.set(at, 0n);
    const keys = new Set();
    /** @type {Map<string, {sum: bigint, accrued: bigint, time: number}>} */
    const sums = new Map();
    for (const charge of charges) {
      for (const segment of charge.segments) {
        const at = bucketOf(Number(segment.from_us), period.bucket);
        // Segments are of what the tenant pays. A provider gets the same part of each as of the whole.
        const debit = BigInt(segment.amount_micros);
        const part = earns && charge.debit_micros !== '0' ? (debit * BigInt(charge.credit_micros)) / BigInt(charge.debit_micros) : debit;
        if (buckets.has(at)) buckets.set(at, (buckets.get(at) ?? 0n) + part);
      }
      for (const key of Object.keys(charge.labels)) keys.add(key);
      const name = nameOf(charge, group);
      const line = sums.get(name) ?? { sum: 0n, accrued: 0n, time: 0 };
      line.sum += BigInt(charge[side]);
      if (!charge.reason) line.accrued += BigInt(charge[side]);
      line.time += Number(charge.to_us) - Number(charge.from_us);
      sums.set(name, line);
    }
    const bars = [...buckets].map(([at, sum]) => {
      const label = period.bucket === HOUR_US ? shortTime(at) : day(at);
      return { label, value: Number(sum), title: `${label}: ${dollars(sum)}` };
    });
    const all = [...sums.values()].reduce((total, line) => total + line.sum, 0n);
    chart.draw({ bars }, `${dollars(all)} in the last ${period.name}.`);
    drawGroups([...keys].map(String).sort());
    const rows = [...sums].sort(([, a], [, b]) => (a.sum < b.sum ? 1 : a.sum > b.sum ? -1 : 0));
    keyed(lines.body, rows, ([name]) => name, ([name]) => {
      const [time, accrued, sum] = [h('td', { class: 'number mid' }), h('td', { class: 'number mid' }), h('td', { class: 'number strong' })];
      return {
        root: h('tr', {}, h('th', { scope: 'row' }, name), time, accrued, sum),
        update: ([, line]) => { setText(time, span(line.time)); fill(accrued, amount(line.accrued)); fill(sum, amount(line.sum)); },
      };
    });
    empty.hidden = rows.length > 0;
    lines.root.hidden = rows.length === 0;
  };
  /** @param {string[]} keys */
  const drawGroups = (keys) => {
    if (keys.join('\n') === groups && by.childElementCount) return;
    groups = keys.join('\n');
    const options = [...(earns ? [] : [['bid', 'by bid']]), ['market', 'by market'], ['unit', 'by unit'], ...keys.map((key) => [`label:${key}`, `by label ${key}`])];
    by.replaceChildren(...options.map(([value, text]) => h('option', { value }, text)));
    if (!options.some(([value]) => value === group)) group = options[0][0];
    by.value = group;
  };
  drawGroups([]);
  const again = setInterval(() => { if (live.connection !== 'lost') read(); }, AGAIN_MS);
  read();
  return { title: 'Money', root, close: () => { closed = true; clearInterval(again); } };
}

/** @param {any} charge @param {string} group */
function nameOf(charge, group) {
  if (group === 'market') return charge.market;
  if (group === 'unit') return charge.unit;
  if (group.startsWith('label:')) return charge.labels[group.slice(6)] ?? 'without the label';
  return charge.bid ? `Bid ${charge.bid}, ${charge.market}` : charge.market;
}

/** @param {any[]} charges */
function download(charges) {
  const url = URL.createObjectURL(new Blob([csv(charges)], { type: 'text/csv' }));
  h('a', { href: url, download: `kubebid-${session.person?.account ?? 'statement'}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
