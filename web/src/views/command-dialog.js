// The dialog that asks for a command. It closes when the command is done, and says why it was refused.

import { command } from '../command.js';
import { busy, h, openDialog } from '../dom.js';
import { refusalInWords } from '../words.js';

/**
 * A button of the dialog. `read` returns what it sends, or null if nothing is to be sent. The first button also takes the key Enter.
 * @typedef {{text: string, kind?: string, read: () => import('../command.js').Call | null}} Choice
 */

/**
 * Opens a dialog with a form. Each of its buttons is one command, until a field changes.
 * @param {string} title
 * @param {object} options
 * @param {import('../dom.js').Child[]} options.content
 * @param {Choice[]} options.choices
 * @param {(answer: any) => Promise<void> | void} options.done runs after the dialog closed
 * @param {string} [options.back] the text of the button that sends nothing
 * @param {() => void} [options.changed] runs when a field changes
 */
export function commandDialog(title, { content, choices, done, back = 'Back', changed }) {
  const refused = h('p', { class: 'error', role: 'alert' });
  /** @type {Command[]} */
  const commands = [];
  let isBusy = false;
  openDialog(title, (dialog) => {
    /** @param {HTMLButtonElement} button @param {Command} sent */
    const press = (button, sent) => busy(button, async () => {
      if (isBusy || !dialog.open) return;
      isBusy = true;
      refused.textContent = '';
      try {
        const answer = await sent.send();
        dialog.close();
        await done(answer);
      } catch (problem) {
        if (problem === NOTHING) dialog.close();
        else refused.textContent = refusalInWords(problem);
      } finally {
        isBusy = false;
      }
    });
    const buttons = choices.map((choice, index) => {
      const sent = command(() => {
        const call = choice.read();
        if (!call) throw NOTHING;
        return call;
      });
      commands.push(sent);
      /** @type {HTMLButtonElement} */
      const button = h('button', { type: index === 0 ? 'submit' : 'button', class: choice.kind ?? 'primary', onclick: index === 0 ? undefined : () => { press(button, sent); } }, choice.text);
      return button;
    });
    return [h('form', {
      oninput: () => {
        refused.textContent = '';
        for (const sent of commands) sent.renew();
        changed?.();
      },
      onsubmit: (/** @type {SubmitEvent} */ event) => {
        event.preventDefault();
        press(buttons[0], commands[0]);
      },
    }, refused, ...content, h('div', { class: 'actions' }, ...buttons, h('button', { type: 'button', onclick: () => dialog.close() }, back)))];
  });
}

/** @typedef {import('../command.js').Command} Command */

/** Thrown when there is nothing to send. */
const NOTHING = new Error('nothing is to be sent');
