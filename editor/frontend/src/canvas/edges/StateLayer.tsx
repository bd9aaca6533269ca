// Which step reads what another left in a state, as thin dashed lines between the wires and the nodes: all of them with
// their lens, else those of the node under the pointer and of the selection.
import { useInternalNode, ViewportPortal } from "@xyflow/react";
import { memo } from "react";
import { useStore } from "zustand";
import { createStore, type StoreApi } from "zustand/vanilla";
import { useShowsStates } from "../../store/preferences";
import { useEditorState } from "../../store/react";
import { strings } from "../../strings";
import type { CanvasNode, Dependency } from "../shapes/types";
import { forward } from "./paths";

/** The node under the pointer. */
export type Pointed = StoreApi<string | null>;

export const pointedAt = (): Pointed => createStore<string | null>(() => null);

/** From the bottom of a node to the middle of its states. */
const UP = 14;

export function StateLayer({ all, pointed }: { all: readonly Dependency[]; pointed: Pointed }) {
  const lens = useShowsStates();
  const over = useStore(pointed);
  const selection = useEditorState((state) => state.view.selection);
  if (!all.length) return null;
  const isNear = ({ source, target }: Dependency) =>
    source === over || target === over || selection.includes(source) || selection.includes(target);
  const shown = lens ? all : all.filter(isNear);
  return (
    <ViewportPortal>
      <svg className="wg-dependencies">
        {shown.map((one) => (
          <Line key={one.id} dependency={one} near={isNear(one)} />
        ))}
      </svg>
    </ViewportPortal>
  );
}

const Line = memo(function Line({ dependency, near }: { dependency: Dependency; near: boolean }) {
  const source = useInternalNode<CanvasNode>(dependency.source);
  const target = useInternalNode<CanvasNode>(dependency.target);
  if (!source || !target) return null;
  const [from, to] = [source.internals.positionAbsolute, target.internals.positionAbsolute];
  const [sx, sy] = [from.x + (source.measured.width ?? 0), from.y + (source.measured.height ?? 0) - UP];
  const [tx, ty] = [to.x, to.y + (target.measured.height ?? 0) - UP];
  const { path, label } = forward({ sx, sy, tx, ty }, [], "curved");
  const text = dependency.states.join(", ");
  const width = text.length * 5.6 + 10;
  const spoken = strings.canvas.readsWhatWasLeft(named(target), named(source), text);
  return (
    <g className={near ? "near" : ""} role="img" aria-label={spoken}>
      <path d={path} />
      <path className="arrow" d={`M${tx - 6},${ty - 3.5}L${tx},${ty}L${tx - 6},${ty + 3.5}`} />
      <g className="wg-chip" transform={`translate(${label[0] - width / 2} ${label[1]})`}>
        <rect y={-7.5} width={width} height={15} rx={7.5} />
        <text x={width / 2} y={3.4} textAnchor="middle">
          {text}
        </text>
      </g>
    </g>
  );
});

/** A use's name, or what a fork or a closed container is called. */
function named({ data, ariaLabel }: CanvasNode): string {
  return data.kind === "use" ? data.name : (ariaLabel ?? "");
}
