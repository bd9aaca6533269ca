// Fails where `walkgraph_editor/ui_dist` is not what the sources build: compares with a build in a temporary folder.
import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "vite";

const committed = fileURLToPath(new URL("../../walkgraph_editor/ui_dist", import.meta.url));
const made = await mkdtemp(join(tmpdir(), "walkgraph-ui-"));
try {
  const root = fileURLToPath(new URL("..", import.meta.url));
  await build({ root, logLevel: "error", build: { outDir: made } });
  const names = (await readdir(made)).sort();
  const found = (await readdir(committed).catch(() => [])).sort();
  const same = async (name) => (await readFile(join(made, name))).equals(await readFile(join(committed, name)));
  if (names.join() !== found.join() || !(await Promise.all(names.map(same))).every(Boolean)) {
    console.error("ui_dist is not what the sources build; run `./dev ui` and commit it");
    process.exitCode = 1;
  }
} finally {
  await rm(made, { recursive: true });
}
