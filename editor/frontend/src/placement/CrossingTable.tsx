// Everything that goes from one rank to another, Walk by Walk.
import { ArrowRight } from "lucide-react";
import { Empty } from "../ui/kit";
import { Table } from "../ui/Table";
import type { CopyShown } from "../messages/answers";
import { plural, showBytes } from "../ui/words";
import { RankMark } from "./board/bits";
import { TRANSPORTS, type Crossing } from "./model/crossings";

interface CrossingTableProps {
  crossings: readonly Crossing[];
  /** States that change rank. */
  copies: readonly CopyShown[];
  /** All of the plan's, whether they cross or not; `results`: what later steps read of earlier ones. */
  total: { wires: number; results: number };
  onHover: (crossing: Crossing | null) => void;
  onOpen: (crossing: Crossing) => void;
}

export function CrossingTable({ crossings, copies, total, onHover, onOpen }: CrossingTableProps) {
  if (total.wires === 0)
    return <Empty title="No plan yet">What crosses between ranks is listed once there is a plan.</Empty>;
  const all = total.results
    ? `All ${plural(total.wires, "wire")} and ${plural(total.results, "result")} between steps`
    : `All ${plural(total.wires, "wire")}`;
  if (crossings.length === 0 && copies.length === 0)
    return <Empty title="Nothing crosses">{all} stay on their rank, and so do all states.</Empty>;
  return (
    <>
      {crossings.length > 0 ? (
        <WireTable crossings={crossings} onHover={onHover} onOpen={onOpen} />
      ) : (
        <p className="explain">{all} stay on their rank.</p>
      )}
      {copies.length > 0 && <StateTable copies={copies} />}
    </>
  );
}

function WireTable({ crossings, onHover, onOpen }: Pick<CrossingTableProps, "crossings" | "onHover" | "onOpen">) {
  return (
    <Table className="wg-table crossings" columns={["Walk, stream or task", "From", "To", "Ranks", "How"]}>
      <tbody>
        {crossings.map((crossing, index) => (
          <Row
            key={crossing.key}
            crossing={crossing}
            first={whereOf(crossings[index - 1]) !== whereOf(crossing) || crossing.stream !== null}
            onHover={onHover}
            onOpen={onOpen}
          />
        ))}
      </tbody>
    </Table>
  );
}

interface RowProps extends Pick<CrossingTableProps, "onHover" | "onOpen"> {
  crossing: Crossing;
  /** Of its Walk. */
  first: boolean;
}

function Row({ crossing, first, onHover, onOpen }: RowProps) {
  const { task, from, to, source, target, transport } = crossing;
  return (
    <tr
      className={first ? "first" : ""}
      onPointerEnter={() => onHover(crossing)}
      onPointerLeave={() => onHover(null)}
      onFocus={() => onHover(crossing)}
      onBlur={() => onHover(null)}
    >
      <td>{first && whereOf(crossing)}</td>
      <td>
        <button
          type="button"
          className="wire"
          title={task === null ? "Show on the canvas" : "Show in the task"}
          onClick={() => onOpen(crossing)}
        >
          <code>{from}</code>
        </button>
      </td>
      <td>
        <code>{to}</code>
      </td>
      <td>
        <Way source={source} target={target} />
      </td>
      <td>
        <code>{transport}</code> <span className="about">{TRANSPORTS[transport] ?? ""}</span>
      </td>
    </tr>
  );
}

function whereOf(crossing: Crossing | undefined): string {
  if (!crossing) return "";
  const { walk, stream, task } = crossing;
  return task !== null ? `task ${task}, between steps` : stream !== null ? `stream ${stream}` : (walk ?? "");
}

function Way({ source, target }: { source: number; target: number }) {
  return (
    <span className="way">
      <RankMark rank={source} />
      <ArrowRight size={12} aria-label="to" />
      <RankMark rank={target} />
    </span>
  );
}

/** States go over whole: the cache of a request, where its Walks or its forks are on different ranks. */
function StateTable({ copies }: { copies: readonly CopyShown[] }) {
  return (
    <Table className="wg-table crossings" columns={["State", "When", "Ranks", "A usual request", "The largest"]}>
      <tbody>
        {copies.map(({ state, walk, source, target, bytes, largest }) => (
          <tr key={`${state} ${walk} ${source} ${target}`} className="first">
            <td>
              <code>{state}</code>
            </td>
            <td>{walk === null ? "between Walks" : `in ${walk}`}</td>
            <td>
              <Way source={source} target={target} />
            </td>
            <td>{largest === 0 ? "not known" : showBytes(bytes)}</td>
            <td>{largest === 0 ? "" : showBytes(largest)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
