import { describe, expect, it } from "vitest";
import { lengthOf, period, periodOf, range, scope, setPeriod, setRange, setScope, span } from "../src/state/scope";
import { carried, go, href, partsOf, pathOf, place, setQuery } from "../src/state/url";

describe("the URL", () => {
  it("names with slashes, markup and percent signs come back as they were", () => {
    for (const names of [
      ["research", "a/b"],
      ["<b>", "50%"],
      ["ü", "x y"],
    ]) {
      go(pathOf("workloads", ...names));
      expect(partsOf(place.value.path)).toEqual(["workloads", ...names]);
    }
    expect(href("gpus/<b>")).not.toContain("<");
  });

  it("scope, range and period go along with links; filters stay with their page", () => {
    go("gpus", new URLSearchParams("scope=a&scope=b&range=7d&q=x&f.node=n"));
    expect(carried().toString()).toBe("scope=a&scope=b&range=7d");
    expect(scope.value).toEqual(["a", "b"]);
  });

  it("takes nothing but ranges that exist", () => {
    go("", new URLSearchParams("range=99y"));
    expect(range.value).toBe("24h");
    setRange("7d");
    expect(range.value).toBe("7d");
    setRange("24h");
    expect(place.value.query.has("range")).toBe(false);
  });

  it("a period of the user's own is asked for by its length and its end", () => {
    setPeriod({ from: 1_800_000_000, to: 1_800_005_400 });
    expect(period.value).toEqual({ from: 1_800_000_000, to: 1_800_005_400 });
    expect(span.value).toEqual({ range: "90m", end: 1_800_005_400 });
    setRange("1h");
    expect(span.value).toEqual({ range: "1h", end: null });
  });

  it("a wrong or reversed period is ignored", () => {
    expect(periodOf(new URLSearchParams("from=x&to=y"))).toBeNull();
    expect(periodOf(new URLSearchParams("from=2026-01-02T00:00Z&to=2026-01-01T00:00Z"))).toBeNull();
    expect(lengthOf({ from: 0, to: 30 * 86_400 })).toBe("720h");
  });

  it("removes parameters that are empty", () => {
    go("gpus");
    setScope([]);
    setQuery({ q: "x" });
    setQuery({ q: "" });
    expect(place.value.query.toString()).toBe("");
  });
});
