/** Where the cells of the heat map lie: blocks of one group each, in rows that fill the width. Pure arithmetic. */

export interface Block<T> {
  readonly name: string;
  readonly items: readonly T[];
  readonly x: number;
  readonly y: number;
  readonly columns: number;
}

export interface Layout<T> {
  readonly blocks: readonly Block<T>[];
  readonly cell: number; // px, with the gap
  readonly label: number; // px above each block; 0: labels do not fit
  readonly height: number;
}

export const ZOOMS = ["auto", "s", "m", "l"] as const;
export type Zoom = (typeof ZOOMS)[number];
const CELL: Record<Exclude<Zoom, "auto">, number> = { s: 8, m: 15, l: 26 };
const LABEL = 16;
const LABEL_FROM = 15; // px of a cell
const SPACE = 10; // px between blocks
const WIDEST = 8; // cells in a row of a small block

/** The largest size at which the whole fleet is at most `tall` px high. */
export function autoZoom(count: number, width: number, tall = 560): Exclude<Zoom, "auto"> {
  for (const zoom of ["l", "m"] as const) {
    const perRow = Math.max(1, Math.floor(width / (CELL[zoom] + SPACE / WIDEST)));
    const rows = Math.ceil(count / perRow);
    if (rows * (CELL[zoom] + (LABEL + SPACE) / 2) <= tall) return zoom;
  }
  return "s";
}

export function layout<T>(
  groups: readonly (readonly [string, readonly T[]])[],
  width: number,
  zoom: Exclude<Zoom, "auto">,
): Layout<T> {
  const cell = CELL[zoom];
  const label = cell >= LABEL_FROM ? LABEL : 0;
  const space = label ? SPACE : 4;
  const blocks: Block<T>[] = [];
  let x = 0;
  let y = 0;
  let tallest = 0;
  for (const [name, items] of groups) {
    const columns = columnsOf(items.length, width, cell);
    const wide = Math.max(columns * cell, label ? Math.min(96, width) : 0);
    const high = Math.ceil(items.length / columns) * cell + label;
    if (x > 0 && x + wide > width) {
      x = 0;
      y += tallest + space;
      tallest = 0;
    }
    blocks.push({ name, items, x, y, columns });
    x += wide + space;
    tallest = Math.max(tallest, high);
  }
  return { blocks, cell, label, height: Math.max(1, y + tallest) };
}

function columnsOf(count: number, width: number, cell: number): number {
  const most = Math.max(1, Math.floor(width / cell));
  if (count <= WIDEST) return Math.min(most, Math.max(1, count));
  if (count <= 64) return Math.min(most, WIDEST);
  return Math.min(most, Math.ceil(Math.sqrt(count * 4))); // a large group is wider than it is high
}

/** The cell at a point, as a place in its block. */
export function cellAt<T>(made: Layout<T>, x: number, y: number): { block: number; index: number } | null {
  for (let number = 0; number < made.blocks.length; number += 1) {
    const block = made.blocks[number]!;
    const column = Math.floor((x - block.x) / made.cell);
    const row = Math.floor((y - block.y - made.label) / made.cell);
    const index = row * block.columns + column;
    if (column >= 0 && column < block.columns && row >= 0 && index < block.items.length)
      return { block: number, index };
  }
  return null;
}

/** The next cell from one, by an arrow key; null: there is none. */
export function moved<T>(
  made: Layout<T>,
  at: { block: number; index: number },
  key: string,
): { block: number; index: number } | null {
  const block = made.blocks[at.block];
  if (!block) return null;
  const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: block.columns, ArrowUp: -block.columns }[key];
  if (step === undefined) return null;
  const index = at.index + step;
  if (index >= 0 && index < block.items.length) return { block: at.block, index };
  const other = at.block + Math.sign(step);
  const next = made.blocks[other];
  return next ? { block: other, index: step > 0 ? 0 : next.items.length - 1 } : null;
}
