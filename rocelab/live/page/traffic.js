// A job on the lab: a form that starts it, how far it is, its figures or why there are none; and
// what else has the lab for itself.

import { h, table, update } from "./elements.js";
import { get, post } from "./requests.js";

const EVERY_MS = 500;
const PATTERNS = ["allreduce", "alltoall", "allgather", "reducescatter", "broadcast", "gather", "incast", "pairs", "permutation"];
const VERDICTS = {
  valid: "Valid.",
  invalid: "Invalid: its figures do not count.",
  failed: "Failed.",
  stopped: "Stopped: no trace of it remains.",
};

export class Traffic {
  // `changed` is told whether something uses the lab.
  constructor(section, changed) {
    this.section = section;
    this.form = section.querySelector("form");
    this.shown = section.querySelector("div");
    this.refused = section.querySelector("[role=alert]");
    this.button = this.form.querySelector("button");
    this.changed = changed;
    this.form.elements.pattern.append(...PATTERNS.map((name) => h("option", {}, name)));
    this.form.addEventListener("submit", (event) => this.#start(event));
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
  }

  #tell() {
    const isUsed = this.job?.state === "running" || Boolean(this.use);
    if (isUsed !== this.isUsed) this.changed(isUsed);
    this.isUsed = isUsed;
  }

  async #start(event) {
    event.preventDefault();
    const { pattern, ranks, size, qps, iterations } = this.form.elements;
    this.button.disabled = true;
    this.refused.textContent = "";
    setTimeout(() => this.follow(), EVERY_MS); // it can be stopped before it sends
    try {
      await post("/traffic", {
        pattern: pattern.value, ranks: Number(ranks.value), size: size.value,
        iterations: Number(iterations.value), transport: { qps: Number(qps.value) },
      });
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
    this.form.hidden = this.readOnly || runs || Boolean(use);
    this.button.disabled = false;
    update(this.shown, h("div", {},
      use ? h("p", {}, `In use by ${use.user} that was started elsewhere (process ${use.pid}).`) : "",
      ...(job?.state ? (runs ? this.#progress(job) : outcome(job)) : [])));
  }

  #progress({ job, progress }) {
    const far = progress
      ? [h("progress", { max: progress.total, value: progress.done, "aria-label": "how far the job is" }), ` ${progress.done} of ${progress.total} ${progress.stage}`]
      : ["preparing"];
    const stop = this.readOnly ? "" : h("button", { onclick: ({ target }) => this.#stop(target) }, "Stop");
    return [h("p", {}, `${named(job)} `, stop), h("p", {}, ...far)];
  }
}

function named({ pattern, ranks, size, duration }) {
  return `${pattern} of ${ranks} ranks, ${size ?? duration}`;
}

function outcome({ job, state, headlines, problems = [], errors = [], warnings, error, hint }) {
  const why = [...problems, ...errors, error, hint].filter(Boolean);
  return [
    h("p", {}, `${named(job)}: `, h("b", { class: { valid: "ok", stopped: "" }[state] ?? "bad" }, VERDICTS[state])),
    ...why.map((text) => h("p", { class: "bad" }, text)),
    headlines.length ? table("Times and bandwidths of the modelled network", ["", "median", "min", "max", "n"],
      headlines.map((each) => [each.title, each.median, each.minimum, each.maximum, each.n])) : "",
    ...warnings.map((text) => h("p", { class: "muted" }, text)),
    headlines.length ? h("p", {}, h("a", { href: "/traffic/result.json", download: "result.json" }, "result.json")) : "",
  ];
}
