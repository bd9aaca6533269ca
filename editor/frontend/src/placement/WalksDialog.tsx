// Where components run, Walk by Walk: read here, decode there.
import { useMemo } from "react";
import type { GraphDocument } from "../document/types";
import { Button, Dialog, Select } from "../ui/kit";
import { Table } from "../ui/Table";
import { assign } from "../document/placement/edits";
import { ranksOfNode, walksOfNodes } from "../document/placement/resolve";
import type { PlacementDocument } from "../document/placement/schema.generated";
import { strings } from "../strings";

interface WalksDialogProps {
  nodes: readonly string[];
  placement: PlacementDocument;
  graph: GraphDocument;
  onEdit: (label: string, change: (placement: PlacementDocument) => PlacementDocument) => void;
  onClose: () => void;
}

export function WalksDialog({ nodes, placement, graph, onEdit, onClose }: WalksDialogProps) {
  const users = useMemo(() => {
    const found = new Map<string, string[]>();
    for (const walk of Object.keys(graph.walks ?? {})) {
      const here = nodes.filter((node) => walksOfNodes(graph).get(node)?.includes(walk));
      if (here.length > 0) found.set(walk, here);
    }
    return [...found];
  }, [graph, nodes]);
  const title =
    nodes.length === 1 ? strings.placement.whereRuns(nodes[0]) : strings.placement.whereComponentsRun(nodes.length);
  const put = (walk: string | null, here: readonly string[], rank: number) =>
    onEdit(
      walk === null
        ? strings.placement.move(nodes.join(", "))
        : strings.placement.moveWithWalk(here.join(", "), walk),
      (current) => assign(current, graph, here, [rank], walk === null ? null : [walk]),
    );
  return (
    <Dialog title={title} onClose={onClose} footer={<Button onClick={onClose}>{strings.placement.done}</Button>}>
      <p className="wg-place-hint">{strings.placement.ifTheWalksOfOne}</p>
      <Table
        columns={[
          strings.placement.walk,
          nodes.length > 1 ? strings.placement.components : null,
          strings.placement.rank,
        ]}
      >
        <tbody>
          {users.map(([walk, here]) => (
            <tr key={walk}>
              <td>{walk}</td>
              {nodes.length > 1 && <td>{here.join(", ")}</td>}
              <td>
                <RankSelect
                  label={strings.placement.rankWithWalk(walk)}
                  placement={placement}
                  rank={common(here.map((node) => ranksOfNode(placement, node, walk)))}
                  onChange={(rank) => put(walk, here, rank)}
                />
              </td>
            </tr>
          ))}
          <tr>
            <td>
              <b>{strings.placement.allWalks}</b>
            </td>
            {nodes.length > 1 && <td />}
            <td>
              <RankSelect
                label={strings.placement.rankInAllWalks}
                placement={placement}
                rank={common(users.flatMap(([walk, here]) => here.map((node) => ranksOfNode(placement, node, walk))))}
                onChange={(rank) => put(null, nodes, rank)}
              />
            </td>
          </tr>
        </tbody>
      </Table>
    </Dialog>
  );
}

/** The one rank that all are on, or null. */
function common(places: readonly number[][]): number | null {
  const ranks = new Set(places.map((ranks) => ranks.join()));
  const [first] = places;
  return ranks.size === 1 && first?.length === 1 ? (first[0] ?? null) : null;
}

interface RankSelectProps {
  label: string;
  placement: PlacementDocument;
  rank: number | null;
  onChange: (rank: number) => void;
}

function RankSelect({ label, placement, rank, onChange }: RankSelectProps) {
  const options = placement.ranks.map((entry) => ({
    value: String(entry.rank),
    label: strings.placement.rankWithDevice(entry.rank, entry.device),
  }));
  const none = { value: "", label: strings.placement.several, disabled: true };
  return (
    <Select
      aria-label={label}
      value={rank === null ? "" : String(rank)}
      onChange={(value) => onChange(Number(value))}
      options={rank === null ? [none, ...options] : options}
    />
  );
}
