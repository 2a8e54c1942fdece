// A button that sends a packet from every NIC to every other server's, and which pairs were lost.

import { h, table } from "./elements.js";
import { clock } from "./format.js";
import { count } from "./quantities.js";
import { post } from "./requests.js";

export class Reach {
  // `chooser`: what chooses a server of that name.
  constructor(section, chooser) {
    this.section = section;
    this.button = section.querySelector("button");
    this.shown = section.querySelector("div");
    this.chooser = chooser;
    this.button.addEventListener("click", () => this.#probe());
  }

  start({ read_only: readOnly }) {
    this.section.hidden = readOnly;
  }

  async #probe() {
    this.button.disabled = true;
    try {
      this.#show(await post("/reach", {}));
    } catch (error) {
      this.shown.replaceChildren(h("p", { class: "bad", role: "alert" }, error.message));
    }
    this.button.disabled = false;
  }

  #show({ pairs, reached, failures }) {
    const lost = pairs - reached;
    this.shown.replaceChildren(
      h("p", { class: lost ? "down" : "ok", role: "status" }, `${clock(Date.now() * 1e6, 0)}: ${count(reached)} of ${count(pairs)} pairs of NICs reach.`),
      lost ? table("", ["from", "does not reach"], failures.map((row) => [this.#named(row.from), this.#named(row.to)])) : "");
  }

  // One NIC, or text for several.
  #named(text) {
    return text === "any" || text.includes(",") ? text : this.chooser(text);
  }
}
