import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { PROMQL } from "../src/parts/promql";
import { en } from "../src/words/en";
import { zh } from "../src/words/zh";

const holes = (text: string): string[] => (text.match(/\{\w+\}/g) ?? []).sort();
/** Texts that are the same in both languages: names, units and signs. */
const SAME =
  /^(XID( |$)|GPU( |$)|PodResources|Pod$|API$|MIG$|MPS$|DRA$|HAMi$|Prometheus$|PromQL$|p95$|S$|M$|L$|#$|\+?\{\w+\}( %?[a-zA-Z]*)?( [/].*)?$|English$|NVML|Token$|ID$)/;

describe("words", () => {
  it("both languages have the same keys", () => {
    expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  });

  it("both languages fill in the same values", () => {
    const keys = Object.keys(en) as (keyof typeof en)[];
    expect(keys.filter((key) => holes(zh[key]).join() !== holes(en[key]).join())).toEqual([]);
  });

  it("the Chinese texts are Chinese", () => {
    const english = Object.entries(zh).filter(([, text]) => !/[\u4e00-\u9fff：，]/.test(text) && !SAME.test(text));
    expect(english).toEqual([]);
  });

  it("no sentence in Chinese ends or divides with ASCII punctuation", () => {
    const wrong = Object.entries(zh).filter(([, text]) => /[\u4e00-\u9fff][,;:!?]|[\u4e00-\u9fff]\.$/.test(text));
    expect(wrong).toEqual([]);
  });

  it("every metric of the tooltips is in the catalogue", () => {
    const pages = ["metrics", "metrics-cluster", "metrics-analyzer"]
      .map((name) => readFileSync(`../docs/${name}.md`, "utf8"))
      .join();
    const named = new Set(Object.values(PROMQL).flatMap((query) => query.match(/vgpuscope_\w+/g) ?? []));
    expect([...named].filter((name) => !pages.includes(`\`${name}\``))).toEqual([]);
    expect(named.size).toBeGreaterThan(30);
  });
});
