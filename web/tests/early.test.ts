import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { withQuery } from "../src/api/client";
import { FLEET } from "../src/parts/fleetmap";

test("index.html asks early for exactly what the overview asks for, or the browser would ask twice", () => {
  const page = readFileSync("index.html", "utf8");
  const early = [...page.matchAll(/<link rel="preload" as="fetch" crossorigin href="([^"]*)"/g)];
  const asked = ["/api/v1/session", "/api/v1/overview", withQuery("/api/v1/gpus", { namespace: [], ...FLEET })];
  expect(early.map((one) => one[1]!.replaceAll("&amp;", "&"))).toEqual(asked.map((path) => `..${path}`));
});
