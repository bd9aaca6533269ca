// Over a WebSocket: the request, the files that it names, and then every output as it is made.
import {
  byInput,
  bytesOf,
  filesOf,
  imports,
  placed,
  python,
  pythonText,
  Source,
  talks,
  turnsOf,
  pathsIn,
  tokenLine,
  type Call,
  type Placed,
  type Snippet,
} from "./values";

/** Limit of one frame; larger ones are refused. */
const FRAME_BYTES = 2 ** 20;

export function socket(call: Call): Snippet {
  const values = placed(call);
  const media = filesOf(values.filter(({ content }) => content.kind === "media"));
  const large = media.find((file) => bytesOf(file).length > FRAME_BYTES);
  if (large)
    return {
      text: `# A socket takes files up to 1 MiB, and ${large.name} is larger: use curl or Python.`,
      files: [],
    };
  const request = requestOf(call, values, media.length, (file) => media.indexOf(file));
  const address = `${call.url.replace(/^http/, "ws")}/ws/v1/tasks/${call.deployment}/${call.task}`;
  const told = call.makes === "text" ? `("event", "value", "error")` : `("event", "name", "index", "error")`;
  const token = tokenLine(call.access);
  const body = [
    `request = ${python(request, 0, 10)}`,
    "with connect(",
    `    ${pythonText(address)},`,
    `    additional_headers={"Authorization": f"Bearer {token}"},`,
    "    max_size=None,",
    ") as socket:",
    "    socket.send(json.dumps(request))",
    ...media.map(({ name }) => `    socket.send(Path(${pythonText(name)}).read_bytes())`),
    "    for event in map(json.loads, socket):",
    `        print({key: event[key] for key in ${told} if key in event})`,
  ];
  const head = imports(
    ["import json", ...token.imports, ...pathsIn(body)],
    ["from websockets.sync.client import connect"],
  );
  return { text: [...head, token.line, ...body].join("\n"), files: filesOf(values) };
}

type Frame = (file: NonNullable<Placed["file"]>) => number;

function requestOf(call: Call, values: readonly Placed[], frames: number, frame: Frame): Record<string, unknown> {
  const valueOf = (value: Placed): unknown => {
    const { modality: type, content, file } = value;
    if (content.kind === "media") return { type, frame: file ? frame(file) : 0 };
    const path = file && `Path(${pythonText(file.name)}).read_text("utf-8")`;
    if (content.kind === "text") {
      const text = path ? new Source(path) : content.text;
      return call.ordered ? { type, text } : text;
    }
    return { type, data: path ? new Source(`json.loads(${path})`) : content.numbers };
  };
  const wrapped = (value: Placed): unknown =>
    value.content.kind === "text" ? { type: value.modality, text: valueOf(value) } : valueOf(value);
  const named = [...byInput(values)].map(([name, found]): [string, unknown] => [
    name,
    talks(found) ? turnsOf(found, valueOf, wrapped) : found.length > 1 ? found.map(valueOf) : valueOf(found[0]!),
  ]);
  const params = { ...call.params, ...call.watching };
  return {
    inputs: call.ordered ? { parts: values.map(valueOf) } : Object.fromEntries(named),
    ...(Object.keys(params).length > 0 ? { params } : {}),
    ...(frames > 0 ? { frames } : {}),
  };
}
