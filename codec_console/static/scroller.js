// The rows in sight of a box that scrolls: put into the document as they come, and taken out as they go. Whatever the length,
// the document holds few of them. Styles that depend on measures are set through the object model.
import { make } from "./elements.js";
import { Layout } from "./layout.js";
import { GAP, Measure } from "./measure.js";
import { chip, endRow, headRow, waitRow } from "./rows.js";

const AROUND = 6;
const AHEAD = 20;
const ROWS = 2 ** 20;

export class Scroller {
  // `box`: what scrolls; `store`: gives the ids; `differs`: whether one is to be marked; `say`: where it tells of failures.
  constructor(box, store, differs, say) {
    this.box = box;
    this.store = store;
    this.differs = differs;
    this.say = say;
    this.rows = new Map();
    this.active = 0;
    this.space = make("div", "ids-space");
    this.space.setAttribute("role", "presentation");
    box.append(this.space);
    box.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  // Show a conversation as the server tells it.
  open(transcript) {
    this.transcript = transcript;
    this.layout = new Layout(transcript);
    this.active = this.layout.shownFrom(0, 1);
    this.resize();
    new ResizeObserver(() => this.resize()).observe(this.box);
  }

  // Show what the conversation has become, of which the first `same` ids are as they were.
  goOn(transcript, same) {
    const edge = this.edge();
    const before = this.layout;
    this.transcript = transcript;
    this.layout = new Layout(transcript, before.opened);
    const kept = this.layout.adopt(before, same);
    this.active = this.layout.shownFrom(Math.min(this.active, transcript.count - 1), -1);
    for (const key of [...this.rows.keys()]) if (key >= kept * ROWS) this.drop(key);
    this.keep({ ...edge, id: Math.min(edge.id, transcript.count - 1) });
  }

  // Rows that fit into the box.
  get page() {
    return Math.max(Math.floor(this.box.clientHeight / this.measure.height) - 1, 1);
  }

  // Lay all out anew where the room for it has changed; what stood at the upper edge stays there.
  resize() {
    const measure = new Measure(this.space);
    if (!measure.room) return;
    const edge = this.measure && this.edge();
    if (!measure.equals(this.measure)) {
      this.measure = measure;
      this.layout.forget();
      this.clear();
    }
    this.shown = Math.ceil(this.box.clientHeight / this.measure.height);
    if (edge) this.keep(edge);
    else this.draw();
  }

  // The first id in sight, and how far below the upper edge its row begins. The same for as long as nobody scrolls: row by
  // row it would move otherwise, for its row begins with an id before it.
  edge() {
    const top = this.box.scrollTop;
    if (this.held?.top === top) return this.held;
    const { height } = this.measure;
    let row = Math.min(Math.floor(top / height), this.layout.total - 1);
    while (row < this.layout.total - 1 && !this.layout.idsOf(row)) row += 1;
    const id = this.layout.idsOf(row)?.[0] ?? this.layout.count - 1;
    return { id, below: this.layout.rowOf(id) * height - top };
  }

  // Bring an id to where it stood, and remember that it was this one.
  keep({ id, below }) {
    this.settle(() => this.layout.rowOf(id) * this.measure.height - below);
    this.held = { id, below, top: this.box.scrollTop };
  }

  // Scroll to a place that may change as rows are laid out around it.
  settle(place) {
    for (let tries = 0; tries < 4; tries += 1) {
      const top = place();
      this.fit();
      this.box.scrollTop = top;
      this.draw();
      if (place() === top) return;
    }
  }

  // Make the space as high as all rows are.
  fit() {
    const size = this.layout.total * this.measure.height;
    if (size !== this.size) {
      this.space.style.blockSize = `${size}px`;
      this.size = size;
    }
  }

  // Open or fold the run that begins with this id. Its head keeps its place and its focus: what changes is below it.
  toggle(start) {
    const number = this.layout.segmentOf(start);
    const segment = this.layout.segments[number];
    const focused = this.space.contains(document.activeElement);
    this.drop(number * ROWS + segment.ends.length);
    this.layout.toggle(segment.run);
    this.active = this.layout.shownFrom(this.active, 1);
    this.held = undefined;
    this.draw();
    if (focused) this.space.querySelector(`.fold[data-run="${start}"]`)?.focus({ preventScroll: true });
  }

  // Open the run of an id, if it is folded.
  reveal(number) {
    const run = this.layout.runOf(number);
    if (this.layout.isFolded(run)) this.toggle(run.start);
  }

  // Scroll as little as brings an id into sight.
  show(number) {
    const { height } = this.measure;
    this.settle(() => {
      const [top, now] = [this.layout.rowOf(number) * height, this.box.scrollTop];
      if (top < now) return Math.max(top - height, 0);
      return Math.max(now, top + 2 * height - this.box.clientHeight);
    });
  }

  scrolled() {
    if (this.box.scrollTop !== this.held?.top) this.held = undefined;
    this.later();
  }

  later() {
    if (this.frameAsked) return;
    this.frameAsked = true;
    requestAnimationFrame(() => {
      this.frameAsked = false;
      this.draw();
    });
  }

  clear() {
    for (const key of [...this.rows.keys()]) this.drop(key);
  }

  // Put the rows in sight into the document, and the active chip's; take out all others. Measures are read before anything
  // is written: a page that must be laid out in between is slow.
  draw() {
    const focused = this.hadFocus || this.space.contains(document.activeElement);
    const before = this.box.scrollTop;
    const top = this.pack(before);
    const first = Math.min(Math.floor(top / this.measure.height), this.layout.total - 1);
    const [from, to] = [Math.max(first - AROUND, 0), Math.min(first + this.shown + AROUND, this.layout.total)];
    this.fit();
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
    // A row that is made anew takes the focus with it, once its ids have come.
    if (focused && !this.space.contains(document.activeElement)) this.chipOf(this.active)?.focus({ preventScroll: true });
    this.hadFocus = focused && !this.space.contains(document.activeElement) && document.activeElement === document.body;
  }

  // A row's name that stays when others move it: its segment, and its number there.
  keyOf(row) {
    const number = this.layout.segmentAt(row);
    return number * ROWS + row - this.layout.tops[number];
  }

  drop(key) {
    const row = this.rows.get(key);
    this.hadFocus ||= row?.contains(document.activeElement) ?? false;
    row?.remove();
    this.rows.delete(key);
  }

  // Cut the segments in sight into rows of their own, where their ids are there. Gives where the view then begins.
  pack(top) {
    const { height } = this.measure;
    const anchor = this.layout.segmentAt(Math.min(Math.floor(top / height), this.layout.total - 1));
    const above = top - this.layout.tops[anchor] * height;
    for (;;) {
      const first = Math.floor((this.layout.tops[anchor] * height + above) / height);
      const [from, to] = [Math.max(first - AHEAD, 0), first + this.shown + AHEAD];
      let moved = false;
      for (let number = this.layout.segmentAt(from); number < this.layout.segments.length && this.layout.tops[number] < to; number += 1) {
        const segment = this.layout.segments[number];
        if (segment.rows || this.layout.isFolded(segment.run)) continue;
        if (this.store.has(segment.start, segment.stop)) {
          this.packOne(segment, number);
          moved = true;
        } else this.fetch(segment);
      }
      if (!moved) return Math.max(this.layout.tops[anchor] * height + above, 0);
      this.layout.measure();
    }
  }

  packOne(segment, number) {
    const widths = [];
    for (let id = segment.start; id < segment.stop; id += 1) widths.push(this.measure.widthOf(this.store.get(id).label) + GAP);
    for (let within = this.layout.size(segment); within >= 0; within -= 1) this.drop(number * ROWS + within);
    this.layout.pack(segment, widths, this.measure.room + GAP);
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
      element.style.transform = `translateY(${row * this.measure.height}px)`;
    }
    return element;
  }

  make(row) {
    const number = this.layout.segmentAt(row);
    const segment = this.layout.segments[number];
    const { run } = segment;
    const within = row - this.layout.tops[number];
    if (within < segment.ends.length) return endRow(segment.ends[within]);
    if (within < this.layout.before(segment)) {
      return headRow(run, this.transcript.calls[run.call], this.layout.canFold(run) ? this.layout.isFolded(run) : null);
    }
    const [start, stop] = this.layout.idsOf(row);
    if (!this.store.has(start, stop)) {
      this.fetch(segment);
      return waitRow(run);
    }
    const element = make("div", `src-${run.source}`);
    for (let id = start; id < stop; id += 1) {
      const told = this.store.get(id);
      const marks = { active: id === this.active, differs: this.differs(id) };
      element.append(chip(told, run, this.measure.widthOf(told.label), marks));
    }
    return element;
  }

  chipOf(number) {
    return this.space.querySelector(`.id-chip[data-n="${number}"]`);
  }

  // Make the chip of an id the one that the keyboard reaches, and give it the focus. Gives whether it is there.
  focus(number) {
    const before = this.space.querySelector(".id-chip[tabindex='0']");
    if (before) before.tabIndex = -1;
    this.active = number;
    this.show(number);
    const found = this.chipOf(number);
    if (!found) return false;
    found.tabIndex = 0;
    found.focus({ preventScroll: true });
    // The box may be out of sight itself.
    found.scrollIntoView({ block: "nearest" });
    return true;
  }
}
