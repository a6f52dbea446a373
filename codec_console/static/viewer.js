// The viewer: every id of a conversation as a chip in reading order, and what is known of the one that somebody looks at.
import { Details } from "./details.js";
import { count, make } from "./elements.js";
import { idByKey } from "./keys.js";
import { Scroller } from "./scroller.js";
import { Store } from "./store.js";
import { TextPath } from "./text_path.js";

export class Viewer {
  constructor(place) {
    this.place = place;
    this.store = new Store(place.dataset.address, place.dataset.answer, Number(place.dataset.range));
    this.textPath = new TextPath(this.store, (words) => this.say(words));
    this.asked = 0;
  }

  async open() {
    this.transcript = await this.store.ask("transcript.json");
    if (!this.transcript.count) {
      this.place.append(make("p", "empty", "This conversation has no tokens."));
      return;
    }
    this.build();
    this.rows.open(this.transcript);
    await this.store.load(0, 1);
    this.rows.draw();
  }

  build() {
    const tools = make("div", "viewer-tools");
    this.compare = make("button", "quiet", "Compare with the text path");
    this.compare.type = "button";
    this.compare.addEventListener("click", () => this.compareAll());
    this.status = make("p", "viewer-status");
    this.status.setAttribute("role", "status");
    // Without ids there is nothing to compare.
    if (this.transcript.ids) tools.append(this.compare);
    tools.append(this.makeJumps(), this.status);
    this.box = make("div", "ids");
    this.box.setAttribute("role", "grid");
    this.box.setAttribute("aria-readonly", "true");
    this.name();
    this.rows = new Scroller(this.box, this.store, (id) => this.textPath.others.has(id), (words) => this.say(words));
    this.details = new Details();
    this.place.append(tools, this.box, this.details.list);
    this.place.addEventListener("keydown", (event) => this.jumpByKey(event));
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.box.addEventListener("pointerover", (event) => this.point(event));
    this.box.addEventListener("click", (event) => this.click(event));
  }

  // Buttons that lead from one place that differs to the next; hidden until some are known.
  makeJumps() {
    this.jumps = make("span", "jumps");
    this.jumps.hidden = true;
    this.jumpCount = make("span", "jump-count");
    const [before, after] = [["Previous", "p", -1], ["Next", "n", 1]].map(([words, key, step]) => {
      const button = make("button", "quiet", words);
      button.type = "button";
      button.setAttribute("aria-label", `${words} place that differs`);
      button.setAttribute("aria-keyshortcuts", key);
      button.title = `Key: ${key}`;
      button.addEventListener("click", () => this.jump(step));
      return button;
    });
    this.jumps.append(before, this.jumpCount, after);
    return this.jumps;
  }

  // What the buttons say once other places are known.
  countPlaces() {
    const places = this.textPath.places.length;
    this.jumps.hidden = !places;
    this.jumpCount.textContent = `${count.format(places)} ${places === 1 ? "place" : "places"}`;
  }

  jumpByKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || this.jumps.hidden) return;
    const step = { n: 1, p: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    this.jump(step);
  }

  // Before anybody has moved, the next place is the first one, even if it begins with the first id.
  async jump(step) {
    const { at, number } = this.textPath.next(this.moved ? this.rows.active : -1, step);
    const words = `${count.format(number)} of ${count.format(this.textPath.places.length)}`;
    this.jumpCount.textContent = words;
    await this.go(at);
    this.say(`Place ${words}: token ${count.format(at)}.`);
  }

  // Show another answer, with which the conversation went on. Gives how it was told before, and how it is now.
  async goOn(answer) {
    const before = this.transcript;
    const transcript = await this.store.ask("transcript.json", { answer });
    const same = sharedIds(before, transcript);
    this.transcript = transcript;
    this.store.goOn(answer, same);
    this.textPath.cut(same);
    this.countPlaces();
    this.name();
    this.described = null;
    this.rows.goOn(transcript, same);
    return [before, transcript];
  }

  name() {
    this.box.setAttribute("aria-label", `${count.format(this.transcript.count)} tokens in reading order`);
  }

  say(words) {
    this.status.textContent = words;
  }

  // Which id an event is about; null: none.
  numberOf(event) {
    const found = event.target.closest(".id-chip");
    return found ? Number(found.dataset.n) : null;
  }

  point(event) {
    const number = this.numberOf(event);
    if (number === null) return;
    // While rows pass under a pointer at rest, the last one counts.
    if (this.pointed === undefined) requestAnimationFrame(() => {
      this.describe(this.pointed);
      this.pointed = undefined;
    });
    this.pointed = number;
  }

  click(event) {
    const fold = event.target.closest(".fold");
    if (fold) {
      this.rows.toggle(Number(fold.dataset.run));
      return;
    }
    const number = this.numberOf(event);
    if (number !== null) this.go(number);
  }

  press(event) {
    const number = idByKey(event, this.rows.layout, this.rows.active, this.rows.page);
    if (number === null) return;
    event.preventDefault();
    this.go(number);
  }

  // Make an id the active one: fetched, in sight, with the focus.
  async go(number) {
    if (!this.rows) return;
    const asked = (this.asked += 1);
    this.moved = true;
    this.rows.reveal(number);
    if (!this.store.has(number, number + 1)) await this.store.load(number, number + 1).catch((error) => this.say(error.message));
    if (asked === this.asked && this.store.get(number) && this.rows.focus(number)) this.describe(number);
  }

  describe(number) {
    const told = this.store.get(number);
    if (!told || this.described === number) return;
    this.described = number;
    this.details.describe(told, this.rows.layout.runOf(number), this.textPath.others.get(number));
  }

  async compareAll() {
    if (this.compare.ariaDisabled) return;
    // Not `disabled`: that takes the focus from a button.
    this.compare.ariaDisabled = "true";
    await this.textPath.compare(this.transcript.count);
    this.compare.ariaDisabled = null;
    this.countPlaces();
    this.described = null;
    this.rows.clear();
    this.rows.draw();
  }
}

// With how many ids of one answer another begins that came after it.
function sharedIds(before, transcript) {
  const behind = transcript.answers.findIndex(([answer]) => answer === before.answer) + 1;
  return behind ? Math.min(before.count, ...transcript.answers.slice(behind).map(([, kept]) => kept)) : 0;
}
