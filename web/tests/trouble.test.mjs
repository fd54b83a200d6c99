// What goes wrong under an open page: the engine dies, the token is revoked, text tries to be HTML.

import assert from 'node:assert/strict';
import { get } from 'node:http';
import { after, before, test } from 'node:test';
import { Engine, live, openWindow, startBrowser } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';
const HOSTILE = '"><img src=x onerror="window.owned=1"><script>window.owned=1</script>';

let browser;
let engine;
let provider;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start();
  provider = await engine.person('acme', 'PROVIDER');
  await engine.market(MARKET, provider);
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

test('an engine that is killed and started again is followed without a reload', async () => {
  const tenant = await engine.person('tenant-a', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await engine.ready(tenant, await engine.bid(tenant, MARKET, 12, 1));
  await page.getByText('Running').waitFor();

  await engine.kill();
  await page.getByText(/^Reconnecting… numbers from \d+ s ago$/).waitFor();
  assert.equal(await page.getByText('Running').count(), 1, 'what was known stays, and is marked as old');

  // A bid that is placed while the engine is away is placed once when it is back.
  const form = page.getByRole('form', { name: 'Place a bid' });
  await form.getByLabel('At most, $ per node-hour').fill('11');
  await form.getByRole('button', { name: 'Place bid' }).click();
  await engine.run();
  await live(page);
  const [placed] = /\d+/.exec(await form.getByText(/^Bid \d+ placed\.$/).textContent());
  const bids = await engine.call(tenant.token, 'GET', `/v1/bids?min_seq=${placed}`);
  assert.equal(bids.bids.length, 2);
  await page.getByRole('region', { name: 'Bids' }).getByText('$11.00').waitFor();

  await engine.ready(tenant, placed);
  const rival = await engine.person('tenant-b', 'TENANT');
  await engine.bid(rival, MARKET, 40, 2);
  await page.getByText('Notice: ends in').first().waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('an engine that hangs makes the page say that its numbers are old', async () => {
  const tenant = await engine.person('tenant-h', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  engine.process.kill('SIGSTOP');
  try {
    await page.getByText(/^Stale: nothing new for \d+ s$/).waitFor();
  } finally {
    engine.process.kill('SIGCONT');
  }
  await live(page);
  assert.deepEqual(faults, []);
  await context.close();
});

test('a page that is not seen says in its title that a node has a notice, and is current when it is shown', async () => {
  const market = 'a100-8x/eu-west';
  await engine.market(market, provider, 1, 2);
  const [tenant, rival] = [await engine.person('tenant-i', 'TENANT'), await engine.person('tenant-j', 'TENANT')];
  const { page, context, faults } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await engine.ready(tenant, await engine.bid(tenant, market, 3, 1));
  await page.getByText('Running').waitFor();
  const show = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, 'hidden', { configurable: true, value });
    document.dispatchEvent(new Event('visibilitychange'));
  }, hidden);
  await show(true);
  await engine.bid(rival, market, 5, 1);
  await page.waitForFunction(() => document.title.startsWith('(1) '));
  await page.reload();
  await page.getByText('Notice: ends in').waitFor();
  await show(true);
  await show(false);
  await live(page);
  await page.getByRole('button', { name: /^Raise to/ }).click();
  await page.getByText('Running').waitFor();
  assert.deepEqual(faults, []);
  await context.close();
});

test('a stranger is asked for a token where the markets are not public', async () => {
  const { page, context } = await openWindow(browser);
  await page.goto(engine.url);
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  assert.equal(await page.getByText(MARKET).count(), 0);
  await context.close();
});

test('a revoked token ends the session and says so', async () => {
  const tenant = await engine.person('tenant-c', 'TENANT');
  const { page, context } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await engine.call(engine.admin, 'DELETE', `/v1/tokens/${tenant.id}`);
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  await page.getByText('Your token is not valid, or it was revoked.').first().waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  // Nothing of the account is left on the page.
  await page.getByText('tenant-c').first().waitFor({ state: 'detached' });

  await page.getByLabel('Token').fill('kb_0000');
  await page.getByRole('button', { name: 'Log in' }).click();
  // What was announced before is still outside of the form.
  await page.getByRole('main').getByText(/token is not valid|does not know this token/).waitFor();
  const other = await engine.person('tenant-d', 'TENANT');
  await page.getByLabel('Token').fill(other.token);
  await page.getByRole('button', { name: 'Log in' }).click();
  await page.getByRole('heading', { name: 'Bids and nodes' }).waitFor();
  await live(page);
  await context.close();
});

test('logging out forgets the token', async () => {
  const tenant = await engine.person('tenant-e', 'TENANT');
  const { page, context } = await openWindow(browser);
  await page.goto(tenant.link);
  await live(page);
  await page.getByRole('button', { name: 'Log out' }).click();
  await page.getByRole('heading', { name: 'Log in' }).waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  await context.close();
});

test('text that tries to be HTML stays text', async () => {
  const tenant = await engine.person('tenant-f', 'TENANT');
  const { page, context, faults } = await openWindow(browser);
  // The engine refuses such names of accounts. Were one in an answer, it would be text too.
  await page.route('**/v1/account', async (route) => {
    const answer = await route.fetch();
    await route.fulfill({ response: answer, json: { ...(await answer.json()), name: HOSTILE } });
  });
  await page.goto(tenant.link);
  await live(page);
  await page.getByText(HOSTILE).first().waitFor();
  await engine.bid(tenant, MARKET, 60, 1, { team: HOSTILE, '=cmd()': '=1+1' });
  await page.getByText(`team=${HOSTILE}`).first().waitFor();
  await page.getByRole('link', { name: 'Money' }).click();
  await engine.call(engine.admin, 'POST', '/v1/tokens', { account: 'tenant-f', roles: ['VIEWER'], description: HOSTILE });
  const admin = await openWindow(browser);
  await admin.page.goto(`${engine.url}/#token=${engine.admin}`);
  await live(admin.page);
  await admin.page.getByRole('link', { name: 'Administration' }).click();
  await admin.page.getByText(HOSTILE).waitFor();
  for (const seen of [page, admin.page]) {
    assert.equal(await seen.evaluate(() => window.owned), undefined);
    assert.equal(await seen.locator('img, iframe, main script').count(), 0);
  }
  assert.deepEqual([...faults, ...admin.faults], []);
  await context.close();
  await admin.context.close();
});

test('the page loads its own files alone, under a strict policy', async () => {
  const tenant = await engine.person('tenant-g', 'TENANT');
  const { page, context } = await openWindow(browser);
  const foreign = [];
  const urls = [];
  page.on('request', (request) => {
    urls.push(request.url());
    if (!request.url().startsWith(engine.url)) foreign.push(request.url());
  });
  const answer = await page.goto(tenant.link);
  const headers = answer.headers();
  assert.match(headers['content-security-policy'], /default-src 'self'/);
  assert.doesNotMatch(headers['content-security-policy'], /unsafe/);
  assert.equal(headers['x-content-type-options'], 'nosniff');
  assert.equal(headers['referrer-policy'], 'no-referrer');
  await live(page);
  assert.deepEqual(foreign, []);
  assert.ok(urls.every((url) => !url.includes(tenant.token)), 'the token is in no address');
  assert.ok(!engine.log().includes(tenant.token), 'the token is in no log');
  await context.close();
});

test('a file is sent compressed, once, and not at all with --no-page', async () => {
  const path = '/assets/src/main.js';
  const accepting = (headers) => new Promise((resolve, reject) => {
    get(engine.url + path, { headers: { 'accept-encoding': 'gzip', ...headers } }, (answer) => { answer.resume(); resolve(answer); }).on('error', reject);
  });
  const first = await accepting({});
  assert.equal(first.headers['content-encoding'], 'gzip');
  assert.match(first.headers['content-type'], /^text\/javascript/);
  const again = await accepting({ 'if-none-match': first.headers.etag });
  assert.equal(again.statusCode, 304);
  assert.match(await (await fetch(engine.url + path)).text(), /^\/\/ Starts the page/);
  for (const missing of ['/assets/', '/assets/src', '/assets/../index.html', '/assets/%2e%2e/index.html', '/assets/src/none.js']) {
    assert.equal((await fetch(engine.url + missing)).status, 404, missing);
  }
  const without = await Engine.start(['--no-page']);
  try {
    assert.equal((await fetch(without.url + path)).status, 404);
    const page = await (await fetch(without.url)).text();
    assert.match(page, /openapi\.json/);
    assert.doesNotMatch(page, /<script/);
  } finally {
    await without.stop();
  }
});
