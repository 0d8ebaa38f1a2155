import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { PROMQL } from "../src/parts/promql";
import { language } from "../src/state/preferences";
import { t } from "../src/words";
import { en } from "../src/words/en";
import { SETTINGS_ZH } from "../src/words/settings.zh";
import { zh } from "../src/words/zh";

const holes = (text: string): string[] => (text.match(/\{\w+\}/g) ?? []).sort();
/** Texts that are the same in both languages: names, units and signs. */
const SAME =
  /^(XID( |$)|GPU( |$)|PodResources|Pod$|API$|MIG$|MPS$|DRA$|HAMi$|Prometheus$|PromQL$|p(50|95|99)$|S$|M$|L$|#$|\+?\{\w+\}( %?[a-zA-Z]*)?( [/].*)?$|\{day\} \{times\}$|English$|NVML|Token$|ID$)/;

describe("words", () => {
  it("both languages have the same keys", () => {
    expect(Object.keys(zh).sort()).toEqual(Object.keys(en).sort());
  });

  it("both languages fill in the same values", () => {
    const keys = Object.keys(en) as (keyof typeof en)[];
    expect(keys.filter((key) => holes(zh[key]).join() !== holes(en[key]).join())).toEqual([]);
  });

  it("a word fits its number", () => {
    language.value = "en";
    expect([t("table.rows", { n: "1" }), t("table.rows", { n: "0" }), t("table.rows", { n: "1,000" })]).toEqual([
      "1 row",
      "0 rows",
      "1,000 rows",
    ]);
  });

  it("the Chinese texts are Chinese", () => {
    const english = Object.entries(zh).filter(
      ([, text]) => !/[\u4e00-\u9fff：，。；、（]/.test(text) && !SAME.test(text),
    );
    expect(english).toEqual([]);
  });

  it("no sentence in Chinese ends or divides with ASCII punctuation", () => {
    const wrong = Object.entries(zh).filter(([, text]) => /[\u4e00-\u9fff][,;:!?]|[\u4e00-\u9fff]\.$/.test(text));
    expect(wrong).toEqual([]);
  });

  it("every setting of the analyzer is described in Chinese", () => {
    const page = readFileSync("../docs/configuration.md", "utf8");
    const sections = new Set(Object.keys(SETTINGS_ZH).map((path) => path.split(".")[0]));
    const known = [...page.matchAll(/^### (\w+)\.(\w+)$/gm)].filter(([, section]) => sections.has(section));
    expect(known.length).toBeGreaterThan(40);
    expect(known.map(([, section, name]) => `${section}.${name}`).filter((path) => !SETTINGS_ZH[path])).toEqual([]);
  });

  it("every section of the settings has a name", () => {
    const sections = new Set(Object.keys(SETTINGS_ZH).map((path) => `section.${path.split(".")[0]}`));
    expect([...sections].filter((key) => !(key in en))).toEqual([]);
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
