// With the command line.
import { byInput, filesOf, placed, quoted, talks, turnsOf, type Call, type Placed, type Snippet } from "./values";

export function cli(call: Call): Snippet {
  if (call.ordered) {
    const note =
      "# The command line sends values in the order of the task's inputs; for an order of your own use curl or Python.";
    return { text: note, files: [] };
  }
  const values = placed(call);
  if (talks(values) && filesOf(values).length > 0)
    return {
      text: "# The command line sends conversations of texts, or a file of turns in JSON; for media use curl or Python.",
      files: [],
    };
  const talk = [...byInput(values)].filter(([, found]) => talks(found));
  const options = [
    ...talk.map(
      ([name, found]) =>
        `--${name} ${quoted(JSON.stringify(turnsOf(found, textIn, (value) => ({ type: "text", text: textIn(value) }))))}`,
    ),
    ...values.filter(({ turn }) => turn === undefined).map((value) => `--${value.input} ${wordOf(value)}`),
    ...Object.entries(call.params).map(([name, value]) => `--${name} ${quoted(String(value))}`),
  ];
  const { home } = call.access;
  const command = `${home === null ? "" : `WALKGRAPH_HOME=${quoted(home)} `}walkgraph run ${quoted(call.deployment)} ${quoted(call.task)}`;
  return { text: [command, ...options].join(" \\\n  "), files: filesOf(values) };
}

function textIn({ content }: Placed): string {
  return content.kind === "text" ? content.text : "";
}

/** Texts are taken as they are, a long one is read by the shell; the others are files, or numbers in JSON. */
function wordOf({ content, file }: Placed): string {
  if (content.kind === "text") return file ? `"$(cat ${quoted(file.name)})"` : quoted(content.text);
  return quoted(file ? file.name : JSON.stringify(content.kind === "numbers" ? content.numbers : content.data));
}
