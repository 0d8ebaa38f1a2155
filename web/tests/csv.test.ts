import { describe, expect, it } from "vitest";
import { cell, csv } from "../src/parts/csv";

describe("CSV", () => {
  it.each(["=1+1", "+cmd", "-cmd", "@SUM(A1)", "\tx", "\rx", "\n=1", "＝1"])("no cell starts a formula: %j", (text) => {
    expect(cell(text).replace(/^"/, "")).toMatch(/^'/);
  });

  it("leaves numbers as they are, also negative ones", () => {
    expect([cell(-1), cell("-1.5e-3"), cell(0)]).toEqual(["-1", "-1.5e-3", "0"]);
  });

  it("has nothing where nothing is known", () => {
    expect([cell(null), cell(undefined)]).toEqual(["", ""]);
  });

  it("quotes what has commas, quotes or line ends", () => {
    expect(csv(["a", "b"], [['x,"y"', "1\n2"]])).toBe('a,b\r\n"x,""y""","1\n2"\r\n');
  });
});
