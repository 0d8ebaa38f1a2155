import { afterEach, describe, expect, it, vi } from "vitest";
import { ApiError } from "../src/api/client";
import type { AuditEntry, CaseRow, PolicyBody } from "../src/api/shapes";
import { allEntries } from "../src/pages/audit";
import { changesOf, wrongOf } from "../src/pages/backtest";
import { idleRows } from "../src/pages/idle";
import {
  actionsOf,
  faultOf,
  idleSince,
  isBeyondRestore,
  isOpen,
  nextOf,
  secondsOf,
  settingText,
  signalText,
  stateKey,
  stateName,
  toneOf,
} from "../src/parts/cases";
import { failureText } from "../src/parts/reclaim";

const row = (state: CaseRow["state"], more: Partial<CaseRow> = {}): CaseRow =>
  ({ id: "u1", pod_uid: "u1", state, next_at: null, acted_at: null, dry_run: false, held_by: [], ...more }) as CaseRow;

describe("a case", () => {
  it("offers what the analyzer accepts in its state", () => {
    expect(actionsOf(row("candidate"))).toEqual(["snooze", "exempt"]);
    expect(actionsOf(row("awaiting_approval"))).toEqual(["approve", "snooze", "exempt"]);
    expect(actionsOf(row("snoozed"))).toEqual(["snooze", "exempt", "resume"]);
    expect(actionsOf(row("released"))).toEqual(["exempt"]);
    expect(actionsOf(row("exempt"))).toEqual(["resume"]);
    expect(actionsOf({ ...row("exempt"), reason: "annotation" })).toEqual([]);
    expect(actionsOf(row("verified", { acted_at: 1 }))).toEqual(["restore"]);
    expect(actionsOf(row("restored", { acted_at: 1 }))).toEqual([]);
  });

  it("offers a restore only if the analyzer can put something back", () => {
    const taken = { acted_at: 1, restorable: false };
    expect(actionsOf(row("verified", taken))).toEqual([]);
    expect(actionsOf(row("verified", { ...taken, restorable: true }))).toEqual(["restore"]);
    for (const state of ["released", "exempt", "snoozed"] as const)
      expect(actionsOf(row(state, { ...taken, restorable: true }))).toContain("restore"); // the pod worked while it ended
    expect(isBeyondRestore(row("verified", taken))).toBe(true);
    for (const state of ["grace", "acting", "failed"] as const) expect(isBeyondRestore(row(state, taken))).toBe(false); // it may not have been done at all
  });

  it("that was approved does not ask for it again", () => {
    const approved = row("awaiting_approval", { reason: "approved", by: "alice" });
    expect(actionsOf(approved)).toEqual(["snooze", "exempt"]);
    expect(stateKey(approved)).toBe("approved");
    expect(nextOf(approved)).toEqual({ key: "case_next.now" });
  });

  it("names each sign of use, and what could not be read", () => {
    const sign = (name: string, active: boolean | null, more = {}) =>
      signalText({ name, active, at: null, value: null, detail: "", ...more });
    expect(sign("vllm", true, { value: 12 })).toBe("vllm: in use, value 12");
    expect(sign("schedule", false)).toBe("schedule: not in use");
    expect(sign("queue q", null, { detail: "no expression knows it" })).toBe(
      "queue q: could not be read, no expression knows it",
    );
    // what is wrong with an annotation says nothing about use
    expect(sign("annotation", false, { detail: "'nver' counts as never" })).toBe("annotation: 'nver' counts as never");
  });

  it("says what fails while it waits, and only then", () => {
    const step = (what: string) => ({ what, reason: "500" }) as AuditEntry;
    const failing = [step("call_failed"), step("moved")];
    expect(faultOf(row("acting"), failing)).toEqual({ key: "case.call_failing", reason: "500" });
    expect(faultOf(row("notified"), [step("notice_failed")])?.key).toBe("case.notice_failing");
    expect(faultOf(row("acting"), [step("call_delivered"), ...failing])).toBeNull();
    expect([faultOf(row("verified"), failing), faultOf(row("acting"), [])]).toEqual([null, null]);
  });

  it("of a dry run never looks as if something was taken", () => {
    const dry = row("would_act", { dry_run: true, acted_at: 1, next_at: 9 });
    expect([stateName(dry), toneOf(dry), nextOf(dry)]).toEqual(["would act (dry run)", "plain", null]);
    expect(nextOf(row("grace", { next_at: 9 }), true)).toEqual({ key: "case_next.would_act", at: 9 });
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

describe("a refusal", () => {
  it("is said in sentences, without a hint for programs", () => {
    vi.stubGlobal("fetch", () => new Promise(() => undefined)); // the names of codes are on their way
    const unfit = new ApiError("CASE_UNFIT", "the case of ml/a is exempt", "/api/v1/reclaim lists every case.");
    expect(failureText(unfit)).toBe(
      "the case of ml/a is exempt. Nothing was changed. The page behind this shows the case as it is now.",
    );
    expect(failureText(new ApiError("X", "reclaim.grace: 0", "Look again."))).toBe("reclaim.grace: 0. Look again.");
  });
});

describe("a duration in a form", () => {
  it("is read as settings write it", () => {
    expect(["90s", "30m", "2h", "1d", "0s", "45", " 1.5h "].map(secondsOf)).toEqual([
      90, 1800, 7200, 86400, 0, 45, 5400,
    ]);
    expect(["", "soon", "-1h", "1h30m", "1w"].map(secondsOf)).toEqual([null, null, null, null, null]);
  });

  it("outside of what the API takes is refused before it is sent", () => {
    const bounds = { least: 60, most: 604_800 };
    expect(["1m", "7d"].map((text) => wrongOf(text, bounds))).toEqual([null, null]);
    expect(["0", "59s", "8d"].map((text) => wrongOf(text, bounds))).toEqual(Array(3).fill("From 1m to 7d."));
    expect([wrongOf("0s"), wrongOf("soon")]).toEqual([null, "Not a duration. Write 30m, 2h or 1d."]);
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
    include_preparing: false,
  } as PolicyBody;
  const same = {
    confirmations: "3",
    grace: "30m",
    min_pod_age: "1800s",
    max_per_hour: "10",
    include_held: false,
    include_preparing: false,
  };

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
