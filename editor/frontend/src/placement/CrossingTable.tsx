// Everything that goes from one rank to another, Walk by Walk.
import { ArrowRight } from "lucide-react";
import { Empty } from "../ui/kit";
import { Table } from "../ui/Table";
import type { CopyShown, PlanShown } from "../messages/answers";
import { plural, showBytes } from "../ui/words";
import { RankMark } from "./board/bits";
import { costWords } from "./model/costs";
import { bytesOf } from "./model/measured";
import { transportWords, type Crossing } from "./model/crossings";
import { strings } from "../strings";

interface CrossingTableProps {
  crossings: readonly Crossing[];
  /** Knows the devices of the ranks, and the ways between them. */
  plan: Pick<PlanShown, "ranks" | "links" | "host_links"> | null;
  /** States that change rank. */
  copies: readonly CopyShown[];
  /** All of the plan's, whether they cross or not; `results`: what later steps read of earlier ones. */
  total: { wires: number; results: number };
  onHover: (crossing: Crossing | null) => void;
  onOpen: (crossing: Crossing) => void;
}

export function CrossingTable({ crossings, plan, copies, total, onHover, onOpen }: CrossingTableProps) {
  if (total.wires === 0)
    return <Empty title={strings.placement.noPlanYet}>{strings.placement.valuesThatCrossRanks}</Empty>;
  const all = total.results
    ? strings.placement.allAndBetweenSteps(plural(total.wires, "wire"), plural(total.results, "result"))
    : strings.placement.all(plural(total.wires, "wire"));
  if (crossings.length === 0 && copies.length === 0)
    return <Empty title={strings.placement.nothingCrosses}>{strings.placement.stayOnTheirRank(all)}</Empty>;
  return (
    <>
      {crossings.length > 0 ? (
        <WireTable crossings={crossings} plan={plan} onHover={onHover} onOpen={onOpen} />
      ) : (
        <p className="explain">{strings.placement.stayOnTheirRankWithAll(all)}</p>
      )}
      {copies.length > 0 && <StateTable copies={copies} plan={plan} />}
    </>
  );
}

function WireTable({ crossings, plan, onHover, onOpen }: Omit<CrossingTableProps, "copies" | "total">) {
  return (
    <Table
      className="wg-table crossings"
      columns={[
        strings.placement.walkStreamOrTask,
        strings.placement.from,
        strings.placement.to,
        strings.placement.ranks,
        strings.placement.transport,
      ]}
    >
      <tbody>
        {crossings.map((crossing, index) => (
          <Row
            key={crossing.key}
            crossing={crossing}
            plan={plan}
            first={whereOf(crossings[index - 1]) !== whereOf(crossing) || crossing.stream !== null}
            onHover={onHover}
            onOpen={onOpen}
          />
        ))}
      </tbody>
    </Table>
  );
}

interface RowProps extends Pick<CrossingTableProps, "plan" | "onHover" | "onOpen"> {
  crossing: Crossing;
  /** True for the first row of its Walk. */
  first: boolean;
}

function Row({ crossing, plan, first, onHover, onOpen }: RowProps) {
  const { task, from, to, source, target, transport } = crossing;
  const bytes = bytesOf(crossing.pointer, crossing.walk);
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
          title={task === null ? strings.placement.showOnTheCanvas : strings.placement.showInTheTask}
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
        <code>{transport}</code> <span className="about">{transportWords(crossing, plan)}</span>
        {bytes !== null && <span className="about">{strings.placement.measured(showBytes(bytes))}</span>}
        <Cost plan={plan} source={source} target={target} bytes={bytes} />
      </td>
    </tr>
  );
}

interface CostProps extends Pick<CrossingTableProps, "plan"> {
  source: number;
  target: number;
  /** null: not known. */
  bytes: number | null;
}

/** The hosts that a value goes between, and the time that it takes. */
function Cost({ plan, source, target, bytes }: CostProps) {
  const words = plan && costWords(plan, source, target, bytes);
  return words && <span className="about cost">{words}</span>;
}

function whereOf(crossing: Crossing | undefined): string {
  if (!crossing) return "";
  const { walk, stream, task } = crossing;
  return task !== null
    ? strings.placement.taskBetweenSteps(task)
    : stream !== null
      ? strings.placement.stream(stream)
      : (walk ?? "");
}

function Way({ source, target }: { source: number; target: number }) {
  return (
    <span className="way">
      <RankMark rank={source} />
      <ArrowRight size={12} aria-label={strings.placement.to2} />
      <RankMark rank={target} />
    </span>
  );
}

/** States go over whole or in parts: the cache of a request, where its Walks or its forks are on different ranks. */
function StateTable({ copies, plan }: Pick<CrossingTableProps, "copies" | "plan">) {
  return (
    <Table
      className="wg-table crossings"
      columns={[
        strings.placement.state,
        strings.placement.when,
        strings.placement.ranks,
        strings.placement.transport,
        strings.placement.typicalRequest,
        strings.placement.largestRequest,
      ]}
    >
      <tbody>
        {copies.map(({ state, walk, source, target, bytes, largest, transport, parts }) => (
          <tr key={`${state} ${walk} ${source} ${target}`} className="first">
            <td>
              <code>{state}</code>
            </td>
            <td>{walk === null ? strings.placement.betweenWalks : strings.placement.in(walk)}</td>
            <td>
              <Way source={source} target={target} />
            </td>
            <td>
              <code>{transport}</code>{" "}
              <span className="about">
                {parts ? strings.placement.inPartsWhileItGrows : strings.placement.inOnePiece}
              </span>
              <Cost plan={plan} source={source} target={target} bytes={bytes || null} />
            </td>
            <td>{largest === 0 ? strings.placement.notKnown : showBytes(bytes)}</td>
            <td>{largest === 0 ? "" : showBytes(largest)}</td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
