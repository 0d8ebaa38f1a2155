import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";

const TEXT = { en: "Physical GPUs of the fleet, now.", zh: "当前可见范围内物理 GPU 数。" };

describe("definitions of figures", () => {
  beforeEach(() => vi.resetModules());
  afterEach(() => vi.restoreAllMocks());

  it("are read once, and shown in the language of the reader", async () => {
    const get = vi.fn(async () => ({ definitions: [{ code: "fleet.gpus", text: TEXT }], metrics: [] }));
    vi.doMock("../src/api/client", () => ({ get }));
    const { defined } = await import("../src/state/definitions");
    const { language } = await import("../src/state/preferences");
    expect(defined(undefined)).toBe("");
    expect(get).not.toHaveBeenCalled();
    expect(defined("fleet.gpus")).toBe("");
    await vi.waitFor(() => expect(defined("fleet.gpus")).not.toBe(""));
    language.value = "zh";
    expect(defined("fleet.gpus")).toBe(TEXT.zh);
    language.value = "en";
    expect(defined("fleet.gpus")).toBe(TEXT.en);
    expect(defined("fleet.nothing")).toBe("");
    expect(get).toHaveBeenCalledTimes(1);
  });

  it("are asked for again after a failure", async () => {
    const get = vi.fn().mockRejectedValueOnce(new Error("down"));
    get.mockResolvedValue({ definitions: [{ code: "fleet.gpus", text: TEXT }], metrics: [] });
    vi.doMock("../src/api/client", () => ({ get }));
    const { defined } = await import("../src/state/definitions");
    await vi.waitFor(() => expect(defined("fleet.gpus")).not.toBe(""));
    expect(get).toHaveBeenCalledTimes(2);
  });
});
