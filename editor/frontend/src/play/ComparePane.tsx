// Two runs side by side: pictures under a slider, texts with their differences, and what was asked differently.
import { Diff, X } from "lucide-react";
import { useMemo, useState, type CSSProperties } from "react";
import { compareRuns } from "../debug/model/replay";
import { useEditor } from "../store/react";
import { Button, IconButton } from "../ui/kit";
import { Table } from "../ui/Table";
import type { Entry } from "./runs/history";
import { labelOf } from "./model/form";
import { dataUrl } from "./files/media";
import { OutputView } from "./outputs/outputs";
import { pictureOf, PREVIEW, textOf } from "./model/results";
import { textDiff } from "./model/textdiff";
import type { Result } from "./model/types";
import { differing } from "./model/words";
import { strings } from "../strings";

export function ComparePane({ entries, onClose }: { entries: [Entry, Entry]; onClose: () => void }) {
  const editor = useEditor();
  const [left, right] = entries;
  const rows = differing(left, right);
  return (
    <div className="wg-play-compare">
      <header>
        <h2>{strings.play.compare}</h2>
        <Button
          kind="quiet"
          title={strings.play.valueByValueWhereBoth}
          onClick={() => void compareRuns(editor, left.head.id, right.head.id)}
        >
          <Diff size={13} aria-hidden /> {strings.play.compareValues}
        </Button>
        <IconButton label={strings.play.endTheComparison} onClick={onClose}>
          <X size={16} />
        </IconButton>
      </header>
      <Bodies left={left.result} right={right.result} />
      {rows.length === 0 ? (
        <p className="wg-play-hint">{strings.play.bothRanWithTheSame}</p>
      ) : (
        <Table columns={[strings.play.different, strings.play.left, strings.play.right]}>
          <tbody>
            {rows.map((row) => (
              <tr key={row.name}>
                <th scope="row">{labelOf(row.name)}</th>
                <td>{row.left}</td>
                <td>{row.right}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </div>
  );
}

function Bodies({ left, right }: { left: Result; right: Result }) {
  const pictures = [pictureOf(left), pictureOf(right)];
  if (pictures[0] && pictures[1])
    return <Wipe left={dataUrl(pictures[0].value)} right={dataUrl(pictures[1].value)} />;
  if (textOf(left) && textOf(right)) return <Texts left={textOf(left)} right={textOf(right)} />;
  return (
    <div className="pair">
      {[left, right].map((result, index) => (
        <div key={index}>
          {Object.values(result.outputs)
            .filter((output) => output.name !== PREVIEW)
            .map((output) => (
              <OutputView key={output.name} output={output} over onSave={() => undefined} uses={[]} />
            ))}
        </div>
      ))}
    </div>
  );
}

function Wipe({ left, right }: { left: string; right: string }) {
  const [at, setAt] = useState(50);
  const [small, setSmall] = useState(false);
  return (
    <div className={`wipe ${small ? "small" : ""}`} style={{ "--at": `${at}%` } as CSSProperties}>
      <img
        src={right}
        alt={strings.play.rightRun}
        onLoad={(event) => setSmall(event.currentTarget.naturalWidth < 256)}
      />
      <img className="left" src={left} alt={strings.play.leftRun} />
      <div className="line" aria-hidden />
      <span className="name" aria-hidden>
        {strings.play.left}
      </span>
      <span className="name right" aria-hidden>
        {strings.play.right}
      </span>
      <input
        type="range"
        aria-label={strings.play.howMuchOfTheLeft}
        min={0}
        max={100}
        value={at}
        onChange={(event) => setAt(Number(event.target.value))}
      />
    </div>
  );
}

function Texts({ left, right }: { left: string; right: string }) {
  const pieces = useMemo(() => textDiff(left, right), [left, right]);
  return (
    <div className="pair">
      <p className="text" aria-label={strings.play.leftText}>
        {pieces
          .filter((piece) => piece.kind !== "right")
          .map((piece, index) => (piece.kind === "left" ? <del key={index}>{piece.text}</del> : piece.text))}
      </p>
      <p className="text" aria-label={strings.play.rightText}>
        {pieces
          .filter((piece) => piece.kind !== "left")
          .map((piece, index) => (piece.kind === "right" ? <ins key={index}>{piece.text}</ins> : piece.text))}
      </p>
    </div>
  );
}
