// Writes money and times as a person reads them, and the exact value beside.

import { isRepeated, isSameDay } from './calendar.js';
import { h } from './dom.js';

/** A price or an amount in micro-dollars. @typedef {string | number | bigint} Micros */
/** An instant or a span in microseconds. @typedef {string | number | bigint} Microseconds */

const MICROS = 1_000_000n;

/**
 * Returns dollars with the fewest decimals that a person needs: two from a dollar on, four below.
 * @param {Micros} micros
 * @param {'nearest' | 'up'} [rounding] up: a limit that has to be reached is never shown too low
 */
export function dollars(micros, rounding = 'nearest') {
  const value = BigInt(micros);
  const sign = value < 0n ? '−' : '';
  const size = value < 0n ? -value : value;
  const unit = size === 0n || size >= MICROS ? 10_000n : 100n;
  const units = (size + (rounding === 'up' ? unit - 1n : unit / 2n)) / unit;
  const perDollar = MICROS / unit;
  const whole = (units / perDollar).toString().replace(/\B(?=(\d{3})+$)/g, ',');
  const decimals = (units % perDollar).toString().padStart(perDollar.toString().length - 1, '0');
  return `${sign}$${whole}.${unit === 100n ? decimals.replace(/0{1,2}$/, '') : decimals}`;
}

/** Returns the exact amount as a number in dollars, as a form or a file takes it. @param {Micros} micros */
export function plainDollars(micros) {
  const value = BigInt(micros);
  const size = value < 0n ? -value : value;
  const decimals = (size % MICROS).toString().padStart(6, '0').replace(/0{1,4}$/, '');
  return `${value < 0n ? '-' : ''}${size / MICROS}.${decimals}`;
}

/** Returns the exact amount. @param {Micros} micros @param {string} [unit] */
export function exactDollars(micros, unit = '') {
  return `$${plainDollars(micros)}${unit ? ` ${unit}` : ''}`;
}

/** Returns an element with a price. @param {Micros | undefined} micros @param {'nearest' | 'up'} [rounding] */
export function price(micros, rounding) {
  if (micros === undefined || micros === null) return h('span', { class: 'none', title: 'none at present' }, '–');
  return h('data', { value: String(micros), title: exactDollars(micros, 'per node-hour') }, dollars(micros, rounding));
}

/** Returns an element with an amount. @param {Micros} micros */
export function amount(micros) {
  return h('data', { value: String(micros), title: exactDollars(micros) }, dollars(micros));
}

/** Reads dollars. Returns micro-dollars, or null if the text is no amount. A comma only divides thousands: `16,5` is none. @param {string} text */
export function parseDollars(text) {
  const match = /^\s*\$?\s*(\d{1,9}|\d{1,3}(?:,\d{3}){1,2})(?:\.(\d{0,6}))?\s*$/.exec(text);
  return match ? BigInt(match[1].replaceAll(',', '')) * MICROS + BigInt((match[2] ?? '').padEnd(6, '0')) : null;
}

/** Says what is wrong with a text that is no amount above 0. @param {string} text */
export function amountError(text) {
  if (/,\d{1,2}$/.test(text.trim())) return 'Cents follow a point, as in 12.50.';
  if (/^\s*\$?\s*[\d,]+\.\d{7,}\s*$/.test(text)) return 'An amount has at most 6 decimals.';
  if (/^\s*\$?\s*\d{10,}/.test(text)) return 'An amount is below a billion dollars.';
  if (/^\s*(-.*|\$?\s*0*\.?0*)\s*$/.test(text) && /\d/.test(text)) return 'An amount is more than $0.';
  return 'It is an amount in dollars, as in 12.50.';
}

/** Returns a span of time in its two largest units. @param {number} microseconds */
export function span(microseconds) {
  const seconds = Math.max(0, Math.ceil(microseconds / 1e6));
  const parts = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ];
  const first = parts.findIndex(([count]) => Number(count) > 0);
  if (first < 0) return '0 s';
  return parts.slice(first, first + 2).filter(([count]) => Number(count) > 0).map((part) => part.join(' ')).join(' ');
}

const TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23' });
const SHORT_TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23' });
const ZONED_TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hourCycle: 'h23', timeZoneName: 'short' });
const ZONED_SHORT_TIME = new Intl.DateTimeFormat(undefined, { hour: '2-digit', minute: '2-digit', hourCycle: 'h23', timeZoneName: 'short' });
const DAY = new Intl.DateTimeFormat(undefined, { day: 'numeric', month: 'short' });

/** @param {Microseconds} us */
function dateOf(us) {
  return new Date(Number(us) / 1000);
}

/** Returns an instant as a person reads it: the time, and the day if it is not today. @param {Microseconds} us */
export function instant(us) {
  return isSameDay(Number(us), Date.now() * 1000) ? longTime(us) : `${day(us)}, ${longTime(us)}`;
}

/** Returns a time of day with seconds, and with its zone if the clock shows it twice on that day. @param {Microseconds} us */
export function longTime(us) {
  return (isRepeated(Number(us)) ? ZONED_TIME : TIME).format(dateOf(us));
}

/** Returns a time of day, and its zone if the clock shows it twice on that day. @param {Microseconds} us */
export function shortTime(us) {
  return (isRepeated(Number(us)) ? ZONED_SHORT_TIME : SHORT_TIME).format(dateOf(us));
}

/** Returns a time of day as an axis has room for it. @param {Microseconds} us @param {boolean} hasSeconds */
export function axisTime(us, hasSeconds) {
  return (hasSeconds ? TIME : SHORT_TIME).format(dateOf(us));
}

/** @param {Microseconds} us */
export function day(us) {
  return DAY.format(dateOf(us));
}

/** Returns the exact instant in UTC. @param {Microseconds} us */
export function exactInstant(us) {
  const text = BigInt(us).toString().padStart(7, '0');
  return dateOf(us).toISOString().replace(/\.\d+Z$/, `.${text.slice(-6)}Z`);
}

/** Returns an element with an instant. @param {Microseconds} us */
export function time(us) {
  const exact = exactInstant(us);
  return h('time', { datetime: exact, title: exact }, instant(us));
}

/** Returns a number with its noun. @param {number} count @param {string} one @param {string} [many] */
export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}
