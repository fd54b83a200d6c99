// What nodes cost and what units earn: now, by hour or day, and as a file.

import { clock, list, request } from '../api.js';
import { isSameDay, shifted, startAfter, startOf, starts } from '../calendar.js';
import { barChart } from '../chart.js';
import { csv } from '../csv.js';
import { chargePart, segmentPart } from '../cut.js';
import { fill, h, keyed, setText, table } from '../dom.js';
import { amount, axisTime, day, dollars, plural, shortTime, span } from '../format.js';
import { live } from '../live.js';
import { session } from '../session.js';
import { refusalInWords } from '../words.js';

const AGAIN_MS = 2000;
/** The least time between two reads, in times of what a read takes: that of many charges takes long. */
const REST = 8;
/** The most charges that are read. A statement has the sums of all. */
const MOST = 5000;

/** The periods to choose from: the hour or day of now, and as many before it as `back` says. @type {{name: string, unit: import('../calendar.js').Unit, back: import('../calendar.js').Distance}[]} */
const PERIODS = [
  { name: '24 hours', unit: 'hour', back: { hours: -23 } },
  { name: '7 days', unit: 'day', back: { days: -6 } },
  { name: '30 days', unit: 'day', back: { days: -29 } },
];

/** Returns when a period begins. @param {typeof PERIODS[0]} period */
function startOfPeriod({ unit, back }) {
  return startOf(shifted(clock.now(), back), unit);
}

/** @returns {import('../main.js').View} */
export function moneyView() {
  const admin = Boolean(session.person?.admin);
  const both = session.person?.tenant && session.person.provider;
  /** Shows what is earned instead of what is spent. */
  let earns = Boolean(session.person?.provider && !session.person.tenant);
  /** The account whose money is shown; empty for all accounts. */
  let account = session.person?.account ?? '';
  let period = PERIODS[0];
  let group = 'bid';
  let closed = false;
  /** @type {any[]} */
  let charges = [];
  const side = () => (earns ? 'credit_micros' : 'debit_micros');
  const chart = barChart();
  const spendTitle = h('h2', { id: 'spend-title' });
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
  const whose = h('select', { 'aria-label': 'Account', onchange: () => { account = whose.value; read(); } });
  const what = h('select', { 'aria-label': 'Spend or earnings', onchange: () => { earns = what.value === 'earned'; read(); } },
    h('option', { value: 'spent' }, 'spent'), h('option', { value: 'earned' }, 'earned'));
  const by = h('select', { 'aria-label': 'Sums by', onchange: () => { group = by.value; draw(); } });
  let groups = '';

  const root = h('div', {},
    h('div', { class: 'title' }, h('h1', {}, 'Money'), h('div', { class: 'actions' }, admin && whose, both && what, periods)),
    error, facts,
    h('section', { class: 'panel', 'aria-labelledby': 'spend-title' }, spendTitle, chart.root),
    h('section', { class: 'panel flush', 'aria-labelledby': 'sums-title' },
      h('div', { class: 'title' }, h('h2', { id: 'sums-title' }, 'Sums'),
        h('div', { class: 'actions' }, by, h('button', { type: 'button', onclick: () => download(charges, account || 'all-accounts') }, 'Statement as CSV'))),
      lines.root, empty, note));

  let next = 0;
  const read = async () => {
    if (closed || document.hidden) return;
    const began = performance.now();
    const [asked, of, earned] = [period, account, earns];
    const from = startOfPeriod(asked);
    const named = admin ? `account=${encodeURIComponent(of)}` : '';
    try {
      const [found, statement, nodes, owner] = await Promise.all([
        list(`/v1/charges?from_us=${from}&${named}`, 'charges', MOST),
        // A statement is of one account.
        of || !admin ? request('GET', `/v1/statement?from_us=${from}&${named}`) : null,
        admin ? list(`/v1/allocations?state=ACTIVE&${named}`, 'allocations') : { entries: live.nodes },
        of || !admin ? request('GET', `/v1/account?${named}`) : null,
      ]);
      if (closed || asked !== period || of !== account || earned !== earns) return;
      next = performance.now() + REST * (performance.now() - began);
      if (statement) clock.set(statement.to_us);
      // An account may buy and sell.
      const isShown = (/** @type {any} */ entry) => !of || (earns ? entry.provider : entry.tenant) === of;
      charges = found.entries.filter(isShown).map((/** @type {any} */ charge) => chargePart(charge, from)).filter(Boolean);
      error.textContent = '';
      setText(note, found.cut ? `The first ${MOST.toLocaleString('en')} charges are shown; kubebid charges list has all.` : '');
      drawFacts(statement ?? sumsOf(charges), nodes.entries.filter(isShown), owner?.funds);
      draw();
    } catch (problem) {
      if (!closed && live.connection === 'live') error.textContent = refusalInWords(problem);
    }
  };

  /** @param {any} statement @param {any[]} nodes @param {any} funds what the account can spend; absent if it is unlimited */
  const drawFacts = (statement, nodes, funds) => {
    // What an earlier period had and this one takes back.
    const corrected = statement.corrected;
    const [charged, accrued] = [BigInt(statement.charged[side()]) - BigInt(corrected?.[side()] ?? 0), BigInt(statement.accrued[side()])];
    const running = nodes.filter((node) => node.state === 'ACTIVE');
    const rate = running.reduce((sum, node) => sum + BigInt(node.price_micros), 0n);
    const time = Number(statement.charged.node_time_us) + Number(statement.accrued.node_time_us) - Number(corrected?.node_time_us ?? 0);
    const fact = (/** @type {string} */ label, /** @type {Node} */ value, /** @type {string} */ hint) => h('div', {}, h('dt', {}, label), h('dd', {}, value), h('dd', { class: 'hint' }, hint));
    fill(facts,
      fact(earns ? 'Earning now' : 'Running cost', h('span', {}, amount(rate), ' / h'), plural(running.length, 'running node')),
      fact('So far', amount(accrued), 'of nodes that run, not charged yet'),
      fact(earns ? 'Credited' : 'Charged', amount(charged), `in the last ${period.name}`),
      fact('Node time', h('span', {}, span(time)), 'that was billed'),
      ...(funds && !earns ? [fact('Available', amount(BigInt(funds.available_micros)), ofFunds(funds))] : []));
  };

  const draw = () => {
    const begins = starts(startOfPeriod(period), clock.now(), period.unit);
    const edges = [...begins, startAfter(begins[begins.length - 1], period.unit)];
    const parts = begins.map(() => 0n);
    const keys = new Set();
    /** @type {Map<string, {sum: bigint, accrued: bigint, time: number}>} */
    const sums = new Map();
    for (const charge of charges) {
      for (const segment of charge.segments) {
        // An hour of the market may be in two hours or days of the local clock.
        begins.forEach((at, index) => {
          const part = segmentPart(segment, at, edges[index + 1]);
          if (part) parts[index] += BigInt(part.amount_micros) - (earns ? BigInt(part.fee_micros) : 0n);
        });
      }
      for (const key of Object.keys(charge.labels)) keys.add(key);
      const name = nameOf(charge, group);
      const line = sums.get(name) ?? { sum: 0n, accrued: 0n, time: 0 };
      line.sum += BigInt(charge[side()]);
      if (!charge.reason) line.accrued += BigInt(charge[side()]);
      line.time += Number(charge.to_us) - Number(charge.from_us);
      sums.set(name, line);
    }
    const isHour = period.unit === 'hour';
    const bars = parts.map((sum, index) => {
      const at = begins[index];
      const name = isHour ? `${isSameDay(at, clock.now()) ? '' : `${day(at)}, `}${shortTime(at)}` : day(at);
      return { label: isHour ? axisTime(at, false) : day(at), value: Number(sum), title: `${name}: ${dollars(sum)}` };
    });
    const all = [...sums.values()].reduce((total, line) => total + line.sum, 0n);
    setText(spendTitle, earns ? 'Earnings' : 'Spend');
    chart.draw({ bars, unit: isHour ? '$ each hour' : '$ each day' }, `${earns ? 'Earnings' : 'Spend'}. ${dollars(all)} in the last ${period.name}.`);
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
    const options = [...(earns && !admin ? [] : [['bid', 'by bid']]), ...(admin ? [['tenant', 'by tenant'], ['provider', 'by provider']] : []), ['market', 'by market'], ['unit', 'by unit'], ...keys.map((key) => [`label:${key}`, `by label ${key}`])];
    by.replaceChildren(...options.map(([value, text]) => h('option', { value }, text)));
    if (!options.some(([value]) => value === group)) group = options[0][0];
    by.value = group;
  };
  drawGroups([]);
  if (admin) {
    whose.append(h('option', { value: account }, account));
    list('/v1/accounts', 'accounts').then(({ entries }) => {
      const chosen = whose.value;
      whose.replaceChildren(h('option', { value: '' }, 'all accounts'), ...entries.map(({ name }) => h('option', { value: name }, name)));
      whose.value = chosen;
    }, (problem) => { error.textContent = refusalInWords(problem); });
  }
  const again = setInterval(() => { if (live.connection !== 'lost' && performance.now() >= next) read(); }, AGAIN_MS);
  read();
  return { title: 'Money', root, close: () => { closed = true; clearInterval(again); } };
}

/** Says what the available money is a part of. @param {any} funds */
function ofFunds({ funds_micros: given, reserved_micros: reserved, runway_us: runway, budget }) {
  const lasts = runway ? `; it lasts ${span(Number(runway))} at this cost` : '';
  const monthly = budget ? `; ${dollars(BigInt(budget.monthly_micros))} a month` : '';
  return `of ${dollars(BigInt(given))}, of which nodes reserve ${dollars(BigInt(reserved))}${lasts}${monthly}`;
}

/** @param {any} charge @param {string} group */
function nameOf(charge, group) {
  if (group === 'market') return charge.market;
  if (group === 'unit') return charge.unit;
  if (group === 'tenant') return charge.tenant ?? '–';
  if (group === 'provider') return charge.provider;
  if (group.startsWith('label:')) return charge.labels[group.slice(6)] ?? 'without the label';
  return charge.bid ? `Bid ${charge.bid}, ${charge.market}` : charge.market;
}

/** Returns the sums of charges as a statement has them. @param {any[]} charges */
function sumsOf(charges) {
  const sums = (/** @type {any[]} */ some) => {
    const sum = (/** @type {string} */ key) => some.reduce((all, charge) => all + BigInt(charge[key]), 0n);
    return { debit_micros: sum('debit_micros'), credit_micros: sum('credit_micros'), node_time_us: some.reduce((all, charge) => all + Number(charge.to_us) - Number(charge.from_us), 0) };
  };
  return { charged: sums(charges.filter((charge) => charge.reason)), accrued: sums(charges.filter((charge) => !charge.reason)) };
}

/** @param {any[]} charges @param {string} whose */
function download(charges, whose) {
  const url = URL.createObjectURL(new Blob([csv(charges)], { type: 'text/csv' }));
  h('a', { href: url, download: `kubebid-${whose}.csv` }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}
