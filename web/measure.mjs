// Prints the figures of the page: bytes, first paint, processor time and memory while ten markets tick ten times a second.
// Run: KUBEBID_BINARY=target/release/kubebid node web/measure.mjs [SECONDS] [ROUNDS]
// Each view is open for SECONDS (60) in each of ROUNDS (1) rounds: `225 4` is an hour.

import { Engine, live, openWindow, startBrowser } from './tests/harness.mjs';

const SECONDS = Number(process.argv[2] ?? 60);
const ROUNDS = Number(process.argv[3] ?? 1);
const MARKETS = 10;
const VIEWS = ['#/markets', '#/market/type-0/region', '#/nodes', '#/money'];
/** The time from a change of the view until its figures count. */
const SETTLE_MS = 3000;

const browser = await startBrowser();
const engine = await Engine.start(['--limit-requests-per-second', '100000', '--limit-commands-per-day', '100000000']);
const acme = await engine.person('acme', 'PROVIDER');
const tenant = await engine.person('tenant-a', 'TENANT');
const rival = await engine.person('tenant-b', 'TENANT');
const bids = [];
for (let index = 0; index < MARKETS; index += 1) {
  const name = `type-${index}/region`;
  await engine.market(name, acme, 2, 5);
  await engine.ready(tenant, await engine.bid(tenant, name, 50, 1, { job: `job-${index}` }));
  await engine.ready(rival, await engine.bid(rival, name, 50, 1));
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
await session.send('Network.disable');

// Each change of a waiting ceiling is a change of the price.
let ticks = 0;
let price = 0;
const ticking = bids.map((bid) => {
  let busy = false;
  return setInterval(async () => {
    // On a busy machine the next change waits for the answer of the last one.
    if (busy) return;
    busy = true;
    price = (price + 1) % 100;
    try {
      await engine.call(rival.token, 'PATCH', `/v1/bids/${bid}`, { ceiling_micros: String(10_000_000 + price * 10_000) });
      ticks += 1;
    } catch (error) {
      console.log(String(error));
    }
    busy = false;
  }, 100);
});

// Tasks are measured in processor time: on a busy machine they also wait for the processor.
await session.send('Performance.enable', { timeDomain: 'threadTicks' });
const system = await browser.newBrowserCDPSession();
/** Returns the figures of the page, without what is only garbage. */
const metrics = async () => {
  // The first collection ends what the second one can free.
  for (let count = 0; count < 2; count += 1) await session.send('HeapProfiler.collectGarbage');
  const { metrics: all } = await session.send('Performance.getMetrics');
  const { processInfo } = await system.send('SystemInfo.getProcessInfo');
  const processor = processInfo.filter(({ type }) => type === 'renderer').reduce((sum, { cpuTime }) => sum + cpuTime, 0);
  return { at: performance.now(), processor, ...Object.fromEntries(all.map(({ name, value }) => [name, value])) };
};
const megabytes = (size) => (size / 1e6).toFixed(2);
const began = Date.now();
/** The heap of each view at the end of each round. @type {Map<string, number[]>} */
const heaps = new Map(VIEWS.map((view) => [view, []]));
for (let round = 1; round <= ROUNDS; round += 1) {
  for (const address of VIEWS) {
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await page.waitForTimeout(SETTLE_MS);
    const [before, ticked] = [await metrics(), ticks];
    await page.waitForTimeout(SECONDS * 1000);
    const after = await metrics();
    heaps.get(address).push(after.JSHeapUsedSize);
    const share = (key) => ((100 * (after[key] - before[key])) / ((after.at - before.at) / 1000)).toFixed(1);
    console.log(`${String(Math.round((Date.now() - began) / 60_000)).padStart(3)} min ${address.padEnd(24)} ${((ticks - ticked) / SECONDS).toFixed(0)} changes/s: ${
      share('TaskDuration')} % of a core (${share('processor')} % with the browser's threads of the page); heap ${megabytes(before.JSHeapUsedSize)} -> ${megabytes(after.JSHeapUsedSize)} MB, ${
      before.Nodes} -> ${after.Nodes} DOM nodes, ${before.JSEventListeners} -> ${after.JSEventListeners} listeners`);
  }
}
if (ROUNDS > 1) {
  for (const [address, sizes] of heaps) console.log(`${address.padEnd(24)} heap at the end of each round, MB: ${sizes.map(megabytes).join(', ')}`);
}
for (const timer of ticking) clearInterval(timer);
await browser.close();
await engine.stop();
