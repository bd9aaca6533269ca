// A component at work: a use in a Walk, or a node on the components canvas.
import type { NodeProps } from "@xyflow/react";
import { memo, useContext, useMemo } from "react";
import { iconOf, toneOf } from "../../catalogue/icons";
import { groupOf } from "../../catalogue/catalogue";
import { DebugMarks } from "../../debug/marks";
import { rankColor } from "../../placement/model/ranks";
import { useEditorState } from "../../store/react";
import { useMarked } from "../../store/highlight";
import { useBranchState } from "../../telemetry/activity";
import { useKey } from "../../telemetry/calls";
import { FlowingOn } from "../edges/TokenLayer";
import { HEAD, SUB } from "../shapes/geometry";
import { worst } from "../model/problems";
import type { CanvasNode, UseData } from "../shapes/types";
import { Live } from "./live";
import { Changed, Ports, Problems, Ranks, States, When } from "./parts";
import { strings } from "../../strings";

const NONE: readonly string[] = [];

export const UseNode = memo(function UseNode({ data }: NodeProps<CanvasNode>) {
  const use = data as UseData;
  const tint = use.ranks.length ? rankColor(use.ranks[0] ?? 0) : use.color;
  const nodes = useMemo(() => [use.node], [use.node]);
  const marked = useMarked(use.node);
  const walk = useContext(FlowingOn)?.walk ?? null;
  const own = useMemo(
    () => (walk === null || !use.others.length ? NONE : [useKey(walk, use.name)]),
    [walk, use.name, use.others.length],
  );
  const passed = useBranchState(own, use.others) === "passed" ? "passed" : "";
  const kinds = ["wg-use", passed, marked ? "marked" : "", use.ghost ? "ghost" : "", use.muted, worst(use.problems)];
  return (
    <div className={kinds.join(" ")} style={{ "--tint": tint } as React.CSSProperties}>
      <DebugMarks name={use.name} node={use.node} />
      <header>
        {use.badge && <b className="wg-order">{use.badge}</b>}
        <Picture component={use.component} />
        <strong title={use.name}>{use.name}</strong>
        {use.muted && <span className="wg-tag">{use.muted}</span>}
        <Changed nodes={nodes} />
        <Ranks ranks={use.ranks} tint={rankColor} />
        <Problems problems={use.problems} />
      </header>
      <div
        className="wg-component"
        title={use.ghost ? strings.canvas.thereIsNoComponent(use.component) : use.description}
      >
        {use.component}
        {use.ghost && <b> {strings.canvas.unknown}</b>}
        <small title={use.drawnOnly ? strings.canvas.thisBuildHasNoNetwork : undefined}>
          {[use.drawnOnly ? strings.canvas.drawnOnly : "", use.footnote].filter(Boolean).join(" · ")}
        </small>
      </div>
      <div className="wg-rows">
        <Ports inputs={use.inputs} outputs={use.outputs} top={HEAD + SUB + 4} />
      </div>
      <div className="wg-foot">
        {use.when && <When when={use.when} />}
        <States states={use.states} />
        <Live name={use.name} node={use.node} paged={use.states.some((state) => state.kind === "paged_kv")} />
      </div>
      <div className="wg-far" aria-hidden>
        {use.name}
      </div>
    </div>
  );
});

function Picture({ component: name }: { component: string }) {
  const component = useEditorState((state) => state.catalogue[name]);
  if (!component) return null;
  const Icon = iconOf(component);
  return (
    <Icon className="wg-picture" size={14} strokeWidth={1.9} color={toneOf(groupOf(component))} aria-hidden="true" />
  );
}
