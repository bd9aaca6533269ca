import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// One ES module for Streamlit to import, hashed, with what changes rarely in chunks of its own.
export default defineConfig({
  plugins: [react()],
  define: { "process.env.NODE_ENV": JSON.stringify("production") },
  base: "./",
  build: {
    outDir: "../walkgraph_editor/ui_dist",
    emptyOutDir: true,
    target: "es2022",
    lib: { entry: "src/index.tsx", formats: ["es"] },
    rolldownOptions: {
      output: {
        entryFileNames: "index-[hash].js",
        chunkFileNames: "chunk-[name]-[hash].js",
        minify: true,
        codeSplitting: {
          groups: [
            { name: "layout", test: /node_modules\/elkjs/ },
            { name: "vendor", test: /node_modules/ },
          ],
        },
      },
    },
  },
  // Files share what they import: to load it anew for each takes twice the time of all tests.
  // The time limit finds tests that hang: none is so slow that a busy machine needs as long.
  test: { include: ["tests/**/*.test.{ts,tsx}"], isolate: false, testTimeout: 600_000 },
});
