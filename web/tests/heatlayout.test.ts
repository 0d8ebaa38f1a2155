import { describe, expect, it } from "vitest";
import { autoZoom, cellAt, layout, moved } from "../src/parts/heatlayout";

const fleet = (nodes: number, each: number) =>
  Array.from(
    { length: nodes },
    (_, node) => [`node-${node}`, Array.from({ length: each }, (_, gpu) => `${node}/${gpu}`)] as const,
  );

describe("the map of GPUs", () => {
  it.each([
    [1, 8],
    [40, 8],
    [1250, 8],
    [3, 4000],
  ])("no two cells of %i × %i lie on each other, and none is outside", (nodes, each) => {
    const width = 1000;
    const made = layout(fleet(nodes, each), width, autoZoom(nodes * each, width));
    const seen = new Set<string>();
    for (const block of made.blocks) {
      block.items.forEach((_, index) => {
        const x = block.x + (index % block.columns) * made.cell;
        const y = block.y + made.label + Math.floor(index / block.columns) * made.cell;
        expect(x + made.cell).toBeLessThanOrEqual(width + 1);
        expect(y + made.cell).toBeLessThanOrEqual(made.height + 1);
        seen.add(`${x},${y}`);
      });
    }
    expect(seen.size).toBe(nodes * each);
  });

  it("finds the cell under the pointer, and nothing between cells", () => {
    const made = layout(fleet(2, 4), 1000, "l");
    const block = made.blocks[1]!;
    expect(cellAt(made, block.x + made.cell * 2 + 3, block.y + made.label + 3)).toEqual({ block: 1, index: 2 });
    expect(cellAt(made, block.x + 3, block.y + made.label - 2)).toBeNull();
  });

  it("arrow keys go through every cell, from block to block", () => {
    const made = layout(fleet(3, 2), 1000, "l");
    let at: { block: number; index: number } | null = { block: 0, index: -1 };
    let steps = 0;
    while (at !== null) {
      at = moved(made, at, "ArrowRight");
      steps += at ? 1 : 0;
    }
    expect(steps).toBe(6);
    expect(moved(made, { block: 0, index: 0 }, "ArrowLeft")).toBeNull();
    expect(moved(made, { block: 0, index: 0 }, "x")).toBeNull();
  });

  it("is smaller for more GPUs", () => {
    expect([8, 1000, 10_000].map((count) => autoZoom(count, 1000))).toEqual(["l", "m", "s"]);
  });
});
