/** The name of a code while the names are on their way, when they are there, and when they are refused. */
import { beforeEach, expect, test, vi } from "vitest";

const WORDS = { scheduling: [{ code: "SCHED_QUOTA_EXCEEDED", name: { en: "The quota", zh: "配额" }, advice: null }] };
let answer: (found: Response) => void;

beforeEach(() => {
  vi.resetModules();
  const waiting = new Promise<Response>((done) => {
    answer = done;
  });
  vi.stubGlobal("fetch", () => waiting);
});

async function fresh() {
  return (await import("../src/state/vocabulary")).named;
}

test("no code is shown while the names are on their way", async () => {
  const named = await fresh();
  expect(named("scheduling", "SCHED_QUOTA_EXCEEDED")).toBe("…");
  answer(new Response(JSON.stringify(WORDS)));
  await vi.waitFor(() => expect(named("scheduling", "SCHED_QUOTA_EXCEEDED")).toBe("The quota"));
});

test("a code without a name is shown as it is", async () => {
  const named = await fresh();
  expect(named("scheduling", "NEW")).toBe("…");
  answer(new Response(JSON.stringify(WORDS)));
  await vi.waitFor(() => expect(named("scheduling", "NEW")).toBe("NEW"));
  expect(named("scheduling", null)).toBe("–");
});

test("if the names are refused, codes are better than nothing", async () => {
  const named = await fresh();
  expect(named("scheduling", "SCHED_QUOTA_EXCEEDED")).toBe("…");
  answer(new Response("{}", { status: 500 }));
  await vi.waitFor(() => expect(named("scheduling", "SCHED_QUOTA_EXCEEDED")).toBe("SCHED_QUOTA_EXCEEDED"));
});
