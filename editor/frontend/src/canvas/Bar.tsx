// The view's controls, bottom left.
import { useStore } from "@xyflow/react";
import { EyeOff, Map as MapIcon, Maximize, Spline, WandSparkles, ZoomIn, ZoomOut } from "lucide-react";
import { memo } from "react";
import { useEditor, useEditorState } from "../store/react";
import { IconButton, Select } from "../ui/kit";
import type { Board } from "./gestures/board";
import type { Shape } from "./edges/paths";
import { groupsOf, tidy } from "./gestures/tidy";

export interface Prefs {
  map: boolean;
  hideWires: boolean;
  shape: Shape;
}

interface Props {
  board: Board;
  prefs: Prefs;
  onPrefs: (prefs: Prefs) => void;
  /** Too many nodes for a map. */
  mapOff: boolean;
}

export const Bar = memo(function Bar({ board, prefs, onPrefs, mapOff }: Props) {
  const editor = useEditor();
  const lens = useEditorState((state) => state.view.lens);
  const { flow } = board;
  const set = (change: Partial<Prefs>) => onPrefs({ ...prefs, ...change });
  return (
    <div className="wg-bar" role="toolbar" aria-label="View">
      <IconButton label="Zoom out" onClick={() => void flow.zoomOut({ duration: 120 })}>
        <ZoomOut size={15} />
      </IconButton>
      <Zoom board={board} />
      <IconButton label="Zoom in" onClick={() => void flow.zoomIn({ duration: 120 })}>
        <ZoomIn size={15} />
      </IconButton>
      <IconButton
        label="Show all (F)"
        onClick={() => void flow.fitView({ padding: 0.08, maxZoom: 1, duration: 200 })}
      >
        <Maximize size={15} />
      </IconButton>
      <i className="wg-divider" aria-hidden />
      <LayOut board={board} />
      <IconButton
        label={mapOff ? "No map above 300 nodes" : "Map"}
        disabled={mapOff}
        aria-pressed={prefs.map && !mapOff}
        onClick={() => set({ map: !prefs.map })}
      >
        <MapIcon size={15} />
      </IconButton>
      <IconButton
        label="Hide wires, but for those of what is selected"
        aria-pressed={prefs.hideWires}
        onClick={() => set({ hideWires: !prefs.hideWires })}
      >
        <EyeOff size={15} />
      </IconButton>
      <IconButton
        label="Straight wires"
        aria-pressed={prefs.shape === "straight"}
        onClick={() => set({ shape: prefs.shape === "straight" ? "curved" : "straight" })}
      >
        <Spline size={15} />
      </IconButton>
      <i className="wg-divider" aria-hidden />
      <Select
        aria-label="What colours the nodes"
        value={lens}
        onChange={(value) => editor.see({ lens: value === "rank" ? "rank" : "kind" })}
        options={[
          { value: "kind", label: "colour: what they make" },
          { value: "rank", label: "colour: rank" },
        ]}
      />
    </div>
  );
});

/** The selection where several things are selected, else all. */
function LayOut({ board }: { board: Board }) {
  const selection = useEditorState((state) => state.view.selection);
  const some = groupsOf(board.model(), selection).length > 0;
  return (
    <IconButton
      label={some ? "Lay out the selection anew (Shift+L)" : "Lay out all anew (L)"}
      onClick={() => void tidy(board, some ? selection : [])}
    >
      <WandSparkles size={15} />
    </IconButton>
  );
}

function Zoom({ board }: { board: Board }) {
  const percent = useStore((state) => Math.round(state.transform[2] * 100));
  return (
    <button
      type="button"
      className="wg-button quiet wg-zoom"
      title="Back to 100 % (1)"
      aria-label={`Zoom is ${percent} %; back to 100 %`}
      onClick={() => void board.flow.zoomTo(1, { duration: 120 })}
    >
      {percent} %
    </button>
  );
}
