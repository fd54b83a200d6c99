// A flood of events: the page stays current, answers clicks, and does not grow.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { after, before, test } from 'node:test';
import { Engine, PATIENCE, live, openWindow, startBrowser } from './harness.mjs';

const MARKETS = Array.from({ length: 10 }, (_, index) => `type-${index}/region`);
const EVENTS_PER_SECOND = 1000;

let browser;
let engine;
let flood;

/**
 * Passes requests on to an engine, and answers its stream of events with a flood of price changes.
 * @param {string} url
 */
async function startFlood(url) {
  const state = { sent: 0 };
  const server = createServer((asked, answer) => {
    if (!asked.url.startsWith('/v1/events/stream')) {
      const passed = request(url + asked.url, { method: asked.method, headers: asked.headers }, (from) => {
        answer.writeHead(from.statusCode, from.headers);
        from.pipe(answer);
      });
      passed.on('error', () => answer.destroy());
      asked.pipe(passed);
      return;
    }
    answer.writeHead(200, { 'content-type': 'text/event-stream' });
    const every = 20;
    const timer = setInterval(() => {
      const events = Array.from({ length: (EVENTS_PER_SECOND * every) / 1000 }, () => {
        state.sent += 1;
        const market = MARKETS[state.sent % MARKETS.length];
        const numbers = { market_price_micros: String(8_000_000 + (state.sent % 4000) * 10_000), floor_micros: '8000000', highest_losing_micros: '0' };
        return { seq: String(1_000_000 + state.sent), index: 0, at_us: String(Date.now() * 1000), price_changed: { market, numbers } };
      });
      server.emit('flood');
      answer.write(`event: events\ndata: ${JSON.stringify({ events, cursor: 'c', seq: String(1_000_000 + state.sent) })}\n\n`);
    }, every);
    answer.on('close', () => clearInterval(timer));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  return { state, server, url: `http://127.0.0.1:${server.address().port}` };
}

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start();
  const provider = await engine.person('acme', 'PROVIDER');
  for (const market of MARKETS) await engine.market(market, provider, 4, 8);
  flood = await startFlood(engine.url);
});
after(async () => {
  await browser?.close();
  flood?.server.closeAllConnections();
  flood?.server.close();
  await engine?.stop();
});

test('a thousand events a second leave the page usable', async () => {
  const tenant = await engine.person('tenant-a', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  await page.goto(`${flood.url}/#token=${tenant.token}`);
  await live(page);
  const heap = async () => {
    const session = await context.newCDPSession(page);
    await session.send('HeapProfiler.collectGarbage');
    const { usedSize } = await session.send('Runtime.getHeapUsage');
    await session.detach();
    return usedSize;
  };
  const passed = async (count) => {
    const goal = flood.state.sent + count;
    while (flood.state.sent < goal) await once(flood.server, 'flood');
  };
  await passed(2000);
  const before = await heap();
  await page.getByRole('link', { name: 'Markets' }).click();
  await page.getByRole('row').filter({ hasText: MARKETS[9] }).waitFor();
  await page.getByRole('link', { name: MARKETS[0] }).click();
  await page.getByRole('heading', { name: MARKETS[0] }).waitFor();
  await passed(5000);
  await page.getByRole('link', { name: 'Bids and nodes' }).click();
  const form = page.getByRole('form', { name: 'Place a bid' });
  await form.getByLabel('At most, $ per node-hour').fill('16');
  await form.getByRole('button', { name: 'Place bid' }).click();
  await form.getByText(/^Bid \d+ placed\.$/).waitFor();
  await passed(5000);
  await live(page);
  // What waits to be drawn is in the heap, too, until it is drawn.
  const giveUp = Date.now() + PATIENCE;
  let grown = (await heap()) - before;
  while (grown >= 8_000_000 && Date.now() < giveUp) grown = (await heap()) - before;
  assert.ok(grown < 8_000_000, `the heap grew by ${grown} bytes in 10,000 events`);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a long list begins with what is under notice, and finds nodes by their text', async () => {
  const provider = await engine.person('zinc', 'PROVIDER');
  const [tenant, rival] = [await engine.person('tenant-b', 'TENANT'), await engine.person('tenant-c', 'TENANT')];
  for (const [market, units, label] of [['many/west', 24, 'bulk'], ['few/east', 1, 'last']]) {
    await engine.market(market, provider, units, 2);
    await engine.ready(tenant, await engine.bid(tenant, market, 3, units, { job: label }));
  }
  await engine.bid(rival, 'few/east', 5, 1);
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  const nodes = page.getByRole('region', { name: 'Nodes', exact: true });
  const rows = nodes.getByRole('rowheader');
  await nodes.getByText('25 nodes, 1 under notice').waitFor();
  assert.equal(await rows.count(), 20);
  await rows.first().filter({ hasText: 'few/east' }).waitFor();
  await nodes.getByRole('button', { name: 'Show all 25' }).click();
  await rows.nth(24).waitFor();
  await nodes.getByLabel('Find nodes').fill('east job=last');
  await rows.nth(1).waitFor({ state: 'detached' });
  assert.equal(await rows.count(), 1);
  assert.deepEqual(faults, []);
  await context.close();
});
