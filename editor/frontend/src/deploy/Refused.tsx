// Why the service would not, or did not, deploy: each reason leads to its place.
import { CircleAlert } from "lucide-react";
import { locate, go } from "../store/locate";
import { useEditor } from "../store/react";
import { Prose } from "../ui/kit";
import type { Refusal } from "./actions";
import { strings } from "../strings";

export function Refused({ title, refusal }: { title: string; refusal: Refusal }) {
  const editor = useEditor();
  const show = (pointer: string) => {
    if (!pointer.startsWith("/graph")) return editor.see({ tab: "placement" });
    return go(editor, locate(editor.graph, pointer.slice("/graph".length)));
  };
  return (
    <section className="refused" role="alert" aria-label={title}>
      <h2>
        <CircleAlert size={15} aria-hidden /> {title}
      </h2>
      <p>
        <Prose text={refusal.message} />
      </p>
      <ul>
        {refusal.problems.map((problem) => (
          <li key={problem.pointer + problem.code + problem.message}>
            <button type="button" onClick={() => show(problem.pointer)} title={strings.deploy.showWhere}>
              <span className="where">{problem.pointer.startsWith("/graph") ? "graph" : "placement"}</span>
              <span>
                <Prose text={problem.message} />
              </span>
            </button>
          </li>
        ))}
      </ul>
    </section>
  );
}
