// The parts of a node that telemetry touches. Their height is kept free, so that nothing moves.
import { memo, useContext } from "react";
import {
  useActivities,
  useLoop,
  useRankGauges,
  useUseActivity,
  type Activity,
  type NodeState,
} from "../../telemetry/activity";
import { Prose } from "../../ui/kit";
import { FlowingOn } from "../edges/TokenLayer";
import { together } from "../model/together";
import { figuresOf, loopWords, pagesUsed, tellingOf } from "./figures";

interface LiveProps {
  /** The name of the use on its Walk's canvas. */
  name: string;
  node: string;
  /** It keeps keys and values in its rank's pages. */
  paged?: boolean;
}

export const Live = memo(function Live({ name, node, paged = false }: LiveProps) {
  const activity = useUseActivity(useContext(FlowingOn)?.walk ?? null, name, node);
  if (!activity || activity.state === "idle") return <Figures state="idle" />;
  const { state, error } = activity;
  if (paged && state === "running") return <WithPages activity={activity} />;
  return <Figures state={state} parts={figuresOf(activity)} telling={tellingOf(activity)} error={error} />;
});

function WithPages({ activity }: { activity: Activity }) {
  const gauges = useRankGauges();
  const used = pagesUsed(activity.ranks, gauges);
  const parts = figuresOf(activity, used);
  return <Figures state={activity.state} parts={parts} telling={tellingOf(activity, used)} error={activity.error} />;
}

/** The same of all nodes in a closed container. */
export const LiveTogether = memo(function LiveTogether({ nodes }: { nodes: readonly string[] }) {
  const all = together(useActivities(nodes));
  if (!all || all.state === "idle") return <Figures state="idle" />;
  return <Figures state={all.state} parts={figuresOf({ ...all, ms: 0, batch: 0 })} error={all.error} />;
});

interface FiguresProps {
  state: NodeState;
  parts?: readonly string[];
  /** All of it in words. */
  telling?: string;
  error?: string | undefined;
}

function Figures({ state, parts = [], telling = "", error = "" }: FiguresProps) {
  if (state === "idle") return <div className="wg-live" data-activity="idle" />;
  return (
    <div className={`wg-live ${state}`} data-activity={state} title={error || telling || undefined}>
      <em>{error ? <Prose text={error} /> : state}</em>
      <span>{parts.join(" · ")}</span>
    </div>
  );
}

/** Where the runs of a loop or a map are, in its rail. */
export const LoopAt = memo(function LoopAt({ walk, loop, map }: { walk: string; loop: string; map: boolean }) {
  const activity = useLoop(walk, loop);
  if (!activity) return null;
  const { short, long, share } = loopWords(activity, map);
  return (
    <span
      className={`wg-loop-at ${activity.state}`}
      title={long}
      aria-label={`${loop}: ${long}`}
      style={{ "--share": `${share * 100}%` } as React.CSSProperties}
    >
      {short}
    </span>
  );
});
