// The inputs of the node that failed: shapes and figures, if the run was recorded.
import { useMemo, useSyncExternalStore } from "react";
import { useEditorState } from "../store/react";
import { alarm, figure, typeWords } from "../taps/looks";
import { showIteration } from "./model/calls";
import { fedTo, recorded } from "./model/recorded";
import { Table } from "../ui/Table";
import { strings } from "../strings";

interface Props {
  run: string;
  walk: string;
  node: string;
  /** By port: kinds and sizes alone, which every failure tells. */
  given: Readonly<Record<string, string>>;
  /** Runs it again, recorded; null: it can't be. */
  onRecord: (() => void) | null;
}

export function FailedInputs({ run, walk, node, given, onRecord }: Props) {
  const deployed = useEditorState((state) => state.deployed ?? state.documents.graph);
  const version = useSyncExternalStore(recorded.watch, recorded.now);
  const latest = recorded.of(run);
  const fed = useMemo(
    () => (latest ? fedTo(deployed, walk, node, latest) : []),
    [deployed, walk, node, latest, version],
  );
  if (!latest)
    return (
      <>
        <Given node={node} given={given} />
        {onRecord && (
          <p className="wg-fed-none">
            <button type="button" className="wg-dock-link" onClick={onRecord}>
              {strings.debug.runItAgainRecorded}
            </button>{" "}
            {strings.debug.toSeeTheInputs(node)}
          </p>
        )}
      </>
    );
  if (fed.length === 0) return null;
  return (
    <Table
      className="wg-table wg-fed"
      aria-label={strings.debug.inputs(node)}
      columns={[
        strings.debug.into,
        strings.debug.from,
        strings.debug.lastValue,
        strings.debug.iteration2,
        strings.debug.figures,
      ]}
    >
      <tbody>
        {fed.map(({ to, from, sample }) => (
          <tr key={`${from} ${to}`}>
            <td>
              <code>{to}</code>
            </td>
            <td>
              <code>{from}</code>
            </td>
            <td>{sample ? <code>{typeWords(sample)}</code> : strings.debug.nothingWasReported}</td>
            <td>{sample ? showIteration(sample.iteration) || "–" : ""}</td>
            <td>{sample?.statistics && (alarm(sample.statistics) || figuresOf(sample.statistics))}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}

function Given({ node, given }: Pick<Props, "node" | "given">) {
  const ports = Object.entries(given);
  if (ports.length === 0) return null;
  return (
    <table className="wg-table wg-fed" aria-label={strings.debug.valuesGiven(node)}>
      <tbody>
        {ports.map(([port, words]) => (
          <tr key={port}>
            <th scope="row">
              <code>{port}</code>
            </th>
            <td>
              <code>{words}</code>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function figuresOf({ low, mean, high }: { low: number; mean: number; high: number }): string {
  return strings.debug.toMean(figure(low), figure(high), figure(mean));
}
