// Below the palette: the blueprints of the library, those that have changed since they were copied, and files.
import { FileUp, Plus, RefreshCw } from "lucide-react";
import { useEffect, useRef, useState } from "react";
import { addAtCentre } from "../../canvas/gestures/dragging";
import { takeBlueprint } from "../../canvas/gestures/blueprints";
import { BLUEPRINT } from "../../document/blueprints/inside";
import type { DocumentEntry } from "../../messages/answers";
import { list } from "../../store/documents";
import { useEditor, useEditorState } from "../../store/react";
import { Button, IconButton, Prose } from "../../ui/kit";
import { outdated } from "./search";
import { strings } from "../../strings";

export function Library() {
  const editor = useEditor();
  const blueprints = useEditorState((state) => state.documents.graph.blueprints);
  const [entries, setEntries] = useState<readonly DocumentEntry[]>([]);
  const file = useRef<HTMLInputElement>(null);
  useEffect(() => {
    let gone = false;
    list("blueprints")
      .then((found) => !gone && setEntries(found))
      // Without the service there is no library to show; the bar says that it doesn't answer.
      .catch(() => undefined);
    return () => {
      gone = true;
    };
    // A blueprint that is saved or updated has another origin.
  }, [blueprints]);
  const take = async (blueprint: unknown) => {
    const name = await takeBlueprint(editor, blueprint);
    if (name !== null) addAtCentre(editor, { kind: "component", component: BLUEPRINT + name });
  };
  const read = async (chosen: File | undefined) => {
    if (!chosen) return;
    try {
      await take(JSON.parse(await chosen.text()));
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      editor.say(strings.panels.thisFileIsNotABlueprint, "error");
    }
  };
  const changed = outdated(blueprints, entries);
  return (
    <section className="wg-library" aria-label={strings.panels.library}>
      <h3>
        {strings.panels.library}
        <Button onClick={() => file.current?.click()}>
          <FileUp size={13} aria-hidden /> {strings.panels.importABlueprint}
        </Button>
        <input
          ref={file}
          type="file"
          accept="application/json,.json"
          hidden
          aria-label={strings.panels.importABlueprint}
          onChange={(event) => {
            void read(event.target.files?.[0]);
            event.target.value = "";
          }}
        />
      </h3>
      {changed.map((name) => (
        <div key={name} className="entry">
          <span>
            <Prose text={strings.panels.hasANewerVersion(name)} />
          </span>
          <IconButton
            label={strings.panels.update(name)}
            onClick={() => void takeBlueprint(editor, blueprints![name]!.origin!.name, name)}
          >
            <RefreshCw size={14} />
          </IconButton>
        </div>
      ))}
      {entries.map(({ name, description }) => (
        <div key={name} className="entry">
          <span title={description}>{name}</span>
          <IconButton label={strings.panels.add(name)} onClick={() => void take(name)}>
            <Plus size={14} />
          </IconButton>
        </div>
      ))}
      {entries.length === 0 && <p className="none">{strings.panels.theLibraryIsEmpty}</p>}
    </section>
  );
}
