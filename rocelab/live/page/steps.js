// The first steps as three buttons: send traffic, pull a cable, read the impact.

import { post } from "./requests.js";

export class Steps {
  // `send` starts probes; `busiest` gives the links between two switches whose load is the greatest.
  constructor(section, { send, busiest, pick, impact }) {
    this.section = section;
    [this.first, this.second, this.third] = section.querySelectorAll("button");
    this.refused = section.querySelector("[role=alert]");
    this.busiest = busiest;
    this.pick = pick;
    this.first.addEventListener("click", () => send());
    this.second.addEventListener("click", () => this.#pull());
    this.third.addEventListener("click", () => impact.scrollIntoView({ behavior: "smooth" }));
  }

  show({ readOnly, traffic, isBroken, isUsed }) {
    const runs = traffic?.state === "running";
    this.section.hidden = readOnly;
    this.first.disabled = runs || isUsed;
    // What is broken before packets count is in no flow's outage.
    this.second.disabled = !runs || !traffic.progress || isBroken;
    this.third.disabled = !["valid", "disturbed", "invalid"].includes(traffic?.state);
  }

  async #pull() {
    const links = this.busiest();
    if (!links.length) return;
    const [{ name, a, b }] = links;
    const where = links.length > 1 ? { between: `${a},${b}` } : { link: name };
    this.refused.textContent = "";
    this.pick(name);
    try {
      await post("/faults", { kind: "carrier-down", keys: { ...where, lasts: "3s" } });
    } catch (error) {
      this.refused.textContent = error.message;
    }
  }
}
