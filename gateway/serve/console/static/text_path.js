// What a gateway that keeps texts would hold in place of the ids: asked part by part, kept for each id that differs.
import { count } from "./elements.js";

export class TextPath {
  // `say`: where it tells how far it is, and what it found.
  constructor(store, say) {
    this.store = store;
    this.say = say;
    this.others = new Map();
  }

  // Forget what was found from an id on.
  cut(from) {
    for (const number of [...this.others.keys()]) if (number >= from) this.others.delete(number);
  }

  async compare(total) {
    this.others.clear();
    let [places, ids, unread] = [0, 0, 0];
    try {
      for (let next = 0; next !== null; ) {
        this.say(`Comparing: ${count.format(next)} of ${count.format(total)} ids`);
        const told = await this.store.ask("differences.json", { from: next });
        if (!told.known) throw new Error("Not known: this conversation's map is not available here, or can't encode.");
        unread += told.unread;
        for (const each of told.differences) {
          places += 1;
          ids += each.count;
          for (let n = 0; n < each.count; n += 1) this.others.set(each.at + n, each);
        }
        next = told.next;
      }
      const left = unread ? `; ${count.format(unread)} ids were not compared` : "";
      this.say(places ? `${count.format(ids)} ids at ${count.format(places)} places would come back as other ids, underlined here${left}.` : `Every id would come back unchanged${left}.`);
    } catch (error) {
      this.say(error.message);
    }
  }
}
