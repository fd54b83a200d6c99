// Divides charges at the ends of a period, as statements do.

/** Returns a quotient rounded down, also below 0. @param {bigint} a @param {bigint} b */
const floor = (a, b) => (a - (((a % b) + b) % b)) / b;

/**
 * Returns the part of a segment in a period, or null. Within the segment the amount grows evenly, and is rounded down at each end of
 * the period: adjacent periods add up to the whole. A minimum charge belongs to the instant at which it is made.
 * @param {any} segment @param {number} from @param {number} to
 */
export function segmentPart(segment, from, to) {
  const [begin, end] = [Number(segment.from_us), Number(segment.to_us)];
  if (segment.min_charge || begin === end) return from <= begin && begin < to ? segment : null;
  const [first, last] = [Math.max(from, begin), Math.min(to, end)];
  if (first >= last) return null;
  if (first === begin && last === end) return segment;
  const part = (/** @type {string} */ amount) => {
    const upTo = (/** @type {number} */ at) => floor(BigInt(amount) * BigInt(at - begin), BigInt(end - begin));
    return String(upTo(last) - upTo(first));
  };
  return { ...segment, from_us: String(first), to_us: String(last), amount_micros: part(segment.amount_micros), fee_micros: part(segment.fee_micros) };
}

/** Returns the part of a charge in a period, with the fee of each segment, or null. @param {any} charge @param {number} from @param {number} [to] */
export function chargePart(charge, from, to = Infinity) {
  let before = 0n;
  const segments = charge.segments.map((/** @type {any} */ segment) => {
    const fee = BigInt(segment.total_fee_micros) - before;
    before += fee;
    return segmentPart({ ...segment, fee_micros: String(fee) }, from, to);
  }).filter(Boolean);
  if (!segments.length) return null;
  const sum = (/** @type {string} */ key) => segments.reduce((/** @type {bigint} */ all, /** @type {any} */ segment) => all + BigInt(segment[key]), 0n);
  const [debit, fee] = [sum('amount_micros'), sum('fee_micros')];
  return {
    ...charge, segments, from_us: segments[0].from_us, to_us: segments[segments.length - 1].to_us,
    debit_micros: String(debit), fee_micros: String(fee), credit_micros: String(debit - fee),
  };
}
