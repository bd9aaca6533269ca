// The open graph as JSON, which can be edited in place, and as the Python that builds it.
import { Check, Download, Pencil } from "lucide-react";
import { useState } from "react";
import { withGraph } from "../store/editor";
import { useEditor, useEditorState } from "../store/react";
import { CopyButton } from "../ui/CopyButton";
import { download } from "../ui/handing";
import { Button, Empty, Tabs, Prose } from "../ui/kit";
import { CodeEditor, CodeText } from "./CodeText";
import { readPasted, type Pasted } from "./pasted";
import { useJson, usePython } from "./useCode";
import { strings } from "../strings";

type Language = "json" | "python";

export function CodeView() {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const name = useEditorState((state) => state.name);
  const locked = useEditorState((state) => state.saving.state === "readonly");
  const [language, setLanguage] = useState<Language>("json");
  const [typed, setTyped] = useState<string | null>(null);
  const [fault, setFault] = useState<Extract<Pasted, { ok: false }> | null>(null);
  const json = useJson(graph);
  const python = usePython(graph, language === "python");
  const text = language === "json" ? (typed ?? json) : python && "text" in python ? python.text : "";

  const apply = () => {
    if (typed === null) return;
    const read = readPasted(typed);
    if (!read.ok) return setFault(read);
    if (typed !== json)
      editor.edit(strings.versions.editTheJson, (documents) => withGraph(documents, read.graph, read.sources));
    setTyped(null);
    setFault(null);
  };
  const cancel = () => {
    setTyped(null);
    setFault(null);
  };
  const change = (value: string) => {
    setTyped(value);
    if (fault) {
      const read = readPasted(value);
      setFault(read.ok ? null : read);
    }
  };

  return (
    <div className="wg-code">
      <header>
        <Tabs
          label={strings.versions.language}
          value={language}
          onChange={setLanguage}
          tabs={[
            { value: "json", label: "JSON" },
            { value: "python", label: strings.versions.python },
          ]}
        />
        <span className="about">
          {language === "json"
            ? typed === null
              ? strings.versions.theDocument
              : strings.versions.pasteOrTypeApplied
            : strings.versions.buildsTheSameGraphRead}
        </span>
        <div className="buttons">
          {typed === null || language === "python" ? (
            <>
              {language === "json" && !locked && (
                <Button onClick={() => setTyped(json)}>
                  <Pencil size={14} aria-hidden /> {strings.versions.edit}
                </Button>
              )}
              <CopyButton
                text={text}
                label={strings.versions.copy(language === "json" ? "JSON" : strings.versions.python)}
                words={strings.versions.copy2}
              />
              <Button
                disabled={!text}
                onClick={() => download(`${name}.${language === "json" ? "json" : "py"}`, text)}
              >
                <Download size={14} aria-hidden /> {strings.versions.download}
              </Button>
            </>
          ) : (
            <>
              <Button onClick={cancel}>{strings.versions.cancel}</Button>
              <Button kind="primary" onClick={apply}>
                <Check size={14} aria-hidden /> {strings.versions.apply}
              </Button>
            </>
          )}
        </div>
      </header>
      {fault && language === "json" && (
        <p className="failure" role="alert">
          {fault.line !== null && <b>{strings.versions.line(fault.line)} </b>}
          {fault.message}
        </p>
      )}
      {language === "json" ? (
        typed === null ? (
          <CodeText text={json} language="json" label={strings.versions.asJson(name)} />
        ) : (
          <CodeEditor
            text={typed}
            label={strings.versions.asJsonToBeEdited(name)}
            fault={fault?.line ?? null}
            onChange={change}
            onApply={apply}
            onCancel={cancel}
          />
        )
      ) : python === null ? (
        <p className="waiting">{strings.versions.writingPython}</p>
      ) : "text" in python ? (
        <CodeText text={python.text} language="python" label={strings.versions.asPython(name)} />
      ) : (
        <Empty title={strings.versions.noPythonForThisGraph}>
          <p>{python.details.length > 0 ? strings.versions.fixTheseFirst : python.failure}</p>
          <ul className="details">
            {python.details.map((detail) => (
              <li key={detail}>
                <Prose text={detail} />
              </li>
            ))}
          </ul>
        </Empty>
      )}
    </div>
  );
}
