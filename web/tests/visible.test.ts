import { expect, test } from "vitest";
import { reused, visible } from "../src/parts/visible";

test("the rows in the document are those that are seen and a few more, wherever one scrolls", () => {
  for (const count of [0, 1, 5, 30, 40_000]) {
    for (const top of [0, 17, 380, 40_000 * 38]) {
      const { first, end } = visible(count, 38, top, 628);
      const last = Math.max(0, count * 38 - 628); // a browser does not scroll further
      const at = Math.min(top, last);
      expect(first * 38).toBeLessThanOrEqual(at);
      expect(end * 38).toBeGreaterThanOrEqual(Math.min(count * 38, at + 628));
      expect(end - first).toBeLessThanOrEqual(Math.min(count, 32));
    }
  }
});

test("a row that stays keeps its place, and new rows take the places of those that are gone", () => {
  const before = new Map([
    ["a", 0],
    ["b", 1],
    ["c", 2],
  ]);
  expect([...reused(before, ["b", "x", "y", "z"], Number.NaN)]).toEqual([
    ["b", 1],
    ["x", 0],
    ["y", 2],
    ["z", 3],
  ]);
});

test("the place with the focus never becomes another row", () => {
  const before = new Map([
    ["a", 0],
    ["b", 1],
  ]);
  expect([...reused(before, ["x", "y"], 0)]).toEqual([
    ["x", 1],
    ["y", 2],
  ]);
});
