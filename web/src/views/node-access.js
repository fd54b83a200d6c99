// What a node is set up with, and how it is reached: from its tenant to its provider, and back.

import { request } from '../api.js';
import { field, h, openDialog } from '../dom.js';
import { refusalInWords } from '../words.js';
import { commandDialog } from './command-dialog.js';

/** Shows the tenant how a node is reached. @param {string} number */
export async function accessDialog(number) {
  const body = h('div', { class: 'access' }, h('p', {}, 'Asking…'));
  openDialog(`How to reach node ${number}`, (dialog) => [
    body,
    h('div', { class: 'actions' }, h('button', { type: 'button', onclick: () => dialog.close() }, 'Close')),
  ]);
  try {
    const { access } = (await request('GET', `/v1/allocations/${number}`)).allocation;
    body.replaceChildren(...(access ? described(access) : [h('p', {}, 'Its provider has not said how to reach it.')]));
  } catch (error) {
    body.replaceChildren(h('p', { class: 'error' }, refusalInWords(error)));
  }
}

/** @param {any} access @returns {HTMLElement[]} */
function described(access) {
  const login = ssh(access);
  const ports = Object.entries(access.ports).map(([service, port]) => `${port} (${service})`);
  /** @type {[string, string[]][]} */
  const lines = [['Log in', login ? [login] : []], ['Address', access.addresses], ['Port', ports],
    ['User', access.user ? [access.user] : []], ['Notes', access.notes ? access.notes.split('\n') : []]];
  return [h('dl', { class: 'facts' }, ...lines.filter(([, values]) => values.length).flatMap(([name, values]) => [
    h('dt', {}, name), ...values.map((value) => h('dd', { class: 'code' }, value))]))];
}

/** Returns the command that logs in. @param {any} access */
function ssh(access) {
  const [address, port] = [access.addresses[0], access.ports.ssh];
  if (!address || !port) return null;
  return `ssh ${port === 22 ? '' : `-p ${port} `}${access.user ? `${access.user}@` : ''}${address}`;
}

/**
 * Shows the provider what a node is to be set up with, and reports it ready with how it is reached. Of a node that runs it reports
 * anew how it is reached.
 * @param {any} node @param {(words: string, answer: any) => Promise<void>} done
 */
export async function setUpDialog(node, done) {
  const config = h('div', { class: 'access' }, h('p', {}, 'Asking…'));
  const runs = node.state === 'ACTIVE';
  const address = h('input', { autocomplete: 'off', placeholder: '10.0.0.7', required: runs });
  const port = h('input', { type: 'number', min: '1', max: '65535', step: '1', placeholder: '22' });
  const user = h('input', { autocomplete: 'off', placeholder: 'ubuntu' });
  const notes = h('textarea', { rows: '2', spellcheck: 'false' });
  const path = `/v1/allocations/${node.allocation}`;
  commandDialog(runs ? `How node ${node.allocation} is reached` : `Set up node ${node.allocation}`, {
    content: [
      h('h3', {}, 'From its tenant'), config,
      h('h3', {}, 'How the tenant reaches it'), runs && h('p', { class: 'hint' }, 'It replaces all that was reported before.'),
      field('Address', address), field('SSH port', port), field('User', user), field('Notes', notes, 'Such as the fingerprint of the host key.'),
    ],
    choices: [{
      text: runs ? 'Report access' : 'Report ready',
      read: () => {
        /** @type {any} */
        const access = {};
        if (address.value) access.addresses = [address.value];
        if (port.value) access.ports = { ssh: Number(port.value) };
        if (user.value) access.user = user.value;
        if (notes.value) access.notes = notes.value;
        return { method: 'POST', path: `${path}/ready`, body: Object.keys(access).length ? { access } : {} };
      },
    }],
    done: (answer) => done(runs ? 'Access reported.' : 'Reported ready.', answer),
  });
  try {
    const { node_config: given } = (await request('GET', path)).allocation;
    config.replaceChildren(given ? h('pre', { class: 'code', tabindex: '0' }, text(given)) : h('p', { class: 'hint' }, 'It gave nothing to set the node up with.'));
  } catch (error) {
    config.replaceChildren(h('p', { class: 'error' }, refusalInWords(error)));
  }
}

/** Returns bytes as text, if they are text. @param {string} base64 */
function text(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return `${bytes.length} bytes that are no text`;
  }
}
