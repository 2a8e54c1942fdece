// Quantities as people read them: rocelab/base/quantities.py in JavaScript. tests/data/quantities.json has what both
// must write.

const S = 1e9;
const TIMES = [["d", 86400 * S, 172800 * S], ["h", 3600 * S, 3600 * S], ["min", 60 * S, 120 * S], ["s", S, S], ["ms", 1e6, 1e6], ["us", 1e3, 1e3], ["ns", 1, 0]];
const SIZES = prefixed("B");
const RATES = prefixed("b/s");
const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

function prefixed(unit) {
  return [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3], ["", 0]].map(([prefix, size]) => [`${prefix}${unit}`, size || 1, size]);
}

// To three digits, in the first unit that is used from as little.
function scaled(value, units) {
  const rounded = Math.abs(toThree(value));
  const [unit, size] = units.find(([, , least]) => rounded >= least);
  return `${plain(toThree(value / size))} ${unit}`;
}

// What an axis up to `most` is divided by, and the name of its unit.
export function axisUnit(most, unit) {
  const units = { ns: TIMES, bytes: SIZES, "bit/s": RATES }[unit] ?? [[unit, 1, -Infinity]];
  const [name, scale] = units.find(([, , least]) => most >= least);
  return [scale, name];
}

// A number on an axis, already divided by its unit.
export function tick(value) {
  return plain(Math.abs(value) < 1e-12 ? 0 : Number(value.toPrecision(12)));
}

// The ticks of an axis of time, in s, as texts in one unit, from a minute on too in s.
export function timeTicks(seconds) {
  const [scale, unit] = axisUnit(Math.min(60, Math.max(...seconds.map(Math.abs))) * S, "ns");
  return seconds.map((at) => `${tick((at * S) / scale)} ${unit}`);
}

function toThree(value) {
  return Number(value.toPrecision(3));
}

function plain(value) {
  return Math.abs(value) >= 1000 ? whole.format(value) : String(value);
}

export function duration(ns) {
  return ns === 0 ? "0" : scaled(ns, TIMES);
}

export function size(bytes) {
  return scaled(bytes, SIZES);
}

export function rate(bps) {
  return scaled(bps, RATES);
}

export function bandwidth(gbs) {
  return `${plain(toThree(gbs))} GB/s`;
}

export function count(number) {
  return whole.format(number);
}

// `1 flow`, `2,000 flows`: rocelab.base.wording.counted in JavaScript.
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

export function share(value) {
  const percent = 100 * value;
  if (percent > 0 && percent < 0.01) return "< 0.01%";
  // No -0%.
  return `${plain(Number(percent.toFixed(Math.abs(percent) < 1 ? 2 : 1)) + 0)}%`;
}

export function ratio(value) {
  if (Math.abs(value) >= 999.995) return count(Math.round(value));
  if (value === 0 || Math.abs(value) >= 1) return value.toFixed(2);
  const text = String(toThree(value));
  return text + "0".repeat(Math.max(0, 2 - text.split(".")[1].length));
}
