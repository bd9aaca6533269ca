// The placement follows the graph: what is renamed there is renamed here, what is removed there is let go of. Pure.
import type { GraphDocument } from "../types";
import { renameNode, renameWalk } from "./edits";
import { isReadable } from "./resolve";
import type { Group, PlacementDocument } from "./schema.generated";

/** The placement after an edit of its graph; the same object where the edit renamed and removed nothing. */
export function followGraph(
  placement: PlacementDocument | null,
  before: GraphDocument,
  after: GraphDocument,
): PlacementDocument | null {
  if (!isReadable(placement) || before === after) return placement;
  const nodes = changes(before.nodes ?? {}, after.nodes ?? {});
  const walks = changes(before.walks ?? {}, after.walks ?? {});
  let followed = placement;
  if (nodes.renamed) followed = renameNode(followed, ...nodes.renamed);
  if (walks.renamed) followed = renameWalk(followed, ...walks.renamed);
  return without(followed, nodes.gone, walks.gone);
}

interface Changes {
  /** From, to. */
  renamed: [string, string] | null;
  gone: ReadonlySet<string>;
}

const NONE: Changes = { renamed: null, gone: new Set() };

/** One that goes while an equal one comes is renamed. */
function changes(before: Record<string, unknown>, after: Record<string, unknown>): Changes {
  if (before === after) return NONE;
  const gone = Object.keys(before).filter((name) => !(name in after));
  const come = Object.keys(after).filter((name) => !(name in before));
  const [from, to] = [gone[0], come[0]];
  const one = gone.length === 1 && come.length === 1 && from !== undefined && to !== undefined;
  if (one && JSON.stringify(before[from]) === JSON.stringify(after[to]))
    return { renamed: [from, to], gone: NONE.gone };
  return { renamed: null, gone: new Set(gone) };
}

function without(
  placement: PlacementDocument,
  nodes: ReadonlySet<string>,
  walks: ReadonlySet<string>,
): PlacementDocument {
  const touched = (group: Group) =>
    group.nodes.some((node) => nodes.has(node)) || (group.walks ?? []).some((walk) => walks.has(walk));
  if (!placement.groups.some(touched)) return placement;
  const groups = placement.groups.flatMap((group) => {
    if (!touched(group)) return [group];
    const left = group.nodes.filter((node) => !nodes.has(node));
    const here = group.walks?.filter((walk) => !walks.has(walk));
    if (left.length === 0 || here?.length === 0) return [];
    return [{ ...group, nodes: left, ...(here ? { walks: here } : {}) }];
  });
  return { ...placement, groups };
}
