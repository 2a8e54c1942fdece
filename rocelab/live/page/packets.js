// Packets of all traffic in steps of 10 ms, as agents count them while they send: columns and plots.

const S = 1e9;

// Times in s, packets/s sent and delivered, and packets sent again in each step; after `zero`.
export function columnsOf({ t_ns: begin, step_ns: step, sent, received, retransmitted }, zero = 0) {
  const perSecond = (packets) => packets.map((each) => (each * S) / step);
  return [sent.map((_, place) => (begin - zero + place * step) / S), perSecond(sent), perSecond(received), retransmitted];
}

export function append(rows, more) {
  rows.forEach((row, place) => row.push(...more[place]));
}

// Of probes what did not arrive in the step in which it was sent, of jobs what was sent again.
export function stepPlots([times, sent, received, again], kind) {
  const step = times.length > 1 ? times[1] - times[0] : 0;
  // What arrives in the step after that in which it was sent is not missing.
  const late = (place) => Math.max(0, (received[place] ?? 0) - (sent[place] ?? 0));
  const missing = sent.map((each, place) => Math.max(0, (each - received[place] - late(place + 1)) * step));
  const [title, label, packets] = kind === "probes"
    ? ["packets per 10 ms that were sent and did not arrive", "missing", missing]
    : ["packets sent again, per 10 ms", "sent again", again];
  return [
    { title: "packets/s of all traffic, per 10 ms", lines: [{ label: "sent", colour: "--muted", width: 2.5 }, { label: "delivered", colour: "--accent" }], data: [times, sent, received] },
    { title, lines: [{ label, colour: "--down", isFilled: true }], data: [times, packets] },
  ];
}
