// Where each id stands: runs cut into segments, segments into rows of one height. Knows no document.
const SEGMENT = 512;
const PER_ROW = 12;
// Sources whose runs are folded until somebody opens them: most of a prompt, and the same in every conversation.
const FOLDED = new Set(["tools"]);

export class Layout {
  // `transcript` comes from the server. A segment lies in one run and begins where a cache ended, if one did. `opened`: where
  // the runs begin that somebody has opened.
  constructor(transcript, opened = new Set()) {
    this.segments = [];
    this.opened = opened;
    const ends = new Map();
    for (const [turn, cached, held, prompt] of transcript.cache_ends) {
      const at = Math.min(cached, transcript.count);
      ends.set(at, [...(ends.get(at) ?? []), { turn, cached, held, prompt }]);
    }
    const cuts = [...ends.keys()].sort((a, b) => a - b);
    let next = 0;
    for (const [start, count, source, tool, server, call] of transcript.runs) {
      const run = { start, count, source, tool, server, call };
      for (let at = start; at < start + count; ) {
        while (next < cuts.length && cuts[next] <= at) next += 1;
        const cut = next < cuts.length ? cuts[next] : Infinity;
        const stop = Math.min(start + count, at + SEGMENT, cut);
        this.segments.push({ start: at, stop, run, ends: ends.get(at) ?? [], head: at === start, rows: null });
        at = stop;
      }
    }
    this.count = transcript.count;
    this.per = PER_ROW;
    this.measure();
  }

  // Rows of a segment that hold no ids: its lines, and the head of its run.
  before(segment) {
    return segment.ends.length + (segment.head ? 1 : 0);
  }

  // Whether a run's ids have no rows, only its head and the lines in it.
  isFolded(run) {
    return FOLDED.has(run.source) && !this.opened.has(run.start);
  }

  canFold(run) {
    return FOLDED.has(run.source);
  }

  // Open a run or fold it.
  toggle(run) {
    if (!this.opened.delete(run.start)) this.opened.add(run.start);
    this.measure();
  }

  // This id if it has a row, otherwise the next one that does: towards `step` (1 or -1), or the other way if there is none.
  shownFrom(id, step) {
    for (const direction of [step, -step]) {
      for (let number = this.segmentOf(id); number >= 0 && number < this.segments.length; number += direction) {
        const { start, stop, run } = this.segments[number];
        if (!this.isFolded(run)) return Math.min(Math.max(id, start), stop - 1);
      }
    }
    return id;
  }

  size(segment) {
    if (this.isFolded(segment.run)) return this.before(segment);
    return this.before(segment) + (segment.rows?.length ?? Math.ceil((segment.stop - segment.start) / this.per));
  }

  // Count rows anew: of segments that nobody has looked at, by how many ids stood in others' rows.
  measure() {
    this.tops = new Array(this.segments.length + 1);
    let top = 0;
    this.segments.forEach((segment, number) => {
      this.tops[number] = top;
      top += this.size(segment);
    });
    this.tops[this.segments.length] = top;
  }

  get total() {
    return this.tops[this.segments.length];
  }

  forget() {
    for (const segment of this.segments) segment.rows = null;
    this.measure();
  }

  // Take over how another layout's first segments were put into rows, as far as they are the same, up to an id. Gives how many
  // segments that were.
  adopt(other, upTo) {
    const most = Math.min(this.segments.length, other.segments.length);
    let number = 0;
    while (number < most && this.segments[number].stop <= upTo && same(this.segments[number], other.segments[number])) {
      this.segments[number].rows = other.segments[number].rows;
      number += 1;
    }
    this.per = other.per;
    this.measure();
    return number;
  }

  // Put a segment's ids into rows. `widths`: of its chips, gaps included.
  pack(segment, widths, room) {
    const rows = [];
    let used = Infinity;
    widths.forEach((width, n) => {
      if (used + width > room) {
        rows.push(segment.start + n);
        used = 0;
      }
      used += width;
    });
    segment.rows = rows;
    if (segment.stop - segment.start === SEGMENT) this.per = Math.max(1, SEGMENT / rows.length);
  }

  segmentAt(row) {
    return search(this.segments.length, (n) => this.tops[n + 1] > row);
  }

  segmentOf(id) {
    return search(this.segments.length, (n) => this.segments[n].stop > id);
  }

  runOf(id) {
    return this.segments[this.segmentOf(id)].run;
  }

  // The row that an id stands in, counted over all; of a folded one, the head of its run.
  rowOf(id) {
    const number = this.segmentOf(id);
    const segment = this.segments[number];
    const { rows, run } = segment;
    if (this.isFolded(run)) {
      const first = this.segmentOf(run.start);
      return this.tops[first] + this.segments[first].ends.length;
    }
    const within = rows
      ? search(rows.length, (n) => n + 1 === rows.length || rows[n + 1] > id)
      : Math.floor((id - segment.start) / this.per);
    return this.tops[number] + this.before(segment) + within;
  }

  // First id of a row, and the first behind it; null where a row holds none.
  idsOf(row) {
    const number = this.segmentAt(row);
    const segment = this.segments[number];
    const within = row - this.tops[number] - this.before(segment);
    if (within < 0) return null;
    if (segment.rows) return [segment.rows[within], segment.rows[within + 1] ?? segment.stop];
    const start = segment.start + Math.floor(within * this.per);
    return [Math.min(start, segment.stop - 1), Math.min(Math.floor(start + this.per), segment.stop)];
  }
}

// Whether two segments are told and shown alike.
function same(one, other) {
  const told = ({ start, stop, head, ends, run }) => JSON.stringify([start, stop, head, ends, run]);
  return told(one) === told(other);
}

// The first number below `count` for which `is` holds; the last where it holds for none.
function search(count, is) {
  let low = 0;
  let high = count - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (is(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
