// The width of a group: what its ranks divide, and over how many of each replica. Pure.
import type { Group } from "./schema.generated";

/** `tensor_parallel` divides weights, `sequence_parallel` the tokens of flow steps. */
export type WidthField = "tensor_parallel" | "sequence_parallel";

export interface Width {
  field: WidthField;
  count: number;
}

export const WHOLE: Width = { field: "tensor_parallel", count: 1 };

export function widthOf(group: Group | undefined): Width {
  const tokens = group?.sequence_parallel ?? 1;
  return tokens > 1
    ? { field: "sequence_parallel", count: tokens }
    : { field: "tensor_parallel", count: group?.tensor_parallel ?? 1 };
}

/** The fields of a group that has this width. */
export function fieldsOf({ field, count }: Width): Required<Pick<Group, WidthField>> {
  return { tensor_parallel: 1, sequence_parallel: 1, [field]: count };
}

export function sameWidth(one: Width, other: Width): boolean {
  return one.count === other.count && (one.count === 1 || one.field === other.field);
}
