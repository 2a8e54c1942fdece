// Elements of the page: made, and brought up to date without losing what is focused or selected.

const HANDLERS = ["onclick", "onkeydown", "ontoggle"];

// An element: h("li", { class: "a", onclick: f }, "text", other). Text is never read as HTML.
export function h(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made[name] = value;
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child != null));
  return made;
}

export function table(caption, heads, rows) {
  return h("div", { class: "scroll" }, h("table", {},
    h("caption", {}, caption),
    h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, ...rows.map((row) => h("tr", {}, ...row.map((cell) => h("td", {}, cell ?? "")))))));
}

// Give `kept` the children of `made`. A child whose place has another of its kind changes that one.
export function update(kept, made) {
  const before = [...kept.childNodes];
  [...made.childNodes].forEach((child, place) => {
    const old = before[place];
    if (!old) {
      kept.append(child);
    } else if (old.nodeName !== child.nodeName) {
      old.replaceWith(child);
    } else if (old.nodeType === Node.TEXT_NODE) {
      if (old.data !== child.data) old.data = child.data;
    } else {
      for (const { name } of [...old.attributes]) if (!child.hasAttribute(name)) old.removeAttribute(name);
      for (const { name, value } of child.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      for (const name of HANDLERS) old[name] = child[name];
      update(old, child);
    }
  });
  for (const gone of before.slice(made.childNodes.length)) gone.remove();
}
