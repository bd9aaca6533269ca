// What the nodes of the canvas have in common: ports, problem marks, chips, the telemetry row.
import { Handle, Position } from "@xyflow/react";
import { memo, useContext } from "react";
import type { Problem } from "../../api/types";
import { changedNodes } from "../../deploy/changed";
import { useEditorState } from "../../store/react";
import { useActivities, useActivity, type NodeState } from "../../telemetry/activity";
import { NodePreview } from "../../telemetry/views";
import { color, glyph } from "../../ui/modality";
import { Far } from "../far";
import { ROW } from "../geometry";
import { told, worst } from "../model/problems";
import { showing, together } from "../model/together";
import type { PortShown, StateShown } from "../types";

interface PortsProps {
  inputs: PortShown[];
  outputs: PortShown[];
  /** From the node's top to its first row. */
  top: number;
}

export const Ports = memo(function Ports({ inputs, outputs, top }: PortsProps) {
  // Edges know where ports are from the model, whether they are mounted or not.
  if (useContext(Far)) return null;
  return (
    <>
      {inputs.map((port, index) => (
        <PortRow key={port.ref} port={port} type="target" top={top + index * ROW} />
      ))}
      {outputs.map((port, index) => (
        <PortRow key={port.ref} port={port} type="source" top={top + index * ROW} />
      ))}
    </>
  );
});

export function portTitle(port: PortShown): string {
  const type = port.type || (port.ghost ? "not declared by the component" : "any type");
  const need = port.optional ? "" : "\nneeded";
  return `${port.name} · ${type}${port.description ? `\n${port.description}` : ""}${need}`;
}

function PortRow({ port, type, top }: { port: PortShown; type: "source" | "target"; top: number }) {
  const kinds = [
    "wg-port",
    type,
    port.wired ? "wired" : "",
    port.ghost ? "ghost" : "",
    port.mark ?? "",
    type === "target" && !port.optional && !port.wired ? "needed" : "",
  ];
  const tint = port.type ? color(port.type) : port.ghost ? "var(--bad)" : "var(--line-strong)";
  return (
    <div className={kinds.join(" ")} style={{ top, color: tint }} title={portTitle(port)}>
      <Handle
        type={type}
        position={type === "source" ? Position.Right : Position.Left}
        id={port.ref}
        aria-label={`${type === "source" ? "output" : "input"} ${port.name}, ${port.type || "any type"}`}
      />
      <i aria-hidden>{port.mark === "add" ? "+" : port.type ? glyph(port.type) : "?"}</i>
      <span>{port.name}</span>
      {port.mark === "until" && <b title="The loop ends in the iteration that raises this">ends loop</b>}
    </div>
  );
}

export const Problems = memo(function Problems({ problems }: { problems: Problem[] }) {
  const kind = worst(problems);
  if (!kind) return null;
  const word = kind === "error" ? "problem" : "warning";
  const name = `${problems.length} ${word}${problems.length === 1 ? "" : "s"}`;
  return (
    <span className={`wg-node-problems ${kind}`} title={told(problems)} aria-label={`${name}: ${told(problems)}`}>
      {kind === "error" ? "!" : "▲"}
      {problems.length > 1 ? `\u2009${problems.length}` : ""}
    </span>
  );
});

const STATE_GLYPHS: Record<string, string> = { paged_kv: "▦", tensor: "▢", rng: "⚂" };
const STATE_KINDS: Record<string, string> = { paged_kv: "key-value cache", tensor: "tensor", rng: "random numbers" };

export const States = memo(function States({ states }: { states: StateShown[] }) {
  if (!states.length) return null;
  return (
    <div className="wg-states">
      {states.map(({ slot, state, kind, scope, missing }) => {
        const about = `${STATE_KINDS[kind] ?? kind}, kept for the ${scope}`;
        const title = state
          ? missing
            ? `\`${slot}\` names the state \`${state}\`, which the graph doesn't declare`
            : `\`${slot}\` is the state \`${state}\`: ${about}`
          : `\`${slot}\` has no state yet: choose one in the inspector`;
        return (
          <span key={slot} className={missing ? "wg-state bad" : "wg-state"} title={title}>
            <i aria-hidden>{STATE_GLYPHS[kind] ?? "▢"}</i>
            {state && state !== slot ? `${slot} ${state}` : slot}
            {!state && missing ? " ?" : ""}
          </span>
        );
      })}
    </div>
  );
});

/** The only part of a node that telemetry touches; its height is kept free, so that nothing moves. */
export const Live = memo(function Live({ node }: { node: string }) {
  const activity = useActivity(node);
  if (!activity || activity.state === "idle") return <Figures state="idle" />;
  const { state, iteration, rate, ms, batch, error } = activity;
  const more = [ms > 0 ? `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms` : "", batch > 1 ? `×${batch}` : ""];
  return <Figures state={state} iteration={iteration ?? []} rate={rate} more={more} error={error ?? ""} />;
});

/** The same of all nodes in a closed container, and the last preview among theirs. */
export const LiveTogether = memo(function LiveTogether({ nodes }: { nodes: readonly string[] }) {
  const activities = useActivities(nodes);
  const all = together(activities);
  const preview = showing(nodes, activities);
  return (
    <>
      {!all || all.state === "idle" ? <Figures state="idle" /> : <Figures {...all} />}
      {preview !== null && <NodePreview node={preview} />}
    </>
  );
});

interface FiguresProps {
  state: NodeState;
  iteration?: readonly number[];
  rate?: number;
  more?: readonly string[];
  error?: string;
}

function Figures({ state, iteration = [], rate = 0, more = [], error = "" }: FiguresProps) {
  if (state === "idle") return <div className="wg-live" data-activity="idle" />;
  const parts = [
    iteration.length ? `#${iteration.map((index) => index + 1).join(".")}` : "",
    rate > 0 ? `${rate < 10 ? rate.toFixed(1) : Math.round(rate)}/s` : "",
    ...more,
  ];
  return (
    <div className={`wg-live ${state}`} data-activity={state} title={error || undefined}>
      <em>{error || state}</em>
      <span>{parts.filter(Boolean).join(" · ")}</span>
    </div>
  );
}

/** A dot where the open graph differs from what runs. */
export function Changed({ nodes }: { nodes: readonly string[] }) {
  const changed = useEditorState((state) => {
    const all = changedNodes(state);
    return nodes.some((node) => all.has(node));
  });
  const words = "Differs from what runs: deploy to bring it there";
  return changed ? <i className="wg-changed" role="img" title={words} aria-label={words} /> : null;
}

export function When({ when }: { when: string }) {
  return (
    <div className="wg-when" title={`Runs when ${when}`}>
      <b>when</b> {when}
    </div>
  );
}

export function Ranks({ ranks, tint }: { ranks: number[]; tint: (rank: number) => string }) {
  if (!ranks.length) return null;
  return (
    <span className="wg-ranks" title={`On rank ${ranks.join(", ")}`}>
      {ranks.map((rank) => (
        <b key={rank} style={{ background: tint(rank) }}>
          {rank}
        </b>
      ))}
    </span>
  );
}
