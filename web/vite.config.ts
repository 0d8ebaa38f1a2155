import { defineConfig } from "vitest/config";

// "./": assets are found relative to <base>, which the analyzer writes into index.html for each path.
export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/vgpuscope/http/assets/console",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    license: { fileName: "licences.txt" }, // of every package that is in the bundle; linked on the page Settings
    assetsInlineLimit: 0, // the content security policy allows no data: scripts or styles
    rolldownOptions: {
      output: { entryFileNames: "assets/[name]-[hash].js", assetFileNames: "assets/[name]-[hash][extname]" },
    },
  },
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  server: {
    proxy: { "/api": "http://127.0.0.1:8080", "/analyze": "http://127.0.0.1:8080", "/config": "http://127.0.0.1:8080" },
  },
  test: { environment: "happy-dom", include: ["tests/**/*.test.ts", "tests/**/*.test.tsx"] },
});
