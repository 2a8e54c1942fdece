// Faults as shaded bands behind a plot over time.

import { style } from "./format.js";

const S = 1e9;

// The spans of faults, in ns, from events that begin and end them; one without an end lasts to `until`,
// one without a beginning is there from `from` on.
export function bandsOf(events, until, from = -Infinity) {
  const open = new Map();
  const bands = [];
  for (const event of d3.sort(events, ({ t_ns: t }) => t)) {
    const key = `${event.fault} ${event.subject}`;
    if (event.begins) open.set(key, event.t_ns);
    else {
      bands.push([open.get(key) ?? from, event.t_ns]);
      open.delete(key);
    }
  }
  return [...bands, ...[...open.values()].map((begun) => [begun, until])];
}

export function drawBands(plot, bands) {
  const { ctx: context, bbox } = plot;
  const { min, max } = plot.scales.x;
  if (min == null) return;
  context.save();
  context.fillStyle = style("--band");
  for (const [from, to] of bands) {
    const [low, high] = [Math.max(min, from / S), Math.min(max, to / S)];
    if (high <= low) continue;
    const [left, right] = [plot.valToPos(low, "x", true), plot.valToPos(high, "x", true)];
    context.fillRect(left, bbox.top, Math.max(2, right - left), bbox.height);
  }
  context.restore();
}
