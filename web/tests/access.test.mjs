// Every view for everyone: axe finds nothing in light and dark, nothing is wider than the window, prices are there without JavaScript.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { Engine, live, openWindow, startBrowser } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

let browser;
let engine;
/** @type {Record<string, {link: string, token: string}>} */
const people = {};

/** Each view: whose it is, its address, what shows that it is drawn, and what to open in it. */
const VIEWS = [
  ['tenant', '#/markets', (page) => page.getByRole('row').filter({ hasText: MARKET })],
  ['tenant', `#/market/${MARKET}`, (page) => page.getByText('median')],
  ['tenant', '#/nodes', (page) => page.getByText('Notice: ends in')],
  ['tenant', '#/nodes', (page) => page.getByText('What led here'), (page) => page.getByRole('button', { name: /^Why\?, node/ }).first().click()],
  ['tenant', '#/nodes', (page) => page.getByRole('dialog'), (page) => page.getByRole('button', { name: /^Amend/ }).first().click()],
  ['tenant', '#/nodes', (page) => page.getByRole('dialog'), (page) => page.getByRole('button', { name: /^Release/ }).first().click()],
  ['tenant', '#/nodes', (page) => page.getByText('ssh -p 2222 ubuntu@node'), (page) => page.getByRole('button', { name: /^Access/ }).first().click()],
  ['tenant', '#/nodes', (page) => page.getByLabel('Labels'), (page) => page.getByText('More', { exact: true }).click()],
  ['tenant', '#/money', (page) => page.getByRole('rowheader').first()],
  ['provider', '#/offers', (page) => page.getByRole('rowheader', { name: /#1/ }).first()],
  ['provider', '#/offers', (page) => page.getByText('is wanted').or(page.getByText('are wanted')), (page) => page.getByRole('button', { name: /^Change/ }).first().click()],
  ['provider', '#/offers', (page) => page.getByText('a-key-without-any-place'), (page) => page.getByRole('button', { name: /^Set up/ }).first().click()],
  ['provider', '#/money', (page) => page.getByText('Earning now')],
  ['admin', '#/admin', (page) => page.getByRole('rowheader', { name: 'acme' }).first()],
  ['admin', '#/admin', (page) => page.getByRole('dialog'), (page) => page.getByRole('button', { name: 'New token' }).click()],
  ['admin', '#/admin', (page) => page.getByRole('dialog'), (page) => page.getByRole('button', { name: /^Rules/ }).first().click()],
  ['tenant', '#/nodes', (page) => page.getByRole('button', { name: 'Another like it' }), async (page) => {
    await page.getByLabel('At most, $ per node-hour').fill('1');
    await page.getByRole('button', { name: 'Place bid' }).click();
  }],
  ['tenant', '#/none', (page) => page.getByText('The address names none.')],
  ['stranger', '#/login', (page) => page.getByLabel('Token')],
];

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--public-markets']);
  people.provider = await engine.person('acme', 'PROVIDER');
  people.tenant = await engine.person('tenant-with-a-long-name-'.padEnd(63, 'x'), 'TENANT');
  people.admin = { link: `${engine.url}/#token=${engine.admin}`, token: engine.admin };
  people.stranger = { link: `${engine.url}/`, token: '' };
  await engine.market(MARKET, people.provider);
  const rival = await engine.person('tenant-b', 'TENANT');
  const bid = await engine.bid(people.tenant, MARKET, 16, 2, { team: 'vision', 'a-key-of-a-label': 'a-value-without-any-place-to-break-it-as-they-come-from-programs' });
  await engine.ready(people.tenant, bid);
  const { allocations: [first] } = await engine.call(people.provider.token, 'GET', '/v1/allocations');
  const access = { addresses: ['node-with-a-long-name.'.repeat(6)], ports: { ssh: 2222 }, user: 'ubuntu', notes: 'two\nlines' };
  await engine.call(people.provider.token, 'POST', `/v1/allocations/${first.allocation}/ready`, { access });
  await engine.bid(rival, MARKET, 20, 1);
  await engine.market('a100-8x/eu-west', people.provider, 1);
  await engine.call(rival.token, 'POST', '/v1/bids', {
    markets: ['a100-8x/eu-west'], ceiling_micros: '16000000', max_nodes: 1, node_config: btoa('a-key-without-any-place-to-break-it'.repeat(8)),
  });
  await engine.bid(people.tenant, MARKET, 5, 3);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Opens a view. */
async function open(page, [, address, drawn, act]) {
  await page.evaluate((hash) => { location.hash = hash; }, address);
  if (act) await act(page);
  await drawn(page).first().waitFor();
}

/** Returns what axe finds on a page. */
async function axeFinds(page) {
  await page.evaluate(AXE);
  const { violations, passes } = await page.evaluate(() => window.axe.run(document));
  assert.ok(passes.some(({ id }) => id === 'color-contrast'), 'axe looked at the page');
  return violations.map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.html).join(' | ')}`);
}

/** Returns what of a page is wider than its window. */
function tooWide(page) {
  return page.evaluate(() => {
    const { scrollWidth } = document.documentElement;
    const wide = [...document.querySelectorAll('main *, header *, dialog *')].filter((element) => {
      const box = element.getBoundingClientRect();
      return box.width > 0 && box.right > window.innerWidth + 1 && !element.closest('.unseen');
    });
    const found = wide.map((element) => `beyond the window: ${element.outerHTML.slice(0, 120)}`);
    return scrollWidth > window.innerWidth ? [`${scrollWidth} pixels wide`, ...found] : found;
  });
}

for (const [colorScheme, width] of [['light', 1280], ['dark', 360], ['light', 360], ['dark', 1280]]) {
  test(`axe finds nothing, and nothing is cut off, in the ${colorScheme} scheme at ${width} pixels`, async () => {
    const found = [];
    const windows = new Map();
    for (const view of VIEWS) {
      const [who, address] = view;
      if (!windows.has(who)) {
        const opened = await openWindow(browser, { colorScheme, viewport: { width, height: 740 }, reducedMotion: 'reduce' });
        await opened.page.goto(people[who].link);
        await live(opened.page);
        windows.set(who, opened);
      }
      const { page } = windows.get(who);
      await open(page, view);
      const name = `${who} ${address}`;
      found.push(...(await axeFinds(page)).map((fault) => `${name}: ${fault}`), ...(await tooWide(page)).map((fault) => `${name}: ${fault}`));
      const dialog = page.getByRole('dialog');
      if (await dialog.count() > 0) {
        await page.keyboard.press('Escape');
        await dialog.waitFor({ state: 'detached' });
      }
    }
    for (const { context, faults } of windows.values()) {
      found.push(...faults);
      await context.close();
    }
    assert.deepEqual(found, []);
  });
}

test('a table has room for its words at any width, and a market all its numbers', async () => {
  const { page, context } = await openWindow(browser);
  await page.goto(people.tenant.link);
  await live(page);
  for (const width of [360, 721, 900, 901, 1099, 1100, 1200]) {
    await page.setViewportSize({ width, height: 740 });
    await open(page, VIEWS[2]);
    const narrow = await page.evaluate(() => [...document.querySelectorAll('td.state')].map((cell) => cell.clientWidth).filter((size) => size < 100));
    assert.deepEqual(narrow, [], `a state at ${width} pixels`);
    assert.deepEqual(await tooWide(page), [], `${width} pixels`);
    await open(page, VIEWS[0]);
    const row = page.getByRole('row').filter({ hasText: MARKET });
    for (const part of ['.price', '.entry', '.floor', '.use', '.change', '.past']) await row.locator(part).waitFor();
  }
  await context.close();
});

test('the prices of public markets are there without JavaScript', async () => {
  const { page, context } = await openWindow(browser, { javaScriptEnabled: false });
  await page.goto(engine.url);
  const row = page.getByRole('row').filter({ hasText: MARKET });
  await row.getByText('2 of 2').waitFor();
  assert.equal(await page.getByRole('columnheader', { name: 'Price' }).count(), 1);
  await context.close();
});

test('a stranger sees public markets live, and their own things only after a log-in', async () => {
  const { page, context, faults } = await openWindow(browser);
  await page.goto(engine.url);
  await live(page);
  await page.getByRole('row').filter({ hasText: MARKET }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Bids and nodes' }).count(), 0);
  await page.getByRole('link', { name: MARKET }).click();
  await page.getByRole('heading', { name: MARKET }).waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('markets, landmarks and headings have names', async () => {
  const { page, context } = await openWindow(browser);
  await page.goto(people.tenant.link);
  await live(page);
  await open(page, VIEWS[2]);
  for (const name of ['Nodes', 'Bids', 'What happened']) assert.equal(await page.getByRole('region', { name, exact: true }).count(), 1, name);
  assert.equal(await page.getByRole('navigation', { name: 'Views' }).count(), 1);
  assert.equal(await page.getByRole('main').count(), 1);
  assert.equal(await page.getByRole('heading', { level: 1 }).count(), 1);
  assert.match(await page.title(), /Bids and nodes/);
  await context.close();
});
