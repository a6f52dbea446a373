// What a gateway that keeps texts would hold in place of the ids: asked part by part, kept for each id that differs.
import { count } from "./elements.js";

export class TextPath {
  // `say`: where it tells how far it is, and what it found.
  constructor(store, say) {
    this.store = store;
    this.say = say;
    this.others = new Map();
    // The first id of each place, in order.
    this.places = [];
  }

  // Forget what was found from an id on.
  cut(from) {
    for (const number of [...this.others.keys()]) if (number >= from) this.others.delete(number);
    this.places = this.places.filter((at) => at < from);
  }

  // The place behind an id, or before it (`step` 1 or -1), and its number from 1; behind the last comes the first.
  next(from, step) {
    const { places } = this;
    const behind = places.filter((at) => (step > 0 ? at > from : at < from));
    const at = behind.at(step > 0 ? 0 : -1) ?? places.at(step > 0 ? 0 : -1);
    return { at, number: places.indexOf(at) + 1 };
  }

  async compare(total) {
    this.others.clear();
    this.places = [];
    let [ids, unread] = [0, 0];
    try {
      for (let next = 0; next !== null; ) {
        this.say(`Comparing: ${count.format(next)} of ${count.format(total)} tokens`);
        const told = await this.store.ask("differences.json", { from: next });
        if (!told.known) throw new Error("Not known: this conversation's map is not available here, or can't encode.");
        unread += told.unread;
        for (const each of told.differences) {
          this.places.push(each.at);
          ids += each.count;
          for (let n = 0; n < each.count; n += 1) this.others.set(each.at + n, each);
        }
        next = told.next;
      }
      const left = unread ? `; ${count.format(unread)} tokens were not compared` : "";
      const places = this.places.length;
      const where = `${count.format(places)} ${places === 1 ? "place" : "places"}`;
      this.say(places ? `${count.format(ids)} tokens at ${where} would get other ids if their text were tokenized again${left}. They are underlined.` : `Every token would keep its id${left}.`);
    } catch (error) {
      this.say(error.message);
    }
  }
}
