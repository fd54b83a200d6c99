// One's bids and nodes: place, amend, cancel, stay, release, and why things are as they are.

import { marketLink } from '../address.js';
import { clock } from '../api.js';
import { command } from '../command.js';
import { announce, busy, fill, finder, h, keyed, setAttribute, setText, show, table } from '../dom.js';
import { dollars, exactInstant, instant, plainDollars, plural, price, span, time } from '../format.js';
import { live, ownAfter } from '../live.js';
import { endReason, eventInWords, refusalInWords, unfilledReason } from '../words.js';
import { amendDialog, cancelDialog, leastNodes, regroupDialog, releaseDialog } from './bid-dialogs.js';
import { explainDialog } from './explain.js';
import { accessDialog } from './node-access.js';
import { placeForm } from './place.js';

const HISTORY = 20;

/** The market in four sentences, for those who see it for the first time. */
const LESSON = [
  'Bid the most that a node-hour is worth to you. You pay the price of the market, which may be lower and never is higher.',
  'The highest bids have the nodes. A bid that is too low waits, and gets a node as soon as the price allows.',
  'Each node is protected for a time. Later a higher bid may take it: you get a notice here, with a countdown to save your work.',
  'While the countdown runs you can raise the bid with one click and stay. Release a node when you are done: it costs until then.',
];

/** @param {string} [market] the market that the form begins with @returns {import('../main.js').View} */
export function nodesView(market) {
  const form = placeForm(market);
  const status = h('p', { class: 'error', role: 'alert' });
  const nodes = table('Your nodes', [
    { text: 'Node', class: 'name' }, { text: 'State' }, { text: 'Price', number: true }, { text: 'At most', number: true }, { text: 'Actions', class: 'acts' },
  ]);
  const bids = table('Your bids', [
    { text: 'Bid', class: 'name' }, { text: 'State' }, { text: 'Nodes', number: true }, { text: 'At most', number: true }, { text: 'Actions', class: 'acts' },
  ]);
  for (const one of [nodes, bids]) one.root.classList.add('cards');
  const [nodesSum, bidsSum] = [h('span', { class: 'hint' }), h('span', { class: 'hint' })];
  const noNodes = h('div', { class: 'empty' }, h('p', {}, 'You hold no node. Place a bid to get one:'), h('ol', { class: 'lesson' }, ...LESSON.map((step) => h('li', {}, step))));
  const noBids = h('p', { class: 'empty' }, 'You have no open bid.');
  const history = h('ol', { class: 'ticker' });
  const noHistory = h('p', { class: 'empty' }, 'Nothing happened yet.');

  /**
   * Sends the command of a button, and says why it was refused, or why it did not help.
   * @param {HTMLButtonElement} button @param {import('../command.js').Command} sent @param {string} done @param {() => string} [rest] says what is left to do, if anything
   */
  const run = (button, sent, done, rest = () => '') => busy(button, async () => {
    status.textContent = '';
    try {
      const answer = await sent.send();
      announce(done);
      await ownAfter(answer.seq).catch(() => {});
      status.textContent = rest();
    } catch (error) {
      status.textContent = refusalInWords(error);
    }
  });

  /** @param {any} first */
  const nodeRow = (first) => {
    let node = first;
    const marks = h('span', { class: 'labels' });
    const [tag, words] = [h('strong', {}), h('span', {})];
    const [priceCell, ceiling] = [h('td', { class: 'number strong' }), h('td', { class: 'number most' })];
    const button = (/** @type {string} */ text, /** @type {(button: HTMLButtonElement) => void} */ act, kind = '') => {
      const made = h('button', { type: 'button', class: kind, 'aria-label': `${text}, node ${first.allocation}`, onclick: () => act(made) }, text);
      return made;
    };
    /** The ceiling that the button raises the bid to: it stays for a moment after it has done its work. */
    let asked = 0n;
    const raise = command(() => ({ method: 'PATCH', path: `/v1/bids/${node.bid}`, body: { ceiling_micros: String(asked) } }));
    const stay = button('Stay', (self) => {
      const needed = node.notice?.price_to_stay_micros;
      if (!needed) return;
      if (BigInt(needed) !== asked) {
        raise.renew();
        asked = BigInt(needed);
      }
      run(self, raise, `Bid ${node.bid} raised to ${dollars(needed, 'up')}.`, () => {
        // Another waiting bid may have taken the place of the one that was beaten.
        const notice = live.nodes.find((one) => one.allocation === node.allocation)?.notice;
        const needs = notice?.price_to_stay_micros;
        return needs ? `The bid was raised, and node ${node.allocation} is still outbid, because another bid is higher too. To stay it needs ${dollars(needs, 'up')} now.` : '';
      });
    }, 'primary');
    const reportReady = command(() => ({ method: 'POST', path: `/v1/allocations/${first.allocation}/ready`, body: {} }));
    const ready = button('Report ready', (self) => { run(self, reportReady, `Node ${node.allocation} is ready.`); });
    const why = button('Why?', () => explainDialog('allocations', node.allocation), 'inline');
    const access = button('Access', () => accessDialog(node.allocation));
    const release = button('Release', () => releaseDialog(node));
    const root = h('tr', {},
      h('th', { scope: 'row', class: 'name' }, h('span', {}, first.allocation), h('a', { class: 'hint', href: marketLink(first.market) }, first.market), marks),
      h('td', { class: 'state' }, tag, h('span', { class: 'hint' }, words, ' ', why)), priceCell, ceiling,
      h('td', { class: 'acts' }, h('div', { class: 'actions' }, stay, ready, access, release)));
    /** Says the state, and on hover the exact instant that it is about. */
    const say = (/** @type {string} */ kind, /** @type {string} */ title, /** @type {string} */ rest, /** @type {string} */ us) => {
      setAttribute(tag.parentElement ?? root, 'title', exactInstant(us));
      setAttribute(tag, 'class', `tag ${kind}`);
      setText(tag, title);
      setText(words, rest);
    };
    const update = (/** @type {any} */ next) => {
      node = next;
      fill(marks, ...labels(node.labels));
      const left = (/** @type {string} */ us) => Number(us) - clock.now();
      const notice = node.notice;
      setAttribute(root, 'class', notice ? 'notice' : null);
      setAttribute(root, 'title', node.unit);
      if (notice) {
        const stays = notice.rescindable && notice.price_to_stay_micros;
        const rest = stays ? `Save your work, or raise the bid to ${dollars(notice.price_to_stay_micros, 'up')} to stay.` : 'Save your work: no ceiling keeps it.';
        say('warning', `Notice: ends in ${span(left(notice.deadline_us))}`, `${sentence(endReason(notice.reason))}. ${rest}`, notice.deadline_us);
        show(stay, Boolean(stays), release);
        if (stays) {
          const label = `Raise to ${dollars(notice.price_to_stay_micros, 'up')} and stay`;
          setText(stay, label);
          setAttribute(stay, 'aria-label', `${label}, node ${node.allocation}`);
          const lock = Number(live.markets.get(node.market)?.rules.min_runtime_us ?? 0);
          const locked = lock > 0 ? ` It cannot be lowered again for ${span(lock)}.` : '';
          setAttribute(stay, 'title', `Raises bid ${node.bid}, for all its nodes, to at most $${plainDollars(notice.price_to_stay_micros)} per node-hour. You pay what keeps the others out, never more than this.${locked}`);
        }
      } else {
        // The next notice is another one.
        asked = 0n;
        raise.renew();
        show(stay, false, release);
        if (node.state === 'STARTING') say('', 'Starting', `ready within ${span(left(node.start_by_us))}`, node.start_by_us);
        else if (left(node.protected_until_us) > 0) say('good', 'Running', `protected for ${span(left(node.protected_until_us))}`, node.protected_until_us);
        else say('good', 'Running', `since ${instant(node.ready_at_us)}`, node.ready_at_us);
      }
      show(ready, node.state === 'STARTING', release);
      show(access, node.state === 'ACTIVE', release);
      show(why, Boolean(notice), release);
      fill(priceCell, price(node.price_micros));
      const frozen = notice?.reason === 'OUTBID' ? 'The price is frozen until the notice ends.' : 'The price does not rise until the notice ends.';
      setAttribute(priceCell, 'title', notice ? frozen : null);
      fill(ceiling, price(node.ceiling_micros, 'up'));
    };
    return { root, update };
  };

  /** @param {any} first */
  const bidRow = (first) => {
    let bid = first;
    const marks = h('span', { class: 'labels' });
    const [ceiling, count, tag, words] = [h('td', { class: 'number strong most' }), h('td', { class: 'number held' }), h('strong', {}), h('span', {})];
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, kind = '') =>
      h('button', { type: 'button', class: kind, 'aria-label': `${text}, bid ${first.bid}`, onclick: act }, text);
    const why = button('Why?', () => explainDialog('bids', bid.bid), 'inline');
    const regroup = button('Regroup', () => regroupDialog(bid));
    const cancel = button('Cancel', () => cancelDialog(bid));
    const root = h('tr', {},
      h('th', { scope: 'row', class: 'name' }, h('span', {}, first.bid), ...placesOf(first).map((place) => h('span', { class: 'hint' }, place)), marks),
      h('td', { class: 'state' }, tag, h('span', { class: 'hint' }, words, ' ', why)), count, ceiling,
      h('td', { class: 'acts' }, h('div', { class: 'actions' }, button('Amend', () => amendDialog(bid)), regroup, cancel)));
    const update = (/** @type {any} */ next) => {
      bid = next;
      fill(marks, ...labels(bid.labels));
      fill(ceiling, price(bid.ceiling_micros, 'up'));
      setText(count, `${bid.held} of ${bid.max_nodes}`);
      const has = [];
      if (bid.held) has.push(`holds ${plural(bid.held, 'node')}`);
      if (bid.under_notice) has.push(`${bid.under_notice} under notice`);
      if (bid.claimed) has.push(`${bid.claimed} to come when a notice ends`);
      if (bid.unmet) has.push(unfilledReason(bid.unfilled_reason));
      setAttribute(tag, 'class', bid.unmet ? 'tag' : 'tag good');
      setText(tag, bid.unmet ? (bid.under_notice >= bid.unmet ? 'Seeks a replacement' : `Wants ${bid.unmet} more`) : bid.claimed ? 'Filled soon' : 'Filled');
      setText(words, has.join('; '));
      show(why, bid.unmet > 0, cancel);
      show(regroup, leastNodes(bid) > 1 && bid.held + bid.under_notice + bid.claimed > 0, cancel);
    };
    return { root, update };
  };

  const drawNodes = () => {
    const mine = live.nodes.filter((node) => node.bid);
    const notices = mine.filter((node) => node.notice);
    // In a long list those under notice come first; in a short one no row moves.
    if (findNodes.isLong(mine.length)) mine.sort((a, b) => Number(!a.notice) - Number(!b.notice) || Number(a.notice?.deadline_us ?? 0) - Number(b.notice?.deadline_us ?? 0));
    keyed(nodes.body, findNodes.pick(mine, (node) => textOf(node.allocation, [node.market, node.notice ? 'notice' : ''], node.labels)), (node) => node.allocation, nodeRow);
    const rate = mine.filter((node) => node.state === 'ACTIVE').reduce((sum, node) => sum + BigInt(node.price_micros), 0n);
    setText(nodesSum, mine.length > 1 ? `${plural(mine.length, 'node')}${notices.length ? `, ${notices.length} under notice` : ''}, ${dollars(rate)} an hour` : '');
    noNodes.hidden = mine.length > 0;
    nodes.root.hidden = mine.length === 0;
  };
  const drawBids = () => {
    // In a long list those that wait come first.
    const mine = findBids.isLong(live.bids.length) ? [...live.bids].sort((a, b) => Number(b.unmet > 0) - Number(a.unmet > 0)) : live.bids;
    const waiting = mine.filter((bid) => bid.unmet > 0).length;
    keyed(bids.body, findBids.pick(mine, (bid) => textOf(bid.bid, placesOf(bid), bid.labels)), (bid) => bid.bid, bidRow);
    setText(bidsSum, mine.length > 1 ? `${plural(mine.length, 'open bid')}${waiting ? `, ${waiting} not filled` : ''}` : '');
    noBids.hidden = mine.length > 0;
    bids.root.hidden = mine.length === 0;
  };
  const findNodes = finder('nodes', drawNodes);
  const findBids = finder('bids', drawBids);

  const root = h('div', {},
    h('h1', {}, 'Bids and nodes'),
    h('div', { class: 'split' },
      h('div', {},
        status,
        h('section', { class: 'panel flush', 'aria-labelledby': 'nodes-title' },
          h('div', { class: 'title' }, h('h2', { id: 'nodes-title' }, 'Nodes'), nodesSum, findNodes.find), nodes.root, findNodes.more, noNodes),
        h('section', { class: 'panel flush', 'aria-labelledby': 'bids-title' },
          h('div', { class: 'title' }, h('h2', { id: 'bids-title' }, 'Bids'), bidsSum, findBids.find), bids.root, findBids.more, noBids)),
      form.root),
    h('section', { class: 'panel', 'aria-labelledby': 'history-title' }, h('h2', { id: 'history-title' }, 'What happened'), history, noHistory));

  return {
    title: 'Bids and nodes',
    root,
    update: (topics) => {
      if (topics.has('own') || topics.has('second')) drawNodes();
      if (topics.has('own')) drawBids();
      if (topics.has('events')) {
        // What other bids claim is the market's news, unless they take over a claim of one's own.
        const others = (/** @type {any} */ event) => [event.claimed, event.claim_dropped].find((claim) => claim && !claim.bid && !claim.was);
        const mine = live.events.filter((event) => !others(event));
        keyed(history, mine.slice(0, HISTORY), (event) => `${event.seq}.${event.index}`, (event) => {
          const lost = event.ended ?? event.notice_started;
          const why = lost && h('button', { type: 'button', class: 'inline', 'aria-label': `Why? Node ${lost.allocation}`, onclick: () => explainDialog('allocations', lost.allocation) }, 'Why?');
          return { root: h('li', {}, time(event.at_us), h('span', {}, h('span', {}, eventInWords(event)), ' ', why)), update: () => {} };
        });
        noHistory.hidden = history.childElementCount > 0;
      }
      form.update(topics);
    },
    begin: market ? form.begin : undefined,
    close: form.close,
  };
}

/** @param {Record<string, string>} given */
function labels(given) {
  return pairs(given).map((pair) => h('span', { class: 'label', title: pair }, pair));
}

/** @param {Record<string, string>} given */
function pairs(given) {
  return Object.entries(given ?? {}).map((pair) => pair.join('='));
}

/** Returns where a bid searches. @param {any} bid @returns {string[]} */
function placesOf(bid) {
  return bid.markets.length ? bid.markets : [`any ${bid.instance_type}`];
}

/** Returns what a person may look for in a row. @param {string} number @param {string[]} places @param {Record<string, string>} given */
function textOf(number, places, given) {
  return [number, ...places, ...pairs(given)].join(' ');
}

/** @param {string} words */
function sentence(words) {
  return words.charAt(0).toUpperCase() + words.slice(1);
}
