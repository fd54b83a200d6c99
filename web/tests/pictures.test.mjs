// Compares each view with the picture of it in tests/pictures/, on a narrow and on a wide window. A changed view is drawn anew by
// `UPDATE_EXPECT=1 cargo test -p kubebid --test page`; look at the new pictures before you commit them.

import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import pixelmatch from 'pixelmatch';
import { PNG } from 'pngjs';
import { Engine, live, openWindow, startBrowser } from './harness.mjs';

const FOLDER = new URL('pictures/', import.meta.url).pathname;
/** The part of the pixels that may differ, and how much a pixel's colour may: letters are not drawn alike by every version of Chromium. */
const TOLERANCE = 0.02;
const COLOUR_TOLERANCE = 0.05;
/** The font of the pictures; scripts/setup installs it. A page says no more than that it wants the system's. */
const FONT = '* { font-family: "DejaVu Sans" !important }';
const WIDTHS = [360, 1280];
/** The longest that a view takes until it is whole, on a busy machine. */
const SETTLES_MS = 30_000;
/** A view is whole if it has been the same for so long, with all answers that were due at the beginning of that time. */
const STEADY_MS = 2500;
/** The part of the pixels that may differ meanwhile: round corners are not drawn alike each time. */
const STEADY_TOLERANCE = 0.0001;
const MARKET = 'h100-8x/eu-west';
const BEGIN = Date.UTC(2026, 0, 15, 9);

let browser;
let engine;
/** The links that log in, by role. @type {Record<string, string>} */
let links;
let now = BEGIN;

/** Moves the time of the market on. */
async function advance(minutes) {
  now += minutes * 60_000;
  await engine.call(engine.admin, 'POST', '/v1/clock/advance', { to_us: String(now * 1000) });
}

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--clock', 'stepped']);
  const acme = await engine.person('acme', 'PROVIDER');
  const [rival, other] = [await engine.person('rival', 'TENANT'), await engine.person('other', 'TENANT')];
  const tenant = await engine.person('vision', 'TENANT');
  links = { tenant: tenant.link, provider: acme.link, admin: `${engine.url}/#token=${engine.admin}` };
  await advance(0);
  await engine.market(MARKET, acme, 4);
  await engine.market('a100-8x/us-east', acme, 6, 4);
  const train = await engine.bid(tenant, MARKET, 12, 2, { job: 'train-7' });
  await engine.bid(tenant, 'a100-8x/us-east', 3.5, 1, { job: 'eval' });
  await engine.ready(tenant, train);
  await advance(30);
  await engine.ready(rival, await engine.bid(rival, MARKET, 10, 2));
  await advance(30);
  // One node of the tenant's gets a notice.
  const outbid = await engine.bid(other, MARKET, 14, 3);
  await engine.call(tenant.token, 'GET', `/v1/bids/${train}?min_seq=${outbid}`);
  await advance(5);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Says how a picture differs from the one that was kept; nothing where it does not. */
function difference(kept, bytes, tolerance = TOLERANCE) {
  const [before, seen] = [PNG.sync.read(kept), PNG.sync.read(bytes)];
  const size = ({ width, height }) => `${width} × ${height}`;
  if (size(before) !== size(seen)) return `${size(seen)}, kept ${size(before)}`;
  const pixels = before.width * before.height;
  const different = pixelmatch(before.data, seen.data, undefined, before.width, before.height, { threshold: COLOUR_TOLERANCE });
  return different > tolerance * pixels ? `${different} of ${pixels} pixels differ` : undefined;
}

/** Follows which requests of a page have no answer yet. The streams never end. */
function dueAnswers(page) {
  const due = new Set();
  page.on('request', (request) => { if (!request.url().includes('/stream')) due.add(request); });
  page.on('requestfinished', (request) => due.delete(request));
  page.on('requestfailed', (request) => due.delete(request));
  return due;
}

/** Takes pictures of a page until it is whole, and returns the last one. */
async function settled(page, due) {
  const end = Date.now() + SETTLES_MS;
  let [last, since, awaited] = [await page.screenshot(), Date.now(), [...due]];
  while (Date.now() < end) {
    await new Promise((next) => setTimeout(next, 250));
    const bytes = await page.screenshot();
    if (!bytes.equals(last) && difference(last, bytes, STEADY_TOLERANCE)) [last, since, awaited] = [bytes, Date.now(), [...due]];
    else if (Date.now() - since > STEADY_MS && !awaited.some((request) => due.has(request))) return bytes;
  }
  return assert.fail(`the page does not come to rest: ${awaited.map((request) => request.url())}`);
}

/**
 * Takes pictures of a page until it is the one that was kept: the parts of a view come one after the other.
 * @param {import('playwright-core').Page} page
 */
async function compare(name, page, due) {
  const path = `${FOLDER}${name}.png`;
  if (process.env.UPDATE_EXPECT) {
    mkdirSync(FOLDER, { recursive: true });
    writeFileSync(path, await settled(page, due));
    return;
  }
  assert.ok(existsSync(path), `${path} is missing: UPDATE_EXPECT=1 draws it`);
  const kept = readFileSync(path);
  const end = Date.now() + SETTLES_MS;
  for (;;) {
    const bytes = await page.screenshot();
    const wrong = difference(kept, bytes);
    if (!wrong) return;
    if (Date.now() > end) {
      const other = `${path}.seen.png`;
      writeFileSync(other, bytes);
      assert.fail(`${name}: ${wrong}; ${other} is what was seen`);
    }
    await new Promise((next) => setTimeout(next, 250));
  }
}

/** @type {Array<{view: string, who?: string, colorScheme?: 'dark', address: string, drawn: (page: import('playwright-core').Page) => import('playwright-core').Locator}>} */
const VIEWS = [
  { view: 'markets', address: '#/', drawn: (page) => page.getByText(MARKET) },
  { view: 'market', address: `#/market/${MARKET}`, drawn: (page) => page.getByText('median') },
  { view: 'market-dark', colorScheme: 'dark', address: `#/market/${MARKET}`, drawn: (page) => page.getByText('median') },
  { view: 'nodes', address: '#/nodes', drawn: (page) => page.getByText('Notice: ends in') },
  { view: 'nodes-dark', colorScheme: 'dark', address: '#/nodes', drawn: (page) => page.getByText('Notice: ends in') },
  { view: 'money', address: '#/money', drawn: (page) => page.getByRole('row').nth(1) },
  { view: 'offers', who: 'provider', address: '#/offers', drawn: (page) => page.getByRole('row').nth(1) },
  { view: 'admin', who: 'admin', address: '#/admin', drawn: (page) => page.getByText('open a market', { exact: false }) },
];
for (const { view, who = 'tenant', colorScheme, address, drawn } of VIEWS) {
  test(`the view of ${view} looks as it did`, async () => {
    for (const width of WIDTHS) {
      const { page, context, faults } = await openWindow(browser, { viewport: { width, height: 900 }, timezoneId: 'UTC', locale: 'en-GB', reducedMotion: 'reduce', bypassCSP: true, colorScheme });
      const due = dueAnswers(page);
      await page.clock.setFixedTime(now);
      await page.goto(links[who]);
      await live(page);
      await page.evaluate((hash) => { location.hash = hash; }, address);
      await drawn(page).first().waitFor();
      await page.addStyleTag({ content: FONT });
      await page.evaluate(() => document.fonts.ready);
      await compare(`${view}-${width}`, page, due);
      await context.close();
      assert.deepEqual(faults, []);
    }
  });
}
