// Which id a key leads to: along the row, up and down, by pages, to the ends. Knows no document.

// The id that a key leads to from the active one; null: the key is none of ours. `page`: rows of a page.
export function idByKey(event, layout, active, page) {
  if (event.altKey || event.metaKey) return null;
  const row = () => layout.idsOf(layout.rowOf(active));
  const to = {
    ArrowLeft: () => active - 1,
    ArrowRight: () => active + 1,
    ArrowUp: () => beside(layout, active, -1),
    ArrowDown: () => beside(layout, active, 1),
    PageUp: () => beside(layout, active, -page),
    PageDown: () => beside(layout, active, page),
    Home: () => (event.ctrlKey ? 0 : row()[0]),
    End: () => (event.ctrlKey ? layout.count - 1 : row()[1] - 1),
  }[event.key];
  if (!to) return null;
  const id = Math.min(Math.max(to(), 0), layout.count - 1);
  // Folded ids are passed over.
  return layout.shownFrom(id, id < active ? -1 : 1);
}

// The id that stands so many rows further down, as far along its row.
function beside(layout, active, rows) {
  const here = layout.rowOf(active);
  const along = active - layout.idsOf(here)[0];
  const step = Math.sign(rows);
  let row = Math.min(Math.max(here + rows, 0), layout.total - 1);
  while (row > 0 && row < layout.total - 1 && !layout.idsOf(row)) row += step;
  const ids = layout.idsOf(row);
  if (!ids) return step < 0 ? 0 : layout.count - 1;
  return Math.min(ids[0] + along, ids[1] - 1);
}
