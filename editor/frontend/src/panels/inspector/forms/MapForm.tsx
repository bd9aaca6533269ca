// A map of a Walk: its list, its bounds and its name.
import { useMemo } from "react";
import { setHead } from "../../../document/edits/heads";
import { unwrap } from "../../../document/edits/wrap";
import { headOf } from "../../../document/tree";
import type { MapItem } from "../../../document/types";
import { useEditorState } from "../../../store/react";
import { Button } from "../../../ui/kit";
import { useProblems } from "../../common/apply";
import { ProblemLines } from "../../common/bits";
import { scopeOfWalk } from "../../common/scope";
import { ChoiceField, ExpressionField, NameField } from "../fields/fields";
import { valuesOf } from "./ChoiceForms";
import { useItem, WhenField, type ItemProps } from "./ItemForms";
import { strings } from "../../../strings";

export function MapForm({ walk, entry }: ItemProps) {
  const { set, attempt, pointer, editor } = useItem({ walk, entry });
  const graph = useEditorState((state) => state.documents.graph);
  const catalogue = useEditorState((state) => state.catalogue);
  const { bound, width } = entry.item as MapItem;
  const lists = useMemo(() => valuesOf(graph, catalogue, walk, entry), [graph, catalogue, walk, entry]);
  const scope = useMemo(() => scopeOfWalk(graph, walk, entry.loops), [graph, walk, entry.loops]);
  const own = useProblems(pointer, true);
  const empty = useProblems(`${pointer}/body`, true);
  const list = useProblems(`${pointer}/map`);
  const naming = useProblems(`${pointer}/as`);
  const bounds = useProblems(`${pointer}/bound`);
  const widths = useProblems(`${pointer}/width`);
  const rename = (name: string) => {
    const refused = set(strings.inspector.renameTheMap(entry.name), { as: name });
    if (refused === null) editor.select(`map:${name}`);
    return refused;
  };
  const takeApart = () => {
    if (attempt(strings.inspector.unwrap("map"), (graph) => unwrap(graph, walk, entry.id)))
      editor.select(...entry.children.map((child) => child.id));
  };
  return (
    <>
      <p className="wg-quiet">{strings.inspector.itsStepsRunForEveryItem}</p>
      <ProblemLines problems={[...own, ...empty]} />
      <ChoiceField
        label={strings.inspector.forEachOf}
        value={headOf(entry.item)}
        options={[{ value: "", label: strings.inspector.nothingYet }, ...lists]}
        onChoose={(from) =>
          void attempt(strings.inspector.setTheListOfTheMap, (graph) =>
            setHead(graph, walk, entry.id, from || null, catalogue),
          )
        }
        hint={strings.inspector.aListOrATensor}
        problems={list}
      />
      <ExpressionField
        label={strings.inspector.itemsAtMost}
        value={String(bound ?? "")}
        scope={scope}
        problems={bounds}
        onEnter={(text) =>
          text ? set(strings.inspector.setHowManyItems, { bound: text }) : strings.inspector.writeTheMostItems
        }
        hint={strings.inspector.aRunWithALongerList}
      />
      <ExpressionField
        label={strings.inspector.itemsAtOnce}
        value={width ?? ""}
        placeholder="1"
        scope={scope}
        problems={widths}
        onEnter={(text) => set(strings.inspector.setHowManyAtOnce, { width: text || null })}
        hint={strings.inspector.itemsThatRunSideBySide}
      />
      <NameField
        label={strings.inspector.name}
        value={entry.name}
        onEnter={rename}
        hint={
          <>
            {strings.inspector.inside} <code>{strings.inspector.loop(entry.name)}</code>{" "}
            {strings.inspector.countsItsItemsFrom0}
          </>
        }
        problems={naming}
      />
      <WhenField walk={walk} entry={entry} />
      <div className="wg-actions">
        <Button onClick={takeApart}>{strings.inspector.unwrap2}</Button>
      </div>
    </>
  );
}
