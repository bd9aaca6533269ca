// The inspector: a form for whatever is selected.
import { useMemo, type ReactNode } from "react";
import { InsideEditor } from "../../store/inside";
import { useEditor, useEditorState } from "../../store/react";
import { KIND_ICONS } from "../common/icons";
import { BlueprintForm } from "./forms/BlueprintForm";
import { BranchForm, ChooseForm, MergeForm } from "./forms/ChoiceForms";
import { EdgeForm } from "./forms/EdgeForm";
import { GraphForm } from "./forms/GraphForm";
import { ForkForm, GroupForm, LoopForm, UseForm } from "./forms/ItemForms";
import { ManyForm } from "./forms/ManyForm";
import { MapForm } from "./forms/MapForm";
import { MarkForm } from "./forms/MarkForms";
import { NodeForm } from "./forms/NodeForm";
import { StreamForm } from "./forms/StreamForm";
import { headingOf, subjectKey, subjectOf, type Subject } from "./subject";
import { InputsForm, OutputsForm, WalkForm } from "./forms/WalkForm";
import { strings } from "../../strings";

export function Inspector() {
  const editor = useEditor();
  const graph = useEditorState((state) => state.documents.graph);
  const canvas = useEditorState((state) => state.view.canvas);
  const selection = useEditorState((state) => state.view.selection);
  const readonly = useEditorState((state) => state.saving.state === "readonly");
  const subject = useMemo(() => subjectOf(graph, { canvas, selection }), [graph, canvas, selection]);
  const inside = editor instanceof InsideEditor && ["graph", "walk"].includes(subject.kind) ? editor : null;
  const { kind, title } = inside
    ? { kind: strings.inspector.blueprint, title: inside.blueprint }
    : headingOf(subject, graph);
  const Icon = KIND_ICONS[ICONS[kind] ?? kind];
  return (
    <div className="wg-inspector">
      <header>
        {Icon && <Icon size={15} aria-hidden="true" />}
        <h2 title={title}>{title || kind}</h2>
        {title && kind && <span className="kind">{kind}</span>}
      </header>
      <fieldset className="body" disabled={readonly} key={subjectKey(subject)} aria-label={`${kind} ${title}`}>
        {inside ? <BlueprintForm inside={inside} /> : form(subject, (to) => editor.select(`node:${to}`))}
      </fieldset>
    </div>
  );
}

const ICONS: Readonly<Record<string, string>> = {
  graph: "components",
  blueprint: "components",
  Walk: "walk",
  inputs: "in",
  outputs: "out",
  component: "node",
  choice: "choose",
};

/** `follow` selects the node that was renamed. */
function form(subject: Subject, follow: (to: string) => void): ReactNode {
  switch (subject.kind) {
    case "graph":
      return <GraphForm />;
    case "walk":
      return <WalkForm name={subject.walk} />;
    case "inputs":
      return <InputsForm name={subject.walk} />;
    case "outputs":
      return <OutputsForm name={subject.walk} />;
    case "node":
      return <NodeForm name={subject.node} onRename={follow} />;
    case "item":
      return itemForm(subject);
    case "edge":
      return <EdgeForm walk={subject.walk} index={subject.index} />;
    case "merge":
      return <MergeForm walk={subject.walk} name={subject.name} />;
    case "stream":
      return <StreamForm name={subject.stream} />;
    case "note":
    case "frame":
      return <MarkForm kind={subject.kind} id={subject.id} canvas={subject.canvas} />;
    case "many":
      return <ManyForm walk={subject.walk} ids={subject.ids} />;
  }
}

function itemForm({ walk, entry }: Extract<Subject, { kind: "item" }>): ReactNode {
  switch (entry.kind) {
    case "use":
      return <UseForm walk={walk} entry={entry} />;
    case "loop":
      return <LoopForm walk={walk} entry={entry} />;
    case "map":
      return <MapForm walk={walk} entry={entry} />;
    case "parallel":
    case "sequence":
      return <GroupForm walk={walk} entry={entry} />;
    case "choose":
      return <ChooseForm walk={walk} entry={entry} />;
    case "case":
    case "otherwise":
      return <BranchForm walk={walk} entry={entry} />;
    case "fork":
      return <ForkForm walk={walk} entry={entry} />;
    case "unknown":
      return <p className="wg-quiet">{strings.inspector.theEditorDoesntKnowThis}</p>;
  }
}
