// How high rows are, and how wide chips: measured once for each width of the window, in the chips' own font.
import { make } from "./elements.js";

const WIDTHS = 20_000;
const PLAIN = /^[ -~·↵]*$/;
export const GAP = 4;

export class Measure {
  // `space`: where rows stand.
  constructor(space) {
    const probe = make("span", "id-chip", "0");
    const row = make("div", "id-row");
    row.append(probe);
    space.append(row);
    const style = getComputedStyle(probe);
    this.font = document.createElement("canvas").getContext("2d");
    this.font.font = `${style.fontSize} ${style.fontFamily}`;
    this.sign = this.font.measureText("0").width;
    const around = ["paddingLeft", "paddingRight", "borderLeftWidth", "borderRightWidth"];
    this.around = around.reduce((sum, each) => sum + parseFloat(style[each]), 0);
    this.height = row.getBoundingClientRect().height;
    row.remove();
    this.room = space.clientWidth;
    this.widths = new Map();
  }

  equals(other) {
    return ["sign", "around", "height", "room"].every((each) => this[each] === other?.[each]);
  }

  widthOf(label) {
    let width = this.widths.get(label);
    if (width === undefined) {
      const text = PLAIN.test(label) ? label.length * this.sign : this.font.measureText(label).width;
      width = Math.min(Math.ceil(text + this.around) + 1, this.room - GAP);
      if (this.widths.size > WIDTHS) this.widths.clear();
      this.widths.set(label, width);
    }
    return width;
  }
}
