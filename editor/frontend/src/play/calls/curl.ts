// With curl: JSON where there are no files, a form where there are; what comes is a file where it is a picture or sound.
import {
  byInput,
  filesOf,
  placed,
  quoted,
  talks,
  turnsOf,
  type Access,
  type Call,
  type Placed,
  type Snippet,
} from "./values";

export function curl(call: Call): Snippet {
  const values = placed(call);
  const files = filesOf(values);
  const address = `${call.url}/v1/tasks/${call.deployment}/${call.task}`;
  const framed = call.ordered || talks(values);
  const body = files.length === 0 ? asJson(call, values) : framed ? asFrames(call, values) : asForm(call, values);
  const lines = [
    `curl -sS --fail-with-body ${quoted(address)}`,
    `-H "Authorization: Bearer ${tokenOf(call.access)}"`,
    ...answer(call),
    ...body,
  ];
  return { text: lines.join(" \\\n  "), files };
}

/** Within the double quotes of a shell. */
function tokenOf({ tokenFile }: Access): string {
  return tokenFile === null ? "$WALKGRAPH_TOKEN" : `\${WALKGRAPH_TOKEN:-$(cat ${quoted(tokenFile)})}`;
}

function answer({ makes, task }: Call): string[] {
  if (makes === "image") return [`-H "Accept: image/*" -o ${quoted(`${task}.png`)}`];
  if (makes === "audio") return [`-H "Accept: audio/*" -o ${quoted(`${task}.wav`)}`];
  return makes === "text" ? [`-H "Accept: text/plain"`] : [];
}

function asJson({ ordered, params }: Call, values: readonly Placed[]): string[] {
  const inputs: Record<string, unknown> = ordered ? { parts: values.map(wrapped) } : {};
  for (const [name, found] of ordered ? [] : byInput(values)) {
    if (talks(found)) {
      inputs[name] = turnsOf(found, bare, wrapped);
      continue;
    }
    // One list of numbers is one value, two of them could be a matrix.
    const all = found.map((value) => (found.length > 1 ? (bareText(value) ?? wrapped(value)) : bare(value)));
    inputs[name] = all.length > 1 ? all : all[0];
  }
  const body = Object.keys(params).length > 0 ? { inputs, params } : { inputs };
  const flat = JSON.stringify(body);
  return [`-H "Content-Type: application/json"`, `-d ${quoted(flat.length > 60 ? spaced(body) : flat)}`];
}

/** A part for each value. */
function asForm({ params }: Call, values: readonly Placed[]): string[] {
  const parts = values.map((value) => {
    const { input, content, file } = value;
    if (file) return `-F ${quoted(`${input}=${content.kind === "media" ? "@" : "<"}${file.name}`)}`;
    return field(input, content.kind === "text" ? content.text : JSON.stringify(bare(value)));
  });
  return [...parts, ...(Object.keys(params).length > 0 ? [field("params", JSON.stringify(params))] : [])];
}

/** The request as one part, and a part for each of its files: only so the order between values is kept. */
function asFrames({ params }: Call, values: readonly Placed[]): string[] {
  const media = filesOf(values.filter(({ content }) => content.kind === "media"));
  const written = (value: Placed) =>
    value.file && value.content.kind === "media"
      ? { type: value.modality, frame: media.indexOf(value.file) }
      : wrapped(value);
  const talk = [...byInput(values)].map(([name, found]) => [name, turnsOf(found, bare, written)]);
  const inputs = talks(values) ? Object.fromEntries(talk) : { parts: values.map(written) };
  const body = Object.keys(params).length > 0 ? { inputs, params } : { inputs };
  return [
    field("request", JSON.stringify(body)),
    ...media.map(({ name }, index) => `-F ${quoted(`${index}=@${name}`)}`),
  ];
}

/** curl reads more than text in some. */
function field(name: string, text: string): string {
  const read = /^[@<"(\s]|[;\r\n]|\s$/.test(text) || text === "";
  return `${read ? "--form-string" : "-F"} ${quoted(`${name}=${text}`)}`;
}

function bareText({ content }: Placed): string | null {
  return content.kind === "text" ? content.text : null;
}

function bare({ content }: Placed): unknown {
  return content.kind === "text" ? content.text : content.kind === "media" ? content.data : content.numbers;
}

function wrapped({ modality, content }: Placed): unknown {
  if (content.kind === "text") return { type: modality, text: content.text };
  const data = content.kind === "media" ? content.data : content.numbers;
  return content.kind === "media" ? { type: modality, mime: content.mime, data } : { type: modality, data };
}

/** JSON on several lines, lists of numbers on one. */
function spaced(body: unknown): string {
  return JSON.stringify(body, null, 2).replace(/\[[\s\d.,eE+-]+\]/g, (list) => list.replace(/\s+/g, " "));
}
