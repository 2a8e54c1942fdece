// What the plots of a run show, over time in s: of probes the packets of all flows or of one, of jobs
// their rates and the time of each iteration.

import { axisUnit, duration } from "./quantities.js";

export const S = 1e9;
const COLOURS = ["--accent", "--second", "--ok", "--muted"];

// Plots with `title`, `data` as uPlot takes it, and `lines`: the label and colour of each.
export function plotsOf(run, flow) {
  return run.jobs.length ? ofJobs(run) : run.totals ? ofProbes(run, flow) : [];
}

function ofProbes(run, flow) {
  const { start_ns: start, interval_ns: interval, sent, received } = flow ? run.rates : run.totals;
  const row = flow ? run.flows.indexOf(flow) : 0;
  // The first and the last interval are incomplete.
  const inner = d3.range(1, sent[row].length - 1);
  const times = inner.map((place) => (start + place * interval) / S);
  const lost = lostPer(flow ? [flow] : run.flows, start, interval, sent[row].length, run.end_ns);
  const perSecond = ({ [row]: values }) => inner.map((place) => (values[place] * S) / interval);
  return [
    {
      title: `packets/s, per ${duration(interval)}`,
      lines: [{ label: "sent", colour: "--muted", width: 2.5 }, { label: "received", colour: "--accent" }],
      data: [times, perSecond(sent), perSecond(received)],
    },
    {
      title: `packets lost per ${duration(interval)}, by when they were sent`,
      lines: [{ label: "lost", colour: "--down", isFilled: true }],
      data: [times, inner.map((place) => lost[place])],
    },
  ];
}

function ofJobs({ jobs, dilation, rates_are: what }) {
  const timed = jobs.filter(({ iterations }) => iterations.length);
  const lines = (of) => of.map(({ name }) => ({ label: name, colour: COLOURS[jobs.findIndex((job) => job.name === name) % COLOURS.length] }));
  const rated = jobs.filter((job) => job.rates.length);
  const [scale, unit] = rated.length ? axisUnit(d3.max(rated, (job) => d3.max(job.rates)), rated[0].rates_in) : [];
  const took = (spans) => spans.map(([began, ended]) => (ended - began) / dilation);
  const [ns, timeUnit] = axisUnit(d3.max(timed, ({ iterations }) => d3.max(took(iterations))) ?? 0, "ns");
  const rate = ({ interval_ns: interval, rates }) => [rates.map((_, place) => (place * interval) / S), rates.map((each) => each / scale)];
  const times = ({ iterations }) => [
    [...iterations.map(([began]) => began / S), iterations.at(-1)[1] / S],
    // A step ends at the next point: the last iteration needs one where it ends.
    took([...iterations, iterations.at(-1)]).map((each) => each / ns),
  ];
  const plots = [];
  if (rated.length) {
    plots.push({ title: `${what}, ${unit}, modelled`, lines: lines(rated), data: uPlot.join(rated.map(rate)) });
  }
  if (timed.length) {
    plots.push({ title: `time of each iteration, from its begin to its end, ${timeUnit}, modelled`, lines: lines(timed), data: uPlot.join(timed.map(times)) });
  }
  return plots;
}

// Lost packets per interval: those of an outage are spread over it, as they were sent.
function lostPer(flows, start, interval, number, end) {
  const found = Array(number).fill(0);
  for (const { outages } of flows) {
    for (const [begin, until, lost] of outages) {
      const apart = ((until ?? end) - begin) / lost;
      for (let packet = 0; packet < lost; packet += 1) {
        const place = Math.floor((begin + packet * apart - start) / interval);
        if (place >= 0 && place < number) found[place] += 1;
      }
    }
  }
  return found;
}
