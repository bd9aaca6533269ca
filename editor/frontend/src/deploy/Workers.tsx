// The processes of a deployment: where each is, how far, and why not.
import type { WorkerShown } from "../messages/answers";
import { RankMark } from "../placement/board/bits";
import { Badge, Prose } from "../ui/kit";
import { Table } from "../ui/Table";
import { showAge } from "../ui/words";
import { progressOf, stepOf, STEPS, workerPhase } from "./phases";
import { useSince } from "./useSince";
import { strings } from "../strings";

interface WorkersProps {
  id: string;
  ranks: readonly WorkerShown[];
  /** A reason that is shown already. */
  told: string | null;
}

export function Workers({ id, ranks, told }: WorkersProps) {
  const since = useSince(id, ranks);
  if (ranks.length === 0) return null;
  return (
    <Table
      className="wg-table workers"
      columns={[
        strings.deploy.rank,
        strings.deploy.device,
        strings.deploy.state,
        strings.deploy.for,
        strings.deploy.restarts,
      ]}
    >
      <tbody>
        {ranks.map((worker) => (
          <WorkerRow
            key={worker.rank}
            worker={worker.reason === told ? { ...worker, reason: null } : worker}
            seconds={since(worker.rank)}
          />
        ))}
      </tbody>
    </Table>
  );
}

function WorkerRow({ worker, seconds }: { worker: WorkerShown; seconds: number | null }) {
  const { label, tone, fraction } = workerPhase(worker);
  const restarts = typeof worker["restarts"] === "number" ? worker["restarts"] : 0;
  return (
    <>
      <tr className={worker.reason ? "noted" : ""}>
        <td>
          <RankMark rank={worker.rank} />
        </td>
        <td>{worker.device ?? "…"}</td>
        <td>
          <Badge kind={tone}>{label}</Badge>
          {fraction !== null && (
            <Progress value={fraction} label={strings.deploy.rankWithLabel(worker.rank, label)} />
          )}
        </td>
        <td className="number" title={seconds === null ? strings.deploy.sinceBeforeThisPage : undefined}>
          {seconds === null ? "–" : showAge(seconds)}
        </td>
        <td className="number">{restarts}</td>
      </tr>
      {worker.reason && (
        <tr>
          <td />
          <td colSpan={4} className="reason">
            <Prose text={worker.reason} />
          </td>
        </tr>
      )}
    </>
  );
}

function Progress({ value, label }: { value: number; label: string }) {
  const percent = Math.round(100 * value);
  return (
    <span
      className="progress"
      role="progressbar"
      aria-label={label}
      aria-valuenow={percent}
      aria-valuemin={0}
      aria-valuemax={100}
    >
      <i style={{ width: `${percent}%` }} />
      <b>{percent} %</b>
    </span>
  );
}

/** The steps of a start with the one under way; `failed` where it goes no further. */
export function Steps({ ranks, failed }: { ranks: readonly WorkerShown[]; failed: boolean }) {
  const current = STEPS.findIndex((entry) => entry.step === stepOf(ranks));
  const done = (index: number) => index < current || (index === current && index === STEPS.length - 1);
  return (
    <>
      <ol className="steps">
        {STEPS.map(({ step, label }, index) => {
          const state = done(index) ? "done" : index > current ? "to-come" : failed ? "failed" : "current";
          return (
            <li key={step} className={state} aria-current={state === "current" ? "step" : undefined}>
              <i aria-hidden>{state === "done" ? "✓" : state === "failed" ? "✕" : index + 1}</i>
              {label}
            </li>
          );
        })}
      </ol>
      {!failed && <Progress value={progressOf(ranks)} label={strings.deploy.allWorkers} />}
    </>
  );
}
