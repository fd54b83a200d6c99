// Draws what surrounds every view: navigation, connection, who is logged in.

import { addressOf } from './address.js';
import { fill, h, setAttribute, setText } from './dom.js';
import { isFollowed, live } from './live.js';
import { plural, span } from './format.js';
import { session } from './session.js';

const top = /** @type {HTMLElement} */ (document.getElementById('top'));
const connection = h('p', { class: 'connection', role: 'status' });

/** After this time without a frame what the page shows may be old. */
const STALE_MS = 7000;

/** @param {() => void} logOut */
export function drawShell(logOut) {
  const person = session.person;
  const here = addressOf(location.hash).view;
  const link = (/** @type {string} */ name, /** @type {string} */ text) => {
    const current = name === here || (name === 'markets' && here === 'market');
    return h('a', { href: `#/${name}`, 'aria-current': current ? 'page' : undefined }, text);
  };
  fill(top,
    h('span', { class: 'brand' }, 'KubeBid'),
    h('nav', { 'aria-label': 'Views' },
      link('markets', 'Markets'),
      person?.tenant && link('nodes', 'Bids and nodes'),
      (person?.tenant || person?.provider) && link('money', 'Money'),
      person?.provider && link('offers', 'Offers'),
      person?.admin && link('admin', 'Administration')));
  const who = person
    ? h('div', { class: 'who' }, h('span', {}, person.account || 'viewer'), h('button', { type: 'button', class: 'quiet', onclick: logOut }, 'Log out'))
    : h('div', { class: 'who' }, h('a', { href: '#/login' }, 'Log in'));
  top.append(connection, who);
  drawConnection();
}

/** Says in the window's title and at the link of the nodes how many are under notice. @param {string} title of the view */
export function drawNotices(title) {
  const notices = live.nodes.filter((node) => node.bid && node.notice).length;
  document.title = `${notices ? `(${notices}) ` : ''}${title} · KubeBid`;
  const link = top.querySelector('a[href="#/nodes"]');
  if (link) setText(link, notices ? `Bids and nodes · ${plural(notices, 'notice')}` : 'Bids and nodes');
}

/** Shows whether the numbers are current. */
export function drawConnection() {
  const age = Date.now() - live.lastFrame;
  let [state, text] = ['live', 'Live'];
  if (!isFollowed()) [state, text] = ['waiting', ''];
  else if (live.connection === 'connecting') [state, text] = ['waiting', 'Connecting…'];
  else if (live.connection === 'lost') {
    [state, text] = ['lost', live.lastFrame ? `Reconnecting… numbers from ${span(Math.max(1000, age) * 1000)} ago` : 'Reconnecting…'];
  } else if (age > STALE_MS) [state, text] = ['lost', `Stale: nothing new for ${span(age * 1000)}`];
  setAttribute(connection, 'data-state', state);
  setAttribute(document.body, 'data-connection', state);
  setText(connection, text);
}
