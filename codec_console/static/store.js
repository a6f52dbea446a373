// Ids by ranges, as they are asked for: each range is fetched once, and the ones used longest ago go first.
import { fromBase64, label } from "./spelling.js";

const MOST = 24;

export class Store {
  constructor(address, answer, range) {
    this.address = address;
    this.answer = answer;
    this.range = range;
    this.ranges = new Map();
    this.waiting = new Map();
  }

  async ask(what, asked = {}) {
    const query = new URLSearchParams({ answer: this.answer, ...asked });
    const answer = await fetch(`${this.address}/${what}?${query}`, { headers: { accept: "application/json" } });
    if (answer.redirected || !(answer.headers.get("content-type") ?? "").includes("json")) throw new Error("You are signed out.");
    const told = await answer.json();
    if (!answer.ok) throw new Error(told.error ?? "The gateway did not answer.");
    return told;
  }

  // Give the ids of another answer from now on, of which the first `same` are those of the one before.
  goOn(answer, same) {
    this.answer = answer;
    this.waiting = new Map();
    for (const [key, range] of this.ranges) {
      if (range.stop > same || range.made.length < this.range) this.ranges.delete(key);
    }
  }

  // An id with all that is known of it; null until its range is there.
  get(number) {
    const key = Math.floor(number / this.range);
    const range = this.ranges.get(key);
    return range && number - key * this.range < range.made.length ? range.get(number - key * this.range) : null;
  }

  has(start, stop) {
    for (let key = Math.floor(start / this.range); key * this.range < stop; key += 1) {
      if (!this.ranges.has(key)) return false;
    }
    return true;
  }

  // Fetch what is missing of these ids.
  async load(start, stop) {
    const missing = [];
    for (let key = Math.floor(start / this.range); key * this.range < stop; key += 1) {
      const range = this.ranges.get(key);
      if (!range) missing.push(this.fetch(key));
      else {
        this.ranges.delete(key);
        this.ranges.set(key, range);
      }
    }
    await Promise.all(missing);
  }

  fetch(key) {
    const { answer, waiting } = this;
    if (!waiting.has(key)) {
      const fetched = this.ask("ids.json", { from: key * this.range, count: this.range }).then((told) => {
        // Of an answer that is no longer shown.
        if (answer !== this.answer) return;
        this.ranges.set(key, new Range(told));
        if (this.ranges.size > MOST) this.ranges.delete(this.ranges.keys().next().value);
      });
      waiting.set(key, fetched.finally(() => waiting.delete(key)));
    }
    return waiting.get(key);
  }
}

// One range. What is to be shown of an id is made when it is first asked for: a range as a whole would take too long.
class Range {
  constructor(told) {
    this.told = told;
    this.special = new Set(told.special ?? []);
    this.bytes = told.bytes === undefined ? null : fromBase64(told.bytes);
    this.ends = told.sizes ? Uint32Array.from(told.sizes) : null;
    for (let n = 1; n < (this.ends?.length ?? 0); n += 1) this.ends[n] += this.ends[n - 1];
    this.made = new Array(told.count);
    this.stop = told.from + told.count;
  }

  get(n) {
    this.made[n] ??= this.make(n);
    return this.made[n];
  }

  make(n) {
    const { from, ids, logprobs } = this.told;
    // Where text may not be shown, ids are not sent.
    const withheld = !ids;
    const id = withheld ? null : ids[n];
    const piece = this.bytes && this.bytes.subarray(n ? this.ends[n - 1] : 0, this.ends[n]);
    return { number: from + n, id, withheld, piece, special: this.special.has(n), logprob: logprobs?.[n] ?? null, label: withheld ? "·" : label(id, piece) };
  }
}
