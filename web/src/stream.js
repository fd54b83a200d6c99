// Reads server-sent events by fetch, so that the token stays in a header, and resumes after a lost connection.

import { Problem, credentials, problemOf, refusal } from './api.js';

/** The engine sends a frame every five seconds at least. A stream that is silent for longer is dead. */
const SILENCE_MS = 12_000;
const GATHER_MS = 100;
const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;

/**
 * Splits server-sent events out of a text that arrives in parts.
 * @param {(name: string, data: string) => void} onEvent
 */
export function parser(onEvent) {
  let rest = '';
  let name = '';
  /** @type {string[]} */
  let data = [];
  return (/** @type {string} */ part) => {
    const lines = (rest + part).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) {
      if (line === '') {
        if (data.length > 0) onEvent(name, data.join('\n'));
        name = '';
        data = [];
      } else if (line.startsWith('data:')) data.push(line.slice(5).trimStart());
      else if (line.startsWith('event:')) name = line.slice(6).trim();
    }
  };
}

/**
 * Follows a stream until it is stopped.
 * @param {object} options
 * @param {() => Promise<string>} options.begin loads the state and returns the cursor to go on from
 * @param {(cursor: string) => string} options.path
 * @param {(frame: any) => void} options.onFrame
 * @param {() => void} options.onLive
 * @param {() => void} options.onLost
 * @returns {() => void} stops it
 */
export function follow({ begin, path, onFrame, onLive, onLost }) {
  const stopping = new AbortController();
  const run = async () => {
    let cursor = '';
    let wait = FIRST_WAIT_MS;
    while (!stopping.signal.aborted) {
      try {
        cursor ||= await begin();
        await read(path(cursor), stopping.signal, (frame) => {
          cursor = frame.cursor;
          wait = FIRST_WAIT_MS;
          onFrame(frame);
        }, onLive);
      } catch (error) {
        if (stopping.signal.aborted) return;
        if (error instanceof Problem && error.code === 'UNAUTHENTICATED') return;
        // The place is not kept, or it is one of another journal: begin anew.
        if (error instanceof Problem && error.code === 'GONE') cursor = '';
      }
      if (stopping.signal.aborted) return;
      onLost();
      await pause(wait * (0.75 + Math.random() / 2), stopping.signal);
      wait = Math.min(wait * 2, LONGEST_WAIT_MS);
    }
  };
  run();
  return () => stopping.abort();
}

/**
 * @param {string} path
 * @param {AbortSignal} stop
 * @param {(frame: any) => void} onFrame
 * @param {() => void} onLive
 */
async function read(path, stop, onFrame, onLive) {
  const silence = new AbortController();
  let last = performance.now();
  const watch = setInterval(() => { if (performance.now() - last > SILENCE_MS) silence.abort(); }, 1000);
  try {
    const signal = AbortSignal.any([stop, silence.signal]);
    const response = await fetch(path, { headers: { ...credentials(), accept: 'text/event-stream' }, signal, cache: 'no-store' });
    if (!response.ok || !response.body) throw await problemOf(response);
    onLive();
    /** @type {Problem | null} */
    let end = null;
    const take = parser((name, data) => {
      const message = JSON.parse(data);
      if (name === 'problem') end = refusal(message);
      else onFrame(message);
    });
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      last = performance.now();
      take(decoder.decode(value, { stream: true }));
      // What comes meanwhile is read at once, which costs less than to wake up for each event.
      await new Promise((resolve) => setTimeout(resolve, GATHER_MS));
    }
    if (end) throw end;
  } finally {
    clearInterval(watch);
  }
}

/** @param {number} ms @param {AbortSignal} signal */
function pause(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', end);
      resolve(undefined);
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener('abort', end);
  });
}
