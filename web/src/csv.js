// Writes charges as a file for spreadsheets.

import { exactInstant, plainDollars } from './format.js';
import { endReason } from './words.js';

const COLUMNS = ['from', 'to', 'market', 'unit', 'bid', 'node', 'reason', 'labels', 'debit_dollars', 'fee_dollars', 'credit_dollars', 'tenant', 'provider'];

/** Returns charges as CSV (RFC 4180). @param {any[]} charges */
export function csv(charges) {
  const rows = charges.map((charge) => [
    exactInstant(charge.from_us), exactInstant(charge.to_us), charge.market, charge.unit, charge.bid ?? '', charge.allocation ?? '',
    charge.reason ? endReason(charge.reason) : 'running', Object.entries(charge.labels).map((pair) => pair.join('=')).join(';'),
    plainDollars(charge.debit_micros), plainDollars(charge.fee_micros), plainDollars(charge.credit_micros),
    charge.tenant ?? '', charge.provider,
  ]);
  return [COLUMNS, ...rows].map((row) => row.map(cell).join(',')).join('\r\n').concat('\r\n');
}

/** Writes a cell. A text that a spreadsheet would take for a formula gets an apostrophe. @param {string} value */
function cell(value) {
  const isFormula = /^\s*[=+\-@＝＋－＠]/.test(value) && !/^-?\d+(\.\d+)?$/.test(value);
  const text = isFormula || /^[\t\r\n]/.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
}
