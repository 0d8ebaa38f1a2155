import { expect, test } from "vitest";
import { chosen } from "../src/parts/rows";

interface Row {
  readonly name: string | null;
  readonly n?: number;
}
const COLUMNS = [
  { key: "name", value: (row: Row) => row.name },
  { key: "n", value: (row: Row) => row.n ?? null },
];
const none = { search: "", filters: new Map() };
const names = (rows: readonly Row[], sort: string, more = {}) =>
  chosen(rows, COLUMNS, { ...none, sort, ...more }).map((row) => row.name);
const named = (...all: (string | null)[]): Row[] => all.map((name) => ({ name }));

test("numbers in names count as numbers, and capitals do not count", () => {
  const rows = named("node-10", "Node-9", "node-2", "node-2a");
  expect(names(rows, "name")).toEqual(["node-2", "node-2a", "Node-9", "node-10"]);
});

test("rows without a value come last in both directions, and equal rows keep their order", () => {
  const rows: Row[] = [
    { name: "a", n: 1 },
    { name: "b" },
    { name: "c", n: 2 },
    { name: "d", n: 1 },
    { name: "e", n: 2 },
  ];
  expect(names(rows, "n")).toEqual(["a", "d", "c", "e", "b"]);
  expect(names(rows, "-n")).toEqual(["c", "e", "a", "d", "b"]);
});

test("a search and a filter keep the order, and the next choice starts from all rows", () => {
  const rows = named("pod-3", "pod-1", "other", "pod-2");
  expect(names(rows, "-name", { search: "POD" })).toEqual(["pod-3", "pod-2", "pod-1"]);
  expect(names(rows, "name", { filters: new Map([["name", new Set(["pod-2", "other"])]]) })).toEqual([
    "other",
    "pod-2",
  ]);
  expect(names(rows, "name")).toEqual(["other", "pod-1", "pod-2", "pod-3"]);
});
