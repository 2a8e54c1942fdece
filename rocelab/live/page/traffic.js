// Traffic of the page: forms that start probes and a job, how far they are, their figures or why there
// are none; and what else has the lab for itself.

import { h, table, update } from "./elements.js";
import { get, post } from "./requests.js";

const EVERY_MS = 500;
const PATTERNS = ["allreduce", "alltoall", "allgather", "reducescatter", "broadcast", "gather", "incast", "pairs", "permutation"];
const VERDICTS = {
  valid: "Valid.",
  disturbed: "Disturbed: not a measurement of the lab as planned.",
  invalid: "Invalid: its figures do not count.",
  failed: "Failed.",
  stopped: "Stopped: no trace of it remains.",
};

export class Traffic {
  // `changed` is told whether something uses the lab, `followed` how the newest traffic is.
  constructor(section, { changed, followed }) {
    this.section = section;
    [this.probes, this.form] = this.forms = section.querySelectorAll("form");
    this.shown = section.querySelector("div");
    this.refused = section.querySelector("[role=alert]");
    this.changed = changed;
    this.followed = followed;
    this.form.elements.pattern.append(...PATTERNS.map((name) => h("option", {}, name)));
    this.probes.addEventListener("submit", (event) => {
      event.preventDefault();
      this.probe();
    });
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.run();
    });
  }

  start({ read_only: readOnly, use, nodes }) {
    this.readOnly = readOnly;
    const { ranks } = this.form.elements;
    if (!ranks.value) ranks.value = Math.min(8, nodes.filter((node) => node.tier === 0).length);
    this.show(use);
    this.follow();
  }

  // What else has the lab for itself, or null.
  show(use) {
    this.use = use;
    this.#draw();
    this.#tell();
  }

  // Ask how far the job is, until it has ended.
  async follow() {
    clearTimeout(this.next);
    try {
      this.job = await get("/traffic");
    } catch {
      return; // the page says that the connection is lost; a new one begins with `start`
    }
    if (this.job.state === "running") this.next = setTimeout(() => this.follow(), EVERY_MS);
    this.#draw();
    this.#tell();
    this.followed(this.job);
  }

  #tell() {
    const isUsed = this.job?.state === "running" || Boolean(this.use);
    if (isUsed !== this.isUsed) this.changed(isUsed);
    this.isUsed = isUsed;
  }

  probe() {
    const { flows, rate_pps: rate, duration } = this.probes.elements;
    return this.#start("/probes", { flows: Number(flows.value), rate_pps: Number(rate.value), duration: duration.value });
  }

  run() {
    const { pattern, ranks, size, qps, iterations } = this.form.elements;
    return this.#start("/traffic", {
      pattern: pattern.value, ranks: Number(ranks.value), size: size.value,
      iterations: Number(iterations.value), transport: { qps: Number(qps.value) },
    });
  }

  async #start(path, body) {
    for (const form of this.forms) form.querySelector("button").disabled = true;
    this.refused.textContent = "";
    setTimeout(() => this.follow(), EVERY_MS); // it can be stopped before it sends
    try {
      await post(path, body);
    } catch (error) {
      this.refused.textContent = error.message;
    }
    await this.follow();
  }

  async #stop(button) {
    button.disabled = true;
    try {
      await post("/traffic/stop");
    } catch (error) {
      this.refused.textContent = error.message;
    }
    await this.follow();
  }

  #draw() {
    const { job, use } = this;
    const runs = job?.state === "running";
    this.section.hidden = this.readOnly && !use && !job?.state;
    for (const form of this.forms) {
      form.hidden = this.readOnly || runs || Boolean(use);
      form.querySelector("button").disabled = false;
    }
    update(this.shown, h("div", {},
      use ? h("p", {}, `In use by ${use.user} that was started elsewhere (process ${use.pid}).`) : "",
      ...(job?.state ? (runs ? this.#progress(job) : outcome(job)) : [])));
  }

  #progress(traffic) {
    const { progress, kind } = traffic;
    const far = progress
      ? [h("progress", { max: progress.total, value: progress.done, "aria-label": "how far it is" }), ` ${progress.done} of ${progress.total} ${progress.stage}`]
      : ["preparing"];
    const stop = this.readOnly ? "" : h("button", { onclick: ({ target }) => this.#stop(target) }, kind === "probes" ? "Stop and measure" : "Stop");
    const ends = kind === "probes" ? h("p", { class: "muted" }, "They end by themselves when the lab has recovered from a fault.") : "";
    return [h("p", {}, `${named(traffic)} `, stop), h("p", {}, ...far), ends];
  }
}

function named({ kind, ranks, job: { pattern, size, duration, rate_pps: rate = 1000 } }) {
  if (kind === "probes") return `${ranks} flows of ${rate} packets/s`;
  return `${pattern} of ${ranks} ranks, ${size ?? duration}`;
}

const TONES = { valid: "ok", disturbed: "degraded", stopped: "" };

function outcome(traffic) {
  const { state, headlines, problems, errors, warnings, disturbed, error, hint } = traffic;
  const why = [...problems, ...errors, error, hint].filter(Boolean);
  const hasResult = !["stopped", "failed"].includes(state);
  return [
    h("p", {}, `${named(traffic)}: `, h("b", { class: TONES[state] ?? "bad" }, VERDICTS[state])),
    ...disturbed.map((text) => h("p", { class: "degraded" }, `Disturbed by ${text}.`)),
    ...why.map((text) => h("p", { class: "bad" }, text)),
    headlines.length ? table("Times and bandwidths of the modelled network", ["", "median", "min", "max", "n"],
      headlines.map((each) => [each.title, each.median, each.minimum, each.maximum, each.n])) : "",
    ...warnings.map((text) => h("p", { class: "muted" }, text)),
    hasResult ? h("p", {}, h("a", { href: "/traffic/result.json", download: "result.json" }, "result.json")) : "",
  ];
}
