// How an unfinished run of this client stands: it goes on, or waits at a place of the queue.
import { Badge } from "../ui/kit";
import type { Standing } from "./queue";

export function StandingMark({ standing }: { standing: Standing | null }) {
  if (!standing) return null;
  return (
    <>
      <Badge kind={standing.kind}>{standing.words}</Badge>
      {standing.place}
    </>
  );
}
