import { expect, test } from "vitest";
import { lone } from "../src/parts/chart";

test("values without a neighbour are drawn as points, and only they", () => {
  expect(lone([null, 3, null, 4, 5, undefined, 6])).toEqual([1, 6]);
  expect(lone([1, 2, 3])).toEqual([]);
  expect(lone([0])).toEqual([0]);
});
