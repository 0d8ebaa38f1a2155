import { describe, expect, it } from "vitest";
import type { CaseRow, GpuRow, TenantRow } from "../src/api/shapes";
import { idleRows, leftAlone, sumOf } from "../src/pages/idle";
import { tightest } from "../src/pages/namespaces";
import { stateOf } from "../src/pages/nodes";
import { lastMeasured, stack } from "../src/parts/chart";
import { CLASSES, classOf, SIGNS, shownClass } from "../src/parts/classes";
import { curl } from "../src/parts/clipboard";
import { cellsOf } from "../src/parts/fleetmap";
import { realOwner } from "../src/parts/owner";
import { hiddenBy } from "../src/parts/table";

const tenant = (verdict: string, more: Partial<TenantRow> = {}): TenantRow =>
  ({
    namespace: "ns",
    pod: `pod-${verdict}`,
    verdict,
    use_class: "low",
    memory_allocated: null,
    memory_used: null,
    ...more,
  }) as TenantRow;
const gpu = (verdict: string, tenants: TenantRow[], more: Partial<GpuRow> = {}): GpuRow =>
  ({
    gpu_id: "GPU-1",
    mig: null,
    profile: null,
    node: "n",
    index: 0,
    model: "NVIDIA L4",
    use: { mean: null },
    use_class: "low",
    held: true,
    verdict,
    tenants,
    ...more,
  }) as GpuRow;

describe("the class of a GPU", () => {
  it("an idle GPU is unallocated if no pod has it", () => {
    expect(shownClass({ use_class: "idle", verdict: "idle", held: false })).toBe("unallocated");
    expect(shownClass({ use_class: "idle", verdict: "idle", held: true })).toBe("idle");
    expect(shownClass({ use_class: "unknown", verdict: "unknown", held: false })).toBe("unknown");
  });

  it("a class that is not known here is unknown, not idle", () => {
    expect(classOf("something-new")).toBe("unknown");
    expect(classOf(null)).toBe("unknown");
  });

  it("no two classes have the same sign", () => {
    expect(new Set(CLASSES.map((name) => SIGNS[name])).size).toBe(CLASSES.length);
  });
});

describe("what could be taken back", () => {
  it("lists tenants that are idle, and never unknown ones", () => {
    const rows = idleRows([
      gpu("in_use", [tenant("idle"), tenant("unknown"), tenant("in_use")]),
      gpu("unknown", [tenant("unknown")]),
    ]);
    expect(rows.map((row) => row.tenant.verdict)).toEqual(["idle"]);
  });

  it("an idle tenant on a busy GPU is listed", () => {
    expect(idleRows([gpu("in_use", [tenant("idle")])])).toHaveLength(1);
  });

  it("memory is the sum of one column, and what is not known is not 0", () => {
    const rows = idleRows([
      gpu("idle", [tenant("idle", { memory_used: 5 }), tenant("idle", { memory_allocated: 7, memory_used: 1 })]),
    ]);
    expect(sumOf(rows, (row) => row.tenant.memory_allocated)).toEqual({ sum: 7, unknown: 1 });
    expect(sumOf(rows, (row) => row.tenant.memory_used)).toEqual({ sum: 6, unknown: 0 });
    expect(sumOf(rows.slice(0, 1), (row) => row.tenant.memory_allocated)).toEqual({ sum: null, unknown: 1 });
    expect(sumOf([], (row) => row.tenant.memory_used)).toEqual({ sum: 0, unknown: 0 });
  });

  it("every tenant is either acted on or named with what keeps the policy from it, once", () => {
    const held = (setting: string) => [{ brake: "holds_memory", setting, value: "false" }];
    const cases = [
      { pod_uid: "1", state: "grace", actionable: true, held_by: [], brakes: [] },
      { pod_uid: "2", state: "candidate", actionable: false, held_by: ["holds_memory"], brakes: held("x") },
      { pod_uid: "3", state: "candidate", actionable: false, held_by: ["holds_memory"], brakes: held("x") },
      { pod_uid: "4", state: "candidate", actionable: false, held_by: [], brakes: [] },
    ] as unknown as CaseRow[];
    const tenants = ["1", "2", "3", "4", "5"].map((pod_uid) => tenant("idle", { pod_uid }));
    const groups = leftAlone(idleRows([gpu("idle", tenants)], cases));
    expect(groups.map((one) => [one.rows.length, one.why, one.setting, one.key])).toEqual([
      [2, "It holds GPU memory.", "x is false", "holds_memory/x/false"],
      [1, "Idle windows are counted.", "", "candidate"],
      [1, "No case yet: the next analysis opens it.", "", "no-case"],
    ]);
  });

  it("a pod without a UID has the case of its name", () => {
    const found = { pod_uid: null, namespace: "ns", pod: "a", state: "candidate" } as CaseRow;
    const rows = idleRows([gpu("idle", [tenant("idle", { pod_uid: "", namespace: "ns", pod: "a" })])], [found]);
    expect(rows[0]!.case).toBe(found);
  });
});

describe("the map", () => {
  it("marks a busy GPU with an idle tenant", () => {
    const cells = cellsOf([gpu("in_use", [tenant("idle")]), gpu("idle", [tenant("idle")])], "node");
    expect(cells.map((cell) => cell.idleTenant)).toEqual([true, false]);
  });

  it("orders node-2 before node-10, and puts GPUs of several namespaces together", () => {
    const rows = [gpu("in_use", [], { node: "node-10" }), gpu("in_use", [], { node: "node-2" })];
    expect(cellsOf(rows, "node").map((cell) => cell.group)).toEqual(["node-2", "node-10"]);
    const shared = gpu("in_use", [tenant("idle"), tenant("idle", { namespace: "other" })]);
    expect(cellsOf([shared], "namespace")[0]!.group).toBe("several namespaces");
  });
});

describe("stacked charts", () => {
  it("have a gap where nothing was measured, not 0", () => {
    expect(
      stack([
        [1, null, 3],
        [2, null, null],
      ]),
    ).toEqual([
      [1, null, 3],
      [3, null, 3],
    ]);
  });

  it("show the last values that were measured", () => {
    expect(lastMeasured([1, 2, 3], [{ values: [1, 2, null] }, { values: [null, null, null] }])).toBe(1);
    expect(lastMeasured([1], [{ values: [null] }])).toBeNull();
  });
});

describe("small rules", () => {
  it("a node that the API server does not know is gone, and one of which nothing is known is unknown", () => {
    const node = { known: true, ready: true, schedulable: true };
    const state = (more: object) => stateOf({ ...node, ...more } as Parameters<typeof stateOf>[0]);
    expect([
      state({}),
      state({ ready: false }),
      state({ schedulable: false }),
      state({ known: false }),
      state({ ready: null }),
    ]).toEqual(["ready", "not-ready", "unschedulable", "gone", "unknown"]);
  });

  it("the tightest quota is the one nearest to its limit; quotas without a limit do not count", () => {
    const quotas = [{ ratio: 0.2 }, { ratio: null }, { ratio: 0.9 }];
    expect(tightest({ quotas } as Parameters<typeof tightest>[0])?.ratio).toBe(0.9);
    expect(tightest({ quotas: [] } as unknown as Parameters<typeof tightest>[0])).toBeNull();
  });

  it("a pod that nothing owns has no owner", () => {
    expect([realOwner("Pod/x"), realOwner("Deployment/x"), realOwner(null)]).toEqual([null, "Deployment/x", null]);
  });

  it("a command for a shell cannot be left by a quote", () => {
    expect(curl("http://a/?q='; rm -rf /'")).toBe("curl -s 'http://a/?q='\\''; rm -rf /'\\'''");
  });

  it("a link can choose columns; unknown names and the first column do not count", () => {
    const columns = [{ key: "a" }, { key: "b" }, { key: "c" }];
    expect(hiddenBy(new URLSearchParams("cols=c"), columns)).toEqual(["b"]);
    expect(hiddenBy(new URLSearchParams("cols=x"), columns)).toBeNull();
  });
});
