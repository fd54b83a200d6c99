// What a provider sells: offers, units by state, and what another reserve would do.

import { marketLink } from '../address.js';
import { list, marketPath, request } from '../api.js';
import { command } from '../command.js';
import { announce, busy, field, fill, finder, h, keyed, setAttribute, setText, show, table } from '../dom.js';
import { amount, dollars, amountError, instant, parseDollars, plainDollars, plural, price } from '../format.js';
import { live, ownAfter } from '../live.js';
import { refusalInWords } from '../words.js';
import { commandDialog } from './command-dialog.js';
import { setUpDialog } from './node-access.js';

/** The time between two reads of the offers, and what each of them adds to it: its units are a request of their own. */
const AGAIN_MS = 1000;
const AGAIN_MS_EACH = 100;

/** @type {Record<string, string>} */
const STATES = { FREE: 'Free', ALLOCATED: 'Held', NOTICE: 'Held, under notice', LEAVING: 'Leaves when its notice ends', RESTING: 'Rests: its node was not ready in time' };

/** Says in what state a unit is. @param {any} unit */
function stateOf(unit) {
  const notice = unit.node?.notice;
  const leaves = unit.state === 'LEAVING' && notice ? `Leaves at ${instant(notice.deadline_us)}` : STATES[unit.state];
  if (unit.node?.state !== 'STARTING') return leaves;
  return notice ? `To be started. ${leaves}` : 'Held, to be started';
}

/** @returns {import('../main.js').View} */
export function offersView() {
  let closed = false;
  const facts = h('dl', { class: 'numbers' });
  const status = h('p', { class: 'error', role: 'alert' });
  const offers = table('Your offers', [
    { text: 'Market' }, { text: 'Reserve', number: true }, { text: 'Units', number: true }, { text: 'Held', number: true, class: 'mid' },
    { text: 'Under notice', number: true, class: 'wide' }, { text: 'Actions' },
  ]);
  const none = h('p', { class: 'empty' }, 'You offer nothing yet.');
  const units = table('Units of your offers', [{ text: 'Unit' }, { text: 'State' }, { text: 'Price', number: true, class: 'mid' }, { text: 'Actions' }]);
  /** @type {any[]} */
  let [allOffers, allUnits] = [[], []];
  const drawOffers = () => keyed(offers.body, findOffers.pick(allOffers, (offer) => offer.market), (offer) => offer.market, offerRow);
  const drawUnits = () => {
    // In a long list those come first for which there is something to do.
    const isUrgent = (/** @type {any} */ unit) => unit.node?.state === 'STARTING' || unit.state === 'NOTICE' || unit.state === 'RESTING';
    const sorted = findUnits.isLong(allUnits.length) ? [...allUnits].sort((a, b) => Number(isUrgent(b)) - Number(isUrgent(a))) : allUnits;
    keyed(units.body, findUnits.pick(sorted, (unit) => `${unit.unit} ${stateOf(unit)}`), (unit) => unit.unit, unitRow);
  };
  const findOffers = finder('offers', drawOffers);
  const findUnits = finder('units', drawUnits);
  const unitsPanel = h('section', { class: 'panel flush', 'aria-labelledby': 'units-title', hidden: true },
    h('div', { class: 'title' }, h('h2', { id: 'units-title' }, 'Units'), findUnits.find), units.root, findUnits.more);
  const root = h('div', {},
    h('div', { class: 'title' }, h('h1', {}, 'Offers'),
      h('button', { type: 'button', class: 'primary', onclick: () => offerDialog(null) }, 'New offer')),
    facts, status,
    h('section', { class: 'panel flush', 'aria-labelledby': 'offers-title' }, h('div', { class: 'title' }, h('h2', { id: 'offers-title' }, 'Offers'), findOffers.find), offers.root, findOffers.more, none),
    unitsPanel);

  /** Says what was done, and reads what the provider has. @param {string} words @param {any} answer */
  const done = async (words, { seq }) => {
    announce(words);
    await ownAfter(seq).catch(() => {});
    await read();
  };

  /**
   * Sends the command of a row, or says why it was refused.
   * @param {HTMLButtonElement} button @param {import('../command.js').Command} sent @param {string} words what is said when it is done
   */
  const run = (button, sent, words) => busy(button, async () => {
    status.textContent = '';
    try {
      await done(words, await sent.send());
    } catch (error) {
      status.textContent = refusalInWords(error);
    }
  });

  const offerRow = (/** @type {any} */ first) => {
    let offer = first;
    const cells = [h('td', { class: 'number strong' }), h('td', { class: 'number' }), h('td', { class: 'number mid' }), h('td', { class: 'number wide' })];
    const resumeAll = command(() => ({ method: 'POST', path: marketPath(first.market, 'offer/resume'), body: {} }));
    const resume = h('button', {
      type: 'button', 'aria-label': `Resume all, units in ${first.market}`, onclick: () => { run(resume, resumeAll, 'Resumed.'); },
    }, 'Resume all');
    const change = h('button', { type: 'button', 'aria-label': `Change the offer in ${first.market}`, onclick: () => offerDialog(offer) }, 'Change');
    return {
      root: h('tr', {}, h('th', { scope: 'row' }, h('a', { href: marketLink(first.market) }, first.market)), ...cells,
        h('td', {}, h('div', { class: 'actions' }, change, resume))),
      update: (/** @type {any} */ next) => {
        offer = next;
        fill(cells[0], price(offer.reserve_micros));
        setText(cells[1], `${offer.capacity}`);
        setText(cells[2], `${offer.allocated + offer.notice + offer.leaving}`);
        setText(cells[3], `${offer.notice + offer.leaving}`);
        // What rests later is resumed by another command.
        if (!offer.resting) resumeAll.renew();
        show(resume, offer.resting > 1, change);
      },
    };
  };

  const unitRow = (/** @type {any} */ first) => {
    let unit = first;
    const [node, state, cost] = [h('span', { class: 'hint' }), h('td', {}), h('td', { class: 'number mid' })];
    const button = (/** @type {string} */ text, /** @type {(self: HTMLButtonElement) => void} */ act, kind = '') => {
      const made = h('button', { type: 'button', class: kind, 'aria-label': `${text}, unit ${first.unit}`, onclick: () => act(made) }, text);
      return made;
    };
    /** The node that is reported ready. The next one of the unit is another. */
    let reported = '';
    const reportReady = command(() => ({ method: 'POST', path: `/v1/allocations/${reported}/ready`, body: {} }));
    const ready = button('Report ready', (self) => {
      if (reported !== unit.node.allocation) reportReady.renew();
      reported = unit.node.allocation;
      run(self, reportReady, 'Reported ready.');
    }, 'primary');
    const setUp = button('Set up', () => setUpDialog(unit.node, done));
    // Its tenant reaches a node that moves by what is reported again.
    const access = button('Access', () => setUpDialog(unit.node, done));
    const resumeUnit = command(() => ({ method: 'POST', path: unitPath(unit, 'resume'), body: {} }));
    const resume = button('Resume', (self) => { run(self, resumeUnit, 'Resumed.'); }, 'primary');
    const withdraw = button('Withdraw', () => unitDialog(unit, 'withdraw', done));
    const lost = button('Lost', () => unitDialog(unit, 'lost', done), 'quiet');
    return {
      root: h('tr', {}, h('th', { scope: 'row' }, first.unit, node), state, cost, h('td', {}, h('div', { class: 'actions' }, ready, setUp, access, resume, withdraw, lost))),
      update: (/** @type {any} */ next) => {
        unit = next;
        const starting = unit.node?.state === 'STARTING';
        setText(node, unit.node ? `node ${unit.node.allocation}` : '');
        setText(state, stateOf(unit));
        fill(cost, unit.node ? price(unit.node.price_micros) : '');
        show(access, Boolean(unit.node) && !starting, lost);
        const beside = access.hidden ? lost : access;
        show(ready, starting, beside);
        show(setUp, starting, beside);
        if (unit.state !== 'RESTING') resumeUnit.renew();
        show(resume, unit.state === 'RESTING', beside);
        show(withdraw, unit.state !== 'LEAVING', beside);
        setAttribute(cost, 'title', null);
      },
    };
  };

  let reading = false;
  let next = 0;
  const read = async () => {
    if (reading || closed || document.hidden) return;
    reading = true;
    try {
      const [found, statement] = await Promise.all([list('/v1/offers', 'offers'), request('GET', '/v1/statement')]);
      const lists = await Promise.all(found.entries.map((offer) => list(marketPath(offer.market, 'offer'), 'units')));
      if (closed) return;
      const nodes = new Map(live.nodes.map((node) => [node.unit, node]));
      next = performance.now() + AGAIN_MS_EACH * found.entries.length;
      allOffers = found.entries;
      allUnits = lists.flatMap((one) => one.entries).map((unit) => ({ ...unit, node: nodes.get(unit.unit) }));
      drawOffers();
      drawUnits();
      none.hidden = found.entries.length > 0;
      offers.root.hidden = !none.hidden;
      unitsPanel.hidden = !none.hidden;
      const sum = (/** @type {string} */ key) => found.entries.reduce((all, offer) => all + offer[key], 0);
      const fact = (/** @type {string} */ label, /** @type {Node | string} */ value, /** @type {string} */ hint) => h('div', {}, h('dt', {}, label), h('dd', {}, value), h('dd', { class: 'hint' }, hint));
      fill(facts,
        fact('Units', String(sum('capacity')), sum('resting') ? `on offer, ${sum('resting')} of them resting` : 'on offer'),
        fact('Held', String(sum('allocated') + sum('notice') + sum('leaving')), 'by tenants'),
        fact('Earned', amount(statement.charged.credit_micros), 'credited in all'),
        fact('So far', amount(statement.accrued.credit_micros), 'of nodes that run'));
    } catch (error) {
      if (!closed && live.connection === 'live') status.textContent = refusalInWords(error);
    }
    reading = false;
  };
  const again = setInterval(() => { if (live.connection !== 'lost' && performance.now() >= next) read(); }, AGAIN_MS);
  read();

  const offerDialog = (/** @type {any} */ offer) => {
    const isNew = (/** @type {any} */ market) => market.state === 'OPEN' && !allOffers.some((/** @type {any} */ one) => one.market === market.market);
    const names = offer ? [offer.market] : [...live.markets.values()].filter(isNew).map((market) => market.market);
    const where = h('select', { disabled: Boolean(offer), required: true }, ...names.map((name) => h('option', { value: name }, name)));
    if (offer) where.value = offer.market;
    const reserve = h('input', { inputmode: 'decimal', required: true, autocomplete: 'off', value: offer ? plainDollars(offer.reserve_micros) : '' });
    const capacity = h('input', { type: 'number', min: offer ? '0' : '1', step: '1', required: true, value: offer ? offer.capacity : '1' });
    const effect = h('p', { class: 'quote', role: 'status' });
    let asked = 0;
    const look = async () => {
      asked += 1;
      const mine = asked;
      const micros = parseDollars(reserve.value);
      if (!reserve.value.trim()) return setText(effect, '');
      if (micros === null) return setText(effect, `Reserve: ${amountError(reserve.value)}`);
      const depth = await request('GET', marketPath(where.value, 'depth?levels=1000')).catch(() => null);
      if (!depth || mine !== asked) return undefined;
      const wanted = depth.demand.filter((/** @type {any} */ level) => BigInt(level.ceiling_micros) >= micros)
        .reduce((/** @type {number} */ sum, /** @type {any} */ level) => sum + level.unmet, 0);
      const words = [`At ${dollars(micros)} or more, ${plural(wanted, 'node')} ${wanted === 1 ? 'is' : 'are'} wanted that nobody holds yet.`];
      if (offer && micros > BigInt(offer.reserve_micros)) words.push('Tenants whose ceiling is lower get a notice. Their ceilings are not shown to sellers.');
      if (offer && micros < BigInt(offer.reserve_micros)) words.push('A lower reserve gives nobody a notice.');
      const fewer = offer ? offer.capacity - Number(capacity.value) : 0;
      const spare = offer ? offer.free + offer.resting : 0;
      if (fewer > spare) words.push(`${plural(fewer - spare, 'held unit')} would leave after a notice.`);
      return setText(effect, words.join(' '));
    };
    commandDialog(offer ? `Change the offer in ${offer.market}` : 'New offer', {
      content: [
        field('Market', where, names.length ? undefined : 'No other market is open. Change the offers that you have.'),
        field('Reserve, $ per node-hour', reserve, 'The least that you take.'),
        field('Units', capacity),
        effect,
      ],
      changed: look,
      choices: [{
        text: offer ? 'Change' : 'Offer',
        read: () => {
          const micros = parseDollars(reserve.value);
          if (micros === null) {
            reserve.focus();
            throw new Error(`Reserve: ${amountError(reserve.value)}`);
          }
          return { method: 'PUT', path: marketPath(where.value, 'offer'), body: { reserve_micros: String(micros), capacity: Number(capacity.value) } };
        },
      }],
      done: (answer) => done('The offer stands.', answer),
    });
    if (offer) look();
  };

  return { title: 'Offers', root, close: () => { closed = true; clearInterval(again); } };
}

/** Returns the path of a command for a unit. @param {any} unit @param {'withdraw' | 'lost' | 'resume'} act */
function unitPath(unit, act) {
  const [market, rest] = unit.unit.split(':');
  const place = rest.lastIndexOf('#');
  return `/v1/units/${[...market.split('/'), rest.slice(0, place), rest.slice(place + 1)].map(encodeURIComponent).join('/')}/${act}`;
}

/** @param {any} unit @param {'withdraw' | 'lost'} act @param {(words: string, answer: any) => Promise<void>} done */
function unitDialog(unit, act, done) {
  const held = unit.state !== 'FREE' && unit.state !== 'RESTING';
  const words = act === 'lost'
    ? (held ? 'Its node ends at once.' : 'It is taken off the market.')
    : (held ? 'Its tenant gets a notice, and the unit leaves when that ends.' : 'It leaves at once.');
  commandDialog(act === 'lost' ? `Report ${unit.unit} lost?` : `Withdraw ${unit.unit}?`, {
    content: [h('p', {}, `${words} The capacity falls by one.`)],
    choices: [{ text: act === 'lost' ? 'Report lost' : 'Withdraw', kind: 'danger', read: () => ({ method: 'POST', path: unitPath(unit, act), body: {} }) }],
    done: (answer) => done('Done.', answer),
  });
}
