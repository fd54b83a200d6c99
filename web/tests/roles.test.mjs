// What providers and administrators do on the page.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Engine, focused, live, openWindow, startBrowser } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';

let browser;
let engine;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--allow-inject']);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

test('an administrator opens a market, makes an account and a token, changes rules, drills and revokes', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${engine.url}/#token=${engine.admin}`);
  await live(page);
  /** @type {string[]} */
  const drills = [];
  page.on('request', (request) => { if (request.url().includes('/v1/inject/')) drills.push(request.url()); });
  await page.getByRole('link', { name: 'Administration' }).click();
  const dialog = page.getByRole('dialog');

  await page.getByRole('button', { name: 'Open a market' }).click();
  await dialog.getByLabel('Market, TYPE/REGION').fill(MARKET);
  await dialog.getByText('Rules', { exact: true }).click();
  await dialog.getByLabel('Protected for, seconds').fill('0');
  await dialog.getByLabel('Notice, seconds').fill('90');
  await dialog.getByRole('button', { name: 'Open' }).click();
  const market = page.getByRole('row').filter({ hasText: MARKET });
  await market.getByText('1 min 30 s').waitFor();

  await market.getByRole('button', { name: 'Rules' }).click();
  await dialog.getByLabel('To displace, % more').fill('12.5');
  await dialog.getByRole('button', { name: 'Change' }).click();
  await dialog.waitFor({ state: 'detached' });
  const { markets } = await engine.call(engine.admin, 'GET', '/v1/markets');
  assert.deepEqual([markets[0].rules.increment_bps, markets[0].rules.notice_us, markets[0].rules.min_runtime_us], [1250, '90000000', '0']);

  await page.getByRole('button', { name: 'New account' }).click();
  await dialog.getByLabel('Name').fill('blue');
  await dialog.getByText('Limits', { exact: true }).click();
  await dialog.getByLabel('Open bids').fill('7');
  await dialog.getByLabel('Ceiling, $ per node-hour').fill('12,5');
  await dialog.getByRole('button', { name: 'Make' }).click();
  await dialog.getByText('Ceiling: Cents follow a point, as in 12.50.').waitFor();
  await dialog.getByLabel('Ceiling, $ per node-hour').fill('12.5');
  await dialog.getByRole('button', { name: 'Make' }).click();
  await page.getByRole('row').filter({ hasText: 'open bids 7, ceiling $12.50' }).waitFor();

  await page.getByRole('button', { name: 'New token' }).click();
  await dialog.getByLabel('Account').selectOption('blue');
  await dialog.getByRole('button', { name: 'Make' }).click();
  const secret = await dialog.getByLabel('Secret').inputValue();
  assert.match(secret, /^kb_[0-9a-f]{64}$/);
  await dialog.getByRole('button', { name: 'I have kept it' }).click();
  await page.waitForFunction(() => !document.querySelector('dialog'));
  assert.ok(!(await page.content()).includes(secret), 'the secret is shown once');

  const acme = await engine.person('acme', 'PROVIDER');
  await engine.call(acme.token, 'PUT', `/v1/markets/${MARKET}/offer`, { capacity: 1, reserve_micros: '8000000' });
  const bid = await engine.bid({ token: secret }, MARKET, 9, 1);
  await engine.ready({ token: secret }, bid);
  const { allocations } = await engine.call(secret, 'GET', `/v1/allocations?bid=${bid}`);
  await page.getByLabel('Give a notice to node').fill(allocations[0].allocation);
  await page.getByRole('button', { name: 'Pre-empt' }).click();
  await page.getByText(`Node ${allocations[0].allocation} has a notice.`).waitFor();
  assert.equal(drills.length, 1, 'no drill but that of the button');

  await page.getByRole('button', { name: 'Revoke, token of blue' }).click();
  await dialog.getByRole('button', { name: 'Revoke' }).click();
  await page.getByRole('button', { name: 'Revoke, token of blue' }).waitFor({ state: 'detached' });
  await assert.rejects(engine.call(secret, 'GET', '/v1/bids'), /UNAUTHENTICATED/);

  await market.getByRole('button', { name: 'Close' }).click();
  await dialog.getByRole('button', { name: 'Close' }).click();
  await market.getByText('closing').waitFor();
  assert.equal(await market.getByRole('button', { name: 'Close' }).isVisible(), false);

  await page.getByRole('button', { name: 'New account' }).click();
  await dialog.getByLabel('Name').fill('no good');
  await dialog.getByRole('button', { name: 'Make' }).click();
  assert.equal(await dialog.getByLabel('Name').evaluate((input) => input.validity.patternMismatch), true);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a provider offers units, reports a node ready, asks for more, and withdraws a unit', async () => {
  const market = 'a100-8x/eu-west';
  const rules = { min_runtime_us: '0', notice_us: '3600000000', min_charge_us: '0' };
  await engine.call(engine.admin, 'POST', '/v1/markets', { market, rules });
  const [provider, tenant] = [await engine.person('zinc', 'PROVIDER'), await engine.person('green', 'TENANT')];
  const { page, context, faults } = await openWindow(browser);
  const dialog = page.getByRole('dialog');
  await page.goto(provider.link);
  await live(page);
  await page.getByRole('link', { name: 'Offers' }).click();

  await page.getByRole('button', { name: 'New offer' }).click();
  await dialog.getByLabel('Market').selectOption(market);
  await dialog.getByLabel('Reserve, $ per node-hour').fill('4');
  await dialog.getByLabel('Units').fill('2');
  await dialog.getByText('At $4.00 or more, 0 nodes are wanted').waitFor();
  await dialog.getByRole('button', { name: 'Offer' }).click();
  await page.getByRole('region', { name: 'Offers' }).getByText('$4.00').waitFor();

  await engine.bid(tenant, market, 5, 1);
  const unit = page.getByRole('row').filter({ hasText: `${market}:zinc#1` });
  await unit.getByText('Held, to be started').waitFor();
  await unit.getByRole('button', { name: 'Report ready' }).click();
  await unit.getByText('Held', { exact: true }).waitFor();
  // The focus goes to the next button when its own is gone.
  await focused(unit.getByRole('button', { name: 'Access' }));

  await page.getByRole('button', { name: 'Change the offer in' }).click();
  await dialog.getByLabel('Reserve, $ per node-hour').fill('6');
  await dialog.getByText('Tenants whose ceiling is lower get a notice.').waitFor();
  await dialog.getByRole('button', { name: 'Change' }).click();
  await unit.getByText('Held, under notice').waitFor();

  const other = page.getByRole('row').filter({ hasText: `${market}:zinc#2` });
  await other.getByRole('button', { name: 'Withdraw' }).click();
  await dialog.getByText('It leaves at once.').waitFor();
  await dialog.getByRole('button', { name: 'Withdraw' }).click();
  await other.waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'Money' }).click();
  await page.getByText('Earning now').waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a provider sees that units rest, and resumes one and then all of them', async () => {
  const market = 'a100-8x/resting';
  await engine.call(engine.admin, 'POST', '/v1/markets', { market, rules: { start_timeout_us: '300000', min_charge_us: '0' } });
  const [provider, tenant] = [await engine.person('tin', 'PROVIDER'), await engine.person('blue', 'TENANT')];
  await engine.call(provider.token, 'PUT', `/v1/markets/${market}/offer`, { capacity: 3, reserve_micros: '4000000' });
  // Nobody reports a node ready, so that every unit that the bid gets rests.
  const bid = await engine.bid(tenant, market, 5, 3);
  const { page, context, faults } = await openWindow(browser);
  await page.goto(provider.link);
  await live(page);
  await page.getByRole('link', { name: 'Offers' }).click();
  await page.getByText('on offer, 3 of them resting').waitFor();
  await engine.call(tenant.token, 'POST', `/v1/bids/${bid}/cancel`, { mode: 'RELEASE' });
  const unit = page.getByRole('row').filter({ hasText: `${market}:tin#1` });
  await unit.getByText('Rests: its node was not ready in time').waitFor();
  await unit.getByRole('button', { name: 'Resume' }).click();
  await unit.getByText('Free', { exact: true }).waitFor();
  assert.equal(await unit.getByRole('button', { name: 'Resume' }).count(), 0);
  await page.getByRole('button', { name: 'Resume all, units in' }).click();
  await page.getByText('Rests:').first().waitFor({ state: 'detached' });
  await page.getByRole('link', { name: market }).first().click();
  await page.getByText('3 free').waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('an administrator sees the money of one account and of all, spent and earned', async () => {
  const market = 'l40s-4x/us-east';
  const [provider, tenant, other] = [await engine.person('iron', 'PROVIDER'), await engine.person('red', 'TENANT'), await engine.person('pink', 'TENANT')];
  await engine.market(market, provider, 3, 2);
  for (const [person, nodes] of [[tenant, 2], [other, 1]]) await engine.ready(person, await engine.bid(person, market, 5, nodes));
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${engine.url}/#token=${engine.admin}`);
  await live(page);
  await page.getByRole('link', { name: 'Money' }).click();
  await page.getByText('0 running nodes').waitFor();
  await page.getByLabel('Account').selectOption('red');
  await page.getByText('$4.00 / h').waitFor();
  await page.getByLabel('Account').selectOption('iron');
  await page.getByText('0 running nodes').waitFor();
  await page.getByLabel('Spend or earnings').selectOption('earned');
  await page.getByText('3 running nodes').waitFor();
  await page.getByLabel('Account').selectOption('all accounts');
  await page.getByLabel('Sums by').selectOption('by tenant');
  for (const name of ['red', 'pink']) await page.getByRole('rowheader', { name, exact: true }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});
