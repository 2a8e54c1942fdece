// Tables of the class `sortable`: a heading sorts by its column, and a long table has a field for the words that its
// rows must have.

import { h } from "./elements.js";

const FILTERED_FROM = 12;
const TEXTS = new Intl.Collator("en", { numeric: true });
const QUANTITY = /^[<>≈]?\s*(-?[\d,]*\.?\d+(?:e[-+]?\d+)?)\s*([^\s\d(]*)/;
const TIMES = { ns: 1e-9, us: 1e-6, µs: 1e-6, ms: 1e-3, s: 1, min: 60, h: 3600, d: 86400 };
const PREFIXES = { k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12 };

export function sortTables() {
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    if (body.rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => sortable(head, column, body));
    if (body.rows.length >= FILTERED_FROM) table.before(filter(body));
  }
}

function sortable(head, column, body) {
  const isNumber = head.classList.contains("n");
  const arrow = h("span", { "aria-hidden": "true" });
  const sort = () => {
    const isDown = head.ariaSort ? head.ariaSort === "ascending" : isNumber;
    for (const other of head.parentElement.cells) {
      other.ariaSort = null;
      other.querySelector("button > span")?.replaceChildren();
    }
    head.ariaSort = isDown ? "descending" : "ascending";
    arrow.textContent = isDown ? " ▼" : " ▲";
    body.append(...sorted([...body.rows], (row) => row.cells[column].textContent.trim(), isNumber, isDown));
  };
  if (!head.textContent.trim()) return;
  head.scope = "col";
  head.replaceChildren(h("button", { class: "link", onclick: sort }, head.textContent.trim(), arrow));
}

// Cells without a number come last, whichever way numbers are sorted.
function sorted(rows, textOf, isNumber, isDown) {
  const way = isDown ? -1 : 1;
  const values = new Map(rows.map((row) => [row, isNumber ? quantity(textOf(row)) : textOf(row)]));
  return rows.sort((a, b) => {
    const [one, other] = [values.get(a), values.get(b)];
    if (!isNumber) return way * TEXTS.compare(one, other);
    return one === null || other === null ? (one === null) - (other === null) : way * (one - other);
  });
}

// The number of a text with a unit in the unit's base, such as 0.005 of "5 ms"; null without one.
export function quantity(text) {
  const found = QUANTITY.exec(text);
  if (!found) return null;
  const [, digits, unit] = found;
  const size = TIMES[unit] ?? (unit.length > 1 ? PREFIXES[unit[0]] : undefined) ?? 1;
  return Number(digits.replaceAll(",", "")) * size;
}

function filter(body) {
  const shown = h("span", { class: "note", role: "status" });
  const words = h("input", { type: "search" });
  words.addEventListener("input", () => {
    const wanted = words.value.trim().toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
    const left = [...body.rows].filter((row) => !row.hidden).length;
    shown.textContent = wanted ? `${left} of ${body.rows.length} rows` : "";
  });
  return h("p", { class: "filter" }, h("label", {}, "rows with ", words), " ", shown);
}
