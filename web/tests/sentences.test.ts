import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { AttentionRow, TimelineEvent } from "../src/api/shapes";
import { asks, attentionText, eventText, findingText, kindsOf } from "../src/parts/sentences";
import { language } from "../src/state/preferences";
import { named } from "../src/state/vocabulary";

const WORD = (code: string) => ({ code, name: { en: "A reason", zh: "原因" }, advice: null });
const WORDS = {
  reason: [WORD("VERDICT_IDLE_NO_WORK")],
  health: [WORD("lost"), WORD("ok")],
  scheduling: [WORD("SCHED_QUOTA_EXCEEDED")],
  outcome: [WORD("deleted")],
  finding: [WORD("ghost")],
};

beforeAll(async () => {
  vi.stubGlobal("fetch", async () => new Response(JSON.stringify(WORDS)));
  named("reason", "VERDICT_IDLE_NO_WORK");
  await vi.waitFor(() => expect(named("health", "lost")).toBe("A reason"));
});
afterEach(() => {
  language.value = "en";
});

const NOTHING = {
  code: null,
  node: null,
  gpu_id: null,
  mig: null,
  namespace: null,
  pod: null,
  container: null,
  since: null,
  number: null,
  unit: null,
  message: null,
};
const ATTENTION: readonly Partial<AttentionRow>[] = [
  { kind: "unhealthy", code: "lost" },
  { kind: "xid", code: "XID_79", number: 79, unit: "xid" },
  { kind: "no-data", code: "NO_DATA" },
  { kind: "no-data", code: "SOURCE_DOWN", message: "http://node:9394" },
  { kind: "over-limit", number: 1.02, unit: "ratio" },
  { kind: "near-limit", number: 0.97, unit: "ratio" },
  { kind: "idle-long", code: "VERDICT_IDLE_NO_WORK", number: 3600, unit: "seconds" },
  { kind: "idle-tenant", code: "idle-held" },
  { kind: "stalled", code: "VERDICT_IDLE_NO_WORK" },
  { kind: "pending-long", code: "SCHED_QUOTA_EXCEEDED" },
  { kind: "unattributed", number: 2 ** 30, unit: "bytes" },
  ...["ended", "unknown", "terminating", "elsewhere", "unbound", "unused"].map((message) => ({
    kind: "finding" as const,
    code: "ghost",
    message,
  })),
  ...["memory", "cores", "slots"].map((message) => ({ kind: "finding" as const, code: "over-allocated", message })),
  ...["unallocated-user", "vanished-device", "node-unknown", "kubelet-zero"].map((code) => ({
    kind: "finding" as const,
    code,
  })),
];
const SPACED = /[\u4e00-\u9fff] [\u4e00-\u9fff]/;
const RAW = /[A-Z]{3,}_[A-Z]|idle-held|over-allocated|terminating$|undefined|null|\{/;

describe("sentences", () => {
  it.each(ATTENTION)("a row of what needs attention has no code: %j", (given) => {
    const row = { ...NOTHING, ...given } as AttentionRow;
    for (const one of ["en", "zh"] as const) {
      language.value = one;
      expect(attentionText(row)).not.toMatch(RAW);
      expect(attentionText(row).length).toBeGreaterThan(1);
      if (one === "zh") expect(attentionText(row)).toMatch(/[\u4e00-\u9fff]/);
    }
  });

  it("no space stands between Chinese words, whatever the sentence is about", () => {
    language.value = "zh";
    for (const mig of [null, "MIG-1"]) {
      for (const given of ATTENTION) {
        expect(attentionText({ ...NOTHING, ...given, mig } as AttentionRow)).not.toMatch(SPACED);
      }
      for (const after of [null, "seen"]) {
        const event = { ...NOTHING, id: "1", at: "", kind: "gpu", before: null, after, mig };
        expect(eventText(event as unknown as TimelineEvent)).not.toMatch(SPACED);
      }
    }
  });

  it("a use above the limit is never shown as 100 % of it", () => {
    const over = { ...NOTHING, kind: "over-limit", number: 1.0002, unit: "ratio" } as AttentionRow;
    expect(attentionText(over)).toBe("Uses 100.1 % of its memory limit.");
    expect(attentionText({ ...over, number: 1.25 })).toBe("Uses 125 % of its memory limit.");
  });

  it("tells the ghosts apart", () => {
    const all = ["ended", "unknown", "terminating", "elsewhere", "unbound", "unused"].map((reason) =>
      findingText("ghost", reason),
    );
    expect(new Set(all).size).toBe(6);
  });

  it.each([
    { kind: "verdict", before: "busy", after: "idle-held", code: "idle" },
    { kind: "xid", number: 48, code: "XID_48", message: "double-bit ECC error" },
    { kind: "health", before: "ok", after: "lost" },
    { kind: "gpu", before: null, after: "seen" },
    { kind: "gpu", before: "seen", after: null },
    { kind: "target", before: "up", after: "down", message: "http://node:9394" },
    { kind: "scheduling", before: "waiting", after: "deleted", number: 46, code: "SCHED_QUOTA_EXCEEDED" },
  ] as const)("an event has no code: %j", (given) => {
    const event = { ...NOTHING, id: "1", at: "", before: null, after: null, ...given } as unknown as TimelineEvent;
    for (const one of ["en", "zh"] as const) {
      language.value = one;
      expect(eventText(event)).not.toMatch(RAW);
      expect(eventText(event)).not.toBe("");
    }
  });

  it("what a pod asks for has the units that people read", () => {
    const requests = {
      "nvidia.com/gpu": 1,
      "nvidia.com/gpumem": 16_384,
      "nvidia.com/gpucores": 10,
      "example.com/npu": 2,
    };
    expect(asks({ requests, claims: ["claim-a"] })).toBe("1 GPU, 16 GiB, 10 % cores, 2 × npu, claim-a");
  });
});

describe("what a sentence is about", () => {
  const row = (more: Partial<TimelineEvent>): TimelineEvent =>
    Object.assign({ id: "1", at: "", kind: "gpu", before: null, after: null }, NOTHING, more);

  it("is a MIG instance where the row is of one", () => {
    const mig = { after: "seen", gpu_id: "GPU-1", mig: "MIG-1" };
    expect(eventText(row(mig))).toBe("The MIG instance is reported for the first time, or again.");
    expect(eventText(row({ ...mig, mig: null }))).toBe("The GPU is reported for the first time, or again.");
    const idle = { ...NOTHING, kind: "idle-tenant", mig: "MIG-1" } as unknown as AttentionRow;
    expect(attentionText(idle)).toBe("Idle, while other pods keep this MIG instance busy.");
  });

  it("is GPUs and MIG instances where one row of a table is of an instance", () => {
    expect(kindsOf([{ mig: null }])).toBe("GPUs");
    expect(kindsOf([{ mig: null }, { mig: "MIG-1" }])).toBe("GPUs and MIG instances");
  });

  it("says once in Chinese that a pod has waited", () => {
    language.value = "zh";
    const deleted = {
      kind: "scheduling" as const,
      code: "SCHED_QUOTA_EXCEEDED",
      before: "waiting",
      after: "deleted",
      number: 45,
    };
    expect(eventText(row(deleted))).toBe("已删除，等待了 45 秒：原因");
  });
});
