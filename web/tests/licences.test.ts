// @vitest-environment node
import { existsSync } from "node:fs";
import { join } from "node:path";
import { build, type Rolldown } from "vite";
import { expect, test } from "vitest";

const PACKAGE = /node_modules\/((?:@[^/]+\/)?[^/]+)\//;

test("the licences file has the notice of every package in the bundle", { timeout: 120_000 }, async () => {
  const root = join(import.meta.dirname, "..");
  const made = (await build({
    root,
    configFile: join(root, "vite.config.ts"),
    logLevel: "error",
    build: { write: false },
  })) as Rolldown.RolldownOutput;
  const bundled = new Set(
    made.output
      .flatMap((one) => (one.type === "chunk" ? one.moduleIds : []))
      .flatMap((id) => PACKAGE.exec(id)?.[1] ?? []),
  );
  expect([...bundled].sort()).toEqual(["@preact/signals", "@preact/signals-core", "preact", "uplot"]);
  const file = made.output.find((one) => one.fileName === "licences.txt");
  const text = file?.type === "asset" ? String(file.source) : "";
  for (const name of bundled) {
    expect(existsSync(join(root, "node_modules", name))).toBe(true);
    const notice = text.split(/^## /m).find((section) => section.startsWith(`${name} `));
    expect(notice, name).toMatch(/Copyright/);
    expect(notice, name).toMatch(/Permission is hereby granted/);
  }
});
