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

test("the order of many names and numbers is the one that a comparison gives, and searches narrow it", () => {
  const rows: Row[] = Array.from({ length: 2000 }, (_, at) => ({
    name: at % 50 === 0 ? null : `Pod-${(at * 7919) % 1000}-${at % 7}`,
    ...(at % 3 ? { n: ((at * 31) % 97) - 40.5 } : {}),
  }));
  const { compare } = new Intl.Collator("en", { numeric: true, sensitivity: "base" });
  const byName = rows
    .filter((row) => row.name !== null)
    .sort((a, b) => compare(a.name!, b.name!))
    .map((row) => row.name);
  expect(names(rows, "name").slice(0, byName.length)).toEqual(byName);
  const known = rows.filter((row) => row.n !== undefined);
  const byNumber = [...known].sort((a, b) => b.n! - a.n!).map((row) => row.n);
  const found = chosen(rows, COLUMNS, { ...none, sort: "-n" });
  expect(found.slice(0, known.length).map((row) => row.n)).toEqual(byNumber);
  expect(found.slice(known.length).every((row) => row.n === undefined)).toBe(true);
  for (const search of ["p", "po", "pod-1", "pod-12", "pod-1", "12 3", "", "pod-9"]) {
    const words = search.split(" ");
    const wanted = rows.filter((row) =>
      words.every((word) => `${row.name ?? ""}\n${row.n ?? ""}`.toLowerCase().includes(word)),
    );
    expect(new Set(chosen(rows, COLUMNS, { ...none, sort: "name", search }))).toEqual(new Set(wanted));
  }
});

test("numbers of any length are ordered as numbers, and zeros before them do not count", () => {
  const rows = named("v1234567890123", "v99", "v0100", "v123456789", "v12345678");
  expect(names(rows, "name")).toEqual(["v99", "v0100", "v12345678", "v123456789", "v1234567890123"]);
});
