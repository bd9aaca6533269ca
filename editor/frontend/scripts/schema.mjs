// Writes src/document/schema.generated.ts and src/document/placement/schema.generated.ts from the published JSON Schemas.
// With `--check` it writes nothing and fails where a file differs.
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname } from "node:path";
import { compile } from "json-schema-to-typescript";

const BACKEND = new URL("../../../backend/walkgraph/", import.meta.url);
const SOURCES = [
  ["graph/graph-v1.schema.json", "../src/document/schema.generated.ts", "GraphDocument"],
  ["placement/placement-v1.schema.json", "../src/document/placement/schema.generated.ts", "PlacementDocument"],
];

let stale = false;
for (const [source, target, title] of SOURCES) {
  const schema = JSON.parse(await readFile(new URL(source, BACKEND), "utf8"));
  const made = await compile({ ...schema, title }, title, {
    bannerComment: `/* Made from ${source} by \`npm run schema\`; not to be edited. */`,
    additionalProperties: false,
    ignoreMinAndMaxItems: true,
    unreachableDefinitions: false,
    style: { printWidth: 118 },
  });
  const text = made
    .replace(/ *\/\*\*\n *\* This interface was referenced by[^]*?\*\/\n/g, "")
    .replace(/\n *\*\n *\* This interface was referenced by[^]*?(?=\n *\*\/)/g, "");
  const file = new URL(target, import.meta.url);
  const found = await readFile(file, "utf8").catch(() => "");
  if (found === text) continue;
  if (process.argv.includes("--check")) {
    console.error(`${target} is not what the schema says; run \`npm run schema\``);
    stale = true;
  } else {
    await mkdir(dirname(file.pathname), { recursive: true });
    await writeFile(file, text);
  }
}
process.exit(stale ? 1 : 0);
