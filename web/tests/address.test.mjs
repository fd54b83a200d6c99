// Addresses: whatever is in the address bar, the page shows what belongs to it, and the back button leads on from there.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { addressOf, marketLink, placeLink, tokenOf } from '../src/address.js';
import { Engine, PATIENCE, live, openWindow, startBrowser } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';
const [MARKETS, NODES, MONEY, LOG_IN, NONE, CLOSED] = ['Markets', 'Bids and nodes', 'Money', 'Log in', 'There is no such view', 'This view is not for you'];

/** Addresses, and the heading of what each shows to a tenant. @type {[string, string][]} */
const ADDRESSES = [
  ['#/%', NONE], ['#%', NONE], ['#/market/%', NONE], ['#/market/%E0%A4%A/x', NONE], ['#/market/h100-8x/%zz', NONE], ['#/nodes/%', NONE],
  ['#/nodes/%E2%82', NONE], ['#/%00', NONE], ['#/market/..%2F..%2Fv1/accounts', NONE], ['#/market/../..', NONE], ['#/market/%2e%2e/%2e%2e', NONE],
  ['#/market/a', NONE], ['#/market/a/b/c', NONE], ['#/market//', NONE], ['#/market', NONE], ['#/market/<b>/x', NONE], ['#/market/a%20b/c', NONE],
  ['#/nodes/a', NONE], ['#/nodes/a/b', NONE], ['#/money/7', NONE], ['#/markets?x=%', NONE], ['#/constructor', NONE], ['#/__proto__', NONE],
  ['#/toString', NONE], ['#main', NONE], ['#//', NONE], ['#/MONEY', NONE], [`#/${'x'.repeat(5000)}`, NONE], ['#/%F0%9F%92%A9', NONE], ['#/💩', NONE],
  ['#/offers', CLOSED], ['#/admin', CLOSED],
  ['', MARKETS], ['#', MARKETS], ['#/', MARKETS], ['#/markets', MARKETS], ['#/markets/', MARKETS], ['#markets', MARKETS],
  ['#/nodes', NODES], ['#/nodes/h100-8x%2Feu-west', NODES], ['#/nodes/no-such%2Fmarket', NODES], ['#/money', MONEY], ['#/money/', MONEY],
  ['#/market/h100-8x/eu-west', MARKET], ['#/market/no-such/market', 'no-such/market'], ['#/login', LOG_IN],
];

test('any text is an address, and a malformed one names no view', () => {
  const pieces = ['', '#', '/', '%', '%2', '%zz', '%00', '%ff', '%E2%82%AC', 'market', 'markets', 'nodes', 'a', '..', '.', '?', '&', 'token=', 'é', '\ud800', ' '];
  let count = 0;
  for (const one of pieces) for (const two of pieces) for (const three of pieces) for (const four of pieces) {
    const hash = `#${one}${two}${three}${four}`;
    count += 1;
    const { view, market } = addressOf(hash);
    assert.equal(typeof view, 'string', hash);
    if (market !== undefined) assert.match(market, /^[A-Za-z0-9._-]+\/[A-Za-z0-9._-]+$/, hash);
    if (/%(?![0-9a-f]{2})/i.test(hash)) assert.equal(view, 'none', hash);
    tokenOf(hash);
  }
  assert.ok(count > 100_000);
  for (const name of ['h100-8x/eu-west', 'a.b_c-d/..x', `${'x'.repeat(63)}/y`]) {
    assert.deepEqual(addressOf(marketLink(name)), { view: 'market', market: name });
    assert.deepEqual(addressOf(placeLink(name)), { view: 'nodes', market: name });
  }
  assert.deepEqual(['#token=a%20b', '#token=%', '#token=', '#/nodes', ''].map(tokenOf), ['a b', '%', '', null, null]);
});

test('no other module of the page reads percent escapes', () => {
  const source = new URL('../src/', import.meta.url);
  const files = ['', 'views/'].flatMap((folder) => readdirSync(new URL(folder, source)).filter((name) => name.endsWith('.js')).map((name) => folder + name));
  assert.deepEqual(files.filter((file) => /decodeURI/.test(readFileSync(new URL(file, source), 'utf8'))), ['address.js']);
});

let browser;
let engine;
let tenant;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--public-markets']);
  await engine.market(MARKET, await engine.person('acme', 'PROVIDER'));
  tenant = await engine.person('tenant-a', 'TENANT');
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

const heading = (page, name) => page.getByRole('main').getByRole('heading', { level: 1, name, exact: true });

test('the page shows what belongs to each address, also on the way back and forth', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  // An address that is the one before, as `#` is after none, is no step.
  const steps = [];
  for (const [address, name] of ADDRESSES) {
    const before = page.url();
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await heading(page, name).waitFor();
    if (page.url() !== before) steps.push(name);
  }
  assert.ok(steps.length > 40, `${steps.length} steps`);
  for (const name of steps.slice(0, -1).reverse()) {
    await page.evaluate(() => history.back());
    await heading(page, name).waitFor();
  }
  for (const name of steps.slice(1, 8)) {
    await page.evaluate(() => history.forward());
    await heading(page, name).waitFor();
  }
  await live(page);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a page that is opened at any address shows what belongs to it', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  for (const [address, name] of ADDRESSES.filter((_, index) => index % 3 === 0)) {
    await page.goto('about:blank');
    await page.goto(`${engine.url}/${address}`);
    await heading(page, name).waitFor();
  }
  for (const query of ['?', '?%', '?a=%zz&b', '?token=x', '?#/money', '?%#/money']) {
    await page.goto('about:blank');
    await page.goto(`${engine.url}/${query}`);
    await heading(page, query.endsWith('money') ? MONEY : MARKETS).waitFor();
  }
  assert.deepEqual(faults, []);
  await context.close();
});

test('a path that is malformed is refused', async () => {
  for (const path of ['/%', '/%zz', '/assets/%', '/assets/%2e%2e%2f', '/v1/%', '/v1/markets/%ff/x/depth', '//', '/x/']) {
    const answer = await fetch(engine.url + path);
    assert.ok(answer.status >= 400 && answer.status < 500, `${path}: ${answer.status}`);
  }
});

test('a view that the token does not allow is said to be closed, and a stranger is asked to log in', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${engine.url}/#/money`);
  await heading(page, CLOSED).waitFor();
  await page.getByText('Log in with a token that allows it.').waitFor();
  await page.getByRole('link', { name: 'Show the markets' }).click();
  await heading(page, MARKETS).waitFor();
  await page.goBack();
  await heading(page, CLOSED).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a link with a token that is malformed asks for another one', async () => {
  for (const token of ['%', '%E2%82', '%E2%82%AC', 'a%0Ab', 'x', 'kb_%zz']) {
    const { page, context, faults } = await openWindow(browser);
    await page.goto(`${engine.url}/#token=${token}`);
    await heading(page, LOG_IN).waitFor();
    await page.getByRole('main').getByText('Your token is not valid').waitFor();
    assert.equal(new URL(page.url()).hash, '#/login', 'the token is not in the address bar');
    await page.evaluate((hash) => { location.hash = hash; }, tenant.link.replace(/^.*#/, ''));
    await page.getByRole('button', { name: 'Log in with the link' }).click();
    await heading(page, NODES).waitFor();
    await page.evaluate((hash) => { location.hash = hash; }, `token=${token}`);
    await page.getByRole('button', { name: 'Log in with the link' }).click();
    await heading(page, LOG_IN).waitFor();
    assert.deepEqual(faults, []);
    await context.close();
  }
});

test('a link replaces no session without a word', async () => {
  const other = await engine.person('tenant-b', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  const stay = page.getByRole('button', { name: `Stay ${tenant.account}` });
  await page.goto(tenant.link);
  await heading(page, NODES).waitFor();
  // Opened in the window of a session, and set in its address, as a page that holds the window could.
  for (const open of [
    async () => { await page.goto('about:blank'); await page.goto(other.link); },
    () => page.evaluate((hash) => { location.hash = hash; }, other.link.replace(/^.*#/, '')),
  ]) {
    await open();
    await heading(page, 'Log in with this link?').waitFor();
    assert.ok(await stay.evaluate((button) => button === document.activeElement), 'the safe button has the focus');
    assert.ok(!page.url().includes(other.token), 'the token is not in the address bar');
    await stay.click();
    await heading(page, NODES).waitFor();
    await page.getByText(tenant.account, { exact: true }).first().waitFor();
  }
  await page.goto('about:blank');
  await page.goto(other.link);
  await page.getByRole('button', { name: 'Log in with the link' }).click();
  await heading(page, NODES).waitFor();
  await page.getByText(other.account, { exact: true }).first().waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a link that comes later logs in nobody by itself', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${engine.url}/#/markets`);
  await heading(page, MARKETS).waitFor();
  await page.evaluate((hash) => { location.hash = hash; }, tenant.link.replace(/^.*#/, ''));
  await page.getByRole('button', { name: 'Do not log in' }).click();
  await heading(page, MARKETS).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a token that no header can carry is refused in the form', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${engine.url}/#/login`);
  await page.getByLabel('Token').fill('€ 5');
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('main').getByText(/token is not valid|does not know this token/).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a bid goes to no other market than the one that the address names', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await page.evaluate((hash) => { location.hash = hash; }, placeLink('no-such/market'));
  const form = page.getByRole('form', { name: 'Place a bid' });
  const market = form.getByLabel('Market');
  await form.getByRole('option', { name: 'no-such/market is not open: choose another' }).waitFor({ state: 'attached' });
  await form.getByLabel('At most, $ per node-hour').fill('16');
  await form.getByRole('button', { name: 'Place bid' }).click();
  assert.equal(await market.evaluate((select) => select.validity.valueMissing), true);
  await market.selectOption(MARKET);
  await form.getByText('At $16.00 you get').waitFor();

  // The same holds when the market closes under a form that is filled in.
  await engine.call(engine.admin, 'POST', '/v1/markets', { market: 'a100-8x/other', rules: {} });
  await form.getByRole('option', { name: 'a100-8x/other' }).waitFor({ state: 'attached' });
  await market.selectOption('a100-8x/other');
  await engine.call(engine.admin, 'POST', '/v1/markets/a100-8x/other/close', {});
  await form.getByRole('option', { name: 'a100-8x/other is not open: choose another' }).waitFor({ state: 'attached', timeout: PATIENCE });
  assert.equal(await market.inputValue(), '');
  assert.deepEqual((await engine.call(tenant.token, 'GET', '/v1/bids')).bids, []);
  assert.deepEqual(faults, []);
  await context.close();
});
