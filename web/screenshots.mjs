// Makes the pictures of the docs: a market with a past, a tenant with a notice. Run by scripts/screenshots.

import { mkdirSync, statSync } from 'node:fs';
import { Engine, live, openWindow, startBrowser } from './tests/harness.mjs';

const TO = new URL('../docs/page/', import.meta.url).pathname;
const MOST_BYTES = 150_000;
const MARKETS = [['h100-8x/eu-west', 8, 12], ['h100-8x/us-east', 8.5, 8], ['a100-8x/eu-west', 4, 12], ['l40s-4x/us-east', 1.5, 20]];

/** Returns the same numbers each time (a linear congruential generator). */
function dice(seed) {
  let state = seed;
  return () => {
    state = (state * 1_664_525 + 1_013_904_223) % 4_294_967_296;
    return state / 4_294_967_296;
  };
}

const browser = await startBrowser();
const engine = await Engine.start(['--clock', 'stepped']);
try {
  const roll = dice(7);
  const acme = await engine.person('acme', 'PROVIDER');
  const tenant = await engine.person('vision', 'TENANT');
  const others = [];
  for (let number = 1; number <= 6; number += 1) others.push(await engine.person(`tenant-${number}`, 'TENANT'));
  let now = (Date.now() - 3_600_000) * 1000;
  const move = (seconds) => {
    now += seconds * 1e6;
    return engine.call(engine.admin, 'POST', '/v1/clock/advance', { to_us: String(Math.floor(now)) });
  };
  await move(0);
  for (const [name, reserve, units] of MARKETS) {
    const rules = { min_runtime_us: '60000000', notice_us: '300000000', min_charge_us: '60000000', start_timeout_us: '600000000' };
    await engine.call(engine.admin, 'POST', '/v1/markets', { market: name, rules });
    await engine.call(acme.token, 'PUT', `/v1/markets/${name}/offer`, { capacity: units, reserve_micros: String(reserve * 1e6) });
  }
  const ready = async () => {
    const { allocations } = await engine.call(acme.token, 'GET', '/v1/allocations?state=STARTING');
    for (const { allocation } of allocations) await engine.call(acme.token, 'POST', `/v1/allocations/${allocation}/ready`, {}).catch(() => {});
  };
  const open = [];
  const mine = await engine.bid(tenant, MARKETS[0][0], 14, 2, { team: 'vision', job: 'train-7' });
  await engine.bid(tenant, MARKETS[2][0], 5.5, 1, { team: 'vision', job: 'eval' });
  for (let minute = 0; minute < 58; minute += 1) {
    await move(60);
    for (const [name, reserve, units] of MARKETS) {
      const rush = 1 + 0.5 * Math.sin((minute + reserve * 3) / 9);
      if (roll() < 0.7) {
        const person = others[Math.floor(roll() * others.length)];
        const most = reserve * (1 + roll() * 0.9 * rush);
        open.push([person, await engine.bid(person, name, Math.round(most * 100) / 100, 1 + Math.floor(roll() * units * 0.3))]);
      }
    }
    while (open.length > 26) {
      const [[person, bid]] = open.splice(Math.floor(roll() * open.length), 1);
      await engine.call(person.token, 'POST', `/v1/bids/${bid}/cancel`, { mode: 'RELEASE' }).catch(() => {});
    }
    await ready();
  }
  await move(61);
  await engine.bid(others[0], MARKETS[0][0], 19, 5);
  await engine.call(tenant.token, 'GET', `/v1/bids/${mine}`);
  mkdirSync(TO, { recursive: true });
  const shoot = async (name, height, address, drawn, act = () => {}) => {
    const { page, context } = await openWindow(browser, { viewport: { width: 1180, height } });
    await page.goto(tenant.link);
    await live(page);
    await page.evaluate((hash) => { location.hash = hash; }, address);
    await drawn(page).first().waitFor();
    await act(page);
    await page.evaluate(() => document.fonts.ready);
    const path = `${TO}${name}.png`;
    await page.screenshot({ path });
    await context.close();
    const { size } = statSync(path);
    if (size > MOST_BYTES) throw new Error(`${name}.png has ${size} bytes; ${MOST_BYTES} are allowed`);
    console.log(`docs/page/${name}.png: ${size} bytes`);
  };
  await shoot('market', 980, `#/market/${MARKETS[0][0]}`, (page) => page.getByText('median'));
  await shoot('nodes', 740, '#/nodes', (page) => page.getByText('Notice: ends in'), async (page) => {
    await page.getByLabel('At most, $ per node-hour').fill('15');
    await page.getByLabel('Nodes', { exact: true }).last().fill('4');
    await page.getByRole('form').getByText('your bid waits').waitFor();
  });
} finally {
  await browser.close();
  await engine.stop();
}
