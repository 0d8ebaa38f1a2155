import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import type { DecisionRow } from "../src/api/shapes";
import {
  asksText,
  askText,
  byMessage,
  hasExtender,
  mainReason,
  messageOf,
  repeated,
  scoreText,
} from "../src/parts/decisions";
import { lackText, nearest, verdictOf, wishOf } from "../src/parts/fit";
import { language } from "../src/state/preferences";

beforeAll(() => {
  vi.stubGlobal("fetch", async () => new Response("{}")); // codes have no names here
});
afterEach(() => {
  language.value = "en";
});

const ASK = { container: "main", init: false, count: 2, memory: 8192, percentage: null, cores: 30 };
const ROW: DecisionRow = {
  id: "1",
  at: "2026-11-17T08:00:00Z",
  verb: "filter",
  namespace: "ml",
  pod: "train-0",
  pod_uid: "u",
  outcome: "refused",
  node: null,
  gpus: [],
  score: null,
  policy: null,
  terms: {},
  codes: { SCHED_INSUFFICIENT_GPU_MEMORY: 7, SCHED_TAINT: 1 },
  fitting: 0,
  asks: [ASK],
  constraints: [],
  seconds: 0.001,
};

describe("what a pod asks for", () => {
  it("is said in units that people read", () => {
    expect(askText(ASK)).toBe("2 GPUs, 8 GiB, 30 % cores");
    expect(askText({ ...ASK, count: 1, memory: null, cores: 0 })).toBe("1 GPU, all memory");
    expect(askText({ ...ASK, memory: null, percentage: 50, cores: 0 })).toBe("2 GPUs, 50 % memory");
    language.value = "zh";
    expect(askText({ ...ASK, memory: null, cores: 0 })).toBe("2 张 GPU，全部显存");
  });
  it("names the containers only if there are several", () => {
    expect(asksText([])).toBeNull();
    expect(asksText([ASK])).toBe("2 GPUs, 8 GiB, 30 % cores");
    expect(asksText([ASK, { ...ASK, container: "side", count: 1 }])).toContain("side: 1 GPU");
  });
});

describe("a decision", () => {
  it("says why a pod was refused: the reason of most nodes", async () => {
    const name = { en: "Too little GPU memory.", zh: "显存不足。" };
    const words = { scheduling: [{ code: "SCHED_INSUFFICIENT_GPU_MEMORY", name, advice: null }] };
    vi.stubGlobal("fetch", async () => new Response(JSON.stringify(words)));
    await vi.waitFor(() => expect(mainReason(ROW)).toBe("Too little GPU memory (7 nodes)"));
    expect(mainReason({ ...ROW, outcome: "assigned" })).toBe("");
    expect(mainReason({ ...ROW, codes: {} })).toBe("");
  });
  it("shows a score with its terms, and none if there is none", () => {
    expect(scoreText(ROW)).toBeNull();
    expect(scoreText({ ...ROW, score: 12.5, terms: { slots: 2.5, cores: 4, memory: 6 } })).toBe(
      "12.5 of 30 = slots 2.5 + cores 4 + memory 6",
    );
  });
  it("that was made again and again is one row, with the newest first", () => {
    const other = { ...ROW, id: "2", pod_uid: "v" };
    const found = repeated([ROW, other, { ...ROW, id: "3" }, { ...ROW, id: "4", codes: { SCHED_TAINT: 1 } }]);
    expect(found.map(({ row, times }) => [row.id, times])).toEqual([
      ["1", 2],
      ["2", 1],
      ["4", 1],
    ]);
  });
  it("shows nodes with the same verdict together, in the language of the page", () => {
    const said = { message: "GPU memory insufficient", message_zh: "GPU 显存不足", requested: "", available: "" };
    const [first, second] = byMessage([
      { node: "a", ...said },
      { node: "b", ...said, message: "connection refused", message_zh: "" },
      { node: "c", ...said },
    ]);
    expect(first?.[1]).toEqual(["a", "c"]);
    expect(messageOf(said)).toBe("GPU memory insufficient");
    language.value = "zh";
    expect(messageOf(said)).toBe("GPU 显存不足");
    expect(messageOf(second?.[0] ?? said)).toMatchObject({ type: "code" }); // another program's words
  });
  it("is not spoken of where no extender is configured", () => {
    const part = {
      at: null,
      age_seconds: null,
      window_seconds: null,
      low_score: null,
      code: null,
      message: null,
      hint: null,
      name: "extender" as const,
    };
    expect(hasExtender({ parts: [{ ...part, state: "absent" }] })).toBe(false);
    expect(hasExtender({ parts: [{ ...part, state: "down" }] })).toBe(true);
    expect(hasExtender({ parts: [] })).toBe(false);
  });
});

describe("what if", () => {
  it("sends only what was filled in", () => {
    const empty = { gpus: "1", memory: "", cores: "", replicas: "1", type: " ", namespace: "" };
    expect(wishOf(empty)).toEqual({ namespace: "default", gpus: 1, replicas: 1 });
    const all = { gpus: "2", memory: "8000", cores: "0", replicas: "3", type: " A100 ", namespace: "ml" };
    expect(wishOf(all)).toEqual({ namespace: "ml", gpus: 2, replicas: 3, memory: 8000, cores: 0, type: "A100" });
  });
  it("says how many replicas fit, and how much is missing", () => {
    expect(verdictOf({ fitting: 1, replicas: 1 })).toBe("It fits");
    expect(verdictOf({ fitting: 0, replicas: 1 })).toBe("It does not fit");
    expect(verdictOf({ fitting: 4, replicas: 6 })).toBe("4 of 6 replicas fit");
    expect(lackText({ memory: 4096, cores: null, gpus: 1 })).toBe("4 GiB");
    expect(lackText({ memory: 4096, cores: null, gpus: 2 })).toBe("4 GiB, 2 GPUs");
    expect(lackText({ memory: null, cores: null, gpus: 1 })).toBe("1 GPU");
    expect(lackText({ memory: null, cores: null, gpus: null })).toBe("–");
    language.value = "zh";
    expect(lackText({ memory: 4096, cores: null, gpus: 2 })).toBe("4 GiB，2 张 GPU");
  });
  it("lists nodes without GPUs only if there are no others", () => {
    const cpu = { node: "cpu", code: "SCHED_NODE_UNREGISTERED", memory: null, cores: null, gpus: null };
    const mig = { node: "mig", code: "SCHED_MIG_INFEASIBLE", memory: null, cores: null, gpus: 1 };
    const gpu = { node: "gpu", code: "SCHED_INSUFFICIENT_GPU_MEMORY", memory: 1, cores: null, gpus: 1 };
    expect(nearest([cpu, mig, gpu]).map((one) => one.node)).toEqual(["gpu", "mig"]);
    expect(nearest([cpu]).map((one) => one.node)).toEqual(["cpu"]);
  });
});
