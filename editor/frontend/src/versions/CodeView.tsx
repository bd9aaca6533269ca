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
    if (typed !== json) editor.edit("Edit the JSON", (documents) => withGraph(documents, read.graph, read.sources));
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
          label="Language"
          value={language}
          onChange={setLanguage}
          tabs={[
            { value: "json", label: "JSON" },
            { value: "python", label: "Python" },
          ]}
        />
        <span className="about">
          {language === "json"
            ? typed === null
              ? "the document, as it is stored"
              : "paste or type; applied as one step that can be undone"
            : "builds the same graph; read only"}
        </span>
        <div className="buttons">
          {typed === null || language === "python" ? (
            <>
              {language === "json" && !locked && (
                <Button onClick={() => setTyped(json)}>
                  <Pencil size={14} aria-hidden /> Edit
                </Button>
              )}
              <CopyButton text={text} label={`Copy the ${language === "json" ? "JSON" : "Python"}`} words="Copy" />
              <Button
                disabled={!text}
                onClick={() => download(`${name}.${language === "json" ? "json" : "py"}`, text)}
              >
                <Download size={14} aria-hidden /> Download
              </Button>
            </>
          ) : (
            <>
              <Button onClick={cancel}>Cancel</Button>
              <Button kind="primary" onClick={apply}>
                <Check size={14} aria-hidden /> Apply
              </Button>
            </>
          )}
        </div>
      </header>
      {fault && language === "json" && (
        <p className="failure" role="alert">
          {fault.line !== null && <b>Line {fault.line}: </b>}
          {fault.message}
        </p>
      )}
      {language === "json" ? (
        typed === null ? (
          <CodeText text={json} language="json" label={`${name} as JSON`} />
        ) : (
          <CodeEditor
            text={typed}
            label={`${name} as JSON, to be edited`}
            fault={fault?.line ?? null}
            onChange={change}
            onApply={apply}
            onCancel={cancel}
          />
        )
      ) : python === null ? (
        <p className="waiting">Writing Python…</p>
      ) : "text" in python ? (
        <CodeText text={python.text} language="python" label={`${name} as Python`} />
      ) : (
        <Empty title="No Python for this graph yet">
          <p>{python.details.length > 0 ? "Mend these first:" : python.failure}</p>
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
