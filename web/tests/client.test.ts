import { afterEach, describe, expect, it, vi } from "vitest";
import { get, offline, updated, withQuery } from "../src/api/client";

const answer = (body: BodyInit | null, status = 200): void => {
  vi.stubGlobal("fetch", async () => new Response(body, { status }));
};
const codeOf = async (path = "/x"): Promise<string> =>
  get(path).then(
    () => "ok",
    (error: { code: string }) => error.code,
  );

afterEach(() => {
  vi.unstubAllGlobals();
  offline.value = false;
});

describe("answers", () => {
  it("half an answer is an error, and not an empty one", async () => {
    for (const body of ['{"rows": [1', "", "null", "5"]) {
      answer(body);
      expect(await codeOf()).toBe("HALF_ANSWER");
    }
    expect(offline.value).toBe(false);
  });

  it("an error of the API keeps its code and its hint", async () => {
    answer(JSON.stringify({ error: { code: "OBJECT_UNKNOWN", message: "no GPU x", hint: "see gpus" } }), 404);
    await expect(get("/x")).rejects.toMatchObject({ code: "OBJECT_UNKNOWN", hint: "see gpus", status: 404 });
    answer("<html>bad gateway</html>", 502);
    expect(await codeOf()).toBe("HTTP_502");
  });

  it("no connection is told from an error, and ends with the next answer", async () => {
    vi.stubGlobal("fetch", async () => Promise.reject(new TypeError("failed")));
    expect(await codeOf()).toBe("NO_CONNECTION");
    expect(offline.value).toBe(true);
    answer("{}");
    expect(await codeOf()).toBe("ok");
    expect(offline.value).toBe(false);
    expect(updated.value).not.toBeNull();
  });

  it("leaves out parameters without a value, and repeats lists", () => {
    expect(withQuery("/x", { a: null, b: "", c: ["1", "2"], d: 0 })).toBe("/x?c=1&c=2&d=0");
  });
});
