// The viewer: every id of a conversation as a chip in reading order. Only rows in sight are in the document, whatever the
// length; words come as data and go in as text. Styles that depend on measures are set through the object model.
import { Layout } from "./layout.js";
import { fromBase64, hex, spell } from "./spelling.js";
import { Store } from "./store.js";

const AROUND = 6;
const AHEAD = 20;
const ROWS = 2 ** 20;
const WIDTHS = 20_000;
const GAP = 4;
const SHADES = 5;
const NAMES = { unknown: "source not known" };
const count = new Intl.NumberFormat("en");

function make(kind, name, text) {
  const element = document.createElement(kind);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
}

function nameOf(source) {
  return NAMES[source] ?? source;
}

class Viewer {
  constructor(place) {
    this.place = place;
    this.store = new Store(place.dataset.address, place.dataset.answer, Number(place.dataset.range));
    this.rows = new Map();
    this.active = 0;
    this.others = new Map();
    this.asked = 0;
  }

  async open() {
    this.seen = await this.store.ask("seen.json");
    if (!this.seen.count) {
      this.place.append(make("p", "empty", "This conversation has no ids."));
      return;
    }
    this.layout = new Layout(this.seen);
    this.build();
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.box);
    await this.store.load(0, 1);
    this.draw();
  }

  build() {
    const tools = make("div", "viewer-tools");
    this.compare = make("button", "quiet", "Compare with the text path");
    this.compare.type = "button";
    this.compare.addEventListener("click", () => this.compareAll());
    this.status = make("p", "viewer-status");
    this.status.setAttribute("role", "status");
    tools.append(this.compare, this.status);
    this.box = make("div", "ids");
    this.box.setAttribute("role", "grid");
    this.box.setAttribute("aria-readonly", "true");
    this.box.setAttribute("aria-label", `${count.format(this.seen.count)} ids in reading order`);
    this.space = make("div", "ids-space");
    this.space.setAttribute("role", "presentation");
    this.box.append(this.space);
    this.details = make("dl", "id-details");
    const hint = make("div");
    hint.append(make("dt", "", "An id’s text, bytes and source"), make("dd", "", "point at it, or move with the arrow keys"));
    this.details.append(hint);
    this.place.append(tools, this.box, this.details);
    this.box.addEventListener("scroll", () => this.later(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.press(event));
    this.box.addEventListener("pointerover", (event) => this.point(event));
    this.box.addEventListener("click", (event) => this.click(event));
    for (const link of document.querySelectorAll(".to-id")) {
      link.addEventListener("click", (event) => {
        event.preventDefault();
        this.go(Number(link.dataset.id));
      });
    }
  }

  // Widths: of a sign of the chips' font, and of what stands around a chip's text.
  resize() {
    const probe = make("span", "id-chip", "0");
    const row = make("div", "id-row");
    row.append(probe);
    this.space.append(row);
    const style = getComputedStyle(probe);
    this.font = document.createElement("canvas").getContext("2d");
    this.font.font = `${style.fontSize} ${style.fontFamily}`;
    this.sign = this.font.measureText("0").width;
    this.frame = ["paddingLeft", "paddingRight", "borderLeftWidth", "borderRightWidth"].reduce((sum, each) => sum + parseFloat(style[each]), 0);
    this.height = row.getBoundingClientRect().height;
    row.remove();
    const room = this.space.clientWidth;
    this.shown = Math.ceil(this.box.clientHeight / this.height);
    if (room === this.room || !room) return this.draw();
    const first = this.room === undefined ? 0 : this.firstRow();
    const top = this.room === undefined ? null : this.layout.idsOf(first) ?? this.layout.idsOf(Math.min(first + 1, this.layout.total - 1));
    this.room = room;
    this.widths = new Map();
    this.layout.forget();
    this.clear();
    this.draw();
    if (top) this.show(top[0], true);
  }

  firstRow() {
    return Math.min(Math.floor(this.box.scrollTop / this.height), this.layout.total - 1);
  }

  widthOf(label) {
    let width = this.widths.get(label);
    if (width === undefined) {
      const text = /^[ -~·↵]*$/.test(label) ? label.length * this.sign : this.font.measureText(label).width;
      width = Math.min(Math.ceil(text + this.frame) + 1, this.room - GAP);
      if (this.widths.size > WIDTHS) this.widths.clear();
      this.widths.set(label, width);
    }
    return width;
  }

  clear() {
    for (const element of this.rows.values()) element.remove();
    this.rows.clear();
  }

  later() {
    if (this.frameAsked) return;
    this.frameAsked = true;
    requestAnimationFrame(() => {
      this.frameAsked = false;
      this.draw();
    });
  }

  // Put the rows in sight into the document, and the active chip's; take out all others. Measures are read before anything
  // is written: a page that must be laid out in between is slow.
  draw() {
    const focused = this.space.contains(document.activeElement);
    const before = this.box.scrollTop;
    const top = this.pack(before);
    const first = Math.min(Math.floor(top / this.height), this.layout.total - 1);
    const [from, to] = [Math.max(first - AROUND, 0), Math.min(first + this.shown + AROUND, this.layout.total)];
    const size = this.layout.total * this.height;
    if (size !== this.size) {
      this.space.style.blockSize = `${size}px`;
      this.size = size;
    }
    if (top !== before) this.box.scrollTop = top;
    const active = this.layout.rowOf(this.active);
    const wanted = [];
    if (active < from) wanted.push(active);
    for (let row = from; row < to; row += 1) wanted.push(row);
    if (active >= to) wanted.push(active);
    const keys = new Set(wanted.map((row) => this.keyOf(row)));
    for (const [key, element] of this.rows) {
      if (!keys.has(key) || element.dataset.waits) this.drop(key);
    }
    let last = null;
    for (const row of wanted) last = this.put(row, last);
    // A row whose ids have come is made anew, and takes the focus with it.
    if (focused && !this.space.contains(document.activeElement)) this.chipOf(this.active)?.focus({ preventScroll: true });
  }

  // A row's name that stays when others move it: its segment, and its number there.
  keyOf(row) {
    const number = this.layout.segmentAt(row);
    return number * ROWS + row - this.layout.tops[number];
  }

  drop(key) {
    this.rows.get(key)?.remove();
    this.rows.delete(key);
  }

  // Cut the segments in sight into rows of their own, where their ids are there. Gives where the view then begins.
  pack(top) {
    const anchor = this.layout.segmentAt(Math.min(Math.floor(top / this.height), this.layout.total - 1));
    const above = top - this.layout.tops[anchor] * this.height;
    for (;;) {
      const first = Math.floor((this.layout.tops[anchor] * this.height + above) / this.height);
      const [from, to] = [Math.max(first - AHEAD, 0), first + this.shown + AHEAD];
      let moved = false;
      for (let number = this.layout.segmentAt(from); number < this.layout.segments.length && this.layout.tops[number] < to; number += 1) {
        const segment = this.layout.segments[number];
        if (segment.rows) continue;
        if (this.store.has(segment.start, segment.stop)) {
          this.packOne(segment, number);
          moved = true;
        } else this.fetch(segment);
      }
      if (!moved) return Math.max(this.layout.tops[anchor] * this.height + above, 0);
      this.layout.measure();
    }
  }

  packOne(segment, number) {
    const widths = [];
    for (let id = segment.start; id < segment.stop; id += 1) widths.push(this.widthOf(this.store.get(id).label) + GAP);
    for (let within = this.layout.size(segment); within >= 0; within -= 1) this.drop(number * ROWS + within);
    this.layout.pack(segment, widths, this.room + GAP);
  }

  fetch(segment) {
    this.store.load(segment.start, segment.stop).then(() => this.later(), (error) => this.say(error.message));
  }

  // The element of a row, made if there is none, behind another.
  put(row, last) {
    const key = this.keyOf(row);
    let element = this.rows.get(key);
    if (!element) {
      element = this.make(row);
      element.classList.add("id-row");
      element.setAttribute("role", "row");
      if (last) last.after(element);
      else this.space.prepend(element);
      this.rows.set(key, element);
    }
    if (element.dataset.row !== String(row)) {
      element.dataset.row = String(row);
      element.setAttribute("aria-rowindex", String(row + 1));
      element.style.transform = `translateY(${row * this.height}px)`;
    }
    return element;
  }

  make(row) {
    const number = this.layout.segmentAt(row);
    const segment = this.layout.segments[number];
    const within = row - this.layout.tops[number];
    if (within < segment.ends.length) return this.makeEnd(segment.ends[within]);
    if (within < this.layout.before(segment)) return this.makeHead(segment.run);
    const [start, stop] = this.layout.idsOf(row);
    const element = make("div", `src-${segment.run.source}`);
    if (!this.store.has(start, stop)) {
      element.dataset.waits = "1";
      element.append(cell("id-wait", "…"));
      this.fetch(segment);
      return element;
    }
    for (let id = start; id < stop; id += 1) element.append(this.chip(this.store.get(id), segment.run));
    return element;
  }

  makeEnd({ turn, cached, held, prompt }) {
    const lost = Math.max(held - cached, 0);
    const element = make("div", lost ? "cache-end cut" : held ? "cache-end" : "cache-end none");
    const found = `${count.format(cached)} of ${count.format(prompt)} ids in the cache`;
    const end = lost ? `, ${count.format(lost)} lost` : "";
    element.append(cell("", `Turn ${turn + 1}: ${held || cached ? found : "nothing in the cache"}${end}`));
    return element;
  }

  makeHead(run) {
    const element = make("div", `run-head src-${run.source}`);
    const name = cell("", "");
    name.append(make("span", "swatch"), make("b", "", nameOf(run.source)), make("span", "", `${count.format(run.count)} ${run.count === 1 ? "id" : "ids"}`));
    if (run.tool) name.append(make("span", "", run.server ? `${run.tool} on ${run.server}` : run.tool));
    const call = run.call === null ? null : this.seen.calls[run.call];
    if (call) {
      const seconds = call.seconds === null ? "" : `, ${call.seconds < 1 ? `${Math.round(call.seconds * 1000)} ms` : `${call.seconds.toFixed(1)} s`}`;
      name.append(make("span", "", `result of turn ${call.turn + 1}'s call${seconds}`));
    }
    element.append(name);
    return element;
  }

  chip(told, run) {
    const chip = cell("id-chip", told.label);
    if (told.special) chip.classList.add("special");
    if (told.logprob !== null) chip.classList.add(`sure-${Math.min(Math.floor(Math.exp(told.logprob) * SHADES), SHADES - 1)}`);
    if (this.others.has(told.number)) chip.classList.add("differs");
    chip.dataset.n = String(told.number);
    chip.tabIndex = told.number === this.active ? 0 : -1;
    chip.setAttribute("aria-label", `${told.label}${told.piece && told.id !== null ? `, id ${told.id}` : ""}, ${nameOf(run.source)}${told.special ? ", special" : ""}`);
    chip.style.inlineSize = `${this.widthOf(told.label)}px`;
    return chip;
  }

  say(words) {
    this.status.textContent = words;
  }

  // Which id an event is about; null: none.
  numberOf(event) {
    const chip = event.target.closest(".id-chip");
    return chip ? Number(chip.dataset.n) : null;
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
    const number = this.numberOf(event);
    if (number !== null) this.go(number);
  }

  press(event) {
    if (event.altKey || event.metaKey) return;
    const page = Math.max(Math.floor(this.box.clientHeight / this.height) - 1, 1);
    const row = () => this.layout.idsOf(this.layout.rowOf(this.active));
    const to = {
      ArrowLeft: () => this.active - 1,
      ArrowRight: () => this.active + 1,
      ArrowUp: () => this.beside(-1),
      ArrowDown: () => this.beside(1),
      PageUp: () => this.beside(-page),
      PageDown: () => this.beside(page),
      Home: () => (event.ctrlKey ? 0 : row()[0]),
      End: () => (event.ctrlKey ? this.seen.count - 1 : row()[1] - 1),
    }[event.key];
    if (!to) return;
    event.preventDefault();
    this.go(Math.min(Math.max(to(), 0), this.seen.count - 1));
  }

  // The id that stands so many rows further down, as far along its row.
  beside(rows) {
    const here = this.layout.rowOf(this.active);
    const along = this.active - this.layout.idsOf(here)[0];
    const step = Math.sign(rows);
    let row = Math.min(Math.max(here + rows, 0), this.layout.total - 1);
    while (row > 0 && row < this.layout.total - 1 && !this.layout.idsOf(row)) row += step;
    const ids = this.layout.idsOf(row);
    if (!ids) return step < 0 ? 0 : this.seen.count - 1;
    return Math.min(ids[0] + along, ids[1] - 1);
  }

  // Make an id the active one: fetched, in sight, with the focus.
  async go(number) {
    const asked = (this.asked += 1);
    if (!this.store.has(number, number + 1)) await this.store.load(number, number + 1).catch((error) => this.say(error.message));
    if (asked !== this.asked || !this.store.get(number)) return;
    const before = this.space.querySelector(".id-chip[tabindex='0']");
    if (before) before.tabIndex = -1;
    this.active = number;
    this.show(number, false);
    const chip = this.chipOf(number);
    if (!chip) return;
    chip.tabIndex = 0;
    chip.focus({ preventScroll: true });
    this.describe(number);
  }

  chipOf(number) {
    return this.space.querySelector(`.id-chip[data-n="${number}"]`);
  }

  show(number, atTop) {
    for (let tries = 0; tries < 4; tries += 1) {
      const top = this.layout.rowOf(number) * this.height;
      if (atTop || top < this.box.scrollTop) this.box.scrollTop = top - (atTop ? 0 : this.height);
      else if (top + 2 * this.height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + 2 * this.height - this.box.clientHeight;
      this.draw();
      if (this.layout.rowOf(number) * this.height === top) return;
    }
  }

  describe(number) {
    const told = this.store.get(number);
    if (!told || this.described === number) return;
    this.described = number;
    const { run } = this.layout.segments[this.layout.segmentOf(number)];
    const facts = [["place", count.format(number)], ["id", told.id === null ? "not shown: it spells a secret" : String(told.id)]];
    if (told.piece && told.id !== null) facts.push(["text", spell(told.piece, 200)], ["bytes", hex(told.piece.subarray(0, 64))]);
    facts.push(["source", run.tool ? `${nameOf(run.source)}: ${run.tool}` : nameOf(run.source)]);
    if (told.special) facts.push(["kind", "special token"]);
    if (told.logprob !== null) facts.push(["probability", `${(Math.exp(told.logprob) * 100).toFixed(1)} % (log ${told.logprob.toFixed(2)})`]);
    const other = this.others.get(number);
    if (other) facts.push(["text path", spellOther(other)]);
    this.details.replaceChildren(...facts.map(([name, value]) => {
      const pair = make("div");
      pair.append(make("dt", "", name), make("dd", "", value));
      return pair;
    }));
  }

  // Ask, part by part, what a gateway that keeps texts would hold in place of these ids.
  async compareAll() {
    this.compare.disabled = true;
    this.others.clear();
    let [places, ids, unread] = [0, 0, 0];
    try {
      for (let next = 0; next !== null; ) {
        this.say(`Comparing: ${count.format(next)} of ${count.format(this.seen.count)} ids`);
        const told = await this.store.ask("differences.json", { from: next });
        if (!told.known) throw new Error("Not known: the map of this conversation is not here, or can't encode.");
        unread += told.unread;
        for (const each of told.differences) {
          places += 1;
          ids += each.count;
          for (let n = 0; n < each.count; n += 1) this.others.set(each.at + n, each);
        }
        next = told.next;
      }
      const left = unread ? `; ${count.format(unread)} ids were not compared` : "";
      this.say(places ? `${count.format(ids)} ids at ${count.format(places)} places would come back as others, underlined here${left}.` : `Every id would come back as it is${left}.`);
    } catch (error) {
      this.say(error.message);
    }
    this.compare.disabled = false;
    this.described = null;
    const focused = this.space.contains(document.activeElement);
    this.clear();
    this.draw();
    if (focused) this.go(this.active);
  }
}

function cell(name, text) {
  const element = make("span", name, text);
  element.setAttribute("role", "gridcell");
  return element;
}

function spellOther(other) {
  if (!other.ids.length) return "others, not shown: these spell a secret";
  return other.ids.map((id, n) => (other.bytes ? `${spell(fromBase64(other.bytes[n]))} (${id})` : String(id))).join("  ");
}

const place = document.getElementById("viewer");
if (place) {
  const viewer = new Viewer(place);
  viewer.open().catch((error) => place.append(make("p", "problem", error.message)));
}
