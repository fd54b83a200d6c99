// Runs a job on nodes of a market: quote, place, wait until ready, raise or checkpoint on notice, bill.
//
//     node job.js MARKET NODES MOST SECONDS     MOST in dollars per node-hour, SECONDS from the bid to its end
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { EventSourceParserStream } from 'eventsource-parser/stream';
import createClient from 'openapi-fetch';
import type { components, paths } from './api.js';

type Schemas = components['schemas'];
const market = process.argv[2] ?? '';
const [nodes, most, seconds] = process.argv.slice(3).map(Number) as [number, number, number];
const { KUBEBID_ENDPOINT: baseUrl, KUBEBID_TOKEN: token } = process.env;
if (!baseUrl || !token) throw new Error('KUBEBID_ENDPOINT and KUBEBID_TOKEN say where and who');
const api = createClient<paths>({ baseUrl, headers: { authorization: `Bearer ${token}` } });
const job = `job-${randomUUID().slice(0, 8)}`;
const dollars = (micros: string | number) => `$${(Number(micros) / 1e6).toFixed(2)}`;

/** Waits while the engine is away. A command has a key, so a repeated one is done once. */
async function call<T>(request: () => Promise<{ data?: T; error?: Schemas['Problem']; response: Response }>): Promise<T> {
  for (;;) {
    const answer = await request().catch((error) => {
      if (!(error instanceof TypeError)) throw error; // as fetch says that there is no connection
    });
    if (answer?.data !== undefined) return answer.data;
    if (answer && answer.response.status !== 503) throw new Error(`${answer.error?.code}: ${answer.error?.detail}`);
    await sleep(200);
  }
}

const quoted = await call(() => api.POST('/v1/bids/quote', { body: { markets: [market], nodes } }));
const entry = Number(quoted.quotes[0]?.entry_price_micros ?? Infinity);
if (entry > most * 1e6) throw new Error(`${market} has no ${nodes} nodes for ${dollars(most * 1e6)}`);
console.log(`quote: ${nodes} nodes need ${dollars(entry)}`);

// The place from which nothing is missed that happens to the bid.
let { cursor } = await call(() => api.GET('/v1/allocations', { params: { query: { page_size: 1 } } }));
const body: Schemas['PlaceBidRequest'] = {
  client_key: job, markets: [market], ceiling_micros: entry, min_nodes: nodes, max_nodes: nodes, on_preemption: 'CLOSE', labels: { job },
};
const { bid, seq } = await call(() => api.POST('/v1/bids', { body }));
console.log(`bid ${bid} placed`);

let [ceiling, last] = [entry, seq];
const [ready, ended] = [new Set<string>(), new Set<string>()];
async function follow({ seq, ...event }: Schemas['Event']) {
  const noticed = event.notice_started?.allocation;
  if (event.ready) console.log(`node ${event.ready.allocation} ready: work begins`);
  if (event.ready) ready.add(event.ready.allocation);
  if (event.notice_rescinded) console.log(`node ${event.notice_rescinded.allocation} stays`);
  if (event.ended) console.log(`node ${event.ended.allocation} ended`);
  if (event.ended) ended.add(event.ended.allocation);
  if (!noticed) return;
  const path = { allocation: noticed };
  const { allocation } = await call(() => api.GET('/v1/allocations/{allocation}', { params: { path, query: { min_seq: seq } } }));
  const stay = Number(allocation.notice?.price_to_stay_micros ?? Infinity);
  if (allocation.notice?.rescindable && stay <= most * 1e6) {
    ceiling = Math.max(ceiling, stay);
    console.log(`notice for node ${noticed}: raise to ${dollars(ceiling)}`);
    const body = { client_key: `${job}-${seq}-${noticed}`, ceiling_micros: ceiling };
    await call(() => api.PATCH('/v1/bids/{bid}', { params: { path: { bid } }, body }));
  } else if (allocation.notice) {
    console.log(`notice for node ${noticed}: checkpoint and release`);
    await call(() => api.POST('/v1/allocations/{allocation}/release', { params: { path }, body: { client_key: `${job}-${noticed}` } }));
  }
}

const finish = AbortSignal.timeout(seconds * 1000);
while (ended.size < nodes && !finish.aborted) {
  try {
    const query = { cursor, bid: [bid] };
    const { data, error, response } = await api.GET('/v1/events/stream', { params: { query }, parseAs: 'stream' });
    if (!response.ok && response.status !== 503) throw new Error(`${error?.code}: ${error?.detail}`);
    // The signal is given to the stream: Node.js forgets that of a request after a garbage collection.
    const text = data?.pipeThrough(new TextDecoderStream(), { signal: finish });
    const frames = text?.pipeThrough(new EventSourceParserStream()) ?? [];
    for await (const { event, data } of frames) {
      if (event !== 'events') break; // a problem ends the stream
      const frame: Schemas['WatchEventsResponse'] = JSON.parse(data);
      for (const event of frame.events) await follow(event);
      [cursor, last] = [frame.cursor, frame.seq];
      if (ended.size === nodes) break;
    }
  } catch (error) {
    // The watch goes on from the cursor, also after the engine was restarted.
    if (!(error instanceof TypeError) && !finish.aborted) throw error;
  }
  if (ended.size < nodes) await sleep(200);
}

if (ended.size < nodes) {
  const body = { client_key: `${job}-done`, mode: 'RELEASE' as const };
  last = (await call(() => api.POST('/v1/bids/{bid}/cancel', { params: { path: { bid } }, body }))).seq;
}
const bill = await call(() => api.GET('/v1/statement', { params: { query: { label: [`job=${job}`], min_seq: last } } }));
console.log(`bill: $${(Number(bill.charged.debit_micros) / 1e6).toFixed(6)}`);
if (ready.size === 0) throw new Error('no node was ready in time');
