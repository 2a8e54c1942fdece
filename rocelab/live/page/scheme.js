// How the lab spreads flows over equal paths, and a form that switches it.

import { h } from "./elements.js";
import { post } from "./requests.js";

export class Scheme {
  constructor(section) {
    this.section = section;
    [this.now, this.form, this.meaning, this.refused] = section.querySelectorAll("p, form");
    this.select = section.querySelector("select");
    this.select.addEventListener("change", () => this.#explain());
    this.form.addEventListener("submit", (event) => this.#switch(event));
  }

  start({ scheme, schemes, read_only: readOnly }) {
    this.schemes = schemes;
    this.select.replaceChildren(...Object.keys(schemes).map((kind) => h("option", {}, kind)));
    this.form.hidden = readOnly;
    this.show(scheme);
  }

  show(scheme) {
    this.now.textContent = `Flows are spread by ${scheme.kind}.`;
    this.select.value = scheme.kind;
    this.#explain();
  }

  #explain() {
    this.meaning.textContent = this.schemes[this.select.value].replaceAll("`", "");
  }

  async #switch(event) {
    event.preventDefault();
    const button = this.form.querySelector("button");
    button.disabled = true;
    this.refused.textContent = "";
    try {
      await post("/scheme", { scheme: this.select.value });
    } catch (error) {
      this.refused.textContent = error.message;
    }
    button.disabled = false;
  }
}
