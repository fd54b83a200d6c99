// What the compiler refuses, so that the engine need not.
import type { components } from './api.js';

// @ts-expect-error: a bid needs a ceiling and a number of nodes.
export const nothing: components['schemas']['PlaceBidRequest'] = {};

// @ts-expect-error: a field that a bid does not have.
export const misspelt: components['schemas']['PlaceBidRequest'] = { ceiling_micros: '8000000', max_nodes: 1, max_node: 2 };
