// What a run waits for a person with: the values, and the answer.
import { useState } from "react";
import { ApiError, call } from "../../api/client";
import type { ApprovalEvent, ValueShown } from "../../messages/answers";
import { Button } from "../../ui/kit";
import { strings } from "../../strings";

export function ApprovalForm({ run, approval }: { run: string; approval: ApprovalEvent }) {
  const [note, setNote] = useState("");
  const [sending, setSending] = useState(false);
  const [fault, setFault] = useState("");
  const answer = async (approved: boolean) => {
    setSending(true);
    setFault("");
    const body = { approved, note, number: approval.number };
    try {
      await call(`/api/v1/runs/${encodeURIComponent(run)}/approval`, { method: "POST", body });
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      setFault(error.message);
    } finally {
      setSending(false);
    }
  };
  const ends = new Date(approval.expires_at * 1000).toLocaleString();
  return (
    <section className="wg-play-output wg-play-approval" aria-label={strings.play.waitsForAPerson}>
      <header>
        <h3>{approval.label || strings.play.waitsForAPerson}</h3>
        <span className="note">{strings.play.answerUntil(ends)}</span>
      </header>
      <dl>
        {Object.entries(approval.values).map(([name, value]) => (
          <div key={name}>
            <dt>
              <code>{name}</code>
            </dt>
            <dd>
              <Shown name={name} value={value} />
            </dd>
          </div>
        ))}
      </dl>
      <div className="answer">
        <input
          aria-label={strings.play.noteToTheAnswer}
          placeholder={strings.play.aNoteIfYouLike}
          maxLength={4000}
          value={note}
          onChange={(event) => setNote(event.target.value)}
        />
        <Button kind="primary" disabled={sending} onClick={() => void answer(true)}>
          {strings.play.approve}
        </Button>
        <Button disabled={sending} onClick={() => void answer(false)}>
          {strings.play.refuse}
        </Button>
      </div>
      {fault && <p role="alert">{fault}</p>}
    </section>
  );
}

function Shown({ name, value }: { name: string; value: ValueShown | null }) {
  if (value === null) return <span className="note">{strings.play.nothing}</span>;
  const source = `data:${value.mime ?? ""};base64,${value.data ?? ""}`;
  if (value.type === "image") return <img alt={name} src={source} />;
  if (value.type === "audio") return <audio controls src={source} aria-label={name} />;
  if (value.type === "video") return <video controls src={source} aria-label={name} />;
  if (value.type === "text") return <span className="text">{value.text}</span>;
  return <code>{JSON.stringify(value.value ?? value.data ?? value)}</code>;
}
