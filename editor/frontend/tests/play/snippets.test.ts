import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { routesInWords } from "../../src/api/models";
import type { Piece } from "../../src/play/calls/values";
import { snippet, type Call, type Language, type Snippet } from "../../src/play/calls/snippets";

const NASTY = `it's "50%" of $HOME \\ \`x\`; \n☃ 🎈 %s`;
const bytes = (first: number) =>
  Buffer.from(Uint8Array.from({ length: 300 }, (_, index) => (index === 0 ? first : index % 256))).toString("base64");
const [RED, BLUE] = [bytes(1), bytes(2)];
const LONG = `${NASTY.repeat(12)}.`;
const NUMBERS = Array.from({ length: 100 }, (_, index) => [index / 8, 1 - index]);

const said = (text: string, input = "prompt"): Piece => ({
  input,
  modality: "text",
  content: { kind: "text", text },
});
const shown = (data: string): Piece => ({
  input: "image",
  modality: "image",
  content: { kind: "media", mime: "image/png", data },
});
const given = (numbers: unknown): Piece => ({
  input: "pose",
  modality: "state",
  content: { kind: "numbers", numbers },
});

const call = (pieces: Piece[], more: Partial<Call> = {}): Call => ({
  url: "http://127.0.0.1:8000",
  access: { home: null, tokenFile: "/home/ann/.walkgraph/token" },
  deployment: "shapes",
  task: "edit",
  pieces,
  ordered: false,
  params: {},
  watching: {},
  session: false,
  makes: "image",
  openai: { route: "images.edits", model: "shapes" },
  voice: null,
  ...more,
});

const CALLS: Record<string, Call> = {
  "a text": call([said("a red circle")]),
  "what shells and forms read otherwise": call([said(NASTY)], {
    params: { name: NASTY, steps: 20, scale: 0.5, think: true },
  }),
  "what begins like a file": call([said("@home"), shown(RED)]),
  "a picture": call([shown(RED), said(NASTY)], { params: { seed: 7 } }),
  "several pictures and a long text": call([shown(RED), shown(BLUE), shown(RED), said(LONG), said("short")]),
  "numbers, few and many": call([given([0.5, -1]), said("x")]),
  "many numbers": call([given(NUMBERS)]),
  "parts in an order of one's own": call([said(LONG), shown(RED), said("x"), given([1, 2]), shown(BLUE)], {
    ordered: true,
  }),
  "names that are words of Python": call([said("x", "from"), said("y", "a-b")], { params: { class: "z" } }),
};

/** The values that every snippet has to send: those of each input, or all in their order. */
function meant({ pieces, ordered, params }: Call): unknown {
  const value = ({ content }: Piece) =>
    content.kind === "text" ? content.text : content.kind === "media" ? { media: content.data } : content.numbers;
  if (ordered) return { inputs: { parts: pieces.map(value) }, params };
  const inputs: Record<string, unknown[]> = {};
  for (const piece of pieces) (inputs[piece.input] ??= []).push(value(piece));
  return { inputs, params };
}

/** A folder with the files that a snippet reads. */
function folder({ files }: Snippet): string {
  const path = mkdtempSync(join(tmpdir(), "snippet-"));
  for (const file of files)
    writeFileSync(join(path, file.name), Buffer.from(file.data, file.encoding === "base64" ? "base64" : "utf8"));
  return path;
}

describe("curl", () => {
  /** Its words, as a shell hands them over. */
  const words = (made: Snippet): string[] => {
    const env = { ...process.env, WALKGRAPH_TOKEN: "t" };
    const fake = 'curl() { printf "%s\\0" "$@"; }\n';
    const out = execFileSync("bash", ["-c", fake + made.text], { cwd: folder(made), env });
    return out.toString("utf8").split("\0").slice(0, -1);
  };

  const sent = (asked: Call): unknown => {
    const made = snippet("curl", asked);
    const all = words(made);
    const read = (name: string) => made.files.find((file) => file.name === name)?.data ?? "";
    const after = (option: string) => all.flatMap((word, at) => (all[at - 1] === option ? [word] : []));
    const [json] = after("-d");
    if (json !== undefined) return received(JSON.parse(json) as Request, []);
    const parts = all.flatMap((word, at) =>
      all[at - 1] === "-F" || all[at - 1] === "--form-string" ? [{ form: all[at - 1] === "-F", word }] : [],
    );
    const fields = parts.map(({ form, word }): [string, string | { media: string }] => {
      const [, name = "", text = ""] = /^([^=]*)=([\s\S]*)$/.exec(word) ?? [];
      if (form && text.startsWith("@")) return [name, { media: read(text.slice(1)) }];
      if (form && text.startsWith("<")) return [name, read(text.slice(1))];
      if (form) expect(text).not.toMatch(/;|\n/);
      return [name, text];
    });
    const request = fields.find(([name]) => name === "request")?.[1];
    if (typeof request === "string") {
      const frames = fields.filter(([name]) => name !== "request");
      expect(frames.map(([name]) => name)).toEqual(frames.map((_, index) => String(index)));
      return received(
        JSON.parse(request) as Request,
        frames.map(([, value]) => value),
      );
    }
    const inputs: Record<string, unknown[]> = {};
    for (const [name, value] of fields)
      if (name !== "params") (inputs[name] ??= []).push(name === "pose" ? JSON.parse(value as string) : value);
    const params = fields.find(([name]) => name === "params")?.[1];
    return { inputs, params: typeof params === "string" ? JSON.parse(params) : {} };
  };

  it.each(Object.entries(CALLS))("sends %s", (_, asked) => {
    expect(sent(asked)).toEqual(meant(asked));
  });

  it("names the token's place and takes a picture as one", () => {
    const made = words(snippet("curl", CALLS["a text"]!));
    expect(made.slice(0, 3)).toEqual(["-sS", "--fail-with-body", "http://127.0.0.1:8000/v1/tasks/shapes/edit"]);
    expect(made).toContain("Authorization: Bearer t");
    expect(made.slice(5, 9)).toEqual(["-H", "Accept: image/*", "-o", "edit.png"]);
  });
});

interface Request {
  inputs: Record<string, unknown>;
  params?: Record<string, unknown>;
}

/** A request in the service's words, with the files of its frames. */
function received({ inputs, params }: Request, frames: unknown[]): unknown {
  const value = (one: unknown): unknown => {
    const { text, data, frame, type } = (typeof one === "object" && one !== null ? one : {}) as Record<string, never>;
    if (type === undefined) return one;
    if (frame !== undefined) return frames[frame];
    return text ?? (type === "image" ? { media: data } : data);
  };
  const many = (name: string, one: unknown) =>
    (name === "pose" && Array.isArray(one)) || !Array.isArray(one) ? [value(one)] : one.map(value);
  return {
    inputs: Object.fromEntries(Object.entries(inputs).map(([name, one]) => [name, many(name, one)])),
    params: params ?? {},
  };
}

/** Runs programs, each in its folder, against packages that only note what they are asked. One Python for all. */
function programs(made: Record<string, Snippet>): Record<string, Record<string, unknown>> {
  const root = mkdtempSync(join(tmpdir(), "programs-"));
  for (const [name, source] of Object.entries(STUBS)) {
    mkdirSync(join(root, name, ".."), { recursive: true });
    writeFileSync(join(root, name), source);
  }
  const folders = Object.entries(made).map(([name, one]) => {
    const path = folder(one);
    writeFileSync(join(path, "call.py"), one.text);
    return [name, path];
  });
  const out = execFileSync("python3", ["run.py", JSON.stringify(folders)], {
    cwd: root,
    env: { ...process.env, PYTHONPATH: root, PYTHONUTF8: "1", WALKGRAPH_TOKEN: "t" },
  });
  return JSON.parse(out.toString("utf8")) as Record<string, Record<string, unknown>>;
}

const STUBS = {
  "noted.py": `import base64, json
from pathlib import Path
calls = []

def plain(value):
    if isinstance(value, Path):
        if value.suffix == ".txt":
            return value.read_text("utf-8")
        if value.suffix == ".json":
            return json.loads(value.read_text())
        return {"media": base64.b64encode(value.read_bytes()).decode()}
    if isinstance(value, bytes):
        return {"media": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value
`,
  "walkgraph/__init__.py": "",
  "walkgraph/client.py": `import noted
class Anything:
    def __init__(self, *where): self.where = where
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def __call__(self, **given): noted.calls.append([self.where, noted.plain(given)]); return Result()
    ask = __call__
class Result:
    outputs = {}
    def picture(self): return self
    def save(self, name): noted.calls.append(name)
class Client(Anything):
    @classmethod
    def local(cls): return cls()
    def task(self, *where): return Anything(*where)
    session = task
`,
  "openai.py": `import noted
omit = None
class Way:
    def __init__(self, name): self.name = name
    def __getattr__(self, name): return Way(f"{self.name}.{name}")
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def stream_to_file(self, name): pass
    def __call__(self, **given): noted.calls.append([self.name, noted.plain(given)]); return self
    def __getitem__(self, _): return self
    b64_json = ""
class OpenAI(Way):
    def __init__(self, base_url, api_key): self.name = base_url + " " + api_key
`,
  "websockets/__init__.py": "",
  "websockets/sync/__init__.py": "",
  "websockets/sync/client.py": `import noted
class connect:
    def __init__(self, address, additional_headers, max_size): noted.calls.append([address, additional_headers])
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def send(self, message): noted.calls.append(noted.plain(message))
    def __iter__(self): return iter(())
`,
  "run.py": `import contextlib, io, json, os, runpy, sys
import noted
told = {}
for name, folder in json.loads(sys.argv[1]):
    os.chdir(folder)
    noted.calls.clear()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path("call.py")
    told[name] = {"calls": list(noted.calls), "out": out.getvalue()}
print(json.dumps(told))
`,
};

const written = (language: Language) =>
  Object.fromEntries(Object.entries(CALLS).map(([name, asked]) => [name, snippet(language, asked)]));

describe("Python", () => {
  let ran: ReturnType<typeof programs>;
  beforeAll(() => void (ran = programs(written("python"))));

  it.each(Object.entries(CALLS))("sends %s", (name, asked) => {
    const [[where, words], file] = ran[name]?.["calls"] as [[string[], Record<string, unknown>], string];
    expect(where).toEqual(["shapes", "edit"]);
    expect(file).toBe("edit.png");
    const inputs = Object.fromEntries(Object.entries(words).filter(([word]) => !(word in asked.params)));
    const params = Object.fromEntries(Object.entries(words).filter(([word]) => word in asked.params));
    expect(received({ inputs, params }, [])).toEqual(meant(asked));
  });

  it("asks in a session where the task keeps one", () => {
    const made = snippet("session", call([said("go")], { session: true, makes: null }));
    const [one] = Object.values(programs({ one: made }));
    expect(one?.["calls"]).toEqual([[["shapes", "edit"], { prompt: "go" }]]);
  });
});

describe("a WebSocket", () => {
  let ran: ReturnType<typeof programs>;
  beforeAll(() => void (ran = programs(written("socket"))));

  it.each(Object.entries(CALLS))("sends %s", (name, asked) => {
    const [[address, headers], request, ...frames] = ran[name]?.["calls"] as [[string, object], string, ...unknown[]];
    expect(address).toBe("ws://127.0.0.1:8000/ws/v1/tasks/shapes/edit");
    expect(headers).toEqual({ Authorization: "Bearer t" });
    const body = JSON.parse(request) as Request & { frames?: number };
    expect(body.frames ?? 0).toBe(frames.length);
    expect(received(body, frames)).toEqual(meant(asked));
  });

  it("shows what is watched, which other ways leave out", () => {
    const asked = call([said("x")], { watching: { preview_every: 2 } });
    expect(snippet("socket", asked).text).toContain('"preview_every": 2');
    for (const language of ["curl", "python", "openai", "cli"] as const)
      expect(snippet(language, asked).text).not.toContain("preview_every");
  });

  it("says that a file is too large for a frame", () => {
    const large = Buffer.alloc(2 ** 20 + 1).toString("base64");
    expect(snippet("socket", call([shown(large)])).text).toBe(
      "# A socket takes files up to 1 MiB, and image.png is larger: use curl or Python.",
    );
  });
});

describe("OpenAI's client", () => {
  const asked: Record<string, Call> = {
    drawn: call([said("a red circle")], {
      openai: { route: "images.generations", model: "shapes/draw" },
      params: { steps: 12, seed: 7 },
    }),
    edited: call([shown(RED), shown(BLUE), said(LONG), said("fine", "negative")], { params: { steps: 12 } }),
    asked: call([shown(RED), said("What is it?")], {
      openai: { route: "chat.completions", model: "shapes" },
      params: { temperature: 0.5, max_tokens: 9, seed: 1, top_k: 3 },
    }),
    told: call([said("hello")], { openai: { route: "chat.completions", model: "shapes" } }),
    watched: call([{ ...shown(RED), modality: "video", content: { kind: "media", mime: "video/mp4", data: RED } }], {
      openai: { route: "chat.completions", model: "shapes" },
    }),
    spoken: call([said("hello")], {
      openai: { route: "audio.speech", model: "shapes" },
      voice: { name: "speaker", value: "tara" },
      params: { speaker: "tara", seed: 3 },
    }),
    voiceless: call([said("hello")], { openai: { route: "audio.speech", model: "shapes" } }),
  };
  let ran: ReturnType<typeof programs>;
  beforeAll(() => {
    ran = programs(Object.fromEntries(Object.entries(asked).map(([name, one]) => [name, snippet("openai", one)])));
  });
  const sent = (name: string) => (ran[name]?.["calls"] as unknown[])[0];
  const base = "http://127.0.0.1:8000/v1 t";
  const spoken = { model: "shapes", input: "hello", response_format: "wav" };

  it("draws, edits, chats and speaks with the values of the form", () => {
    expect(sent("drawn")).toEqual([
      `${base}.images.generate`,
      { model: "shapes/draw", prompt: "a red circle", extra_body: { steps: 12, seed: 7 } },
    ]);
    expect(sent("edited")).toEqual([
      `${base}.images.edit`,
      {
        model: "shapes",
        image: [{ media: RED }, { media: BLUE }],
        prompt: LONG,
        extra_body: { steps: 12, negative: "fine" },
      },
    ]);
    const content = [
      { type: "image_url", image_url: { url: `data:image/png;base64,${RED}` } },
      { type: "text", text: "What is it?" },
    ];
    expect(sent("asked")).toEqual([
      `${base}.chat.completions.create`,
      {
        model: "shapes",
        messages: [{ role: "user", content }],
        temperature: 0.5,
        max_tokens: 9,
        seed: 1,
        extra_body: { top_k: 3 },
      },
    ]);
    const messages = [{ role: "user", content: "hello" }];
    expect(sent("told")).toEqual([`${base}.chat.completions.create`, { model: "shapes", messages }]);
    const film = { type: "video_url", video_url: { url: `data:video/mp4;base64,${RED}` } };
    expect(sent("watched")).toEqual([
      `${base}.chat.completions.create`,
      { model: "shapes", messages: [{ role: "user", content: [film] }] },
    ]);
    const speech = `${base}.audio.speech.with_streaming_response.create`;
    expect(sent("spoken")).toEqual([speech, { ...spoken, voice: "tara", extra_body: { seed: 3 } }]);
    expect(sent("voiceless")).toEqual([speech, { ...spoken, voice: null }]);
  });
});

describe("the command line", () => {
  const words = (asked: Call): string[] => {
    const made = snippet("cli", asked);
    const fake = 'walkgraph() { printf "%s\\0" "$@"; }\n';
    return execFileSync("bash", ["-c", fake + made.text], { cwd: folder(made) })
      .toString("utf8")
      .split("\0")
      .slice(0, -1);
  };

  it("has an option for each value and parameter", () => {
    const asked = call([shown(RED), shown(BLUE), said(NASTY), given([0.5, -1])], {
      params: { steps: 20, think: true, name: NASTY },
    });
    expect(words(asked)).toEqual([
      ...["run", "shapes", "edit", "--image", "image.png", "--image", "image-2.png", "--prompt", NASTY],
      ...["--pose", "[0.5,-1]", "--steps", "20", "--think", "true", "--name", NASTY],
    ]);
  });

  it("reads a long text from its file, and numbers from theirs", () => {
    expect(words(call([said(LONG)]))).toEqual(["run", "shapes", "edit", "--prompt", LONG]);
    expect(snippet("cli", call([given(NUMBERS)])).files).toEqual([
      { name: "pose.json", encoding: "text", data: JSON.stringify(NUMBERS) },
    ]);
  });

  it("says that it has no order of one's own", () => {
    expect(snippet("cli", call([said("x")], { ordered: true })).text).toMatch(/^# .*curl or Python/);
  });
});

describe("the service's token and home", () => {
  const asked = { pieces: [said("x")], more: { openai: { route: "chat.completions", model: "shapes" } as const } };
  const home = mkdtempSync(join(tmpdir(), "it's a home "));
  const tokenFile = join(home, "token");
  writeFileSync(tokenFile, "secret\n");
  const own = (access: Call["access"]) => call(asked.pieces, { ...asked.more, access });
  const env = (known: Record<string, string>) => {
    const { WALKGRAPH_TOKEN: _own, ...rest } = process.env;
    return { ...rest, ...known };
  };
  const header = (access: Call["access"], known: Record<string, string> = {}) => {
    const fake = 'curl() { printf "%s\\n" "$@"; }\n';
    const out = execFileSync("bash", ["-c", fake + snippet("curl", own(access)).text], { env: env(known) });
    return /Bearer (.*)/.exec(out.toString())?.[1];
  };

  it("are where the service says they are, in every language", () => {
    const elsewhere = { home, tokenFile };
    expect(header(elsewhere)).toBe("secret");
    expect(header(elsewhere, { WALKGRAPH_TOKEN: "mine" })).toBe("mine");
    for (const language of ["curl", "openai", "socket", "python", "session", "cli"] as const) {
      const { text } = snippet(language, own(elsewhere));
      expect(text).toContain("a home ");
      expect(text).not.toContain(".walkgraph");
    }
    const line = /^token = .*$/m.exec(snippet("socket", own(elsewhere)).text)?.[0];
    const read = `import os\nfrom pathlib import Path\n${line}\nprint(token)`;
    expect(execFileSync("python3", ["-c", read], { env: env({}) }).toString()).toBe("secret\n");
    const { text } = snippet("cli", own(elsewhere));
    const ran = execFileSync("bash", ["-c", `walkgraph() { printf %s "$WALKGRAPH_HOME"; }\n${text}`]);
    expect(ran.toString()).toBe(home);
  });

  it("are left to the environment where they aren't known, or the token is nobody's file", () => {
    const unknown = { home: null, tokenFile: null };
    expect(header(unknown, { WALKGRAPH_TOKEN: "mine" })).toBe("mine");
    for (const language of ["curl", "openai", "socket", "python", "session", "cli"] as const)
      expect(snippet(language, own(unknown)).text).not.toMatch(/\.walkgraph|HOME/);
    expect(snippet("openai", own(unknown)).text).toContain('token = os.environ["WALKGRAPH_TOKEN"]');
  });

  it("leave out the home where programs look by themselves", () => {
    const standard = { home: null, tokenFile: "/home/ann/.walkgraph/token" };
    expect(snippet("python", own(standard)).text).toContain("with Client.local() as client:");
    expect(snippet("cli", own(standard)).text).toMatch(/^walkgraph run/);
    expect(snippet("curl", own(standard)).text).toContain("$(cat /home/ann/.walkgraph/token)");
  });
});

it("tells routes in words", () => {
  expect(routesInWords({})).toBe("");
  expect(routesInWords({ "images.generations": ["a"], "chat.completions": ["b"] })).toBe("OpenAI images, chat");
});
