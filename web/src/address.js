// Reads the address of the page: which view it names. Any text is an address, and one that names no view says so.

const NAME = /^[A-Za-z0-9._-]{1,63}$/;
const TOKEN = /^#token=(.*)$/s;

/** @typedef {'markets' | 'market' | 'nodes' | 'money' | 'offers' | 'admin' | 'login' | 'none'} ViewName */

/**
 * Returns the view that an address names, and the market that it is about. An address that is malformed names the view `none`.
 * @param {string} hash the fragment, with its `#`
 * @returns {{view: ViewName, market?: string}}
 */
export function addressOf(hash) {
  const parts = hash.replace(/^#\/?/, '').split('/').map(decoded);
  if (parts.length > 1 && parts[parts.length - 1] === '') parts.pop();
  const [view, ...rest] = parts;
  switch (view) {
    case '': return { view: hash.length <= 2 ? 'markets' : 'none' };
    case 'market': return withMarket(view, rest.length === 2 ? rest.join('/') : null);
    case 'nodes': return rest.length === 0 ? { view } : withMarket(view, rest.length === 1 ? rest[0] : null);
    case 'markets': case 'money': case 'offers': case 'admin': case 'login': return { view: rest.length === 0 ? view : 'none' };
    default: return { view: 'none' };
  }
}

/** @param {ViewName} view @param {string | null} market @returns {{view: ViewName, market?: string}} */
function withMarket(view, market) {
  const parts = market?.split('/') ?? [];
  // A browser takes `.` and `..` out of a path, so that a request for them would go elsewhere.
  const isName = parts.length === 2 && parts.every((part) => NAME.test(part) && !/^\.{1,2}$/.test(part));
  return market && isName ? { view, market } : { view: 'none' };
}

/** Returns the address of a market's view. @param {string} market */
export function marketLink(market) {
  return `#/market/${market.split('/').map(encodeURIComponent).join('/')}`;
}

/** Returns the address of the form that bids in a market. @param {string} market */
export function placeLink(market) {
  return `#/nodes/${encodeURIComponent(market)}`;
}

/** Returns the token in an address, or null if it has none. @param {string} hash */
export function tokenOf(hash) {
  const given = TOKEN.exec(hash);
  return given && (decoded(given[1]) ?? given[1]);
}

/** Returns a text without its percent escapes, or null if one is malformed. @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return null;
  }
}
