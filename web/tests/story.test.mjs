// The story of the README, played on the page: place a bid, be outbid, stay, see the bill, release.

import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { Engine, focused, live, openWindow, startBrowser, tabTo } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';

let browser;
let engine;
let provider;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start();
  provider = await engine.person('acme', 'PROVIDER');
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** The row of the only node. @param {import('playwright-core').Page} page */
function nodeRow(page) {
  return page.getByRole('region', { name: 'Nodes' }).getByRole('row').nth(1);
}

test('a tenant places a bid, is outbid, stays, sees the bill and releases, by mouse, beside a rival in another window', async () => {
  await engine.market(MARKET, provider);
  const [tenant, rival] = [await engine.person('tenant-a', 'TENANT'), await engine.person('tenant-b', 'TENANT')];
  const [mine, other] = [await openWindow(browser), await openWindow(browser)];
  const page = mine.page;

  await page.goto(tenant.link);
  await live(page);
  assert.equal(page.url(), `${engine.url}/#/nodes`, 'the token is not in the address bar');
  assert.equal(await page.evaluate(() => sessionStorage.getItem('kubebid.token')), tenant.token);
  assert.equal(await page.evaluate(() => localStorage.length + document.cookie.length), 0);

  const form = page.getByRole('form', { name: 'Place a bid' });
  await form.getByText('1 node now needs $8.00.').waitFor();
  await form.getByLabel('At most, $ per node-hour').fill('16');
  await form.getByText('At $16.00 you get 1 node at once.').waitFor();
  await form.getByRole('button', { name: 'Place bid' }).click();
  await nodeRow(page).getByText('Starting').waitFor();
  await nodeRow(page).getByRole('button', { name: 'Report ready' }).click();
  await nodeRow(page).getByText('Running').waitFor();

  await other.page.goto(rival.link);
  const rivalForm = other.page.getByRole('form', { name: 'Place a bid' });
  await rivalForm.getByLabel('At most, $ per node-hour').fill('12');
  await rivalForm.getByLabel('Nodes', { exact: true }).fill('2');
  await rivalForm.getByText('At $12.00 you get 1 of them at once, and your bid waits for 1 more.').waitFor();
  await rivalForm.getByText('More', { exact: true }).click();
  await rivalForm.getByLabel('It searches until').selectOption('IOC');
  await rivalForm.getByText('At $12.00 you get 1 of them at once, and no more.').waitFor();
  await rivalForm.getByLabel('It searches until').selectOption('');
  await rivalForm.getByLabel('At most, $ per node-hour').fill('20');
  await rivalForm.getByText('At $20.00 you get 2 nodes, 1 of them when a notice ends.').waitFor();
  await rivalForm.getByRole('button', { name: 'Place bid' }).click();

  await nodeRow(page).getByText('Notice: ends in').waitFor();
  await page.locator('#assertive').getByText(/^Notice for node \d+: it ends in/).waitFor({ state: 'attached' });
  await nodeRow(page).getByRole('button', { name: 'Why?' }).click();
  await page.getByRole('dialog').getByText('displaced it').waitFor();
  assert.equal(await page.getByRole('dialog').locator('.lead time').count(), 1, 'an instant in a sentence is one as people read it');
  await page.getByRole('button', { name: 'Close' }).click();
  await nodeRow(page).getByRole('button', { name: 'Raise to $19.05 and stay' }).click();
  await nodeRow(page).getByText('Running').waitFor();
  await page.getByRole('region', { name: 'Bids' }).getByText('$19.05').waitFor();
  await other.page.getByText('Wants 1 more').waitFor();

  await page.getByRole('link', { name: 'Money' }).click();
  await page.getByText('1 running node').waitFor();
  await page.getByRole('rowheader', { name: /^Bid \d+, h100/ }).waitFor();
  await page.getByRole('link', { name: 'Bids and nodes' }).click();
  await nodeRow(page).getByRole('button', { name: 'Release' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Release' }).click();
  await page.getByText('You hold no node.').waitFor();
  await page.getByText(/^Node \d+ ended: released$/).first().waitFor();

  await page.getByRole('link', { name: 'Money' }).click();
  await page.getByText('0 running nodes').waitFor();
  const downloading = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Statement as CSV' }).click();
  const file = await readFile(await (await downloading).path(), 'utf8');
  const [head, line] = file.split('\r\n').map((row) => row.split(','));
  const { charges } = await engine.call(tenant.token, 'GET', '/v1/charges');
  assert.equal(charges.length, 1);
  const debit = Number(line[head.indexOf('debit_dollars')]);
  assert.equal(Math.round(debit * 1e6), Number(charges[0].debit_micros));
  assert.equal(line[head.indexOf('reason')], 'released');
  assert.deepEqual([...mine.faults, ...other.faults], []);
  await mine.context.close();
  await other.context.close();
});

test('the same story works with the keyboard alone', async () => {
  const market = 'a100-8x/eu-west';
  await engine.market(market, provider);
  const [tenant, rival] = [await engine.person('tenant-c', 'TENANT'), await engine.person('tenant-d', 'TENANT')];
  const { page, context, faults } = await openWindow(browser);
  const keys = page.keyboard;
  await page.goto(tenant.link);
  await live(page);

  const form = page.getByRole('form', { name: 'Place a bid' });
  await tabTo(page, form.getByLabel('Market'));
  await keys.type('a100');
  await keys.press('Tab');
  await keys.type('16');
  await form.getByText('At $16.00 you get 1 node at once.').waitFor();
  await keys.press('Enter');
  await tabTo(page, nodeRow(page).getByRole('button', { name: 'Report ready' }));
  await keys.press('Enter');
  await nodeRow(page).getByText('Running').waitFor();
  // The focus goes to the next button when its own is gone.
  await focused(nodeRow(page).getByRole('button', { name: 'Release' }));

  const bid = await engine.bid(rival, market, 20, 2);
  await tabTo(page, nodeRow(page).getByRole('button', { name: /^Raise to/ }));
  await keys.press('Enter');
  await nodeRow(page).getByText('Running').waitFor();
  await engine.ready(rival, bid);

  await tabTo(page, nodeRow(page).getByRole('button', { name: 'Release' }));
  await keys.press('Enter');
  await tabTo(page, page.getByRole('dialog').getByRole('button', { name: 'Release' }));
  await keys.press('Enter');
  await page.getByText('You hold no node.').waitFor();

  await engine.bid(tenant, market, 5, 1);
  await tabTo(page, page.getByRole('button', { name: /^Cancel, bid/ }));
  await keys.press('Space');
  await page.getByRole('dialog').waitFor();
  await keys.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  // The focus is back where the dialog was opened.
  await focused(page.getByRole('button', { name: /^Cancel, bid/ }));
  await tabTo(page, page.getByRole('link', { name: 'Money' }));
  await keys.press('Enter');
  await page.getByRole('heading', { name: 'Money', level: 1 }).waitFor();
  await focused(page.getByRole('heading', { name: 'Money', level: 1 }));
  await page.getByText('0 running nodes').waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a tenant sees what a change of a bid costs and does before it is sent', async () => {
  const market = 'h100-8x/charged';
  await engine.market(market, provider);
  await engine.call(engine.admin, 'PATCH', `/v1/markets/${market}/rules`, { rules: { min_charge_us: '300000000' } });
  const [tenant, rival] = [await engine.person('tenant-g', 'TENANT'), await engine.person('tenant-h', 'TENANT')];
  await engine.ready(tenant, await engine.bid(tenant, market, 12, 3));
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  const dialog = page.getByRole('dialog');
  const form = page.getByRole('form', { name: 'Place a bid' });
  await page.getByText('Wants 1 more').waitFor();
  await form.getByLabel('Market').selectOption(market);
  await form.getByLabel('At most, $ per node-hour').fill('12');
  await form.getByText(/^At \$12\.00 your bid waits:/).waitFor();
  assert.equal(await form.getByText('that others want').count(), 0, 'the node that an own bid waits for is not wanted by others');
  await form.getByLabel('At most, $ per node-hour').fill('12.00001');
  await form.getByRole('button', { name: 'Place bid' }).click();
  await form.getByRole('alert').getByText('“At most” $12.00001 is not a multiple of the tick $0.0001').waitFor();
  await form.getByLabel('At most, $ per node-hour').fill('12.0001');
  assert.equal(await form.getByRole('alert').textContent(), '', 'an error goes when its field is corrected');

  await page.getByRole('button', { name: /^Amend/ }).click();
  await dialog.getByLabel('At most, $ per node-hour').fill('11');
  await dialog.getByText('A lower ceiling makes its nodes easier to outbid. It waits: one node more now needs $12.60 or more.').waitFor();
  await dialog.getByLabel('At most, $ per node-hour').fill('13');
  await dialog.getByText('It may wait: nodes of this bid do not count as nodes that it can get.').waitFor();
  assert.equal(await dialog.getByText('It waits').count(), 0);
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: /^Cancel, bid/ }).click();
  await dialog.getByText('A node that ends now without a notice is billed for at least 5 min.').waitFor();
  await page.keyboard.press('Escape');

  await engine.bid(rival, market, 20, 1);
  const other = await openWindow(browser);
  await other.page.goto(rival.link);
  await other.page.getByText('Filled soon').waitFor();
  await other.page.getByRole('button', { name: /^Cancel, bid/ }).click();
  await other.page.getByRole('dialog').getByText('It gives up 1 claim on nodes under notice. A claim that is given up is billed for 5 min.').waitFor();
  await other.page.keyboard.press('Escape');
  await other.page.getByRole('button', { name: /^Amend/ }).click();
  await other.page.getByLabel('At most, $ per node-hour').last().fill('19');
  await other.page.getByRole('dialog').getByText('It may lose claims, each billed for 5 min.').waitFor();
  assert.deepEqual([...faults, ...other.faults], []);
  await other.context.close();
  await context.close();
});

test('a tenant regroups a bid that waits for several nodes at once, and only such a bid', async () => {
  const market = 'h100-8x/gangs';
  await engine.market(market, provider, 4);
  const tenant = await engine.person('tenant-i', 'TENANT');
  const gang = { markets: [market], ceiling_micros: '12000000', min_nodes: 3, max_nodes: 3 };
  const { bid } = await engine.call(tenant.token, 'POST', '/v1/bids', gang);
  const plain = await engine.bid(tenant, market, 13, 1);
  await engine.ready(tenant, bid);
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await page.getByRole('button', { name: `Cancel, bid ${plain}` }).waitFor();
  assert.equal(await page.getByRole('button', { name: `Regroup, bid ${plain}` }).count(), 0);
  // One of three nodes leaves: the rest may be worth nothing.
  await engine.call(provider.token, 'PUT', `/v1/markets/${market}/offer`, { capacity: 3, reserve_micros: '8000000' });
  await page.getByRole('button', { name: `Regroup, bid ${bid}` }).click();
  const dialog = page.getByRole('dialog');
  await dialog.getByText('The bid then waits until it gets 3 nodes at once again').waitFor();
  await dialog.getByRole('button', { name: 'End its nodes and regroup' }).click();
  await page.getByText('ended: its bid was regrouped').first().waitFor();
  await page.getByText('some nodes could be had, but not as many at once').waitFor();
  assert.equal(await page.getByRole('button', { name: `Regroup, bid ${bid}` }).count(), 0, 'it holds nothing');
  assert.deepEqual(faults, []);
  await context.close();
});

test('a node config goes to the provider, and access data comes back to the tenant', async () => {
  const market = 'h100-8x/reached';
  await engine.market(market, provider, 1);
  const tenant = await engine.person('tenant-c', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  const form = page.getByRole('form', { name: 'Place a bid' });
  await form.getByLabel('Market').selectOption(market);
  await form.getByLabel('At most, $ per node-hour').fill('16');
  await form.getByText('More').click();
  await form.getByLabel('For the provider of the nodes').fill('ssh-ed25519 AAAA ü');
  await form.getByRole('button', { name: 'Place bid' }).click();
  await nodeRow(page).getByText('Starting').waitFor();
  assert.equal(await nodeRow(page).getByRole('button', { name: 'Access' }).count(), 0, 'there is nothing to reach');

  const seller = await openWindow(browser);
  await seller.page.goto(provider.link);
  await live(seller.page);
  await seller.page.getByRole('link', { name: 'Offers' }).click();
  const { allocations: [node] } = await engine.call(provider.token, 'GET', `/v1/allocations?market=${encodeURIComponent(market)}`);
  await seller.page.getByRole('button', { name: `Set up, unit ${node.unit}` }).click();
  const setUp = seller.page.getByRole('dialog', { name: `Set up node ${node.allocation}` });
  await setUp.getByText('ssh-ed25519 AAAA ü').waitFor();
  await setUp.getByLabel('Address').fill('10.0.0.7');
  await setUp.getByLabel('SSH port').fill('2222');
  await setUp.getByLabel('User').fill('ubuntu');
  await setUp.getByLabel('Notes').fill('<b>host key</b>\nSHA256:abc');
  await setUp.getByRole('button', { name: 'Report ready' }).click();

  await nodeRow(page).getByRole('button', { name: 'Access' }).click();
  const dialog = page.getByRole('dialog', { name: `How to reach node ${node.allocation}` });
  await dialog.getByText('ssh -p 2222 ubuntu@10.0.0.7').waitFor();
  await dialog.getByText('<b>host key</b>').waitFor();
  await dialog.getByText('SHA256:abc').waitFor();
  await page.keyboard.press('Escape');
  await dialog.waitFor({ state: 'detached' });

  await seller.page.getByRole('button', { name: `Access, unit ${node.unit}` }).click();
  const reached = seller.page.getByRole('dialog', { name: `How node ${node.allocation} is reached` });
  await reached.getByText('It replaces all that was reported before.').waitFor();
  await reached.getByRole('button', { name: 'Report access' }).click();
  assert.equal(await reached.getByLabel('Address').evaluate((input) => input.validity.valueMissing), true, 'an address is required');
  await reached.getByLabel('Address').fill('10.0.0.8');
  await reached.getByRole('button', { name: 'Report access' }).click();
  await seller.page.locator('#polite').getByText('Access reported.').waitFor({ state: 'attached' });
  await nodeRow(page).getByRole('button', { name: 'Access' }).click();
  await dialog.getByText('10.0.0.8', { exact: true }).waitFor();
  assert.equal(await dialog.getByText('10.0.0.7').count(), 0);
  assert.deepEqual([...faults, ...seller.faults], []);
  await seller.context.close();
  await context.close();
});

test('a price is on the page when it changes', async () => {
  const market = 'l40s-4x/us-east';
  await engine.market(market, provider, 1, 2);
  const tenant = await engine.person('tenant-e', 'TENANT');
  const { page, context } = await openWindow(browser);
  await page.goto(tenant.link);
  await page.getByRole('link', { name: 'Markets' }).click();
  const row = page.getByRole('row').filter({ hasText: market });
  await row.getByText('$2.00').first().waitFor();
  await live(page);
  const rival = await engine.person('tenant-f', 'TENANT');
  await engine.ready(rival, await engine.bid(rival, market, 5, 1));
  await engine.bid(tenant, market, 4.5, 1);
  await row.getByText('$4.50').waitFor();
  await row.getByText('1 of 1').waitFor();

  // The chart follows the price also while it reads no bars.
  await page.getByRole('link', { name: market }).click();
  await page.locator('.chart .line').waitFor({ state: 'attached' });
  await page.route('**/prices?*', (route) => route.abort());
  const line = await page.locator('.chart .line').getAttribute('d');
  await engine.bid(tenant, market, 4.8, 1);
  await page.waitForFunction((before) => document.querySelector('.chart .line')?.getAttribute('d') !== before, line);
  await page.locator('.numbers').getByText('$4.80').first().waitFor();
  await context.close();
});
