/** Which rows of a long table are in the document, and where: arithmetic without a document. */

/** Rows from `first` up to, but not including, `end`. */
export interface Part {
  readonly first: number;
  readonly end: number;
}

const MORE = 6; // rows above and below what is seen

/** The rows of one height that are seen at a place of the scroll bar. */
export function visible(count: number, size: number, top: number, height: number): Part {
  const rows = Math.ceil(height / size) + 1;
  const last = Math.max(0, count - rows); // fewer rows than before: the browser scrolls back later
  const at = Math.min(Math.max(0, Math.floor(top / size)), last);
  return { first: Math.max(0, at - MORE), end: Math.min(count, at + rows + MORE) };
}

/**
 * A place for each row. A row that stays keeps its place. A new row takes the place of one that is gone, whose elements
 * are then filled anew instead of made anew, except the place `kept`: what has the focus must not become another row.
 */
export function reused(
  before: ReadonlyMap<string, number>,
  keys: readonly string[],
  kept: number,
): Map<string, number> {
  const stay = new Set(keys);
  const free: number[] = [];
  let next = 0;
  for (const [key, place] of before) {
    if (!stay.has(key) && place !== kept) free.push(place);
    next = Math.max(next, place + 1);
  }
  let taken = 0;
  const made = new Map<string, number>();
  for (const key of keys) made.set(key, before.get(key) ?? free[taken++] ?? next++);
  return made;
}
