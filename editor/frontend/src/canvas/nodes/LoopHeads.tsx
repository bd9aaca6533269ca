// The heads of a loop and of a map: what is repeated, and how often.
import { setHead } from "../../document/edits/heads";
import { setItem, type ItemFields } from "../../document/edits/items";
import { MAP_NAME } from "../../document/tree";
import { useEditor } from "../../store/react";
import { attempt } from "../gestures/attempt";
import type { ContainerData } from "../shapes/types";
import { InPlace } from "./InPlace";
import { strings } from "../../strings";

/** Enters fields of a container into the document; false where that is refused. */
export function useFields(box: ContainerData): (fields: ItemFields) => boolean {
  const editor = useEditor();
  return (fields) =>
    attempt(editor, strings.canvas.changeAContainer, (graph) => setItem(graph, box.walk, box.id, fields));
}

export function LoopHead({ box }: { box: ContainerData }) {
  const set = useFields(box);
  return (
    <>
      <InPlace
        className="name"
        label={strings.canvas.loopsName}
        value={box.name}
        onChange={(loop) => set({ loop })}
      />
      <span aria-hidden>×</span>
      <InPlace
        className="code"
        label={strings.canvas.howManyTimes}
        value={box.times}
        onChange={(times) => set({ times })}
      />
      {box.until && (
        <>
          <span>{strings.canvas.until}</span>
          <InPlace
            className="code"
            label={strings.canvas.portThatEndsTheLoop}
            value={box.until}
            onChange={(until) => set({ until: until || null })}
          />
        </>
      )}
    </>
  );
}

export function MapHead({ box }: { box: ContainerData }) {
  const editor = useEditor();
  const setList = (text: string) =>
    attempt(editor, strings.canvas.setTheListOfAMap, (graph) =>
      setHead(graph, box.walk, box.id, text || null, editor.state.catalogue),
    );
  return (
    <>
      <b className="wg-order">{box.badge}</b>
      <strong>{strings.canvas.forEachOf}</strong>
      <InPlace
        className="code"
        label={strings.canvas.listThatTheMapGoesThrough}
        value={box.head!.value}
        placeholder={strings.canvas.drawAWireHere}
        onChange={setList}
      />
    </>
  );
}

/** In the rail of a map: the name under which its index is read, how many items it takes, and how many at once. */
export function MapRule({ box }: { box: ContainerData }) {
  const editor = useEditor();
  const set = useFields(box);
  const rename = (as: string) => {
    const held = editor.state.view.selection.includes(box.id);
    const done = set({ as: as || null });
    if (done && held) editor.select(`map:${as || MAP_NAME}`);
    return done;
  };
  return (
    <span className="wg-map-rule">
      <InPlace className="name" label={strings.canvas.mapsName} value={box.name} onChange={rename} />
      <span>{strings.canvas.upTo}</span>
      <InPlace
        className="code"
        label={strings.canvas.howManyItemsAtMost}
        value={box.bound}
        onChange={(bound) => bound !== "" && set({ bound })}
      />
      <span aria-hidden>·</span>
      <InPlace
        className="code"
        label={strings.canvas.howManyAtOnce}
        value={box.width}
        onChange={(width) => set({ width: width || null })}
      />
      <span>{strings.canvas.atOnce}</span>
    </span>
  );
}
