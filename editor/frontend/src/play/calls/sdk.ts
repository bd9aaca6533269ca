// With `walkgraph.client`: tasks as functions; and sessions of them.
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
  type Call,
  type Placed,
  type Snippet,
} from "./values";

const CLIENT = "from walkgraph.client import Client";
const SETTINGS = "from walkgraph.settings import Settings";
const PATH = "from pathlib import Path";

export function sdk(call: Call): Snippet {
  const { values, files, head } = begun(call);
  const { deployment, task } = call;
  const lines = [
    ...head,
    `with ${client(call)} as client:`,
    `    task = client.task(${pythonText(deployment)}, ${pythonText(task)})`,
    `    result = ${pythonCall("task", given(call, values), 1)}`,
    `    ${ending(call)}`,
  ];
  return { text: lines.join("\n"), files };
}

export function session(call: Call): Snippet {
  const { values, files, head } = begun(call);
  const { deployment, task } = call;
  const lines = [
    ...head,
    `with ${client(call)} as client, client.session(${pythonText(deployment)}, ${pythonText(task)}) as session:`,
    `    result = ${pythonCall("session.ask", given(call, values), 1)}`,
    `    ${ending(call)}`,
    "    # What it keeps is here for the next `session.ask(...)`; parameters stay as they are, too.",
  ];
  return { text: lines.join("\n"), files };
}

function begun(call: Call) {
  const values = placed(call);
  const files = filesOf(values);
  const own = call.access.home !== null;
  const head = imports(files.length > 0 || own ? [PATH] : [], own ? [CLIENT, SETTINGS] : [CLIENT]);
  return { values, files, head };
}

/** It looks in the standard home by itself. */
function client({ access: { home } }: Call): string {
  return home === null ? "Client.local()" : `Client.local(Settings(home=Path(${pythonText(home)})))`;
}

function given(call: Call, values: readonly Placed[]): Record<string, unknown> {
  if (call.ordered) return { parts: values.map(part), ...call.params };
  const inputs = [...byInput(values)].map(([name, found]): [string, unknown] => [
    name,
    talks(found)
      ? turnsOf(found, bare, part)
      : found.length > 1
        ? found.map((one) => (one.content.kind === "numbers" && !one.file ? wrapped(one) : bare(one)))
        : bare(found[0]!),
  ]);
  return { ...Object.fromEntries(inputs), ...call.params };
}

function bare({ content, file }: Placed): unknown {
  if (file) return new Source(`Path(${pythonText(file.name)})`);
  return content.kind === "text" ? content.text : content.kind === "numbers" ? content.numbers : content.data;
}

/** Several lists of numbers could be a matrix. */
function wrapped({ modality, content }: Placed): unknown {
  return { type: modality, data: content.kind === "numbers" ? content.numbers : [] };
}

/** One that says what it is. */
function part(value: Placed): unknown {
  return value.content.kind === "numbers" ? wrapped(value) : bare(value);
}

function ending({ makes, task }: Call): string {
  if (makes === "image") return `result.picture().save(${pythonText(`${task}.png`)})`;
  if (makes === "audio") return `result.sound().save(${pythonText(`${task}.wav`)})`;
  return makes === "text" ? "print(result.text())" : "print(result.outputs)";
}
