// Common parts of the canvas' nodes: ports, problem marks, chips.
import { Handle, Position } from "@xyflow/react";
import { memo, useContext } from "react";
import type { Problem } from "../../messages/answers";
import { changedNodes } from "../../deploy/changed";
import { useEditorState } from "../../store/react";
import { color, glyph } from "../../ui/modality";
import { Far } from "../shapes/far";
import { ROW } from "../shapes/geometry";
import { told, worst } from "../model/problems";
import type { PortShown, StateShown } from "../shapes/types";
import { strings } from "../../strings";

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
  const type = port.type || (port.ghost ? strings.canvas.notDeclaredByTheComponent : strings.canvas.anyType);
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
        aria-label={`${type === "source" ? strings.canvas.output : strings.canvas.input} ${port.name}, ${port.type || strings.canvas.anyType}`}
      />
      <i aria-hidden>{port.mark === "add" ? "+" : port.type ? glyph(port.type) : "?"}</i>
      <span>{port.name}</span>
      {port.mark === "until" && <b title={strings.canvas.theLoopEndsAfter}>{strings.canvas.endsLoop}</b>}
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
const STATE_KINDS: Record<string, string> = {
  paged_kv: strings.canvas.keyValueCache,
  tensor: "tensor",
  rng: strings.canvas.randomNumbers,
};

export const States = memo(function States({ states }: { states: StateShown[] }) {
  if (!states.length) return null;
  return (
    <div className="wg-states">
      {states.map(({ slot, state, kind, scope, missing }) => {
        const about = strings.canvas.kept(STATE_KINDS[kind] ?? kind, scope);
        const title = state
          ? missing
            ? strings.canvas.namesTheState(slot, state)
            : strings.canvas.isTheState(slot, state, about)
          : strings.canvas.hasNoStateYetChoose(slot);
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

/** A dot where the open graph differs from what runs. */
export function Changed({ nodes }: { nodes: readonly string[] }) {
  const changed = useEditorState((state) => {
    const all = changedNodes(state);
    return nodes.some((node) => all.has(node));
  });
  const words = strings.canvas.differsFromTheDeployedVersion;
  return changed ? <i className="wg-changed" role="img" title={words} aria-label={words} /> : null;
}

export function When({ when }: { when: string }) {
  return (
    <div className="wg-when" title={strings.canvas.runsWhen(when)}>
      <b>{strings.canvas.when}</b> {when}
    </div>
  );
}

export function Ranks({ ranks, tint }: { ranks: number[]; tint: (rank: number) => string }) {
  if (!ranks.length) return null;
  return (
    <span className="wg-ranks" title={strings.canvas.onRankWithRanks(ranks.join(", "))}>
      {ranks.map((rank) => (
        <b key={rank} style={{ background: tint(rank) }}>
          {rank}
        </b>
      ))}
    </span>
  );
}
