// Draws charts as SVG: a line of prices, the depth of a market, bars of money.

import { MINUTE_US, axisTimes, isSameDay } from './calendar.js';
import { fill, h, setAttribute, setText, svg } from './dom.js';
import { axisTime, day, dollars, longTime, shortTime } from './format.js';

const MARGIN = { top: 12, right: 12, bottom: 26, left: 58 };

/**
 * Returns round values that divide a range.
 * @param {number} low @param {number} high @param {number} about how many
 */
export function ticks(low, high, about) {
  const range = high - low || Math.abs(high) || 1;
  const rough = range / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= rough * 0.999) ?? power * 10;
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Number(value.toPrecision(12)));
  return found;
}

/** @param {number} value @param {number[]} domain @param {number[]} range */
function scale(value, [low, high], [from, to]) {
  return high === low ? (from + to) / 2 : from + ((value - low) / (high - low)) * (to - from);
}

/** @param {number} value */
const at = (value) => value.toFixed(1);

const [WHOLE, CENTS, FINE] = [0, 2, 4].map((digits) => new Intl.NumberFormat('en', { minimumFractionDigits: digits, maximumFractionDigits: digits }));

/** Writes the label of an axis of money. @param {number} micros @param {number} step */
function axisDollars(micros, step) {
  return `$${(step % 1e6 === 0 ? WHOLE : step >= 1e4 ? CENTS : FINE).format(micros / 1e6)}`;
}

/**
 * Returns a picture that is drawn again when its width changes.
 * @param {string} label
 * @param {number} height
 * @param {(width: number, height: number) => SVGElement[]} draw
 */
function picture(label, height, draw) {
  const root = svg('svg', { class: 'chart', role: 'img', 'aria-label': label, height });
  let width = 0;
  const redraw = () => {
    if (width < 60) return;
    root.setAttribute('viewBox', `0 0 ${width} ${height}`);
    root.replaceChildren(...draw(width, height));
  };
  const observer = new ResizeObserver(([entry]) => {
    const next = Math.round(entry.contentRect.width);
    if (next === width) return;
    width = next;
    redraw();
  });
  observer.observe(root);
  return { root, redraw, label: (/** @type {string} */ text) => setAttribute(root, 'aria-label', text) };
}

/**
 * Returns the horizontal lines and labels of an axis.
 * @param {number[]} values @param {(value: number) => number} y @param {(value: number) => string} label @param {number} width
 */
function grid(values, y, label, width) {
  return values.flatMap((value) => [
    svg('line', { class: 'grid', x1: MARGIN.left, x2: width - MARGIN.right, y1: at(y(value)), y2: at(y(value)) }),
    svg('text', { class: 'tick', x: MARGIN.left - 8, y: at(y(value) + 4), 'text-anchor': 'end' }, label(value)),
  ]);
}

/** @typedef {{start: number, end: number, open: number, high: number, low: number, close: number, mean: number}} Bar in microseconds and micro-dollars */

/**
 * A chart of a market's price over time, with a reading for each instant.
 * @param {string} name
 */
export function priceChart(name) {
  /** @type {{bars: Bar[], from: number, to: number, marks: {label: string, value: number}[]}} */
  let data = { bars: [], from: 0, to: 1, marks: [] };
  let chosen = -1;
  const x = (/** @type {number} */ time, /** @type {number} */ width) => scale(time, [data.from, data.to], [MARGIN.left, width - MARGIN.right]);

  const drawing = picture(name, 260, (width, height) => {
    const values = data.bars.flatMap((bar) => [bar.low, bar.high]).concat(data.marks.map((mark) => mark.value));
    if (values.length === 0) return [svg('text', { class: 'tick', x: width / 2, y: height / 2, 'text-anchor': 'middle' }, 'No prices in this time')];
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const room = Math.max((high - low) * 0.08, high * 0.01, 1);
    [low, high] = [Math.max(0, low - room), high + room];
    const y = (/** @type {number} */ value) => scale(value, [low, high], [height - MARGIN.bottom, MARGIN.top]);
    const prices = ticks(low, high, 5);
    const step = prices.length > 1 ? prices[1] - prices[0] : 1e6;
    const times = axisTimes(data.from, data.to, width / 72);
    const isFine = times.length > 1 && times[1].at - times[0].at < MINUTE_US;
    const parts = [
      ...grid(prices, y, (value) => axisDollars(value, step), width),
      ...times.flatMap((time) => [
        svg('line', { class: 'grid faint', x1: at(x(time.at, width)), x2: at(x(time.at, width)), y1: MARGIN.top, y2: height - MARGIN.bottom }),
        svg('text', { class: 'tick', x: at(Math.min(x(time.at, width), width - 20)), y: height - 8, 'text-anchor': 'middle' }, time.isDate ? day(time.at) : axisTime(time.at, isFine)),
      ]),
    ];
    let top = '';
    let bottom = '';
    let line = '';
    for (const bar of data.bars) {
      const [from, to] = [x(Math.max(bar.start, data.from), width), x(Math.min(bar.end, data.to), width)].map(at);
      top += `${top ? 'L' : 'M'}${from} ${at(y(bar.high))}L${to} ${at(y(bar.high))}`;
      bottom = `L${to} ${at(y(bar.low))}L${from} ${at(y(bar.low))}${bottom}`;
      line += `${line ? 'L' : 'M'}${from} ${at(y(bar.mean))}L${to} ${at(y(bar.mean))}`;
    }
    const last = data.bars[data.bars.length - 1];
    line += `L${at(x(Math.min(last.end, data.to), width))} ${at(y(last.close))}`;
    parts.push(svg('path', { class: 'band', d: `${top}${bottom}Z` }));
    for (const mark of data.marks) {
      parts.push(svg('line', { class: 'mark', x1: MARGIN.left, x2: width - MARGIN.right, y1: at(y(mark.value)), y2: at(y(mark.value)) }));
    }
    parts.push(svg('path', { class: 'line', d: line }));
    for (const mark of data.marks) parts.push(svg('text', { class: 'mark-label', x: MARGIN.left + 6, y: at(y(mark.value) - 4) }, mark.label));
    const bar = data.bars[chosen];
    if (bar) {
      const middle = x((Math.max(bar.start, data.from) + Math.min(bar.end, data.to)) / 2, width);
      parts.push(svg('line', { class: 'cross', x1: at(middle), x2: at(middle), y1: MARGIN.top, y2: height - MARGIN.bottom }));
      parts.push(svg('circle', { class: 'dot', cx: at(middle), cy: at(y(bar.mean)), r: 4 }));
    }
    return parts;
  });

  const reading = h('output', { class: 'reading' });
  const slider = h('input', { type: 'range', class: 'scrub', min: '0', max: '0', step: '1', 'aria-label': 'Read the price at a time' });
  const choose = (/** @type {number} */ index) => {
    chosen = index;
    const bar = data.bars[index];
    if (bar) {
      const words = `${timeRange(bar)}: mean ${dollars(bar.mean)}, between ${dollars(bar.low)} and ${dollars(bar.high)}`;
      setText(reading, words);
      slider.value = String(index);
      slider.setAttribute('aria-valuetext', words);
    }
    drawing.redraw();
  };
  slider.addEventListener('input', () => choose(Number(slider.value)));
  drawing.root.addEventListener('pointermove', (event) => {
    const box = drawing.root.getBoundingClientRect();
    const time = scale(event.clientX - box.left, [MARGIN.left, box.width - MARGIN.right], [data.from, data.to]);
    const index = data.bars.findIndex((bar) => time >= bar.start && time < bar.end);
    if (index >= 0 && index !== chosen) choose(index);
  });
  const rest = () => {
    chosen = -1;
    setText(reading, restingText);
    drawing.redraw();
  };
  let restingText = '';
  drawing.root.addEventListener('pointerleave', rest);
  slider.addEventListener('blur', rest);

  return {
    root: h('figure', { class: 'figure' }, h('p', { class: 'unit', 'aria-hidden': 'true' }, '$ per node-hour'), drawing.root, slider, reading),
    /**
     * @param {typeof data} next
     * @param {string} summary
     */
    draw(next, summary) {
      data = next;
      slider.max = String(Math.max(0, data.bars.length - 1));
      if (document.activeElement !== slider) slider.value = slider.max;
      if (chosen >= data.bars.length) chosen = -1;
      restingText = summary;
      drawing.label(`${name}. ${summary}`);
      if (chosen < 0) setText(reading, summary);
      drawing.redraw();
    },
  };
}

/** Says from when to when a bar is, and its day if that is not today. @param {Bar} bar */
function timeRange({ start, end }) {
  const write = end - start < MINUTE_US ? longTime : shortTime;
  return `${isSameDay(start, Date.now() * 1000) ? '' : `${day(start)}, `}${write(start)}–${write(end)}`;
}

/** A chart of how many nodes are wanted and offered at each price. */
export function depthChart() {
  /** @type {{demand: {price: number, nodes: number}[], supply: {price: number, nodes: number}[], price: number}} */
  let data = { demand: [], supply: [], price: 0 };
  const drawing = picture('Depth', 220, (width, height) => {
    const levels = [...data.demand, ...data.supply];
    if (levels.length === 0) return [svg('text', { class: 'tick', x: width / 2, y: height / 2, 'text-anchor': 'middle' }, 'Nothing is wanted and nothing is offered')];
    const prices = levels.map((level) => level.price).concat(data.price);
    let [low, high] = [Math.min(...prices), Math.max(...prices)];
    const room = Math.max((high - low) * 0.1, high * 0.02, 1);
    [low, high] = [Math.max(0, low - room), high + room];
    const supplied = data.supply.reduce((sum, level) => sum + level.nodes, 0);
    const wanted = data.demand.reduce((sum, level) => sum + level.nodes, 0);
    // A flood of demand must not flatten the supply.
    const most = Math.max(1, supplied, Math.min(wanted, supplied * 3 || wanted));
    const x = (/** @type {number} */ value) => scale(value, [low, high], [MARGIN.left, width - MARGIN.right]);
    const y = (/** @type {number} */ value) => scale(Math.min(value, most * 1.08), [0, most * 1.08], [height - MARGIN.bottom, MARGIN.top]);
    const nodes = ticks(0, most, 4).filter(Number.isInteger);
    const dollarsTicks = ticks(low, high, width / 90);
    const step = dollarsTicks.length > 1 ? dollarsTicks[1] - dollarsTicks[0] : 1e6;
    const base = at(y(0));
    let supply = `M${at(x(low))} ${base}`;
    let sum = 0;
    for (const level of [...data.supply].sort((a, b) => a.price - b.price)) {
      supply += `H${at(x(level.price))}`;
      sum += level.nodes;
      supply += `V${at(y(sum))}`;
    }
    supply += `H${at(x(high))}`;
    let demand = `M${at(x(high))} ${base}`;
    sum = 0;
    for (const level of [...data.demand].sort((a, b) => b.price - a.price)) {
      demand += `H${at(x(level.price))}`;
      sum += level.nodes;
      demand += `V${at(y(sum))}`;
    }
    demand += `H${at(x(low))}`;
    return [
      ...grid(nodes, y, String, width),
      ...dollarsTicks.map((value) => svg('text', { class: 'tick', x: at(x(value)), y: height - 8, 'text-anchor': 'middle' }, axisDollars(value, step))),
      svg('path', { class: 'supply-area', d: `${supply}V${base}Z` }),
      svg('path', { class: 'demand-area', d: `${demand}V${base}Z` }),
      svg('path', { class: 'supply-line', d: supply }),
      svg('path', { class: 'demand-line', d: demand }),
      svg('line', { class: 'cross', x1: at(x(data.price)), x2: at(x(data.price)), y1: MARGIN.top, y2: height - MARGIN.bottom }),
    ];
  });
  const key = h('p', { class: 'key' },
    h('span', { class: 'key-demand' }, 'wanted or held at this price or more'),
    h('span', { class: 'key-supply' }, 'offered at this price or less'),
    h('span', { class: 'key-price' }, 'market price'));
  return {
    root: h('figure', { class: 'figure' }, h('p', { class: 'unit', 'aria-hidden': 'true' }, 'nodes, by $ per node-hour'), drawing.root, key),
    /** @param {typeof data} next @param {string} summary */
    draw(next, summary) {
      data = next;
      drawing.label(summary);
      drawing.redraw();
    },
  };
}

/** A chart of amounts, one bar for each span of time. */
export function barChart() {
  /** @type {{bars: {label: string, value: number, title: string}[], unit: string}} */
  let data = { bars: [], unit: '' };
  const unit = h('p', { class: 'unit', 'aria-hidden': 'true' });
  const drawing = picture('Amounts', 180, (width, height) => {
    // Without any money the axis goes to one dollar.
    const highest = Math.max(...data.bars.map((bar) => bar.value)) || 1e6;
    const values = ticks(0, highest, 4);
    const step = values[1] - values[0] || highest;
    const top = Math.max(highest, values[values.length - 1]);
    const y = (/** @type {number} */ value) => scale(value, [0, top], [height - MARGIN.bottom, MARGIN.top]);
    const room = (width - MARGIN.left - MARGIN.right) / Math.max(1, data.bars.length);
    const every = Math.max(1, Math.ceil(48 / room));
    return [
      ...grid(values, y, (value) => axisDollars(value, step), width),
      ...data.bars.flatMap((bar, index) => {
        const left = MARGIN.left + index * room;
        const size = height - MARGIN.bottom - y(bar.value);
        return [
          size > 0 ? svg('rect', { class: 'bar', x: at(left + room * 0.15), width: at(room * 0.7), y: at(y(bar.value)), height: at(size) }, svg('title', {}, bar.title)) : svg('g'),
          (data.bars.length - 1 - index) % every === 0
            ? svg('text', { class: 'tick', x: at(left + room / 2), y: height - 8, 'text-anchor': 'middle' }, bar.label) : svg('g'),
        ];
      }),
    ];
  });
  return {
    root: h('figure', { class: 'figure' }, unit, drawing.root),
    /** @param {typeof data} next @param {string} summary */
    draw(next, summary) {
      data = next;
      setText(unit, next.unit);
      drawing.label(summary);
      drawing.redraw();
    },
  };
}

/** A line without axes that fits in a cell of a table. */
export function sparkline() {
  const [width, height] = [180, 26];
  const root = svg('svg', { class: 'spark', viewBox: `0 0 ${width} ${height}`, width, height, 'aria-hidden': 'true' });
  return {
    root,
    /** @param {number[]} values */
    draw(values) {
      if (values.length < 2) {
        root.replaceChildren();
        return;
      }
      const [low, high] = [Math.min(...values), Math.max(...values)];
      const path = values.map((value, index) => {
        const x = scale(index, [0, values.length - 1], [1, width - 3]);
        return `${index ? 'L' : 'M'}${at(x)} ${at(scale(value, [low, high], [height - 3, 3]))}`;
      });
      const last = scale(values[values.length - 1], [low, high], [height - 3, 3]);
      fill(root, svg('path', { class: 'line', d: path.join('') }), svg('circle', { class: 'dot', cx: width - 3, cy: at(last), r: 2 }));
    },
  };
}
