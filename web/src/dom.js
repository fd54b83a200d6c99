// Builds and updates elements. Data becomes text nodes and attributes, never HTML.

/** @typedef {Node | string | number | null | undefined | false} Child */
/** @typedef {Record<string, any>} Props */

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Returns a new HTML element. A property that begins with `on` is a listener, `class` and names with a dash are
 * attributes, the rest are properties or attributes.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Props} [props]
 * @param {...Child} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function h(tag, props = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  add(element, children);
  return element;
}

/**
 * Returns a new SVG element.
 * @param {string} tag
 * @param {Props} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SVG, tag));
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) element.setAttribute(name, String(value));
  }
  add(element, children);
  return element;
}

/** @param {Element} parent @param {Child[]} children */
function add(parent, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    parent.append(child instanceof Node ? child : String(child));
  }
}

/** Sets the text of a node if it differs. @param {Node} node @param {string} value */
export function setText(node, value) {
  if (node.textContent !== value) node.textContent = value;
}

/** Sets or removes an attribute if it differs. @param {Element} element @param {string} name @param {string | null} value */
export function setAttribute(element, name, value) {
  if (value === null) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Shows or hides a button. The focus of a hidden button goes to `next`. @param {HTMLButtonElement} button @param {boolean} shown @param {HTMLButtonElement} next */
export function show(button, shown, next) {
  if (button.hidden === !shown) return;
  const focused = document.activeElement === button;
  button.hidden = !shown;
  if (focused && !shown) next.focus();
}

/**
 * Replaces the children of an element unless they have the same text and structure already, so that an update does not take
 * away a selection or the focus.
 * @param {Element} parent
 * @param {...Child} children
 */
export function fill(parent, ...children) {
  const next = document.createElement(parent.tagName);
  add(next, children);
  if (next.childNodes.length === parent.childNodes.length) {
    let same = true;
    for (let i = 0; same && i < next.childNodes.length; i += 1) {
      same = next.childNodes[i].isEqualNode(parent.childNodes[i]);
    }
    if (same) return;
  }
  parent.replaceChildren(...next.childNodes);
}

/**
 * Keeps one child of `parent` for each item, in their order. A child stays while its key does.
 * @template T
 * @param {Element} parent
 * @param {Iterable<T>} items
 * @param {(item: T) => string} key
 * @param {(item: T) => {root: Element, update: (item: T) => void}} create
 */
export function keyed(parent, items, key, create) {
  /** @type {Map<string, {root: Element, update: (item: any) => void}>} */
  const rows = rowsOf.get(parent) ?? new Map();
  rowsOf.set(parent, rows);
  const kept = new Set();
  const focused = document.activeElement;
  /** @type {Element | null} */
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    kept.add(name);
    let row = rows.get(name);
    if (!row) {
      row = create(item);
      rows.set(name, row);
    }
    row.update(item);
    if (row.root === place) place = place.nextElementSibling;
    else parent.insertBefore(row.root, place);
  }
  for (const [name, row] of rows) {
    if (!kept.has(name)) {
      row.root.remove();
      rows.delete(name);
    }
  }
  // A child that was moved has lost the focus.
  if (focused instanceof HTMLElement && focused !== document.activeElement && parent.contains(focused)) focused.focus({ preventScroll: true });
}

/** @type {WeakMap<Element, Map<string, any>>} */
const rowsOf = new WeakMap();

/**
 * Returns a table in a labelled region.
 * @param {string} caption
 * @param {{text: string, class?: string, number?: boolean}[]} columns
 * @returns {{root: HTMLTableElement, body: HTMLTableSectionElement}}
 */
export function table(caption, columns) {
  const body = h('tbody');
  const head = columns.map((column) =>
    h('th', { scope: 'col', class: classes(column.class, column.number && 'number') }, column.text));
  const root = h('table', {}, h('caption', { class: 'unseen' }, caption), h('thead', {}, h('tr', {}, ...head)), body);
  return { root, body };
}

/** The most rows that a long table shows unless the person asks for more. */
const ROWS_SHOWN = 20;

/**
 * Shortens a long list to what a person looks for, with a field that finds rows by their text and a button that shows them all.
 * Neither is there while the list is short.
 * @param {string} name of the entries, as in "nodes"
 * @param {() => void} again draws the list
 */
export function finder(name, again) {
  let all = false;
  const find = h('input', { type: 'search', 'aria-label': `Find ${name}`, placeholder: 'Find', autocomplete: 'off', spellcheck: 'false', hidden: true, oninput: () => again() });
  const more = h('button', { type: 'button', class: 'more', hidden: true, onclick: () => { all = !all; again(); } });
  return {
    find,
    more,
    /**
     * Returns the entries to show.
     * @template T
     * @param {T[]} entries those that matter most first
     * @param {(entry: T) => string} textOf
     * @returns {T[]}
     */
    pick(entries, textOf) {
      find.hidden = entries.length <= ROWS_SHOWN;
      const words = find.hidden ? [] : find.value.toLowerCase().split(/\s+/).filter(Boolean);
      const found = entries.filter((entry) => words.every((word) => textOf(entry).toLowerCase().includes(word)));
      more.hidden = found.length <= ROWS_SHOWN;
      setText(more, all ? `Show the first ${ROWS_SHOWN}` : `Show all ${found.length}`);
      return all ? found : found.slice(0, ROWS_SHOWN);
    },
    /** Returns true if the list is too long to be shown whole. @param {number} count */
    isLong: (count) => count > ROWS_SHOWN,
  };
}

/** Joins the names of classes. @param {...(string | false | undefined)} names */
export function classes(...names) {
  return names.filter(Boolean).join(' ') || undefined;
}

let identities = 0;

/** Returns a new identity for a label and its field. @param {string} name */
export function identity(name) {
  identities += 1;
  return `${name}-${identities}`;
}

/**
 * Returns a labelled field of a form.
 * @param {string} label
 * @param {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} input
 * @param {string} [hint]
 */
export function field(label, input, hint) {
  input.id ||= identity('field');
  const about = hint ? h('span', { class: 'hint', id: `${input.id}-hint` }, hint) : null;
  if (about) input.setAttribute('aria-describedby', about.id);
  return h('div', { class: 'field' }, h('label', { for: input.id }, label), input, about);
}

/**
 * Opens a dialog and returns it. It is removed when it closes, and the focus goes back to where it was.
 * @param {string} title
 * @param {(dialog: HTMLDialogElement) => Child[]} content
 */
export function openDialog(title, content) {
  const before = document.activeElement;
  const heading = h('h2', { id: identity('dialog') }, title);
  const dialog = h('dialog', { 'aria-labelledby': heading.id });
  dialog.append(heading);
  add(dialog, content(dialog));
  dialog.addEventListener('close', () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
    else document.getElementById('main')?.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

/** Says something to people who use a screen reader. @param {string} words @param {'polite' | 'assertive'} [how] */
export function announce(words, how = 'polite') {
  const region = document.getElementById(how);
  if (!region) return;
  region.replaceChildren(h('p', {}, words));
}

/**
 * Runs the work of a button. Until it is done the button does nothing. It keeps the focus, which a disabled one would lose.
 * @param {HTMLButtonElement} button
 * @param {() => Promise<void>} work
 */
export async function busy(button, work) {
  if (button.getAttribute('aria-disabled') === 'true') return;
  button.setAttribute('aria-disabled', 'true');
  try {
    await work();
  } finally {
    button.removeAttribute('aria-disabled');
  }
}
