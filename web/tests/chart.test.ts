import { afterEach, expect, test } from "vitest";
import { lone, summary } from "../src/parts/chart";
import { language } from "../src/state/preferences";

afterEach(() => {
  language.value = "en";
});

test("values without a neighbour are drawn as points, and only they", () => {
  expect(lone([null, 3, null, 4, 5, undefined, 6])).toEqual([1, 6]);
  expect(lone([1, 2, 3])).toEqual([]);
  expect(lone([0])).toEqual([0]);
});

test("a chart says in words of which step its values are, and takes all of them from that step", () => {
  const line = { figure: "chart.power", colour: "#000" };
  const chart = {
    step: 3600,
    times: [0, 3600, 7200],
    lines: [
      { ...line, key: "a", name: "mean power", values: [337, 70, null] },
      { ...line, key: "b", name: "highest power", values: [400, null, null] },
    ],
    label: "Power",
    show: (value: number | null) => (value === null ? "–" : `${value} W`),
  };
  expect(summary(chart)).toMatch(/^Power, .+ – .+\. Last step, .+: mean power: 70 W, highest power: –$/);
  language.value = "zh";
  expect(summary(chart)).toMatch(/^Power，[^,;]+ – [^,;]+。最近一步，[^,;]+：mean power：70 W，highest power：–$/);
});
