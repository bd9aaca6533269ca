// The width of a group: what its ranks divide, and over how many of each replica. Pure.
import type { Group } from "./schema.generated";

/** `tensor_parallel` divides weights, `sequence_parallel` the tokens of flow steps. */
export type WidthField = "tensor_parallel" | "sequence_parallel";

export interface Width {
  field: WidthField;
  count: number;
  /** Of ranks that divide weights and hold whole experts: how many experts of each layer are redundant. Otherwise null. */
  redundant: number | null;
}

export const WHOLE: Width = { field: "tensor_parallel", count: 1, redundant: null };

/** The fields of a group that say its width. */
type WidthFields = Required<Pick<Group, WidthField | "expert_parallel" | "redundant_experts">>;

export function widthOf(group: Group | undefined): Width {
  const tokens = group?.sequence_parallel ?? 1;
  if (tokens > 1) return { field: "sequence_parallel", count: tokens, redundant: null };
  const redundant = group?.expert_parallel ? (group.redundant_experts ?? 0) : null;
  return { field: "tensor_parallel", count: group?.tensor_parallel ?? 1, redundant };
}

/** True if the ranks of this width may hold whole experts. */
export function dividesWeights({ field, count }: Width): boolean {
  return field === "tensor_parallel" && count > 1;
}

export function fieldsOf(width: Width): WidthFields {
  const redundant = dividesWeights(width) ? width.redundant : null;
  return {
    tensor_parallel: 1,
    sequence_parallel: 1,
    [width.field]: width.count,
    expert_parallel: redundant !== null,
    redundant_experts: redundant ?? 0,
  };
}

export function sameWidth(one: Width, other: Width): boolean {
  if (one.count === 1) return other.count === 1;
  return one.count === other.count && one.field === other.field && one.redundant === other.redundant;
}
