import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type ComponentChild, h, render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { en } from "../src/words/en";
import { zh } from "../src/words/zh";

vi.mock("../src/state/definitions", () => ({
  defined: (code: string) => `Definition of ${code}.`,
  covers: (_code: string, span?: string | number) => `mean of ${span ?? "10 min"}`,
}));
vi.mock("uplot", () => ({ default: class {} }));

const { ChartLegend } = await import("../src/parts/chart");
const { ClassBar } = await import("../src/parts/classbar");
const { NumHead, Said, TipLayer } = await import("../src/parts/figures");
const { Figure } = await import("../src/parts/pieces");
const { Table } = await import("../src/parts/table");

let root: HTMLElement;
const show = (...parts: ComponentChild[]) => act(() => render(h("div", null, ...parts, h(TipLayer, null)), root));
/** The numbers of the page as docs/console-api.md says that a program reads them. */
const numbers = () =>
  [...root.querySelectorAll("[data-figure]:not(th)")]
    .filter((one) => !one.querySelector("[data-figure]"))
    .map((one) => [
      one.getAttribute("data-figure"),
      one.closest("[data-key]")?.getAttribute("data-key") ?? null,
      one.getAttribute("data-value") ?? (one.querySelector("b") ?? one).textContent,
    ]);

beforeEach(() => {
  root = document.createElement("div");
  document.body.append(root);
});
afterEach(() => {
  render(null, root);
  root.remove();
});

describe("a page is read by a program", () => {
  it("tile by tile, with the whole beside the part", () => {
    const beside = h("small", null, h(Said, { text: "of", numbers: { all: ["fleet.gpus", "20"] } }));
    show(h(Figure, { title: "Healthy", figure: "fleet.gpus_healthy", value: "18", beside }));
    expect(numbers()).toEqual([
      ["fleet.gpus_healthy", null, "18"],
      ["fleet.gpus", null, "20"],
    ]);
  });

  it("row by row, with the code of each column", () => {
    const columns = [
      { key: "name", title: "col.node", value: (row: { name: string }) => row.name },
      { key: "use", title: "col.use", figure: "node.use", numeric: true, value: () => 7 },
    ] as const;
    const rows = [{ name: "a" }, { name: "b" }];
    show(
      h(Table<{ name: string }>, {
        name: "nodes",
        label: "Nodes",
        rows,
        columns,
        main: ["name"],
        sort: "name",
        rowKey: (row) => row.name,
        empty: null,
        plain: true,
      }),
    );
    expect(root.querySelector("[data-table=nodes]")?.getAttribute("data-rows")).toBe("2");
    expect(root.querySelectorAll("th[data-figure='node.use']")).toHaveLength(1);
    expect(numbers()).toEqual([
      ["node.use", "a", "7"],
      ["node.use", "b", "7"],
    ]);
  });

  it("class by class, also where a bar shows a sign and no number", () => {
    show(h(ClassBar, { figure: "node.by_class", counts: { idle: 1 } }));
    expect(numbers()).toEqual([["node.by_class", "idle", "1"]]);
  });

  it("line by line of a chart, with the values that are drawn", () => {
    const line = { key: "use", figure: "chart.use", name: "use", colour: "red", values: [1, null, 3] };
    const props = { name: "use", step: 60, times: [0, 60, 120], lines: [line], label: "Use", show: String, at: null };
    show(h(ChartLegend, props));
    const entry = root.querySelector("[data-series=use]")!;
    expect(JSON.parse(entry.getAttribute("data-values")!)).toEqual([1, null, 3]);
    expect(entry.getAttribute("data-at")).toBe("120");
    expect(numbers()).toEqual([["chart.use", null, "3"]]);
  });
});

describe("a definition", () => {
  it("is shown when a heading has the focus, with the time that is covered, and goes with Escape", () => {
    show(h("table", null, h("thead", null, h("tr", null, h(NumHead, { title: "col.use", figure: "node.use" })))));
    expect(root.querySelector("th .covers")?.textContent).toBe("mean of 10 min");
    const heading = root.querySelector<HTMLElement>("th [tabindex='0']")!;
    act(() => heading.focus());
    expect(root.querySelector("#tip")?.textContent).toBe("Definition of node.use.\nTime: mean of 10 min.");
    expect(heading.getAttribute("aria-describedby")).toBe("tip");
    act(() => void heading.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" })));
    expect(root.querySelector("#tip")?.textContent).toBe("");
  });
});

const SOURCES = join(import.meta.dirname, "..", "src");
const files = (readdirSync(SOURCES, { recursive: true }) as string[]).filter((name) => name.endsWith(".tsx"));

/** Elements of these kinds that show numbers without a code. Columns and charts without one do not compile. */
function uncoded(source: string): string[] {
  const heads = source.match(/<th\b[^>]*class=(?:"[^"]*\bnum\b|\{`num)[^>]*>/g) ?? [];
  const notes = source.match(/note=\{number\([^}]*\}/g) ?? [];
  const cells =
    source.match(/<td\b[^>]*class="[^"]*\bnum\b[^>]*>\s*\{(?:number|bytes|percent|watts|duration)\(/g) ?? [];
  const tiles = source.split(/<Figure\b/).slice(1);
  return [
    ...heads.filter((one) => !/data-(figure|names)=|scope="row"/.test(one)),
    ...notes,
    ...cells.filter((one) => !/data-names=/.test(one)),
    ...tiles.filter((one) => !/\bfigure=/.test(one)),
  ];
}

describe("class, verdict and score", () => {
  const named = (words: Record<string, string>, kind: string) =>
    Object.entries(words).flatMap(([key, text]) => (key.startsWith(`${kind}.`) ? [text] : []));

  it.each([
    ["en", en],
    ["zh", zh],
  ] as const)("have no word in common that could be taken for another: %s", (_, words) => {
    const ranges = named(words, "status");
    expect(ranges).toHaveLength(5);
    for (const kind of ["verdict", "class", "container_state"]) {
      expect(ranges.filter((text) => named(words, kind).includes(text))).toEqual([]);
    }
    expect(words["verdict.idle"]).not.toBe(words["class.idle"]);
    expect(words["verdict.idle"]).not.toBe(words["container_state.idle"]);
  });
});

describe("every number has a definition", () => {
  it.each(files)("in %s", (name) => {
    expect(uncoded(readFileSync(join(SOURCES, name), "utf8"))).toEqual([]);
  });

  it("or is found", () => {
    expect(uncoded('<Figure title="GPUs" value={number(4)} />')).toHaveLength(1);
    expect(uncoded('<th scope="col" class="num">GPUs</th>')).toHaveLength(1);
    expect(uncoded('<td class="num">{number(4)}</td>')).toHaveLength(1);
    expect(uncoded("<Panel note={number(4)}>")).toHaveLength(1);
  });
});
