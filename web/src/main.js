// Starts the page: reads the token, finds out whose it is, and shows the view that the address names.

import { Problem, onEnd } from './api.js';
import { announce, h } from './dom.js';
import { identify } from './identify.js';
import { forget, listen, live, start } from './live.js';
import { keep, leave, restore, session } from './session.js';
import { drawConnection, drawNotices, drawShell } from './shell.js';
import { adminView } from './views/admin.js';
import { loginView } from './views/login.js';
import { marketView } from './views/market.js';
import { marketsView } from './views/markets.js';
import { moneyView } from './views/money.js';
import { nodesView } from './views/nodes.js';
import { offersView } from './views/offers.js';

/** @typedef {{title: string, root: Element, update?: (topics: Set<import('./live.js').Topic>) => void, begin?: () => void, close?: () => void}} View */

const main = /** @type {HTMLElement} */ (document.getElementById('main'));
/** @type {View | null} */
let view = null;

/** Returns the view of an address. @param {string} hash @returns {View} */
function viewOf(hash) {
  const parts = hash.replace(/^#\/?/, '').split('/').map(decodeURIComponent);
  const person = session.person;
  switch (parts[0]) {
    case 'login': return loginView(logIn);
    case 'market': if (parts.length === 3) return marketView(`${parts[1]}/${parts[2]}`); break;
    case 'nodes': if (person?.tenant) return nodesView(parts[1]); break;
    case 'money': if (person?.tenant || person?.provider) return moneyView(); break;
    case 'offers': if (person?.provider) return offersView(); break;
    case 'admin': if (person?.admin) return adminView(); break;
    default:
  }
  return marketsView();
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
  if (session.person) location.hash = session.person.tenant && !session.person.admin ? '#/nodes' : '#/markets';
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
  if (location.hash.startsWith('#token=')) {
    restore();
    begin().then(() => { location.hash = '#/nodes'; }, () => {});
    return;
  }
  if (!location.hash.startsWith('#/')) return;
  show(true);
});
document.getElementById('skip')?.addEventListener('click', (event) => {
  event.preventDefault();
  main.focus();
});

const first = location.hash.startsWith('#token=');
restore();
main.replaceChildren(h('p', { class: 'empty' }, 'Connecting…'));
drawShell(logOut);
begin().then(() => {
  if (first && !location.hash && session.person?.tenant && !session.person.admin) history.replaceState(null, '', '#/nodes');
  show(false);
}, () => show(false));
