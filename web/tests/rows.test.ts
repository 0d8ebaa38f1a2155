import { describe, expect, it } from "vitest";
import { choiceOf, chosen, counted, toggled } from "../src/parts/rows";

interface Row {
  readonly name: string;
  readonly use: number | null;
  readonly tags: readonly string[];
}
const ROWS: readonly Row[] = [
  { name: "gpu-10", use: 0.2, tags: ["a"] },
  { name: "gpu-2", use: null, tags: [] },
  { name: "gpu-1", use: 0, tags: ["a", "b"] },
];
const COLUMNS = [
  { key: "name", value: (row: Row) => row.name },
  { key: "use", value: (row: Row) => row.use },
  { key: "tags", value: (row: Row) => row.tags },
];
const by = (query: string) =>
  chosen(ROWS, COLUMNS, choiceOf(new URLSearchParams(query), COLUMNS, "name")).map((row) => row.name);

describe("rows of a table", () => {
  it("orders names by their numbers", () => {
    expect(by("")).toEqual(["gpu-1", "gpu-2", "gpu-10"]);
    expect(by("sort=-name")).toEqual(["gpu-10", "gpu-2", "gpu-1"]);
  });

  it("puts what is not known last in either direction, and not at 0", () => {
    expect(by("sort=use")).toEqual(["gpu-1", "gpu-10", "gpu-2"]);
    expect(by("sort=-use")).toEqual(["gpu-10", "gpu-1", "gpu-2"]);
  });

  it("finds rows that hold every word, in any column", () => {
    expect(by("q=GPU-1+b")).toEqual(["gpu-1"]);
    expect(by("q=nothing")).toEqual([]);
  });

  it("takes any of the values of one filter, and all filters together", () => {
    expect(by("f.tags=a")).toEqual(["gpu-1", "gpu-10"]);
    expect(by("f.tags=a&f.tags=b")).toEqual(["gpu-1", "gpu-10"]);
    expect(by("f.tags=a&f.name=gpu-10")).toEqual(["gpu-10"]);
    expect(by("f.use=")).toEqual(["gpu-2"]);
  });

  it("ignores filters and orders of columns that do not exist", () => {
    expect(by("f.nowhere=1&sort=-nowhere")).toEqual(["gpu-1", "gpu-2", "gpu-10"]);
  });

  it("counts the values of a column, most frequent first", () => {
    expect(counted(ROWS, COLUMNS[2]!)).toEqual([
      ["a", 2],
      ["b", 1],
    ]);
  });
});

it("adds a value that is switched on, and removes one that is switched off", () => {
  expect(toggled(new Set(["a"]), "b", true)).toEqual(["a", "b"]);
  expect(toggled(["a", "b"], "a", false)).toEqual(["b"]);
});
