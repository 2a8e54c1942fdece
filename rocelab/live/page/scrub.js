// A slider over the last minutes: moved back, the fabric is shown as it was then.

import { clock } from "./format.js";
import { get } from "./requests.js";

export class Scrubber {
  // `show`: what held at a time, `t_ns`, `values`, `carrier` and `states`; null for now.
  constructor(section, show) {
    this.slider = section.querySelector("input");
    this.said = section.querySelector("output");
    this.button = section.querySelector("button");
    this.show = show;
    this.newest = 0;
    this.slider.addEventListener("input", () => this.#move());
    this.slider.addEventListener("keydown", ({ key }) => key === "Escape" && this.live());
    this.button.addEventListener("click", () => {
      this.slider.focus();
      this.live();
    });
  }

  // Go to a time, ns.
  goTo(t) {
    if (!this.newest) return;
    this.slider.value = (t - this.newest) / 1e9;
    this.#move();
  }

  live() {
    this.at = null;
    this.slider.value = 0;
    this.button.hidden = true;
    this.#say("live");
    this.show(null);
  }

  // A sample came: its time is now, so what is looked at is older by as much.
  sampled(t) {
    this.newest = t;
    if (!this.at) return;
    this.slider.value = (this.at - t) / 1e9;
    this.#tell();
  }

  // Another metric is looked at.
  take(metric) {
    this.metric = metric;
    if (this.at) this.#ask();
  }

  #move() {
    const back = Number(this.slider.value);
    if (back === 0 || !this.newest) {
      this.live();
      return;
    }
    this.at = this.newest + back * 1e9;
    this.button.hidden = false;
    this.#ask();
  }

  // One request at a time, the next for where the slider is by then.
  async #ask() {
    if (this.asking) return;
    this.asking = true;
    try {
      let asked;
      do {
        asked = [this.at, this.metric];
        const found = await get(`/history/at?t_ns=${asked[0]}&metric=${asked[1]}`);
        if (!this.at) return;
        this.shown = found.t_ns;
        this.#tell();
        this.show(found);
      } while (asked[0] !== this.at || asked[1] !== this.metric);
    } catch (error) {
      this.live();
      this.#say(error.message);
    } finally {
      this.asking = false;
    }
  }

  #tell() {
    if (this.shown) this.#say(`as of ${clock(this.shown, 1)}, ${Math.round((this.newest - this.shown) / 1e9)} s ago`);
  }

  #say(text) {
    this.said.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
  }
}
