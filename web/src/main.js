// Starts the page: reads the token, finds out whose it is, and shows the view that the address names.

import { addressOf, tokenOf } from './address.js';
import { Problem, onEnd } from './api.js';
import { announce, h } from './dom.js';
import { identify } from './identify.js';
import { forget, listen, live, start } from './live.js';
import { keep, leave, restore, session } from './session.js';
import { drawConnection, drawNotices, drawShell } from './shell.js';
import { adminView } from './views/admin.js';
import { loginView, offeredView } from './views/login.js';
import { marketView } from './views/market.js';
import { marketsView } from './views/markets.js';
import { moneyView } from './views/money.js';
import { nodesView } from './views/nodes.js';
import { closedView, noView } from './views/none.js';
import { offersView } from './views/offers.js';

/** @typedef {{title: string, root: Element, update?: (topics: Set<import('./live.js').Topic>) => void, begin?: () => void, close?: () => void}} View */

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
/** @type {View | null} */
let view = null;

/** Returns the view of an address. @param {string} hash @returns {View} */
function viewOf(hash) {
  const { view: named, market } = addressOf(hash);
  const person = session.person;
  switch (named) {
    case 'markets': return marketsView();
    case 'market': return market ? marketView(market) : noView();
    case 'login': return session.offered ? offeredView(logIn, () => { location.hash = home(); }) : loginView(logIn);
    case 'nodes': return person?.tenant ? nodesView(market) : closedView(!person);
    case 'money': return person?.tenant || person?.provider ? moneyView() : closedView(!person);
    case 'offers': return person?.provider ? offersView() : closedView(!person);
    case 'admin': return person?.admin ? adminView() : closedView(!person);
    default: return noView();
  }
}

/** Returns the address to begin with. */
function home() {
  return session.person?.tenant && !session.person.admin ? '#/nodes' : '#/markets';
}

/** Shows the view of the address. @param {boolean} moved the person asked for it, so the focus follows */
function show(moved) {
  view?.close?.();
  view = viewOf(location.hash);
  main.replaceChildren(view.root);
  drawShell(logOut);
  drawNotices(view.title);
  view.update?.(new Set(['markets', 'own', 'events', 'connection']));
  if (!moved) return;
  if (view.begin) {
    view.begin();
    return;
  }
  const heading = main.querySelector('h1');
  heading?.setAttribute('tabindex', '-1');
  heading?.focus();
  window.scrollTo(0, 0);
}

/** Logs in with a token. @param {string} token */
async function logIn(token) {
  keep(token);
  await begin();
  if (session.person) location.hash = home();
}

function logOut() {
  forget();
  leave();
  location.hash = '#/login';
  begin().catch(() => {});
}

/** Finds out whose the token is, and follows the market. */
async function begin() {
  forget();
  for (;;) {
    try {
      await identify();
      break;
    } catch (error) {
      if (!(error instanceof Problem) || error.code === 'UNAUTHENTICATED') throw error;
      // The engine is away, or not ready. The page says so and tries again.
      live.connection = 'lost';
      drawConnection();
      await new Promise((resolve) => setTimeout(resolve, 500));
    }
  }
  start();
}

onEnd.ended = () => {
  if (!session.token) {
    // Without a token this engine shows nothing: its markets are not public.
    forget();
    if (location.hash !== '#/login') location.hash = '#/login';
    return;
  }
  const why = 'Your token is not valid, or it was revoked. Log in again.';
  forget();
  leave(why);
  announce(why, 'assertive');
  if (location.hash === '#/login') show(true);
  else location.hash = '#/login';
};

listen((topics) => {
  if (topics.has('connection') || topics.has('second')) drawConnection();
  if (topics.has('own') && view) drawNotices(view.title);
  view?.update?.(topics);
});
window.addEventListener('hashchange', () => {
  if (tokenOf(location.hash) === null) {
    show(true);
    return;
  }
  restore(false);
  // The address has no fragment now: one that is set is another, so that its view is shown.
  location.hash = session.offered ? '#/login' : home();
});
// What a second click of a double click meets was not there when the person began, such as the button of a dialog that the first opened.
document.addEventListener('click', (event) => {
  if (event.detail < 2 || !(event.target instanceof Element) || !event.target.closest('button')) return;
  event.preventDefault();
  event.stopImmediatePropagation();
}, { capture: true });
document.getElementById('skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});

const first = tokenOf(location.hash) !== null;
restore(true);
main.replaceChildren(h('p', { class: 'empty' }, 'Connecting…'));
drawShell(logOut);
begin().then(() => {
  if (session.offered) history.replaceState(null, '', '#/login');
  else if (first && !location.hash && session.person) history.replaceState(null, '', home());
  show(session.offered !== '');
}, () => show(false));
