// Values of links, instants and colours as text and style. No state.

import { count, share } from "./quantities.js";

export const METRICS = {
  load: { title: "load", unit: "% of the rate", share: true },
  marks: { title: "marks", unit: "% of packets with CE", share: true },
  drops: { title: "drops", unit: "packets/s that a full queue dropped", share: false },
  pauses: { title: "pauses", unit: "% of the time paused", share: true },
  errors: { title: "errors", unit: "packets/s lost on the link", share: false },
};
const MOST_PER_SECOND = 10000;

// The least loaded differs from an idle link, --wire or --cell, by at least 3:1.
const light = ["#2a6cb4", "#4b49b8", "#7a2a9e", "#5c0a4e"];
const dark = ["#62b2f4", "#a79bff", "#f2a3ee", "#ffd9f4"];
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
  if (METRICS[metric].share) return share(value);
  return `${count(Math.round(value))}/s`;
}

// The ends of the scale of colours, with its unit.
export function range(metric) {
  const { unit, share: isShare } = METRICS[metric];
  return ["0", isShare ? `100${unit}` : `${count(MOST_PER_SECOND)} ${unit}`];
}

// Nanoseconds since 1970 come as numbers beyond 2^53: they are good to about 200 ns.
export function clock(ns, digits = 3) {
  const at = new Date(ns / 1e6);
  const two = (part) => String(part).padStart(2, "0");
  const seconds = two(at.getSeconds()) + (at.getMilliseconds() / 1000).toFixed(3).slice(1, 2 + digits);
  return `${two(at.getHours())}:${two(at.getMinutes())}:${digits ? seconds : two(at.getSeconds())}`;
}

// A moment after another: as many digits as tell neighbours apart.
export function moment(ns) {
  const size = Math.abs(ns);
  if (size && size < 1e5) return `${(ns / 1e3).toFixed(1)} us`;
  if (size < 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  if (size < 1e9) return `${(ns / 1e6).toFixed(1)} ms`;
  if (size < 600e9) return `${(ns / 1e9).toFixed(2)} s`;
  return `${Math.round(ns / 60e9)} min`;
}

export const SIGNS = { ok: "●", rerouted: "●", degraded: "▲", down: "✕" };
export const STATES = { ok: "as planned", rerouted: "rerouted", degraded: "degraded", down: "down" };
