/** All GPUs at a glance: one cell each, on a canvas, with a table of the same numbers for those who do not see it. */
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { language, theme } from "../state/preferences";
import { t, word } from "../words";
import { CLASSES, colour, ink, SIGNS, signInk, type UseClass } from "./classes";
import { explained, Num, NumHead, tip, Value } from "./figures";
import { number } from "./format";
import { autoZoom, cellAt, type Layout, layout, moved, type Zoom } from "./heatlayout";
import { Scroll } from "./pieces";

export interface Cell {
  readonly id: string;
  readonly group: string;
  readonly useClass: UseClass;
  readonly title: string; // node and index
  readonly idleTenant: boolean; // the GPU works, but one of its pods does not
  readonly lines: () => readonly string[]; // what the tooltip says besides
}

interface Props {
  readonly cells: readonly Cell[];
  readonly zoom: Zoom;
  readonly label: string;
  readonly open: (cell: Cell) => void;
}

type At = { block: number; index: number };

export function HeatMap({ cells, zoom, label, open }: Props) {
  const frame = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const width = useWidth(frame);
  const [at, setAt] = useState<At | null>(null);
  const groups = useMemo(() => grouped(cells), [cells]);
  const size = zoom === "auto" ? autoZoom(cells.length, width) : zoom;
  const made = useMemo(() => layout(width > 0 ? groups : [], width, size), [groups, width, size]);
  const dark = useDark();
  // biome-ignore lint/correctness/useExhaustiveDependencies: colours follow the theme
  useLayoutEffect(() => {
    if (canvas.current && width > 0) draw(canvas.current, made, width);
  }, [made, width, dark]);
  const cell = at ? made.blocks[at.block]?.items[at.index] : undefined;
  const find = (event: MouseEvent): At | null => cellAt(made, event.offsetX, event.offsetY);
  const key = (event: KeyboardEvent): void => {
    if (event.key === "Enter" && cell) open(cell);
    const next = moved(made, at ?? { block: 0, index: -1 }, event.key);
    if (next) {
      setAt(next);
      event.preventDefault();
    }
  };
  return (
    <div class="heat" ref={frame}>
      <canvas
        ref={canvas}
        tabIndex={0}
        role="application"
        aria-label={label}
        aria-roledescription={t("heat.role")}
        style={{ width: `${width}px`, height: `${made.height}px` }}
        onMouseMove={(event) => setAt(find(event))}
        onMouseLeave={() => setAt(null)}
        onClick={(event) => {
          const found = find(event);
          const clicked = found && made.blocks[found.block]?.items[found.index];
          if (clicked) open(clicked);
        }}
        onKeyDown={key}
        onBlur={() => setAt(null)}
      />
      {at && cell && <Tip made={made} at={at} cell={cell} width={width} />}
      <p class="sr" aria-live="polite">
        {cell ? `${cell.title}: ${className(cell.useClass)}. ${cell.lines().join(". ")}` : ""}
      </p>
    </div>
  );
}

export const className = (name: string): string => word(`class.${name}`, name);

/** What the colours mean, with the number of GPUs of each; a click filters. */
export function Legend({ cells, choose }: { cells: readonly Cell[]; choose?: (name: UseClass) => void }) {
  const counts = new Map<UseClass, number>();
  for (const cell of cells) counts.set(cell.useClass, (counts.get(cell.useClass) ?? 0) + 1);
  const mixed = cells.filter((cell) => cell.idleTenant).length;
  return (
    <ul class="legend">
      {CLASSES.filter((name) => counts.has(name)).map((name) => (
        <li key={name}>
          <button type="button" class="link plain" onClick={() => choose?.(name)} {...tip(explained("fleet.by_class"))}>
            <span class={`swatch c-${name}`} aria-hidden="true">
              {SIGNS[name]}
            </span>
            {className(name)}{" "}
            <b data-figure="fleet.by_class" data-key={name}>
              {number(counts.get(name))}
            </b>
          </button>
        </li>
      ))}
      {mixed > 0 && (
        <li class="mixed">
          <span class="swatch corner" aria-hidden="true" />
          {t("heat.mixed")}{" "}
          <b>
            <Value figure="fleet.in_use_with_idle">{number(mixed)}</Value>
          </b>
        </li>
      )}
    </ul>
  );
}

/** The same numbers as a table. */
export function HeatTable({ cells, head }: { cells: readonly Cell[]; head: string }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="twin" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("heat.as_table")}</summary>
      {open && <Counts cells={cells} head={head} />}
    </details>
  );
}

function Counts({ cells, head }: { cells: readonly Cell[]; head: string }) {
  const present = CLASSES.filter((name) => cells.some((cell) => cell.useClass === name));
  return (
    <Scroll name="map" rows={grouped(cells).length}>
      <table>
        <thead>
          <tr>
            <th scope="col">{head}</th>
            {present.map((name) => (
              <NumHead key={name} title={`class.${name}`} figure="fleet.group_by_class" />
            ))}
          </tr>
        </thead>
        <tbody>
          {grouped(cells).map(([name, items]) => (
            <tr key={name} data-key={name}>
              <th scope="row">{name || t("value.none")}</th>
              {present.map((one) => (
                <Num key={one} figure="fleet.group_by_class" of={`${name}/${one}`}>
                  {number(items.filter((cell) => cell.useClass === one).length)}
                </Num>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function grouped(cells: readonly Cell[]): [string, Cell[]][] {
  const found = new Map<string, Cell[]>();
  for (const cell of cells) {
    const group = found.get(cell.group);
    if (group) group.push(cell);
    else found.set(cell.group, [cell]);
  }
  return [...found];
}

function Tip({ made, at, cell, width }: { made: Layout<Cell>; at: At; cell: Cell; width: number }) {
  const block = made.blocks[at.block]!;
  const x = block.x + (at.index % block.columns) * made.cell;
  const y = block.y + made.label + (Math.floor(at.index / block.columns) + 1) * made.cell + 6;
  const right = x > width - 260;
  return (
    <div
      class="tip"
      style={right ? { right: `${width - x - made.cell}px`, top: `${y}px` } : { left: `${x}px`, top: `${y}px` }}
    >
      <b>{cell.title}</b>
      <span>
        <span class={`swatch c-${cell.useClass}`} aria-hidden="true">
          {SIGNS[cell.useClass]}
        </span>{" "}
        {className(cell.useClass)}
      </span>
      {cell.lines().map((line) => (
        <span key={line}>{line}</span>
      ))}
    </div>
  );
}

/** Cells are written as pixels: nothing else draws 10,000 of them as fast. Signs are drawn where there is room. */
export function draw(canvas: HTMLCanvasElement, made: Layout<Cell>, width: number): void {
  const scale = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * scale));
  const high = Math.max(1, Math.round(made.height * scale));
  if (canvas.width !== wide) canvas.width = wide; // a canvas whose size is set is made anew
  if (canvas.height !== high) canvas.height = high;
  const pen = canvas.getContext("2d");
  if (!pen) return;
  const side = made.cell - (made.cell > 10 ? 2 : 1);
  const image = pen.createImageData(wide, high);
  fill(new Uint32Array(image.data.buffer), wide, made, side, scale, coloursOf(pen));
  pen.putImageData(image, 0, 0);
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  if (side >= SIGN_FROM) stamp(pen, made, side, scale);
  if (made.label) labels(pen, made, width);
}

/** Writes every cell as a square of its colour. */
export function fill(
  pixels: Uint32Array,
  wide: number,
  made: Layout<Pick<Cell, "useClass">>,
  side: number,
  scale: number,
  colours: ReadonlyMap<UseClass, number>,
): void {
  const long = Math.max(1, Math.round(side * scale));
  for (const block of made.blocks) {
    const { items, columns } = block;
    let column = 0;
    let y = block.y + made.label;
    for (const item of items) {
      const left = Math.round((block.x + column * made.cell) * scale);
      const right = Math.min(left + long, wide);
      const colour = colours.get(item.useClass) ?? 0;
      let line = Math.round(y * scale) * wide;
      for (let row = 0; row < long; row += 1, line += wide) {
        for (let at = line + left; at < line + right; at += 1) pixels[at] = colour;
      }
      column += 1;
      if (column === columns) {
        column = 0;
        y += made.cell;
      }
    }
  }
}

/** The colour of each class as a pixel: the bytes red, green, blue and opacity. */
function coloursOf(pen: CanvasRenderingContext2D): Map<UseClass, number> {
  return new Map(
    CLASSES.map((name) => {
      pen.fillStyle = colour(name);
      return [name, pixelOf(String(pen.fillStyle))];
    }),
  );
}

/** A colour as a canvas tells it, #rrggbb or rgba(r, g, b, a), as a pixel. */
export function pixelOf(text: string): number {
  const parts = text.startsWith("#")
    ? [1, 3, 5].map((at) => Number.parseInt(text.slice(at, at + 2), 16))
    : (text.match(/[\d.]+/g) ?? []).map(Number);
  const [red = 0, green = 0, blue = 0, opacity = 1] = parts;
  return new Uint32Array(new Uint8ClampedArray([red, green, blue, 255 * opacity]).buffer)[0]!;
}

function spot(made: Layout<Cell>, block: Layout<Cell>["blocks"][number], index: number): [number, number] {
  const row = Math.floor(index / block.columns);
  return [block.x + (index % block.columns) * made.cell, block.y + made.label + row * made.cell];
}

const SIGN_FROM = 12; // px of a cell that has room for a sign

/** Signs and corners; each kind is drawn once and then copied. */
function stamp(pen: CanvasRenderingContext2D, made: Layout<Cell>, side: number, scale: number): void {
  const stamps = new Map<string, HTMLCanvasElement>();
  for (const block of made.blocks) {
    block.items.forEach((cell, index) => {
      if (cell.useClass === "busy" && !cell.idleTenant) return; // the usual case has no sign
      const key = `${cell.useClass}${cell.idleTenant}`;
      let picture = stamps.get(key);
      if (!picture) {
        picture = stampOf(cell, side, scale);
        stamps.set(key, picture);
      }
      pen.drawImage(picture, ...spot(made, block, index), side, side);
    });
  }
}

/** The sign of a class, and a corner if one of its pods is idle while the GPU works. */
function stampOf(cell: Cell, side: number, scale: number): HTMLCanvasElement {
  const made = document.createElement("canvas");
  made.width = made.height = Math.ceil(side * scale);
  const pen = made.getContext("2d");
  if (!pen) return made;
  pen.scale(scale, scale);
  if (cell.idleTenant) corner(pen, side);
  if (cell.useClass !== "busy") sign(pen, cell.useClass, side);
  return made;
}

function corner(pen: CanvasRenderingContext2D, side: number): void {
  const size = side * 0.45;
  pen.fillStyle = colour("idle");
  pen.beginPath();
  pen.moveTo(side - size, 0);
  pen.lineTo(side, 0);
  pen.lineTo(side, size);
  pen.fill();
}

function sign(pen: CanvasRenderingContext2D, name: UseClass, side: number): void {
  pen.fillStyle = signInk(name);
  pen.font = `${Math.round(side * 0.6)}px system-ui, sans-serif`;
  pen.textAlign = "center";
  pen.textBaseline = "middle";
  pen.fillText(SIGNS[name], side / 2, side / 2 + 1);
}

function labels(pen: CanvasRenderingContext2D, made: Layout<Cell>, width: number): void {
  pen.fillStyle = ink("ink-3");
  pen.font = "11px system-ui, sans-serif";
  pen.textAlign = "left";
  pen.textBaseline = "alphabetic";
  for (const block of made.blocks) {
    const room = Math.max(96, Math.min(width, block.columns * made.cell)) - 4;
    pen.fillText(fitted(pen, block.name || t("value.none"), room), block.x, block.y + 11);
  }
}

/** The text, cut in the middle if it is too long: node names differ at their end. */
function fitted(pen: CanvasRenderingContext2D, text: string, room: number): string {
  if (pen.measureText(text).width <= room) return text;
  const most = Math.max(4, Math.floor((text.length * room) / pen.measureText(text).width) - 1);
  const head = Math.floor(most / 3);
  return `${text.slice(0, head)}…${text.slice(text.length - (most - head))}`;
}

/** The width of the frame, known before anything is painted; 0: not known yet. */
function useWidth(frame: { current: HTMLDivElement | null }): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    if (!frame.current) return;
    setWidth(Math.floor(frame.current.getBoundingClientRect().width));
    const observer = new ResizeObserver(([entry]) => entry && setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, [frame]);
  return width;
}

/** Changes when the colours do. */
export function useDark(): string {
  const [system, setSystem] = useState(() => matchMedia("(prefers-color-scheme: dark)").matches);
  useEffect(() => {
    const query = matchMedia("(prefers-color-scheme: dark)");
    const change = (): void => setSystem(query.matches);
    query.addEventListener("change", change);
    return () => query.removeEventListener("change", change);
  }, []);
  return `${theme.value}/${system}/${language.value}`;
}
