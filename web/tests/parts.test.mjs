// The parts of the page that need no browser: money and times, files for spreadsheets, streams.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ticks } from '../src/chart.js';
import { command } from '../src/command.js';
import { csv } from '../src/csv.js';
import { chargePart } from '../src/cut.js';
import { dollars, amountError, exactInstant, parseDollars, plainDollars, span } from '../src/format.js';
import { parser } from '../src/stream.js';
import { eventInWords, refusalInWords } from '../src/words.js';

test('money is short, and a limit that has to be reached is never shown too low', () => {
  assert.deepEqual(['0', '8165900', '19047700', '1234567890000', '42100', '100'].map((micros) => dollars(micros)),
    ['$0.00', '$8.17', '$19.05', '$1,234,567.89', '$0.0421', '$0.0001']);
  assert.equal(dollars('16380100', 'up'), '$16.39');
  assert.equal(dollars('16380000', 'up'), '$16.38');
  assert.equal(dollars('16384999'), '$16.38');
  assert.equal(plainDollars('19047700'), '19.0477');
  assert.equal(plainDollars('16000000'), '16.00');
});

test('dollars are read exactly', () => {
  assert.equal(parseDollars('16'), 16_000_000n);
  assert.equal(parseDollars(' $1,234.5 '), 1_234_500_000n);
  assert.equal(parseDollars('0.000001'), 1n);
  for (const wrong of ['', 'x', '-1', '1e3', '1.2345678', '1.2.3', '16,5', '1,23,456', ',5']) assert.equal(parseDollars(wrong), null, wrong);
});

test('a text that is no amount is told what is wrong with it', () => {
  assert.equal(amountError('16,5'), 'Cents follow a point, as in 12.50.');
  assert.equal(amountError('1.2345678'), 'An amount has at most 6 decimals.');
  assert.equal(amountError('999999999999'), 'An amount is below a billion dollars.');
  for (const none of ['0', '$0.00', '-5']) assert.equal(amountError(none), 'An amount is more than $0.', none);
  for (const text of ['', 'x', '1e3']) assert.equal(amountError(text), 'It is an amount in dollars, as in 12.50.', text);
});

test('spans have two units', () => {
  assert.deepEqual([59e6, 60e6, 250e6, 7_500e6, 0, -5].map(span), ['59 s', '1 min', '4 min 10 s', '2 h 5 min', '0 s', '0 s']);
  assert.equal(exactInstant('1795454821529148'), '2026-11-23T17:27:01.529148Z');
});

test('axes have round values', () => {
  assert.deepEqual(ticks(0, 10, 5), [0, 2, 4, 6, 8, 10]);
  assert.deepEqual(ticks(8e6, 16e6, 4), [8e6, 10e6, 12e6, 14e6, 16e6]);
  assert.ok(ticks(5, 5, 4).length < 20);
});

test('a file has exact amounts, and no text becomes a formula', () => {
  const charge = {
    from_us: '1795454821529148', to_us: '1795454822529148', market: 'm/x', unit: 'm/x:p#1', bid: '7', allocation: '9', reason: 'RELEASED',
    labels: { '=cmd': '1, "2"' }, debit_micros: '19047', fee_micros: '0', credit_micros: '19047', tenant: 'vision', provider: 'acme',
  };
  const [head, row] = csv([charge]).split('\r\n');
  assert.equal(head.split(',').length, 13);
  assert.ok(row.endsWith(`released,"'=cmd=1, ""2""",0.019047,0.00,0.019047,vision,acme`), row);
});

test('a file has amounts below 0, and texts with a sign are no formulas', () => {
  const charge = {
    from_us: '1', to_us: '2', market: '-1+1', unit: '＝1', bid: '7', allocation: '9', reason: 'RELEASED', labels: {},
    debit_micros: '0', fee_micros: '-50000', credit_micros: '50000', tenant: ' @x', provider: '-a',
  };
  const [, row] = csv([charge]).split('\r\n');
  assert.ok(row.includes(",'-1+1,'＝1,"), row);
  assert.ok(row.endsWith(",0.00,-0.05,0.05,' @x,'-a"), row);
});

test('the parts of a charge add up to it, wherever it is cut', () => {
  const hour = 3_600_000_000;
  const segment = (/** @type {number} */ from, /** @type {number} */ to, /** @type {string} */ amount, /** @type {string} */ totalFee, min_charge = false) => ({
    from_us: String(from), to_us: String(to), amount_micros: amount, total_fee_micros: totalFee, min_charge,
  });
  const segments = [segment(hour / 2, hour, '617250', '61725'), segment(hour, 2 * hour, '1234501', '5'), segment(2 * hour, 2 * hour + 300_000_000, '102876', '6', true)];
  const charge = { segments, from_us: segments[0].from_us, to_us: segments[2].to_us, debit_micros: '1954627', fee_micros: '6', credit_micros: '1954621' };
  for (const cuts of [[hour], [hour * 1.5], [hour / 2 + 7, hour + 1, hour + 2, 2 * hour - 1, 2 * hour], [2 * hour + 1]]) {
    const ends = [0, ...cuts, Infinity];
    const parts = cuts.concat(0).map((_, n) => chargePart(charge, ends[n], ends[n + 1])).filter(Boolean);
    for (const key of ['debit_micros', 'fee_micros', 'credit_micros']) {
      assert.equal(String(parts.reduce((sum, part) => sum + BigInt(part[key]), 0n)), charge[key], `${key} ${cuts}`);
    }
  }
  assert.equal(chargePart(charge, 0, hour * 1.5)?.debit_micros, String(617250 + 617250));
  assert.equal(chargePart(charge, 3 * hour), null);
});

test('a refusal has the labels of the form and dollars', () => {
  const said = (code, message) => refusalInWords({ code, message });
  assert.equal(said('NOT_A_TICK', 'ceiling_micros 2500050 is not a multiple of the tick 100 of a/b'), '“At most” $2.50005 is not a multiple of the tick $0.0001 of a/b.');
  assert.equal(said('BAD_RESERVE', 'reserve_micros 50 is not a multiple of the tick 100 of a/b'), '“Reserve” $0.00005 is not a multiple of the tick $0.0001 of a/b.');
  assert.equal(said('CEILING_TOO_HIGH', 'ceiling_micros 99000000 is above the ceiling_max 50000000 of a/b'), '“At most” $99.00 is above the highest ceiling $50.00 of a/b.');
  assert.equal(said('TOO_MANY_NODES', 'max_nodes 5000 is more than the bid_nodes_max 1000 of a/b'), '“Nodes” 5000 is more than the 1000 that a bid in a/b may have.');
  assert.equal(said('TOO_MANY_NODES', 'nodes 5000 is more than the bid_nodes_max 1000 of a/b'), '“Nodes” 5000 is more than the 1000 that a bid in a/b may have.');
  assert.equal(said('LIMIT', "ceiling_micros 11000000 is above the account's limit of 10000000"), "“At most” $11.00 is above the account's limit of $10.00.");
  assert.equal(said('BAD_FIELD', 'max_nodes is not a whole number that fits at line 1 column 50'), '“Nodes” is not a whole number that fits.');
  assert.equal(said('MARKET_EXISTS', 'h100-8x/eu is open already'), 'h100-8x/eu is open already.');
  assert.equal(said('LIMIT', "2 nodes are wanted or held, and 50 more are asked for; the account's limit is 20"), "2 nodes are wanted or held, and 50 more are asked for; the account's limit is 20.");
});

test('a tenant is told which bid a claim is for, and which bid has lost it', () => {
  const unit = 'm/x:p#1';
  assert.equal(eventInWords({ claimed: { bid: '7', unit } }), 'Bid 7 has a claim on m/x:p#1: it gets the unit when the notice ends');
  assert.equal(eventInWords({ claimed: { was: '7', unit } }), 'Bid 7 lost its claim on m/x:p#1 to a higher bid');
  assert.equal(eventInWords({ claimed: { unit } }), 'Another bid has a claim on m/x:p#1');
  assert.equal(eventInWords({ rejected: { reason: 'TOO_MANY_NODES' } }), 'A command was refused: too many nodes');
});

test('a resting unit, a regrouped node and their refusals are said in words', () => {
  const unit = 'm/x:p#1';
  assert.equal(eventInWords({ unit_resting: { unit } }), 'Unit m/x:p#1 rests: its node was not ready in time');
  assert.equal(eventInWords({ unit_resumed: { unit } }), 'Unit m/x:p#1 was resumed');
  assert.equal(eventInWords({ ended: { allocation: '3', reason: 'REGROUPED' } }), 'Node 3 ended: its bid was regrouped');
  assert.match(refusalInWords({ code: 'NOT_A_GANG', message: 'x' }), /several nodes at once/);
  assert.match(refusalInWords({ code: 'PROTECTED', message: 'x' }), /raised while a node had a notice/);
});

test('events of a stream are put together from any parts', () => {
  const text = 'event: events\nid: a\ndata: {"n":1}\n\n:\n\nevent: problem\ndata: {"n":\ndata: 2}\n\n';
  for (let size = 1; size <= text.length; size += 1) {
    const found = [];
    const take = parser((name, data) => found.push([name, JSON.parse(data).n]));
    for (let place = 0; place < text.length; place += size) take(text.slice(place, place + size));
    assert.deepEqual(found, [['events', 1], ['problem', 2]]);
  }
});

test('a command keeps its key and its content until it is refused or changed, and its answer for good', async () => {
  const answers = [
    // The first answer breaks off, and so do those of the next tries.
    ...Array.from({ length: 6 }, () => new Response('{"bid":')),
    Response.json({ bid: '7' }),
    Response.json({ code: 'CLOSED', status: 409 }, { status: 409 }),
    Response.json({ bid: '8' }),
    Response.json({ bid: '9' }),
  ];
  const sent = [];
  const [fetchBefore, timeoutBefore] = [globalThis.fetch, globalThis.setTimeout];
  globalThis.fetch = async (_, { headers, body }) => {
    sent.push([headers['idempotency-key'], body]);
    return answers.shift();
  };
  globalThis.setTimeout = (work) => timeoutBefore(work, 0);
  try {
    let reads = 0;
    const bid = command(() => ({ method: 'POST', path: '/v1/bids', body: { read: reads += 1 } }));
    await assert.rejects(bid.send(), { code: 'UNREACHABLE' });
    const [one, two] = await Promise.all([bid.send(), bid.send()]);
    assert.deepEqual([one, two, await bid.send()], [{ bid: '7' }, { bid: '7' }, { bid: '7' }]);
    assert.equal(new Set(sent.map(String)).size, 1, 'one key and one content');
    bid.renew();
    await assert.rejects(bid.send(), { code: 'CLOSED' });
    assert.deepEqual(await bid.send(), { bid: '8' });
    bid.renew();
    assert.deepEqual(await bid.send(), { bid: '9' });
    assert.equal(new Set(sent.map(([key]) => key)).size, 4);
    assert.deepEqual([reads, sent.length, answers.length], [4, 10, 0]);
  } finally {
    [globalThis.fetch, globalThis.setTimeout] = [fetchBefore, timeoutBefore];
  }
});
