import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { snippet, type Call, type Language, type Snippet } from "../../src/play/snippets";

const NASTY = `it's "50%" of $HOME \\ \`x\` \n☃ 🎈 %s`;
const PICTURE = Buffer.from(
  Uint8Array.from({ length: 300 }, (_, index) => (index === 0 ? 0x89 : index % 256)),
).toString("base64");
const LONG = NASTY.repeat(12);
const NUMBERS = Array.from({ length: 100 }, (_, index) => [index / 8, 1 - index]);

const call = (inputs: Record<string, unknown>, params: Call["body"]["params"] = {}): Call => ({
  url: "http://127.0.0.1:8000",
  deployment: "shapes",
  task: "edit",
  body: { inputs, params },
  modalities: { image: "image", prompt: "text", pose: "state" },
});

const CALLS: [string, Call][] = [
  ["a text", call({ prompt: "a red circle" })],
  [
    "what shells and printf read otherwise",
    call({ prompt: NASTY }, { name: NASTY, steps: 20, scale: 0.5, think: true }),
  ],
  ["a picture", call({ image: PICTURE, prompt: NASTY }, { seed: 7 })],
  ["several pictures and a long text", call({ image: [PICTURE, PICTURE], prompt: [LONG, "short", LONG] })],
  ["numbers, few and many", call({ pose: { type: "state", data: [0.5, -1] }, prompt: "x" })],
  ["many numbers", call({ pose: { type: "state", data: NUMBERS } })],
  [
    "parts in an order of one's own",
    call({
      parts: [
        { type: "text", text: LONG },
        { type: "image", mime: "image/png", data: PICTURE },
        { type: "text", text: "x" },
      ],
    }),
  ],
];

/** A folder with the files that a snippet reads. */
function folder({ files }: Snippet): string {
  const path = mkdtempSync(join(tmpdir(), "snippet-"));
  for (const file of files)
    writeFileSync(join(path, file.name), Buffer.from(file.data, file.encoding === "base64" ? "base64" : "utf8"));
  return path;
}

/** What curl would send: its last option's text, or its standard input. */
function sentByCurl(made: Snippet): { arguments: string[]; body: unknown } {
  const fake =
    'curl() { for last; do :; done; printf "%s\\0" "$@"; if [ "$last" = "@-" ]; then cat; else printf "%s" "$last"; fi; }\n';
  const out = execFileSync("bash", ["-c", fake + made.text], {
    cwd: folder(made),
    env: { ...process.env, WALKGRAPH_TOKEN: "t" },
  });
  const words = out.toString("utf8").split("\0");
  return { arguments: words.slice(0, -1), body: JSON.parse(words.at(-1) ?? "") };
}

const STUB = {
  "client.py": `import json
class Client:
    @classmethod
    def local(cls, settings): return cls()
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def stream(self, deployment, task, request):
        print(json.dumps([deployment, task, request]))
        return []
`,
  "settings.py": "class Settings: pass\n",
  "__init__.py": "",
};

function sentByPython(made: Snippet): unknown {
  const path = folder(made);
  mkdirSync(join(path, "walkgraph"));
  for (const [name, text] of Object.entries(STUB)) writeFileSync(join(path, "walkgraph", name), text);
  writeFileSync(join(path, "call.py"), made.text);
  const out = execFileSync("python3", ["call.py"], {
    cwd: path,
    env: { ...process.env, PYTHONPATH: path, PYTHONUTF8: "1" },
  });
  return JSON.parse(out.toString("utf8"));
}

const made = (language: Language, asked: Call) => snippet(language, asked);
const clean = (asked: Call) => ({
  inputs: asked.body.inputs,
  ...(Object.keys(asked.body.params).length ? { params: asked.body.params } : {}),
});

describe("curl", () => {
  it.each(CALLS)("sends exactly the request of %s", (_, asked) => {
    const { arguments: words, body } = sentByCurl(made("curl", asked));
    expect(body).toEqual(clean(asked));
    expect(words[0]).toBe("http://127.0.0.1:8000/v1/tasks/shapes/edit");
    expect(words).toContain("Authorization: Bearer t");
    expect(words).toContain("Content-Type: application/json");
  });
});

describe("Python", () => {
  it.each(CALLS)("sends exactly the request of %s", (_, asked) => {
    expect(sentByPython(made("python", asked))).toEqual(["shapes", "edit", clean(asked)]);
  });
});

describe("the command line", () => {
  const words = (asked: Call): string[] => {
    const text = made("cli", asked);
    const fake = 'walkgraph() { printf "%s\\0" "$@"; }\n';
    return execFileSync("bash", ["-c", fake + text.text], { cwd: folder(text) })
      .toString("utf8")
      .split("\0")
      .slice(0, -1);
  };

  it("has an option for each value and parameter", () => {
    expect(
      words(call({ image: [PICTURE, PICTURE], prompt: NASTY }, { steps: 20, think: true, name: NASTY })),
    ).toEqual([
      "run",
      "shapes",
      "edit",
      "--image",
      "image.bin",
      "--image",
      "image-2.bin",
      "--prompt",
      NASTY,
      "--steps",
      "20",
      "--think",
      "true",
      "--name",
      NASTY,
    ]);
  });

  it("reads a long text from its file, and numbers from theirs", () => {
    expect(words(call({ prompt: LONG }))).toEqual(["run", "shapes", "edit", "--prompt", LONG]);
    const numbers = made("cli", call({ pose: { type: "state", data: NUMBERS } }));
    expect(numbers.files).toEqual([{ name: "pose.json", encoding: "text", data: JSON.stringify(NUMBERS) }]);
  });

  it("says that it has no order of one's own", () => {
    const text = made("cli", call({ parts: [{ type: "text", text: "x" }] })).text;
    expect(text).toMatch(/^# .*curl or Python/);
  });
});

it("names files by what is in them", () => {
  const jpeg = Buffer.from([0xff, 0xd8, 0xff, ...new Uint8Array(300)]).toString("base64");
  const sent = call({ parts: [{ type: "audio", mime: "audio/wav", data: PICTURE }], image: jpeg });
  expect(
    made("python", sent)
      .files.map((file) => file.name)
      .sort(),
  ).toEqual(["audio.wav", "image.jpg"]);
});
