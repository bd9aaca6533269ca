// Just enough of a tokenizer to colour JSON and Python; what it doesn't know stays plain. Pure.

export type TokenKind = "key" | "text" | "number" | "word" | "comment" | "name" | "mark" | "plain";

export interface Token {
  kind: TokenKind;
  text: string;
}

const PYTHON_WORDS =
  "False|None|True|and|as|assert|class|def|elif|else|for|from|if|import|in|is|lambda|not|or|pass|raise|return|with";

// One alternative a kind; the first that fits at a place wins.
const GRAMMARS: Record<"json" | "python", [TokenKind, string][]> = {
  json: [
    ["key", String.raw`"(?:[^"\\\n]|\\.)*"(?=\s*:)`],
    ["text", String.raw`"(?:[^"\\\n]|\\.)*"?`],
    ["number", String.raw`-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b`],
    ["word", String.raw`\b(?:true|false|null)\b`],
    ["mark", String.raw`[{}\[\],:]+`],
  ],
  python: [
    ["comment", "#[^\n]*"],
    ["text", String.raw`[rfb]?"""[\s\S]*?(?:"""|$)`],
    ["text", String.raw`[rfb]?"(?:[^"\\\n]|\\.)*"?|[rfb]?'(?:[^'\\\n]|\\.)*'?`],
    ["number", String.raw`\b\d+(?:\.\d+)?(?:e[+-]?\d+)?\b`],
    ["word", String.raw`\b(?:${PYTHON_WORDS})\b`],
    ["name", String.raw`\b[A-Za-z_]\w*(?=\()`],
    ["key", String.raw`\b[A-Za-z_]\w*(?==[^=])`],
  ],
};

/** The whole text in tokens, line by line; a token over several lines is cut at their ends. */
export function highlight(text: string, language: "json" | "python"): Token[][] {
  const grammar = GRAMMARS[language];
  const pattern = new RegExp(grammar.map(([, source]) => `(${source})`).join("|"), "g");
  const lines: Token[][] = [[]];
  const put = (kind: TokenKind, part: string) =>
    part.split("\n").forEach((piece, index) => {
      if (index > 0) lines.push([]);
      if (piece) lines.at(-1)?.push({ kind, text: piece });
    });
  let done = 0;
  for (const match of text.matchAll(pattern)) {
    put("plain", text.slice(done, match.index));
    const which = match.slice(1).findIndex((group) => group !== undefined);
    put(grammar[which]?.[0] ?? "plain", match[0]);
    done = match.index + match[0].length;
  }
  put("plain", text.slice(done));
  return lines;
}
