// What happened while somebody looked: said at the edge of the window, where it moves nothing.

// `link`: where it leads, as an address and its words; undefined: nowhere.
export function say(words, link) {
  const told = document.createElement("p");
  told.textContent = words;
  if (link) {
    const [address, name] = link;
    const there = document.createElement("a");
    there.href = address;
    there.textContent = name;
    told.append(" ", there);
  }
  document.getElementById("news").replaceChildren(told);
}
