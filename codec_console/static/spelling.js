// From the bytes of an id to what stands on its chip: everything that can't be seen, or would move other text, is spelled.
const LONGEST = 40;
const HIDDEN = "••••";
const NAMED = new Map([[" ", "·"], ["\n", "↵"], ["\r", "␍"], ["\t", "⇥"]]);
// Controls, direction marks, other blanks, what no font has; a mark that would join what stands before it.
const UNSEEN = /[\p{C}\p{Z}]/u;
const JOINS = /^\p{M}/u;
const reader = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function spellOne(sign) {
  if (NAMED.has(sign)) return NAMED.get(sign);
  return UNSEEN.test(sign) ? `\\u{${sign.codePointAt(0).toString(16)}}` : sign;
}

export function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join(" ");
}

// The text of bytes as it can be seen, at most `most` signs of it.
export function spell(bytes, most = LONGEST) {
  let text;
  try {
    text = reader.decode(bytes.length > 4 * most ? bytes.subarray(0, 4 * most) : bytes);
  } catch {
    if (bytes.length > most) return `${spell(bytes.subarray(0, most), most)}…`;
    return Array.from(bytes, (byte) => (byte > 32 && byte < 127 ? String.fromCharCode(byte) : `\\x${hex([byte])}`)).join("");
  }
  const signs = Array.from(text);
  const shown = signs.slice(0, most).map(spellOne).join("");
  const whole = signs.length <= most && bytes.length <= 4 * most;
  return `${JOINS.test(shown) ? "◌" : ""}${shown}${whole ? "" : "…"}`;
}

export function fromBase64(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let n = 0; n < binary.length; n += 1) bytes[n] = binary.charCodeAt(n);
  return bytes;
}

// What a chip says: its text where that is known, its number elsewhere.
export function label(id, bytes) {
  if (id === null) return HIDDEN;
  if (bytes === null) return String(id);
  return bytes.length ? spell(bytes) : "∅";
}
