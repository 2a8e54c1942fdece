// Values, times and colours as text and style. No state.

export const METRICS = {
  load: { title: "load", unit: "% of the rate", share: true },
  marks: { title: "marks", unit: "% of packets with CE", share: true },
  drops: { title: "drops", unit: "packets/s that a full queue dropped", share: false },
  pauses: { title: "pauses", unit: "% of the time paused", share: true },
  errors: { title: "errors", unit: "packets/s lost on the link", share: false },
};
const MOST_PER_SECOND = 10000;
const numbers = new Intl.NumberFormat("en");

const light = ["#a8bfd6", "#4a8fd0", "#5b4fc4", "#7a1283"];
const dark = ["#4c6178", "#4a9be0", "#9a8cff", "#ff9df0"];
const isDark = matchMedia("(prefers-color-scheme: dark)");

// Where a value is between nothing and the most, from 0 to 1.
export function place(metric, value) {
  if (METRICS[metric].share) return Math.min(1, value);
  return Math.min(1, Math.log10(1 + value) / Math.log10(1 + MOST_PER_SECOND));
}

export function scale() {
  return d3.interpolateRgbBasis(isDark.matches ? dark : light);
}

export function onTheme(redraw) {
  isDark.addEventListener("change", redraw);
}

export function style(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

export function shown(metric, value) {
  if (METRICS[metric].share) return value && value < 0.001 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`;
  return `${count(Math.round(value))}/s`;
}

export function range(metric) {
  return METRICS[metric].share ? ["0", "100 %"] : ["0", `${count(MOST_PER_SECOND)}/s`];
}

export function count(number) {
  return numbers.format(number);
}

export function bits(bps) {
  for (const [unit, size] of [["Tb/s", 1e12], ["Gb/s", 1e9], ["Mb/s", 1e6], ["kb/s", 1e3]]) {
    if (bps >= size) return `${+(bps / size).toPrecision(3)} ${unit}`;
  }
  return `${bps} b/s`;
}

export function bytes(size) {
  for (const [unit, each] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (size >= each) return `${(size / each).toPrecision(3)} ${unit}`;
  }
  return `${size} B`;
}

// Nanoseconds since 1970 come as numbers beyond 2^53: they are good to about 200 ns.
export function clock(ns, digits = 3) {
  const at = new Date(ns / 1e6);
  const two = (part) => String(part).padStart(2, "0");
  const seconds = two(at.getSeconds()) + (at.getMilliseconds() / 1000).toFixed(3).slice(1, 2 + digits);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${digits ? seconds : two(at.getSeconds())}`;
}

export function span(ns) {
  const size = Math.abs(ns);
  if (size && size < 1e5) return `${(ns / 1e3).toFixed(1)} us`;
  if (size < 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  if (size < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  if (size < 600e9) return `${(ns / 1e9).toFixed(2)} s`;
  return `${Math.round(ns / 60e9)} min`;
}

export const SIGNS = { ok: "●", degraded: "▲", down: "✕" };
