// Starts an engine and a browser for the tests of the page.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

/** The time that a test waits for what has to happen, in milliseconds. */
export const PATIENCE = 60_000;

const BROWSERS = [process.env.KUBEBID_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];

/** Starts the browser. It fails, and says what to install, if there is none. */
export async function startBrowser() {
  const executablePath = BROWSERS.find((path) => path && existsSync(path));
  assert.ok(executablePath, 'there is no Chromium: scripts/setup installs it, or name one in KUBEBID_CHROMIUM');
  // The sandbox of Chromium refuses to work for root.
  return chromium.launch({ executablePath, args: process.getuid?.() === 0 ? ['--no-sandbox'] : [] });
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** An engine in a process of its own, on an embedded store. */
export class Engine {
  /** @param {string[]} flags */
  static async start(flags = []) {
    const binary = process.env.KUBEBID_BINARY;
    assert.ok(binary, 'KUBEBID_BINARY names the program to test; cargo test -p kubebid --test page sets it');
    const engine = new Engine();
    engine.binary = binary;
    engine.flags = flags;
    engine.folder = mkdtempSync(join(tmpdir(), 'kubebid-page-'));
    engine.port = await freePort();
    engine.url = `http://127.0.0.1:${engine.port}`;
    await engine.run();
    engine.admin = readFileSync(join(engine.folder, 'admin.token'), 'utf8').trim();
    return engine;
  }

  /** Starts the process, and waits until it serves. */
  async run() {
    const log = openSync(join(this.folder, 'log'), 'a');
    this.process = spawn(this.binary, [
      'serve', '--store', `sqlite:${join(this.folder, 'kubebid.db')}`, '--listen', `127.0.0.1:${this.port}`, '--ops-listen', '127.0.0.1:0',
      '--admin-token-file', join(this.folder, 'admin.token'), ...this.flags,
    ], { stdio: ['ignore', log, log] });
    this.ended = once(this.process, 'exit');
    const give_up = Date.now() + PATIENCE;
    for (;;) {
      if (this.process.exitCode !== null || Date.now() > give_up) throw new Error(`the engine did not start:\n${this.log()}`);
      try {
        const answer = await fetch(`${this.url}/openapi.json`);
        await answer.arrayBuffer();
        if (answer.ok) return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }
  }

  log() {
    return readFileSync(join(this.folder, 'log'), 'utf8');
  }

  /** Kills the process: it cannot say good-bye. */
  async kill() {
    this.process.kill('SIGKILL');
    await this.ended;
  }

  /** Ends the process and removes its folder. */
  async stop() {
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Calls the API. @param {string} token @param {string} method @param {string} path @param {any} [body] */
  async call(token, method, path, body) {
    const answer = await fetch(this.url + path, {
      method,
      headers: { authorization: `Bearer ${token}`, ...(body === undefined ? {} : { 'content-type': 'application/json' }) },
      body: body === undefined ? undefined : JSON.stringify(body),
    });
    const json = await answer.json();
    assert.ok(answer.ok, `${method} ${path}: ${JSON.stringify(json)}`);
    return json;
  }

  /** Makes an account with a token. @param {string} account @param {string[]} roles */
  async person(account, ...roles) {
    await this.call(this.admin, 'PUT', `/v1/accounts/${account}`, { limits: {} });
    const { secret, token } = await this.call(this.admin, 'POST', '/v1/tokens', { account, roles, description: `of ${account}` });
    return { account, token: secret, id: token.token_id, link: `${this.url}/#token=${secret}` };
  }

  /** Opens a market without protection and with notices of an hour, and offers units in it. */
  async market(name, provider, capacity = 2, reserve = 8) {
    const rules = { min_runtime_us: '0', notice_us: '3600000000', min_charge_us: '0' };
    await this.call(this.admin, 'POST', '/v1/markets', { market: name, rules });
    await this.call(provider.token, 'PUT', `/v1/markets/${name}/offer`, { capacity, reserve_micros: String(reserve * 1e6) });
  }

  /** Places a bid. @returns {Promise<string>} its number */
  async bid(person, market, dollars, nodes, labels = {}) {
    const body = { markets: [market], ceiling_micros: String(Math.round(dollars * 1e6)), max_nodes: nodes, labels };
    return (await this.call(person.token, 'POST', '/v1/bids', body)).bid;
  }

  /** Reports all nodes of a bid ready. */
  async ready(person, bid) {
    const { allocations } = await this.call(person.token, 'GET', `/v1/allocations?bid=${bid}&state=STARTING&min_seq=${bid}`);
    for (const { allocation } of allocations) await this.call(person.token, 'POST', `/v1/allocations/${allocation}/ready`, {});
  }
}

/**
 * Opens a window of its own, and collects what goes wrong in it.
 * @param {import('playwright-core').Browser} browser
 * @param {import('playwright-core').BrowserContextOptions} [options]
 */
export async function openWindow(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  context.setDefaultTimeout(PATIENCE);
  // While one works on the page: the files of this folder instead of those in the program, which is not built again then.
  if (process.env.KUBEBID_PAGE_FILES) {
    const root = new URL('..', import.meta.url).pathname;
    await context.route('**/assets/**', (route) => route.fulfill({ path: join(root, new URL(route.request().url()).pathname.slice('/assets/'.length)) }));
  }
  const page = await context.newPage();
  const faults = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (message) => {
    // A refused probe of a role, and an engine that was killed, are no faults of the page.
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) faults.push(message.text());
  });
  return { page, context, faults };
}

/** Waits until the numbers of a page are current. @param {import('playwright-core').Page} page */
export async function live(page) {
  await page.locator('body[data-connection="live"]').waitFor();
}

/** Waits until an element has the focus. @param {import('playwright-core').Locator} wanted */
export async function focused(wanted) {
  const giveUp = Date.now() + PATIENCE;
  while (!(await wanted.evaluate((element) => element === document.activeElement))) {
    if (Date.now() > giveUp) throw new Error(`${wanted} never has the focus`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/**
 * Presses Tab until the element with this role and name has the focus.
 * @param {import('playwright-core').Page} page @param {import('playwright-core').Locator} wanted
 */
export async function tabTo(page, wanted) {
  await wanted.waitFor();
  for (let presses = 0; presses < 80; presses += 1) {
    if (await wanted.evaluate((element) => element === document.activeElement)) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`Tab does not reach ${wanted}`);
}
