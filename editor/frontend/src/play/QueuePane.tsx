// The queue: this client's runs that go on or wait for their turn, to be cancelled and put in order.
import { ArrowDown, ArrowUp, X } from "lucide-react";
import { useState } from "react";
import type { QueueShown } from "../messages/answers";
import { standingOf, type Queue } from "../session/queue";
import { StandingMark } from "../session/StandingMark";
import { Button, IconButton } from "../ui/kit";
import { labelOf } from "./model/form";
import { strings } from "../strings";

interface Props {
  queue: Queue;
  told: QueueShown;
  /** Task -> its name for people. */
  labels: Readonly<Record<string, string>>;
  onRefused: (error: Error) => void;
}

export function QueuePane({ queue, told, labels, onRefused }: Props) {
  const { runs } = told;
  if (runs.length === 0) return null;
  const attempt = (doing: Promise<void>) => void doing.catch(onRefused);
  return (
    <section className="wg-play-queue" aria-label={strings.play.queue}>
      <header>
        <h2>{strings.play.queue}</h2>
        {runs.length > 1 && <CancelAll count={runs.length} onCancel={() => attempt(queue.cancelAll())} />}
      </header>
      <ol>
        {runs.map((run) => (
          <li key={run.run}>
            <span className="words">
              <span className="said" title={run.said}>
                {run.said || labels[run.task] || labelOf(run.task)}
              </span>
              <span className="when">
                <StandingMark standing={standingOf(told, run.run)} />
              </span>
            </span>
            {run.state === "waiting" && runs.length > 1 && (
              <>
                <IconButton
                  label={strings.play.moveRunUp}
                  disabled={!run.up}
                  onClick={() => attempt(queue.move(run.run, "up"))}
                >
                  <ArrowUp size={13} />
                </IconButton>
                <IconButton
                  label={strings.play.moveRunDown}
                  disabled={!run.down}
                  onClick={() => attempt(queue.move(run.run, "down"))}
                >
                  <ArrowDown size={13} />
                </IconButton>
              </>
            )}
            <IconButton label={strings.play.cancelThisRun} onClick={() => attempt(queue.cancel(run.run))}>
              <X size={13} />
            </IconButton>
          </li>
        ))}
      </ol>
    </section>
  );
}

/** Asks once more, in place. */
function CancelAll({ count, onCancel }: { count: number; onCancel: () => void }) {
  const [sure, setSure] = useState(false);
  if (!sure) {
    return (
      <Button kind="quiet" onClick={() => setSure(true)}>
        {strings.play.cancelAll}
      </Button>
    );
  }
  return (
    <Button kind="danger" autoFocus onBlur={() => setSure(false)} onClick={() => (setSure(false), onCancel())}>
      {strings.play.cancelThese(count)}
    </Button>
  );
}
