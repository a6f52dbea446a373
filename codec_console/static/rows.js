// The rows that can be seen: a line where the cache ended, the head of a run, chips, and what waits for its ids.
import { cell, count, make, nameOf } from "./elements.js";

const SHADES = 5;

export function endRow({ turn, cached, held, prompt }) {
  // What could have been cached and was not; the rest of the prompt is new. The last token of a generation may have been
  // sampled and never processed, so one less than all of them is all of them.
  const recomputed = held - cached > 1 ? held - cached : 0;
  const row = make("div", recomputed ? "cache-end cut" : held ? "cache-end" : "cache-end none");
  const found = held || cached ? `${count.format(cached)} of ${count.format(prompt)} prompt tokens cached` : "no prompt token cached";
  const words = cell("", "");
  words.append(make("span", "", `Turn ${turn + 1}: ${found}`));
  if (recomputed) words.append(make("span", "", `${count.format(recomputed)} recomputed`));
  row.append(words);
  return row;
}

// `call`: whose result the run is; undefined: of none. `fold`: whether it is folded; null: it can't be.
export function headRow(run, call, fold) {
  const row = make("div", `run-head src-${run.source}`);
  const name = cell("", "");
  name.append(make("span", "swatch"), make("b", "", nameOf(run.source)), make("span", "", `${count.format(run.count)} ${run.count === 1 ? "token" : "tokens"}`));
  if (run.tool) name.append(make("span", "", run.server ? `${run.tool} on ${run.server}` : run.tool));
  if (call) name.append(make("span", "", `result of turn ${call.turn + 1}'s call${secondsOf(call)}`));
  if (fold !== null) {
    const button = make("button", "fold", fold ? "Show" : "Hide");
    button.type = "button";
    button.dataset.run = String(run.start);
    button.setAttribute("aria-expanded", String(!fold));
    button.setAttribute("aria-label", `${fold ? "Show" : "Hide"} ${count.format(run.count)} tokens: ${nameOf(run.source)}`);
    name.append(button);
  }
  row.append(name);
  return row;
}

function secondsOf({ seconds }) {
  if (seconds === null) return "";
  return seconds < 1 ? `, ${Math.round(seconds * 1000)} ms` : `, ${seconds.toFixed(1)} s`;
}

export function waitRow(run) {
  const row = make("div", `src-${run.source}`);
  row.dataset.waits = "1";
  row.append(cell("id-wait", "…"));
  return row;
}

// `told`: the id; `width`: of its chip.
export function chip(told, run, width, { active, differs }) {
  const element = cell("id-chip", told.label);
  if (told.special) element.classList.add("special");
  if (told.logprob !== null) element.classList.add(`sure-${Math.min(Math.floor(Math.exp(told.logprob) * SHADES), SHADES - 1)}`);
  if (differs) element.classList.add("differs");
  element.dataset.n = String(told.number);
  element.tabIndex = active ? 0 : -1;
  const label = [told.withheld ? "not shown" : told.label];
  if (told.piece && told.id !== null) label.push(`id ${told.id}`);
  label.push(nameOf(run.source));
  if (told.special) label.push("special");
  if (differs) label.push("different in the text path");
  element.setAttribute("aria-label", label.join(", "));
  element.style.inlineSize = `${width}px`;
  return element;
}
