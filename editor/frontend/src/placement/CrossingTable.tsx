// Everything that goes from one rank to another, Walk by Walk.
import { ArrowRight } from "lucide-react";
import { Empty } from "../ui/kit";
import { RankMark } from "./bits";
import { TRANSPORTS, type Crossing } from "./crossings";

interface CrossingTableProps {
  crossings: readonly Crossing[];
  /** Of all wires of the plan. */
  total: number;
  onHover: (crossing: Crossing | null) => void;
  onOpen: (crossing: Crossing) => void;
}

export function CrossingTable({ crossings, total, onHover, onOpen }: CrossingTableProps) {
  if (total === 0)
    return <Empty title="No plan yet">What crosses between ranks is listed once there is a plan.</Empty>;
  if (crossings.length === 0)
    return <Empty title="Nothing crosses">All {total} wires stay on their rank. That is the fastest there is.</Empty>;
  return (
    <table className="wg-table crossings">
      <thead>
        <tr>
          <th scope="col">Walk or stream</th>
          <th scope="col">From</th>
          <th scope="col">To</th>
          <th scope="col">Ranks</th>
          <th scope="col">How</th>
        </tr>
      </thead>
      <tbody>
        {crossings.map((crossing, index) => (
          <Row
            key={crossing.key}
            crossing={crossing}
            first={crossings[index - 1]?.walk !== crossing.walk || crossing.stream !== null}
            onHover={onHover}
            onOpen={onOpen}
          />
        ))}
      </tbody>
    </table>
  );
}

interface RowProps extends Pick<CrossingTableProps, "onHover" | "onOpen"> {
  crossing: Crossing;
  /** Of its Walk. */
  first: boolean;
}

function Row({ crossing, first, onHover, onOpen }: RowProps) {
  const { walk, stream, from, to, source, target, transport } = crossing;
  return (
    <tr
      className={first ? "first" : ""}
      onPointerEnter={() => onHover(crossing)}
      onPointerLeave={() => onHover(null)}
      onFocus={() => onHover(crossing)}
      onBlur={() => onHover(null)}
    >
      <td>{first && (stream !== null ? `stream ${stream}` : walk)}</td>
      <td>
        <button type="button" className="wire" title="Show on the canvas" onClick={() => onOpen(crossing)}>
          <code>{from}</code>
        </button>
      </td>
      <td>
        <code>{to}</code>
      </td>
      <td>
        <span className="way">
          <RankMark rank={source} />
          <ArrowRight size={12} aria-label="to" />
          <RankMark rank={target} />
        </span>
      </td>
      <td>
        <code>{transport}</code> <span className="about">{TRANSPORTS[transport] ?? ""}</span>
      </td>
    </tr>
  );
}
