import { expect, test } from "vitest";
import { widest } from "../src/parts/widths";

test("the widest names become narrower first, and together by what is too much", () => {
  expect(widest([300, 120, 400], 100)).toBe(300);
  expect(widest([300, 120, 400], 200)).toBe(250);
  for (const excess of [1, 99, 350, 700]) {
    const width = widest([300, 120, 400], excess);
    const removed = [300, 120, 400].reduce((sum, one) => sum + Math.max(0, one - width), 0);
    expect(removed).toBeGreaterThanOrEqual(excess);
    expect(removed).toBeLessThan(excess + 3); // whole pixels
  }
});

test("without names nothing can become narrower", () => {
  expect(widest([], 50)).toBe(0);
  expect(widest([100, 20], 500)).toBe(0);
});
