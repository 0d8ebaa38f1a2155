import { afterEach, describe, expect, it, vi } from "vitest";
import type { CaseRow, PolicyBody } from "../src/api/shapes";
import { allEntries } from "../src/pages/audit";
import { changesOf } from "../src/pages/backtest";
import { idleRows } from "../src/pages/idle";
import { actionsOf, idleSince, isOpen, nextOf, secondsOf, settingText, stateKey, toneOf } from "../src/parts/cases";

const row = (state: CaseRow["state"], more: Partial<CaseRow> = {}): CaseRow =>
  ({ id: "u1", pod_uid: "u1", state, next_at: null, acted_at: null, dry_run: false, held_by: [], ...more }) as CaseRow;

describe("a case", () => {
  it("offers what the analyzer accepts in its state", () => {
    expect(actionsOf(row("candidate"))).toEqual(["snooze", "exempt"]);
    expect(actionsOf(row("awaiting_approval"))).toEqual(["approve", "snooze", "exempt"]);
    expect(actionsOf(row("snoozed"))).toEqual(["snooze", "exempt"]);
    expect(actionsOf(row("released"))).toEqual(["exempt"]);
    expect(actionsOf(row("exempt"))).toEqual([]);
    expect(actionsOf(row("verified", { acted_at: 1 }))).toEqual(["restore"]);
    expect(actionsOf(row("restored", { acted_at: 1 }))).toEqual([]);
  });

  it("of a dry run never looks as if something was taken", () => {
    const dry = row("acting", { dry_run: true, acted_at: 1, next_at: 9 });
    expect([stateKey(dry), toneOf(dry), nextOf(dry)]).toEqual(["acting_dry", "plain", null]);
    expect(actionsOf(dry)).not.toContain("restore");
    expect(toneOf(row("acting"))).toBe("warn");
  });

  it("counts down only to what happens by time", () => {
    expect(nextOf(row("grace", { next_at: 9 }))).toEqual({ key: "case_next.action", at: 9 });
    expect(nextOf(row("snoozed", { next_at: 9 }))).toEqual({ key: "case_next.wakes", at: 9 });
    expect(nextOf(row("candidate"))).toEqual({ key: "case_next.windows" });
    expect(nextOf(row("verified", { next_at: 9 }))).toBeNull();
    expect(nextOf(row("grace"))).toBeNull();
  });

  it("is open until it has ended", () => {
    expect([isOpen(row("grace")), isOpen(row("released")), isOpen(row("snoozed"))]).toEqual([true, false, false]);
  });

  it("is idle only as long as it is known to be", () => {
    const states = ["candidate", "acting", "snoozed", "released", "verified", "exempt"] as const;
    expect(states.map((state) => idleSince(row(state, { idle_since: 7 })))).toEqual([7, 7, 7, null, null, null]);
  });

  it("belongs to a pod by its UID, and a pod without one has none", () => {
    const tenant = (pod_uid: string) => ({ verdict: "idle", pod_uid, namespace: "ns", pod: "a", container: "c" });
    const gpus = [{ gpu_id: "g", mig: null, tenants: [tenant("u1"), tenant("u2"), tenant("")] }];
    const found = idleRows(gpus as never, [row("grace"), row("candidate", { id: "x", pod_uid: null })]);
    expect(found.map((one) => one.case?.state ?? null)).toEqual(["grace", null, null]);
  });
});

describe("a duration in a form", () => {
  it("is read as settings write it", () => {
    expect(["90s", "30m", "2h", "1d", "0s", "45", " 1.5h "].map(secondsOf)).toEqual([
      90, 1800, 7200, 86400, 0, 45, 5400,
    ]);
    expect(["", "soon", "-1h", "1h30m", "1w"].map(secondsOf)).toEqual([null, null, null, null, null]);
  });

  it("is written as settings write it", () => {
    expect([30, 1800, 7200, 86400, 5400, 0].map(settingText)).toEqual(["30s", "30m", "2h", "1d", "90m", "0s"]);
    for (const one of [1, 59, 61, 3600, 100_000]) expect(secondsOf(settingText(one))).toBe(one);
  });
});

describe("a back-test", () => {
  const policy = {
    confirmations: 3,
    grace: 1800,
    min_pod_age: 1800,
    max_per_hour: 10,
    include_held: false,
  } as PolicyBody;
  const same = { confirmations: "3", grace: "30m", min_pod_age: "1800s", max_per_hour: "10", include_held: false };

  it("sends nothing of what is in effect, however it is written", () => {
    expect(changesOf(policy, same)).toEqual({});
  });

  it("sends what was changed, as numbers", () => {
    expect(changesOf(policy, { ...same, grace: "2h", confirmations: "5", include_held: true })).toEqual({
      grace: 7200,
      confirmations: 5,
      include_held: true,
    });
  });
});

describe("the whole audit log", () => {
  afterEach(() => vi.unstubAllGlobals());

  it("is read page by page, and written in the order in which it happened", async () => {
    const pages = [
      { entries: [{ number: 4 }, { number: 3 }], next_before: 3 },
      { entries: [{ number: 2 }, { number: 1 }], next_before: null },
    ];
    const asked: string[] = [];
    vi.stubGlobal("fetch", async (url: string) => {
      asked.push(String(url));
      return new Response(JSON.stringify(pages[asked.length - 1]), { status: 200 });
    });
    const read: number[] = [];
    const text = await allEntries({ id: "u1", namespace: ["a", "b"] }, (n) => read.push(n));
    expect(
      text
        .trim()
        .split("\n")
        .map((line) => JSON.parse(line).number),
    ).toEqual([1, 2, 3, 4]);
    expect(read).toEqual([2, 4]);
    expect(asked[0]).toMatch(/id=u1&namespace=a&namespace=b/);
    expect(asked[1]).toMatch(/before=3/);
  });
});
