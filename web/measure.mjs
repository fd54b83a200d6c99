// Prints the figures of the page: bytes, first paint, what ten markets cost that tick ten times a second, memory.
// Run: KUBEBID_BINARY=target/release/kubebid node web/measure.mjs [SECONDS]

import { Engine, live, openWindow, startBrowser } from './tests/harness.mjs';

const SECONDS = Number(process.argv[2] ?? 60);
const MARKETS = 10;

const browser = await startBrowser();
const engine = await Engine.start(['--limit-requests-per-second', '100000', '--limit-commands-per-day', '100000000']);
const acme = await engine.person('acme', 'PROVIDER');
const tenant = await engine.person('tenant-a', 'TENANT');
const rival = await engine.person('tenant-b', 'TENANT');
const bids = [];
for (let index = 0; index < MARKETS; index += 1) {
  const name = `type-${index}/region`;
  await engine.market(name, acme, 2, 5);
  await engine.ready(rival, await engine.bid(rival, name, 50, 2));
  bids.push(await engine.bid(rival, name, 10, 1));
}

const { page, context } = await openWindow(browser);
const session = await context.newCDPSession(page);
await session.send('Network.enable');
let bytes = 0;
let requests = 0;
session.on('Network.loadingFinished', ({ encodedDataLength }) => { bytes += encodedDataLength; requests += 1; });
await page.goto(tenant.link, { waitUntil: 'load' });
await live(page);
const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
console.log(`loaded: ${requests} requests, ${bytes} bytes over the wire, first contentful paint after ${paint?.toFixed(0)} ms`);

// Each change of a waiting ceiling is a change of the price.
let ticks = 0;
let price = 0;
const ticking = bids.map((bid) => setInterval(() => {
  ticks += 1;
  price = (price + 1) % 100;
  engine.call(rival.token, 'PATCH', `/v1/bids/${bid}`, { ceiling_micros: String(10_000_000 + price * 10_000) }).catch((error) => console.log(String(error)));
}, 100));

await session.send('Performance.enable');
const metrics = async () => {
  await session.send('HeapProfiler.collectGarbage');
  const { metrics: all } = await session.send('Performance.getMetrics');
  return Object.fromEntries(all.map(({ name, value }) => [name, value]));
};
for (const address of ['#/markets', '#/market/type-0/region', '#/nodes', '#/money']) {
  await page.evaluate((hash) => { location.hash = hash; }, address);
  await page.waitForTimeout(3000);
  const [before, began] = [await metrics(), ticks];
  await page.waitForTimeout(SECONDS * 1000);
  const after = await metrics();
  const share = (100 * (after.TaskDuration - before.TaskDuration)) / (after.Timestamp - before.Timestamp);
  console.log(`${address.padEnd(24)} ${((ticks - began) / SECONDS).toFixed(0)} changes/s: ${share.toFixed(1)} % of a core; heap ${(before.JSHeapUsedSize / 1e6).toFixed(1)} -> ${
    (after.JSHeapUsedSize / 1e6).toFixed(1)} MB, ${before.Nodes} -> ${after.Nodes} DOM nodes, ${before.JSEventListeners} -> ${after.JSEventListeners} listeners`);
}
for (const timer of ticking) clearInterval(timer);
await browser.close();
await engine.stop();
