// Outages of flows in words. A time that is not above its resolution is only known to be below it.

import { count, duration } from "./quantities.js";

// "out 127 ms, 386 lost", of a job's flow "out 127 ms, 32 sent again", or what is known.
export function outageText({ out_ns: out, lost, retransmitted, restored, resolution_ns: resolution }) {
  const packets = lost == null ? `${count(retransmitted)} sent again` : `${count(lost)} lost`;
  if (!restored) return `out to the end, ${packets}`;
  if (out == null) return packets;
  return `out ${out <= resolution ? `< ${duration(resolution)}` : duration(out)}, ${packets}`;
}

// "out for up to 127 ms", of the longest outage.
export function longestText({ out_ns: out, resolution_ns: resolution }) {
  return out <= resolution ? `out for less than ${duration(resolution)}` : `out for up to ${duration(out)}`;
}
