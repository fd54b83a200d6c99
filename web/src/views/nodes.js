// One's bids and nodes: place, amend, cancel, stay, release, and why things are as they are.

import { clock, command } from '../api.js';
import { announce, busy, fill, h, keyed, openDialog, setAttribute, setText, table } from '../dom.js';
import { dollars, instant, plainDollars, plural, price, span, time } from '../format.js';
import { live, ownAfter } from '../live.js';
import { endReason, eventInWords, refusalInWords, unfilledReason } from '../words.js';
import { amendDialog, cancelDialog } from './bid-dialogs.js';
import { explainDialog } from './explain.js';
import { marketLink } from './markets.js';
import { placeForm } from './place.js';

const HISTORY = 20;

/** @param {string} [market] the market that the form begins with @returns {import('../main.js').View} */
export function nodesView(market) {
  const form = placeForm(market);
  const status = h('p', { class: 'error', role: 'alert' });
  const nodes = table('Your nodes', [
    { text: 'Node' }, { text: 'State' }, { text: 'Price', number: true }, { text: 'At most', number: true, class: 'mid' }, { text: 'Actions' },
  ]);
  const bids = table('Your bids', [
    { text: 'Bid' }, { text: 'At most', number: true }, { text: 'Nodes', number: true, class: 'mid' }, { text: 'State' }, { text: 'Actions' },
  ]);
  const noNodes = h('p', { class: 'empty' }, 'You hold no node. Place a bid to get one.');
  const noBids = h('p', { class: 'empty' }, 'You have no open bid.');
  const history = h('ol', { class: 'ticker' });
  const noHistory = h('p', { class: 'empty' }, 'Nothing happened yet.');

  /** Runs a command of a button, and says why it was refused. @param {HTMLButtonElement} button @param {() => Promise<any>} work @param {string} done */
  const run = (button, work, done) => busy(button, async () => {
    status.textContent = '';
    try {
      const answer = await work();
      announce(done);
      await ownAfter(answer.seq).catch(() => {});
    } catch (error) {
      status.textContent = refusalInWords(error);
    }
  });

  /** @param {any} first */
  const nodeRow = (first) => {
    let node = first;
    const marks = h('span', { class: 'labels' });
    const state = h('td', { class: 'state' });
    const [priceCell, ceiling] = [h('td', { class: 'number strong' }), h('td', { class: 'number mid' })];
    const button = (/** @type {string} */ text, /** @type {(button: HTMLButtonElement) => void} */ act, kind = '') => {
      const made = h('button', { type: 'button', class: kind, 'aria-label': `${text}, node ${first.allocation}`, onclick: () => act(made) }, text);
      return made;
    };
    const stay = button('Stay', (self) => {
      const ceiling_micros = node.notice?.price_to_stay_micros;
      if (!ceiling_micros) return;
      run(self, () => command('PATCH', `/v1/bids/${node.bid}`, { ceiling_micros }), `Bid ${node.bid} raised to ${dollars(ceiling_micros, 'up')}.`);
    }, 'primary');
    const ready = button('Report ready', (self) => {
      run(self, () => command('POST', `/v1/allocations/${node.allocation}/ready`, {}), `Node ${node.allocation} is ready.`);
    });
    const why = button('Why?', () => explainDialog('allocations', node.allocation), 'quiet');
    const release = button('Release', () => releaseDialog(node, run, release));
    const root = h('tr', {},
      h('th', { scope: 'row' }, h('span', {}, first.allocation), h('span', { class: 'hint' }, h('a', { href: marketLink(first.market) }, first.market)), marks),
      state, priceCell, ceiling, h('td', {}, h('div', { class: 'actions' }, stay, ready, why, release)));
    const update = (/** @type {any} */ next) => {
      node = next;
      fill(marks, ...labels(node.labels));
      const left = (/** @type {string} */ us) => Number(us) - clock.now();
      const notice = node.notice;
      setAttribute(root, 'class', notice ? 'notice' : null);
      setAttribute(root, 'title', node.unit);
      if (notice) {
        const stays = notice.rescindable && notice.price_to_stay_micros;
        const words = `${endReason(notice.reason)}${stays ? '' : '; no ceiling keeps it'}`;
        fill(state, h('strong', { class: 'tag warning' }, `Notice: ends in ${span(left(notice.deadline_us))}`), h('span', { class: 'hint' }, words));
        show(stay, Boolean(stays), release);
        if (stays) {
          const label = `Stay for ${dollars(notice.price_to_stay_micros, 'up')}`;
          setText(stay, label);
          setAttribute(stay, 'aria-label', `${label}, node ${node.allocation}`);
          setAttribute(stay, 'title', `Raises the bid to at most $${plainDollars(notice.price_to_stay_micros)} per node-hour`);
        }
      } else {
        show(stay, false, release);
        if (node.state === 'STARTING') fill(state, h('span', { class: 'tag' }, 'Starting'), h('span', { class: 'hint' }, `ready within ${span(left(node.start_by_us))}`));
        else if (left(node.protected_until_us) > 0) fill(state, h('span', { class: 'tag good' }, 'Running'), h('span', { class: 'hint' }, `protected for ${span(left(node.protected_until_us))}`));
        else fill(state, h('span', { class: 'tag good' }, 'Running'), h('span', { class: 'hint' }, `since ${instant(node.ready_at_us)}`));
      }
      show(ready, node.state === 'STARTING', release);
      show(why, Boolean(notice), release);
      fill(priceCell, price(node.price_micros));
      fill(ceiling, price(node.ceiling_micros));
    };
    return { root, update };
  };

  /** @param {any} first */
  const bidRow = (first) => {
    let bid = first;
    const marks = h('span', { class: 'labels' });
    const [ceiling, count, state] = [h('td', { class: 'number strong' }), h('td', { class: 'number mid' }), h('td', { class: 'state' })];
    const button = (/** @type {string} */ text, /** @type {() => void} */ act, kind = '') =>
      h('button', { type: 'button', class: kind, 'aria-label': `${text}, bid ${first.bid}`, onclick: act }, text);
    const why = button('Why?', () => explainDialog('bids', bid.bid), 'quiet');
    const cancel = button('Cancel', () => cancelDialog(bid));
    const root = h('tr', {},
      h('th', { scope: 'row' }, h('span', {}, first.bid), h('span', { class: 'hint' }, first.markets.join(', ') || `any ${first.instance_type}`), marks),
      ceiling, count, state,
      h('td', {}, h('div', { class: 'actions' }, why, button('Amend', () => amendDialog(bid)), cancel)));
    const update = (/** @type {any} */ next) => {
      bid = next;
      fill(marks, ...labels(bid.labels));
      fill(ceiling, price(bid.ceiling_micros));
      setText(count, `${bid.held + bid.under_notice} of ${bid.max_nodes}`);
      const words = [];
      if (bid.held) words.push(`holds ${plural(bid.held, 'node')}`);
      if (bid.under_notice) words.push(`${bid.under_notice} under notice`);
      if (bid.claimed) words.push(`${bid.claimed} to come when a notice ends`);
      if (bid.unmet) fill(state, h('span', { class: 'tag' }, `Wants ${bid.unmet} more`), h('span', { class: 'hint' }, [...words, unfilledReason(bid.unfilled_reason)].join('; ')));
      else fill(state, h('span', { class: 'tag good' }, bid.claimed ? 'Filled soon' : 'Filled'), h('span', { class: 'hint' }, words.join('; ')));
      show(why, bid.unmet > 0, cancel);
    };
    return { root, update };
  };

  const root = h('div', {},
    h('h1', {}, 'Bids and nodes'),
    h('div', { class: 'split' },
      h('div', {},
        status,
        h('section', { class: 'panel flush', 'aria-labelledby': 'nodes-title' }, h('h2', { id: 'nodes-title' }, 'Nodes'), nodes.root, noNodes),
        h('section', { class: 'panel flush', 'aria-labelledby': 'bids-title' }, h('h2', { id: 'bids-title' }, 'Bids'), bids.root, noBids)),
      form.root),
    h('section', { class: 'panel', 'aria-labelledby': 'history-title' }, h('h2', { id: 'history-title' }, 'What happened'), history, noHistory));

  return {
    title: 'Bids and nodes',
    root,
    update: (topics) => {
      if (topics.has('own') || topics.has('second')) {
        keyed(nodes.body, live.nodes.filter((node) => node.bid), (node) => node.allocation, nodeRow);
        noNodes.hidden = nodes.body.childElementCount > 0;
        nodes.root.hidden = !noNodes.hidden;
      }
      if (topics.has('own')) {
        keyed(bids.body, live.bids, (bid) => bid.bid, bidRow);
        noBids.hidden = bids.body.childElementCount > 0;
        bids.root.hidden = !noBids.hidden;
      }
      if (topics.has('events')) {
        const mine = live.events.filter((event) => !event.price_changed && !event.market_opened && !event.rules_changed);
        keyed(history, mine.slice(0, HISTORY), (event) => `${event.seq}.${event.index}`, (event) => {
          const lost = event.ended ?? event.notice_started;
          const why = lost && h('button', { type: 'button', class: 'quiet', 'aria-label': `Why? Node ${lost.allocation}`, onclick: () => explainDialog('allocations', lost.allocation) }, 'Why?');
          return { root: h('li', {}, time(event.at_us), h('span', {}, eventInWords(event)), why), update: () => {} };
        });
        noHistory.hidden = history.childElementCount > 0;
      }
      form.update(topics);
    },
    close: form.close,
  };
}

/** Shows or hides a button. The focus of a hidden button goes to `next`. @param {HTMLButtonElement} button @param {boolean} shown @param {HTMLButtonElement} next */
function show(button, shown, next) {
  if (button.hidden === !shown) return;
  const focused = document.activeElement === button;
  button.hidden = !shown;
  if (focused && !shown) next.focus();
}

/** @param {Record<string, string>} given */
function labels(given) {
  return Object.entries(given ?? {}).map(([key, value]) => h('span', { class: 'label' }, `${key}=${value}`));
}

/**
 * @param {any} node
 * @param {(button: HTMLButtonElement, work: () => Promise<any>, done: string) => Promise<void>} run
 * @param {HTMLButtonElement} button
 */
function releaseDialog(node, run, button) {
  const market = live.markets.get(node.market);
  const least = market ? span(Number(market.rules.min_charge_us)) : 'the least charge of the market';
  openDialog(`Release node ${node.allocation}?`, (dialog) => [
    h('p', {}, node.notice
      ? 'It ends at once. Under notice that costs nothing extra.'
      : `It ends at once, and its bid wants one node fewer. At least ${least} are billed.`),
    h('div', { class: 'actions' },
      h('button', {
        type: 'button', class: 'danger',
        onclick: () => {
          dialog.close();
          run(button, () => command('POST', `/v1/allocations/${node.allocation}/release`, {}), `Node ${node.allocation} released.`);
        },
      }, 'Release'),
      h('button', { type: 'button', onclick: () => dialog.close() }, 'Keep it')),
  ]);
}

