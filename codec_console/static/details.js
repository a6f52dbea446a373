// What is known of one id, as pairs of a name and a value.
import { count, make, nameOf } from "./elements.js";
import { fromBase64, hex, spell } from "./spelling.js";

const HINT = [["A token’s text, bytes and source", "point at it, or move with the arrow keys"]];

export class Details {
  constructor() {
    this.list = make("dl", "id-details");
    // It scrolls where an id has much to tell: by the keyboard too.
    this.list.tabIndex = 0;
    this.show(HINT);
  }

  show(facts) {
    this.list.replaceChildren(...facts.map(([name, value]) => {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", value));
      return pair;
    }));
  }

  // `other`: what a text path would hold in its place; undefined: the same.
  describe(told, run, other) {
    const facts = [["place", count.format(told.number)], ["id", idOf(told)]];
    if (told.piece && told.id !== null) facts.push(["text", spell(told.piece, 200)], ["bytes", hex(told.piece.subarray(0, 64))]);
    facts.push(["source", run.tool ? `${nameOf(run.source)}: ${run.tool}` : nameOf(run.source)]);
    if (told.special) facts.push(["kind", "special token"]);
    if (told.logprob !== null) facts.push(["probability", `${(Math.exp(told.logprob) * 100).toFixed(1)} % (log ${told.logprob.toFixed(2)})`]);
    if (other) facts.push(["text path", spellOther(other)]);
    this.show(facts);
  }
}

function idOf({ id, withheld }) {
  if (withheld) return "not shown: text of conversations is switched off";
  return id === null ? "not shown: it spells a secret" : String(id);
}

function spellOther(other) {
  if (!other.ids.length) return "other ids, not shown: they spell a secret";
  return other.ids.map((id, n) => `${spell(fromBase64(other.bytes[n]))} (${id})`).join("  ");
}
