// The call that does what the form does, to be copied.
import { Download } from "lucide-react";
import { useState } from "react";
import { CopyButton } from "../ui/CopyButton";
import { download } from "../ui/handing";
import { Button, Dialog, Tabs, Prose } from "../ui/kit";
import { toBytes } from "../api/base64";
import { request } from "./form";
import { snippet, type FileUsed, type Language } from "./snippets";
import type { Given, TaskShown } from "./types";

const TABS = [
  { value: "curl", label: "curl" },
  { value: "python", label: "Python" },
  { value: "cli", label: "Command line" },
] as const;

const ABOUT: Record<Language, string> = {
  curl: "WALKGRAPH_TOKEN holds the service's token: the text in `token` of its home folder.",
  python: "Needs the walkgraph package, and this service running on the same machine.",
  cli: "Writes the picture or sound to a file beside you.",
};

export function SnippetDialog({ task, given, onClose }: { task: TaskShown; given: Given; onClose: () => void }) {
  const [language, setLanguage] = useState<Language>("curl");
  const modalities = Object.fromEntries(
    Object.entries(task.inputs).map(([name, declared]) => [name, declared.modality]),
  );
  const { deployment, name } = task;
  const { text, files } = snippet(language, {
    url: location.origin,
    deployment,
    task: name,
    body: request(task, given),
    modalities,
  });
  return (
    <Dialog title="The same call from your code" onClose={onClose}>
      <div className="wg-play-snippet">
        <Tabs label="Language" value={language} onChange={setLanguage} tabs={TABS} />
        <p className="wg-play-hint">
          <Prose text={ABOUT[language]} />
        </p>
        <div className="code">
          <pre>{text}</pre>
          <CopyButton text={text} label="Copy the call" />
        </div>
        {files.length > 0 && (
          <div className="files">
            <h3>Files that it reads</h3>
            {files.map((file) => (
              <Button key={file.name} onClick={() => saved(file)}>
                <Download size={13} aria-hidden /> {file.name}
              </Button>
            ))}
          </div>
        )}
      </div>
    </Dialog>
  );
}

function saved(file: FileUsed): void {
  download(file.name, file.encoding === "base64" ? toBytes(file.data) : file.data, "application/octet-stream");
}
