// The port in the head of an open choice or map; outside of the head, which cuts off what is wider.
import { Handle, Position } from "@xyflow/react";
import { color } from "../../ui/modality";
import type { ContainerData } from "../shapes/types";
import { portTitle } from "./parts";
import { strings } from "../../strings";

export function HeadPort({ box }: { box: ContainerData }) {
  const { port, value } = box.head!;
  const tint = port.type ? color(port.type) : "var(--line-strong)";
  const label =
    box.container === "map" ? strings.canvas.listThatTheMapGoesThrough : strings.canvas.valueThatTheChoiceGoesBy;
  return (
    <span className={`wg-knob ${value ? "wired" : "needed"}`} style={{ color: tint }} title={portTitle(port)}>
      <Handle type="target" position={Position.Left} id={port.ref} aria-label={label} />
    </span>
  );
}
