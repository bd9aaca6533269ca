// The call that does what the form does, to be copied.
import { Download } from "lucide-react";
import { useState } from "react";
import { useRoutes } from "../api/models";
import { CopyButton } from "../ui/CopyButton";
import { download } from "../ui/handing";
import { Button, Dialog, Tabs, Prose } from "../ui/kit";
import { toBytes } from "../api/base64";
import { callOf, languagesOf, snippet, type FileUsed, type Language } from "./snippets";
import type { Given, TaskShown } from "./types";

const LABELS: Record<Language, string> = {
  curl: "curl",
  python: "Python",
  openai: "OpenAI",
  socket: "WebSocket",
  session: "Session",
  cli: "Command line",
};

const TOKEN =
  "Its token is the one in `~/.walkgraph/token` on the service's machine, or that of `WALKGRAPH_TOKEN`; programs elsewhere should have a key of their own, from the page Keys.";
const REACHED =
  "It finds the service that runs on its machine; for another one set `WALKGRAPH_URL` and `WALKGRAPH_TOKEN`.";

const ABOUT: Record<Language, string> = {
  curl: TOKEN,
  python: `Needs the package \`walkgraph\`. ${REACHED}`,
  openai: `Needs the package \`openai\`. ${TOKEN}`,
  socket: `Every output comes as it is made; closing the socket ends the run. Needs the package \`websockets\`. ${TOKEN}`,
  session: `What the task keeps stays between the requests of a session. Needs the package \`walkgraph\`. ${REACHED}`,
  cli: `Writes a picture or sound to a file beside you. ${REACHED}`,
};

interface Props {
  task: TaskShown;
  given: Given;
  /** Of the graph that runs. */
  version: string | null;
  onClose: () => void;
}

export function SnippetDialog({ task, given, version, onClose }: Props) {
  const routes = useRoutes(task.deployment, version);
  const [chosen, choose] = useState<Language>("curl");
  const call = callOf(task, given, routes, location.origin);
  const languages = languagesOf(call);
  const language = languages.includes(chosen) ? chosen : "curl";
  const { text, files } = snippet(language, call);
  return (
    <Dialog title="The same call from your code" onClose={onClose}>
      <div className="wg-play-snippet">
        <Tabs
          label="Language"
          value={language}
          onChange={choose}
          tabs={languages.map((value) => ({ value, label: LABELS[value] }))}
        />
        <div className="code">
          <pre aria-label={LABELS[language]} tabIndex={0}>
            {text}
          </pre>
          <CopyButton text={text} label="Copy the call" />
        </div>
        {files.length > 0 && <Files files={files} />}
        <p className="wg-play-hint">
          <Prose text={ABOUT[language]} />
        </p>
      </div>
    </Dialog>
  );
}

function Files({ files }: { files: readonly FileUsed[] }) {
  return (
    <div className="files" role="group" aria-label="Files that it reads">
      <span>It reads</span>
      {files.map((file) => (
        <Button key={file.name} aria-label={`Save ${file.name}`} onClick={() => saved(file)}>
          <Download size={13} aria-hidden /> {file.name}
        </Button>
      ))}
      <span>Save what the form holds beside it, or write paths of your own.</span>
    </div>
  );
}

function saved(file: FileUsed): void {
  download(file.name, file.encoding === "base64" ? toBytes(file.data) : file.data, "application/octet-stream");
}
