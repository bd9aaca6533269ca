// The call that does what the form does, to be copied.
import { Download } from "lucide-react";
import { useState } from "react";
import { useAccess } from "../../api/access";
import { useRoutes } from "../../api/models";
import { CopyButton } from "../../ui/CopyButton";
import { download } from "../../ui/handing";
import { Button, Dialog, Tabs, Prose } from "../../ui/kit";
import { toBytes } from "../../api/base64";
import { callOf, languagesOf, snippet, type Access, type FileUsed, type Language } from "./snippets";
import type { Given, TaskShown } from "../model/types";

const LABELS: Record<Language, string> = {
  curl: "curl",
  python: "Python",
  openai: "OpenAI",
  socket: "WebSocket",
  session: "Session",
  cli: "Command line",
};

const REACHED =
  "It finds the service that runs on its machine; for another one set `WALKGRAPH_URL` and `WALKGRAPH_TOKEN`.";

function aboutOf(language: Language, access: Access): string {
  const file = access.tokenFile;
  const token = `${
    file === null
      ? "Set `WALKGRAPH_TOKEN` to the service's token"
      : `The service's token is in \`${file}\` on its machine; \`WALKGRAPH_TOKEN\` goes before it`
  }. Programs elsewhere should have a key of their own, from the page Keys.`;
  switch (language) {
    case "curl":
      return token;
    case "python":
      return `Needs the package \`walkgraph\`. ${REACHED}`;
    case "openai":
      return `Needs the package \`openai\`. ${token}`;
    case "socket":
      return `Every output comes as it is made; closing the socket ends the run. Needs the package \`websockets\`. ${token}`;
    case "session":
      return `What the task keeps stays between the requests of a session. Needs the package \`walkgraph\`. ${REACHED}`;
    case "cli":
      return `Writes a picture or sound to a file beside you. ${REACHED}`;
  }
}

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
  const access = useAccess();
  const call = callOf(task, given, routes, location.origin, access);
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
          <Prose text={aboutOf(language, access)} />
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
