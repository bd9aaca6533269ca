import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";

const ROOT = join(import.meta.dirname, "../../src");

/** Folder -> the classes that its style sheets begin a selector with. */
function owners(): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const file of readdirSync(ROOT, { recursive: true, encoding: "utf8" })) {
    const folder = file.split("/")[0]!;
    if (!file.endsWith(".css") || folder === "ui") continue;
    const css = readFileSync(join(ROOT, file), "utf8");
    for (const [, name] of css.matchAll(/^\.(wg-[a-z0-9-]+)(?=[\s.{:>[,])/gm))
      found.set(name!, (found.get(name!) ?? new Set()).add(folder));
  }
  return found;
}

it("all sheets share one shadow root, so a class belongs to one folder", () => {
  const all = owners();
  expect(all.size).toBeGreaterThan(50);
  const shared = [...all].filter(([, folders]) => folders.size > 1).map(([name, folders]) => [name, [...folders]]);
  expect(shared).toEqual([]);
});
