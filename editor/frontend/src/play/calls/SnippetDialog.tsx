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
import { strings } from "../../strings";

const LABELS: Record<Language, string> = {
  curl: "curl",
  python: strings.play.python,
  openai: "OpenAI",
  socket: "WebSocket",
  session: strings.play.session,
  cli: strings.play.commandLine,
};

const REACHED = strings.play.itFindsTheService;

function aboutOf(language: Language, access: Access): string {
  const file = access.tokenFile;
  const token = strings.play.programsElsewhereShouldHave(
    file === null ? strings.play.setWalkgraphToken : strings.play.theServicesToken(file),
  );
  switch (language) {
    case "curl":
      return token;
    case "python":
      return strings.play.needsThePackageWalkgraph(REACHED);
    case "openai":
      return strings.play.needsThePackageOpenai(token);
    case "socket":
      return strings.play.everyOutputComes(token);
    case "session":
      return strings.play.theTasksStateIsKept(REACHED);
    case "cli":
      return strings.play.writesAPictureOrSound(REACHED);
  }
}

interface Props {
  task: TaskShown;
  given: Given;
  /** The version of the deployed graph. */
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
    <Dialog title={strings.play.theSameCallFromYour} onClose={onClose}>
      <div className="wg-play-snippet">
        <Tabs
          label={strings.play.language}
          value={language}
          onChange={choose}
          tabs={languages.map((value) => ({ value, label: LABELS[value] }))}
        />
        <div className="code">
          <pre aria-label={LABELS[language]} tabIndex={0}>
            {text}
          </pre>
          <CopyButton text={text} label={strings.play.copyTheCall} />
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
    <div className="files" role="group" aria-label={strings.play.filesThatItReads}>
      <span>{strings.play.itReads}</span>
      {files.map((file) => (
        <Button key={file.name} aria-label={strings.play.save(file.name)} onClick={() => saved(file)}>
          <Download size={13} aria-hidden /> {file.name}
        </Button>
      ))}
      <span>{strings.play.saveTheFormsFilesBeside}</span>
    </div>
  );
}

function saved(file: FileUsed): void {
  download(file.name, file.encoding === "base64" ? toBytes(file.data) : file.data, "application/octet-stream");
}
