// What administrators do: accounts and their limits, tokens, markets and their rules, drills.

import { list, marketPath } from '../api.js';
import { command } from '../command.js';
import { announce, busy, field, finder, h, keyed, openDialog, setText, show, table } from '../dom.js';
import { dollars, amountError, parseDollars, plainDollars, span, time } from '../format.js';
import { live, wantMarkets } from '../live.js';
import { session } from '../session.js';
import { refusalInWords } from '../words.js';
import { commandDialog } from './command-dialog.js';

const ROLES = ['TENANT', 'PROVIDER', 'VIEWER', 'ADMIN'];

/** Limits of accounts that the form shows. What is empty is the engine's default. */
const LIMITS = [
  ['open_bids', 'Open bids'], ['nodes_wanted', 'Nodes wanted'], ['ceiling_micros', 'Ceiling, $ per node-hour'],
  ['requests_per_second', 'Requests a second'], ['units_offered', 'Units offered'], ['units_per_command', 'Units a command'],
  ['refusals_per_second', 'Refused commands a second'], ['commands_per_day', 'Commands a day'],
];

/** Rules that the form shows: name, label, factor to the unit of the API, and true if it is a text there. @type {[string, string, number, boolean][]} */
const RULES = [
  ['min_runtime_us', 'Protected for, seconds', 1e6, true], ['notice_us', 'Notice, seconds', 1e6, true],
  ['start_timeout_us', 'Start time-out, seconds', 1e6, true], ['min_charge_us', 'Minimum charge, seconds', 1e6, true],
  ['increment_bps', 'To displace, % more', 100, false], ['fee_bps', 'Fee, %', 100, false], ['bid_nodes_max', 'Nodes of a bid', 1, false],
  ['ceiling_max_micros', 'Highest ceiling, $', 1e6, true],
];
/** A rule that is set once, when the market is opened. @type {[string, string, number, boolean]} */
const TICK = ['tick_micros', 'Tick, $', 1e6, true];

/** @returns {import('../main.js').View} */
export function adminView() {
  const error = h('p', { class: 'error', role: 'alert' });
  const accounts = table('Accounts', [{ text: 'Account' }, { text: 'Limits', class: 'mid' }, { text: 'Made', class: 'wide' }, { text: 'Actions' }]);
  const tokens = table('Tokens', [{ text: 'Token' }, { text: 'Roles' }, { text: 'Made', class: 'wide' }, { text: 'Actions' }]);
  const markets = table('Markets', [{ text: 'Market' }, { text: 'Protected for', number: true, class: 'mid' }, { text: 'Notice', number: true, class: 'mid' }, { text: 'Actions' }]);
  const section = (/** @type {string} */ id, /** @type {string} */ title, /** @type {ReturnType<typeof finder>} */ found, /** @type {Element} */ body, /** @type {Element} */ action) =>
    h('section', { class: 'panel flush', 'aria-labelledby': id }, h('div', { class: 'title' }, h('h2', { id }, title), found.find, action), body, found.more);
  const button = (/** @type {string} */ text, /** @type {() => void} */ act, about = '', kind = '') =>
    h('button', { type: 'button', class: kind, onclick: act, 'aria-label': about ? `${text}, ${about}` : undefined }, text);
  /** @type {any[]} */
  let [allAccounts, allTokens] = [[], []];
  const [findAccounts, findTokens, findMarkets] = [finder('accounts', () => drawAccounts()), finder('tokens', () => drawTokens()), finder('markets', () => drawMarkets())];
  const root = h('div', {},
    h('h1', {}, 'Administration'), error,
    section('accounts-title', 'Accounts', findAccounts, accounts.root, button('New account', () => accountDialog(null))),
    section('tokens-title', 'Tokens', findTokens, tokens.root, button('New token', () => tokenDialog())),
    section('rules-title', 'Markets', findMarkets, markets.root, button('Open a market', () => marketDialog())),
    drills());

  const read = async () => {
    try {
      const [people, secrets] = await Promise.all([list('/v1/accounts', 'accounts'), list('/v1/tokens', 'tokens')]);
      [allAccounts, allTokens] = [people.entries, secrets.entries];
      drawAccounts();
      drawTokens();
    } catch (problem) {
      error.textContent = refusalInWords(problem);
    }
  };
  function drawAccounts() {
    keyed(accounts.body, findAccounts.pick(allAccounts, (account) => account.name), (account) => account.name, (first) => {
      let account = first;
      const limits = h('td', { class: 'mid' });
      return {
        root: h('tr', {}, h('th', { scope: 'row' }, first.name), limits, h('td', { class: 'wide' }, time(first.created_at_us)),
          h('td', {}, h('div', { class: 'actions' }, button('Limits', () => accountDialog(account), first.name)))),
        update: (/** @type {any} */ next) => {
          account = next;
          const own = LIMITS.filter(([key]) => account.limits?.[key] !== undefined && account.limits[key] !== null)
            .map(([key, label]) => `${key === 'ceiling_micros' ? `ceiling ${dollars(account.limits[key])}` : `${label.toLowerCase()} ${account.limits[key]}`}`);
          setText(limits, own.join(', ') || 'the defaults');
        },
      };
    });
  }
  function drawTokens() {
    keyed(tokens.body, findTokens.pick(allTokens, (token) => [token.account, token.description, ...token.roles].join(' ')), (token) => token.token_id, (token) => ({
      root: h('tr', {}, h('th', { scope: 'row' }, token.account, h('span', { class: 'hint' }, token.description || token.token_id)),
        h('td', { class: 'roles' }, token.roles.join(', ').toLowerCase()), h('td', { class: 'wide' }, time(token.created_at_us)),
        h('td', {}, h('div', { class: 'actions' }, button('Revoke', () => revokeDialog(token), `token of ${token.account}`)))),
      update: () => {},
    }));
  }
  function drawMarkets() {
    keyed(markets.body, findMarkets.pick([...live.markets.values()], (market) => market.market), (market) => market.market, (first) => {
      const [runtime, notice, state] = [h('td', { class: 'number mid' }), h('td', { class: 'number mid' }), h('span', { class: 'hint' })];
      const rules = button('Rules', () => rulesDialog(first.market), first.market);
      const close = button('Close', () => closeDialog(first.market), first.market);
      return {
        root: h('tr', {}, h('th', { scope: 'row' }, first.market, state), runtime, notice,
          h('td', {}, h('div', { class: 'actions' }, rules, close))),
        update: (/** @type {any} */ next) => {
          setText(runtime, span(Number(next.rules.min_runtime_us)));
          setText(notice, span(Number(next.rules.notice_us)));
          setText(state, { CLOSING: 'closing', ENDED: 'ended' }[/** @type {string} */ (next.state)] ?? '');
          show(close, next.state === 'OPEN', rules);
        },
      };
    });
  }
  read();

  /**
   * Opens a dialog with a form that sends one call.
   * @param {string} title @param {(Node | null)[]} content @param {string} text of its button @param {() => import('../command.js').Call} call @param {(answer: any) => void} [then]
   */
  const formDialog = (title, content, text, call, then) => commandDialog(title, {
    content,
    choices: [{ text, read: () => ({ ...call(), isKeyed: false }) }],
    done: async (answer) => {
      announce(`${title}: done.`);
      then?.(answer);
      await read();
      wantMarkets();
    },
  });

  const accountDialog = (/** @type {any} */ account) => {
    const name = h('input', { required: true, value: account?.name, readonly: Boolean(account), pattern: '[A-Za-z0-9._\\-]{1,63}', autocomplete: 'off' });
    const inputs = LIMITS.map(([key, label]) => {
      const limit = account?.limits?.[key];
      const input = key === 'ceiling_micros'
        ? h('input', { inputmode: 'decimal', value: limit && plainDollars(limit), placeholder: 'default', autocomplete: 'off' })
        : h('input', { inputmode: 'numeric', pattern: '\\d*', value: limit, placeholder: 'default', autocomplete: 'off' });
      return { key, input, root: field(label, input) };
    });
    formDialog(account ? `Limits of ${account.name}` : 'New account',
      [field('Name', name), h('details', { open: Boolean(account) }, h('summary', {}, 'Limits'), ...inputs.map((one) => one.root))],
      account ? 'Change' : 'Make', () => {
        if (!account && allAccounts.some((/** @type {any} */ one) => one.name === name.value)) throw new Error(`There is an account ${name.value} already: change its limits in the list.`);
        const limits = Object.fromEntries(inputs.filter((one) => one.input.value !== '').map((one) =>
          [one.key, one.key === 'ceiling_micros' ? readCeiling(one.input.value) : Number(one.input.value)]));
        return { method: 'PUT', path: `/v1/accounts/${encodeURIComponent(name.value)}`, body: { limits } };
      });
  };

  let isOpening = false;
  const tokenDialog = async () => {
    if (isOpening) return;
    isOpening = true;
    await read();
    isOpening = false;
    const whose = h('select', { required: true }, ...allAccounts.map((/** @type {any} */ account) => h('option', { value: account.name }, account.name)));
    const boxes = ROLES.map((role) => h('input', { type: 'checkbox', value: role, checked: role === 'TENANT' }));
    const about = h('input', { maxlength: '256', autocomplete: 'off' });
    formDialog('New token', [
      field('Account', whose),
      h('fieldset', {}, h('legend', {}, 'Roles'), ...boxes.map((box) => h('label', { class: 'check' }, box, ` ${box.value.toLowerCase()}`))),
      field('What it is for', about),
    ], 'Make', () => {
      /** @type {{account: string, roles: string[], description: string}} */
      const wanted = { account: whose.value, roles: boxes.filter((box) => box.checked).map((box) => box.value), description: about.value };
      const known = new Set(allTokens.map((/** @type {any} */ token) => token.token_id));
      const isWanted = (/** @type {any} */ token) => !known.has(token.token_id) && token.account === wanted.account
        && token.description === wanted.description && [...token.roles].sort().join() === [...wanted.roles].sort().join();
      // A secret is in one answer alone. A token whose answer was lost is of no use, and another one is for the person to ask for.
      const check = async () => {
        const { entries } = await list('/v1/tokens', 'tokens');
        if (entries.some(isWanted)) throw new Error(`The token was made, and its secret was lost on the way. Revoke the newest token of ${wanted.account}, and make another.`);
      };
      return { method: 'POST', path: '/v1/tokens', body: wanted, check };
    },
    (answer) => secretDialog(answer));
  };

  const secretDialog = (/** @type {any} */ answer) => {
    const secret = h('input', { readonly: true, value: answer.secret, class: 'code' });
    openDialog('The new token', (dialog) => [
      h('p', {}, `The secret of this token of ${answer.token.account} is shown once. Keep it now.`),
      field('Secret', secret),
      h('div', { class: 'actions' },
        h('button', { type: 'button', class: 'primary', onclick: () => { secret.select(); navigator.clipboard?.writeText(secret.value).then(() => announce('Copied.'), () => {}); } }, 'Copy'),
        h('button', { type: 'button', onclick: () => dialog.close() }, 'I have kept it')),
    ]);
  };

  const revokeDialog = (/** @type {any} */ token) => formDialog(`Revoke a token of ${token.account}?`,
    [h('p', {}, 'It is worth nothing at once, for good, and the open pages of its bearer end.')], 'Revoke',
    () => ({ method: 'DELETE', path: `/v1/tokens/${encodeURIComponent(token.token_id)}` }));

  const closeDialog = (/** @type {string} */ name) => formDialog(`Close the market ${name}?`,
    [h('p', {}, 'It takes no new bids and no more units. Nodes stay and bids go on. It ends with its last unit. Opening it again brings back its rules.')], 'Close',
    () => ({ method: 'POST', path: marketPath(name, 'close'), done: 'MARKET_CLOSED' }));

  const ruleFields = (/** @type {any} */ rules) => (rules ? RULES : [...RULES, TICK]).map(([key, label, factor, isText]) => {
    const input = h('input', { type: 'number', min: '0', step: 'any', value: rules ? Number(rules[key]) / factor : undefined, placeholder: 'default' });
    return { key, root: field(label, input), read: () => (input.value === '' ? undefined : isText ? String(Math.round(Number(input.value) * factor)) : Math.round(Number(input.value) * factor)) };
  });
  const readRules = (/** @type {ReturnType<typeof ruleFields>} */ fields, /** @type {any} */ before) =>
    Object.fromEntries(fields.map((one) => /** @type {[string, string | number | undefined]} */ ([one.key, one.read()]))
      .filter(([key, value]) => value !== undefined && String(value) !== String(before?.[key])));

  const rulesDialog = (/** @type {string} */ name) => {
    const before = live.markets.get(name)?.rules;
    const fields = ruleFields(before);
    formDialog(`Rules of ${name}`, fields.map((one) => one.root), 'Change', () => ({ method: 'PATCH', path: marketPath(name, 'rules'), body: { rules: readRules(fields, before) } }));
  };
  const marketDialog = () => {
    const name = h('input', { required: true, placeholder: 'h100-8x/eu-west', autocomplete: 'off' });
    const fields = ruleFields(null);
    formDialog('Open a market', [field('Market, TYPE/REGION', name), h('details', {}, h('summary', {}, 'Rules'), ...fields.map((one) => one.root))], 'Open',
      () => ({ method: 'POST', path: '/v1/markets', body: { market: name.value.trim(), rules: readRules(fields, null) }, done: 'MARKET_EXISTS' }));
  };

  /** The drills of an engine that allows them. */
  function drills() {
    const node = h('input', { inputmode: 'numeric', pattern: '\\d+', required: true, autocomplete: 'off' });
    const said = h('p', { role: 'status' });
    const button = h('button', { type: 'submit' }, 'Pre-empt');
    const drill = command(() => ({ method: 'POST', path: `/v1/inject/allocations/${encodeURIComponent(node.value)}/preempt`, body: {}, isKeyed: false, done: 'ALREADY_LEAVING' }));
    const panel = h('section', { class: 'panel', 'aria-labelledby': 'drills-title', hidden: !session.person?.drills }, h('h2', { id: 'drills-title' }, 'Drill'),
      h('form', {
        class: 'row',
        oninput: drill.renew,
        onsubmit: (/** @type {SubmitEvent} */ event) => {
          event.preventDefault();
          busy(button, async () => {
            try {
              await drill.send();
              said.textContent = `Node ${node.value} has a notice.`;
            } catch (problem) {
              said.textContent = refusalInWords(problem);
            }
          });
        },
      }, field('Give a notice to node', node), button), said);
    return panel;
  }

  return {
    title: 'Administration',
    root,
    update: (topics) => {
      if (topics.has('markets')) drawMarkets();
    },
  };
}

/** Reads dollars as the API has a ceiling, or says that they are none. @param {string} text */
function readCeiling(text) {
  const micros = parseDollars(text);
  if (micros === null) throw new Error(`Ceiling: ${amountError(text)}`);
  return String(micros);
}
