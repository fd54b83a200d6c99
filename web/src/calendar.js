// Finds where hours and days begin in the browser's time zone, and moves instants by them. All steps of the page in time are here.
// Instants and spans are numbers of microseconds.

export const SECOND_US = 1_000_000;
export const MINUTE_US = 60 * SECOND_US;
export const HOUR_US = 60 * MINUTE_US;
/** The length of a date in a count of dates. A local day may have 23, 24 or 25 hours, and a zone may skip one. */
const DATE_US = 24 * HOUR_US;
/** The largest difference of a zone from UTC, rounded up. */
const OFFSET_MAX_US = 15 * HOUR_US;
/** The number of a Monday among dates that are counted from 1970-01-01, a Thursday. */
const MONDAY = 4;
const WEEK = 7;

/** A part of local time: an hour or a day. @typedef {'hour' | 'day'} Unit */
/** A distance in local time, negative for an earlier one. @typedef {{hours?: number, days?: number, months?: number}} Distance */

/** Returns how far local time is ahead of UTC. @param {number} us */
function offsetAt(us) {
  return -new Date(us / 1000).getTimezoneOffset() * MINUTE_US;
}

/** Returns the remainder that is not negative. @param {number} value @param {number} divisor */
function remainder(value, divisor) {
  return ((value % divisor) + divisor) % divisor;
}

/** Returns the first instant after `from` with another offset. At `to` the offset is another one. @param {number} from @param {number} to */
function changeOfOffset(from, to) {
  const before = offsetAt(from);
  let [low, high] = [Math.floor(from / 1000), Math.ceil(to / 1000)];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetAt(middle * 1000) === before) low = middle;
    else high = middle;
  }
  return high * 1000;
}

/** Returns the number of the local date at an instant. @param {number} us */
function dateAt(us) {
  return Math.floor((us + offsetAt(us)) / DATE_US);
}

/** Returns the first instant of a date, or of the next one if the zone skips it. @param {number} date its number */
function firstInstant(date) {
  const midnight = date * DATE_US;
  const [from, to] = [midnight - OFFSET_MAX_US, midnight + OFFSET_MAX_US];
  const [before, after] = [offsetAt(from), offsetAt(to)];
  if (before === after) return midnight - before;
  const change = changeOfOffset(from, to);
  // A midnight that comes twice counts the first time. One that is skipped gives way to the change of the clock.
  return midnight - before < change ? midnight - before : Math.max(midnight - after, change);
}

/**
 * Returns when the local hour or day of an instant began. An hour has 60 minutes at most: one that the clock repeats is two, and one
 * that it cuts is shorter.
 * @param {number} us @param {Unit} unit
 */
export function startOf(us, unit) {
  if (unit === 'day') {
    // Where the clock goes back over midnight, the next date has begun already.
    const date = dateAt(us);
    const next = firstInstant(date + 1);
    return next <= us ? next : firstInstant(date);
  }
  const offset = offsetAt(us);
  const start = us - remainder(us + offset, HOUR_US);
  return offsetAt(start) === offset ? start : changeOfOffset(start, us);
}

/** Returns when the local hour or day after that of an instant begins. @param {number} us @param {Unit} unit */
export function startAfter(us, unit) {
  if (unit === 'day') {
    const date = dateAt(us);
    const next = firstInstant(date + 1);
    return next > us ? next : firstInstant(date + 2);
  }
  const offset = offsetAt(us);
  const end = us - remainder(us + offset, HOUR_US) + HOUR_US;
  return offsetAt(end - 1) === offset ? end : changeOfOffset(us, end);
}

/** Returns the starts of the local hours or days that have a part between two instants, in order. @param {number} from @param {number} to @param {Unit} unit */
export function starts(from, to, unit) {
  const found = [];
  for (let at = startOf(from, unit); at <= to; at = startAfter(at, unit)) found.push(at);
  return found;
}

/**
 * Returns the instant at a distance. Hours are of 60 minutes. Days and months keep the local time: a month later is the same day
 * of the next month, or its last one. A local time that the clock skips gives way to a later one.
 * @param {number} us @param {Distance} distance
 */
export function shifted(us, { hours = 0, days = 0, months = 0 }) {
  const offset = offsetAt(us);
  const time = remainder(us + offset, DATE_US);
  const date = new Date((us + offset - time) / 1000);
  const [year, month] = [date.getUTCFullYear(), date.getUTCMonth() + months];
  const lastDay = new Date(Date.UTC(year, month + 1, 0)).getUTCDate();
  const midnight = Date.UTC(year, month, Math.min(date.getUTCDate(), lastDay) + days) * 1000;
  const local = midnight + time;
  const [before, after] = [offsetAt(local - OFFSET_MAX_US), offsetAt(local + OFFSET_MAX_US)];
  // A local time that comes twice keeps its offset, if it can.
  const found = [offset, before, after].find((one) => offsetAt(local - one) === one) ?? before;
  return local - found + hours * HOUR_US;
}

/** Returns true if two instants have the same local date. @param {number} one @param {number} other */
export function isSameDay(one, other) {
  return dateAt(one) === dateAt(other);
}

/** Returns true if the local time of an instant comes twice, because the clock is put back. @param {number} us */
export function isRepeated(us) {
  const offset = offsetAt(us);
  return [us - DATE_US, us + DATE_US].map(offsetAt).some((other) => other !== offset && offsetAt(us + offset - other) === other);
}

/** The distances of an axis in seconds, and in local days from a day on. */
const AXIS_SECONDS = [1, 5, 10, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200];
const AXIS_DAYS = [1, 2, WEEK];

/**
 * Returns the instants that an axis shows, at round local times, and which of them are shown as a date. Weeks begin on Monday.
 * @param {number} from @param {number} to @param {number} about the most that have room
 * @returns {{at: number, isDate: boolean}[]}
 */
export function axisTimes(from, to, about) {
  const seconds = AXIS_SECONDS.find((step) => (to - from) / (step * SECOND_US) <= about);
  if (seconds !== undefined) {
    const step = seconds * SECOND_US;
    // A long step has room for the date, which the first of each day shows.
    const isFirst = (/** @type {number} */ at, /** @type {number} */ before) => step > 2 * HOUR_US && startOf(at, 'day') > before;
    return roundTimes(from, to, step).map((at, index, all) => ({ at, isDate: isFirst(at, all[index - 1] ?? at - step) }));
  }
  const days = AXIS_DAYS.find((step) => (to - from) / (step * DATE_US) <= about) ?? WEEK;
  const found = [];
  for (let date = dateAt(from); date <= dateAt(to); date += 1) {
    const at = firstInstant(date);
    // A date that the zone skips has no instant.
    if (remainder(date - MONDAY, days) === 0 && at >= from && at <= to && dateAt(at) === date) found.push({ at, isDate: true });
  }
  return found;
}

/** Returns the instants whose local time is a multiple of a part of the day. @param {number} from @param {number} to @param {number} step */
function roundTimes(from, to, step) {
  const found = [];
  let last = -Infinity;
  for (let at = Math.ceil(from); at <= to;) {
    const offset = offsetAt(at);
    const next = at + remainder(-(at + offset), step);
    if (offsetAt(next) !== offset) {
      // The clock changes on the way.
      at = changeOfOffset(at, next);
      continue;
    }
    // A local time that comes twice is shown twice if there is room.
    if (next <= to && next - last > step / 2) {
      found.push(next);
      last = next;
    }
    at = next + 1;
  }
  return found;
}
