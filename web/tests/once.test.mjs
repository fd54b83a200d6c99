// What a person asks for once is done once: with two clicks, with a click after a lost answer, and with a double click on what opens.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { Engine, PATIENCE, live, openWindow, startBrowser } from './harness.mjs';

/** The times between the two clicks, in milliseconds. */
const GAPS = [60, 300];
const LOST = 'lost';

let browser;
let engine;
let provider;
let count = 0;

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--allow-inject']);
  provider = await engine.person('acme', 'PROVIDER');
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Returns a name that no other part of the tests has. @param {string} kind */
function fresh(kind) {
  count += 1;
  return `${kind}-${String(count).padStart(4, '0')}`;
}

/** Makes a market with two units. @returns {Promise<string>} its name */
async function freshMarket(seller = provider) {
  const name = `h100-8x/${fresh('region')}`;
  await engine.market(name, seller);
  return name;
}

/** Gives a person a node. @returns {Promise<{market: string, bid: string, node: any}>} */
async function freshNode(person, { isReady = true, dollars = 12, seller = provider } = {}) {
  const market = await freshMarket(seller);
  const bid = await engine.bid(person, market, dollars, 1);
  if (isReady) await engine.ready(person, bid);
  const { allocations: [node] } = await engine.call(person.token, 'GET', `/v1/allocations?bid=${bid}&min_seq=${bid}`);
  return { market, bid, node };
}

/** Makes a market whose two units rest: nobody reported their nodes ready. @returns {Promise<string>} its name */
async function restingMarket(seller) {
  const market = `h100-8x/${fresh('region')}`;
  await engine.call(engine.admin, 'POST', '/v1/markets', { market, rules: { start_timeout_us: '1' } });
  await engine.call(seller.token, 'PUT', `/v1/markets/${market}/offer`, { reserve_micros: '8000000', capacity: 2 });
  const tenant = await engine.person(fresh('tenant'), 'TENANT');
  const bid = await engine.bid(tenant, market, 12, 2);
  await engine.call(tenant.token, 'POST', `/v1/bids/${bid}/cancel`, { mode: 'RELEASE' });
  return market;
}

/** The row of what has this text. */
const rowOf = (page, text) => page.getByRole('row').filter({ hasText: text });
const dialogOf = (page) => page.getByRole('dialog');
const pressed = (page, name) => dialogOf(page).getByRole('button', { name, exact: true });
const rulesOf = async (market) => (await engine.call(engine.admin, 'GET', '/v1/markets')).markets.find((one) => one.market === market)?.rules;
const stateOf = async (market) => (await engine.call(engine.admin, 'GET', '/v1/markets')).markets.find((one) => one.market === market)?.state;
const bidOf = async (person, bid) => (await engine.call(person.token, 'GET', `/v1/bids/${bid}`)).bid;
const nodeOf = async (person, number) => (await engine.call(person.token, 'GET', `/v1/allocations/${number}`)).allocation;
const unitsOf = async (person, market) => (await engine.call(person.token, 'GET', `/v1/markets/${market}/offer`)).offer.capacity;

/**
 * All buttons of the page that spend or destroy. Each has whose it is, the view, what is there before, how the button is reached, what
 * it sends, and what is true afterwards. `leaves` says that the button goes as soon as the page knows that its work is done.
 */
const BUTTONS = [
  { name: 'Place bid', role: 'TENANT', view: '#/nodes', sends: /^POST \/v1\/bids$/,
    given: async () => ({ market: await freshMarket() }),
    reach: async (page, { market }) => {
      const form = page.getByRole('form', { name: 'Place a bid' });
      await form.getByLabel('Market').selectOption(market);
      await form.getByLabel('At most, $ per node-hour').fill('16');
      return form.getByRole('button', { name: 'Place bid' });
    },
    shows: (page) => page.getByRole('form', { name: 'Place a bid' }).getByText(/^Bid \d+ (placed\.|was placed already)/),
    then: async (person, { market }) => assert.equal((await engine.call(person.token, 'GET', '/v1/bids')).bids.filter((bid) => bid.markets[0] === market).length, 1) },
  { name: 'Raise and stay', role: 'TENANT', view: '#/nodes', sends: /^PATCH \/v1\/bids\/\d+$/, leaves: true,
    given: async (person) => {
      const given = await freshNode(person);
      const rival = await engine.person(fresh('rival'), 'TENANT');
      await engine.bid(rival, given.market, 20, 2);
      return given;
    },
    reach: (page, { node }) => rowOf(page, node.market).getByRole('button', { name: /^Raise to/ }),
    then: async (person, { bid, node }) => {
      assert.equal((await bidOf(person, bid)).ceiling_micros, '19047700');
      assert.equal((await nodeOf(person, node.allocation)).notice, undefined);
    } },
  { name: 'Report ready, of a node', role: 'TENANT', view: '#/nodes', sends: /^POST \/v1\/allocations\/\d+\/ready$/, leaves: true,
    given: (person) => freshNode(person, { isReady: false }),
    reach: (page, { node }) => page.getByRole('button', { name: `Report ready, node ${node.allocation}` }),
    then: async (person, { node }) => assert.equal((await nodeOf(person, node.allocation)).state, 'ACTIVE') },
  { name: 'Release', role: 'TENANT', view: '#/nodes', sends: /^POST \/v1\/allocations\/\d+\/release$/,
    given: (person) => freshNode(person),
    reach: async (page, { node }) => {
      await page.getByRole('button', { name: `Release, node ${node.allocation}` }).click();
      return pressed(page, 'Release');
    },
    then: async (person, { node }) => assert.equal((await nodeOf(person, node.allocation)).state, 'ENDED') },
  { name: 'Amend', role: 'TENANT', view: '#/nodes', sends: /^PATCH \/v1\/bids\/\d+$/,
    given: (person) => freshNode(person),
    reach: async (page, { bid }) => {
      await page.getByRole('button', { name: `Amend, bid ${bid}` }).click();
      await dialogOf(page).getByLabel('Nodes', { exact: true }).fill('2');
      await dialogOf(page).getByText('It may wait').waitFor();
      return pressed(page, 'Amend');
    },
    then: async (person, { bid }) => assert.equal((await bidOf(person, bid)).max_nodes, 2) },
  ...[['Cancel and release', 'ENDED'], ['Cancel and keep the nodes', 'ACTIVE']].map(([name, state]) => ({
    name, role: 'TENANT', view: '#/nodes', sends: /^POST \/v1\/bids\/\d+\/cancel$/,
    given: (person) => freshNode(person),
    reach: async (page, { bid }) => {
      await page.getByRole('button', { name: `Cancel, bid ${bid}` }).click();
      return pressed(page, name);
    },
    then: async (person, { bid, node }) => {
      assert.equal((await bidOf(person, bid)).state, 'CLOSED');
      assert.equal((await nodeOf(person, node.allocation)).state, state);
    } })),
  { name: 'Regroup', role: 'TENANT', view: '#/nodes', sends: /^POST \/v1\/bids\/\d+\/cancel$/,
    given: async (person) => {
      const market = await freshMarket();
      const request = { markets: [market], ceiling_micros: '12000000', min_nodes: 2, max_nodes: 2 };
      const { bid } = await engine.call(person.token, 'POST', '/v1/bids', request);
      return { market, bid };
    },
    reach: async (page, { bid }) => {
      await page.getByRole('button', { name: `Regroup, bid ${bid}` }).click();
      return pressed(page, 'End its nodes and regroup');
    },
    // Both nodes ended once, and the bid has the two units again.
    then: async (person, { bid }) => {
      const { allocations } = await engine.call(person.token, 'GET', `/v1/allocations?bid=${bid}`);
      assert.deepEqual(allocations.map((one) => one.state).sort(), ['ENDED', 'ENDED', 'STARTING', 'STARTING']);
    } },
  { name: 'Offer', role: 'PROVIDER', view: '#/offers', sends: /^PUT \/v1\/markets\/[^/]+\/[^/]+\/offer$/,
    given: async () => {
      const market = `h100-8x/${fresh('region')}`;
      await engine.call(engine.admin, 'POST', '/v1/markets', { market, rules: {} });
      return { market };
    },
    reach: async (page, { market }) => {
      await page.getByRole('button', { name: 'New offer' }).click();
      await dialogOf(page).getByLabel('Market').selectOption(market);
      await dialogOf(page).getByLabel('Reserve, $ per node-hour').fill('4');
      await dialogOf(page).getByLabel('Units').fill('3');
      await dialogOf(page).getByText('At $4.00 or more').waitFor();
      return pressed(page, 'Offer');
    },
    then: async (person, { market }) => assert.equal(await unitsOf(person, market), 3) },
  { name: 'Change of an offer', role: 'PROVIDER', view: '#/offers', sends: /^PUT \/v1\/markets\/[^/]+\/[^/]+\/offer$/,
    given: async (person) => ({ market: await freshMarket(person) }),
    reach: async (page, { market }) => {
      await page.getByRole('button', { name: `Change the offer in ${market}` }).click();
      await dialogOf(page).getByLabel('Units').fill('3');
      await dialogOf(page).getByText('At $8.00 or more').waitFor();
      return pressed(page, 'Change');
    },
    then: async (person, { market }) => assert.equal(await unitsOf(person, market), 3) },
  { name: 'Report ready, of a unit', role: 'PROVIDER', view: '#/offers', sends: /^POST \/v1\/allocations\/\d+\/ready$/, leaves: true,
    given: async (person) => freshNode(await engine.person(fresh('tenant'), 'TENANT'), { isReady: false, seller: person }),
    reach: (page, { node }) => page.getByRole('button', { name: `Report ready, unit ${node.unit}` }),
    then: async (person, { node }) => assert.equal((await nodeOf(person, node.allocation)).state, 'ACTIVE') },
  ...[['Set up', 'Report ready', false], ['Access', 'Report access', true]].map(([opens, name, isReady]) => ({
    name, role: 'PROVIDER', view: '#/offers', sends: /^POST \/v1\/allocations\/\d+\/ready$/,
    given: async (person) => {
      const tenant = await engine.person(fresh('tenant'), 'TENANT');
      return { tenant, ...(await freshNode(tenant, { isReady, seller: person })) };
    },
    reach: async (page, { node }) => {
      await page.getByRole('button', { name: `${opens}, unit ${node.unit}` }).click();
      await dialogOf(page).getByLabel('Address').fill('10.0.0.7');
      return pressed(page, name);
    },
    then: async (_, { tenant, node }) => assert.deepEqual((await nodeOf(tenant, node.allocation)).access.addresses, ['10.0.0.7']) })),
  ...[['Withdraw', 'Withdraw'], ['Lost', 'Report lost']].map(([opens, name]) => ({
    name, role: 'PROVIDER', view: '#/offers', sends: /^POST \/v1\/units\/.*\/(withdraw|lost)$/,
    given: async (person) => ({ market: await freshMarket(person) }),
    reach: async (page, { market }) => {
      await page.getByRole('button', { name: new RegExp(`^${opens}, unit ${market}:.*#1$`) }).click();
      return pressed(page, name);
    },
    then: async (person, { market }) => assert.equal(await unitsOf(person, market), 1) })),
  ...[['Resume', 'unit'], ['Resume all', 'units in']].map(([name, what]) => ({
    name, role: 'PROVIDER', view: '#/offers', sends: /^POST \/v1\/(units|markets)\/.*\/resume$/, leaves: true,
    given: async (person) => ({ market: await restingMarket(person) }),
    reach: (page, { market }) => page.getByRole('button', { name: new RegExp(`^${name}, ${what} ${market}(:.*#1)?$`) }),
    then: async (person, { market }) => {
      const { offer } = await engine.call(person.token, 'GET', `/v1/markets/${market}/offer`);
      assert.equal(offer.free, name === 'Resume' ? 1 : 2);
    } })),
  { name: 'Open a market', role: 'ADMIN', view: '#/admin', isNew: true, sends: /^POST \/v1\/markets$/,
    given: async () => ({ market: `h100-8x/${fresh('region')}` }),
    reach: async (page, { market }) => {
      await page.getByRole('button', { name: 'Open a market' }).click();
      await dialogOf(page).getByLabel('Market, TYPE/REGION').fill(market);
      return pressed(page, 'Open');
    },
    then: async (_, { market }) => assert.equal(await stateOf(market), 'OPEN') },
  { name: 'Rules', role: 'ADMIN', view: '#/admin', sends: /^PATCH \/v1\/markets\/[^/]+\/[^/]+\/rules$/,
    given: async () => ({ market: await freshMarket() }),
    reach: async (page, { market }) => {
      await find(page, 'markets', market);
      await page.getByRole('button', { name: `Rules, ${market}` }).click();
      await dialogOf(page).getByLabel('Notice, seconds').fill('90');
      return pressed(page, 'Change');
    },
    then: async (_, { market }) => assert.equal((await rulesOf(market)).notice_us, '90000000') },
  { name: 'Close', role: 'ADMIN', view: '#/admin', sends: /^POST \/v1\/markets\/[^/]+\/[^/]+\/close$/,
    given: async () => ({ market: await freshMarket() }),
    reach: async (page, { market }) => {
      await find(page, 'markets', market);
      await page.getByRole('button', { name: `Close, ${market}` }).click();
      return pressed(page, 'Close');
    },
    then: async (_, { market }) => assert.equal(await stateOf(market), 'CLOSING') },
  { name: 'New account', role: 'ADMIN', view: '#/admin', sends: /^PUT \/v1\/accounts\/[^/]+$/,
    given: async () => ({ account: fresh('account') }),
    reach: async (page, { account }) => {
      await page.getByRole('button', { name: 'New account' }).click();
      await dialogOf(page).getByLabel('Name').fill(account);
      return pressed(page, 'Make');
    },
    then: async (_, { account }) => assert.equal((await engine.call(engine.admin, 'GET', '/v1/accounts?page_size=1000')).accounts.filter((one) => one.name === account).length, 1) },
  { name: 'Limits', role: 'ADMIN', view: '#/admin', sends: /^PUT \/v1\/accounts\/[^/]+$/,
    given: async () => ({ account: (await engine.person(fresh('account'), 'TENANT')).account }),
    reach: async (page, { account }) => {
      await find(page, 'accounts', account);
      await page.getByRole('button', { name: `Limits, ${account}`, exact: true }).click();
      await dialogOf(page).getByLabel('Open bids').fill('7');
      return pressed(page, 'Change');
    },
    then: async (_, { account }) => assert.equal((await engine.call(engine.admin, 'GET', '/v1/accounts?page_size=1000')).accounts.find((one) => one.name === account).limits.open_bids, 7) },
  { name: 'Revoke', role: 'ADMIN', view: '#/admin', sends: /^DELETE \/v1\/tokens\/[^/]+$/,
    given: async () => engine.person(fresh('account'), 'TENANT'),
    reach: async (page, { account }) => {
      await find(page, 'tokens', account);
      await page.getByRole('button', { name: `Revoke, token of ${account}`, exact: true }).click();
      return pressed(page, 'Revoke');
    },
    then: async (_, { account }) => assert.deepEqual((await engine.call(engine.admin, 'GET', `/v1/tokens?account=${account}`)).tokens, []) },
  { name: 'Pre-empt', role: 'ADMIN', view: '#/admin', sends: /^POST \/v1\/inject\/allocations\/\d+\/preempt$/,
    given: async () => {
      const tenant = await engine.person(fresh('tenant'), 'TENANT');
      return { ...(await freshNode(tenant)), tenant };
    },
    reach: async (page, { node }) => {
      await page.getByLabel('Give a notice to node').fill(node.allocation);
      return page.getByRole('button', { name: 'Pre-empt' });
    },
    shows: (page, { node }) => page.getByText(`Node ${node.allocation} has a notice.`),
    then: async (_, { tenant, node }) => assert.ok((await nodeOf(tenant, node.allocation)).notice) },
  { name: 'New token', role: 'ADMIN', view: '#/admin', sends: /^POST \/v1\/tokens$/, isSecret: true,
    given: async () => {
      const account = fresh('account');
      await engine.call(engine.admin, 'PUT', `/v1/accounts/${account}`, { limits: {} });
      return { account };
    },
    reach: async (page, { account }) => {
      await page.getByRole('button', { name: 'New token' }).click();
      await dialogOf(page).getByLabel('Account').selectOption(account);
      return pressed(page, 'Make');
    },
    then: async (_, { account }) => assert.equal((await engine.call(engine.admin, 'GET', `/v1/tokens?account=${account}`)).tokens.length, 1) },
];

/** Opens the page of a person of a role. */
async function pageOf(role, options = {}) {
  const person = role === 'ADMIN' ? { token: engine.admin, link: `${engine.url}/#token=${engine.admin}` } : await engine.person(fresh(role.toLowerCase()), role);
  const opened = await openWindow(browser, options);
  // The waits between tries are short while `hurries` is set.
  await opened.page.addInitScript(() => {
    const set = window.setTimeout;
    window.setTimeout = (work, wait, ...rest) => set(work, window.hurries && wait >= 200 ? 5 : wait, ...rest);
  });
  await opened.page.goto(person.link);
  await live(opened.page);
  /** The commands that the page sent. @type {{what: string, key: string | undefined}[]} */
  const sent = [];
  opened.page.on('request', (request) => {
    const path = decodeURIComponent(new URL(request.url()).pathname);
    if (request.method() !== 'GET' && path !== '/v1/bids/quote') sent.push({ what: `${request.method()} ${path}`, key: request.headers()['idempotency-key'] });
  });
  return { ...opened, person, sent };
}

/** Brings a row of a list into view, which shows twenty rows and a field that finds the others. */
async function find(page, what, text) {
  const field = page.getByRole('searchbox', { name: `Find ${what}` });
  await rowOf(page, text).or(field).first().waitFor();
  if (await field.isVisible()) await field.fill(text);
}

/** Shows a view anew, when the page knows a market. @param {string} [market] */
async function turnTo(page, view, market) {
  await page.evaluate(() => { location.hash = '#/markets'; });
  await page.getByRole('heading', { name: 'Markets' }).waitFor();
  if (market) {
    await find(page, 'markets', market);
    await rowOf(page, market).waitFor();
  }
  await page.evaluate((hash) => { location.hash = hash; }, view);
}

/** Clicks twice at one place. @param {import('playwright-core').Page} page @param {import('playwright-core').Locator} button @param {number} gap @param {number} second the number of the second click, for the browser */
async function clickTwice(page, button, gap, second = 1) {
  await button.scrollIntoViewIfNeeded();
  const box = await button.boundingBox();
  await page.mouse.move(box.x + box.width / 2, box.y + box.height / 2);
  for (const clickCount of [1, second]) {
    await page.mouse.down({ clickCount });
    await page.mouse.up({ clickCount });
    // The time between two clicks is what is tested.
    if (clickCount !== second || second === 1) await page.evaluate((ms) => new Promise((resolve) => { setTimeout(resolve, ms); }), gap);
  }
}

/** Waits until a check passes. @param {() => Promise<void>} check */
async function until(check) {
  const end = Date.now() + PATIENCE;
  for (;;) {
    try {
      return await check();
    } catch (error) {
      if (Date.now() > end) throw error;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** Loses the answers of the commands that match, after the engine has executed them. Returns what ends that. */
async function loseAnswers(page, sends) {
  const lose = async (route) => {
    const request = route.request();
    if (!sends.test(`${request.method()} ${decodeURIComponent(new URL(request.url()).pathname)}`)) return route.fallback();
    await route.fetch().catch(() => {});
    return route.abort().catch(() => {});
  };
  await page.route('**/v1/**', lose);
  await page.evaluate(() => { window.hurries = true; });
  return async () => {
    await page.evaluate(() => { window.hurries = false; });
    await page.unroute('**/v1/**', lose);
  };
}

for (const button of BUTTONS) {
  test(`${button.name}: two clicks and a lost answer are one command`, async () => {
    const { page, context, faults, person, sent } = await pageOf(button.role);
    for (const mode of [...GAPS, LOST]) {
      const given = await button.given(person);
      await turnTo(page, button.view, button.isNew ? undefined : given.market);
      const pressable = await button.reach(page, given);
      await pressable.waitFor();
      sent.length = 0;
      if (mode === LOST) {
        const found = await loseAnswers(page, button.sends);
        await pressable.click();
        const error = page.getByText(/The engine cannot be reached|its secret was lost on the way/).first();
        await (button.leaves ? error.or(pressable.and(page.locator(':not(:visible)'))).first() : error).waitFor();
        await found();
        if (button.isSecret) {
          await pressable.click();
          await dialogOf(page).getByText('its secret was lost on the way').waitFor();
        } else if (button.leaves) await pressable.waitFor({ state: 'hidden' });
        else await pressable.click();
      } else {
        await clickTwice(page, pressable, mode);
      }
      if (button.shows) await button.shows(page, given).waitFor();
      else if (!button.leaves && !button.isSecret) await dialogOf(page).waitFor({ state: 'detached' });
      await until(() => button.then(person, given));
      const mine = sent.filter(({ what }) => button.sends.test(what));
      assert.ok(mine.length > 0, 'a command was sent');
      assert.equal(new Set(mine.map(({ what, key }) => `${what} ${key}`)).size, 1, `${mode}: ${JSON.stringify(mine)}`);
      if (mode !== LOST) assert.equal(mine.length, 1, `${mode}: ${JSON.stringify(mine)}`);
      if (button.isSecret) assert.equal(mine.length, 1, `a secret that was lost is not made again: ${JSON.stringify(mine)}`);
      assert.equal(mine[0].key !== undefined, button.role !== 'ADMIN', 'a command of the market has a client key');
      for (let open = 0; await dialogOf(page).count() && open < 3; open += 1) await page.keyboard.press('Escape');
    }
    assert.deepEqual(faults, []);
    await context.close();
  });
}

test('a double click on a button that opens a dialog does not press what the dialog has there', async () => {
  const { page, context, faults, person, sent } = await pageOf('TENANT', { bypassCSP: true });
  const { node } = await freshNode(person);
  await turnTo(page, '#/nodes');
  const release = page.getByRole('button', { name: `Release, node ${node.allocation}` });
  await release.waitFor();
  for (const gap of GAPS) {
    // The button of the dialog is put where the person clicks.
    const box = await release.boundingBox();
    await page.addStyleTag({ content: `dialog .danger { position: fixed; left: ${box.x}px; top: ${box.y}px; width: ${box.width}px; height: ${box.height}px; }` });
    await clickTwice(page, release, gap, 2);
    await dialogOf(page).waitFor();
    assert.deepEqual(sent, []);
    await page.keyboard.press('Escape');
    await dialogOf(page).waitFor({ state: 'detached' });
  }
  assert.deepEqual(faults, []);
  await context.close();
});

test('the secret of a new token stays when the button that makes it is clicked twice', async () => {
  const { page, context } = await pageOf('ADMIN', { bypassCSP: true });
  const button = BUTTONS.find(({ isSecret }) => isSecret);
  for (const gap of GAPS) {
    const given = await button.given();
    await turnTo(page, button.view);
    const make = await button.reach(page, given);
    // The button that closes what shows the secret is put where the person clicks.
    const box = await make.boundingBox();
    await page.addStyleTag({ content: `dialog:has(.code) button:last-child { position: fixed; left: ${box.x}px; top: ${box.y}px; width: ${box.width}px; height: ${box.height}px; }` });
    await clickTwice(page, make, gap, 2);
    assert.match(await dialogOf(page).getByLabel('Secret').inputValue(), /^kb_/);
    await page.getByRole('button', { name: 'I have kept it' }).click();
  }
  await context.close();
});

test('the same bid is placed again only after the person asked for another one, or changed a field', async () => {
  const { page, context, person, sent } = await pageOf('TENANT');
  const button = BUTTONS[0];
  const given = await button.given(person);
  const form = page.getByRole('form', { name: 'Place a bid' });
  const place = await button.reach(page, given);
  const count = async () => (await engine.call(person.token, 'GET', '/v1/bids')).bids.length;
  await place.click();
  await form.getByText(/^Bid \d+ placed\.$/).waitFor();
  const [first] = /\d+/.exec(await form.locator('.done').textContent());
  await place.click();
  await form.getByText(`Bid ${first} was placed already.`).waitFor();
  assert.equal(await count(), 1);

  await form.getByRole('button', { name: 'Another like it' }).click();
  assert.ok(await place.evaluate((element) => element === document.activeElement), 'the button that places it has the focus');
  await place.click();
  await form.getByText(/^Bid \d+ placed\.$/).waitFor();
  await until(async () => assert.equal(await count(), 2));

  await form.getByLabel('At most, $ per node-hour').fill('17');
  await place.click();
  await form.getByText(/^Bid \d+ placed\.$/).waitFor();
  await until(async () => assert.equal(await count(), 3));
  assert.equal(new Set(sent.map(({ key }) => key)).size, 3);

  // A form that is opened again is another form.
  await turnTo(page, '#/nodes');
  await (await button.reach(page, given)).click();
  await form.getByText(/^Bid \d+ placed\.$/).waitFor();
  await until(async () => assert.equal(await count(), 4));
  await context.close();
});

test('a bid that was refused is sent as another command when the person tries again', async () => {
  const { page, context, person, sent } = await pageOf('TENANT');
  const { bid } = await freshNode(person);
  await engine.call(engine.admin, 'PUT', `/v1/accounts/${person.account}`, { limits: { nodes_wanted: 1 } });
  await turnTo(page, '#/nodes');
  await page.getByRole('button', { name: `Amend, bid ${bid}` }).click();
  await dialogOf(page).getByLabel('Nodes', { exact: true }).fill('2');
  await pressed(page, 'Amend').click();
  await dialogOf(page).getByText(/limit/).waitFor();
  await engine.call(engine.admin, 'PUT', `/v1/accounts/${person.account}`, { limits: {} });
  await pressed(page, 'Amend').click();
  await dialogOf(page).waitFor({ state: 'detached' });
  assert.equal((await bidOf(person, bid)).max_nodes, 2);
  assert.equal(new Set(sent.map(({ key }) => key)).size, 2);
  await context.close();
});

test('a token is made anew after its secret was lost, when the person changes the form', async () => {
  const { page, context } = await pageOf('ADMIN');
  const button = BUTTONS.find(({ isSecret }) => isSecret);
  const given = await button.given();
  await turnTo(page, button.view);
  const make = await button.reach(page, given);
  const found = await loseAnswers(page, button.sends);
  await make.click();
  await dialogOf(page).getByText('its secret was lost on the way').waitFor();
  await found();
  await dialogOf(page).getByLabel('What it is for').fill('the second');
  await make.click();
  assert.match(await dialogOf(page).getByLabel('Secret').inputValue(), /^kb_/);
  assert.equal((await engine.call(engine.admin, 'GET', `/v1/tokens?account=${given.account}`)).tokens.length, 2);
  await context.close();
});

test('every command in the source of the page is in the list of this test', () => {
  const source = new URL('../src/', import.meta.url);
  const files = ['', 'views/'].flatMap((folder) => readdirSync(new URL(folder, source)).filter((name) => name.endsWith('.js')).map((name) => folder + name));
  const calls = files.filter((file) => file !== 'command.js').flatMap((file) => [...readFileSync(new URL(file, source), 'utf8').matchAll(/method: '(POST|PUT|PATCH|DELETE)'/g)].map(() => file));
  const sizes = Object.fromEntries([...new Set(calls)].sort().map((file) => [file, calls.filter((one) => one === file).length]));
  // Two buttons may share a call, as both of a dialog that cancels do.
  assert.deepEqual(sizes, { 'views/admin.js': 7, 'views/bid-dialogs.js': 4, 'views/node-access.js': 1, 'views/nodes.js': 2, 'views/offers.js': 5, 'views/place.js': 1 });
  for (const file of files.filter((name) => !['api.js', 'command.js'].includes(name))) {
    const text = readFileSync(new URL(file, source), 'utf8');
    const direct = [...text.matchAll(/request\('(?!GET)\w+', ([^,]+),/g)].map(([, path]) => path);
    assert.deepEqual([...new Set(direct)].filter((path) => path !== "'/v1/bids/quote'"), [], `${file} sends commands through command.js alone`);
  }
});
