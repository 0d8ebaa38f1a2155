/** Names may have 253 letters. Before one pushes what a table is about out of sight, it becomes narrower and has two lines. */

const LEAST = 96; // px of a name: a dozen letters, with which names can be told apart
const SPARE = 28; // px for values that grow, such as ages; the right edge fades by as much while there is more to scroll to

/** The width that no name may exceed, so that the columns are narrower by `excess`. */
export function widest(widths: readonly number[], excess: number): number {
  const falling = [...widths].sort((a, b) => b - a);
  let removed = 0; // by the columns before, if they are as wide as this one
  for (const [at, width] of falling.entries()) {
    const next = falling[at + 1] ?? 0;
    const step = (at + 1) * (width - next);
    if (removed + step >= excess) return Math.floor(width - (excess - removed) / (at + 1));
    removed += step;
  }
  return 0;
}

/** Makes the names in tables of a box narrower, if the columns that a table is about would not be in sight. */
export function keepInSight(box: HTMLElement): void {
  const framed = box.classList.contains("table-frame");
  for (const table of box.querySelectorAll("table")) {
    const main = [...table.querySelectorAll<HTMLElement>(framed ? "th[data-main]" : "thead th")]; // a short table is whole
    const names = main.filter((heading) => (framed ? heading.dataset.long : !heading.classList.contains("num")));
    table.classList.remove("cramped");
    for (const heading of names) heading.style.minWidth = "";
    const excess = main.reduce((sum, heading) => sum + widthOf(heading), 0) - box.clientWidth;
    if (excess <= 0) continue;
    const widths = names.map(widthOf);
    const most = widest(widths, excess + SPARE);
    if (most < LEAST) continue; // the table is scrolled
    table.classList.add("cramped");
    for (const [at, heading] of names.entries()) heading.style.minWidth = `${Math.min(widths[at]!, most)}px`;
  }
}

const widthOf = (heading: HTMLElement): number => Math.ceil(heading.getBoundingClientRect().width);

/** The whole text of a cell that is cut off, for whoever points at it. */
export function showWhole(event: MouseEvent): void {
  const cell = (event.target as Element).closest<HTMLElement>("td, tbody th");
  if (!cell) return;
  const cut = [cell, ...cell.querySelectorAll("*")].some(
    (part) =>
      getComputedStyle(part).overflowX !== "visible" &&
      (part.scrollWidth > part.clientWidth + 1 || part.scrollHeight > part.clientHeight + 2),
  );
  cell.title = cut ? cell.innerText : "";
}
