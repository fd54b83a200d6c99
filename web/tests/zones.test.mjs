// The charts of the page where and when the clock is changed: all hours and days are there, and the amounts are in the right ones.

import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Engine, live, openWindow, startBrowser } from './harness.mjs';

const MARKET = 'h100-8x/eu-west';
/** When the node begins to run. It costs $8 an hour from then on. */
const BEGIN = '2026-03-01T00:00Z';

/**
 * The instants, in order, at which a person looks, with the zones and what is shown in each: the amounts of some hours and days. An hour
 * that comes twice has two amounts.
 * @type {[string, [string, {hours?: Record<string, string[]>, days?: Record<string, string[]>}][]][]}
 */
const LOOKS = [
  ['2026-04-05T12:45Z', [
    // The clock is put back by half an hour.
    ['Australia/Lord_Howe', { hours: { '01:00': ['$8.00'], '01:30': ['$4.00'], '02:00': ['$8.00'] }, days: { '4 Apr': ['$192.00'], '5 Apr': ['$190.00'] } }],
    // The clock is put back over midnight.
    ['America/Santiago', { hours: { '23:00': ['$8.00', '$8.00'], '00:00': ['$8.00'] }, days: { '4 Apr': ['$200.00'] } }],
    ['Asia/Kolkata', { hours: { '12:00': ['$8.00'], '18:00': ['$2.00'] } }],
  ]],
  ['2026-10-25T12:45Z', [
    ['Europe/Berlin', { hours: { '01:00': ['$8.00'], '02:00': ['$8.00', '$8.00'], '03:00': ['$8.00'], '13:00': ['$6.00'] }, days: { '24 Oct': ['$192.00'] } }],
    // The clock is put back to midnight.
    ['Atlantic/Azores', { hours: { '00:00': ['$8.00', '$8.00'] }, days: { '24 Oct': ['$192.00'] } }],
  ]],
  ['2026-10-26T12:45Z', [['Europe/Berlin', { days: { '25 Oct': ['$200.00'], '26 Oct': ['$110.00'] } }]]],
  ['2026-11-01T12:45Z', [['America/New_York', { hours: { '01:00': ['$8.00', '$8.00'] } }]]],
  // The clock is put forward, over midnight in Havana.
  ['2027-03-14T18:45Z', [
    ['America/Havana', { days: { '13 Mar': ['$192.00'] }, hours: { '01:00': ['$8.00'], '00:00': [] } }],
    ['America/New_York', { hours: { '01:00': ['$8.00'], '02:00': [], '03:00': ['$8.00'] } }],
  ]],
];

let browser;
let engine;
let tenant;

const advance = (text) => engine.call(engine.admin, 'POST', '/v1/clock/advance', { to_us: String(Date.parse(text) * 1000) });

before(async () => {
  browser = await startBrowser();
  engine = await Engine.start(['--clock', 'stepped']);
  await advance(BEGIN);
  const provider = await engine.person('acme', 'PROVIDER');
  await engine.market(MARKET, provider);
  tenant = await engine.person('tenant-a', 'TENANT');
  await engine.ready(tenant, await engine.bid(tenant, MARKET, 16, 1));
});
after(async () => {
  await browser?.close();
  await engine?.stop();
});

/** Returns the amounts of the bars, by their name. @param {import('playwright-core').Page} page */
const barsOf = async (page) => (await page.locator('.chart rect.bar title').allTextContents()).map((title) => /^(.*): (\$.*)$/.exec(title).slice(1));

for (const [instant, zones] of LOOKS) {
  test(`money and prices are in their hours and days on ${instant}`, async () => {
    await advance(instant);
    for (const [timezoneId, { hours = {}, days = {} }] of zones) {
      const { page, context, faults } = await openWindow(browser, { timezoneId, locale: 'en-GB' });
      await page.clock.setFixedTime(new Date(instant));
      await page.goto(tenant.link);
      await live(page);
      await page.getByRole('link', { name: 'Money' }).click();
      for (const [period, count, wanted] of [['24 hours', 24, hours], ['7 days', 7, days], ['30 days', 30, days]]) {
        await page.getByRole('button', { name: period }).click();
        await page.getByText(`in the last ${period}`, { exact: true }).waitFor();
        const found = await barsOf(page);
        assert.ok(found.length >= count && found.length <= count + 1, `${timezoneId}, ${period}: ${found.length} bars`);
        assert.equal(new Set(found.map(([name]) => name)).size, found.length, `${timezoneId}, ${period}: each bar has another name: ${JSON.stringify(found)}`);
        for (const [name, sums] of Object.entries(wanted)) {
          // An hour of another day is named with the day, and one that comes twice with its offset from UTC.
          const mine = found.filter(([one]) => one === name || (period === '24 hours' && one.replace(/^\d+ \w+, /, '').split(' ')[0] === name));
          assert.deepEqual(mine.map(([, sum]) => sum), sums, `${timezoneId}, ${period}, ${name} of ${JSON.stringify(found)}`);
        }
      }
      await page.evaluate((hash) => { location.hash = hash; }, `#/market/${MARKET}`);
      for (const range of ['Hour', 'Day', 'Week', 'Month']) {
        await page.getByRole('button', { name: range, exact: true }).click();
        await page.locator('.reading').getByText(`Last ${range.toLowerCase()}:`).waitFor();
        const labels = await page.locator('.chart').first().locator('text.tick').allTextContents();
        assert.ok(labels.length > 5, `${timezoneId}, ${range}: ${labels}`);
      }
      assert.deepEqual(faults, []);
      await context.close();
    }
  });
}
