// Why the service would not, or did not, deploy: each reason leads to its place.
import { CircleAlert } from "lucide-react";
import type { PlanShown } from "../api/types";
import { locate } from "../panels/locate";
import { Sentence } from "../placement/bits";
import { useEditor } from "../store/react";
import type { Refusal } from "./actions";

export function Refused({ title, refusal }: { title: string; refusal: Refusal }) {
  const editor = useEditor();
  const show = (pointer: string) => {
    if (!pointer.startsWith("/graph")) return editor.see({ tab: "placement" });
    const { tab, canvas, selection } = locate(editor.graph, pointer.slice("/graph".length));
    return editor.see({ tab, canvas, selection });
  };
  return (
    <section className="refused" role="alert" aria-label={title}>
      <h2>
        <CircleAlert size={15} aria-hidden /> {title}
      </h2>
      <p>
        <Sentence text={refusal.message} />
      </p>
      <ul>
        {refusal.problems.map((problem) => (
          <li key={problem.pointer + problem.code + problem.message}>
            <button type="button" onClick={() => show(problem.pointer)} title="Show where">
              <span className="where">{problem.pointer.startsWith("/graph") ? "graph" : "placement"}</span>
              <span>
                <Sentence text={problem.message} />
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}

const KEEP = new Set(["unavailable", "no_weights", "component_unavailable"]);

/** What the plan says already; null: nothing speaks against deploying. */
export function forecast(plan: PlanShown | null): Refusal | null {
  if (!plan || plan.deployable || plan.devices.some((device) => device.hypothetical)) return null;
  const problems = plan.problems.filter((problem) =>
    plan.ok ? KEEP.has(problem.code) && problem.pointer.startsWith("/") : problem.severity === "error",
  );
  const message = plan.ok
    ? "It can be planned, but not run here."
    : "These keep it from running; each line leads to its place.";
  return { message, problems };
}
