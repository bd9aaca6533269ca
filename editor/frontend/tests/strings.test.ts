// Sentences and labels lie in `src/strings`: no view holds one in its JSX text or in an attribute that a person reads.
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parseAst } from "vite";
import { filesIn } from "./modules";

const SOURCES = join(import.meta.dirname, "../src");
const READ = new Set(["title", "placeholder", "label", "hint", "alt", "aria-label", "aria-description"]);

interface Tree {
  type: string;
  [key: string]: unknown;
}

/** The literals of a module that a person would read. */
function literals(source: string): string[] {
  const found: string[] = [];
  const keep = (text: unknown) => {
    if (typeof text === "string" && /[A-Za-z]{2}/.test(text)) found.push(text.trim());
  };
  const visit = (value: unknown): void => {
    if (Array.isArray(value)) return value.forEach(visit);
    if (typeof value !== "object" || value === null) return;
    const node = value as Tree;
    if (node.type === "JSXText") keep(node.value);
    if (node.type === "JSXAttribute" && READ.has((node.name as { name: string }).name)) written(node.value, keep);
    for (const [key, child] of Object.entries(node)) if (key !== "type") visit(child);
  };
  visit(parseAst(source, { lang: "tsx" }));
  return found;
}

/** A string, a template's text, or either branch of a condition, written in an attribute itself. */
function written(value: unknown, keep: (text: unknown) => void): void {
  const node = value as Tree | null;
  if (!node) return;
  if (node.type === "Literal") keep(node.value);
  if (node.type === "JSXExpressionContainer") written(node.expression, keep);
  if (node.type === "TemplateLiteral")
    for (const part of node.quasis as { value: { cooked: string } }[]) keep(part.value.cooked);
  if (node.type === "ConditionalExpression") {
    written(node.consequent, keep);
    written(node.alternate, keep);
  }
}

describe("views", () => {
  it("hold no sentence themselves", () => {
    const found = [...filesIn(SOURCES)]
      .filter(([file]) => file.endsWith(".tsx"))
      .flatMap(([file, source]) => literals(source).map((text) => [file, text] as const))
      .map(([file, text]) => `${file}: ${text}`);
    expect(found).toEqual([]);
  });

  it.each([
    ["<p>Not deployed</p>", "Not deployed"],
    ['<Button label="Deploy" />', "Deploy"],
    ["<p title={`Rank ${rank}`} />", "Rank"],
    ['<p aria-label={open ? "Hide" : strings.show} />', "Hide"],
  ])("with one are found out: %s", (source, text) => {
    expect(literals(source)).toEqual([text]);
  });

  it("may name what no person reads", () => {
    expect(literals('<p className="wg-quiet" role="alert" title={strings.deploy.ready}>·</p>')).toEqual([]);
  });
});
