// Local time in every zone that the browser knows, in every hour of some years. It needs no browser.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { after, test } from 'node:test';
import { HOUR_US, MINUTE_US, axisTimes, isRepeated, isSameDay, shifted, startAfter, startOf, starts } from '../src/calendar.js';

const SOURCE = new URL('../src/', import.meta.url);
const HOUR_MS = 3_600_000;
/** Three years with a leap day each. In those of the past Samoa skipped a day, and many zones changed their clocks at midnight. */
const YEARS = [[2010, 2013], [2026, 2029]];

const zoneBefore = process.env.TZ;
after(() => {
  if (zoneBefore === undefined) delete process.env.TZ;
  else process.env.TZ = zoneBefore;
});

/** Runs a check in a zone. @param {string} zone @param {() => void} check */
function within(zone, check) {
  process.env.TZ = zone;
  check();
}

/** @param {string} text with its offset */
const us = (text) => Date.parse(text) * 1000;
/** @param {number} at */
const iso = (at) => new Date(at / 1000).toISOString();
const local = (at) => {
  const date = new Date(at / 1000);
  const two = (number) => String(number).padStart(2, '0');
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${two(date.getHours())}:${two(date.getMinutes())}`;
};
const dateOf = (date) => date.getFullYear() * 10_000 + date.getMonth() * 100 + date.getDate();

/**
 * The zones whose clocks differ in the years, each with the first and the last hour of the years, and with the hours in which its
 * offset from UTC changes.
 * @type {{zone: string, from: number, to: number, changes: number[]}[]}
 */
const CLOCKS = YEARS.flatMap(([first, last]) => {
  const [from, to] = [Date.UTC(first, 0) / HOUR_MS, Date.UTC(last, 0) / HOUR_MS];
  const found = new Map();
  for (const zone of Intl.supportedValuesOf('timeZone')) {
    process.env.TZ = zone;
    const changes = [];
    const offsets = [];
    for (let hour = from; hour <= to; hour += 1) {
      const offset = new Date(hour * HOUR_MS).getTimezoneOffset();
      if (offset === offsets[offsets.length - 1]) continue;
      offsets.push(offset);
      changes.push(hour);
    }
    found.set(`${offsets} ${changes}`, { zone, from: from * HOUR_US, to: to * HOUR_US, changes: changes.slice(1).map((hour) => hour * HOUR_US) });
  }
  return [...found.values()];
});

/** Runs a check for each clock. @param {(clock: typeof CLOCKS[0]) => void} check */
function forClocks(check) {
  assert.ok(CLOCKS.length > 100, `${CLOCKS.length} clocks`);
  for (const clock of CLOCKS) within(clock.zone, () => check(clock));
}

test('local hours and days divide time in every zone and in every hour of three years', () => {
  forClocks(({ zone, from, to }) => {
    const [hours, days] = [starts(from, to, 'hour'), starts(from, to, 'day')];
    for (const [unit, all] of [['hour', hours], ['day', days]]) {
      assert.ok(all[0] <= from, `${zone}: the first ${unit} includes the first instant`);
      for (let index = 0; index < all.length; index += 1) {
        const [start, end] = [all[index], all[index + 1] ?? startAfter(all[index], unit)];
        const fails = (what) => assert.fail(`${zone}, ${unit} of ${iso(start)} to ${iso(end)}: ${what}`);
        if (!(end > start)) fails('it goes on');
        if (startOf(start, unit) !== start || startOf(end - 1000, unit) !== start) fails('it includes its ends');
        const [first, last, before] = [new Date(start / 1000), new Date(end / 1000 - 1), new Date(start / 1000 - 1)];
        if (unit === 'day') {
          if (dateOf(first) <= dateOf(before)) fails('it begins with its date');
          // The longest change of these years is one of three hours, in Antarctica.
          if (end - start > 27 * HOUR_US || end - start < 21 * HOUR_US) fails('it is a day long');
        } else {
          if (end - start > HOUR_US) fails('it has an hour at most');
          if (first.getTimezoneOffset() !== last.getTimezoneOffset() || first.getHours() !== last.getHours()) fails('the clock does not change in it');
          if (first.getMinutes() !== 0 && first.getTimezoneOffset() === before.getTimezoneOffset()) fails('it begins with its hour');
        }
      }
    }
    let [hour, day] = [0, 0];
    for (let at = from; at <= to; at += HOUR_US) {
      while (hours[hour + 1] <= at) hour += 1;
      while (days[day + 1] <= at) day += 1;
      if (startOf(at, 'hour') !== hours[hour] || startOf(at, 'day') !== days[day]) assert.fail(`${zone}, ${iso(at)}: it is in its hour and day`);
    }
  });
});

test('a day and a month later the clock shows the same, in every zone and at every hour about a change of its clock', () => {
  forClocks(({ zone, from, changes }) => {
    const hours = [from, ...changes].flatMap((change) => [1, 29, 30, 31].flatMap((days) => Array.from({ length: 60 }, (_, hour) => change + (24 * days + hour - 48) * HOUR_US)));
    for (const at of [...hours, ...changes.flatMap((change) => Array.from({ length: 60 }, (_, hour) => change + (hour - 48) * HOUR_US))]) {
      const date = new Date(at / 1000);
      for (const distance of [{ days: 1 }, { days: -1 }, { days: -29 }, { months: -1 }]) {
        const found = new Date(shifted(at, distance) / 1000);
        const month = date.getMonth() + (distance.months ?? 0);
        const last = new Date(date.getFullYear(), month + 1, 0, 12).getDate();
        const day = Math.min(date.getDate(), distance.months ? last : 31) + (distance.days ?? 0);
        // The clock of the browser's own: of two instants with one local time it takes the first, and it goes on from one that is skipped.
        const wanted = new Date(date.getFullYear(), month, day, date.getHours(), date.getMinutes());
        if (+found === +wanted) continue;
        const isSame = dateOf(found) === dateOf(wanted) && found.getHours() === wanted.getHours() && found.getMinutes() === wanted.getMinutes();
        if (!isSame || found.getTimezoneOffset() !== date.getTimezoneOffset()) assert.fail(`${zone}, ${iso(at)}, ${JSON.stringify(distance)}: ${found.toISOString()}, not ${wanted.toISOString()}`);
      }
    }
  });
});

test('an axis has round local times in order, and leaves none out that has room', () => {
  const spans = [2 * MINUTE_US, HOUR_US, 24 * HOUR_US, 25 * HOUR_US, 7 * 24 * HOUR_US, 31 * 24 * HOUR_US];
  forClocks(({ zone, from, changes }) => {
    const ends = [from, ...changes].flatMap((change) => [0, 1, 2, 3, 5, 13, 25].map((hours) => change + hours * HOUR_US + 7 * MINUTE_US));
    for (const end of ends) {
      for (const span of spans) {
        for (const about of [4, 9, 14]) {
          const found = axisTimes(end - span, end, about);
          const said = () => `${zone}, ${span / HOUR_US} h to ${iso(end)}, ${about}: ${found.map(({ at }) => local(at)).join(', ')}`;
          if (found.length > about + 3) assert.fail(`${said()}: too many`);
          let step = Infinity;
          for (let index = 0; index < found.length; index += 1) {
            const { at } = found[index];
            const date = new Date(at / 1000);
            const before = found[index - 1]?.at ?? -Infinity;
            if (at < end - span || at > end || at <= before) assert.fail(`${said()}: in order`);
            if (index > 0) step = Math.min(step, at - before);
            if (span > 3 * HOUR_US && date.getMinutes() !== 0 && startOf(at, 'day') !== at) assert.fail(`${said()}: at a full hour`);
            if (found[index].isDate && index > 0 && found[index - 1].isDate && isSameDay(at, before)) assert.fail(`${said()}: one date for each day`);
          }
        }
      }
    }
  });
});

test('the hours of the night in which summer time ends are 25, and two of them have the same name', () => within('Europe/Berlin', () => {
  const now = us('2026-10-25T12:00Z');
  const hours = starts(startOf(shifted(now, { hours: -23 }), 'hour'), now, 'hour');
  assert.equal(hours.length, 24);
  assert.deepEqual(hours.map(local).filter((name) => name.endsWith('02:00')), ['10-25 02:00', '10-25 02:00']);
  assert.equal(startAfter(startOf(now, 'day'), 'day') - startOf(now, 'day'), 25 * HOUR_US);
  assert.deepEqual([us('2026-10-25T00:30Z'), us('2026-10-25T01:30Z'), us('2026-10-25T02:30Z')].map(isRepeated), [true, true, false]);
  assert.deepEqual(axisTimes(us('2026-10-24T22:00Z'), us('2026-10-25T04:00Z'), 8).map(({ at }) => local(at).slice(6)),
    ['00:00', '01:00', '02:00', '02:00', '03:00', '04:00', '05:00']);
  const week = starts(startOf(shifted(now, { days: -6 }), 'day'), now, 'day').map(local);
  assert.deepEqual(week, ['10-19 00:00', '10-20 00:00', '10-21 00:00', '10-22 00:00', '10-23 00:00', '10-24 00:00', '10-25 00:00']);
}));

test('the day on which summer time begins has 23 hours, and a time that the clock skips gives way to a later one', () => within('Europe/Berlin', () => {
  const start = us('2026-03-28T23:00Z');
  assert.equal(startAfter(start, 'day') - start, 23 * HOUR_US);
  assert.equal(local(shifted(us('2026-03-28T01:30Z'), { days: 1 })), '03-29 03:30');
  assert.equal(starts(start, start + 23 * HOUR_US - 1, 'hour').length, 23);
}));

test('a clock that changes by half an hour has hours of half an hour', () => within('Australia/Lord_Howe', () => {
  const names = (from, to) => starts(us(from), us(to), 'hour').map((at) => local(at).slice(6));
  assert.deepEqual(names('2026-04-04T14:00Z', '2026-04-04T16:00Z'), ['01:00', '01:30', '02:00']);
  assert.deepEqual(names('2026-10-03T14:30Z', '2026-10-03T16:30Z'), ['01:00', '02:30', '03:00']);
}));

test('a zone that skips midnight begins its day later, and one that skips a day goes on with the next', () => {
  within('Africa/Cairo', () => assert.equal(local(startOf(us('2026-04-24T12:00Z'), 'day')), '04-24 01:00'));
  within('Pacific/Apia', () => {
    const from = us('2011-12-29T12:00Z');
    assert.deepEqual(starts(from, from + 49 * HOUR_US, 'day').map(local), ['12-29 00:00', '12-31 00:00', '01-01 00:00']);
    assert.equal(local(shifted(from, { days: 1 })), '12-31 02:00');
  });
});

test('zones of half and quarter hours have full hours of their own', () => {
  within('Asia/Kolkata', () => assert.equal(iso(startOf(us('2026-06-01T12:00Z'), 'hour')), '2026-06-01T11:30:00.000Z'));
  within('Asia/Kathmandu', () => assert.equal(iso(startOf(us('2026-06-01T12:00Z'), 'hour')), '2026-06-01T11:15:00.000Z'));
});

test('a month ago is the same day of the month before, or its last one', () => within('UTC', () => {
  const ago = (text) => iso(shifted(us(text), { months: -1 }));
  assert.equal(ago('2028-03-31T10:00Z'), '2028-02-29T10:00:00.000Z');
  assert.equal(ago('2026-03-31T10:00Z'), '2026-02-28T10:00:00.000Z');
  assert.equal(ago('2026-01-15T10:00Z'), '2025-12-15T10:00:00.000Z');
}));

/** What reckons with parts of local dates, or takes a day for 24 hours. */
const RECKONS = [/\.[gs]et(FullYear|Month|Date|Day|Hours|Minutes|Seconds|TimezoneOffset)\(/, /to(Locale)?(Date|Time)String/, /new Date\([^)]*,/,
  /\b86_?400/, /\b3_?600_?000/, /\b24 ?\* ?(60|HOUR|3_?600)/];

test('no other module of the page steps in local time', () => {
  const files = ['', 'views/'].flatMap((folder) => readdirSync(new URL(folder, SOURCE)).filter((name) => name.endsWith('.js')).map((name) => folder + name));
  assert.ok(files.length > 20);
  for (const file of files.filter((name) => name !== 'calendar.js')) {
    const lines = readFileSync(new URL(file, SOURCE), 'utf8').split('\n');
    const found = lines.filter((line) => RECKONS.some((one) => one.test(line)));
    // A span is written in days of 24 hours.
    assert.deepEqual(found.map((line) => line.trim()), file === 'format.js' ? ["[Math.floor(seconds / 86_400), 'd'],"] : [], file);
  }
});
