// With OpenAI's own client, over the route that the task serves.
import {
  byInput,
  filesOf,
  imports,
  placed,
  pythonCall,
  pythonText,
  Source,
  talks,
  turnsOf,
  textOf,
  pathsIn,
  tokenLine,
  type Call,
  type Placed,
  type Snippet,
} from "./values";

/** Parameters of tasks that OpenAI's chat has by the same name. */
const CHAT = ["temperature", "top_p", "max_tokens", "seed"];
const BASE64 = "import base64";

interface Written {
  imports: string[];
  lines: string[];
}

export function openai(call: Call): Snippet {
  const values = placed(call);
  const { route, model } = call.openai ?? { route: "chat.completions", model: call.deployment };
  const token = tokenLine(call.access);
  const written = WAYS[route](call, model, values);
  const lines = [
    ...imports(
      [...token.imports, ...pathsIn(written.lines), ...written.imports],
      [
        call.openai?.route === "audio.speech" && !call.voice
          ? "from openai import OpenAI, omit"
          : "from openai import OpenAI",
      ],
    ),
    token.line,
    `client = OpenAI(base_url=${pythonText(`${call.url}/v1`)}, api_key=token)`,
    ...written.lines,
  ];
  return { text: lines.join("\n"), files: filesOf(values) };
}

type Way = (call: Call, model: string, values: readonly Placed[]) => Written;

const WAYS: Record<NonNullable<Call["openai"]>["route"], Way> = {
  "chat.completions": (call, model, values) => {
    const { standard, extra } = sorted(call.params, CHAT);
    const content = values.map(contentOf);
    const only = values.length === 1 && values[0]?.content.kind === "text" ? textSource(values) : content;
    const messages = talks(values)
      ? turnsOf(values, (value) => textSource([value]), contentOf)
      : [{ role: "user", content: only }];
    return {
      imports: values.some(({ content: { kind } }) => kind === "media") ? [BASE64] : [],
      lines: [
        ...(values.some(({ content: { kind } }) => kind === "media")
          ? [
              "",
              "",
              "def encoded(path: str) -> str:",
              "    return base64.b64encode(Path(path).read_bytes()).decode()",
              "",
              "",
            ]
          : []),
        `answer = ${pythonCall("client.chat.completions.create", { model, messages, ...standard, ...extra }, 0)}`,
        "print(answer.choices[0].message.content)",
      ],
    };
  },
  "images.generations": (call, model, values) => {
    const { prompt, others } = texts(values);
    const { extra } = sorted({ ...call.params, ...others }, []);
    const made = pythonCall("client.images.generate", { model, prompt, ...extra }, 0);
    return { imports: [BASE64], lines: [`made = ${made}`, saved(call)] };
  },
  "images.edits": (call, model, values) => {
    const pictures = values.filter(({ content, input }) => content.kind === "media" && input !== "mask");
    const masks = values.filter(({ content, input }) => content.kind === "media" && input === "mask");
    const { prompt, others } = texts(values);
    const { extra } = sorted({ ...call.params, ...others }, []);
    const image = pictures.length === 1 ? opened(pictures[0]!) : pictures.map(opened);
    const mask = masks[0] ? { mask: opened(masks[0]) } : {};
    const made = pythonCall("client.images.edit", { model, image, ...mask, prompt, ...extra }, 0);
    return { imports: [BASE64], lines: [`made = ${made}`, saved(call)] };
  },
  "audio.speech": (call, model, values) => {
    const { [call.voice?.name ?? ""]: _voice, ...params } = call.params;
    const { extra } = sorted(params, []);
    const voice = call.voice ? call.voice.value : new Source("omit");
    const spoken = { model, voice, input: textSource(values), response_format: "wav", ...extra };
    return {
      imports: [],
      lines: [
        `with ${pythonCall("client.audio.speech.with_streaming_response.create", spoken, 0)} as speech:`,
        `    speech.stream_to_file(${pythonText(`${call.task}.wav`)})`,
      ],
    };
  },
};

/** Arguments of OpenAI's client, and the other parameters as `extra_body`. */
function sorted(params: Readonly<Record<string, unknown>>, words: readonly string[]) {
  const is = (known: boolean) =>
    Object.fromEntries(Object.entries(params).filter(([name]) => words.includes(name) === known));
  const others = is(false);
  return { standard: is(true), extra: Object.keys(others).length > 0 ? { extra_body: others } : {} };
}

/** The prompt is the first text; others go by their names. */
function texts(values: readonly Placed[]): { prompt: unknown; others: Record<string, unknown> } {
  const [first, ...rest] = [...byInput(values.filter(({ content }) => content.kind === "text"))];
  return {
    prompt: first ? textSource(first[1]) : "",
    others: Object.fromEntries(rest.map(([name, found]) => [name, textSource(found)])),
  };
}

function textSource(values: readonly Placed[]): unknown {
  const [first] = values;
  return values.length === 1 && first?.file
    ? new Source(`Path(${pythonText(first.file.name)}).read_text("utf-8")`)
    : textOf(values);
}

function opened({ file }: Placed): Source {
  return new Source(`Path(${pythonText(file?.name ?? "")})`);
}

function saved({ task }: Call): string {
  return `Path(${pythonText(`${task}.png`)}).write_bytes(base64.b64decode(made.data[0].b64_json))`;
}

function contentOf(value: Placed): unknown {
  const { content, modality, file } = value;
  if (content.kind !== "media") return { type: "text", text: textSource([value]) };
  const encoded = `encoded(${pythonText(file?.name ?? "")})`;
  if (modality === "audio")
    return { type: "input_audio", input_audio: { data: new Source(encoded), format: formatOf(content.mime) } };
  const url = new Source(`${pythonText(`data:${content.mime};base64,`)} + ${encoded}`);
  return modality === "video" ? { type: "video_url", video_url: { url } } : { type: "image_url", image_url: { url } };
}

function formatOf(mime: string): string {
  return { "audio/flac": "flac", "audio/mpeg": "mp3" }[mime] ?? "wav";
}
