// Elements of the viewer's page. Words go in as text, never as markup.
const NAMES = { unknown: "source not known", tools: "tool definitions" };

export const count = new Intl.NumberFormat("en");

export function make(kind, name, text) {
  const element = document.createElement(kind);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

export function cell(name, text) {
  const element = make("span", name, text);
  element.setAttribute("role", "gridcell");
  return element;
}

// What a source is called.
export function nameOf(source) {
  return NAMES[source] ?? source;
}
