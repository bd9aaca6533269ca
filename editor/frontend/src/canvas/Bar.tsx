// The view's controls, bottom left.
import { useStore } from "@xyflow/react";
import { Database, EyeOff, Map as MapIcon, Maximize, Spline, WandSparkles, ZoomIn, ZoomOut } from "lucide-react";
import { memo } from "react";
import { showStates, useShowsStates } from "../store/preferences";
import { useEditor, useEditorState } from "../store/react";
import { IconButton, Select } from "../ui/kit";
import type { Board } from "./gestures/board";
import type { Shape } from "./edges/paths";
import { groupsOf, tidy } from "./gestures/tidy";
import { strings } from "../strings";

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
  const states = useShowsStates();
  const { flow } = board;
  const set = (change: Partial<Prefs>) => onPrefs({ ...prefs, ...change });
  return (
    <div className="wg-bar" role="toolbar" aria-label={strings.canvas.view}>
      <IconButton label={strings.canvas.zoomOut} onClick={() => void flow.zoomOut({ duration: 120 })}>
        <ZoomOut size={15} />
      </IconButton>
      <Zoom board={board} />
      <IconButton label={strings.canvas.zoom} onClick={() => void flow.zoomIn({ duration: 120 })}>
        <ZoomIn size={15} />
      </IconButton>
      <IconButton
        label={strings.canvas.showAllF}
        onClick={() => void flow.fitView({ padding: 0.08, maxZoom: 1, duration: 200 })}
      >
        <Maximize size={15} />
      </IconButton>
      <i className="wg-divider" aria-hidden />
      <LayOut board={board} />
      <IconButton
        label={mapOff ? strings.canvas.noMapAbove300Nodes : strings.canvas.map}
        disabled={mapOff}
        aria-pressed={prefs.map && !mapOff}
        onClick={() => set({ map: !prefs.map })}
      >
        <MapIcon size={15} />
      </IconButton>
      <IconButton
        label={strings.canvas.hideAllWiresExceptThose}
        aria-pressed={prefs.hideWires}
        onClick={() => set({ hideWires: !prefs.hideWires })}
      >
        <EyeOff size={15} />
      </IconButton>
      <IconButton
        label={strings.canvas.straightWires}
        aria-pressed={prefs.shape === "straight"}
        onClick={() => set({ shape: prefs.shape === "straight" ? "curved" : "straight" })}
      >
        <Spline size={15} />
      </IconButton>
      <IconButton label={strings.canvas.showStates} aria-pressed={states} onClick={() => showStates(!states)}>
        <Database size={15} />
      </IconButton>
      <i className="wg-divider" aria-hidden />
      <Select
        aria-label={strings.canvas.colourNodes}
        value={lens}
        onChange={(value) => editor.see({ lens: value === "rank" ? "rank" : "kind" })}
        options={[
          { value: "kind", label: strings.canvas.colourOutputType },
          { value: "rank", label: strings.canvas.colourRank },
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
      label={some ? strings.canvas.layOutTheSelectionAgain : strings.canvas.layOutEverythingAgainL}
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
      title={strings.canvas.backTo1001}
      aria-label={strings.canvas.zoomIsBackTo100(percent)}
      onClick={() => void board.flow.zoomTo(1, { duration: 120 })}
    >
      {percent} %
    </button>
  );
}
