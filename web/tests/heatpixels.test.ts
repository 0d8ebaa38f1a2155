import { expect, test } from "vitest";
import type { UseClass } from "../src/parts/classes";
import { autoZoom, cellAt, layout } from "../src/parts/heatlayout";
import { fill, pixelOf } from "../src/parts/heatmap";

test.each([1, 1.5, 2])(
  "every cell has the colour of its class where the pointer finds it, at %d pixels a px",
  (scale) => {
    const names: UseClass[] = ["busy", "idle", "unknown"];
    const colours = new Map(names.map((name, at) => [name, at + 1]));
    const groups = ["a", "b", "c"].map(
      (name, at) =>
        [name, Array.from({ length: 7 + 90 * at }, (_, n) => ({ useClass: names[(n + at) % names.length]! }))] as const,
    );
    const width = 300;
    const made = layout(groups, width, autoZoom(300, width));
    const wide = Math.round(width * scale);
    const pixels = new Uint32Array(wide * Math.round(made.height * scale));
    fill(pixels, wide, made, made.cell - 1, scale, colours);
    let found = 0;
    for (const [block, { x, y, columns, items }] of made.blocks.entries()) {
      items.forEach((item, index) => {
        const left = x + (index % columns) * made.cell + made.cell / 2;
        const top = y + made.label + Math.floor(index / columns) * made.cell + made.cell / 2;
        expect(cellAt(made, left, top)).toEqual({ block, index });
        expect(pixels[Math.floor(top * scale) * wide + Math.floor(left * scale)]).toBe(colours.get(item.useClass));
        found += 1;
      });
    }
    expect(found).toBe(7 + 97 + 187);
  },
);

test("colours become pixels in the order red, green, blue, opacity", () => {
  const bytes = (text: string) => [...new Uint8Array(new Uint32Array([pixelOf(text)]).buffer)];
  expect(bytes("#0a1b2c")).toEqual([10, 27, 44, 255]);
  expect(bytes("rgba(10, 27, 44, 0.5)")).toEqual([10, 27, 44, 128]);
});
